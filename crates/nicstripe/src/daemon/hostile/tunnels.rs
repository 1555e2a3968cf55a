//! Tests of trusted clients that violate the rules of tunnels: the daemon ends only their tunnels. And
//! of what clients may ask of listeners.

use std::{collections::BTreeMap, time::Duration};

use nicstripe_proto::{
    ChunkId, ChunkSize, FailCode, Grid, Message, TransferId,
    hash_tree::piece_value,
    message::{OfferKind, OpenTunnels},
    tunnel::TargetRefusal,
};
use tokio::net::TcpStream;

use super::{
    Stage,
    peer::{Peer, chunk},
    within,
};
use crate::{client::Client, report::error::Error};

const UP: TransferId = TransferId(1);
const DOWN: TransferId = TransferId(2);

impl Peer {
    /// Opens a session with the daemon and its tunnel multiplexer.
    async fn with_mux(stage: &Stage) -> Self {
        let mut peer = stage.session(&stage.client).await;
        peer.gets_mux(UP, DOWN).await;
        peer
    }

    /// Opens a tunnel multiplexer, which the daemon answers for both directions, in any order.
    async fn gets_mux(&mut self, up: TransferId, down: TransferId) {
        self.open_tunnels(up, down).await;
        for _ in 0..2 {
            match within(self.message()).await.unwrap() {
                Message::Accept(accept) => {
                    assert!(accept.transfer == up && accept.window.is_some());
                }
                Message::Offer(offer) => {
                    assert!(offer.transfer == down && offer.kind == Some(OfferKind::Batches));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    async fn batch(&mut self, bytes: &[u8]) {
        let grid = Grid::open(ChunkSize::DEFAULT);
        let value = piece_value(grid, ChunkId(0), bytes, false).unwrap();
        self.send_bytes(&chunk(UP, 0, bytes, value)).await.unwrap();
    }

    async fn open_tunnels(&mut self, up: TransferId, down: TransferId) {
        let open = Message::OpenTunnels(OpenTunnels { up, down });
        self.say(&open).await.unwrap();
    }

    /// Returns the codes of the next two messages, which are failures of these transfers in any
    /// order.
    async fn failures(&mut self, of: [TransferId; 2]) -> [FailCode; 2] {
        let mut codes = BTreeMap::new();
        for _ in of {
            match within(self.message()).await.unwrap() {
                Message::Fail(fail) => codes.insert(fail.transfer, fail.code),
                other => panic!("{other:?}"),
            };
        }
        of.map(|transfer| codes[&transfer])
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_breaks_the_rules_ends_the_mux_and_not_the_connection() {
    let record = |kind: u8, conn: u8, body: &[u8]| {
        [
            &[kind, 0, 0, 0, conn, 0, 0, 0, body.len() as u8, 0, 0, 0],
            body,
        ]
        .concat()
    };
    let open = record(1, 0, b"\0\0\x01\0localhost:1");
    // The tests of nicstripe-proto have each rule of the multiplexer.
    for evil in [
        vec![0xff; 300],
        [open, record(4, 0, b"without a window")].concat(),
    ] {
        let stage = Stage::new().await;
        let mut peer = Peer::with_mux(&stage).await;
        peer.batch(&evil).await;
        assert_eq!(
            peer.failures([UP, DOWN]).await,
            [FailCode::Protocol; 2],
            "{evil:?}"
        );
        // This connection may request another multiplexer.
        peer.gets_mux(TransferId(3), TransferId(4)).await;
        stage.still_serves("file").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_has_one_mux() {
    let stage = Stage::new().await;
    let mut peer = Peer::with_mux(&stage).await;
    let [up, down] = [TransferId(3), TransferId(4)];
    peer.open_tunnels(up, down).await;
    assert_eq!(peer.failures([up, down]).await, [FailCode::Refused; 2]);
    stage.still_serves("file").await;
}

/// Returns a stage whose client may listen at any free port.
async fn listening() -> Stage {
    Stage::granting("listen=0", |builder| builder).await
}

async fn claim(client: &Client, target: &str) -> TargetRefusal {
    match within(client.dial(target)).await.map(drop).unwrap_err() {
        Error::Target { code, .. } => code,
        error => panic!("{error}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_of_no_accepted_connection_are_refused() {
    let stage = listening().await;
    let client = stage.honest().await;
    let listener = within(client.listen("0")).await.unwrap();
    for number in [0, 1, u32::MAX] {
        let code = claim(&client, &format!("accepted/{number}")).await;
        assert_eq!(code, TargetRefusal::Unreachable, "{number}");
    }
    for odd in ["accepted/", "accepted/-1", "accepted/4294967296", "listen/"] {
        let code = claim(&client, odd).await;
        assert_eq!(code, TargetRefusal::NotAllowed, "{odd}");
    }
    // Another session of the same key cannot claim it, and no one can twice.
    let local = TcpStream::connect(("127.0.0.1", listener.port())).await;
    let _local = local.unwrap();
    let other = stage.honest().await;
    let code = claim(&other, "accepted/1").await;
    assert_eq!(code, TargetRefusal::Unreachable);
    let first = async {
        loop {
            match client.dial("accepted/1").await {
                Ok(tunnel) => return tunnel,
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    };
    let _first = within(first).await;
    let code = claim(&client, "accepted/1").await;
    assert_eq!(code, TargetRefusal::Unreachable);
    stage.still_serves("file").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_has_64_listeners_and_their_places_are_free_again() {
    let stage = listening().await;
    let client = stage.honest().await;
    for _ in 0..2 {
        let mut listeners = Vec::new();
        loop {
            match within(client.listen("0")).await {
                Ok(listener) => listeners.push(listener),
                Err(Error::Listen { code, .. }) if listeners.len() == 64 => {
                    assert_eq!(code, TargetRefusal::TooMany);
                    break;
                }
                // Those of the round before are not all gone.
                Err(Error::Listen { .. }) => tokio::time::sleep(Duration::from_millis(5)).await,
                Err(error) => panic!("{error}"),
            }
            assert!(listeners.len() <= 64);
        }
    }
    stage.still_serves("file").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_claims_nothing_keeps_64_connections_of_a_listener() {
    let stage = listening().await;
    let client = stage.honest().await;
    let listener = within(client.listen("0")).await.unwrap();
    let mut locals = Vec::new();
    for _ in 0..100 {
        let local = TcpStream::connect(("127.0.0.1", listener.port())).await;
        locals.push(local.unwrap());
    }
    let open = |number: u32| {
        let client = client.clone();
        async move { client.dial(&format!("accepted/{number}")).await }
    };
    let last = async {
        loop {
            match open(64).await {
                Ok(tunnel) => return tunnel,
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    };
    let _last = within(last).await;
    // One was claimed, so one more is accepted.
    assert!(open(66).await.is_err());
    // Those that no one claims are closed.
    let closed = async {
        let mut byte = [0];
        locals[0].readable().await.unwrap();
        locals[0].try_read(&mut byte)
    };
    assert!(within(closed).await.is_err(), "a reset");
    stage.still_serves("file").await;
}
