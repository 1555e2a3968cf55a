//! Proof that the client owns its addresses, required for the daemon's host routes: the client
//! returns the tokens that the daemon sends to them.

use std::{collections::BTreeSet, net::IpAddr, time::Duration};

use nicstripe_proto::message::{Expected, Token};
use tokio::{net::UdpSocket, task::JoinSet};

use crate::session::{Command, SessionHandle};

/// Opens a UDP port for the token of each connection to announce, and returns the connections with
/// their ports. Each connection is given as local address and the peer's interface index.
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
            session.command(Command::Expect(proved)).await;
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

/// Timeout of a token. Delivery over a cable takes a millisecond, but the daemon's kernel may first
/// have to resolve the hardware address.
const TOKEN_TIMEOUT: Duration = Duration::from_millis(500);
