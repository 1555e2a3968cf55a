use std::{
    os::unix::fs::{FileExt, PermissionsExt},
    path::Path,
};

use nicstripe_proto::{
    ChunkId, DataHeader, PathId, TransferId, hash_tree::chunk_value, journal::SourceIdentity,
};

use super::*;
use crate::file::BufferPool;

fn offer(size: u64) -> Offer {
    let source = SourceIdentity {
        size,
        ..SourceIdentity::default()
    };
    Offer {
        transfer: TransferId(1),
        source,
        chunk_log2: 18,
        mode: 0o600,
        kind: None,
        data: None,
        object: None,
    }
}

fn request(dir: &Path, offer: &Offer) -> TargetRequest {
    TargetRequest {
        dir: File::open(dir).unwrap().into(),
        name: "target".into(),
        offer: offer.clone(),
        options: PutOptions::default(),
        peer_key: [7; 32],
        attributes: None,
        sidecar: Sidecar::None,
    }
}

fn open(dir: &Path, offer: &Offer) -> (Target, Vec<Subtree>) {
    Target::open(request(dir, offer)).unwrap()
}

fn names(dir: &Path) -> usize {
    std::fs::read_dir(dir).unwrap().count()
}

#[test]
fn what_has_something_durable_stays_for_the_next_transfer() {
    let dir = tempfile::tempdir().unwrap();
    interrupt(dir.path());
    let (target, have) = open(dir.path(), &offer(1 << 20));
    assert_eq!(have.len(), 1);
    drop(target);
    assert_eq!(names(dir.path()), 2, "what was durable before stays too");
}

