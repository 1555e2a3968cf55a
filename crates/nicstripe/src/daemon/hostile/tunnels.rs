//! Tests of trusted clients that violate the rules of tunnels: the daemon ends only their tunnels.

use nicstripe_proto::{
    ChunkId, ChunkSize, DataHeader, FailCode, Grid, Message, TransferId,
    hash_tree::piece_value,
    message::{Fail, OfferKind, OpenTunnels},
};

use super::{Stage, wire::Wire, within};

const UP: TransferId = TransferId(1);
const DOWN: TransferId = TransferId(2);

impl Wire {
    /// Opens a session with the daemon and its tunnel multiplexer.
    async fn with_mux(stage: &Stage) -> Self {
        let mut wire = Self::session([127, 0, 3, 1], stage.address(), &stage.client).await;
        wire.say(&Message::OpenTunnels(OpenTunnels { up: UP, down: DOWN }))
            .await
            .unwrap();
        for _ in 0..2 {
            match within(wire.message()).await.unwrap() {
                Message::Accept(accept) => {
                    assert!(accept.transfer == UP && accept.window.is_some());
                }
                Message::Offer(offer) => {
                    assert!(offer.transfer == DOWN && offer.kind == Some(OfferKind::Batches));
                }
                other => panic!("{other:?}"),
            }
        }
        wire
    }

    async fn batch(&mut self, chunk: u64, bytes: &[u8]) {
        let value =
            piece_value(Grid::open(ChunkSize::DEFAULT), ChunkId(chunk), bytes, false).unwrap();
        let mut frame = Vec::new();
        DataHeader {
            transfer: UP,
            chunk: ChunkId(chunk),
            value,
            len: bytes.len() as u32,
            raw_len: 0,
            last: false,
        }
        .encode(&mut frame);
        frame.extend_from_slice(bytes);
        self.send_bytes(&frame).await.unwrap();
    }

    async fn failures(&mut self, of: [TransferId; 2]) -> [FailCode; 2] {
        let mut codes = Vec::new();
        for transfer in of {
            match within(self.message()).await.unwrap() {
                Message::Fail(Fail {
                    transfer: failed,
                    code,
                    ..
                }) if failed == transfer => codes.push(code),
                other => panic!("{other:?}"),
            }
        }
        [codes[0], codes[1]]
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
    for evil in [
        vec![0xff; 300],
        vec![4, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255],
        record(4, 9, b"for a tunnel that was never opened"),
        [open.clone(), open.clone()].concat(),
        [open.clone(), record(4, 0, b"without a window")].concat(),
        [open.clone(), record(7, 0, &[1, 0, 0, 0])].concat(),
        record(1, 0, b"\0\0\0\0localhost:1"),
        record(1, 0, &[255; 20]),
    ] {
        let stage = Stage::new().await;
        let mut wire = Wire::with_mux(&stage).await;
        wire.batch(0, &evil).await;
        assert_eq!(
            wire.failures([UP, DOWN]).await,
            [FailCode::Protocol; 2],
            "{evil:?}"
        );
        // The same connection may request another multiplexer.
        let [up, down] = [TransferId(3), TransferId(4)];
        wire.say(&Message::OpenTunnels(OpenTunnels { up, down }))
            .await
            .unwrap();
        assert!(
            matches!(within(wire.message()).await.unwrap(), Message::Accept(accept) if accept.transfer == up)
        );
        stage.still_serves("file").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_has_one_mux() {
    let stage = Stage::new().await;
    let mut wire = Wire::with_mux(&stage).await;
    let [up, down] = [TransferId(3), TransferId(4)];
    wire.say(&Message::OpenTunnels(OpenTunnels { up, down }))
        .await
        .unwrap();
    assert_eq!(wire.failures([up, down]).await, [FailCode::Refused; 2]);
    stage.still_serves("file").await;
}
