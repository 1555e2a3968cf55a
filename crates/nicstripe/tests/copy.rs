//! Tests of file and pipe copies between client and daemon in one process, with loopback addresses
//! as links.

mod changing;
mod compress;
mod delta;
mod remains;
mod sparse;

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use crate::harness::{Served, content, digest, interrupt_at, leftovers, name, within};
use nicstripe::{
    BitRate, Client, CopyOptions, Error, Event, FailCode, Report,
    trust::{Identity, Peers},
};

async fn put(client: &Client, source: &Path, target: &str) -> Result<Report, Error> {
    within(
        client
            .put(source, Some(name(target)), CopyOptions::default())
            .finish(),
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_every_awkward_size_arrive_whole_over_three_links_both_ways() {
    let served = Served::start().await;
    let client = within(served.connect(3)).await.unwrap();
    let here = tempfile::tempdir().unwrap();
    const CHUNK: usize = 256 * 1024;
    for size in [
        0,
        1,
        CHUNK - 1,
        CHUNK,
        CHUNK + 1,
        7 * CHUNK,
        40 * CHUNK + 4097,
    ] {
        let bytes = content(size);
        let source = here.path().join("source");
        std::fs::write(&source, &bytes).unwrap();
        let remote = format!("file-{size}");

        let report = put(&client, &source, &remote).await.unwrap();
        assert_eq!(report.digest, Some(digest(&bytes)), "{size} bytes");
        assert!(
            std::fs::read(served.path(&remote)).unwrap() == bytes,
            "{size} bytes"
        );

        let back = here.path().join(&remote);
        let report = within(
            client
                .get(name(&remote), &back, CopyOptions::default())
                .finish(),
        )
        .await
        .unwrap();
        assert_eq!(report.digest, Some(digest(&bytes)), "{size} bytes");
        assert!(std::fs::read(&back).unwrap() == bytes, "{size} bytes");
    }
    assert_eq!(leftovers(served.root.path()), Vec::<String>::new());
    within(client.close()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_end_with_the_transfer() {
    let served = Served::start().await;
    let client = within(served.connect(2)).await.unwrap();
    let here = tempfile::tempdir().unwrap();
    std::fs::write(here.path().join("source"), b"x").unwrap();
    let mut transfer = client.put(
        here.path().join("source"),
        Some(name("target")),
        CopyOptions::default(),
    );
    while within(transfer.next_event()).await.is_some() {}
    within(transfer.finish()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_link_carries_its_share() {
    let served = Served::start().await;
    let client = within(served.connect(4)).await.unwrap();
    let here = tempfile::tempdir().unwrap();
    let source = here.path().join("source");
    std::fs::write(&source, content(64 << 20)).unwrap();
    let report = put(&client, &source, "target").await.unwrap();
    assert_eq!(report.links.len(), 4);
    assert_eq!(
        report.links.iter().map(|link| link.bytes).sum::<u64>(),
        64 << 20
    );
    assert!(report.links.iter().all(|link| link.bytes > 0), "{report:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_existing_target_stays_as_it_is_unless_replacing_was_asked_for() {
    let served = Served::start().await;
    let client = within(served.connect(1)).await.unwrap();
    let here = tempfile::tempdir().unwrap();
    let source = here.path().join("source");
    std::fs::write(&source, b"new").unwrap();
    std::fs::write(served.path("target"), b"old").unwrap();

    let error = put(&client, &source, "target").await.unwrap_err();
    assert_eq!(error.fail_code(), Some(FailCode::Exists), "{error}");
    assert_eq!(std::fs::read(served.path("target")).unwrap(), b"old");
    assert_eq!(leftovers(served.root.path()), Vec::<String>::new());

    let replace = CopyOptions {
        replace: true,
        ..CopyOptions::default()
    };
    within(client.put(&source, Some(name("target")), replace).finish())
        .await
        .unwrap();
    assert_eq!(std::fs::read(served.path("target")).unwrap(), b"new");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_takes_the_file_under_its_own_name() {
    let served = Served::start().await;
    std::fs::create_dir(served.path("dir")).unwrap();
    let client = within(served.connect(1)).await.unwrap();
    let here = tempfile::tempdir().unwrap();
    let source = here.path().join("own-name");
    std::fs::write(&source, b"x").unwrap();
    put(&client, &source, "dir").await.unwrap();
    assert_eq!(std::fs::read(served.path("dir/own-name")).unwrap(), b"x");
    within(client.put(&source, None, CopyOptions::default()).finish())
        .await
        .unwrap();
    assert_eq!(std::fs::read(served.path("own-name")).unwrap(), b"x");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_file_is_an_error_at_either_end() {
    let served = Served::start().await;
    let client = within(served.connect(1)).await.unwrap();
    let here = tempfile::tempdir().unwrap();
    let error = put(&client, &here.path().join("missing"), "target")
        .await
        .unwrap_err();
    assert_eq!(error.fail_code(), Some(FailCode::NotFound), "{error}");
    let error = within(
        client
            .get(name("missing"), here.path(), CopyOptions::default())
            .finish(),
    )
    .await
    .unwrap_err();
    assert_eq!(error.fail_code(), Some(FailCode::NotFound), "{error}");
    assert_eq!(leftovers(here.path()), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_transfer_goes_on_where_it_was() {
    let served = Served::start().await;
    let here = tempfile::tempdir().unwrap();
    let source = here.path().join("source");
    let bytes = content(256 << 20);
    std::fs::write(&source, &bytes).unwrap();

    let client = within(served.connect(2)).await.unwrap();
    let mut transfer = client.put(&source, Some(name("target")), CopyOptions::default());
    let mut moved = 0;
    while let Some(event) = within(transfer.next_event()).await {
        if let Event::Progress(progress) = event {
            moved = progress.bytes;
            if moved > 32 << 20 {
                transfer.cancel();
                break;
            }
        }
    }
    match within(transfer.finish()).await {
        Err(Error::Cancelled { resumable: true }) => {}
        // A very fast machine leaves nothing to resume.
        other => return assert!(other.is_ok() && moved > 0, "{other:?}"),
    }
    assert!(!served.path("target").exists());
    drop(client);

    let client = within(served.connect(2)).await.unwrap();
    let report = put(&client, &source, "target").await.unwrap();
    assert!(report.resumed_bytes > 0, "{report:?}");
    assert_eq!(report.digest, Some(digest(&bytes)));
    assert!(std::fs::read(served.path("target")).unwrap() == bytes);
    assert_eq!(leftovers(served.root.path()), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_source_is_sent_anew_and_never_stitched() {
    let served = Served::start().await;
    let here = tempfile::tempdir().unwrap();
    let source = here.path().join("source");
    std::fs::write(&source, content(200 << 20)).unwrap();
    let client = within(served.connect(1)).await.unwrap();
    let transfer = client.put(&source, Some(name("target")), CopyOptions::default());
    tokio::time::sleep(Duration::from_millis(30)).await;
    transfer.cancel();
    let _ = within(transfer.finish()).await;

    let mut bytes = content(200 << 20);
    bytes[0] ^= 1;
    std::fs::write(&source, &bytes).unwrap();
    let _ = std::fs::remove_file(served.path("target"));
    let report = put(&client, &source, "target").await.unwrap();
    assert_eq!(
        (report.resumed_bytes, report.digest),
        (0, Some(digest(&bytes)))
    );
    assert!(std::fs::read(served.path("target")).unwrap() == bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_strangers_key_is_refused_by_both_sides() {
    let served = Served::start().await;
    let stranger = Identity::generate().unwrap();
    let connect = |identity: Identity, peers: Peers| {
        let builder = Client::builder()
            .identity(identity)
            .peers(peers)
            .port(served.port);
        async move { within(builder.connect("127.0.0.1")).await }
    };
    let error = connect(stranger, served.trusted.clone()).await.unwrap_err();
    assert!(matches!(error, Error::Untrusted { .. }), "{error:?}");
    let error = connect(served.client.clone(), Peers::default())
        .await
        .unwrap_err();
    assert!(matches!(error, Error::UntrustedPeer { .. }), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_and_silence_get_no_byte_and_disturb_nobody() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let served = Served::start().await;
    let address: SocketAddr = ([127, 0, 0, 1], served.port).into();
    let mut silent = tokio::net::TcpStream::connect(address).await.unwrap();
    let mut garbage = tokio::net::TcpStream::connect(address).await.unwrap();
    garbage.write_all(&content(4096)).await.unwrap();
    let mut answer = Vec::new();
    // An orderly close or a reset, without data.
    let _ = within(garbage.read_to_end(&mut answer)).await;
    assert_eq!(answer, b"");

    let client = within(served.connect(2)).await.unwrap();
    let here = tempfile::tempdir().unwrap();
    std::fs::write(here.path().join("source"), b"x").unwrap();
    put(&client, &here.path().join("source"), "target")
        .await
        .unwrap();

    let _ = within(silent.read_to_end(&mut answer)).await;
    assert_eq!(answer, b"");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_named_link_that_cannot_be_used_is_an_error() {
    let served = Served::start().await;
    let builder = |link: &str| {
        let links = vec![link.parse().unwrap()];
        Client::builder()
            .identity(served.client.clone())
            .peers(served.trusted.clone())
            .port(served.port)
            .links(links)
    };
    for link in ["no-such0", "10.255.255.1", "lo=127.0.0.1@0"] {
        let Ok(request) = link.parse::<nicstripe::LinkRequest>() else {
            continue;
        };
        let error = within(builder(&request.to_string()).connect("127.0.0.1"))
            .await
            .unwrap_err();
        assert!(matches!(error, Error::Link { .. }), "{link}: {error:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn transfers_that_begin_at_the_same_time_all_end() {
    let served = Served::start().await;
    let client = within(served.connect(2)).await.unwrap();
    let here = tempfile::tempdir().unwrap();
    let source = here.path().join("source");
    std::fs::write(&source, content(1000)).unwrap();
    for (round, count) in [8; 20].into_iter().chain([300]).enumerate() {
        let mut puts = tokio::task::JoinSet::new();
        for index in 0..count {
            let (client, source) = (client.clone(), source.clone());
            puts.spawn(
                async move { put(&client, &source, &format!("file-{round}-{index}")).await },
            );
        }
        for result in within(puts.join_all()).await {
            assert_eq!(result.unwrap().digest, Some(digest(&content(1000))));
        }
    }
    within(client.close()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_transfer_of_a_session_has_its_own_numbers_events_and_end() {
    let served = Served::start().await;
    // 1 MB/s for all copies together.
    let client = within(served.connect_at(2, Some(BitRate(8_000_000))))
        .await
        .unwrap();
    let here = tempfile::tempdir().unwrap();
    let [small, large] = ["small", "large"].map(|file| here.path().join(file));
    std::fs::write(&small, content(600_000)).unwrap();
    std::fs::write(&large, content(40_000_000)).unwrap();

    let mut long = client.put(&large, Some(name("long")), CopyOptions::default());
    while !matches!(within(long.next_event()).await.unwrap(), Event::Progress(progress) if progress.bytes > 0)
    {
    }
    let refused = within(
        client
            .get(
                name("nothing"),
                here.path().join("nothing"),
                CopyOptions::default(),
            )
            .finish(),
    )
    .await
    .unwrap_err();
    assert_eq!(refused.fail_code(), Some(FailCode::NotFound), "{refused}");
    let mut short = client.put(&small, Some(name("short")), CopyOptions::default());
    let mut sizes = Vec::new();
    while let Some(event) = within(short.next_event()).await {
        match event {
            Event::Started { size, .. } => sizes.push(size),
            Event::Progress(progress) => sizes.push(progress.size),
            _ => {}
        }
    }
    assert!(
        sizes.len() > 1 && sizes.iter().all(|size| *size == 600_000),
        "{sizes:?}"
    );
    let report = within(short.finish()).await.unwrap();
    assert_eq!(
        (
            report.size,
            report.links.iter().map(|link| link.bytes).sum::<u64>()
        ),
        (600_000, 600_000)
    );

    // An interrupted transfer does not affect the others, and can be resumed.
    let other = client.put(&large, Some(name("other")), CopyOptions::default());
    long.cancel();
    let error = within(long.finish()).await.unwrap_err();
    assert!(
        matches!(error, Error::Cancelled { resumable: true }),
        "{error}"
    );
    assert!(!served.path("long").exists() && !leftovers(served.root.path()).is_empty());
    assert_eq!(
        within(put(&client, &small, "third")).await.unwrap().size,
        600_000
    );
    other.cancel();
    within(other.finish()).await.unwrap_err();
    within(client.close()).await;

    let client = within(served.connect(2)).await.unwrap();
    let report = put(&client, &large, "long").await.unwrap();
    assert!(
        report.resumed_bytes > 0 && report.digest == Some(digest(&content(40_000_000))),
        "{report:?}"
    );
    within(client.close()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn transfers_on_clones_of_one_client_follow_each_other() {
    let served = Arc::new(Served::start().await);
    let client = within(served.connect(2)).await.unwrap();
    let here = tempfile::tempdir().unwrap();
    std::fs::write(here.path().join("source"), content(3 << 20)).unwrap();
    for round in 0..5 {
        put(
            &client.clone(),
            &here.path().join("source"),
            &format!("target-{round}"),
        )
        .await
        .unwrap();
    }
}

/// Writer that records its bytes. Sleeps before each write, and fails at the first write beyond
/// `breaks_at` bytes.
#[derive(Clone, Default)]
struct Sink {
    bytes: Arc<std::sync::Mutex<Vec<u8>>>,
    pause: Duration,
    breaks_at: Option<usize>,
}

impl std::io::Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        std::thread::sleep(self.pause);
        let mut written = self.bytes.lock().unwrap();
        if self
            .breaks_at
            .is_some_and(|most| written.len() + bytes.len() > most)
        {
            return Err(std::io::ErrorKind::BrokenPipe.into());
        }
        written.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Reader that returns `self.0` bytes, at most 1,000 per call, and then fails.
struct Failing(usize);

impl std::io::Read for Failing {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        let len = self.0.min(bytes.len()).min(1000);
        self.0 -= len;
        if len == 0 {
            Err(std::io::Error::other("the reader failed"))
        } else {
            Ok(len)
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pipes_of_every_awkward_length_arrive_whole_over_three_links_both_ways() {
    let served = Served::start().await;
    let client = within(served.connect(3)).await.unwrap();
    const CHUNK: usize = 256 * 1024;
    for size in [
        0,
        1,
        CHUNK - 1,
        CHUNK,
        CHUNK + 1,
        2 * CHUNK,
        200 * CHUNK + 4097,
    ] {
        let bytes = content(size);
        let remote = format!("piped-{size}");
        let reader = std::io::Cursor::new(bytes.clone());
        let report = within(
            client
                .put_pipe(reader, name(&remote), CopyOptions::default())
                .finish(),
        )
        .await
        .unwrap();
        assert_eq!(
            (report.digest, report.size),
            (Some(digest(&bytes)), size as u64),
            "{size} bytes"
        );
        assert!(
            std::fs::read(served.path(&remote)).unwrap() == bytes,
            "{size} bytes"
        );

        let sink = Sink::default();
        let report = within(
            client
                .get_pipe(name(&remote), sink.clone(), CopyOptions::default())
                .finish(),
        )
        .await
        .unwrap();
        assert_eq!(
            (report.digest, report.size),
            (Some(digest(&bytes)), size as u64),
            "{size} bytes"
        );
        assert!(*sink.bytes.lock().unwrap() == bytes, "{size} bytes");
    }
    assert_eq!(leftovers(served.root.path()), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_fails_leaves_nothing_and_the_session_goes_on() {
    let served = Served::start().await;
    let client = within(served.connect(1)).await.unwrap();
    for size in [0, 1000, 3_000_000] {
        let error = within(
            client
                .put_pipe(Failing(size), name("torn"), CopyOptions::default())
                .finish(),
        )
        .await
        .unwrap_err();
        assert!(
            nicstripe::chain(&error).contains("the reader failed") && !error.is_resumable(),
            "{error:?}"
        );
    }
    let report = within(
        client
            .put_pipe(&b"whole"[..], name("whole"), CopyOptions::default())
            .finish(),
    )
    .await
    .unwrap();
    assert_eq!(report.size, 5);
    assert_eq!(std::fs::read_dir(served.root.path()).unwrap().count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_that_breaks_ends_the_transfer_and_not_the_session() {
    let served = Served::start().await;
    let client = within(served.connect(2)).await.unwrap();
    let bytes = content(20 << 20);
    std::fs::write(served.path("file"), &bytes).unwrap();
    let sink = Sink {
        breaks_at: Some(1 << 20),
        ..Sink::default()
    };
    let error = within(
        client
            .get_pipe(name("file"), sink, CopyOptions::default())
            .finish(),
    )
    .await
    .unwrap_err();
    assert!(nicstripe::chain(&error).contains("roken pipe"), "{error:?}");
    let sink = Sink::default();
    within(
        client
            .get_pipe(name("file"), sink.clone(), CopyOptions::default())
            .finish(),
    )
    .await
    .unwrap();
    assert!(*sink.bytes.lock().unwrap() == bytes);
}

/// Reader and writer of a program with a fault: 1 MB is moved before that.
struct Faulty {
    moved: usize,
    /// True to return more bytes than there was room for, instead of a panic.
    says_more: bool,
}

impl Faulty {
    fn at(&mut self, len: usize) -> usize {
        self.moved += len;
        match self.moved < 1_000_000 {
            true => len,
            false if self.says_more => len + 1,
            false => panic!("a fault, for a test"),
        }
    }
}

impl std::io::Read for Faulty {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        Ok(self.at(bytes.len()))
    }
}

impl std::io::Write for Faulty {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        Ok(self.at(bytes.len()))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_or_writer_with_a_fault_fails_its_transfer_alone() {
    use tokio::io::AsyncWriteExt;

    let served = Served::start().await;
    let client = within(served.connect(1)).await.unwrap();
    std::fs::write(served.path("file"), content(3_000_000)).unwrap();
    let mut innocent = client.create(&name("innocent"), CopyOptions::default());
    innocent.write_all(&[7; 600_000]).await.unwrap();
    let faulty = |says_more| Faulty {
        moved: 0,
        says_more,
    };
    for (transfer, said) in [
        (
            client.put_pipe(faulty(false), name("torn"), CopyOptions::default()),
            "it panicked",
        ),
        (
            client.put_pipe(faulty(true), name("torn"), CopyOptions::default()),
            "reader returned",
        ),
        (
            client.get_pipe(name("file"), faulty(false), CopyOptions::default()),
            "it panicked",
        ),
    ] {
        let error = within(transfer.finish()).await.unwrap_err();
        let text = nicstripe::chain(&error);
        assert!(text.contains(said) && !error.is_retryable(), "{error:?}");
    }
    within(innocent.finish()).await.unwrap();
    assert_eq!(
        std::fs::read(served.path("innocent")).unwrap(),
        [7; 600_000]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_writer_holds_back_the_sender_and_no_link() {
    let served = Served::start().await;
    let client = within(served.connect(2)).await.unwrap();
    let bytes = content(40 << 20);
    std::fs::write(served.path("file"), &bytes).unwrap();
    let sink = Sink {
        pause: Duration::from_millis(20),
        ..Sink::default()
    };
    let report = within(
        client
            .get_pipe(name("file"), sink.clone(), CopyOptions::default())
            .finish(),
    )
    .await
    .unwrap();
    assert!(*sink.bytes.lock().unwrap() == bytes);
    assert!(report.elapsed >= Duration::from_millis(160 * 20));
    assert_eq!(report.failovers, 0);
}

/// Endless reader of at most 2 MB/s.
struct Endless;

impl std::io::Read for Endless {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        std::thread::sleep(Duration::from_millis(5));
        let len = bytes.len().min(10_000);
        bytes[..len].fill(7);
        Ok(len)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipe_whose_daemon_goes_away_ends_and_does_not_promise_to_go_on() {
    let served = Served::start().await;
    let client = within(served.connect(1)).await.unwrap();
    let transfer = client.put_pipe(Endless, name("endless"), CopyOptions::default());
    tokio::time::sleep(Duration::from_millis(300)).await;
    served.shutdown.cancel();
    let error = within(transfer.finish()).await.unwrap_err();
    assert!(
        matches!(error, Error::Pipe(_)) && !error.is_resumable(),
        "{error:?}"
    );
    assert!(!served.path("endless").exists());
    // The daemon still cleans up after it has announced its end.
    within(async {
        while !leftovers(served.root.path()).is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}
