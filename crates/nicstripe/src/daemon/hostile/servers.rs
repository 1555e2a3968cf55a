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
    ChainingValue, ChunkId, Digest, FailCode, Frame, Grid, Message, TransferId,
    grid::ChunkSize,
    hash_tree::piece_value,
    message::{
        Accept, Committed, Complete, Fail, Features, Get, PeerInterface, Refusal, RefusalCode,
        Welcome,
    },
};
use tokio::net::TcpListener;

use super::{
    content, digest, is_one_of, name, names,
    peer::{Peer, chunk, offer, plain_welcome},
    trusting, within,
};
use crate::{
    client::Client,
    file::options::CopyOptions,
    report::{error::Error, event::Awaited},
    tree::TreeOptions,
    trust::Identity,
};

/// Step of a daemon's script, on one connection after its welcome. The file that it offers has
/// 1000 bytes unless the step says otherwise.
#[derive(Debug, Clone)]
enum Step {
    /// Waits for a get, offers the file, and waits until the client accepts it.
    Offer,
    /// Waits for a get, and offers a file of `size` bytes under a number that is greater by `more`.
    Misoffer { more: u32, size: u64 },
    /// Sends the file.
    Data,
    /// Sends the end of the file, with this digest.
    Complete { digest: Digest, changing: bool },
    /// Sends a commit of the file.
    Commit,
    /// Waits for a get, and fails it with this text.
    Fail(String),
    /// Sends these bytes.
    Bytes(Vec<u8>),
    /// Sends this frame.
    Frame(Frame),
    /// Sends nothing for 3 s.
    Silence,
    /// Waits until the client ends the connection.
    End,
    /// Runs the script from its start until the client asks for nothing more.
    Again,
}

/// Runs a script, and ignores that the client may have ended the connection.
async fn play(peer: &mut Peer, script: &[Step]) {
    let mut transfer = TransferId(0);
    let mut steps = script.iter();
    while let Some(step) = steps.next() {
        let _ = match step.clone() {
            Step::Offer => match offered(peer, 1000).await {
                Some(offered) => {
                    transfer = offered;
                    Ok(())
                }
                None => return,
            },
            Step::Misoffer { more, size } => {
                let Some(get) = asked(peer).await else { return };
                let other = TransferId(get.transfer.0 + more);
                peer.say(&Message::Offer(offer(other, size))).await
            }
            Step::Data => {
                let bytes = content(1000);
                let value = value_of(&bytes);
                peer.send_bytes(&chunk(transfer, 0, &bytes, value)).await
            }
            Step::Complete { digest, changing } => {
                let complete = Complete {
                    transfer,
                    digest,
                    streams: Vec::new(),
                    end: None,
                    changing,
                };
                peer.say(&Message::Complete(complete)).await
            }
            Step::Commit => {
                let digest = digest(&content(1000));
                let committed = Committed {
                    transfer,
                    digest,
                    etag: None,
                };
                peer.say(&Message::Committed(committed)).await
            }
            Step::Fail(text) => {
                let Some(get) = asked(peer).await else { return };
                let fail = Fail {
                    transfer: get.transfer,
                    code: FailCode::Io,
                    text,
                    resumable: false,
                };
                peer.say(&Message::Fail(fail)).await
            }
            Step::Bytes(bytes) => peer.send_bytes(&bytes).await,
            Step::Frame(frame) => peer.send(&frame).await,
            Step::Silence => {
                tokio::time::sleep(Duration::from_secs(3)).await;
                Ok(())
            }
            Step::End => {
                peer.end().await;
                Ok(())
            }
            Step::Again => {
                steps = script.iter();
                Ok(())
            }
        };
    }
}

/// Gets a file from a daemon that runs `evil` on each connection after its welcome. Returns the
/// client's error and the files left in its folder.
async fn get_from(
    welcome: Welcome,
    evil: impl AsyncFn(&mut Peer) + Send + 'static,
) -> (Error, Vec<String>) {
    let files = tempfile::tempdir().unwrap();
    let target = files.path().join("target");
    let error = against(welcome, evil, async |client: Client| {
        let copied = client.get(name("wanted"), &target, CopyOptions::default());
        copied.finish().await.map(drop)
    })
    .await;
    (error, names(files.path()))
}

/// Runs `calls` on a client, and `evil` on each of the daemon's connections after its welcome.
/// Returns the client's error.
pub(super) async fn against(
    welcome: Welcome,
    evil: impl AsyncFn(&mut Peer) + Send + 'static,
    calls: impl AsyncFnOnce(Client) -> Result<(), Error>,
) -> Error {
    let answer = Frame::Welcome(minicbor::to_vec(&welcome).unwrap());
    answering(answer, evil, calls).await.unwrap_err()
}

