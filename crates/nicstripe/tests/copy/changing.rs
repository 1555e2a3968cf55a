//! Tests of sources that change during the copy.

use std::{
    fs::File,
    io::Write,
    os::unix::fs::FileExt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use nicstripe::{BitRate, CopyOptions, Error, FailCode, Report};

use super::{Served, content, digest, name, within};

const SIZE: usize = 24 << 20;

/// Copies a file in both directions while a thread repeatedly calls `change` on the source.
async fn copied_while(
    change: impl Fn(&File) + Clone + Send + 'static,
    options: CopyOptions,
) -> [Result<Report, Error>; 2] {
    let served = Served::start().await;
    let client = within(served.connect_at(2, Some(BitRate::from_mbit(400))))
        .await
        .unwrap();
    let here = tempfile::tempdir().unwrap();
    let source = here.path().join("source");
    std::fs::write(&source, content(SIZE)).unwrap();
    std::fs::copy(&source, served.path("source")).unwrap();
    let there = while_changing(
        &source,
        change.clone(),
        within(client.put(&source, Some(name("target")), options).finish()),
    )
    .await;
    assert_is_as_reported(&there, &served.path("target"));
    let client = within(served.connect_at(2, Some(BitRate::from_mbit(400))))
        .await
        .unwrap();
    let back = here.path().join("back");
    let get = within(client.get(name("source"), &back, options).finish());
    let report = while_changing(&served.path("source"), change, get).await;
    assert_is_as_reported(&report, &back);
    [there, report]
}

async fn while_changing<T>(
    path: &Path,
    change: impl Fn(&File) + Send + 'static,
    copy: impl Future<Output = T>,
) -> T {
    let stop = Arc::new(AtomicBool::new(false));
    let (file, stopped) = (
        File::options()
            .append(false)
            .write(true)
            .open(path)
            .unwrap(),
        stop.clone(),
    );
    let changer = thread::spawn(move || {
        // The file is open by then, and far from completely read: 24 MiB take 500 ms at 400 Mbit/s.
        thread::sleep(std::time::Duration::from_millis(150));
        while !stopped.load(Ordering::Relaxed) {
            change(&file);
            thread::sleep(std::time::Duration::from_millis(1));
        }
    });
    let result = copy.await;
    stop.store(true, Ordering::Relaxed);
    changer.join().unwrap();
    result
}

/// Panics unless the size and digest in a successful copy's report match the target file. Ignores
/// failed copies.
fn assert_is_as_reported(report: &Result<Report, Error>, target: &Path) {
    let Ok(report) = report else { return };
    let bytes = std::fs::read(target).unwrap();
    assert_eq!(
        (bytes.len() as u64, report.digest),
        (report.size, Some(digest(&bytes)))
    );
}

fn overwrite(file: &File) {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .subsec_nanos();
    for part in 0..12 {
        file.write_all_at(
            &now.to_le_bytes(),
            part * (2 << 20) + u64::from(now % (1 << 20)),
        )
        .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_changes_is_refused_unless_it_may() {
    for result in copied_while(overwrite, CopyOptions::default()).await {
        assert_eq!(
            result.unwrap_err().fail_code(),
            Some(FailCode::SourceChanged)
        );
    }
    for result in copied_while(
        overwrite,
        CopyOptions {
            allow_changing: true,
            ..CopyOptions::default()
        },
    )
    .await
    {
        result.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_may_change_may_grow_and_is_sent_up_to_its_first_size() {
    let grow = |mut file: &File| {
        std::io::Seek::seek(&mut file, std::io::SeekFrom::End(0)).unwrap();
        file.write_all(b"more").unwrap();
    };
    for result in copied_while(
        grow,
        CopyOptions {
            allow_changing: true,
            ..CopyOptions::default()
        },
    )
    .await
    {
        // The file may have grown before it was opened, but not by all appended bytes.
        let size = result.unwrap().size;
        assert!((SIZE as u64..SIZE as u64 + 400).contains(&size), "{size}");
    }
    for result in copied_while(grow, CopyOptions::default()).await {
        assert_eq!(
            result.unwrap_err().fail_code(),
            Some(FailCode::SourceChanged)
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_becomes_shorter_is_refused_also_if_it_may_change() {
    for result in copied_while(
        |file| file.set_len(1 << 20).unwrap(),
        CopyOptions {
            allow_changing: true,
            ..CopyOptions::default()
        },
    )
    .await
    {
        assert_eq!(
            result.unwrap_err().fail_code(),
            Some(FailCode::SourceChanged)
        );
    }
}
