use super::*;
use crate::{
    failure::FailCode,
    file::{hash_tree::Digest, journal::Timestamp, name::Name},
};

fn name(text: &str) -> Name {
    Name::parse(text.as_bytes()).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn entry(content: Content) -> Entry {
    Entry {
        id: EntryId(7),
        parent: Some(EntryId(2)),
        name: Some(name("ab")),
        content,
        mode: 0o644,
        mtime: Timestamp {
            seconds: -1,
            nanoseconds: 5,
        },
        owner: None,
        xattrs: None,
        owner_names: None,
        linked: false,
        inode_hash: None,
    }
}

fn reason(text: &str) -> Reason {
    Reason {
        code: FailCode::Io,
        text: text.into(),
    }
}

fn batch_of(records: &[Record<'_>]) -> Vec<u8> {
    let mut buffer = vec![0xee; 4096];
    let mut writer = BatchWriter::new(&mut buffer, 0);
    assert!(records.iter().all(|record| writer.push(record)));
    let len = writer.len();
    buffer.truncate(len);
    buffer
}

fn read(batch: &[u8]) -> Vec<Result<Record<'_>, BatchError>> {
    BatchReader::new(batch).collect()
}

fn end(complete: bool) -> Record<'static> {
    let id = EntryId(3);
    Record::EndDirectory { id, complete }
}

fn piece(id: u64, offset: u64, last: bool, bytes: &[u8]) -> Record<'_> {
    Record::Piece {
        id: EntryId(id),
        offset,
        last,
        bytes,
    }
}

fn abandoned(text: &str) -> Record<'static> {
    Record::Abandoned {
        id: EntryId(5),
        reason: reason(text),
    }
}

fn trouble(name: Option<Name>, label: Option<&str>) -> Record<'static> {
    Record::Trouble(Box::new(Trouble {
        name,
        reason: reason("x"),
        label: label.map(Into::into),
    }))
}

fn special() -> Record<'static> {
    Record::Special(Box::new(Special {
        name: name("a/s"),
        large: None,
    }))
}

/// Asserts that the record has these bytes, and that they are read as this record.
#[track_caller]
fn pinned(record: &Record<'_>, expected: &str) {
    let batch = batch_of(std::slice::from_ref(record));
    assert_eq!(hex(&batch), expected.replace(' ', ""), "{record:?}");
    assert_eq!(read(&batch), [Ok(record.clone())]);
}

#[test]
fn records_other_than_entries_are_pinned() {
    for (record, expected) in [
        (end(true), "02010000 00000000 0300000000000000"),
        (end(false), "02000000 00000000 0300000000000000"),
        (
            piece(0x0102_0304_0506_0708, 0x0a0b, false, b"hi"),
            "03000000 0a000000 0807060504030201 0b0a0000000000006869",
        ),
        (
            piece(4, 0, true, b""),
            "03010000 08000000 0400000000000000 0000000000000000",
        ),
        (
            abandoned("x"),
            "04000000 06000000 0500000000000000 a20003016178",
        ),
        (
            trouble(Some(name("a")), None),
            "05000000 0c000000 0000000000000000 a20081416101a20003016178",
        ),
        (
            trouble(None, Some("/l")),
            "05000000 0c000000 0000000000000000 a201a2000301617802622f6c",
        ),
        (
            special(),
            "06000000 07000000 0000000000000000 a1008241614173",
        ),
    ] {
        pinned(&record, expected);
    }
}

