//! `nicstripe ssh-server`: the program that ssh starts on the other machine. Serves one client, with
//! one-time keys, until that client or its ssh has gone.

use std::{
    env, io,
    path::{Path, PathBuf},
    pin::pin,
    time::Duration,
};

use clap::Args;
use nicstripe::{
    CancellationToken, Daemon, DaemonBuilder, DaemonHandle, Error, Metrics, RoutePolicy,
    bootstrap::{BootstrapError, Called, MAX_LINE, Serving},
    routes::RouteKeeper,
    trust::{Access, DialTarget, PeerOptions},
};
use nix::unistd::User;
use rustix::process::geteuid;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    time::Instant,
};

use crate::{
    failure::{CommandError, Failure, exit::Exit},
    output::{logging, terminal::Terminal},
    places,
    process::{runtime, signals::Signals, streams},
};

/// Serve one client over ssh, with one-time keys; started by `nicstripe cp FILE USER@HOST:`
///
/// Ends with its client or with ssh. Without options the client may do what the user may do. With
/// options it suits command= in authorized_keys.
#[derive(Debug, Args)]
pub(crate) struct SshServer {
    /// Serve only this directory, and no services
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,

    /// Let the client read only
    #[arg(long, conflicts_with = "append_only")]
    read_only: bool,

    /// Let the client create files, but not replace any
    #[arg(long)]
    append_only: bool,

    /// With other options: let the client reach this TCP service; may be repeated
    #[arg(long, value_name = "HOST:PORT")]
    dial: Vec<DialTarget>,

    /// Do nothing; succeeds if this program can serve over ssh
    #[arg(long)]
    check: bool,
}

impl SshServer {
    pub(crate) fn run(self, terminal: &Terminal) -> Result<(), Failure> {
        if self.check {
            return Ok(());
        }
        logging::start_quiet(terminal)?;
        let home = places::home()?;
        let routes = RouteKeeper::start_dedicated(RoutePolicy::Auto, &places::routes_dir(&home));
        runtime::run(async {
            let mut signals = Signals::take()?;
            let mut input = BufReader::new(streams::input(PIPE).map_err(Failure::Output)?);
            let mut output = streams::output(PIPE).map_err(Failure::Output)?;
            let mut say = async |line: &str| {
                output.write_all(line.as_bytes()).await?;
                output.write_all(b"\n").await?;
                output.flush().await
            };
            say("NICSTRIPE ready").await.map_err(Failure::Output)?;
            let mut line = Vec::new();
            let mut first = (&mut input).take(MAX_LINE as u64);
            first
                .read_until(b'\n', &mut line)
                .await
                .map_err(Failure::Output)?;
            let called = Called::parse(&String::from_utf8_lossy(&line)).map_err(Odd)?;
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
            let shutdown = CancellationToken::new();
            let mut watched = Watched::new(daemon.handle());
            let mut running = pin!(daemon.run(shutdown.clone()));
            let mut bytes = [0; 512];
            loop {
                tokio::select! {
                    ended = &mut running => return Ok(ended?),
                    () = tokio::time::sleep(LOOK) => if watched.is_over() { break },
                    // A read error is as good as the end; it would return at once each time.
                    read = input.read(&mut bytes), if !watched.is_closed => {
                        watched.is_closed = read.unwrap_or(0) == 0;
                        if watched.is_closed && watched.is_over() {
                            break;
                        }
                    }
                    _ = signals.stop() => break,
                }
            }
            shutdown.cancel();
            Ok(running.await?)
        })
    }

    /// Opens a daemon for the client on a free port, and returns it with the answer.
    async fn open(
        &self,
        called: &Called,
        routes: RouteKeeper,
    ) -> Result<(Daemon, String), Failure> {
        if !called.is_same_version() {
            return Err(OtherVersion.into());
        }
        let home = self.root.clone().unwrap_or_else(own_home);
        if self.root.is_some() && called.is_from_root() {
            return Err(OutsideRoot(home).into());
        }
        let (builder, key) = called.daemon(self.rights(called))?;
        let builder = self
            .serving(builder, called, &home)?
            .route_keeper(routes.into());
        let daemon = bound(builder, called.through_ssh()).await?;
        let homes = called.homes().iter().map(|name| home_of(name));
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
        self.root.is_some() || self.read_only || self.append_only || !self.dial.is_empty()
    }

    fn rights(&self, called: &Called) -> PeerOptions {
        let access = match (self.read_only, self.append_only) {
            (true, _) => Access::ReadOnly,
            (_, true) => Access::AppendOnly,
            _ => Access::Full,
        };
        PeerOptions {
            access,
            special_modes: !self.is_restricted(),
            dial: match self.is_restricted() {
                true => self.dial.clone(),
                false => called.dial(),
            },
            ..PeerOptions::unrestricted()
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
            Some(root) => builder.root(root.clone()).protect_home(places::home()?),
            None if called.is_from_root() => builder.start_at("/".into()),
            None => builder.start_at(home.to_owned()),
        })
    }
}

