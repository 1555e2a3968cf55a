//! Tests of the blocking client, for programs without async code.

use std::{path::Path, sync::Arc, time::Duration};

use crate::harness::{Served, content, digest, name};
use nicstripe::{
    BitRate, Client, CopyOptions, Error, Event, FailCode, TreeOptions,
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
        let served = self.served();
        let links = (1..=2)
            .map(|link| format!("127.0.0.{link}=127.0.1.{link}").parse().unwrap())
            .collect();
        let builder = Client::builder()
            .identity(served.client.clone())
            .peers(served.trusted.clone())
            .port(served.port);
        blocking::Client::connect(builder.links(links).bandwidth(bandwidth), "127.0.0.1").unwrap()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _here = self.runtime.enter();
        self.served = None;
    }
}

fn file(dir: &Path, bytes: &[u8]) -> std::path::PathBuf {
    let path = dir.join("source");
    std::fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn threads_without_async_code_put_and_get_files_trees_and_pipes() {
    let serving = Serving::start();
    let client = serving.connect(None);
    let here = tempfile::tempdir().unwrap();
    let bytes = content(3 << 20);
    let source = file(here.path(), &bytes);

    let report = client
        .put(&source, Some(name("target")), CopyOptions::default())
        .finish()
        .unwrap();
    assert_eq!(
        (report.digest, report.links.len(), report.routes_installed),
        (Some(digest(&bytes)), 2, 0)
    );
    client
        .get(
            name("target"),
            &here.path().join("back"),
            CopyOptions::default(),
        )
        .finish()
        .unwrap();
    assert!(std::fs::read(here.path().join("back")).unwrap() == bytes);

    client
        .put_pipe(
            std::io::Cursor::new(bytes.clone()),
            name("pipe"),
            CopyOptions::default(),
        )
        .finish()
        .unwrap();
    let out = tempfile::NamedTempFile::new().unwrap();
    client
        .get_pipe(name("pipe"), out.reopen().unwrap(), CopyOptions::default())
        .finish()
        .unwrap();
    assert!(std::fs::read(out.path()).unwrap() == bytes);

    let options = TreeOptions {
        recursive: true,
        ..TreeOptions::default()
    };
    client
        .put_tree(
            vec![here.path().to_owned()],
            Some(name("tree")),
            true,
            options.clone(),
        )
        .finish()
        .unwrap();
    let there = tempfile::tempdir().unwrap();
    client
        .get_tree(
            vec![(Some(name("tree")), true)],
            there.path(),
            false,
            options,
        )
        .finish()
        .unwrap();
    assert!(std::fs::read(there.path().join("source")).unwrap() == bytes);

    assert_eq!(client.links().unwrap().links.len(), 2);
    assert_eq!(client.peer().unwrap().1.as_deref(), Some("daemon"));
    client.close();
}

#[test]
fn many_threads_share_one_client() {
    let serving = Serving::start();
    let client = Arc::new(serving.connect(None));
    let here = tempfile::tempdir().unwrap();
    let bytes = content(600_000);
    let source = file(here.path(), &bytes);
    std::thread::scope(|threads| {
        for number in 0..16 {
            let (client, source) = (client.clone(), &source);
            threads.spawn(move || {
                client
                    .put(
                        source,
                        Some(name(&format!("file-{number}"))),
                        CopyOptions::default(),
                    )
                    .finish()
                    .unwrap();
            });
        }
    });
    for number in 0..16 {
        assert!(std::fs::read(serving.served().path(&format!("file-{number}"))).unwrap() == bytes);
    }
}

#[test]
fn events_come_until_the_end_and_a_cancelled_transfer_goes_on_later() {
    let serving = Serving::start();
    let here = tempfile::tempdir().unwrap();
    let source = file(here.path(), &content(64 << 20));
    let client = serving.connect(Some(BitRate(400_000_000)));
    let mut transfer = client.put(&source, Some(name("target")), CopyOptions::default());
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
    let mut transfer = client.put(&source, Some(name("target")), CopyOptions::default());
    while transfer.next_event().is_some() {}
    assert!(transfer.finish().unwrap().resumed_bytes > 0);
}

#[test]
fn an_event_that_does_not_come_is_waited_for_no_longer_than_was_said() {
    let serving = Serving::start();
    let client = serving.connect(None);
    let (reader, _writer) = std::io::pipe().unwrap();
    let mut transfer = client.put_pipe(reader, name("target"), CopyOptions::default());
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
        .get(
            name("missing"),
            Path::new("/nonexistent/x"),
            CopyOptions::default(),
        )
        .finish()
        .unwrap_err();
    assert_eq!(error.fail_code(), Some(FailCode::NotFound), "{error}");
    let nobody = Client::builder().port(1).patience(Duration::ZERO);
    assert!(blocking::Client::connect(nobody, "127.0.0.1").is_err());
}

#[test]
fn a_client_may_be_dropped_in_async_code_and_in_the_middle_of_a_transfer() {
    let serving = Serving::start();
    let here = tempfile::tempdir().unwrap();
    let source = file(here.path(), &content(64 << 20));
    let client = serving.connect(Some(BitRate(100_000_000)));
    let transfer = client.put(&source, Some(name("target")), CopyOptions::default());
    serving.runtime.block_on(async move {
        drop(client);
        drop(transfer);
    });
    assert!(!serving.served().path("target").exists());
}
