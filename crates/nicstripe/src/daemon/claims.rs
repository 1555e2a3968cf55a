//! Proofs that an address is a peer's, before a host route takes it from the interface by which it is reached.
//!
//! A token goes to the address as the kernel would send anything there. Who returns it over the session gets what goes to the address
//! already, so that a route to another of its interfaces takes nothing from anybody else.

use std::{
    collections::{BTreeMap, HashMap},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use nicstripe_proto::{discovery::TokenBucket, message::Token};
use tokio::net::UdpSocket;

use crate::trust::PublicKey;

/// The tokens of one session that are under way.
#[derive(Debug, Default)]
pub(super) struct Claims {
    sent: BTreeMap<IpAddr, (Token, Instant)>,
}

impl Claims {
    /// Returns the token to send to an address.
    pub(super) fn begin(&mut self, address: IpAddr, now: Instant) -> Token {
        self.sent.retain(|_, (_, at)| now.saturating_duration_since(*at) < TOKEN_LIFETIME);
        let token = Token(u64::from_be_bytes(crate::random_bytes()));
        self.sent.insert(address, (token, now));
        token
    }

    /// Whether this is the token that was sent to the address. Each is good for one attempt.
    pub(super) fn is_proved(&mut self, address: IpAddr, token: u64, now: Instant) -> bool {
        let sent = self.sent.remove(&address);
        sent.is_some_and(|(sent, at)| sent == Token(token) && now.saturating_duration_since(at) < TOKEN_LIFETIME)
    }
}

/// Tokens that each key may still have sent, in all its sessions together: any address may be claimed, and none has asked for datagrams.
#[derive(Debug, Default)]
pub(super) struct Budgets(Mutex<HashMap<PublicKey, TokenBucket>>);

impl Budgets {
    /// Takes one token of a key's; returns false if there is none left.
    pub(super) fn take(&self, key: PublicKey, now: Instant) -> bool {
        let mut budgets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        budgets.entry(key).or_insert_with(|| TokenBucket::new(TOKENS_AT_ONCE, TOKENS_PER_SECOND, now)).take(now)
    }
}

/// Sends a token as the kernel would send anything to that address.
pub(super) async fn send(token: Token, to: SocketAddr) -> std::io::Result<()> {
    let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    UdpSocket::bind((any, 0)).await?.send_to(&token.encode(), to).await.map(drop)
}

/// Tokens of a key at once; an honest client asks for one an interface.
const TOKENS_AT_ONCE: u32 = 64;

/// Tokens of a key in a second, after these: some copies that begin, each by several interfaces.
const TOKENS_PER_SECOND: u32 = 16;

/// How long a token is good for. Its way there and back takes a millisecond.
const TOKEN_LIFETIME: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 12));

    #[test]
    fn a_token_is_good_once_for_its_address_and_not_for_long() {
        let now = Instant::now();
        let mut claims = Claims::default();
        let Token(token) = claims.begin(ADDRESS, now);
        assert!(!claims.is_proved([10, 9, 0, 13].into(), token, now), "another address");
        assert!(claims.is_proved(ADDRESS, token, now) && !claims.is_proved(ADDRESS, token, now));
        let Token(token) = claims.begin(ADDRESS, now);
        assert!(!claims.is_proved(ADDRESS, token ^ 1, now) && !claims.is_proved(ADDRESS, token, now), "one attempt each");
        let Token(token) = claims.begin(ADDRESS, now);
        assert!(!claims.is_proved(ADDRESS, token, now + TOKEN_LIFETIME));
    }

    #[test]
    fn a_key_has_few_datagrams_sent() {
        let (now, budgets) = (Instant::now(), Budgets::default());
        let [key, other] = [1, 2].map(|number| PublicKey::from_bytes([number; 32]));
        let taken = |key, at| (0..1000).filter(|_| budgets.take(key, at)).count();
        assert_eq!((taken(key, now), taken(other, now)), (TOKENS_AT_ONCE as usize, TOKENS_AT_ONCE as usize));
        assert_eq!(taken(key, now + Duration::from_secs(1)), TOKENS_PER_SECOND as usize);
    }
}
