//! Tests of unauthenticated peers: idle, slow, sending garbage, numerous, or with an untrusted key.

use std::time::{Duration, Instant};

use nicstripe_proto::{SessionId, message::RefusalCode};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::{Stage, peer::tcp, within};
use crate::daemon::Limits;

/// Reads until the connection ends or is reset. Returns the bytes received.
async fn all_that_is_said(tcp: &mut TcpStream) -> Vec<u8> {
    let mut said = Vec::new();
    let _ = within(tcp.read_to_end(&mut said)).await;
    said
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_strangers_beyond_the_limit_lock_nobody_out_and_hear_nothing() {
    let stage = Stage::with(Limits {
        greetings: 8,
        greetings_per_address: 4,
        ..Limits::default()
    })
    .await;
    let mut idle = Vec::new();
    for stranger in 0..40 {
        idle.push(tcp([127, 0, 2, 1 + stranger % 20], stage.address()).await);
    }
    stage.still_serves("file").await;
    let said = all_that_is_said(&mut idle[0]).await;
    assert!(said.is_empty(), "{said:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_time_of_a_greeting_is_counted_from_its_start_whatever_trickles_in() {
    let stage = Stage::with(Limits {
        greeting_time: Duration::from_millis(600),
        ..Limits::default()
    })
    .await;
    let mut slow = tcp([127, 0, 2, 1], stage.address()).await;
    let begun = Instant::now();
    // The record header of a ClientHello, followed by single bytes.
    slow.write_all(&[22, 3, 1, 5, 220]).await.unwrap();
    let mut said = Vec::new();
    loop {
        let waited =
            tokio::time::timeout(Duration::from_millis(50), slow.read_buf(&mut said)).await;
        if matches!(waited, Ok(Ok(0) | Err(_))) || slow.write_all(&[1]).await.is_err() {
            break;
        }
        let waited = begun.elapsed();
        assert!(waited < Duration::from_secs(20), "it is not rejected");
    }
    let waited = begun.elapsed();
    assert!(waited >= Duration::from_millis(500), "{waited:?}");
    assert!(said.is_empty(), "{said:?}");

    // A trusted key does not extend the time.
    let mut silent = stage.connect(&stage.client).await;
    let begun = Instant::now();
    assert!(silent.next().await.is_err());
    let waited = begun.elapsed();
    assert!(waited < Duration::from_secs(15), "{waited:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_is_met_with_silence() {
    let stage = Stage::new().await;
    let words: [&[u8]; 6] = [
        b"GET / HTTP/1.1\r\nHost: nas\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.9\r\n",
        &[0; 5000],
        // An alert, a record of handshake garbage, and one whose length exceeds the limit.
        &[21, 3, 3, 0, 2, 2, 40],
        &[22, 3, 1, 0, 8, 1, 0, 0, 4, 9, 9, 9, 9],
        &[22, 3, 1, 255, 255, 1],
    ];
    for word in words {
        let mut tcp = tcp([127, 0, 2, 1], stage.address()).await;
        let _ = tcp.write_all(word).await;
        let said = all_that_is_said(&mut tcp).await;
        assert!(said.is_empty(), "{said:?} in answer to {word:?}");
    }
    stage.still_serves("file").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_is_joined_by_its_own_key_alone() {
    let stage = Stage::new().await;
    let session = SessionId([42; 16]);
    let mut owner = stage.connect(&stage.client).await;
    assert_eq!(owner.refused(session, true).await, None);
    for new in [false, true] {
        let mut other = stage.connect(&stage.other).await;
        let refused = other.refused(session, new).await;
        assert_eq!(refused, Some(RefusalCode::UnknownSession));
    }
    let mut again = stage.connect(&stage.client).await;
    assert_eq!(again.refused(session, false).await, None);
}
