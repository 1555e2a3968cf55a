//! Tests that sparse files stay sparse and that their holes are not sent.

use crate::harness::{
    PLAIN, Served, content, digest, done, finished, interrupt_at, leftovers, name,
};
use std::{fs::File, os::unix::fs::FileExt, path::Path};

use nicstripe::{BitRate, CopyOptions, Report, TreeOptions};
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};

use super::{Sink, put};

const MIB: u64 = 1 << 20;

/// Creates a sparse file of `size` bytes. `data` lists its data extents as (offset, length).
pub(super) fn sparse(path: &Path, size: u64, data: &[(u64, usize)]) {
    let file = File::create(path).unwrap();
    file.set_len(size).unwrap();
    data.iter()
        .for_each(|(offset, len)| file.write_all_at(&content(*len), *offset).unwrap());
    file.sync_all().unwrap();
}

/// Returns the (offset, length) data extents of a file, as reported by lseek(2).
pub(super) fn data_map(path: &Path) -> Vec<(u64, u64)> {
    let file = File::open(path).unwrap();
    let (mut map, mut offset) = (Vec::new(), 0);
    while let Ok(start) = seek(&file, SeekFrom::Data(offset)) {
        offset = seek(&file, SeekFrom::Hole(start)).unwrap();
        map.push((start, offset - start));
    }
    map
}

/// Data extents (offset, length) of a sparse file in bytes: within a chunk, across a chunk
/// boundary, and over whole chunks. The file ends with a hole.
const DATA: [(u64, usize); 5] = [
    (0, 4096),
    (MIB + 8192, 12_288),
    (2 * MIB - 4096, 8192),
    (5 * MIB, 3 << 20),
    (30 * MIB + 4096, 4096),
];
const SIZE: u64 = 40 * MIB + 5;

fn assert_same(report: &Report, source: &Path, target: &Path) {
    let bytes = std::fs::read(source).unwrap();
    assert_eq!(report.digest, Some(digest(&bytes)));
    assert!(std::fs::read(target).unwrap() == bytes);
    assert_eq!(data_map(target), data_map(source));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sparse_file_has_the_same_holes_there_and_back_and_all_its_zeros_in_a_pipe() {
    let served = Served::start().await;
    let client = served.client(2).await;
    let here = tempfile::tempdir().unwrap();
    let (source, back) = (here.path().join("source"), here.path().join("back"));
    sparse(&source, SIZE, &DATA);
    let report = put(&client, &source, "target").await.unwrap();
    assert_same(&report, &source, &served.path("target"));
    // Of 161 chunks, 4 hold little data and 12 are full. The zeros in the 4 chunks are compressed.
    let sent = report.wire_bytes - report.resent_bytes.min(report.wire_bytes);
    assert!(sent < 13 * MIB / 4, "{report:?}");
    let report = finished(client.get(name("target"), &back, PLAIN)).await;
    assert_same(&report, &source, &back);
    assert!(served.is_tidy());

    let (bytes, sink) = (std::fs::read(&source).unwrap(), Sink::default());
    let report = finished(client.get_pipe(name("target"), sink.clone(), PLAIN)).await;
    assert_eq!((report.digest, report.failovers), (Some(digest(&bytes)), 0));
    assert!(*sink.bytes.lock().unwrap() == bytes);
    // Zeros are compressed even without `compress`.
    assert!(
        report.wire_bytes < 5 * MIB + report.resent_bytes,
        "{report:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hole_is_not_taken_for_space_that_is_needed() {
    let served = Served::start().await;
    let client = served.client(1).await;
    let here = tempfile::tempdir().unwrap();
    let source = here.path().join("source");
    // A size 5 GiB above the free space would be rejected. This smaller size keeps the hashing
    // short.
    sparse(&source, 3 << 30, &[(2 << 30, 1 << 20)]);
    let report = put(&client, &source, "target").await.unwrap();
    assert!(report.wire_bytes <= MIB + report.resent_bytes);
    let blocks = std::os::unix::fs::MetadataExt::blocks(&served.path("target").metadata().unwrap());
    assert!(blocks * 512 <= 2 * MIB, "{blocks} blocks");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_sparse_file_goes_on_and_has_the_same_holes() {
    let served = Served::start().await;
    let here = tempfile::tempdir().unwrap();
    let source = here.path().join("source");
    let data: Vec<(u64, usize)> = (0..20)
        .map(|index| (index * 8 * MIB + 4096, 4 << 20))
        .collect();
    sparse(&source, 400 * MIB, &data);
    let client = served.client_at(2, BitRate::from_mbit(400)).await;
    let interrupted =
        interrupt_at(client.put(&source, Some(name("target")), PLAIN), 260 * MIB).await;
    assert!(interrupted, "80 MiB at 400 Mbit/s take 1.7 s");
    drop(client);
    // Data left in place of a hole must not survive.
    let part = leftovers(served.root.path())
        .into_iter()
        .find(|name| name.ends_with("part"))
        .unwrap();
    let part = File::options()
        .write(true)
        .open(served.path(&part))
        .unwrap();
    fallocate(&part, FallocateFlags::empty(), 390 * MIB, 4 * MIB).unwrap();

    let client = served.client(2).await;
    let report = put(&client, &source, "target").await.unwrap();
    assert!(report.resumed_bytes > 0, "{report:?}");
    assert!(std::fs::read(served.path("target")).unwrap() == std::fs::read(&source).unwrap());
    assert_eq!(leftovers(served.root.path()), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sparse_file_of_a_tree_keeps_its_holes_and_is_compared_in_a_delta() {
    let served = Served::start().await;
    let client = served.client(2).await;
    let here = tempfile::tempdir().unwrap();
    let source = here.path().join("tree/image");
    std::fs::create_dir(here.path().join("tree")).unwrap();
    sparse(&source, SIZE, &DATA);
    let files = CopyOptions {
        replace: true,
        delta: true,
        compress: true,
        ..PLAIN
    };
    let options = TreeOptions {
        recursive: true,
        files,
        ..TreeOptions::default()
    };
    let copy = || done(client.put_tree(vec![here.path().join("tree")], None, options.clone()));
    let target = served.path("tree/image");
    let report = copy().await.unwrap();
    assert!(
        report.wire_bytes < 5 * MIB + report.resent_bytes,
        "{report:?}"
    );
    assert!(std::fs::read(&target).unwrap() == std::fs::read(&source).unwrap());
    assert_eq!(data_map(&target), data_map(&source));

    File::options()
        .write(true)
        .open(&source)
        .unwrap()
        .write_all_at(b"changed", 6 * MIB)
        .unwrap();
    let report = copy().await.unwrap();
    // One chunk, and the batches of the tree.
    assert!(
        report.wire_bytes < MIB / 2 + report.resent_bytes,
        "{report:?}"
    );
    assert!(std::fs::read(&target).unwrap() == std::fs::read(&source).unwrap());
    assert_eq!(data_map(&target), data_map(&source));
}
