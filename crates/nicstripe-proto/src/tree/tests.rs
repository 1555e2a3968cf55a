use proptest::{collection::vec, option, prelude::*};

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

fn batch_of(record: &Record<'_>) -> Vec<u8> {
    let mut buffer = vec![0xee; 4096];
    let mut writer = BatchWriter::new(&mut buffer, 0);
    assert!(writer.push(record));
    let len = writer.len();
    buffer.truncate(len);
    buffer
}

#[test]
fn records_other_than_entries_are_pinned() {
    let cases = [
        (
            Record::EndDirectory {
                id: EntryId(3),
                complete: true,
            },
            "02010000",
            "00000000",
            "0300000000000000",
            "",
        ),
        (
            Record::EndDirectory {
                id: EntryId(3),
                complete: false,
            },
            "02000000",
            "00000000",
            "0300000000000000",
            "",
        ),
        (
            Record::Piece {
                id: EntryId(0x0102_0304_0506_0708),
                offset: 0x0a0b,
                last: false,
                bytes: b"hi",
            },
            "03000000",
            "0a000000",
            "0807060504030201",
            "0b0a0000000000006869",
        ),
        (
            Record::Piece {
                id: EntryId(4),
                offset: 0,
                last: true,
                bytes: b"",
            },
            "03010000",
            "08000000",
            "0400000000000000",
            "0000000000000000",
        ),
        (
            Record::Abandoned {
                id: EntryId(5),
                reason: reason("x"),
            },
            "04000000",
            "06000000",
            "0500000000000000",
            "a20003016178",
        ),
        (
            Record::Trouble(Box::new(Trouble {
                name: Some(name("a")),
                reason: reason("x"),
                label: None,
            })),
            "05000000",
            "0c000000",
            "0000000000000000",
            "a20081416101a20003016178",
        ),
        (
            Record::Trouble(Box::new(Trouble {
                name: None,
                reason: reason("x"),
                label: Some("/l".into()),
            })),
            "05000000",
            "0c000000",
            "0000000000000000",
            "a201a2000301617802622f6c",
        ),
        (
            Record::Special(Box::new(Special {
                name: name("a/s"),
                large: None,
            })),
            "06000000",
            "07000000",
            "0000000000000000",
            "a1008241614173",
        ),
    ];
    for (record, kind, len, id, body) in cases {
        assert_eq!(
            hex(&batch_of(&record)),
            format!("{kind}{len}{id}{body}"),
            "{record:?}"
        );
    }
}

#[test]
fn entries_are_pinned() {
    // A map of the fields that are set: 0 ID, 1 parent, 2 name, 3 content, 4 mode, 5 mtime, 6
    // owner, 7 extended attributes.
    let head = "0007010202814261620382";
    let tail = "041901a405822005";
    let digest = Some(Digest([0xdd; 32]));
    let digest_hex = format!("5820{}", "dd".repeat(32));
    let to = EntryId(1);
    let cases = [
        (
            Content::File {
                size: 300,
                alone: true,
                digest: None,
            },
            "008219012cf5".to_string(),
        ),
        (
            Content::File {
                size: 0,
                alone: false,
                digest,
            },
            format!("008300f4{digest_hex}"),
        ),
        (Content::Directory, "0180".into()),
        (
            Content::Symlink {
                target: b"x/y".to_vec(),
            },
            "028143782f79".into(),
        ),
        (
            Content::HardLink {
                to,
                path: name("a/b"),
            },
            "0382018241614162".into(),
        ),
    ];
    for (content, body) in cases {
        let body = format!("a6{head}{body}{tail}");
        let len = body.len() / 2;
        let header = format!("01000000{len:02x}0000000700000000000000");
        assert_eq!(
            hex(&batch_of(&Record::Entry(Box::new(entry(content))))),
            header + &body
        );
    }
}