/// Listens on the first free port of [`PORTS`], which a firewall may allow, or on any.
async fn bound(builder: DaemonBuilder, through_ssh: Option<u16>) -> Result<Daemon, Error> {
    if through_ssh.is_none() {
        for port in PORTS {
            match builder.clone().port(port).bind().await {
                Err(Error::System { source, .. }) if source.kind() == io::ErrorKind::AddrInUse => {}
                bound => return bound,
            }
        }
    }
    builder.port(through_ssh.unwrap_or(0)).bind().await
}

fn port_of(daemon: &Daemon) -> u16 {
    let listens = daemon.addresses().first();
    listens.map_or(0, |listens| listens.address.port())
}

/// Returns the home directory of this process's user.
fn own_home() -> PathBuf {
    let named = env::var_os("HOME").map(PathBuf::from);
    let named = named.filter(|home| home.is_absolute());
    named
        .or_else(|| {
            User::from_uid(geteuid().as_raw().into())
                .ok()?
                .map(|user| user.dir)
        })
        .unwrap_or_else(|| "/".into())
}

fn home_of(name: &str) -> Option<PathBuf> {
    User::from_name(name).ok()?.map(|user| user.dir)
}

/// Decides when the client has gone.
#[derive(Debug)]
struct Watched {
    daemon: DaemonHandle,
    /// True once ssh has closed its connection.
    is_closed: bool,
    /// Time since which no link exists.
    idle: Instant,
    /// Number of links lost without a word from the client's kernel, when a link last existed.
    silent: u64,
}

impl Watched {
    fn new(daemon: DaemonHandle) -> Self {
        Self {
            daemon,
            is_closed: false,
            idle: Instant::now(),
            silent: 0,
        }
    }

    /// Returns true if the client has gone for good.
    ///
    /// - Its session ended, and ssh is closed or no session follows within [`CLOSED`].
    /// - No session begins within [`IDLE`].
    /// - It is killed: ssh is closed, and its kernel has closed all links.
    /// - ssh is closed, and all links were silently lost: it may return for [`SILENCE`].
    fn is_over(&mut self) -> bool {
        let metrics = self.daemon.metrics();
        let now = Instant::now();
        let silent = silently_lost(&metrics);
        if metrics.paths.up + metrics.paths.suspect > 0 {
            (self.idle, self.silent) = (now, silent);
            return false;
        }
        let idle = now - self.idle;
        match (metrics.sessions > 0, self.is_closed) {
            // ssh may not know yet that its cable is lost.
            (false, false) if metrics.sessions_begun > 0 => idle > CLOSED,
            (false, true) => metrics.sessions_begun > 0 || idle > CLOSED,
            (true, true) if silent == self.silent => idle > CLOSED,
            (true, true) => idle > SILENCE,
            // The session has its own patience.
            (true, false) => false,
            (false, false) => idle > IDLE,
        }
    }
}

fn silently_lost(metrics: &Metrics) -> u64 {
    let lost = metrics.paths_lost.iter();
    lost.filter(|(why, _)| **why != "reset")
        .map(|(_, count)| count)
        .sum()
}

/// Directory of the only root, for a client that asks for an absolute path.
#[derive(Debug, thiserror::Error)]
#[error("only {0:?} is served: expected paths relative to it")]
struct OutsideRoot(PathBuf);

impl CommandError for OutsideRoot {
    fn exit(&self) -> Exit {
        Exit::Refused
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the client speaks another protocol version")]
struct OtherVersion;

impl CommandError for OtherVersion {
    fn exit(&self) -> Exit {
        Exit::Protocol
    }
}

/// Standard input has no request of a client.
#[derive(Debug, thiserror::Error)]
#[error("ssh-server is started by ssh, for a client such as nicstripe cp FILE USER@HOST: ({0})")]
struct Odd(BootstrapError);

impl CommandError for Odd {
    fn exit(&self) -> Exit {
        Exit::Usage
    }
}

/// TCP ports to listen on, next to the daemon's own.
const PORTS: std::ops::RangeInclusive<u16> = 7748..=7763;

/// Buffer size of a pipe in bytes.
const PIPE: usize = 64 << 10;

/// Time between two looks at the client.
const LOOK: Duration = Duration::from_millis(200);

/// Time without any link after which a client whose kernel has closed all links, or whose session has
/// ended, counts as gone.
const CLOSED: Duration = Duration::from_secs(3);

/// Time in which silently lost links may return, if ssh is closed.
const SILENCE: Duration = Duration::from_secs(60);

/// Time without a first session after which the client counts as gone.
const IDLE: Duration = Duration::from_secs(120);
