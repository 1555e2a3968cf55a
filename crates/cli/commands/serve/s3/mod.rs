//! `nicstripe serve s3`: the API of S3 on top of a daemon's files.
//!
//! - [`arguments`]: the command line as typed
//! - [`gate`]: the access check of requests; `nicstripe-s3` answers them

mod arguments;
mod gate;

use std::{io, net::SocketAddr, sync::Arc};

use nicstripe::{LocalListener, routes::RouteKeeper};
use nicstripe_s3::{Gateway, Keys};
use tokio::net::TcpListener;

pub(crate) use self::arguments::S3;
use self::gate::Gate;
use super::{
    connection_places::{Limits, Places},
    gateway,
    http::{self, Server},
    own_names::OwnNames,
};
use crate::{
    connect::location::Remote,
    failure::Failure,
    output::{logging, stdout, terminal::Terminal},
    process::{runtime, signals::Signals},
    text::shown,
};

impl S3 {
    /// Serves requests until a signal arrives.
    pub(crate) fn run(self, terminal: &Terminal) -> Result<(), Failure> {
        logging::start(terminal)?;
        let remote = gateway::address(&self.base, "nas:lake")?;
        let set = gateway::pair(ACCESS, SECRET)?;
        let keys = set.map(|(access, secret)| Keys::new(access, secret));
        let keys = keys.transpose().map_err(|error| Failure::Setting {
            key: ACCESS,
            why: error.to_string(),
        })?;
        let keeper = self.connect.keeper()?;
        runtime::run_hashing(self.serve(remote, keys, keeper, terminal))
    }

    async fn serve(
        &self,
        remote: Remote,
        set: Option<Keys>,
        keeper: Arc<RouteKeeper>,
        terminal: &Terminal,
    ) -> Result<(), Failure> {
        let mut signals = Signals::take()?;
        // Binds the port before it connects to the daemon: the line printed below means that both
        // are ready.
        let (listening, names) = self.listen().await?;
        let is_generated = set.is_none();
        let keys = match set {
            Some(keys) => keys,
            None => Keys::random().map_err(|error| Failure::Listen {
                address: self.place(),
                source: io::Error::other(error),
            })?,
        };
        let typed = (&self.base, remote);
        let (connected, base) =
            gateway::connect(&self.connect, typed, keeper, &mut signals).await?;
        let gateway = Gateway::new(connected.client.clone(), base, keys.clone());
        let server = Arc::new(Server {
            service: Gate { gateway, names },
            places: Arc::new(Places::new(Limits::default())),
            what: "S3",
        });
        self.tell(&listening, is_generated.then_some(&keys), terminal)?;
        let stopped = match listening {
            Listening::Tcp(listener, _) => signals.until_stopped(server.accept(listener)).await,
            Listening::Unix(listener) => {
                let served = server.accept_local(&listener);
                signals.until_stopped(served).await
            }
        };
        signals.finish(connected.close()).await;
        stopped.map_or(Ok(()), |stop| Err(Failure::Stopped(stop)))
    }

    async fn listen(&self) -> Result<(Listening, Option<OwnNames>), Failure> {
        let failed = |source| Failure::Listen {
            address: self.place(),
            source,
        };
        if let Some(path) = &self.unix {
            let invalid = || io::Error::new(io::ErrorKind::InvalidInput, "not a path of a socket");
            let path = std::path::absolute(path).map_err(failed)?;
            let target = path
                .to_str()
                .and_then(|path| format!("unix:{path}").parse().ok());
            let target = target.ok_or_else(invalid).map_err(failed)?;
            let listener = LocalListener::bind(&target).map_err(failed)?;
            return Ok((Listening::Unix(listener), None));
        }
        let typed = self.addr.as_deref().unwrap_or_default();
        // Every request is signed.
        let (listener, address) = http::listen(typed, true).await.map_err(failed)?;
        let names = OwnNames::of(typed, address);
        Ok((Listening::Tcp(listener, address), names))
    }

    /// Returns where the gateway listens, as typed.
    fn place(&self) -> String {
        match &self.unix {
            Some(path) => shown(path),
            None => self.addr.clone().unwrap_or_default(),
        }
    }

    /// Prints where the gateway listens, and the variables that AWS programs read.
    fn tell(
        &self,
        listening: &Listening,
        keys: Option<&Keys>,
        terminal: &Terminal,
    ) -> Result<(), Failure> {
        if let Listening::Tcp(_, address) = listening {
            terminal.say(format_args!("Serving S3 on http://{address}"));
            stdout::line(format_args!("export AWS_ENDPOINT_URL=http://{address}"))?;
        } else {
            terminal.say(format_args!("Serving S3 on {}", self.place()));
        }
        stdout::line(format_args!(
            "export AWS_REGION={REGION} AWS_DEFAULT_REGION={REGION}"
        ))?;
        // In variables, because other users can see command lines.
        let Some(keys) = keys else {
            return Ok(());
        };
        stdout::line(format_args!("export {ACCESS}={}", keys.access()))?;
        stdout::line(format_args!("export {SECRET}={}", keys.secret()))
    }
}

#[derive(Debug)]
enum Listening {
    Tcp(TcpListener, SocketAddr),
    Unix(LocalListener),
}

/// Region that clients sign for. The gateway accepts any; boto3 signs URLs for the oldest ones of AWS with
/// version 2.
const REGION: &str = "local";

const ACCESS: &str = "AWS_ACCESS_KEY_ID";
const SECRET: &str = "AWS_SECRET_ACCESS_KEY";
