use std::io;

use nicstripe_proto::{FailCode, Name, journal::Timestamp};

use super::*;
use crate::{
    file::{FileError, timestamp_of},
    trust::PublicKey,
};

fn name(text: &str) -> Name {
    Name::parse(text.as_bytes()).unwrap()
}

fn request<'a>(name: &'a Name, origin: u8, size: u64) -> PartRequest<'a> {
    PartRequest {
        name,
        peer: PublicKey::from_bytes([7; 32]).unwrap(),
        size: Some(size),
        origin: [origin; 32],
        replace: Replace::Never,
        restart: false,
        mode: 0o644,
        modified: None,
        attributes: None,
    }
}

fn subtree(chunk: u64) -> Subtree {
    Subtree::of_chunk(ChunkId(chunk), ChainingValue([3; 32]))
}

fn code<T>(result: Result<T, FileError>) -> Option<FailCode> {
    result.err().map(|error| error.code)
}

#[test]
fn times_go_there_and_back_also_before_the_epoch() {
    for (seconds, nanoseconds) in [
        (0, 0),
        (0, 1),
        (-1, 999_999_999),
        (-7, 0),
        (1_700_000_000, 5),
    ] {
        let timestamp = Timestamp {
            seconds,
            nanoseconds,
        };
        assert_eq!(timestamp_of(timestamp.to_system_time().unwrap()), timestamp);
    }
    // Values made up by a peer must not panic.
    for seconds in [i64::MIN, i64::MAX] {
        let _ = Timestamp {
            seconds,
            nanoseconds: u32::MAX,
        }
        .to_system_time();
    }
}

#[test]
fn a_part_is_gone_on_with_where_it_is_of_the_same_origin_alone() {
    let (storage, target) = (MemoryStorage::new(), name("target"));
    let same = || request(&target, 1, 10);
    let left = || {
        let (part, _) = storage.begin(&same()).unwrap();
        part.write_all_at(b"hello", 0).unwrap();
        part.sync(&[subtree(0)]).unwrap();
    };
    left();
    let (part, have) = storage.begin(&same()).unwrap();
    assert_eq!(have, [subtree(0)]);
    let mut bytes = [9; 7];
    part.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"hello\0\0");
    drop(part);

    let restarted = PartRequest {
        restart: true,
        ..same()
    };
    let of_another = PartRequest {
        peer: PublicKey::from_bytes([8; 32]).unwrap(),
        ..same()
    };
    for other in [request(&target, 2, 10), restarted, of_another] {
        assert_eq!(storage.begin(&other).unwrap().1, []);
        left();
    }
    storage.forget_unfinished();
    assert_eq!((storage.unfinished(), storage.used()), (0, 0));
}

#[test]
fn a_part_that_is_replaced_takes_no_space_from_the_new_one() {
    const SIZE: u64 = 1 << 18;
    let (storage, target) = (MemoryStorage::with_limit(SIZE), name("target"));
    let (part, _) = storage.begin(&request(&target, 1, SIZE)).unwrap();
    part.write_all_at(&[1; SIZE as usize], 0).unwrap();
    part.sync(&[subtree(0)]).unwrap();
    drop(part);
    let (part, have) = storage.begin(&request(&target, 2, SIZE)).unwrap();
    assert_eq!(have, []);
    part.write_all_at(&[2; SIZE as usize], 0).unwrap();
    part.commit(SIZE).unwrap();
}

#[test]
fn a_part_that_is_open_is_busy_and_one_that_was_discarded_is_not() {
    let (storage, target) = (MemoryStorage::new(), name("target"));
    let (part, _) = storage.begin(&request(&target, 1, 10)).unwrap();
    assert_eq!(
        code(storage.begin(&request(&target, 1, 10))),
        Some(FailCode::Busy)
    );
    storage.forget_unfinished();
    assert_eq!(storage.unfinished(), 1, "it is open");
    part.discard();
    let (_next, _) = storage.begin(&request(&target, 1, 10)).unwrap();
    // A discarded part must not affect its successor.
    part.discard();
    drop(part);
    assert_eq!(
        code(storage.begin(&request(&target, 1, 10))),
        Some(FailCode::Busy)
    );
}

#[test]
fn a_name_that_was_taken_meanwhile_stays_with_who_has_it() {
    let (storage, target) = (MemoryStorage::new(), name("target"));
    let (part, _) = storage.begin(&request(&target, 1, 3)).unwrap();
    part.write_all_at(b"new", 0).unwrap();
    storage.insert(&target, b"old").unwrap();
    assert_eq!(code(part.commit(3)), Some(FailCode::Exists));
    assert_eq!(storage.contents(&target).unwrap(), b"old");
    assert_eq!(
        code(storage.begin(&request(&target, 2, 3))),
        Some(FailCode::Exists)
    );
}

