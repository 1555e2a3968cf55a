//! Proofs that our addresses are ours, for the host routes of the daemon: tokens that it sends there.

use std::{collections::BTreeSet, net::IpAddr, time::Duration};

use nicstripe_proto::message::{Expected, Token};
use tokio::{net::UdpSocket, task::JoinSet};

use crate::session::{Command, SessionHandle};

/// Waits for the tokens of connections that are about to be announced, and returns these with the ports at which it does.
///
/// Those that come are returned to the daemon together, which answers when it has made way for all.
pub(super) async fn announced(connections: BTreeSet<(IpAddr, u32)>, session: &SessionHandle) -> Vec<Expected> {
    let mut expected = Vec::new();
    let mut awaited = JoinSet::new();
    for (from, interface) in connections {
        let socket = UdpSocket::bind((from, 0)).await.ok();
        let port = socket.as_ref().and_then(|socket| Some(socket.local_addr().ok()?.port()));
        expected.push(Expected { from, interface, port, token: None });
        socket.into_iter().for_each(|socket| _ = awaited.spawn(token(socket, from, interface)));
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

/// Receives the token that comes to an address.
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
    Some(Expected { from, interface, port: None, token: Some(token) })
}

/// How long a token may take: its way over a cable takes a millisecond, but the kernel may have to ask for the hardware address first.
const TOKEN_TIMEOUT: Duration = Duration::from_millis(500);
