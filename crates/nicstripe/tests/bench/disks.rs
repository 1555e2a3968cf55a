//! Tests of the disk stages of a benchmark.

use std::{path::Path, time::Duration};

use nicstripe::{
    BenchEvent, BenchPlan,
    bench::{BenchReport, Direction, DiskPlan},
};

use crate::{
    bench::quick,
    harness::{Served, content, name, within},
};

const SIZE: usize = (5 << 20) + 77;

pub(crate) fn plan(file: &Path, reverse: bool) -> BenchPlan {
    let disk = DiskPlan {
        file: file.to_owned(),
        name: Some(name("target")),
        reverse,
        bytes: 1 << 30,
    };
    BenchPlan {
        disk: Some(disk),
        repeats: 2..=2,
        load: Duration::from_millis(300),
        ..quick(&[])
    }
}

pub(crate) async fn bench(served: &Served, plan: BenchPlan) -> (BenchReport, Vec<String>) {
    let client = served.client(1).await;
    let mut bench = client.bench(plan);
    let mut notes = Vec::new();
    while let Some(event) = within(bench.next_event()).await {
        if let BenchEvent::Note(note) = event {
            notes.push(note);
        }
    }
    let report = within(bench.finish()).await.unwrap();
    within(client.close()).await;
    (report, notes)
}

fn names(dir: &Path) -> Vec<String> {
    std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

fn assert_whole(report: &BenchReport, way: Direction) {
    let disk = report.disk.as_ref().unwrap();
    assert!(
        report.complete && disk.bytes == SIZE as u64 && disk.way == way,
        "{disk:#?}"
    );
    for stage in [disk.read, disk.network, disk.write, disk.all] {
        assert!(
            stage.is_some_and(|rate| rate.n == 2 && rate.min_bps > 0),
            "{disk:#?}"
        );
    }
    assert!(
        disk.narrowest.is_some()
            && disk.file_systems.client.is_some()
            && disk.file_systems.daemon.is_some(),
        "{disk:#?}"
    );
    assert!(
        report
            .summary
            .sentence
            .contains("disk to disk, the bottleneck is"),
        "{}",
        report.summary.sentence
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn all_stages_are_measured_in_turn_and_nothing_of_them_stays() {
    let (served, here) = (Served::start().await, tempfile::tempdir().unwrap());
    let source = here.path().join("source");
    std::fs::write(&source, content(SIZE)).unwrap();
    let (report, notes) = bench(&served, plan(&source, false)).await;
    assert_whole(&report, Direction::ToDaemon);
    assert_eq!((notes, names(served.root.path())), (vec![], vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reverse_way_reads_there_and_writes_here() {
    let (served, here) = (Served::start().await, tempfile::tempdir().unwrap());
    std::fs::write(served.path("target"), content(SIZE)).unwrap();
    let (report, notes) = bench(&served, plan(&here.path().join("copy"), true)).await;
    assert_whole(&report, Direction::ToClient);
    assert_eq!(
        (notes, names(here.path()), names(served.root.path())),
        (vec![], vec![], vec!["target".to_owned()])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_measured_is_noted_and_the_rest_is_measured() {
    let (served, here) = (Served::start().await, tempfile::tempdir().unwrap());
    let source = here.path().join("source");
    let (report, notes) = bench(&served, plan(&source, false)).await;
    assert!(!report.complete && report.disk.is_none());
    assert!(
        notes
            .iter()
            .any(|note| note.contains("reading the source skipped")),
        "{notes:?}"
    );
    std::fs::write(&source, content(SIZE)).unwrap();
    let whole = plan(&source, false);
    let disk = DiskPlan {
        name: Some(name("no/target")),
        ..whole.disk.clone().unwrap()
    };
    let (report, notes) = bench(
        &served,
        BenchPlan {
            disk: Some(disk),
            ..whole.clone()
        },
    )
    .await;
    let found = report.disk.unwrap();
    assert!(
        !report.complete
            && found.read.is_some()
            && found.network.is_some()
            && found.write.is_none()
            && found.narrowest.is_none()
    );
    assert_eq!(notes.len(), 2, "{notes:?}");
    // The read and write stages transfer part of a file, the copy stage the whole file.
    let disk = DiskPlan {
        bytes: 1 << 20,
        ..whole.disk.clone().unwrap()
    };
    let (report, notes) = bench(
        &served,
        BenchPlan {
            disk: Some(disk),
            ..whole
        },
    )
    .await;
    let found = report.disk.unwrap();
    assert!(
        found.bytes == 1 << 20
            && found.write.is_some()
            && found.all.is_none()
            && found.narrowest.is_some()
    );
    assert!(
        notes
            .iter()
            .any(|note| note.contains("exceeds the 1048576 bytes")),
        "{notes:?}"
    );
}
