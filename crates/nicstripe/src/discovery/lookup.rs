//! A peer's name becomes addresses: by asking the cables, and the system's resolver at the same time.

use std::{
    io,
    net::SocketAddr,
    pin::pin,
    time::{Duration, Instant},
};

use super::search::{Search, SearchOptions};
use crate::{
    trust::{Identity, Peers, PublicKey},
    unreached::Cables,
};

/// Whom to look up, and where.
pub(crate) struct Lookup<'a> {
    pub(crate) identity: &'a Identity,
    pub(crate) peers: &'a Peers,
    /// The key that has to answer.
    pub(crate) key: PublicKey,
    pub(crate) port: u16,
    /// Interfaces that are not to be used.
    pub(crate) excluded: &'a [String],
}

impl Lookup<'_> {
    /// Returns where the peer is: the addresses on the cables it answered on, and those that are known otherwise by then.
    ///
    /// An answer of the peer counts for more, as the peer has signed it; but where an address is known, the peer has [`HEAD_START`] to answer
    /// and no more, since it may be far away. Errors: why neither is known.
    pub(crate) async fn find<K>(&self, known: impl Future<Output = Result<Vec<SocketAddr>, K>>) -> Result<Found, (Cables, K)> {
        first_of(self.on_cables(), known).await
    }

    /// Asks on every cable, and takes all that answer soon after the first.
    pub(crate) async fn on_cables(&self) -> Result<Vec<SocketAddr>, Cables> {
        let options = SearchOptions { port: self.port, excluded: self.excluded.to_vec(), duration: PATIENCE, ..SearchOptions::default() };
        let search = Search::for_key(self.identity, self.peers, options, Some(self.key));
        let mut search = search.map_err(|error| Cables::Unfit(crate::chain(&error)))?;
        let Some(first) = search.next().await else {
            let silence = || Cables::Silent(search.interfaces());
            let left_out = match self.excluded {
                [] => String::new(),
                names => format!("; left out as asked: {}", names.join(", ")),
            };
            return Err(search.obstacle().map_or_else(silence, |error| Cables::Unfit(crate::chain(&error) + &left_out)));
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

/// Addresses on the cables, and those that are known otherwise.
pub(crate) type Found = (Vec<SocketAddr>, Vec<SocketAddr>);

/// Waits for the system's resolver, and not for ever. Errors: what it says.
pub(crate) async fn resolved(resolver: impl Future<Output = io::Result<Vec<SocketAddr>>>) -> Result<Vec<SocketAddr>, String> {
    match tokio::time::timeout(RESOLVER_PATIENCE, resolver).await {
        Ok(found) => found.map_err(|error| error.to_string().trim_start_matches(STD_PREFIX).to_owned()),
        Err(_) => Err(format!("no answer in {} s", RESOLVER_PATIENCE.as_secs())),
    }
}

/// What the standard library says before the resolver's own words.
const STD_PREFIX: &str = "failed to lookup address information: ";

/// Returns what the cables say and what is known otherwise by then, or what is known alone. Errors: those of both.
async fn first_of<C, K>(
    cables: impl Future<Output = Result<Vec<SocketAddr>, C>>,
    known: impl Future<Output = Result<Vec<SocketAddr>, K>>,
) -> Result<Found, (C, K)> {
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

    fn nothing() -> Vec<SocketAddr> {
        Vec::new()
    }

    /// The two futures fail with texts.
    async fn first(
        cables: impl Future<Output = Result<Vec<SocketAddr>, &'static str>>,
        known: impl Future<Output = Result<Vec<SocketAddr>, &'static str>>,
    ) -> Result<Found, (&'static str, &'static str)> {
        first_of(cables, known).await
    }

    #[tokio::test]
    async fn a_signed_answer_comes_before_what_the_resolver_says() {
        assert_eq!(first(ready(Ok(cable())), pending()).await, Ok((cable(), nothing())));
        assert_eq!(first(later(Ok(cable())), ready(Ok(resolved()))).await, Ok((cable(), resolved())));
    }

    #[tokio::test]
    async fn a_peer_that_is_far_away_is_found_by_the_resolver_soon() {
        let begun = Instant::now();
        assert_eq!(first(pending(), ready(Ok(resolved()))).await, Ok((nothing(), resolved())));
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
        assert_eq!(first(ready(Err("silence")), later(Ok(resolved()))).await, Ok((nothing(), resolved())));
    }

    #[tokio::test]
    async fn a_name_that_only_the_cables_know_is_waited_for() {
        assert_eq!(first(later(Ok(cable())), ready(Err("unknown"))).await, Ok((cable(), nothing())));
    }

    #[tokio::test]
    async fn when_neither_knows_both_say_so() {
        assert_eq!(first(ready(Err("silence")), later(Err("unknown"))).await, Err(("silence", "unknown")));
        assert_eq!(first(later(Err("silence")), ready(Err("unknown"))).await, Err(("silence", "unknown")));
    }
}
