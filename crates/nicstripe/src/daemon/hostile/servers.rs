//! Tests of trusted daemons that violate the protocol: the client fails with a matching error and
//! keeps no data.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use nicstripe_proto::{
    ChainingValue, ChunkId, DataHeader, FailCode, Frame, Grid, Message, Offer, SourceIdentity,
    TransferId,
    grid::ChunkSize,
    hash_tree::piece_value,
    message::{
        Accept, Committed, Complete, Fail, Features, Get, PeerInterface, Refusal, RefusalCode,
        Welcome,
    },
};
use tokio::net::TcpListener;

use super::{content, digest, name, names, trusting, wire::Wire, wire::plain_welcome, within};
use crate::{
    Awaited, Client, Digest, Error, TreeOptions, file::options::CopyOptions, trust::Identity,
};

/// Gets a file from a daemon that runs `evil` on each connection after its welcome. Returns the
/// client's error and the files left in its folder.
async fn get_from(
    welcome: Welcome,
    evil: impl AsyncFn(&mut Wire) + Send + 'static,
) -> (Error, Vec<String>) {
    let files = tempfile::tempdir().unwrap();
    let target = files.path().join("target");
    let get = async |client: Client| {
        client
            .get(name("wanted"), &target, CopyOptions::default())
            .finish()
            .await
            .map(drop)
    };
    let error = against(welcome, evil, get).await;
    (error, names(files.path()))
}

/// Runs `calls` on a client, and `evil` on each of the daemon's connections after its welcome.
/// Returns the client's error.
pub(super) async fn against(
    welcome: Welcome,
    evil: impl AsyncFn(&mut Wire) + Send + 'static,
    calls: impl AsyncFnOnce(Client) -> Result<(), Error>,
) -> Error {
    let answer = Frame::Welcome(minicbor::to_vec(&welcome).unwrap());
    answering(answer, evil, calls).await
}

