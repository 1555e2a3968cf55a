//! Tests of the blocking client, for programs without async code.

use std::{
    io::{ErrorKind, Read as _, Seek as _, SeekFrom, Write as _},
    path::Path,
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use crate::harness::{PLAIN, Served, content, digest, name, source_of};
use nicstripe::{
    BenchPlan, BitRate, CancellationToken, Client, Error, Event, FailCode, ObjectAttributes,
    RenameOptions, TreeOptions, TreeSource,
    blocking::{self, NoEvent},
};
use tokio::runtime::Runtime;

/// Running daemon and the tokio runtime that drives it.
struct Serving {
    runtime: Runtime,
    served: Option<Served>,
}

impl Serving {
    fn start() -> Self {
        let runtime = Runtime::new().unwrap();
        let served = runtime.block_on(Served::start());
        Self {
            runtime,
            served: Some(served),
        }
    }

    fn served(&self) -> &Served {
        self.served.as_ref().unwrap()
    }

    fn connect(&self, bandwidth: Option<BitRate>) -> blocking::Client {
        let builder = self.served().builder(2).bandwidth(bandwidth);
        blocking::Client::connect(builder, "127.0.0.1").unwrap()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _here = self.runtime.enter();
        self.served = None;
    }
}

#[test]
fn threads_without_async_code_put_and_get_files_trees_and_pipes() {
    let serving = Serving::start();
    let client = serving.connect(None);
    let bytes = content(3 << 20);
    let (here, source) = source_of(&bytes);

    let report = client
        .put(&source, Some(name("target")), PLAIN)
        .finish()
        .unwrap();
    assert_eq!(
        (report.digest, report.links.len(), report.routes_installed),
        (Some(digest(&bytes)), 2, 0)
    );
    let back = here.path().join("back");
    client.get(name("target"), &back, PLAIN).finish().unwrap();
    assert!(std::fs::read(&back).unwrap() == bytes);
    std::fs::remove_file(back).unwrap();

    let reader = std::io::Cursor::new(bytes.clone());
    client
        .put_pipe(reader, name("pipe"), PLAIN)
        .finish()
        .unwrap();
    let out = tempfile::NamedTempFile::new().unwrap();
    let writer = out.reopen().unwrap();
    client
        .get_pipe(name("pipe"), writer, PLAIN)
        .finish()
        .unwrap();
    assert!(std::fs::read(out.path()).unwrap() == bytes);

    let options = TreeOptions {
        recursive: true,
        as_name: true,
        ..TreeOptions::default()
    };
    let put = client.put_tree([here.path()], Some(name("tree")), options.clone());
    put.finish().unwrap();
    let there = tempfile::tempdir().unwrap();
    let sources = [TreeSource::content_of(Some(name("tree")))];
    client
        .get_tree(sources, there.path(), options)
        .finish()
        .unwrap();
    assert!(std::fs::read(there.path().join("source")).unwrap() == bytes);

    assert_eq!(client.links().unwrap().links.len(), 2);
    assert_eq!(client.peer().unwrap().name.as_deref(), Some("daemon"));
    client.close();
}

#[test]
fn events_come_until_the_end_and_a_cancelled_transfer_goes_on_later() {
    let serving = Serving::start();
    let (_here, source) = source_of(content(64 << 20));
    let client = serving.connect(Some(BitRate(400_000_000)));
    let mut transfer = client.put(&source, Some(name("target")), PLAIN);
    let stop = transfer.cancel_token();
    loop {
        match transfer.next_event_within(Duration::from_secs(60)) {
            Ok(Some(Event::Progress(progress))) if progress.bytes > 8 << 20 => break stop.cancel(),
            Ok(Some(_)) => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(matches!(
        transfer.finish(),
        Err(Error::Cancelled { resumable: true })
    ));
    let mut transfer = client.put(&source, Some(name("target")), PLAIN);
    while transfer.next_event().is_some() {}
    assert!(transfer.finish().unwrap().resumed_bytes > 0);
}

#[test]
fn an_event_that_does_not_come_is_waited_for_no_longer_than_was_said() {
    let serving = Serving::start();
    let client = serving.connect(None);
    let (reader, _writer) = std::io::pipe().unwrap();
    let mut transfer = client.put_pipe(reader, name("target"), PLAIN);
    // Progress events come at most ten times a second.
    while !matches!(
        transfer.next_event_within(Duration::from_millis(1)),
        Err(NoEvent)
    ) {}
    drop(transfer);
}

#[test]
fn errors_are_those_of_the_async_client() {
    let serving = Serving::start();
    let client = serving.connect(None);
    let error = client
        .get(name("missing"), Path::new("/nonexistent/x"), PLAIN)
        .finish()
        .unwrap_err();
    assert_eq!(error.fail_code(), Some(FailCode::NotFound), "{error}");
    let nobody = Client::builder().port(1).patience(Duration::ZERO);
    assert!(blocking::Client::connect(nobody, "127.0.0.1").is_err());
}

#[test]
fn a_client_may_be_dropped_in_async_code_and_in_the_middle_of_a_transfer() {
    let serving = Serving::start();
    let (_here, source) = source_of(content(64 << 20));
    let client = serving.connect(Some(BitRate(100_000_000)));
    let transfer = client.put(&source, Some(name("target")), PLAIN);
    serving.runtime.block_on(async move {
        drop(client);
        drop(transfer);
    });
    assert!(!serving.served().path("target").exists());
}

#[test]
fn files_are_written_read_and_listed_piece_by_piece() {
    let serving = Serving::start();
    let client = serving.connect(None);
    let (file, bytes) = (name("file"), content(3_000_001));
    let mut writer = client.create(&file, PLAIN);
    for part in bytes.chunks(70_001) {
        writer.write_all(part).unwrap();
    }
    writer.flush().unwrap();
    assert_eq!(writer.finish().unwrap().size, bytes.len() as u64);

    let mut reader = client.open(&file).unwrap();
    assert_eq!(reader.len(), bytes.len() as u64);
    let mut read = Vec::new();
    reader.read_to_end(&mut read).unwrap();
    assert!(read == bytes);
    assert_eq!(reader.seek(SeekFrom::End(-7)).unwrap(), 2_999_994);
    let mut last = [0; 7];
    reader.read_exact(&mut last).unwrap();
    assert_eq!(
        (last[..] == bytes[2_999_994..], reader.position()),
        (true, reader.len())
    );
    let mut block = vec![0; 100_000];
    assert_eq!(
        client.read_into(&file, 2_950_001, &mut block).unwrap(),
        50_000
    );
    assert!(block[..50_000] == bytes[2_950_001..]);
    assert_eq!(client.read_into(&file, 1_000, &mut block).unwrap(), 100_000);
    assert!(block == bytes[1_000..101_000]);
    let past = client.read_into(&file, 3_000_002, &mut block).unwrap_err();
    assert_eq!(past.fail_code(), Some(FailCode::Range));

    let listed: Result<Vec<_>, _> = client.entries(None).collect();
    assert_eq!(listed.unwrap()[0].name, file);
    assert_eq!(
        client.entries(Some(name("none"))).count(),
        1,
        "one error, and the end"
    );
    let reader = client.open(&name("none")).unwrap_err();
    assert!(reader.is_not_found());
    assert!(client.facts().unwrap().host.kernel.is_some());
    let bench = client.bench(BenchPlan::default());
    bench.stop();
    let _ = bench.finish();
}

#[test]
fn a_call_ends_after_its_time_or_when_it_is_interrupted() {
    let mut serving = Serving::start();
    let client = serving.connect(None);
    let served = serving.served.as_mut().unwrap();
    serving.runtime.block_on(served.crash());
    let begun = Instant::now();
    let hurried = client.within(Duration::from_millis(300));
    let late = hurried.stat(&name("file")).unwrap_err();
    assert!(
        matches!(late, Error::TimedOut { .. }) && late.is_retryable(),
        "{late:?}"
    );
    let mut writer = hurried.create(&name("file"), PLAIN);
    let late = loop {
        if let Err(error) = writer.write(&[0; 1 << 20]) {
            break error;
        }
    };
    assert_eq!(late.kind(), ErrorKind::TimedOut, "{late:?}");
    let interrupt = CancellationToken::new();
    let interrupted = client.interrupted_by(interrupt.clone());
    let waiting = std::thread::spawn(move || interrupted.list(None));
    std::thread::sleep(Duration::from_millis(100));
    interrupt.cancel();
    let ended = waiting.join().unwrap().unwrap_err();
    assert!(
        matches!(ended, Error::Cancelled { resumable: false }),
        "{ended:?}"
    );
    // On the thread that waits, which alone may ask its interpreter.
    let (here, asked) = (std::thread::current().id(), AtomicU32::new(0));
    let checked = client.until(move || {
        assert_eq!(std::thread::current().id(), here);
        asked.fetch_add(1, Ordering::Relaxed) >= 3
    });
    let ended = checked.list(None).unwrap_err();
    assert!(matches!(ended, Error::Cancelled { .. }), "{ended:?}");
    assert!(begun.elapsed() < Duration::from_secs(20));
    let builder = served.builder(1);
    let silent = std::net::TcpListener::bind("127.0.1.1:0").unwrap();
    let to_silent = builder.clone().port(silent.local_addr().unwrap().port());
    let late = blocking::Client::connect_within(to_silent, "127.0.0.1", Duration::from_millis(100));
    let late = late.unwrap_err();
    assert!(matches!(late, Error::TimedOut { .. }), "{late:?}");
    let ended = blocking::Client::connect_until(builder, "127.0.0.1", || true).unwrap_err();
    assert!(matches!(ended, Error::Cancelled { .. }), "{ended:?}");
    // The client itself waits on.
    serving.runtime.block_on(served.start_again());
    assert!(client.list(None).unwrap().is_empty());
}

#[test]
fn objects_have_attributes_hashes_and_parts_here_too() {
    let serving = Serving::start();
    let client = serving.connect(None);
    let (one, two, whole) = (name("one"), name("two"), name("whole"));
    let mut attributes = ObjectAttributes::new();
    attributes.set("content-type", "text/html").unwrap();
    client.write_with(&one, "<p>", PLAIN, &attributes).unwrap();
    let mut writer = client.create_with(&two, PLAIN, &attributes);
    writer.write_all(b"hello").unwrap();
    writer.finish().unwrap();
    assert_eq!(client.head(&two).unwrap().attributes, attributes);
    let parts = [one, two];
    client
        .concat(&parts, &whole, RenameOptions::default())
        .unwrap();
    let digest = client.verify(&whole).unwrap().digest;
    assert_eq!(
        digest.unwrap().to_string(),
        blake3::hash(b"<p>hello").to_string()
    );
    let listed = client.entries(None).after(&parts[0]).with_digests();
    let listed: Vec<_> = listed
        .map(|entry| entry.unwrap().stat.digest.is_some())
        .collect();
    // Of a file that the daemon put together it knows none.
    assert_eq!(listed, [true, false]);
    assert!(client.walk(None).at_most(2).any(|entry| entry.is_err()));
}