#[test]
fn entries_are_pinned() {
    let owner = Some(Owner { uid: 1000, gid: 0 });
    let file = |size, alone, digest| {
        entry(Content::File {
            size,
            alone,
            digest,
        })
    };
    let directory = || entry(Content::Directory);
    let named = |user: Option<&str>, group: Option<&str>| Entry {
        owner,
        owner_names: Some(OwnerNames {
            user: user.and_then(OwnerName::new),
            group: group.and_then(OwnerName::new),
            acl: None,
        }),
        ..directory()
    };
    let link = b"x/y".to_vec();
    let (to, path) = (EntryId(1), name("a/b"));
    let xattr = Xattr {
        name: b"user.a".to_vec().into(),
        value: vec![1].into(),
    };
    let full = Entry {
        owner,
        xattrs: Some(vec![xattr]),
        ..directory()
    };
    let linked = Entry {
        linked: true,
        ..directory()
    };
    let hashed = Entry {
        inode_hash: Some(500),
        ..directory()
    };
    let nameless = Entry {
        parent: None,
        name: None,
        ..directory()
    };
    // A map of the fields that are set: 0 ID, 1 parent, 2 name, 3 content, 4 mode, 5 mtime, 6
    // owner, 7 extended attributes, 8 the known names (0 user, 1 group), 9 linked, 10 inode hash.
    let (place, times) = ("0102 0281426162", "041901a4 05822005");
    let digest = format!("008300f45820{}", "dd".repeat(32));
    for (entry, count, place, content, rest) in [
        (file(300, true, None), 6, place, "008219012cf5", ""),
        (
            file(0, false, Some(Digest([0xdd; 32]))),
            6,
            place,
            &*digest,
            "",
        ),
        (directory(), 6, place, "0180", ""),
        (
            entry(Content::Symlink { target: link }),
            6,
            place,
            "028143782f79",
            "",
        ),
        (
            entry(Content::HardLink { to, path }),
            6,
            place,
            "0382018241614162",
            "",
        ),
        (
            full,
            8,
            place,
            "0180",
            "06821903e800 07818246757365722e614101",
        ),
        (
            named(Some("al"), Some("ß")),
            8,
            place,
            "0180",
            "06821903e800 08a20062616c0162c39f",
        ),
        (
            named(None, Some("g")),
            8,
            place,
            "0180",
            "06821903e800 08a1016167",
        ),
        (named(None, None), 8, place, "0180", "06821903e800 08a0"),
        (linked, 7, place, "0180", "09f5"),
        (hashed, 7, place, "0180", "0a1901f4"),
        (nameless, 4, "", "0180", ""),
    ] {
        let body = format!("a{count}0007{place}0382{content}{times}{rest}").replace(' ', "");
        let header = format!("01000000 {:02x}000000 0700000000000000", body.len() / 2);
        pinned(&Record::Entry(Box::new(entry)), &(header + &body));
    }
}

#[test]
fn messages_are_pinned() {
    let verdicts = vec![
        Verdict::Create,
        Verdict::Replace,
        Verdict::Same,
        Verdict::Newer,
        Verdict::Exists,
        Verdict::Refused,
    ];
    let failed = |id, code, text: &str| EntryFailure {
        id,
        code,
        text: text.into(),
    };
    for (message, expected) in [
        (
            TreeMessage::Verdicts {
                first: EntryId(9),
                verdicts,
            },
            "8200820986000102030405",
        ),
        (
            TreeMessage::Results {
                done: vec![(EntryId(1), 3)],
                failed: vec![
                    failed(Some(EntryId(4)), FailCode::Io, "no"),
                    failed(None, FailCode::NoSpace, ""),
                ],
                deleted: vec![name("a/b")],
                stripped: None,
            },
            "8201838182010382a30004010302626e6fa201040260818241614162",
        ),
    ] {
        let bytes = minicbor::to_vec(&message).unwrap();
        assert_eq!(hex(&bytes), expected);
        assert_eq!(minicbor::decode::<TreeMessage>(&bytes).unwrap(), message);
    }
}

#[test]
fn rules_are_pinned() {
    for (rules, expected) in [
        (
            TreeRules {
                replace: true,
                delete: true,
                filters: vec!["*.o".into()],
                ..TreeRules::default()
            },
            "a900f501f402f403f404f405f406f507f40881632a2e6f",
        ),
        (
            TreeRules {
                owners: true,
                numeric_ids: true,
                hard_links: true,
                ..TreeRules::default()
            },
            "ab00f401f402f403f404f505f406f407f408800af50bf5",
        ),
    ] {
        let bytes = minicbor::to_vec(&rules).unwrap();
        assert_eq!(hex(&bytes), expected);
        assert_eq!(minicbor::decode::<TreeRules>(&bytes).unwrap(), rules);
    }
}

#[test]
fn a_batch_that_is_cut_gives_what_is_whole_and_one_error() {
    let records = [
        Record::Entry(Box::new(entry(Content::Directory))),
        piece(1, 2, true, b"abc"),
        trouble(Some(name("a")), None),
        special(),
    ];
    let batch = batch_of(&records);
    for cut in 0..batch.len() {
        let read = read(&batch[..cut]);
        let whole = read.iter().take_while(|record| record.is_ok()).count();
        assert!(whole < records.len() && read.len() - whole <= 1, "{cut}");
        assert!(read.iter().flatten().eq(&records[..whole]), "{cut}");
    }
}

