//! Tests of TLS over real sockets, on loopback.

use std::future::ready;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::super::stream::{RECEIVE_BUFFER, SEND_BUFFER};
use super::*;

#[tokio::test]
async fn much_data_goes_both_ways_at_once() {
    let (client, server) = connected(&Cast::new()).await;
    let data = noise(9_000_000);
    let (at_client, at_server) = tokio::join!(exchange(client, &data), exchange(server, &data));
    assert!(at_client == data && at_server == data);
}

#[tokio::test]
async fn what_comes_with_the_end_of_the_handshake_is_not_left_waiting() {
    let cast = Cast::new();
    let (tcp, mut raw) = tcp_pair().await;
    let tls = cast.server_tls();
    let server = tokio::spawn(async move { TlsStream::accept(tcp, &tls, soon(), ready(())).await });
    let mut out = SendBuffer::with_capacity(64);
    let mut client = Tls::client(&cast.client_tls(), &mut out).unwrap();
    raw.write_all(out.pending()).await.unwrap();
    out.clear();
    let mut bytes = Vec::new();
    while client.peer_key().is_none() {
        raw.read_buf(&mut bytes).await.unwrap();
        let received = client
            .receive::<TlsError>(&mut bytes, &mut out, &mut |_: &[u8]| Ok(()))
            .unwrap();
        bytes.drain(..received.discard);
    }
    // The last handshake message and the first data in one segment.
    client.send(&[b"early bird"], &mut out).unwrap();
    raw.write_all(out.pending()).await.unwrap();
    let mut server = server.await.unwrap().unwrap();
    assert_eq!(receive(&mut server, 10).await.unwrap(), b"early bird");
}

