//! Tests of file and pipe copies between client and daemon in one process, with loopback addresses
//! as links.

mod changing;
mod compress;
mod delta;
mod remains;
mod sparse;

use std::{path::Path, sync::Arc, time::Duration};

use crate::harness::{
    AWKWARD, CHUNK, PLAIN, REPLACE, Served, code, content, digest, done, finished, interrupt_at,
    leftovers, name, source_of, within,
};
use nicstripe::{
    BitRate, Client, CopyOptions, Error, Event, FailCode, Report,
    trust::{Identity, Peers},
};
use tokio::io::AsyncWriteExt;

async fn put(client: &Client, source: &Path, target: &str) -> Result<Report, Error> {
    done(client.put(source, Some(name(target)), PLAIN)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_every_awkward_size_arrive_whole_over_three_links_both_ways() {
    for served in Served::of_both(&[], |builder| builder).await {
        let client = served.client(3).await;
        for size in AWKWARD {
            let bytes = content(size);
            let (here, source) = source_of(&bytes);
            let verify = CopyOptions {
                verify: true,
                ..PLAIN
            };
            let put = finished(client.put(&source, Some(name("file")), verify)).await;
            assert_eq!(put.digest, Some(digest(&bytes)), "{size} bytes");
            assert!(served.bytes("file").unwrap() == bytes, "{size} bytes");
            let back = here.path().join("back");
            let got = done(client.get(name("file"), &back, PLAIN)).await.unwrap();
            assert_eq!(got.digest, Some(digest(&bytes)), "{size} bytes");
            assert!(std::fs::read(&back).unwrap() == bytes, "{size} bytes");
            within(client.remove(&name("file"))).await.unwrap();
        }
        assert!(served.is_tidy());
        within(client.close()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_link_carries_its_share() {
    let served = Served::start().await;
    let client = served.client(4).await;
    let (_here, source) = source_of(content(64 << 20));
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
    let (_here, source) = source_of(b"new");
    let delta = CopyOptions {
        delta: true,
        ..PLAIN
    };
    for served in Served::of_both(&["target"], |builder| builder).await {
        let client = served.client(1).await;
        let error = put(&client, &source, "target").await.unwrap_err();
        assert_eq!(error.fail_code(), Some(FailCode::Exists), "{error}");
        assert_eq!(served.bytes("target").unwrap(), b"target");
        assert!(served.is_tidy());
        for options in [REPLACE, delta] {
            served.has("target", b"old");
            finished(client.put(&source, Some(name("target")), options)).await;
            assert_eq!(served.bytes("target").unwrap(), b"new");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_takes_the_file_under_its_own_name() {
    let (_here, source) = source_of(b"x");
    for served in Served::of_both(&["a/b/other"], |builder| builder).await {
        let client = served.client(1).await;
        put(&client, &source, "a/b").await.unwrap();
        done(client.put(&source, None, PLAIN)).await.unwrap();
        for file in ["a/b/source", "source"] {
            assert_eq!(served.bytes(file).unwrap(), b"x", "{file}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_file_is_an_error_at_either_end() {
    let (here, source) = source_of(b"x");
    for served in Served::of_both(&["dir/file"], |builder| builder).await {
        let client = served.client(1).await;
        let get = |file| client.get(name(file), here.path(), PLAIN);
        let put = |source: &Path, target| client.put(source, Some(name(target)), PLAIN);
        for (transfer, expected) in [
            (
                put(&here.path().join("missing"), "target"),
                FailCode::NotFound,
            ),
            (put(&source, "missing/target"), FailCode::NotFound),
            (get("missing"), FailCode::NotFound),
            (get("dir"), FailCode::NotAFile),
        ] {
            assert_eq!(code(done(transfer).await), Some(expected));
        }
        assert!(served.is_tidy() && leftovers(here.path()).is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_transfer_has_no_name_and_goes_on_where_it_was() {
    let bytes = content(128 << 20);
    let (_here, source) = source_of(&bytes);
    for served in Served::of_both(&[], |builder| builder).await {
        let client = served.client_at(2, BitRate(800_000_000)).await;
        let transfer = client.put(&source, Some(name("target")), PLAIN);
        assert!(interrupt_at(transfer, 24 << 20).await);
        assert!(served.bytes("target").is_none() && !served.is_tidy());
        assert_eq!(within(client.list(None)).await.unwrap(), []);
        drop(client);

        let client = served.client(2).await;
        let report = put(&client, &source, "target").await.unwrap();
        assert!(report.resumed_bytes > 0, "{report:?}");
        assert_eq!(report.digest, Some(digest(&bytes)));
        assert!(served.bytes("target").unwrap() == bytes && served.is_tidy());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_source_is_sent_anew_and_never_stitched() {
    for served in Served::of_both(&[], |builder| builder).await {
        let mut bytes = content(64 << 20);
        let (_here, source) = source_of(&bytes);
        let client = served.client_at(1, BitRate(800_000_000)).await;
        let transfer = client.put(&source, Some(name("target")), PLAIN);
        assert!(interrupt_at(transfer, 8 << 20).await);
        bytes[0] ^= 1;
        std::fs::write(&source, &bytes).unwrap();
        let report = put(&client, &source, "target").await.unwrap();
        assert_eq!(
            (report.resumed_bytes, report.digest),
            (0, Some(digest(&bytes)))
        );
        assert!(served.bytes("target").unwrap() == bytes);
    }
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
    let (_here, source) = source_of(content(1000));
    for served in Served::of_both(&[], |builder| builder).await {
        let client = served.client(2).await;
        for (round, count) in [8; 20].into_iter().chain([300]).enumerate() {
            let mut puts = tokio::task::JoinSet::new();
            for index in 0..count {
                let (client, source) = (client.clone(), source.clone());
                let target = format!("file-{round}-{index}");
                puts.spawn(async move { put(&client, &source, &target).await });
            }
            for result in within(puts.join_all()).await {
                assert_eq!(result.unwrap().digest, Some(digest(&content(1000))));
            }
        }
        assert_eq!(within(client.list(None)).await.unwrap().len(), 460);
        within(client.close()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_transfer_of_a_session_has_its_own_numbers_events_and_end() {
    let served = Served::start().await;
    // 1 MB/s for all copies together.
    let client = served.client_at(2, BitRate(8_000_000)).await;
    let here = tempfile::tempdir().unwrap();
    let [small, large] = ["small", "large"].map(|file| here.path().join(file));
    std::fs::write(&small, content(600_000)).unwrap();
    std::fs::write(&large, content(40_000_000)).unwrap();

    let mut long = client.put(&large, Some(name("long")), PLAIN);
    while !matches!(within(long.next_event()).await.unwrap(), Event::Progress(progress) if progress.bytes > 0)
    {
    }
    let refused = done(client.get(name("nothing"), here.path().join("nothing"), PLAIN))
        .await
        .unwrap_err();
    assert_eq!(refused.fail_code(), Some(FailCode::NotFound), "{refused}");
    let mut short = client.put(&small, Some(name("short")), PLAIN);
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
    let other = client.put(&large, Some(name("other")), PLAIN);
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

    let client = served.client(2).await;
    let report = put(&client, &large, "long").await.unwrap();
    assert!(
        report.resumed_bytes > 0 && report.digest == Some(digest(&content(40_000_000))),
        "{report:?}"
    );
    within(client.close()).await;
}

/// Writer that records its bytes. Fails at the first write beyond `breaks_at` bytes.
#[derive(Clone, Default)]
struct Sink {
    bytes: Arc<std::sync::Mutex<Vec<u8>>>,
    breaks_at: Option<usize>,
}

impl std::io::Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
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
    for served in Served::of_both(&[], |builder| builder).await {
        let client = served.client(3).await;
        for size in AWKWARD.into_iter().chain([200 * CHUNK + 4097]) {
            let (bytes, file) = (content(size), name(&format!("piped-{size}")));
            let reader = std::io::Cursor::new(bytes.clone());
            let put = finished(client.put_pipe(reader, file.clone(), PLAIN)).await;
            assert!(
                served.bytes(&file.to_string()).unwrap() == bytes,
                "{size} bytes"
            );
            let sink = Sink::default();
            let got = finished(client.get_pipe(file, sink.clone(), PLAIN)).await;
            for report in [put, got] {
                let found = (report.digest, report.size);
                assert_eq!(found, (Some(digest(&bytes)), size as u64), "{size} bytes");
            }
            assert!(*sink.bytes.lock().unwrap() == bytes, "{size} bytes");
        }
        assert!(served.is_tidy());
    }
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
async fn a_reader_or_writer_that_fails_ends_its_transfer_alone_and_leaves_nothing() {
    let served = Served::start().await;
    let client = served.client(2).await;
    std::fs::write(served.path("file"), content(20 << 20)).unwrap();
    let mut innocent = client.create(&name("innocent"), PLAIN);
    innocent.write_all(&[7; 600_000]).await.unwrap();
    let faulty = |says_more| Faulty {
        moved: 0,
        says_more,
    };
    let torn = Sink {
        breaks_at: Some(1 << 20),
        ..Sink::default()
    };
    let put = |size| client.put_pipe(Failing(size), name("torn"), PLAIN);
    let put_faulty = |says_more| client.put_pipe(faulty(says_more), name("torn"), PLAIN);
    for (transfer, said) in [
        (put(0), "the reader failed"),
        (put(1000), "the reader failed"),
        (put(3_000_000), "the reader failed"),
        (put_faulty(false), "it panicked"),
        (put_faulty(true), "reader returned"),
        (client.get_pipe(name("file"), torn, PLAIN), "roken pipe"),
        (
            client.get_pipe(name("file"), faulty(false), PLAIN),
            "it panicked",
        ),
    ] {
        let error = done(transfer).await.unwrap_err();
        let text = nicstripe::chain(&error);
        assert!(text.contains(said), "{error:?}");
        assert!(!error.is_resumable(), "{error:?}");
        // A fault of the program does not go by itself.
        let is_fault = !said.ends_with("failed") && said != "roken pipe";
        assert!(!is_fault || !error.is_retryable(), "{error:?}");
    }
    within(innocent.finish()).await.unwrap();
    assert_eq!(served.bytes("innocent").unwrap(), [7; 600_000]);
    let put = client.put_pipe(&b"whole"[..], name("whole"), PLAIN);
    assert_eq!(done(put).await.unwrap().size, 5);
    served.tidied().await;
    assert_eq!(std::fs::read_dir(served.root.path()).unwrap().count(), 3);
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
    let client = served.client(1).await;
    let transfer = client.put_pipe(Endless, name("endless"), PLAIN);
    tokio::time::sleep(Duration::from_millis(300)).await;
    served.shutdown.cancel();
    let error = done(transfer).await.unwrap_err();
    assert!(
        matches!(error, Error::Pipe(_)) && !error.is_resumable(),
        "{error:?}"
    );
    assert!(!served.path("endless").exists());
    // The daemon still cleans up after it has announced its end.
    served.tidied().await;
}
