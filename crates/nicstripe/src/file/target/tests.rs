use std::path::Path;

use nicstripe_proto::{ChunkId, hash_tree::chunk_value, journal::SourceIdentity};

use super::*;

fn offer(size: u64) -> Offer {
    let source = SourceIdentity { size, ..SourceIdentity::default() };
    Offer { transfer: nicstripe_proto::TransferId(1), source, chunk_log2: 18, mode: 0o600, kind: None, data: None }
}

fn open(dir: &Path, offer: &Offer) -> (Target, Vec<Subtree>) {
    let request = TargetRequest {
        dir: File::open(dir).unwrap().into(),
        name: OsStr::new("target"),
        offer,
        options: PutOptions::default(),
        peer_key: [7; 32],
        journal_id: [9; 16],
        attributes: None,
    };
    Target::open(request).unwrap()
}

fn names(dir: &Path) -> usize {
    std::fs::read_dir(dir).unwrap().count()
}

#[test]
fn what_has_nothing_durable_goes_with_its_transfer() {
    let dir = tempfile::tempdir().unwrap();
    let offer = offer(1 << 20);
    let (target, have) = open(dir.path(), &offer);
    assert!(have.is_empty());
    assert_eq!(names(dir.path()), 2);
    drop(target);
    assert_eq!(names(dir.path()), 0);
}

#[test]
fn what_has_something_durable_stays_for_the_next_transfer() {
    let dir = tempfile::tempdir().unwrap();
    let offer = offer(1 << 20);
    let (target, _) = open(dir.path(), &offer);
    let value = chunk_value(target.grid, ChunkId(0), &[0; 1 << 18]).unwrap();
    target.sync(vec![Subtree::of_chunk(ChunkId(0), value)]).unwrap();
    drop(target);
    let (target, have) = open(dir.path(), &offer);
    assert_eq!(have.len(), 1);
    drop(target);
    assert_eq!(names(dir.path()), 2, "what was durable before stays too");
}

#[test]
fn what_was_discarded_does_not_take_its_successor_along() {
    let dir = tempfile::tempdir().unwrap();
    let offer = offer(1 << 20);
    let (first, _) = open(dir.path(), &offer);
    first.discard();
    let (second, _) = open(dir.path(), &offer);
    drop(first);
    assert_eq!(names(dir.path()), 2);
    drop(second);
    assert_eq!(names(dir.path()), 0);
}
