//! Tests of trusted clients that take all resources: others still get their share.

use std::time::Duration;

use nicstripe_proto::{Frame, Message, SessionId, TransferId, message::PutTree, tree::TreeRules};

use super::{
    Stage, open_files,
    peer::{Peer, cancel, put},
    within,
};
use crate::{
    tree::{
        TreeOptions,
        allowance::{MOST_OF_ALL, Receiving},
    },
    trust::{Identity, random::random_bytes},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_small_puts_leave_descriptors_for_others_and_wait_for_their_turn() {
    const PUTS: u32 = 1000;
    // 256 of these are for files. The first key gets half of them, which is 25 files.
    let stage = Stage::built(|builder| builder.descriptors(1024)).await;
    let mut evil = stage.session(&stage.other).await;
    for transfer in 1..=PUTS {
        let put = put(transfer, &format!("f{transfer}"), 1000);
        evil.say(&Message::Put(put)).await.unwrap();
    }
    let mut begun = Vec::new();
    while begun.len() < 25 {
        begun.push(evil.accepted().await.transfer);
    }
    // Another key gets its own share at once.
    stage.still_serves("file").await;
    let served = stage.root.path().join("served");
    let open = open_files(|path| path.starts_with(&served) && path != served);
    assert!(open <= 128, "{open} descriptors");
    // Waiting transfers begin as others end.
    let mut all = begun.len() as u32;
    while all < PUTS {
        if let Some(transfer) = begun.pop() {
            evil.say(&cancel(transfer)).await.unwrap();
        } else {
            begun.push(evil.accepted().await.transfer);
            all += 1;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn maps_of_holes_of_one_key_have_half_of_the_memory() {
    // Each map of 65,536 holes is charged 4 MiB.
    const SHARE: usize = MOST_OF_ALL / 2 / (4 << 20);
    let stage = Stage::built(|builder| builder.descriptors(1 << 16)).await;
    let mut evil = stage.session(&stage.other).await;
    for transfer in 1..=2 * SHARE as u32 {
        let mut put = put(transfer, &format!("f{transfer}"), 1 << 30);
        put.offer.data = Some(1000);
        evil.say(&Message::Put(put)).await.unwrap();
    }
    let mut accepted = 0;
    let counted = async {
        loop {
            evil.accepted().await;
            accepted += 1;
        }
    };
    // Until no more are accepted for a while.
    let _ = tokio::time::timeout(Duration::from_secs(2), counted).await;
    assert_eq!(accepted, SHARE);
    stage.still_serves("file").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trees_of_one_key_have_half_of_the_memory_and_others_wait_for_it() {
    let stage = Stage::built(|builder| builder.descriptors(1 << 16)).await;
    let mut evil = stage.session(&stage.other).await;
    // Each may take a quarter of the memory, because it does not announce that it honours a smaller
    // limit.
    for transfer in 1..=4 {
        evil.say(&put_tree(transfer, false)).await.unwrap();
    }
    let mut held = Vec::new();
    for _ in 0..2 {
        let accept = evil.accepted().await;
        assert_eq!(accept.memory, None);
        held.push(accept.transfer);
    }
    let third = tokio::time::timeout(Duration::from_millis(300), evil.accepted()).await;
    assert!(third.is_err(), "{third:?}");

    // Another key's tree is copied meanwhile.
    std::fs::create_dir(stage.files.path().join("tree")).unwrap();
    stage.file("tree/file", b"content");
    let client = stage.client(&[]).connect("127.0.1.1").await.unwrap();
    let options = TreeOptions {
        recursive: true,
        ..TreeOptions::default()
    };
    let tree = vec![stage.files.path().join("tree")];
    let copied = client.put_tree(tree, None, options);
    let copied = within(copied.finish()).await.unwrap();
    assert_eq!(copied.tree.unwrap().files, 1);
    client.close().await;
    // Waiting transfers begin as others end.
    for turn in 0..2 {
        evil.say(&cancel(held[turn])).await.unwrap();
        held.push(evil.accepted().await.transfer);
    }
    held.sort_unstable();
    assert_eq!(held, [1, 2, 3, 4].map(TransferId));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sender_of_a_tree_that_keeps_to_what_memory_there_is_is_told_it() {
    let stage = Stage::built(|builder| builder.descriptors(1 << 16)).await;
    let mut peer = stage.session(&stage.other).await;
    let (_, most) = Receiving::LEASE;
    let mut told = Vec::new();
    for transfer in 1..=3 {
        peer.say(&put_tree(transfer, true)).await.unwrap();
        told.push(peer.accepted().await.memory);
    }
    // Each lease is smaller than the last; the first equals a client's own limits.
    let lease = |part: usize| Receiving::within(part, true).announced;
    let second = (MOST_OF_ALL - 2 * most) / 16;
    assert_eq!(
        told,
        [most, second, (MOST_OF_ALL - 2 * (most + second)) / 16].map(lease)
    );
}

fn put_tree(transfer: u32, heeds_memory: bool) -> Message {
    let target = Some(super::name(&format!("tree{transfer}")));
    Message::PutTree(PutTree {
        transfer: TransferId(transfer),
        target,
        as_name: false,
        rules: TreeRules::default(),
        heeds_memory,
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_that_take_all_credit_and_send_nothing_have_half_of_the_memory() {
    const SESSIONS: u8 = 12;
    let stage = Stage::new().await;
    let mut granted = 0;
    for index in 1..=SESSIONS {
        let (mut peer, credit) = hoarder(&stage, [127, 0, 3, index], &stage.other).await;
        granted += credit;
        // Answers heartbeats; otherwise the session would lose its credit.
        tokio::spawn(async move { peer.end().await });
    }
    // Half of 256 chunks, plus one per session.
    assert!(
        (64..=128 + u64::from(SESSIONS)).contains(&granted),
        "{granted} chunks"
    );
    let (_honest, credit) = hoarder(&stage, [127, 0, 4, 1], &stage.client).await;
    assert_eq!(credit, 32, "another key holds all connections of one link");
}

/// Opens a session that starts a large put and sends no data. Returns the session and its credit in
/// chunks.
async fn hoarder(stage: &Stage, from: [u8; 4], identity: &Identity) -> (Peer, u64) {
    let mut peer = Peer::session(from, stage.address(), identity).await;
    let put = put(1, &format!("from-{}-{}", from[2], from[3]), 16 << 20);
    peer.say(&Message::Put(put)).await.unwrap();
    let (mut credit, mut is_accepted, mut heartbeats) = (0, false, 0);
    // Each heartbeat re-evaluates the credit; the fifth comes long after the session has its share.
    while heartbeats < 5 {
        let frame = within(peer.next()).await.unwrap();
        match frame {
            Frame::Credit { frames } => credit = credit.max(frames),
            Frame::Heartbeat { .. } => heartbeats += u32::from(is_accepted),
            _ => {}
        }
        let message = peer.react(&frame).await.unwrap();
        is_accepted |= matches!(message, Some(Message::Accept(_)));
    }
    (peer, credit)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_waits_for_a_file_of_anothers_does_not_give_way_to_itself() {
    let stage = Stage::new().await;
    let wanted = Message::Put(put(1, "file", 1000));
    let mut holder = Peer::session([127, 0, 3, 2], stage.address(), &stage.other).await;
    holder.say(&wanted).await.unwrap();
    holder.accepted().await;
    tokio::spawn(async move { holder.end().await });

    let id = SessionId(random_bytes());
    let mut waiting = stage.connect(&stage.other).await;
    assert_eq!(waiting.refused(id, true).await, None);
    waiting.say(&wanted).await.unwrap();
    while !matches!(
        within(waiting.next()).await.unwrap(),
        Frame::ControlAck { .. }
    ) {}
    drop(waiting);
    // The daemon polls for the file every 50 ms.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let mut again = stage.connect(&stage.other).await;
    assert_eq!(again.refused(id, false).await, None);
}
