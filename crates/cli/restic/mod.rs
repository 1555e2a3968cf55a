//! `nicstripe serve restic`: restic's REST API before the storage of a daemon.
//!
//! [`arguments`] is as typed. [`server`] speaks HTTP on [`stdio`] or TCP, [`repository`] answers: [`target`] reads paths, [`range`] a header,
//! [`body`] what is sent and [`reply`] makes what is sent back. [`objects`] is what a repository needs of its storage, [`peer`] has that over
//! a session. [`starter`] tells when nobody is there any more who could want it.

mod arguments;
mod body;
#[cfg(test)]
mod memory;
mod objects;
mod password;
mod peer;
mod range;
mod reply;
mod repository;
mod server;
mod starter;
mod stdio;
mod target;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use nicstripe::routes::RouteKeeper;

pub(crate) use self::arguments::Restic;
use self::{
    arguments::Place,
    password::{PASSWORD, Password, USER},
    peer::Peer,
    repository::Repository,
    server::Server,
};
use crate::{
    failure::Failure,
    logging, runtime,
    signals::{Signals, Stop},
    terminal::Terminal,
};

impl Restic {
    /// Serves until the other end of standard input hangs up, or whoever reads standard error, or a signal comes.
    pub(crate) fn run(self, terminal: &Terminal) -> Result<(), Failure> {
        logging::start(terminal)?;
        let place = self.place()?;
        let password = Password::from_env().map_err(|_| Failure::Setting { key: USER, why: format!("expected {PASSWORD} beside it") })?;
        let keeper = self.road.keeper()?;
        let runtime = runtime::threaded()?;
        let result = runtime.block_on(self.serve(place, password, keeper, terminal));
        // What the library still has to do after a close is not worth waiting for.
        runtime.shutdown_background();
        result
    }

    async fn serve(&self, place: Place, password: Option<Password>, keeper: Arc<RouteKeeper>, terminal: &Terminal) -> Result<(), Failure> {
        let mut signals = Signals::take()?;
        // The port is taken before the daemon is asked for anything: whoever waits for the line below waits for both.
        let listener = match &self.addr {
            Some(address) => Some(self.listen(address, password.is_some()).await?),
            None => None,
        };
        let client = tokio::select! {
            client = self.road.connect(&place.host, place.port, keeper) => client?,
            stop = signals.stop() => return Err(Failure::Stopped(stop)),
        };
        let repository = Repository::new(Arc::new(Peer::new(client.clone())), place.base);
        let stopped = match listener {
            Some(listener) => {
                if let Ok(address) = listener.local_addr() {
                    // rustic reads it.
                    terminal.say(format_args!("Serving restic REST API on http://{address}/"));
                }
                let server = Arc::new(Server { repository, password });
                let served = async {
                    tokio::select! {
                        () = server.accept(listener) => {}
                        () = starter::gone() => {}
                    }
                };
                until_stopped(served, &mut signals).await
            }
            None => {
                let server = Arc::new(Server { repository, password: None });
                let stream = stdio::open().map_err(Failure::Output)?;
                until_stopped(answer(server.serve(stream)), &mut signals).await
            }
        };
        tokio::select! {
            () = client.close() => {}
            stop = signals.stop() => stop.at_once(),
        }
        stopped.map_or(Ok(()), |stop| Err(Failure::Stopped(stop)))
    }

    async fn listen(&self, address: &str, has_password: bool) -> Result<tokio::net::TcpListener, Failure> {
        server::listen(address, has_password).await.map_err(|source| Failure::Listen { address: address.to_owned(), source })
    }
}

/// Whoever hangs up in the middle of a request has ended it.
async fn answer(connection: impl Future<Output = Result<(), server::ConnectionError>>) {
    if let Err(error) = connection.await {
        tracing::warn!(error = nicstripe::chain(error.as_ref()), "the connection on standard input and output broke off");
    }
}

/// Waits for the end of something, or for a signal.
async fn until_stopped(work: impl Future<Output = ()>, signals: &mut Signals) -> Option<Stop> {
    tokio::select! {
        () = work => None,
        stop = signals.stop() => Some(stop),
    }
}
