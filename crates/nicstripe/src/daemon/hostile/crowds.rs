//! Tests of trusted peers that exceed their share, and of large numbers of honest peers.

use std::time::Duration;

use nicstripe_proto::{
    Frame, SessionId,
    message::{Refusal, RefusalCode},
};
use tokio::{sync::mpsc, task::JoinSet};

use super::{
    Stage, content, name,
    peer::{Peer, hello},
    within,
};
use crate::{
    daemon::Limits, file::options::CopyOptions, report::event::Event, trust::random::random_bytes,
};

/// Opens `count` sessions with the key of `Stage::other`, one connection each. Returns those that
/// the daemon admitted.
async fn sessions_of_other(stage: &Stage, count: usize) -> Vec<Peer> {
    let mut held = Vec::new();
    for _ in 0..count {
        let mut peer = stage.connect(&stage.other).await;
        if let Ok(Ok(_)) = peer.greet(SessionId(random_bytes()), true).await {
            held.push(peer);
        }
    }
    held
}

/// Starts a daemon with these limits of all sessions, and of those of one peer.
async fn with_sessions(sessions: usize, sessions_per_peer: usize) -> Stage {
    Stage::with(Limits {
        sessions,
        sessions_per_peer,
        ..Limits::default()
    })
    .await
}

async fn with_paths(paths: usize) -> Stage {
    Stage::with(Limits {
        paths,
        ..Limits::default()
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_takes_all_connections_it_can_get_locks_nobody_out_and_gives_them_back() {
    let stage = with_paths(16).await;
    let mut held = sessions_of_other(&stage, 24).await;
    assert_eq!(held.len(), 8, "half of them");
    let mut ninth = stage.connect(&stage.other).await;
    assert_eq!(
        ninth.refused(SessionId([1; 16]), true).await,
        Some(RefusalCode::TooManySessions)
    );
    stage.still_serves("file").await;
    drop(held.pop());
    let released = async {
        while sessions_of_other(&stage, 1).await.is_empty() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let released = tokio::time::timeout(Duration::from_secs(20), released).await;
    assert!(released.is_ok(), "its place was not released");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proved_connections_that_say_nothing_are_few_and_lock_nobody_out() {
    let stage = with_paths(16).await;
    let mut silent = Vec::new();
    for _ in 0..40 {
        silent.push(stage.connect(&stage.other).await);
    }
    stage.still_serves("file").await;
    let mut refused = 0;
    for peer in &mut silent {
        // Admitted connections have 5 s for their hello, and are closed without a message.
        refused += usize::from(matches!(peer.next().await, Ok(Frame::Refuse(_))));
    }
    assert_eq!(refused, 32);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_gives_way_to_a_key_that_has_none() {
    let stage = with_sessions(4, 4).await;
    let held = sessions_of_other(&stage, 6).await;
    assert_eq!(held.len(), 4);
    stage.still_serves("file").await;
    let mut ends: JoinSet<()> = JoinSet::new();
    for mut peer in held {
        ends.spawn(async move { drop(peer.end().await) });
    }
    within(ends.join_next()).await.unwrap().unwrap();
    let another = tokio::time::timeout(Duration::from_millis(200), ends.join_next()).await;
    assert!(another.is_err(), "more than one was evicted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_peer_does_not_take_all_sessions_and_learns_how_many_it_may_have() {
    let stage = with_sessions(4, 2).await;
    let held = sessions_of_other(&stage, 2).await;
    assert_eq!(held.len(), 2);
    let mut third = stage.connect(&stage.other).await;
    let hello = minicbor::to_vec(hello(SessionId([7; 16]), true)).unwrap();
    third.send(&Frame::Hello(hello)).await.unwrap();
    let Frame::Refuse(body) = third.next().await.unwrap() else {
        panic!("it is not rejected")
    };
    let refusal: Refusal = minicbor::decode(&body).unwrap();
    assert_eq!(refusal.code, RefusalCode::TooManySessions);
    assert_eq!(refusal.most, Some(2));
    let _own = stage.session(&stage.client).await;
    let _second = stage.session(&stage.client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_of_one_key_waits_for_its_places_and_all_are_served() {
    let limits = Limits {
        sessions: 6,
        sessions_per_peer: 3,
        greetings_per_address: 4,
        paths: 8,
        ..Limits::default()
    };
    let stage = Stage::with(limits).await;
    let source = stage.file("source", &content(100_000));
    let mut copies = JoinSet::new();
    for number in 0..24 {
        let (builder, source) = (stage.client(&[]), source.clone());
        copies.spawn(async move {
            let client = builder.connect("127.0.1.1").await?;
            let copied = client
                .put(
                    &source,
                    Some(name(&format!("copy{number}"))),
                    CopyOptions::default(),
                )
                .finish()
                .await;
            client.close().await;
            copied
        });
    }
    for copied in within(copies.join_all()).await {
        copied.unwrap_or_else(|error| panic!("{}", crate::text::chain(&error)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_waits_for_a_place_says_so_and_gets_it() {
    let stage = with_sessions(4, 1).await;
    let held = stage.session(&stage.client).await;
    let (sender, mut events) = mpsc::channel(4);
    let connecting = tokio::spawn(stage.client(&[]).events(sender).connect("127.0.1.1"));
    let told = within(events.recv()).await;
    assert!(
        matches!(told, Some(Event::Queued { most: Some(1), since, .. }) if since >= Duration::from_secs(2)),
        "{told:?}"
    );
    drop(held);
    within(connecting).await.unwrap().unwrap();
}