/// Like `against`, with another answer to each hello.
async fn answering(
    answer: Frame,
    evil: impl AsyncFn(&mut Wire) + Send + 'static,
    calls: impl AsyncFnOnce(Client) -> Result<(), Error>,
) -> Error {
    let (daemon, client) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    let listener = TcpListener::bind("127.0.4.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let trusted = trusting(&[&daemon]);
    let serve = async {
        loop {
            let Ok(mut wire) = Wire::accept(&listener, &daemon).await else {
                continue;
            };
            if wire.answer(&answer).await.is_ok() {
                evil(&mut wire).await;
            }
        }
    };
    let calls = async {
        let link = "127.0.0.5=127.0.4.1".parse().unwrap();
        let builder = Client::builder()
            .identity(client)
            .peers(trusted)
            .port(port)
            .links(vec![link])
            .patience(Duration::from_secs(2));
        let client = builder.connect("127.0.4.1").await?;
        calls(client).await
    };
    within(async {
        tokio::select! {
            called = calls => called.unwrap_err(),
            () = serve => unreachable!(),
        }
    })
    .await
}

/// Returns the client's next get request, skipping the failure message of an earlier transfer.
async fn asked(wire: &mut Wire) -> Option<Get> {
    loop {
        match wire.message().await {
            Ok(Message::Get(get)) => return Some(get),
            Ok(Message::Fail(_)) => {}
            _ => return None,
        }
    }
}

fn offer(transfer: TransferId, size: u64) -> Message {
    let source = SourceIdentity {
        size,
        ..SourceIdentity::default()
    };
    Message::Offer(Offer {
        transfer,
        source,
        chunk_log2: 18,
        mode: 0o644,
        kind: None,
        data: None,
    })
}

fn complete(transfer: TransferId, digest: Digest) -> Message {
    Message::Complete(Complete {
        transfer,
        digest,
        streams: Vec::new(),
        end: None,
        changing: false,
    })
}

/// Returns a complete message that claims that the file changed while it was read. The protocol
/// allows this.
fn complete_of_changing(transfer: TransferId, digest: Digest) -> Message {
    Message::Complete(Complete {
        transfer,
        digest,
        streams: Vec::new(),
        end: None,
        changing: true,
    })
}

/// Answers the client's get with an offer of `size` bytes, and waits until the client accepts it.
async fn offered(wire: &mut Wire, size: u64) -> Option<TransferId> {
    let transfer = asked(wire).await?.transfer;
    wire.say(&offer(transfer, size)).await.ok()?;
    while !matches!(wire.message().await.ok()?, Message::Accept(_)) {}
    Some(transfer)
}

fn chunk(transfer: TransferId, bytes: &[u8], value: ChainingValue) -> Vec<u8> {
    let mut framed = Vec::new();
    DataHeader {
        transfer,
        chunk: ChunkId(0),
        value,
        len: bytes.len() as u32,
        raw_len: 0,
        last: false,
    }
    .encode(&mut framed);
    framed.extend_from_slice(bytes);
    framed
}

fn value_of(bytes: &[u8]) -> ChainingValue {
    piece_value(
        Grid::new(bytes.len() as u64, ChunkSize::DEFAULT),
        ChunkId(0),
        bytes,
        false,
    )
    .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_welcomes_and_says_nothing_is_given_up_after_the_patience_for_none() {
    let (error, left) = get_from(plain_welcome(), async |_: &mut Wire| {
        tokio::time::sleep(Duration::from_secs(3)).await;
    })
    .await;
    assert!(
        matches!(
            error,
            Error::Abandoned { .. } | Error::Link { .. } | Error::Connect { .. }
        ),
        "{}",
        crate::text::chain(&error)
    );
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_of_another_version_is_named_at_once() {
    let refusal = Refusal {
        code: RefusalCode::Version,
        version: 7,
        most: None,
    };
    let answer = Frame::Refuse(minicbor::to_vec(refusal).unwrap());
    let begun = Instant::now();
    let error = answering(answer, async |_: &mut Wire| {}, async |_| Ok(())).await;
    assert_eq!(
        error.to_string(),
        "127.0.4.1 speaks protocol 7, this program protocol 1"
    );
    assert!(
        begun.elapsed() < Duration::from_secs(1),
        "it is not asked again"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_daemon_lacks_is_refused_before_anything_is_sent() {
    let asked = Arc::new(AtomicBool::new(false));
    let welcome = Welcome {
        features: Some(Features::default()),
        program: Some("9.9\u{1b}[2J".into()),
        ..plain_welcome()
    };
    let evil = {
        let asked = asked.clone();
        async move |wire: &mut Wire| {
            while let Ok(frame) = wire.next().await {
                asked.fetch_or(matches!(frame, Frame::Control { .. }), Ordering::Relaxed);
            }
        }
    };
    let error = against(welcome, evil, async |client: Client| {
        let dialled = client.dial("localhost:22").await.map(drop).unwrap_err();
        assert!(matches!(dialled, Error::Unsupported { .. }), "{dialled}");
        client.stat(&name("x")).await.map(drop)
    })
    .await;
    let text = r"127.0.4.1 (nicstripe 9.9\u{1b}[2J) does not support requests about names";
    assert_eq!(error.to_string(), text);
    assert!(!asked.load(Ordering::Relaxed));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_welcomes_and_hangs_up_is_given_up_too() {
    let (error, left) = get_from(plain_welcome(), async |_: &mut Wire| {}).await;
    assert!(
        matches!(error, Error::Abandoned { .. } | Error::Ended { .. }),
        "{}",
        crate::text::chain(&error)
    );
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_breaks_the_protocol_on_each_connection_is_called_so() {
    let (error, left) = get_from(plain_welcome(), async |wire: &mut Wire| {
        let _ = wire.send_bytes(&[0xee; 64]).await;
        wire.end().await;
    })
    .await;
    assert!(
        matches!(error, Error::Protocol { .. }),
        "{}",
        crate::text::chain(&error)
    );
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_that_are_not_what_their_value_says_are_not_kept() {
    let begun = AtomicU32::new(u32::MAX);
    let (error, left) = get_from(plain_welcome(), async move |wire: &mut Wire| {
        let transfer = match TransferId(begun.load(Ordering::SeqCst)) {
            TransferId(u32::MAX) => offered(wire, 1000).await,
            // On a later connection the client does not repeat its get.
            transfer => Some(transfer),
        };
        let Some(transfer) = transfer else { return };
        begun.store(transfer.0, Ordering::SeqCst);
        let _ = wire
            .send_bytes(&chunk(transfer, &[7; 1000], ChainingValue([1; 32])))
            .await;
        wire.end().await;
    })
    .await;
    assert!(
        matches!(error, Error::Protocol { .. }),
        "{}",
        crate::text::chain(&error)
    );
    assert!(!left.contains(&"target".to_owned()), "{left:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_digest_that_is_not_that_of_the_data_is_a_mismatch() {
    let (error, left) = get_from(plain_welcome(), async |wire: &mut Wire| {
        let bytes = content(1000);
        // The client retries once.
        while let Some(transfer) = offered(wire, 1000).await {
            let _ = wire
                .send_bytes(&chunk(transfer, &bytes, value_of(&bytes)))
                .await;
            let _ = wire.say(&complete(transfer, digest(b"other bytes"))).await;
        }
    })
    .await;
    assert!(
        matches!(error, Error::Digest { .. }),
        "{}",
        crate::text::chain(&error)
    );
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_digest_that_is_not_that_of_the_data_is_a_mismatch_also_if_it_says_that_the_file_changed()
{
    let (error, left) = get_from(plain_welcome(), async |wire: &mut Wire| {
        let bytes = content(1000);
        while let Some(transfer) = offered(wire, 1000).await {
            let _ = wire
                .send_bytes(&chunk(transfer, &bytes, value_of(&bytes)))
                .await;
            let _ = wire
                .say(&complete_of_changing(transfer, digest(b"other bytes")))
                .await;
        }
    })
    .await;
    assert!(
        matches!(error, Error::Digest { .. }),
        "{}",
        crate::text::chain(&error)
    );
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_without_data_is_no_file() {
    let (error, left) = get_from(plain_welcome(), async |wire: &mut Wire| {
        let Some(transfer) = offered(wire, 1000).await else {
            return;
        };
        let _ = wire.say(&complete(transfer, digest(&content(1000)))).await;
        let _ = wire
            .say(&Message::Committed(Committed {
                transfer,
                digest: digest(&content(1000)),
            }))
            .await;
        // Then silence.
        tokio::time::sleep(Duration::from_secs(3)).await;
    })
    .await;
    assert!(
        matches!(
            error,
            Error::Protocol { .. } | Error::Abandoned { .. } | Error::Ended { .. }
        ),
        "{}",
        crate::text::chain(&error)
    );
    assert!(!left.contains(&"target".to_owned()), "{left:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_of_an_absurd_size_or_of_another_number_is_not_begun() {
    for (number, size) in [(0, u64::MAX), (0, 1 << 63), (7, 10), (u32::MAX / 2, 10)] {
        let (error, left) = get_from(plain_welcome(), async move |wire: &mut Wire| {
            let Some(get) = asked(wire).await else { return };
            let _ = wire
                .say(&offer(TransferId(get.transfer.0 + number), size))
                .await;
            wire.end().await;
        })
        .await;
        assert!(
            matches!(
                error,
                Error::Protocol { .. } | Error::File(_) | Error::Ended { .. }
            ),
            "{}",
            crate::text::chain(&error)
        );
        assert!(!left.contains(&"target".to_owned()), "{left:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_it_writes_reaches_no_terminal_as_a_command() {
    let dirty = "\u{1b}]0;owned\u{7}\r\n\u{202e}txt";
    let mut welcome = plain_welcome();
    welcome.arrival = Some(dirty.into());
    welcome.interfaces = Some(vec![PeerInterface::new(dirty, 7)]);
    let (error, left) = get_from(welcome, async move |wire: &mut Wire| {
        let Some(get) = asked(wire).await else { return };
        let fail = Fail {
            transfer: get.transfer,
            code: FailCode::Io,
            text: dirty.repeat(20),
            resumable: false,
        };
        let _ = wire.say(&Message::Fail(fail)).await;
        wire.end().await;
    })
    .await;
    let text = crate::text::chain(&error);
    assert!(
        !text.chars().any(|c| c.is_control() || c == '\u{202e}'),
        "{text:?}"
    );
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_that_only_a_client_sends_end_the_connection() {
    for frame in [
        Frame::Hello(vec![0xa0]),
        Frame::Welcome(vec![0xa0]),
        Frame::Refuse(vec![0xa0]),
    ] {
        let (error, left) = get_from(plain_welcome(), async move |wire: &mut Wire| {
            let _ = wire.send(&frame).await;
            wire.end().await;
        })
        .await;
        assert!(
            matches!(error, Error::Protocol { .. }),
            "{}",
            crate::text::chain(&error)
        );
        assert!(left.is_empty(), "{left:?}");
    }
}

/// Control test: an honest daemon succeeds, so the other tests fail for the intended reason.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_keeps_to_it_is_believed() {
    let bytes = content(1000);
    let (daemon, client) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    let listener = TcpListener::bind("127.0.4.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let files = tempfile::tempdir().unwrap();
    let (trusted, sent) = (trusting(&[&daemon]), bytes.clone());
    tokio::spawn(async move {
        let mut wire = Wire::accept(&listener, &daemon).await.unwrap();
        wire.welcome(&plain_welcome()).await.unwrap();
        let transfer = offered(&mut wire, 1000).await.unwrap();
        wire.send_bytes(&chunk(transfer, &sent, value_of(&sent)))
            .await
            .unwrap();
        wire.say(&complete(transfer, digest(&sent))).await.unwrap();
        wire.end().await;
    });
    let builder = Client::builder().identity(client).peers(trusted).port(port);
    let client = builder
        .links(vec!["127.0.0.5=127.0.4.1".parse().unwrap()])
        .connect("127.0.4.1")
        .await
        .unwrap();
    let report = within(
        client
            .get(
                name("wanted"),
                &files.path().join("target"),
                CopyOptions::default(),
            )
            .finish(),
    )
    .await
    .unwrap();
    assert_eq!(report.digest, Some(digest(&bytes)));
    assert_eq!(fs::read(files.path().join("target")).unwrap(), bytes);
}

/// Answers heartbeats, and accepts what is put if `accepts`, offers what is got if `offers`.
async fn go_no_further(wire: &mut Wire, accepts: bool, offers: bool) {
    while let Ok(message) = wire.message().await {
        let answer = match message {
            Message::Put(put) if accepts => Message::Accept(Accept {
                transfer: put.offer.transfer,
                have: Vec::new(),
                window: None,
                delta: None,
                memory: None,
            }),
            Message::Get(get) if offers => offer(get.transfer, 1000),
            _ => continue,
        };
        let _ = wire.say(&answer).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_that_answers_heartbeats_and_goes_no_further_ends_each_call_in_time() {
    let files = tempfile::tempdir().unwrap();
    let source = files.path().join("source");
    fs::write(&source, content(1000)).unwrap();
    let (target, tree) = (files.path().join("target"), files.path().join("tree"));
    let (copies, trees) = (CopyOptions::default(), TreeOptions::default());
    let put = async |client: Client| {
        let copied = client.put(&source, None, copies).finish().await;
        copied.map(drop)
    };
    let get = async |client: Client| {
        let copied = client.get(name("x"), &target, copies).finish().await;
        copied.map(drop)
    };
    let put_tree = async |client: Client| {
        let sources = vec![source.clone()];
        let copied = client
            .put_tree(sources, None, false, trees.clone())
            .finish()
            .await;
        copied.map(drop)
    };
    let get_tree = async |client: Client| {
        let sources = vec![(Some(name("x")), false)];
        let copied = client
            .get_tree(sources, &tree, false, trees.clone())
            .finish()
            .await;
        copied.map(drop)
    };
    let list = async |client: Client| client.list(None).await.map(drop);
    let dial = async |client: Client| client.dial("localhost:22").await.map(drop);
    let silent = async |wire: &mut Wire| go_no_further(wire, false, false).await;
    let opened = async |wire: &mut Wire| go_no_further(wire, true, true).await;
    let ended = tokio::join!(
        against(plain_welcome(), silent, put),
        against(plain_welcome(), silent, get),
        against(plain_welcome(), opened, put),
        against(plain_welcome(), opened, get),
        against(plain_welcome(), silent, put_tree),
        against(plain_welcome(), silent, get_tree),
        against(plain_welcome(), silent, list),
        against(plain_welcome(), silent, dial),
    );
    let awaited = |error: Error| match error {
        Error::Stalled {
            awaited, waited, ..
        } => {
            assert!(waited >= Duration::from_secs(10), "{waited:?}");
            awaited
        }
        error => panic!("{}", crate::text::chain(&error)),
    };
    let (a, b, c, d, e, f, g, h) = ended;
    assert_eq!(
        [a, b, c, d, e, f, g, h].map(awaited),
        [
            Awaited::Opening,
            Awaited::Opening,
            Awaited::Receiving,
            Awaited::Sending,
            Awaited::Opening,
            Awaited::Opening,
            Awaited::Answer,
            Awaited::Tunnel,
        ]
    );
}
