//! A peer's name becomes addresses: by asking the cables, and the system's resolver at the same time.

use std::{
    io,
    net::SocketAddr,
    pin::pin,
    time::{Duration, Instant},
};

use super::search::{Search, SearchOptions};
use crate::{
    error::Error,
    trust::{Identity, Peers, PublicKey},
};

/// Whom to look up, and where.
pub(crate) struct Lookup<'a> {
    pub(crate) identity: &'a Identity,
    pub(crate) peers: &'a Peers,
    /// The key that has to answer.
    pub(crate) key: PublicKey,
    /// What was typed.
    pub(crate) host: &'a str,
    pub(crate) port: u16,
    /// Interfaces that are not to be used.
    pub(crate) excluded: &'a [String],
}

impl Lookup<'_> {
    /// Returns where the peer is: the addresses on the cables it answered on, then those that the resolver knows by then.
    ///
    /// An answer of the peer counts for more than the resolver's, as the peer has signed it; but where the resolver knows the name, the peer
    /// has [`HEAD_START`] to answer and no more, since it may be far away.
    ///
    /// # Errors
    ///
    /// [`Error::Resolve`], when neither knows, and then it says so of both.
    pub(crate) async fn find(&self, resolver: impl Future<Output = io::Result<Vec<SocketAddr>>>) -> Result<Vec<SocketAddr>, Error> {
        let resolver = async {
            match tokio::time::timeout(RESOLVER_PATIENCE, resolver).await {
                Ok(found) => found.map_err(|error| error.to_string()),
                Err(_) => Err(format!("no answer in {} s", RESOLVER_PATIENCE.as_secs())),
            }
        };
        let found = first_of(self.on_cables(), resolver).await;
        found.map_err(|why| Error::Resolve { host: self.host.to_owned(), source: io::Error::new(io::ErrorKind::NotFound, why) })
    }

    /// Asks on every cable, and takes all that answer soon after the first.
    async fn on_cables(&self) -> Result<Vec<SocketAddr>, String> {
        let options = SearchOptions { port: self.port, excluded: self.excluded.to_vec(), duration: PATIENCE, ..SearchOptions::default() };
        let search = Search::for_key(self.identity, self.peers, options, Some(self.key));
        let mut search = search.map_err(|error| crate::chain(&error))?;
        let Some(first) = search.next().await else {
            let silence = || format!("it does not answer on {}", search.interfaces().join(", "));
            return Err(search.obstacle().map_or_else(silence, |error| crate::chain(&error)));
        };
        let mut heard = vec![first];
        let settled = Instant::now() + SETTLING;
        while let Ok(Some(more)) = tokio::time::timeout_at(settled.into(), search.next()).await {
            heard.push(more);
        }
        let asked = search.interfaces();
        heard.sort_by_key(|heard| asked.iter().position(|name| *name == heard.interface));
        Ok(heard.into_iter().map(|heard| heard.address.into()).collect())
    }
}

/// Returns what the cables say, followed by what the resolver has said by then; or what the resolver says alone.
///
/// Errors: what both said.
async fn first_of(
    cables: impl Future<Output = Result<Vec<SocketAddr>, String>>,
    resolver: impl Future<Output = Result<Vec<SocketAddr>, String>>,
) -> Result<Vec<SocketAddr>, String> {
    let (mut cables, mut resolver) = (pin!(cables), pin!(resolver));
    let head_start = Instant::now() + HEAD_START;
    let both = |on_cables: String, resolved: String| format!("{on_cables}, and the resolver says: {resolved}");
    tokio::select! {
        found = &mut cables => match found {
            Ok(addresses) => Ok(addresses),
            Err(silence) => resolver.await.map_err(|why| both(silence, why)),
        },
        known = &mut resolver => match known {
            Ok(known) => Ok(match tokio::time::timeout_at(head_start.into(), cables).await {
                Ok(Ok(addresses)) => [addresses, known].concat(),
                _ => known,
            }),
            Err(why) => cables.await.map_err(|silence| both(silence, why)),
        },
    }
}

/// How long a peer may take to answer when the resolver knows its name already: an answer over a cable takes about 1 ms.
const HEAD_START: Duration = Duration::from_millis(50);

/// How long a peer may take to answer when nobody else knows its name: after both ends of a cable were plugged in, each takes up to 2 s to
/// check that its address is nobody else's (RFC 4862, section 5.4), and is then asked within 1 s.
const PATIENCE: Duration = Duration::from_secs(3);

/// How long answers on other cables are waited for after the first.
const SETTLING: Duration = Duration::from_millis(20);

/// How long the resolver is waited for: one name server that is silent (5 s by default, resolv.conf(5)) and an answer of the next.
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

    #[tokio::test]
    async fn a_signed_answer_comes_before_what_the_resolver_says() {
        assert_eq!(first_of(ready(Ok(cable())), pending()).await, Ok(cable()));
        assert_eq!(first_of(later(Ok(cable())), ready(Ok(resolved()))).await, Ok([cable(), resolved()].concat()));
    }

    #[tokio::test]
    async fn a_peer_that_is_far_away_is_found_by_the_resolver_soon() {
        let begun = Instant::now();
        assert_eq!(first_of(pending(), ready(Ok(resolved()))).await, Ok(resolved()));
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
        assert_eq!(first_of(ready(Err("silence".into())), later(Ok(resolved()))).await, Ok(resolved()));
    }

    #[tokio::test]
    async fn a_name_that_only_the_cables_know_is_waited_for() {
        assert_eq!(first_of(later(Ok(cable())), ready(Err("unknown".into()))).await, Ok(cable()));
    }

    #[tokio::test]
    async fn when_neither_knows_the_error_says_so_of_both() {
        let said = |first: Result<Vec<SocketAddr>, String>| first.unwrap_err();
        let expected = "it does not answer on eth1, and the resolver says: unknown";
        let (silence, unknown) = (|| Err("it does not answer on eth1".to_owned()), || Err("unknown".to_owned()));
        assert_eq!(said(first_of(ready(silence()), later(unknown())).await), expected);
        assert_eq!(said(first_of(later(silence()), ready(unknown())).await), expected);
    }
}