#[test]
fn an_entry_with_everything_is_pinned() {
    let xattr = Xattr {
        name: b"user.a".to_vec().into(),
        value: vec![1].into(),
    };
    let owner = Some(Owner { uid: 1000, gid: 0 });
    let full = Entry {
        owner,
        xattrs: Some(vec![xattr]),
        ..entry(Content::Directory)
    };
    // The map, then field 3 (a directory), 4, 5, 6 (the owner), and 7 (one attribute: its name and
    // value).
    let expected = [
        "a80007010202814261620382",
        "0180",
        "041901a405822005",
        "06821903e800",
        "07818246757365722e614101",
    ]
    .concat();
    assert_eq!(hex(&minicbor::to_vec(&full).unwrap()), expected);
    let named = |user, group| {
        let name = |name: Option<&str>| name.and_then(OwnerName::new);
        Entry {
            owner,
            owner_names: Some(OwnerNames {
                user: name(user),
                group: name(group),
                acl: None,
            }),
            ..entry(Content::Directory)
        }
    };
    // A map of the known names: 0 user, 1 group.
    for (user, group, names) in [
        (Some("al"), Some("ß"), "08a20062616c0162c39f"),
        (None, Some("g"), "08a1016167"),
        (None, None, "08a0"),
    ] {
        let expected = [
            "a80007010202814261620382",
            "0180",
            "041901a405822005",
            "06821903e800",
            names,
        ]
        .concat();
        assert_eq!(
            hex(&minicbor::to_vec(named(user, group)).unwrap()),
            expected
        );
    }
    let linked = Entry {
        linked: true,
        ..entry(Content::Directory)
    };
    assert_eq!(
        hex(&minicbor::to_vec(&linked).unwrap()),
        "a700070102028142616203820180041901a40582200509f5"
    );
    let hashed = Entry {
        inode_hash: Some(500),
        ..entry(Content::Directory)
    };
    assert_eq!(
        hex(&minicbor::to_vec(&hashed).unwrap()),
        "a700070102028142616203820180041901a405822005".to_owned() + "0a1901f4"
    );
    let nameless = Entry {
        parent: None,
        name: None,
        ..entry(Content::Directory)
    };
    assert_eq!(
        hex(&minicbor::to_vec(&nameless).unwrap()),
        "a4000703820180041901a405822005"
    );
}

#[test]
fn messages_are_pinned() {
    let verdicts = [
        Verdict::Create,
        Verdict::Replace,
        Verdict::Same,
        Verdict::Newer,
        Verdict::Exists,
        Verdict::Refused,
    ];
    let message = TreeMessage::Verdicts {
        first: EntryId(9),
        verdicts: verdicts.to_vec(),
    };
    assert_eq!(
        hex(&minicbor::to_vec(&message).unwrap()),
        "8200820986000102030405"
    );
    let failed = vec![
        EntryFailure {
            id: Some(EntryId(4)),
            code: FailCode::Io,
            text: "no".into(),
        },
        EntryFailure {
            id: None,
            code: FailCode::NoSpace,
            text: String::new(),
        },
    ];
    let message = TreeMessage::Results {
        done: vec![(EntryId(1), 3)],
        failed,
        deleted: vec![name("a/b")],
        stripped: None,
    };
    let expected = "8201838182010382a30004010302626e6fa201040260818241614162";
    assert_eq!(hex(&minicbor::to_vec(&message).unwrap()), expected);
}

#[test]
fn rules_are_pinned() {
    let rules = TreeRules {
        replace: true,
        delete: true,
        filters: vec!["*.o".into()],
        ..TreeRules::default()
    };
    let expected = "a900f501f402f403f404f405f406f507f40881632a2e6f";
    assert_eq!(hex(&minicbor::to_vec(&rules).unwrap()), expected);
    assert_eq!(
        minicbor::decode::<TreeRules>(&minicbor::to_vec(&rules).unwrap()).unwrap(),
        rules
    );
    let rules = TreeRules {
        owners: true,
        numeric_ids: true,
        hard_links: true,
        ..TreeRules::default()
    };
    assert_eq!(
        hex(&minicbor::to_vec(&rules).unwrap()),
        "ab00f401f402f403f404f505f406f407f408800af50bf5"
    );
    assert_eq!(
        minicbor::decode::<TreeRules>(&minicbor::to_vec(&rules).unwrap()).unwrap(),
        rules
    );
}

#[test]
fn a_batch_goes_on_where_it_was_left_and_takes_nothing_that_does_not_fit() {
    let mut buffer = [0; 2 * PIECE + 3];
    const PIECE: usize = batch::PIECE_HEADER;
    let record = Record::Piece {
        id: EntryId(1),
        offset: 0,
        last: true,
        bytes: b"abc",
    };
    let mut writer = BatchWriter::new(&mut buffer, 0);
    assert!(writer.is_empty() && writer.push(&record));
    let len = writer.len();
    let mut writer = BatchWriter::new(&mut buffer, len);
    assert_eq!(writer.room(), PIECE);
    assert!(!writer.push(&record) && writer.len() == len);
    let empty = Record::Piece {
        id: EntryId(2),
        offset: 3,
        last: false,
        bytes: b"",
    };
    assert!(writer.push(&empty) && writer.room() == 0);
    assert!(!writer.push(&Record::Abandoned {
        id: EntryId(3),
        reason: reason("")
    }));
    assert_eq!(
        BatchReader::new(&buffer)
            .collect::<Result<Vec<_>, _>>()
            .unwrap(),
        [record, empty]
    );
}

