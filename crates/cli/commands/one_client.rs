//! Daemon for one client with one-time keys, which a channel has introduced: ssh, or an invitation.
//! It ends with its client.

use std::{io, pin::pin, time::Duration};

use nicstripe::{CancellationToken, Daemon, DaemonBuilder, DaemonHandle, Error, Metrics};
use tokio::time::Instant;

use crate::failure::Failure;

/// Serves until the client has gone, or `stop` is ready; returns the result of `stop` then. `closed`
/// is ready once the channel has closed. `look` is called several times a second, and returns true if
/// the client counts as gone.
pub(super) async fn serve<T>(
    daemon: Daemon,
    closed: impl Future<Output = ()>,
    stop: impl Future<Output = T>,
    mut look: impl FnMut(&Metrics) -> bool,
) -> Result<Option<T>, Failure> {
    let shutdown = CancellationToken::new();
    let mut watched = Watched::new(daemon.handle());
    let mut running = pin!(daemon.run(shutdown.clone()));
    let (mut closed, mut stop) = (pin!(closed), pin!(stop));
    let stopped = loop {
        tokio::select! {
            ended = &mut running => {
                ended?;
                return Ok(None);
            }
            () = tokio::time::sleep(LOOK) => {
                if look(&watched.daemon.metrics()) || watched.is_over() {
                    break None;
                }
            }
            () = &mut closed, if !watched.is_closed => {
                watched.is_closed = true;
                if watched.is_over() {
                    break None;
                }
            }
            stopped = &mut stop => break Some(stopped),
        }
    };
    shutdown.cancel();
    running.await?;
    look(&watched.daemon.metrics());
    Ok(stopped)
}

/// Listens on the first free port of [`PORTS`], which a firewall may allow, or on any.
pub(super) async fn bound(
    builder: DaemonBuilder,
    through_ssh: Option<u16>,
) -> Result<Daemon, Error> {
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

pub(super) fn port_of(daemon: &Daemon) -> u16 {
    let listens = daemon.addresses().first();
    listens.map_or(0, |listens| listens.address.port())
}

/// Decides when the client has gone.
#[derive(Debug)]
struct Watched {
    daemon: DaemonHandle,
    /// True once the channel that introduced the client has closed.
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
    /// - Its session ended, and the channel is closed or no session follows within [`CLOSED`].
    /// - No session begins within [`IDLE`].
    /// - It is killed: the channel is closed, and its kernel has closed all links.
    /// - The channel is closed, and all links were silently lost: it may return for [`SILENCE`].
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
            // The channel may not know yet that its cable is lost.
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

/// TCP ports to listen on, next to the daemon's own.
const PORTS: std::ops::RangeInclusive<u16> = 7748..=7763;

/// Time between two looks at the client.
const LOOK: Duration = Duration::from_millis(200);

/// Time without any link after which a client whose kernel has closed all links, or whose session has
/// ended, counts as gone.
const CLOSED: Duration = Duration::from_secs(3);

/// Time in which silently lost links may return, if the channel is closed.
const SILENCE: Duration = Duration::from_secs(60);

/// Time without a first session after which the client counts as gone.
const IDLE: Duration = Duration::from_secs(120);