#[test]
fn a_batch_goes_on_where_it_was_left_and_takes_nothing_that_does_not_fit() {
    let mut buffer = [0; 2 * PIECE + 3];
    const PIECE: usize = batch::PIECE_HEADER;
    let record = piece(1, 0, true, b"abc");
    let mut writer = BatchWriter::new(&mut buffer, 0);
    assert!(writer.is_empty() && writer.push(&record));
    let len = writer.len();
    let mut writer = BatchWriter::new(&mut buffer, len);
    assert_eq!(writer.room(), PIECE);
    assert!(!writer.push(&record) && writer.len() == len);
    let empty = piece(2, 3, false, b"");
    assert!(writer.push(&empty) && writer.room() == 0);
    assert!(!writer.push(&abandoned("")));
    assert_eq!(read(&buffer), [Ok(record), Ok(empty)]);
}

#[test]
fn what_a_batch_must_not_have_is_refused() {
    let good = batch_of(&[piece(1, 0, false, b"abc")]);
    let changed = |changes: &[(usize, u8)]| {
        let mut bad = good.clone();
        changes.iter().for_each(|(at, value)| bad[*at] = *value);
        BatchReader::new(&bad).last().unwrap().map(drop)
    };
    assert_eq!(changed(&[]), Ok(()));
    // An unknown kind, an invalid entry, and kinds without a body.
    assert_eq!(changed(&[(0, 0)]), Err(BatchError::Kind(0)));
    assert_eq!(changed(&[(0, 7)]), Err(BatchError::Kind(7)));
    for (kind, named) in [
        (1, "entry"),
        (2, "end of a directory"),
        (4, "reason of an abandoned file"),
        (5, "report of trouble"),
        (6, "special file"),
    ] {
        assert!(
            matches!(changed(&[(0, kind)]), Err(BatchError::Body { what, .. }) if what == named),
            "{kind}"
        );
    }
    // Invalid flags of a kind, and reserved bytes.
    for bad in [
        &[(1, 2)][..],
        &[(0, 1), (1, 1)],
        &[(0, 4), (1, 1)],
        &[(2, 1)],
        &[(3, 1)],
    ] {
        assert_eq!(changed(bad), Err(BatchError::Reserved), "{bad:?}");
    }
    // A body that extends beyond the end of the batch, and a body too short for an offset.
    assert_eq!(changed(&[(4, 12)]), Err(BatchError::Short));
    assert_eq!(changed(&[(7, 0xff)]), Err(BatchError::Short));
    assert_eq!(
        changed(&[(4, 7)]).unwrap_err().to_string(),
        "peer sent a batch with a malformed piece of a file: shorter than its offset"
    );
}

#[test]
fn an_entry_has_one_number_and_one_component() {
    let mut batch = batch_of(&[Record::Entry(Box::new(entry(Content::Directory)))]);
    batch[8] = 8;
    assert_eq!(
        BatchReader::new(&batch).next(),
        Some(Err(BatchError::Number { header: 8, body: 7 }))
    );
}

#[test]
fn an_entry_with_as_much_as_it_may_have_fits_into_a_batch() {
    // The shortest names cause the largest overhead: 4 bytes for each name of 6 bytes.
    let xattr = |_| Xattr {
        name: b"user.a".to_vec().into(),
        value: Vec::new().into(),
    };
    let path = Name::new(vec![vec![b'x'; 15]; 255]).unwrap();
    let content = Content::HardLink {
        to: EntryId(u64::MAX),
        path,
    };
    let name = OwnerName::new(&"x".repeat(OwnerName::MOST));
    let longest = (0..AclNames::MOST as u32).map(|id| AclName {
        kind: AclKind::User,
        id: u32::MAX - id,
        name: name.clone().unwrap(),
    });
    let owner_names = Some(OwnerNames {
        user: name.clone(),
        group: name.clone(),
        acl: AclNames::new(longest.collect()),
    });
    let full = Entry {
        xattrs: Some((0..entry::MOST_XATTR_BYTES / 6).map(xattr).collect()),
        owner_names,
        ..entry(content)
    };
    let mut buffer = vec![0; crate::wire::frame::MAX_PAYLOAD];
    assert!(BatchWriter::new(&mut buffer, 0).push(&Record::Entry(Box::new(full))));
}
