//! Lookup of a peer's addresses, by discovery and the system's resolver in parallel.

use std::{
    io,
    net::SocketAddr,
    pin::pin,
    time::{Duration, Instant},
};

/// Addresses found by discovery, followed by those from the resolver or the address book.
pub(crate) type FoundAddresses = (Vec<SocketAddr>, Vec<SocketAddr>);

/// Waits for the system's resolver, at most [`RESOLVER_PATIENCE`].
///
/// # Errors
///
/// The resolver's message, or that it did not answer in time.
pub(crate) async fn resolved(
    resolver: impl Future<Output = io::Result<Vec<SocketAddr>>>,
) -> Result<Vec<SocketAddr>, String> {
    match tokio::time::timeout(RESOLVER_PATIENCE, resolver).await {
        Ok(found) => {
            found.map_err(|error| error.to_string().trim_start_matches(STD_PREFIX).to_owned())
        }
        Err(_) => Err(format!("no answer in {} s", RESOLVER_PATIENCE.as_secs())),
    }
}

/// Prefix that the standard library adds to the resolver's message.
const STD_PREFIX: &str = "failed to lookup address information: ";

/// Returns the addresses found by discovery on the `cables`, and those that `known` has returned by
/// then.
///
/// A discovery answer takes precedence, because the peer has signed it. If `known` returns first,
/// the peer has only [`HEAD_START`] to answer, as it may be far away.
///
/// # Errors
///
/// The reasons of both, if both fail.
pub(crate) async fn first_of<C, K>(
    cables: impl Future<Output = Result<Vec<SocketAddr>, C>>,
    known: impl Future<Output = Result<Vec<SocketAddr>, K>>,
) -> Result<FoundAddresses, (C, K)> {
    let (mut cables, mut known) = (pin!(cables), pin!(known));
    let head_start = Instant::now() + HEAD_START;
    tokio::select! {
        found = &mut cables => match found {
            Ok(addresses) => Ok((addresses, Vec::new())),
            Err(silence) => known.await.map(|known| (Vec::new(), known)).map_err(|why| (silence, why)),
        },
        found = &mut known => match found {
            Ok(known) => Ok(match tokio::time::timeout_at(head_start.into(), cables).await {
                Ok(Ok(addresses)) => (addresses, known),
                _ => (Vec::new(), known),
            }),
            Err(why) => cables.await.map(|addresses| (addresses, Vec::new())).map_err(|silence| (silence, why)),
        },
    }
}

/// Minimum time, from the start of a lookup, that a peer has to answer on a cable even if its name
/// is resolved earlier. An answer over a cable takes about 1 ms.
const HEAD_START: Duration = Duration::from_millis(50);

/// Timeout of the resolver: one silent name server (5 s by default, resolv.conf(5)) and an answer
/// of the next.
const RESOLVER_PATIENCE: Duration = Duration::from_secs(7);

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    fn cable() -> Vec<SocketAddr> {
        vec!["[fe80::2%7]:7747".parse().unwrap()]
    }

    fn resolved() -> Vec<SocketAddr> {
        vec!["192.0.2.1:7747".parse().unwrap()]
    }

    async fn later<T>(value: T) -> T {
        tokio::time::sleep(Duration::from_millis(5)).await;
        value
    }

    fn nothing() -> Vec<SocketAddr> {
        Vec::new()
    }

    /// Calls `first_of` with error texts as the reasons, for a test.
    async fn first(
        cables: impl Future<Output = Result<Vec<SocketAddr>, &'static str>>,
        known: impl Future<Output = Result<Vec<SocketAddr>, &'static str>>,
    ) -> Result<FoundAddresses, (&'static str, &'static str)> {
        first_of(cables, known).await
    }

    #[tokio::test]
    async fn a_signed_answer_comes_before_what_the_resolver_says() {
        assert_eq!(
            first(ready(Ok(cable())), pending()).await,
            Ok((cable(), nothing()))
        );
        assert_eq!(
            first(later(Ok(cable())), ready(Ok(resolved()))).await,
            Ok((cable(), resolved()))
        );
    }

    #[tokio::test]
    async fn a_peer_that_is_far_away_is_found_by_the_resolver_soon() {
        let started_at = Instant::now();
        assert_eq!(
            first(pending(), ready(Ok(resolved()))).await,
            Ok((nothing(), resolved()))
        );
        let waited = started_at.elapsed();
        assert!(waited < Duration::from_secs(1), "{waited:?}");
        assert_eq!(
            first(ready(Err("silence")), later(Ok(resolved()))).await,
            Ok((nothing(), resolved()))
        );
    }

    #[tokio::test]
    async fn a_name_that_only_the_cables_know_is_waited_for_and_when_neither_knows_both_say_so() {
        assert_eq!(
            first(later(Ok(cable())), ready(Err("unknown"))).await,
            Ok((cable(), nothing()))
        );
        assert_eq!(
            first(ready(Err("silence")), later(Err("unknown"))).await,
            Err(("silence", "unknown"))
        );
        assert_eq!(
            first(later(Err("silence")), ready(Err("unknown"))).await,
            Err(("silence", "unknown"))
        );
    }
}
