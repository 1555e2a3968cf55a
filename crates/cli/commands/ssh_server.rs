//! `nicstripe ssh-server`: the program that ssh starts on the other machine. Serves one client, with
//! one-time keys, until that client or its ssh has gone.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use clap::Args;
use nicstripe::{
    Daemon, DaemonBuilder, RoutePolicy,
    bootstrap::{Called, MAX_LINE, Serving},
    routes::RouteKeeper,
    trust::{DialTarget, ExecRule, ListenTarget, PeerOptions},
};
use nix::unistd::User;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};

use super::{
    exec::executor::{Environment, Processes},
    one_client::{bound, port_of, serve},
    trust::access,
};
use crate::{
    failure::{Failure, Fault, exit::Exit, usage},
    output::{logging, terminal::Terminal},
    places,
    process::{runtime, signals::Signals, streams},
};

/// Serve one client over ssh, with one-time keys; started by `nicstripe cp FILE USER@HOST:`
///
/// Ends with its client or with ssh. Without options the client may do what the user may do. With
/// options it may do what they name, and nothing else: no files without --root, no service without
/// --dial, no command. This suits command= in authorized_keys.
#[derive(Debug, Args)]
pub(crate) struct SshServer {
    /// Serve this directory, and no services
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,

    /// With --root: let the client read only
    #[arg(long, conflicts_with = "append_only")]
    read_only: bool,

    /// With --root: let the client create files, but not replace any
    #[arg(long)]
    append_only: bool,

    /// Let the client reach this service, or unix:/PATH; may be repeated
    #[arg(long, value_name = "HOST:PORT")]
    dial: Vec<DialTarget>,

    /// Let the client listen here, or at unix:/PATH; may be repeated
    #[arg(long, value_name = "[ADDRESS:]PORT")]
    listen: Vec<ListenTarget>,

    /// Do nothing; succeeds if this program can serve over ssh
    #[arg(long)]
    check: bool,
}

impl SshServer {
    pub(crate) fn run(self, terminal: &Terminal) -> Result<(), Failure> {
        if self.check {
            return Ok(());
        }
        // Standard error is another machine's terminal.
        logging::start_at("error", terminal)?;
        let home = places::home()?;
        let routes = RouteKeeper::start_dedicated(RoutePolicy::Auto, places::routes_dir(&home));
        runtime::run(async {
            let mut signals = Signals::take()?;
            let mut input = BufReader::new(streams::input(PIPE).map_err(Failure::Output)?);
            let mut output = streams::output(PIPE).map_err(Failure::Output)?;
            // A login script may have printed text without a line break.
            let mut say = async |line: &str| {
                output.write_all(format!("\n{line}\n").as_bytes()).await?;
                output.flush().await
            };
            say("NICSTRIPE ready").await.map_err(Failure::Output)?;
            let mut line = Vec::new();
            let mut first = (&mut input).take(MAX_LINE as u64);
            let read = first.read_until(b'\n', &mut line);
            match tokio::time::timeout(FIRST_LINE, read).await {
                Ok(read) => drop(read.map_err(Failure::Output)?),
                Err(_) => {
                    let text = format!("the client sent nothing for {} s", FIRST_LINE.as_secs());
                    return Err(Fault::new(Exit::TimedOut, text).into());
                }
            }
            let called = Called::parse(&String::from_utf8_lossy(&line)).map_err(|why| {
                usage(format!("ssh-server is started by ssh, for a client such as nicstripe cp FILE USER@HOST: ({why})"))
            })?;
            let opened = self.open(&called, routes).await;
            let (daemon, reply) = match opened {
                Ok(opened) => opened,
                Err(failure) => {
                    // The client prints it; standard error is the same terminal.
                    let refusal = Called::refusal(&failure.one_line());
                    return say(&refusal).await.map_err(Failure::Output);
                }
            };
            say(&reply).await.map_err(Failure::Output)?;
            let closed = async {
                let mut bytes = [0; 512];
                // A read error is as good as the end.
                while input.read(&mut bytes).await.unwrap_or(0) > 0 {}
            };
            serve(daemon, closed, signals.stop(), |_| false)
                .await
                .map(drop)
        })
    }

    /// Opens a daemon for the client on a free port, and returns it with the answer.
    async fn open(
        &self,
        called: &Called,
        routes: RouteKeeper,
    ) -> Result<(Daemon, String), Failure> {
        if !called.is_same_version() {
            let text = "the client speaks another protocol version";
            return Err(Fault::new(Exit::Protocol, text).into());
        }
        if self.root.is_none() && (self.read_only || self.append_only) {
            let text = "--read-only and --append-only need --root DIR, the directory to serve";
            return Err(usage(text).into());
        }
        let home = match (&self.root, self.is_restricted()) {
            (Some(root), _) => std::path::absolute(root).map_err(Failure::opening(root))?,
            // sshd starts the shell of an account without a home in the root.
            (None, false) => Some(places::own_home())
                .filter(|home| home.is_dir())
                .unwrap_or_else(|| "/".into()),
            (None, true) => "/".into(),
        };
        if self.is_restricted() && called.is_from_root() {
            let text = match &self.root {
                Some(root) => format!("only {root:?} is served: expected paths relative to it"),
                None => "no files are served: ssh-server has no --root".into(),
            };
            return Err(Fault::new(Exit::Refused, text).into());
        }
        let (builder, key) = called.daemon(self.rights(called))?;
        let builder = self
            .serving(builder, called, &home)?
            .executor(Arc::new(Processes::new(Environment::Inherited)))
            .route_keeper(routes.into());
        let daemon = bound(builder, called.through_ssh()).await?;
        // Where users live is nothing that options grant.
        let home_of = |name: &String| home_of(name).filter(|_| !self.is_restricted());
        let homes = called.homes().iter().map(home_of);
        let homes: Vec<Option<PathBuf>> = homes.collect();
        let reply = called.reply(&Serving {
            key,
            port: port_of(&daemon),
            home: &home,
            homes: &homes,
        })?;
        Ok((daemon, reply))
    }

    fn is_restricted(&self) -> bool {
        let has_list = !self.dial.is_empty() || !self.listen.is_empty();
        self.root.is_some() || self.read_only || self.append_only || has_list
    }

    fn rights(&self, called: &Called) -> PeerOptions {
        match self.is_restricted() {
            true => PeerOptions {
                access: access(self.read_only, self.append_only),
                dial: self.dial.clone(),
                listen: self.listen.clone(),
                ..PeerOptions::reading()
            },
            false => PeerOptions {
                special_modes: true,
                dial: called.dial(),
                listen: called.listen(),
                exec: vec![ExecRule::any()],
                ..PeerOptions::unrestricted()
            },
        }
    }

    /// Sets where names begin.
    fn serving(
        &self,
        builder: DaemonBuilder,
        called: &Called,
        home: &Path,
    ) -> Result<DaemonBuilder, Failure> {
        Ok(match &self.root {
            // The keys and the list of peers give more than the root.
            Some(root) => builder
                .root(root.clone())
                .protect_home(places::home()?)
                .account_homes(places::account_homes()),
            None if self.is_restricted() => builder.root("/").inbox([], false),
            None if called.is_from_root() => builder.start_at("/"),
            None => builder.start_at(home.to_owned()),
        })
    }
}

fn home_of(name: &str) -> Option<PathBuf> {
    User::from_name(name).ok()?.map(|user| user.dir)
}

/// Maximum wait for the client, which sends its line at once.
const FIRST_LINE: Duration = Duration::from_secs(60);
/// Buffer size of a pipe in bytes.
const PIPE: usize = 64 << 10;