#[test]
fn what_a_batch_must_not_have_is_refused() {
    let good = batch_of(&Record::Piece {
        id: EntryId(1),
        offset: 0,
        last: false,
        bytes: b"abc",
    });
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
    let mut batch = batch_of(&Record::Entry(Box::new(entry(Content::Directory))));
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

fn any_name() -> impl Strategy<Value = Name> {
    vec(vec(1..=255u8, 1..8), 1..4)
        .prop_filter_map("not plain", |components| Name::new(components).ok())
}

fn any_content() -> impl Strategy<Value = Content> {
    prop_oneof![
        (any::<u64>(), any::<bool>(), option::of(any::<[u8; 32]>())).prop_map(
            |(size, alone, digest)| Content::File {
                size,
                alone,
                digest: digest.map(Digest)
            }
        ),
        Just(Content::Directory),
        vec(any::<u8>(), 0..40).prop_map(|target| Content::Symlink { target }),
        (any::<u64>(), any_name()).prop_map(|(to, path)| Content::HardLink {
            to: EntryId(to),
            path
        }),
    ]
}

fn any_entry() -> impl Strategy<Value = Entry> {
    let place = (
        any::<u64>(),
        option::of(any::<u64>()),
        option::of(any_name()),
    );
    let attributes = (any::<(u32, i64, u32)>(), option::of(any::<(u32, u32)>()));
    let xattrs = option::of(vec(
        (vec(any::<u8>(), 0..20), vec(any::<u8>(), 0..20)),
        0..3,
    ));
    let account = || {
        option::of("[^\\p{Cc}:]{1,60}").prop_map(|name| name.and_then(|name| OwnerName::new(&name)))
    };
    let owner_names = option::of((account(), account()).prop_map(|(user, group)| {
        let acl = user.iter().map(|name| AclName {
            kind: AclKind::Group,
            id: 7,
            name: name.clone(),
        });
        OwnerNames {
            acl: AclNames::new(acl.collect()),
            user,
            group,
        }
    }));
    (place, any_content(), attributes, xattrs, owner_names).prop_map(
        |((id, parent, name), content, attributes, xattrs, owner_names)| {
            let ((mode, seconds, nanoseconds), owner) = attributes;
            let xattrs = xattrs.map(|all| {
                all.into_iter()
                    .map(|(name, value)| Xattr {
                        name: name.into(),
                        value: value.into(),
                    })
                    .collect()
            });
            Entry {
                id: EntryId(id),
                parent: parent.map(EntryId),
                name,
                content,
                mode,
                mtime: Timestamp {
                    seconds,
                    nanoseconds,
                },
                owner: owner.map(|(uid, gid)| Owner { uid, gid }),
                xattrs,
                owner_names,
                linked: id % 2 == 1,
                inode_hash: (id % 3 == 1).then_some(id),
            }
        },
    )
}

#[derive(Debug, Clone)]
enum Owned {
    Entry(Box<Entry>),
    End(u64, bool),
    Piece(u64, u64, bool, Vec<u8>),
    Abandoned(u64, String),
    Trouble(Option<Name>, String),
    Special(Name),
}

impl Owned {
    fn record(&self) -> Record<'_> {
        match self {
            Self::Entry(entry) => Record::Entry(entry.clone()),
            Self::End(id, complete) => Record::EndDirectory {
                id: EntryId(*id),
                complete: *complete,
            },
            Self::Piece(id, offset, last, bytes) => Record::Piece {
                id: EntryId(*id),
                offset: *offset,
                last: *last,
                bytes,
            },
            Self::Abandoned(id, text) => Record::Abandoned {
                id: EntryId(*id),
                reason: reason(text),
            },
            Self::Trouble(name, text) => {
                let label = name.is_none().then(|| text.clone());
                Record::Trouble(Box::new(Trouble {
                    name: name.clone(),
                    reason: reason(text),
                    label,
                }))
            }
            Self::Special(name) => Record::Special(Box::new(Special {
                name: name.clone(),
                large: None,
            })),
        }
    }
}

