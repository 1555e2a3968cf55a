//! `nicstripe serve restic`: restic's REST API on top of a daemon's storage.
//!
//! - [`arguments`]: the command line as typed
//! - [`guard`]: the access check of requests, with [`password`]
//! - [`repository`]: answers requests, with [`target`] (paths), [`list`], [`range`], [`body`] and
//!   [`reply`]
//! - [`objects`], [`peer`]: the storage interface, and its implementation over a session

mod arguments;
mod body;
mod guard;
mod list;
mod objects;
mod password;
mod peer;
mod range;
mod reply;
mod repository;
mod target;
#[cfg(test)]
mod tests;

use std::{net::SocketAddr, sync::Arc};

use nicstripe::routes::RouteKeeper;

pub(crate) use self::arguments::Restic;
use self::{
    guard::{Guard, Guarded},
    password::{Password, USER},
    peer::Peer,
    repository::Repository,
};
use super::{
    connection_places::{Limits, Places},
    gateway,
    http::{self, Server},
    own_names::OwnNames,
    starter,
};
use crate::{
    connect::location::Remote,
    failure::Failure,
    output::{logging, stdout, terminal::Terminal},
    process::{
        runtime,
        signals::Signals,
        streams::{self, PIPE},
    },
};

impl Restic {
    /// Serves requests until standard input ends, the reader of standard error closes it, or a
    /// signal arrives.
    pub(crate) fn run(self, terminal: &Terminal) -> Result<(), Failure> {
        logging::start(terminal)?;
        if self.stdio {
            streams::check_input()?;
            streams::check_output()?;
        }
        let remote = gateway::address(&self.repository, "nas:backup")?;
        let keeper = self.connect.keeper()?;
        runtime::run(self.serve(remote, keeper, terminal))
    }

    async fn serve(
        &self,
        remote: Remote,
        keeper: Arc<RouteKeeper>,
        terminal: &Terminal,
    ) -> Result<(), Failure> {
        let mut signals = Signals::take()?;
        // Binds the port before it connects to the daemon: the line printed below means that both
        // are ready.
        let listening = match &self.addr {
            Some(address) => Some(self.listen(address).await?),
            None => None,
        };
        let typed = (&self.repository, remote);
        let (connected, base) =
            gateway::connect(&self.connect, typed, keeper, &mut signals).await?;
        let repository = Repository::new(Arc::new(Peer(connected.client.clone())), base);
        let serve = |guard| {
            let places = Arc::new(Places::new(Limits::default()));
            Arc::new(Server {
                service: Guarded { repository, guard },
                places,
                what: "restic",
            })
        };
        let stopped = match listening {
            Some(Listening {
                listener,
                address,
                guard,
                words,
            }) => {
                // rustic parses this line.
                terminal.say(format_args!("Serving restic REST API on http://{address}/"));
                if let Some(words) = words {
                    // Printed as a variable, because other users can see the command line of
                    // restic.
                    stdout::line(format_args!(
                        "export RESTIC_REPOSITORY='rest:http://{words}@{address}/'"
                    ))?;
                }
                let served = async {
                    tokio::select! {
                        () = serve(Some(guard)).accept(listener) => {}
                        () = starter::ended() => {}
                    }
                };
                signals.until_stopped(served).await
            }
            None => {
                let stream = streams::input(PIPE)
                    .and_then(|input| Ok(tokio::io::join(input, streams::output(PIPE)?)))
                    .map_err(Failure::Output)?;
                let served = async {
                    // Such as a client that disconnects during a request.
                    if let Err(error) = serve(None).serve(stream, None).await {
                        tracing::warn!(
                            error = nicstripe::chain(error.as_ref()),
                            "connection on standard input and output lost"
                        );
                    }
                };
                signals.until_stopped(served).await
            }
        };
        signals.finish(connected.close()).await;
        stopped.map_or(Ok(()), |stop| Err(Failure::Stopped(stop)))
    }

    async fn listen(&self, typed: &str) -> Result<Listening, Failure> {
        let failed = |source| Failure::Listen {
            address: typed.to_owned(),
            source,
        };
        let set = Password::from_env()?;
        if self.no_password && set.is_some() {
            return Err(Failure::Setting {
                key: USER,
                why: "set together with --no-password: expected one of them".into(),
            });
        }
        let (password, words) = match set {
            None if self.no_password => (None, None),
            None => Password::random()
                .map(|(password, words)| (Some(password), Some(words)))
                .map_err(failed)?,
            set => (set, None),
        };
        let (listener, address) = http::listen(typed, password.is_some())
            .await
            .map_err(failed)?;
        Ok(Listening {
            listener,
            address,
            guard: Guard {
                password,
                names: OwnNames::of(typed, address),
            },
            words,
        })
    }
}

/// Listening socket for HTTP requests, with its access check.
struct Listening {
    listener: tokio::net::TcpListener,
    address: SocketAddr,
    guard: Guard,
    /// User and password as `user:password`, if they were generated for this run.
    words: Option<String>,
}
