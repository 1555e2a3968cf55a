//! Proofs that an address is a peer's, before a host route takes it from the interface by which it is reached.
//!
//! A token goes to the address as the kernel would send anything there. Who returns it over the session gets what goes to the address
//! already, so that a route to another of its interfaces takes nothing from anybody else.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::{Duration, Instant},
};

use nicstripe_proto::{discovery::TokenBucket, message::Token};
use tokio::net::UdpSocket;

/// The tokens of one session that are under way.
#[derive(Debug)]
pub(super) struct Claims {
    sent: BTreeMap<IpAddr, (Token, Instant)>,
    budget: TokenBucket,
}

impl Claims {
    pub(super) fn new(now: Instant) -> Self {
        Self { sent: BTreeMap::new(), budget: TokenBucket::new(TOKENS_AT_ONCE, TOKENS_PER_SECOND, now) }
    }

    /// Returns the token to send to an address; `None` if it was sent too many.
    pub(super) fn begin(&mut self, address: IpAddr, now: Instant) -> Option<Token> {
        self.sent.retain(|_, (_, at)| now.saturating_duration_since(*at) < TOKEN_LIFETIME);
        if !self.budget.take(now) {
            return None;
        }
        let token = Token(u64::from_be_bytes(crate::random_bytes()));
        self.sent.insert(address, (token, now));
        Some(token)
    }

    /// Whether this is the token that was sent to the address. Each is good for one attempt.
    pub(super) fn is_proved(&mut self, address: IpAddr, token: u64, now: Instant) -> bool {
        let sent = self.sent.remove(&address);
        sent.is_some_and(|(sent, at)| sent == Token(token) && now.saturating_duration_since(at) < TOKEN_LIFETIME)
    }
}

/// Sends a token as the kernel would send anything to that address.
pub(super) async fn send(token: Token, to: SocketAddr) -> std::io::Result<()> {
    let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    UdpSocket::bind((any, 0)).await?.send_to(&token.encode(), to).await.map(drop)
}

/// Tokens at once; an honest client asks for one an interface.
const TOKENS_AT_ONCE: u32 = 64;

/// A session sends no more datagrams in a second.
const TOKENS_PER_SECOND: u32 = 4;

/// How long a token is good for. Its way there and back takes a millisecond.
const TOKEN_LIFETIME: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 12));

    #[test]
    fn a_token_is_good_once_for_its_address_and_not_for_long() {
        let now = Instant::now();
        let mut claims = Claims::new(now);
        let Token(token) = claims.begin(ADDRESS, now).unwrap();
        assert!(!claims.is_proved([10, 9, 0, 13].into(), token, now), "another address");
        assert!(claims.is_proved(ADDRESS, token, now) && !claims.is_proved(ADDRESS, token, now));
        let Token(token) = claims.begin(ADDRESS, now).unwrap();
        assert!(!claims.is_proved(ADDRESS, token ^ 1, now) && !claims.is_proved(ADDRESS, token, now), "one attempt each");
        let Token(token) = claims.begin(ADDRESS, now).unwrap();
        assert!(!claims.is_proved(ADDRESS, token, now + TOKEN_LIFETIME));
    }

    #[test]
    fn a_session_makes_few_datagrams() {
        let now = Instant::now();
        let mut claims = Claims::new(now);
        assert_eq!((0..1000).filter(|_| claims.begin(ADDRESS, now).is_some()).count(), TOKENS_AT_ONCE as usize);
        let later = now + Duration::from_secs(1);
        assert_eq!((0..1000).filter(|_| claims.begin(ADDRESS, later).is_some()).count(), TOKENS_PER_SECOND as usize);
    }
}