#[test]
fn what_was_discarded_does_not_take_its_successor_along_which_goes_if_nothing_is_durable() {
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

/// Simulates an interrupted transfer after the first chunk. Returns the paths of its journal and
/// part file.
fn interrupt(dir: &Path) -> [std::path::PathBuf; 2] {
    let (target, _) = open(dir, &offer(1 << 20));
    let value = chunk_value(target.grid, ChunkId(0), &[0; 1 << 18]).unwrap();
    target
        .sync(vec![Subtree::of_chunk(ChunkId(0), value)])
        .unwrap();
    let names = [&target.files.journal_name, &target.files.part_name];
    names.map(|name| dir.join(name.as_ref().unwrap()))
}

#[test]
fn a_file_is_read_back_in_turns() {
    const SIZE: u64 = 20 << 20;
    let dir = tempfile::tempdir().unwrap();
    let offer = offer(SIZE);
    let mut request = request(dir.path(), &offer);
    request.options.verify = true;
    let (target, _) = Target::open(request).unwrap();
    let digest = nicstripe_proto::Digest(*blake3::hash(&vec![0u8; SIZE as usize]).as_bytes());
    let (mut stage, mut turns) = (CommitStage::default(), 1);
    let mut turn = || target.commit_turn(digest, &mut stage).unwrap();
    while turn().is_continue() {
        turns += 1;
    }
    assert_eq!(turns, 3);
    let found = std::fs::metadata(dir.path().join("target")).unwrap();
    assert_eq!(found.len(), SIZE);
}

/// The commit was interrupted right after the rename.
#[test]
fn a_complete_file_of_an_earlier_attempt_is_hashed_in_turns() {
    let dir = tempfile::tempdir().unwrap();
    let offer = offer(20 << 20);
    let (target, _) = open(dir.path(), &offer);
    assert!(target.rehash().is_none());
    let value = chunk_value(target.grid, ChunkId(0), &[0; 1 << 18]).unwrap();
    target
        .sync(vec![Subtree::of_chunk(ChunkId(0), value)])
        .unwrap();
    let part = dir.path().join(target.files.part_name.as_ref().unwrap());
    std::fs::rename(part, dir.path().join("target")).unwrap();
    drop(target);

    let (target, have) = open(dir.path(), &offer);
    assert_eq!((target.files.state, have), (TargetState::Named, vec![]));
    let (mut rehash, mut turns) = (target.rehash().unwrap(), 1);
    let found = loop {
        match target.rehash_turn(&mut rehash).unwrap() {
            std::ops::ControlFlow::Continue(()) => turns += 1,
            std::ops::ControlFlow::Break(found) => break found,
        }
    };
    let chunks = found.iter().map(|subtree| subtree.chunks(target.grid));
    let count: u64 = chunks.map(|chunks| chunks.unwrap().count).sum();
    assert_eq!((count, turns), (target.grid.chunk_count(), 3));
}

#[test]
fn the_holes_of_written_chunks_are_punched_in_turns() {
    const SIZE: u64 = 20 << 20;
    let dir = tempfile::tempdir().unwrap();
    let offer = Offer {
        data: Some(0),
        ..offer(SIZE)
    };
    let (target, _) = open(dir.path(), &offer);
    let mut holes = nicstripe_proto::HoleMap::default();
    let hole = Extent {
        offset: 5000,
        len: SIZE - 5000,
    };
    holes.push(hole, SIZE).unwrap();
    target.make_holes(holes).unwrap();
    target.files.part.write_all_at(&[7; 4096], 0).unwrap();
    let zeros = vec![0; SIZE as usize - 4096];
    target.files.part.write_all_at(&zeros, 4096).unwrap();
    *target.files.spared.written_whole.lock() = (0..80).map(ChunkId).collect();
    let mut extents = target.extents_to_punch();
    let mut turns = 1;
    while !target.punch(&mut extents).unwrap() {
        turns += 1;
    }
    assert_eq!(turns, 3);
    let stat = fstat(&target.files.part).unwrap();
    assert!(stat.st_blocks * 512 <= 64 << 10, "{}", stat.st_blocks);
}

#[test]
fn a_thread_that_writes_queued_chunks_hands_over_after_8_mib() {
    const CHUNK: usize = 1 << 18;
    let dir = tempfile::tempdir().unwrap();
    let (target, _) = open(dir.path(), &offer(10 << 20));
    let buffers = BufferPool::default();
    let arrived = |chunk| {
        let mut buffer = buffers.take();
        buffer.bytes_mut(CHUNK).fill(7);
        let header = DataHeader {
            transfer: TransferId(1),
            chunk: ChunkId(chunk),
            value: chunk_value(target.grid, ChunkId(chunk), &[7; CHUNK]).unwrap(),
            len: CHUNK as u32,
            raw_len: 0,
            last: false,
        };
        Arrived {
            path: PathId(0),
            header,
            buffer,
        }
    };
    *target.writer.lock() = Some((0..40).map(arrived).collect());
    let written = std::cell::Cell::new(0);
    let report = |_: Arrived, result: Result<(), WriteError>| {
        result.unwrap();
        written.set(written.get() + 1);
    };
    assert!(target.write_queued(report), "2 MiB are left");
    assert_eq!(written.get(), 32);
    assert!(!target.write_queued(report));
    assert_eq!(written.get(), 40);
    assert!(target.writer.lock().is_none());
}

#[test]
fn a_rename_that_was_cut_short_between_its_two_names_is_finished() {
    let dir = tempfile::tempdir().unwrap();
    let [journal, part] = interrupt(dir.path());
    // State that linkat(2) leaves before the old name is removed.
    std::fs::hard_link(&part, dir.path().join("target")).unwrap();
    let (target, _) = open(dir.path(), &offer(1 << 20));
    assert_eq!(target.files.state, TargetState::Named);
    assert!(journal.exists() && !part.exists());
}

#[test]
fn journals_and_part_files_that_others_may_have_written_are_not_used() {
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let link = |path: &Path| std::fs::hard_link(path, path.with_file_name("another")).unwrap();
    let point = |path: &Path| {
        std::fs::rename(path, path.with_file_name("another")).unwrap();
        std::os::unix::fs::symlink("another", path).unwrap();
    };
    type Meddle<'a> = &'a dyn Fn(&Path);
    let meddle: [(&str, Meddle<'_>, bool); 5] = [
        ("nothing", &|_| {}, true),
        ("it is of wider mode", &|path| mode(path, 0o660), false),
        ("all may write it", &|path| mode(path, 0o606), false),
        ("it has another name", &link, false),
        ("it is a link to one", &point, false),
    ];
    for (what, meddle, is_used) in meddle {
        for index in [0, 1] {
            let dir = tempfile::tempdir().unwrap();
            let paths = interrupt(dir.path());
            meddle(&paths[index]);
            let kept = std::fs::read(&paths[index]).unwrap();
            let offer = offer(1 << 20);
            let (target, have) = Target::open(request(dir.path(), &offer)).unwrap();
            assert_eq!(
                !have.is_empty(),
                is_used,
                "{what}: {}",
                paths[index].display()
            );
            target.files.part.write_all_at(b"new", 0).unwrap();
            if let Ok(another) = std::fs::read(dir.path().join("another")) {
                assert!(another == kept, "{what}: what the name led to was written");
            }
            drop(target);
        }
    }
}

#[test]
fn a_part_file_that_was_cut_short_with_its_final_owner_and_mode_is_used() {
    let dir = tempfile::tempdir().unwrap();
    let [_, part] = interrupt(dir.path());
    std::fs::set_permissions(&part, std::fs::Permissions::from_mode(0o664)).unwrap();
    let offer = Offer {
        mode: 0o664,
        ..offer(1 << 20)
    };
    let mut request = request(dir.path(), &offer);
    request.options.preserve = true;
    assert_eq!(Target::open(request).unwrap().1.len(), 1);
}

#[test]
fn a_file_that_runs_with_its_owners_rights_loses_them_when_it_is_written_in_place() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("target");
    std::fs::write(&path, vec![7; 1 << 20]).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o6755)).unwrap();
    let offer = offer(1 << 20);
    let mut request = request(dir.path(), &offer);
    request.options.in_place = true;
    let (target, _) = Target::open(request).unwrap();
    assert_eq!(target.files.state, TargetState::File);
    let mode = std::fs::metadata(&path).unwrap().mode();
    assert_eq!(mode & 0o7777, 0o755);
}
