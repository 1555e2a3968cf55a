//! Proof that an address belongs to a peer, required before a host route for it is installed.
//!
//! The daemon sends a token to the address over the kernel's current route. A peer that returns it
//! over the session already receives the traffic to that address. A host route to another interface
//! of this peer then diverts no traffic of other machines.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::{Duration, Instant},
};

use nicstripe_proto::{
    TokenBucket,
    message::{Expected, Token},
};
use parking_lot::Mutex;
use tokio::{net::UdpSocket, task::JoinSet};

use crate::{
    session::{Input, SessionHandle},
    trust::{PublicKey, random::random_bytes},
};

/// Tokens sent for one session and not yet returned by the peer, by address.
#[derive(Debug, Default)]
pub(super) struct Claims {
    sent: BTreeMap<IpAddr, (Token, Instant)>,
}

impl Claims {
    /// Creates and stores the token to send to an address, replacing an earlier one.
    pub(super) fn begin(&mut self, address: IpAddr, now: Instant) -> Token {
        self.sent
            .retain(|_, (_, at)| now.saturating_duration_since(*at) < TOKEN_LIFETIME);
        let token = Token(u64::from_be_bytes(random_bytes()));
        self.sent.insert(address, (token, now));
        token
    }

    /// Returns true if this token was sent to the address within [`TOKEN_LIFETIME`]. Removes the
    /// address, so that each token allows one attempt.
    pub(super) fn is_proved(&mut self, address: IpAddr, token: u64, now: Instant) -> bool {
        let sent = self.sent.remove(&address);
        sent.is_some_and(|(sent, at)| {
            sent == Token(token) && now.saturating_duration_since(at) < TOKEN_LIFETIME
        })
    }
}

/// Rate limits of sent tokens, one per key over all its sessions. They protect third parties: a
/// peer can claim any address, and the owner of that address receives the datagrams.
#[derive(Debug, Default)]
pub(super) struct Budgets(Mutex<HashMap<PublicKey, TokenBucket>>);

impl Budgets {
    /// Counts one sent token towards the rate limit of a key. Returns false if the limit is
    /// reached.
    pub(super) fn take(&self, key: PublicKey, now: Instant) -> bool {
        let mut budgets = self.0.lock();
        budgets
            .entry(key)
            .or_insert_with(|| TokenBucket::new(TOKENS_AT_ONCE, TOKENS_PER_SECOND, now))
            .take(now)
    }
}

/// Sends a token in a UDP datagram over the kernel's current route to the address.
pub(super) async fn send(token: Token, to: SocketAddr) -> std::io::Result<()> {
    let any: IpAddr = if to.is_ipv4() {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    };
    UdpSocket::bind((any, 0))
        .await?
        .send_to(&token.encode(), to)
        .await
        .map(drop)
}

/// Opens a UDP port to receive a token for each announced connection, and returns the connections
/// with their ports. A connection is given as local address and the peer's interface index.
///
/// A task returns the received tokens to the daemon in one message. The daemon answers when it has
/// installed all routes.
pub(crate) async fn announced(
    connections: BTreeSet<(IpAddr, u32)>,
    session: &SessionHandle,
) -> Vec<Expected> {
    let mut expected = Vec::new();
    let mut awaited = JoinSet::new();
    for (from, interface) in connections {
        let socket = UdpSocket::bind((from, 0)).await.ok();
        let port = socket
            .as_ref()
            .and_then(|socket| Some(socket.local_addr().ok()?.port()));
        expected.push(Expected {
            from,
            interface,
            port,
            token: None,
        });
        socket
            .into_iter()
            .for_each(|socket| _ = awaited.spawn(token(socket, from, interface)));
    }
    let session = session.clone();
    tokio::spawn(async move {
        let proved: Vec<Expected> = awaited.join_all().await.into_iter().flatten().collect();
        if !proved.is_empty() {
            let _ = session.inputs.send(Input::Expected(proved)).await;
        }
    });
    expected
}

/// Waits for the daemon's token on a socket bound to address `from`. Returns `None` on timeout.
async fn token(socket: UdpSocket, from: IpAddr, interface: u32) -> Option<Expected> {
    let mut datagram = [0; Token::LEN + 1];
    let received = async {
        loop {
            let len = socket.recv(&mut datagram).await.ok()?;
            if let Some(Token(token)) = Token::decode(&datagram[..len]) {
                return Some(token);
            }
        }
    };
    let token = tokio::time::timeout(TOKEN_TIMEOUT, received).await.ok()??;
    Some(Expected {
        from,
        interface,
        port: None,
        token: Some(token),
    })
}

/// Time to wait for a token. Delivery over a cable takes a millisecond, but the daemon's kernel may
/// first have to resolve the hardware address.
const TOKEN_TIMEOUT: Duration = Duration::from_millis(500);

/// Burst of the token rate limit per key, in tokens. An honest client requests one per interface.
const TOKENS_AT_ONCE: u32 = 64;

/// Sustained token rate per key, in tokens per second: enough for several copies that start over
/// several interfaces each.
const TOKENS_PER_SECOND: u32 = 16;

/// Time for which a token is valid. The round trip takes about a millisecond.
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
        assert!(
            !claims.is_proved([10, 9, 0, 13].into(), token, now),
            "another address"
        );
        assert!(claims.is_proved(ADDRESS, token, now) && !claims.is_proved(ADDRESS, token, now));
        let Token(token) = claims.begin(ADDRESS, now);
        assert!(
            !claims.is_proved(ADDRESS, token ^ 1, now) && !claims.is_proved(ADDRESS, token, now),
            "one attempt each"
        );
        let Token(token) = claims.begin(ADDRESS, now);
        assert!(!claims.is_proved(ADDRESS, token, now + TOKEN_LIFETIME));
    }

    #[test]
    fn a_key_has_few_datagrams_sent() {
        let (now, budgets) = (Instant::now(), Budgets::default());
        let [key, other] = [1, 2].map(|number| PublicKey::from_bytes([number; 32]).unwrap());
        let taken = |key, at| (0..1000).filter(|_| budgets.take(key, at)).count();
        assert_eq!(taken(key, now), TOKENS_AT_ONCE as usize);
        assert_eq!(taken(other, now), TOKENS_AT_ONCE as usize);
        assert_eq!(
            taken(key, now + Duration::from_secs(1)),
            TOKENS_PER_SECOND as usize
        );
    }
}