#[test]
fn whoever_reads_a_file_has_it_as_it_was_when_it_was_opened() {
    let (storage, target) = (MemoryStorage::new(), name("target"));
    storage.insert(&target, b"first").unwrap();
    let (file, mut bytes) = (storage.open(&target).unwrap(), [0; 5]);
    let first = file.identity().unwrap();
    storage.insert(&target, b"other").unwrap();
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!((&bytes, file.identity().unwrap()), (b"first", first));
    let other = storage.open(&target).unwrap().identity().unwrap();
    assert_ne!(other.version, first.version);
    for offset in [1, u64::MAX] {
        let error = file.read_exact_at(&mut bytes, offset).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}

#[test]
fn bytes_are_where_they_were_written_whatever_the_order_and_the_borders() {
    let storage = MemoryStorage::new();
    let bytes: Vec<u8> = (0..1_000_003_u32).map(|byte| (byte % 251) as u8).collect();
    let target = name("target");
    let (part, _) = storage
        .begin(&request(&target, 1, bytes.len() as u64))
        .unwrap();
    let mut offsets: Vec<usize> = (0..bytes.len()).step_by(70_001).collect();
    offsets.sort_by_key(|offset| offset % 13);
    for offset in offsets {
        part.write_all_at(
            &bytes[offset..bytes.len().min(offset + 70_001)],
            offset as u64,
        )
        .unwrap();
    }
    part.commit(bytes.len() as u64).unwrap();
    assert!(storage.contents(&target).unwrap() == bytes);
    assert_eq!(storage.used(), bytes.len() as u64);
    storage.remove(&target).unwrap();
    assert_eq!(storage.used(), 0);
}

#[test]
fn what_is_full_takes_no_more_and_frees_what_is_removed() {
    let storage = MemoryStorage::with_limit(10);
    let (a, b) = (name("a"), name("b"));
    let large = code(storage.insert(&name("big"), [0; 11]));
    storage.insert(&a, [0; 6]).unwrap();
    let second = code(storage.begin(&request(&b, 1, 5)));
    assert_eq!([large, second], [Some(FailCode::NoSpace); 2]);
    storage.remove(&a).unwrap();
    let unknown = PartRequest {
        size: None,
        ..request(&b, 1, 0)
    };
    let (part, _) = storage.begin(&unknown).unwrap();
    let error = part.write_all_at(&[1; 11], 0).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
}

#[test]
fn directories_are_listed_page_by_page_in_the_order_of_their_names() {
    let storage = MemoryStorage::new();
    for text in ["b/deep/er", "a", "c", "b2", "b/x"] {
        if let Some((above, _)) = text.rsplit_once('/') {
            storage.make_dir(&name(above)).unwrap();
        }
        storage.insert(&name(text), b"").unwrap();
    }
    let page = |dir: Option<&str>, after: Option<&str>, most| {
        let (dir, after) = (dir.map(name), after.map(str::as_bytes));
        let Listed { entries, more } = storage.list(dir.as_ref(), after, most).unwrap();
        let names = entries
            .into_iter()
            .map(|(name, _)| String::from_utf8(name).unwrap());
        (names.collect::<Vec<_>>().join(" "), more)
    };
    for (dir, after, most, names, more) in [
        (None, None, 2, "a b", true),
        (None, Some("b"), 2, "b2 c", false),
        (None, Some("aa"), 1, "b", true),
        (Some("b"), None, 9, "deep x", false),
    ] {
        assert_eq!(
            page(dir, after, most),
            (names.to_owned(), more),
            "{dir:?} {after:?}"
        );
    }
    assert_eq!(storage.stat(&name("b/deep")).unwrap().kind, Kind::Dir);
    let list = |dir| code(storage.list(Some(&name(dir)), None, 1));
    assert_eq!(list("a"), Some(FailCode::NotADirectory));
    assert_eq!(list("z"), Some(FailCode::NotFound));
}

#[test]
fn names_are_removed_and_changed_only_where_nothing_else_is_lost() {
    let storage = MemoryStorage::new();
    storage.make_dir(&name("dir/sub")).unwrap();
    storage.make_dir(&name("dir/sub")).unwrap();
    storage.insert(&name("dir/file"), b"1").unwrap();
    storage.insert(&name("other"), b"2").unwrap();
    let rename = |from, to, replace| code(storage.rename(&name(from), &name(to), replace));
    let remove = |of| code(storage.remove(&name(of)));

    let beneath_file = code(storage.make_dir(&name("dir/file/x")));
    assert_eq!(beneath_file, Some(FailCode::NotADirectory));
    assert_eq!(remove("dir"), Some(FailCode::Exists));
    assert_eq!(remove("missing"), Some(FailCode::NotFound));
    assert_eq!(rename("other", "dir/file", false), Some(FailCode::Exists));
    assert_eq!(rename("other", "dir/sub", true), Some(FailCode::Occupied));
    assert_eq!(rename("other", "no/where", true), Some(FailCode::NotFound));
    assert_eq!(rename("dir", "dir/sub/dir", true), Some(FailCode::Refused));
    assert_eq!(rename("missing", "x", true), Some(FailCode::NotFound));

    assert_eq!(rename("dir", "dir2", false), None);
    assert_eq!(rename("other", "dir2/file", true), None);
    assert_eq!(storage.contents(&name("dir2/file")).unwrap(), b"2");
    assert_eq!(
        rename("dir2/file", "dir2/file", false),
        Some(FailCode::Exists)
    );
    assert_eq!(rename("dir2/file", "dir2/file", true), None);
    assert_eq!(["dir2/file", "dir2/sub", "dir2"].map(remove), [None; 3]);
    assert_eq!(storage.list(None, None, 1).unwrap(), Listed::default());
}
