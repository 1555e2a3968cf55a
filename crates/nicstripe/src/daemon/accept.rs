//! Admission of accepted connections: a slot for the greeting, or a rejection with its reason.

use std::{fmt, io, net::SocketAddr, sync::Arc, time::Instant};

use tokio::net::TcpStream;

use super::{greeting::greet, shared::Shared};
use crate::{
    report::error::seconds,
    text::logged::logged_error,
    trust::PublicKey,
    wire::{stream::StreamEnd, tls::TlsError},
};

/// Admits a new connection and starts its greeting in a task. Must stay cheap, since the next
/// connection waits for it.
pub(super) fn accept_connection(
    shared: &Arc<Shared>,
    accepted: io::Result<(TcpStream, SocketAddr)>,
    interface: &str,
) {
    let (tcp, remote) = match accepted {
        Ok(accepted) => accepted,
        Err(error) => {
            // Probably out of file descriptors: evict a stranger to free one.
            shared.gate.drop_oldest();
            tracing::warn!(%error, "cannot accept a connection");
            return;
        }
    };
    let deadline = Instant::now() + shared.limits().greeting_time;
    let Some(admission) = shared.gate.admit(remote) else {
        return shared.reject_connection("full", remote, &"too many connections");
    };
    let (shared, interface) = (shared.clone(), interface.to_owned());
    tokio::spawn(async move {
        let gone = admission.gone();
        let greeted = tokio::select! {
            greeted = tokio::time::timeout_at(deadline.into(), greet(&shared, tcp, remote, interface, admission, deadline)) => greeted,
            // Evicted: close without sending anything.
            () = gone.cancelled() => return shared.reject_connection("gave_way", remote, &"evicted for another connection"),
        };
        match greeted {
            Ok(Ok(())) => {}
            // A client's probe of a cable.
            Ok(Err(StreamEnd::Tls(TlsError::Truncated))) => {
                tracing::debug!(%remote, "connection closed before the hello");
            }
            Ok(Err(StreamEnd::Tls(TlsError::UntrustedKey(key)))) => {
                shared.reject_connection("untrusted_key", remote, &Unknown { key, remote });
            }
            Ok(Err(end)) => {
                shared.reject_connection(reason_word(&end), remote, &logged_error(&end));
            }
            Err(_) => {
                shared.reject_connection(
                    "timed_out",
                    remote,
                    &format_args!(
                        "no hello within {} s",
                        seconds(shared.limits().greeting_time)
                    ),
                );
            }
        }
    });
}

impl Shared {
    /// Counts a rejected connection in the metrics, and logs it within the rate limit.
    fn reject_connection(&self, word: &'static str, remote: SocketAddr, reason: &dyn fmt::Display) {
        self.meters.greeting_refused(word);
        self.refusals.tell(remote, reason);
    }
}

/// Log message for an untrusted key, with the command that trusts it.
struct Unknown {
    key: PublicKey,
    remote: SocketAddr,
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.remote.ip().to_canonical().to_string();
        write!(
            f,
            "untrusted key; to trust it: {}",
            self.key.trust_command(&name)
        )
    }
}

fn reason_word(end: &StreamEnd) -> &'static str {
    match end {
        StreamEnd::Tls(TlsError::TimedOut) => "timed_out",
        StreamEnd::Tls(TlsError::NotTls(_)) => "not_tls",
        StreamEnd::Tls(_) => "handshake",
        StreamEnd::Evicted => "gave_way",
        _ => "greeting",
    }
}
