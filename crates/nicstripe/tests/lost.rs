//! Tests of calls whose daemon is lost: they wait for it, and are repeated if that is safe.

use std::time::{Duration, Instant};

use crate::harness::{PLAIN, REPLACE, Served, content, name, ok, within};
use nicstripe::{BitRate, Client, Error, Event};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Crashes the daemon and starts it again after a second.
async fn lost_for_a_second(served: &mut Served) {
    served.crash().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    served.start_again().await;
}

async fn each_call(client: &Client) {
    let (there, renamed, made) = (name("there"), name("renamed"), name("made"));
    let pipe = std::io::Cursor::new(b"bytes");
    let writing = async {
        let mut object = client.create(&name("created"), REPLACE);
        let _ = object.write_all(b"bytes").await;
        object.finish().await.map(drop)
    };
    let calls = tokio::join!(
        async {
            client
                .write(&name("written"), "bytes", REPLACE)
                .await
                .map(drop)
        },
        async { client.read(&there, None).await.map(drop) },
        async { client.stat(&there).await.map(drop) },
        async { client.list(None).await.map(drop) },
        async { client.open(&there).await.map(drop) },
        async { client.make_dir(&made).await },
        async {
            let transfer = client.put_pipe(pipe, name("piped"), REPLACE);
            transfer.finish().await.map(drop)
        },
        async {
            let transfer = client.get_pipe(name("there"), std::io::sink(), REPLACE);
            transfer.finish().await.map(drop)
        },
        writing,
        async {
            client
                .rename(
                    &renamed,
                    &name("other"),
                    nicstripe::RenameOptions::replacing(),
                )
                .await
        },
        async { client.remove(&name("removed")).await },
        async { client.links().await.map(drop) },
    );
    let (a, b, c, d, e, f, g, h, i, j, k, l) = calls;
    for (at, ended) in [a, b, c, d, e, f, g, h, i, j, k, l].into_iter().enumerate() {
        assert!(ended.is_ok(), "call {at}: {ended:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_call_waits_for_a_daemon_that_was_lost() {
    let mut served = Served::start().await;
    let client = served.client(1).await;
    for file in ["there", "renamed", "removed"] {
        std::fs::write(served.path(file), "bytes").unwrap();
    }
    served.crash().await;
    // All begin before the daemon is back.
    let back = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        served.start_again().await;
    };
    within(async { tokio::join!(each_call(&client), back) }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_does_not_return_is_given_up_after_the_patience_by_all_at_once() {
    let mut served = Served::start().await;
    let (events, mut told) = tokio::sync::mpsc::channel(64);
    let patience = Duration::from_secs(3);
    let builder = served.builder(1).patience(patience).events(events);
    let client = within(builder.connect("127.0.0.1")).await.unwrap();
    let begun = Instant::now();
    served.crash().await;
    let (options, file) = (PLAIN, name("file"));
    let (written, read, listed, removed) = within(async {
        tokio::join!(
            client.write(&file, "bytes", options),
            client.read(&file, None),
            client.list(None),
            client.remove(&file),
        )
    })
    .await;
    let ended = [written.err(), read.err(), listed.err(), removed.err()];
    for error in ended.map(Option::unwrap) {
        assert!(matches!(error, Error::Abandoned { .. }), "{error:?}");
        assert!(error.is_retryable());
    }
    assert!(begun.elapsed() >= patience, "{:?}", begun.elapsed());
    let mut is_told = false;
    while let Ok(event) = told.try_recv() {
        if let Event::Unreachable {
            host,
            patience: told,
            ..
        } = event
        {
            is_told = true;
            assert_eq!((host.as_str(), told), ("127.0.0.1", Some(patience)));
        }
    }
    assert!(is_told && !served.path("file").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_read_through_a_restart_comes_whole() {
    let mut served = Served::start().await;
    let bytes = content(8 << 20);
    std::fs::write(served.path("file"), &bytes).unwrap();
    let limit = Some(BitRate::from_mbit(32));
    let client = within(served.connect_at(1, limit)).await.unwrap();
    let (file, part) = (name("file"), 1_000_000..7_000_001);
    let reading = async {
        let (whole, range) = tokio::join!(
            client.read(&file, None),
            client.read(&file, Some(part.clone()))
        );
        let mut object = client.open(&file).await.unwrap();
        let mut streamed = Vec::new();
        object.read_to_end(&mut streamed).await.unwrap();
        (whole.unwrap(), range.unwrap(), streamed)
    };
    let losing = async {
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_millis(700)).await;
            lost_for_a_second(&mut served).await;
        }
    };
    let ((whole, range, streamed), ()) = within(async { tokio::join!(reading, losing) }).await;
    assert!(whole == bytes);
    assert!(range == bytes[1_000_000..7_000_001]);
    assert!(streamed == bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_changes_while_its_daemon_is_lost_is_read_in_one_version_or_not_at_all() {
    let mut served = Served::start().await;
    std::fs::write(served.path("file"), content(4 << 20)).unwrap();
    let limit = Some(BitRate::from_mbit(32));
    let client = within(served.connect_at(1, limit)).await.unwrap();
    let file = name("file");
    let changing = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        served.crash().await;
        std::fs::write(served.path("file"), vec![0; 4 << 20]).unwrap();
        served.start_again().await;
    };
    let (read, ()) = within(async { tokio::join!(client.read(&file, None), changing) }).await;
    let error = read.unwrap_err();
    let code = error.fail_code();
    assert_eq!(code, Some(nicstripe::FailCode::SourceChanged), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_in_memory_are_written_again() {
    let mut served = Served::start().await;
    let limit = Some(BitRate::from_mbit(32));
    let client = within(served.connect_at(1, limit)).await.unwrap();
    let bytes = content(8 << 20);
    let losing = async {
        tokio::time::sleep(Duration::from_millis(700)).await;
        lost_for_a_second(&mut served).await;
    };
    let file = name("file");
    let writing = client.write(&file, &bytes, PLAIN);
    let (written, ()) = within(async { tokio::join!(writing, losing) }).await;
    assert_eq!(written.unwrap().size, bytes.len() as u64);
    assert!(std::fs::read(served.path("file")).unwrap() == bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_that_are_not_read_on_keep_no_transfer_of_the_client_from_running() {
    let served = Served::start().await;
    std::fs::write(served.path("file"), content(4 << 20)).unwrap();
    let client = served.client(1).await;
    let mut readers = Vec::new();
    for _ in 0..2 * nicstripe::MOST_TRANSFERS {
        let mut object = within(client.open(&name("file"))).await.unwrap();
        within(object.read_exact(&mut [0; 10])).await.unwrap();
        readers.push(object);
    }
    ok(client.write(&name("written"), "bytes", PLAIN)).await;
    // And continue where they are.
    let mut rest = Vec::new();
    within(readers[0].read_to_end(&mut rest)).await.unwrap();
    assert!(rest == content(4 << 20)[10..]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_that_waits_for_others_that_do_not_move_says_so() {
    let served = Served::start().await;
    let client = ok(served
        .builder(1)
        .patience(Duration::from_secs(2))
        .connect("127.0.0.1"))
    .await;
    // Each waits for bytes of the program.
    let mut writers = Vec::new();
    for at in 0..nicstripe::MOST_TRANSFERS {
        let mut writer = client.create(&name(&format!("file{at}")), PLAIN);
        let event = within(writer.next_event()).await;
        assert!(matches!(event, Some(Event::Connected { .. })), "{event:?}");
        writers.push(writer);
    }
    let error = within(client.write(&name("written"), "bytes", PLAIN))
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Crowded { .. }), "{error:?}");
    drop(writers);
    ok(client.write(&name("written"), "bytes", PLAIN)).await;
}
