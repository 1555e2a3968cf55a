//! Tests of sources that change during the copy.

use crate::harness::{PLAIN, Served, content, digest, done, name, source_of};
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

const SIZE: usize = 24 << 20;

/// Copies a file in both directions while a thread repeatedly calls `change` on the source.
async fn copied_while(
    change: impl Fn(&File) + Clone + Send + 'static,
    options: CopyOptions,
) -> [Result<Report, Error>; 2] {
    let served = Served::start().await;
    let client = served.client_at(2, BitRate::from_mbit(400)).await;
    let (here, source) = source_of(content(SIZE));
    std::fs::copy(&source, served.path("source")).unwrap();
    let there = while_changing(
        &source,
        change.clone(),
        done(client.put(&source, Some(name("target")), options)),
    )
    .await;
    assert_is_as_reported(&there, &served.path("target"));
    let client = served.client_at(2, BitRate::from_mbit(400)).await;
    let back = here.path().join("back");
    let get = done(client.get(name("source"), &back, options));
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

fn grow(mut file: &File) {
    std::io::Seek::seek(&mut file, std::io::SeekFrom::End(0)).unwrap();
    file.write_all(b"more").unwrap();
}

fn cut(file: &File) {
    file.set_len(1 << 20).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_changes_is_refused_unless_it_may_and_does_not_become_shorter() {
    type Row = (&'static str, fn(&File), bool, bool);
    let cases: [Row; 5] = [
        ("changes", overwrite, false, false),
        ("may change", overwrite, true, true),
        ("grows", grow, false, false),
        ("may grow", grow, true, true),
        ("may change, and becomes shorter", cut, true, false),
    ];
    for (what, change, allow_changing, arrives) in cases {
        let options = CopyOptions {
            allow_changing,
            ..PLAIN
        };
        for result in copied_while(change, options).await {
            match result {
                // The file may have grown before it was opened, but not by all appended bytes.
                Ok(report) => assert!(
                    arrives && (SIZE..SIZE + 400).contains(&(report.size as usize)),
                    "{what}"
                ),
                Err(error) => {
                    let code = error.fail_code();
                    assert!(
                        !arrives && code == Some(FailCode::SourceChanged),
                        "{what}: {error}"
                    );
                }
            }
        }
    }
}