/// Like `against`, with another answer to each hello. Returns the client's result.
pub(super) async fn answering<T>(
    answer: Frame,
    evil: impl AsyncFn(&mut Peer) + Send + 'static,
    calls: impl AsyncFnOnce(Client) -> Result<T, Error>,
) -> Result<T, Error> {
    let (daemon, client) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    let listener = TcpListener::bind("127.0.4.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let trusted = trusting(&[&daemon]);
    let serve = async {
        loop {
            let Ok(mut peer) = Peer::accept(&listener, &daemon).await else {
                continue;
            };
            if peer.answer(&answer).await.is_ok() {
                evil(&mut peer).await;
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
            called = calls => called,
            () = serve => unreachable!(),
        }
    })
    .await
}

/// Returns the client's next get request, skipping the failure message of an earlier transfer.
async fn asked(peer: &mut Peer) -> Option<Get> {
    loop {
        match peer.message().await {
            Ok(Message::Get(get)) => return Some(get),
            Ok(Message::Fail(_)) => {}
            _ => return None,
        }
    }
}

/// Answers the client's get with an offer of `size` bytes, and waits until the client accepts it.
async fn offered(peer: &mut Peer, size: u64) -> Option<TransferId> {
    let transfer = asked(peer).await?.transfer;
    peer.say(&Message::Offer(offer(transfer, size)))
        .await
        .ok()?;
    while !matches!(peer.message().await.ok()?, Message::Accept(_)) {}
    Some(transfer)
}

fn value_of(bytes: &[u8]) -> ChainingValue {
    let grid = Grid::new(bytes.len() as u64, ChunkSize::DEFAULT);
    piece_value(grid, ChunkId(0), bytes, false).unwrap()
}

type Row = (&'static str, Vec<Step>, &'static [&'static str]);

/// Gets a file from each of these daemons, and asserts the kind of the client's error and that the
/// client has no file. If `nothing`, it has no unfinished copy either.
async fn get_fails(rows: impl IntoIterator<Item = Row>, nothing: bool) {
    for (what, script, kinds) in rows {
        println!("{what}");
        let evil = async move |peer: &mut Peer| play(peer, &script).await;
        let (error, left) = get_from(plain_welcome(), evil).await;
        is_one_of(&error, kinds);
        assert!(!left.contains(&"target".to_owned()), "{what}: {left:?}");
        assert!(!nothing || left.is_empty(), "{what}: {left:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_breaks_the_protocol_or_ends_early_is_an_error_and_leaves_nothing() {
    let other_digest = |changing| {
        let digest = digest(b"other bytes");
        let complete = Step::Complete { digest, changing };
        // The client retries once.
        vec![Step::Offer, Step::Data, complete, Step::Again]
    };
    let frame = |frame| vec![Step::Frame(frame), Step::End];
    let breach = vec![Step::Bytes(vec![0xee; 64]), Step::End];
    let rows: [Row; 8] = [
        (
            "welcomes and says nothing: given up after the patience for none",
            vec![Step::Silence],
            &["Abandoned", "Link", "Connect"],
        ),
        ("hangs up", vec![], &["Abandoned", "Ended"]),
        ("a breach on each connection", breach, &["Protocol"]),
        ("another digest", other_digest(false), &["Digest"]),
        // The protocol allows a file to change while it is read.
        ("another digest, changed", other_digest(true), &["Digest"]),
        ("hello", frame(Frame::Hello(vec![0xa0])), &["Protocol"]),
        ("welcome", frame(Frame::Welcome(vec![0xa0])), &["Protocol"]),
        ("refusal", frame(Frame::Refuse(vec![0xa0])), &["Protocol"]),
    ];
    get_fails(rows, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_of_an_absurd_size_or_of_another_number_and_an_end_without_data_are_no_file() {
    let other = |more, size| vec![Step::Misoffer { more, size }, Step::End];
    let is_refused: &[&str] = &["Protocol", "File", "Ended"];
    let complete = Step::Complete {
        digest: digest(&content(1000)),
        changing: false,
    };
    let rows: [Row; 5] = [
        ("2^64 - 1 bytes", other(0, u64::MAX), is_refused),
        ("2^63 bytes", other(0, 1 << 63), is_refused),
        ("the seventh number after", other(7, 10), is_refused),
        ("a number far ahead", other(u32::MAX / 2, 10), is_refused),
        (
            "an end without data",
            vec![Step::Offer, complete, Step::Commit, Step::Silence],
            &["Protocol", "Abandoned", "Ended"],
        ),
    ];
    get_fails(rows, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_that_are_not_what_their_value_says_are_not_kept() {
    let begun = AtomicU32::new(u32::MAX);
    let (error, left) = get_from(plain_welcome(), async move |peer: &mut Peer| {
        let transfer = match TransferId(begun.load(Ordering::SeqCst)) {
            TransferId(u32::MAX) => offered(peer, 1000).await,
            // On a later connection the client does not repeat its get.
            transfer => Some(transfer),
        };
        let Some(transfer) = transfer else { return };
        begun.store(transfer.0, Ordering::SeqCst);
        let value = ChainingValue([1; 32]);
        let _ = peer
            .send_bytes(&chunk(transfer, 0, &[7; 1000], value))
            .await;
        peer.end().await;
    })
    .await;
    is_one_of(&error, &["Protocol"]);
    assert!(!left.contains(&"target".to_owned()), "{left:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_it_writes_reaches_no_terminal_as_a_command() {
    let dirty = "\u{1b}]0;owned\u{7}\r\n\u{202e}txt";
    let mut welcome = plain_welcome();
    welcome.arrival = Some(dirty.into());
    welcome.interfaces = Some(vec![PeerInterface::new(dirty, 7)]);
    let (error, left) = get_from(welcome, async move |peer: &mut Peer| {
        play(peer, &[Step::Fail(dirty.repeat(20)), Step::End]).await;
    })
    .await;
    let text = crate::text::chain(&error);
    assert!(
        !text.chars().any(|c| c.is_control() || c == '\u{202e}'),
        "{text:?}"
    );
    assert!(left.is_empty(), "{left:?}");
}

/// Control test: an honest daemon succeeds, so the other tests fail for the intended reason.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_keeps_to_it_is_believed() {
    let bytes = content(1000);
    let files = tempfile::tempdir().unwrap();
    let target = files.path().join("target");
    let complete = Step::Complete {
        digest: digest(&bytes),
        changing: false,
    };
    let script = [Step::Offer, Step::Data, complete, Step::End];
    let report = answering(
        Frame::Welcome(minicbor::to_vec(plain_welcome()).unwrap()),
        async move |peer: &mut Peer| play(peer, &script).await,
        async |client: Client| {
            let copied = client.get(name("wanted"), &target, CopyOptions::default());
            copied.finish().await
        },
    )
    .await
    .unwrap();
    assert_eq!(report.digest, Some(digest(&bytes)));
    assert_eq!(fs::read(&target).unwrap(), bytes);
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
    let error = answering(answer, async |_: &mut Peer| {}, async |_| Ok(()))
        .await
        .unwrap_err();
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
        async move |peer: &mut Peer| {
            while let Ok(frame) = peer.next().await {
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

/// Runs `calls` with a daemon that answers heartbeats, and that accepts what is put and offers what
/// is got only if `opens`. Asserts that the client gives up in time, and what it waited for.
async fn stalls(
    calls: impl AsyncFnOnce(Client) -> Result<(), Error>,
    opens: bool,
    expected: Awaited,
) {
    let goes_no_further = async move |peer: &mut Peer| {
        while let Ok(message) = peer.message().await {
            let answer = match message {
                Message::Put(put) if opens => Message::Accept(Accept {
                    transfer: put.offer.transfer,
                    have: Vec::new(),
                    window: None,
                    delta: None,
                    memory: None,
                }),
                Message::Get(get) if opens => Message::Offer(offer(get.transfer, 1000)),
                _ => continue,
            };
            let _ = peer.say(&answer).await;
        }
    };
    match against(plain_welcome(), goes_no_further, calls).await {
        Error::Stalled {
            awaited, waited, ..
        } => {
            assert!(waited >= Duration::from_secs(10), "{waited:?}");
            assert_eq!(awaited, expected);
        }
        error => panic!("{}", crate::text::chain(&error)),
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
        let copied = client.put_tree(sources, None, trees.clone());
        copied.finish().await.map(drop)
    };
    let get_tree = async |client: Client| {
        let sources = vec![crate::TreeSource::named(name("x"))];
        let copied = client.get_tree(sources, &tree, trees.clone());
        copied.finish().await.map(drop)
    };
    let list = async |client: Client| client.list(None).await.map(drop);
    let dial = async |client: Client| client.dial("localhost:22").await.map(drop);
    tokio::join!(
        stalls(put, false, Awaited::Opening),
        stalls(get, false, Awaited::Opening),
        stalls(put, true, Awaited::Receiving),
        stalls(get, true, Awaited::Sending),
        stalls(put_tree, false, Awaited::Opening),
        stalls(get_tree, false, Awaited::Opening),
        stalls(list, false, Awaited::Answer),
        stalls(dial, false, Awaited::Tunnel),
    );
}