fn any_record() -> impl Strategy<Value = Owned> {
    prop_oneof![
        any_entry().prop_map(|entry| Owned::Entry(Box::new(entry))),
        any::<(u64, bool)>().prop_map(|(id, complete)| Owned::End(id, complete)),
        (any::<(u64, u64, bool)>(), vec(any::<u8>(), 0..50))
            .prop_map(|((id, offset, last), bytes)| Owned::Piece(id, offset, last, bytes)),
        (any::<u64>(), ".{0,20}").prop_map(|(id, text)| Owned::Abandoned(id, text)),
        (option::of(any_name()), ".{0,20}").prop_map(|(name, text)| Owned::Trouble(name, text)),
        any_name().prop_map(Owned::Special),
    ]
}

fn any_message() -> impl Strategy<Value = TreeMessage> {
    let verdict = prop::sample::select(vec![
        Verdict::Create,
        Verdict::Replace,
        Verdict::Same,
        Verdict::Newer,
        Verdict::Exists,
        Verdict::Refused,
    ]);
    let failure = (option::of(any::<u64>()), ".{0,20}").prop_map(|(id, text)| EntryFailure {
        id: id.map(EntryId),
        code: FailCode::Refused,
        text,
    });
    let done = vec(any::<(u64, u64)>(), 0..4).prop_map(|done| {
        done.into_iter()
            .map(|(first, count)| (EntryId(first), count))
            .collect()
    });
    prop_oneof![
        (any::<u64>(), vec(verdict, 0..20)).prop_map(|(first, verdicts)| TreeMessage::Verdicts {
            first: EntryId(first),
            verdicts
        }),
        (
            done,
            vec(failure, 0..3),
            vec(any_name(), 0..3),
            option::of(any::<u64>())
        )
            .prop_map(|(done, failed, deleted, stripped)| TreeMessage::Results {
                done,
                failed,
                deleted,
                stripped
            }),
    ]
}

fn batch_of_all(records: &[Owned]) -> Vec<u8> {
    let mut buffer = vec![0; 64 * 1024];
    let mut writer = BatchWriter::new(&mut buffer, 0);
    assert!(records.iter().all(|record| writer.push(&record.record())));
    let len = writer.len();
    buffer.truncate(len);
    buffer
}

proptest! {
    #[test]
    fn records_come_back_as_they_were(records in vec(any_record(), 0..8)) {
        let batch = batch_of_all(&records);
        let read: Vec<Record<'_>> = BatchReader::new(&batch).collect::<Result<_, _>>().unwrap();
        prop_assert_eq!(read, records.iter().map(Owned::record).collect::<Vec<_>>());
    }

    #[test]
    fn a_batch_that_is_cut_gives_what_is_whole_and_one_error(records in vec(any_record(), 1..5), cut in any::<prop::sample::Index>()) {
        let batch = batch_of_all(&records);
        let at = cut.index(batch.len());
        let read: Vec<_> = BatchReader::new(&batch[..at]).collect();
        let whole = read.iter().take_while(|record| record.is_ok()).count();
        prop_assert!(read.len() - whole <= 1);
        for (read, record) in read.iter().flatten().zip(&records) {
            prop_assert_eq!(read, &record.record());
        }
    }

    #[test]
    fn a_batch_of_anything_is_read_without_panic(
        records in vec(any_record(), 1..4),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        noise in vec(any::<u8>(), 0..200),
    ) {
        let mut batch = batch_of_all(&records);
        changes.iter().for_each(|(at, value)| {
            let at = at.index(batch.len());
            batch[at] = *value;
        });
        for bytes in [&batch[..], &noise[..]] {
            // Each record has at least a header, so the number of records is bounded.
            prop_assert!(BatchReader::new(bytes).count() <= bytes.len() / batch::RECORD_HEADER + 1);
        }
    }

    #[test]
    fn messages_come_back_as_they_were_and_damaged_ones_never_panic(
        message in any_message(),
        at in any::<prop::sample::Index>(),
        value in any::<u8>(),
    ) {
        let mut bytes = minicbor::to_vec(&message).unwrap();
        prop_assert_eq!(minicbor::decode::<TreeMessage>(&bytes).unwrap(), message);
        let at = at.index(bytes.len());
        prop_assert!(minicbor::decode::<TreeMessage>(&bytes[..at]).is_err());
        bytes[at] = value;
        let _ = minicbor::decode::<TreeMessage>(&bytes);
    }
}