#[tokio::test]
async fn a_refused_client_learns_why_at_its_first_read() {
    let (cast, stranger) = (Cast::new(), Identity::generate().unwrap());
    for sends_first in [false, true] {
        let (tcp, other) = tcp_pair().await;
        let tls = cast.server_tls();
        let server = tokio::spawn(async move {
            TlsStream::accept(tcp, &tls, soon(), ready(()))
                .await
                .map(drop)
        });
        let tls = ClientTls::new(&stranger, only(cast.server.public_key()));
        let mut client = TlsStream::connect(other, &tls, soon()).await.unwrap();
        if sends_first {
            // More than fits into the sockets: part of it meets a closed connection.
            client.queue(&[&noise(8_000_000)]).unwrap();
        }
        let error = receive(&mut client, 1).await.unwrap_err();
        assert!(matches!(error, TlsError::KeyRefused(_)), "{error:?}");
        let error = server.await.unwrap().unwrap_err();
        assert!(
            matches!(error, TlsError::UntrustedKey(key) if key == stranger.public_key()),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn a_stranger_cannot_make_us_keep_much() {
    let cast = Cast::new();
    let (tcp, mut raw) = tcp_pair().await;
    // A record of maximal length; only its first half arrives.
    raw.write_all(&[22, 3, 1, 0x40, 0, 1, 0, 0x3f, 0xf0])
        .await
        .unwrap();
    raw.write_all(&[0; 8192]).await.unwrap();
    let error = TlsStream::accept(tcp, &cast.server_tls(), soon(), ready(()))
        .await
        .map(drop)
        .unwrap_err();
    assert!(matches!(error, TlsError::Unexpected(_)), "{error:?}");
}

#[tokio::test]
async fn a_cut_connection_is_no_end_and_at_our_key_no_verdict_on_it() {
    for reset in [false, true] {
        let (mut client, server) = connected(&Cast::new()).await;
        if reset {
            // Unread bytes cause a reset.
            client.queue(&[b"unread"]).unwrap();
            client.try_flush().unwrap();
            server.ready(true, false).await.unwrap();
        }
        drop(server);
        let error = receive(&mut client, 1).await.unwrap_err();
        assert!(
            matches!(&error, TlsError::ClosedAtKey(cause) if cause.is_some() == reset),
            "{error:?}"
        );
    }
    let (mut client, mut server) = connected(&Cast::new()).await;
    server.queue(&[b"word"]).unwrap();
    server.try_flush().unwrap();
    drop(server);
    assert_eq!(receive(&mut client, 4).await.unwrap(), b"word");
    let error = receive(&mut client, 1).await.unwrap_err();
    assert!(matches!(error, TlsError::Truncated), "{error:?}");
}

#[tokio::test]
async fn last_words_are_heard_although_something_is_unread() {
    let (mut client, mut server) = connected(&Cast::new()).await;
    client.queue(&[&noise(100_000)]).unwrap();
    client.try_flush().unwrap();
    // More than the client's kernel accepts at once: the rest still waits in the server's kernel
    // when the server has sent all.
    server.queue(&[&noise(1_000_000)]).unwrap();
    let finished = tokio::spawn(server.finish(soon()));
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(drain(client).await == noise(1_000_000));
    finished.await.unwrap().unwrap();
}

#[tokio::test]
async fn queued_and_total_sent_account_for_every_byte() {
    let (mut client, mut server) = connected(&Cast::new()).await;
    let handshake = client.total_sent();
    assert!(handshake > 0 && client.queued() == 0);
    client.queue(&[&noise(2 * SEND_BUFFER)]).unwrap();
    let queued = client.queued();
    assert!(queued > 2 * SEND_BUFFER);
    while client.queued() > 0 {
        client.ready(false, true).await.unwrap();
        client.try_flush().unwrap();
        assert_eq!(
            client.total_sent() - handshake,
            (queued - client.queued()) as u64
        );
        let progress = server.try_receive::<TlsError>(|_: &[u8]| Ok(())).unwrap();
        assert!(progress.received <= RECEIVE_BUFFER);
    }
}

#[tokio::test]
async fn readiness_ends_when_everything_is_read() {
    let (mut client, mut server) = connected(&Cast::new()).await;
    client.queue(&[b"hello"]).unwrap();
    client.try_flush().unwrap();
    assert_eq!(receive(&mut server, 5).await.unwrap(), b"hello");
    let waited = tokio::time::timeout(Duration::from_millis(50), server.ready(true, false)).await;
    assert!(waited.is_err(), "ready for nothing");
    let progress = server.try_receive::<TlsError>(|_: &[u8]| Ok(())).unwrap();
    assert_eq!(progress.received, 0);
}

#[tokio::test]
async fn below_the_low_water_nothing_is_ready_and_all_is_received() {
    let (mut client, mut server) = connected(&Cast::new()).await;
    assert!(server.set_low_water(100_000));
    for (len, is_ready) in [(50_000, false), (120_000, true)] {
        client.queue(&[&noise(len)]).unwrap();
        client.flush().await.unwrap();
        let wait = Duration::from_millis(if is_ready { 5000 } else { 50 });
        let waited = tokio::time::timeout(wait, server.ready(true, false)).await;
        assert_eq!(waited.is_ok(), is_ready, "{len} bytes");
        let mut received = Vec::new();
        while received.len() < len {
            let progress = server.try_receive::<TlsError>(|part: &[u8]| {
                received.extend_from_slice(part);
                Ok(())
            });
            progress.unwrap();
        }
        assert_eq!(received, noise(len));
    }
    // Its end wakes it.
    drop(client);
    let waited = tokio::time::timeout(Duration::from_secs(5), server.ready(true, false)).await;
    waited.unwrap().unwrap();
}

async fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (connected, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
    (connected.unwrap(), accepted.unwrap().0)
}

async fn connected(cast: &Cast) -> (TlsStream, TlsStream) {
    let (client, server) = tcp_pair().await;
    let (client_tls, server_tls) = (cast.client_tls(), cast.server_tls());
    let (client, server) = tokio::join!(
        TlsStream::connect(client, &client_tls, soon()),
        TlsStream::accept(server, &server_tls, soon(), ready(()))
    );
    let (client, server) = (client.unwrap(), server.unwrap());
    assert_eq!(client.peer_key().unwrap(), cast.server.public_key());
    assert_eq!(server.peer_key().unwrap(), cast.client.public_key());
    assert_eq!(client.binding().unwrap(), server.binding().unwrap());
    (client, server)
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

/// Receives until `len` plaintext bytes have arrived; sends queued data in the meantime.
async fn receive(stream: &mut TlsStream, len: usize) -> Result<Vec<u8>, TlsError> {
    let mut plaintext = Vec::new();
    while plaintext.len() < len {
        let ready = stream.ready(true, stream.queued() > 0).await?;
        if ready.is_writable() {
            stream.try_flush()?;
        }
        stream.try_receive::<TlsError>(|part: &[u8]| {
            plaintext.extend_from_slice(part);
            Ok(())
        })?;
    }
    Ok(plaintext)
}

async fn drain(mut stream: TlsStream) -> Vec<u8> {
    let mut plaintext = Vec::new();
    loop {
        stream.ready(true, false).await.unwrap();
        let progress = stream.try_receive::<TlsError>(|part: &[u8]| {
            plaintext.extend_from_slice(part);
            Ok(())
        });
        if progress.unwrap().peer_closed {
            let again = stream.try_receive::<TlsError>(|_: &[u8]| Ok(())).unwrap();
            assert!(again.peer_closed && again.received == 0);
            return plaintext;
        }
    }
}

/// Sends `data` and receives the same number of bytes, both in one loop as a transfer does.
async fn exchange(mut stream: TlsStream, data: &[u8]) -> Vec<u8> {
    let (mut left, mut received) = (data, Vec::new());
    while !left.is_empty() || stream.queued() > 0 || received.len() < data.len() {
        while stream.queued() < SEND_BUFFER / 2 && !left.is_empty() {
            let (part, rest) = left.split_at(left.len().min(100_000));
            let (header, body) = part.split_at(part.len().min(40));
            stream.queue(&[header, body]).unwrap();
            left = rest;
        }
        let ready = stream
            .ready(received.len() < data.len(), stream.queued() > 0)
            .await
            .unwrap();
        if ready.is_readable() {
            let progress = stream.try_receive::<TlsError>(|part: &[u8]| {
                received.extend_from_slice(part);
                Ok(())
            });
            progress.unwrap();
        }
        if ready.is_writable() {
            stream.try_flush().unwrap();
        }
    }
    received
}
