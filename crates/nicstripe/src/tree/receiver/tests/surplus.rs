//! Tests of the deletion of files that the sender does not have.

use std::{fs, os::unix::fs::MetadataExt};

use nicstripe_proto::tree::{Record, TreeRules};

use super::{
    harness::{MTIME, RootDir, Sending, file, with},
    replacing,
};
use crate::tree::{filter::Filters, receiver::ReceiverRequest};

/// Creates a target directory with files that the sender does not have.
fn with_surplus() -> RootDir {
    let ground = RootDir::new();
    for directory in ["d/gone/deep/deeper", "d/kept", "d/mixed", "beside"] {
        fs::create_dir_all(ground.at(directory)).unwrap();
    }
    for path in [
        "d/gone/deep/f",
        "d/told",
        "d/surplus",
        "d/mixed/x.log",
        "d/mixed/y",
        "d/x.log",
        "d/.f.01234567.nicstripe-part",
        "beside/f",
    ] {
        fs::write(ground.at(path), "x").unwrap();
    }
    std::os::unix::fs::symlink(ground.outside().join("dir"), ground.at("d/link")).unwrap();
    ground
}

#[test]
fn what_the_sender_does_not_have_is_deleted() {
    let ground = with_surplus();
    let filters = Filters::new(&["*.log".into()]).unwrap();
    let rules = TreeRules {
        delete: true,
        ..replacing()
    };
    let mut sending = Sending::start(ReceiverRequest {
        filters,
        ..ground.request(rules)
    });
    let directory = sending.directory(None, "d");
    let told = sending.entry(Some(directory), "told", file(1));
    let kept = sending.directory(Some(directory), "kept");
    sending.end(kept);
    sending.end(directory);
    sending.decide();
    sending.content(told, b"y");
    let report = sending.report();
    let left = [
        "beside",
        "beside/f",
        "d",
        "d/.f.01234567.nicstripe-part",
        "d/kept",
        "d/mixed",
        "d/mixed/x.log",
        "d/told",
        "d/x.log",
    ];
    assert_eq!(ground.names(), left);
    let mut deleted = sending.deleted.clone();
    deleted.sort();
    assert_eq!(
        deleted,
        [
            "d/gone",
            "d/gone/deep",
            "d/gone/deep/deeper",
            "d/gone/deep/f",
            "d/link",
            "d/mixed/y",
            "d/surplus"
        ]
    );
    assert_eq!((report.deleted, report.failed), (7, 0));
    assert_eq!(ground.meta("d").mtime(), MTIME.seconds);
}

#[test]
fn nothing_is_deleted_where_something_failed_or_could_not_be_read() {
    for complete in [true, false] {
        let ground = with_surplus();
        let before = ground.names();
        let mut sending = ground.start(with(|rules| rules.delete = true));
        let directory = sending.directory(None, "d");
        if complete {
            // Exists, differs, and may not be replaced.
            sending.entry(Some(directory), "told", file(1));
        }
        sending.push(&Record::EndDirectory {
            id: directory,
            complete,
        });
        assert_eq!(sending.report().deleted, 0);
        assert_eq!(ground.names(), before);
    }
}

#[test]
fn two_sources_in_one_target_are_no_surplus_of_each_other() {
    let ground = RootDir::new();
    fs::create_dir(ground.at("d")).unwrap();
    fs::write(ground.at("old"), "x").unwrap();
    let mut sending = ground.start(with(|rules| rules.delete = true));
    // `cp --delete one/ d other/d host:`, with one/d present.
    let whole = sending.directory(None, "");
    let inner = sending.directory(Some(whole), "d");
    let first = sending.entry(Some(inner), "first", file(1));
    sending.end(inner);
    sending.content(first, b"1");
    sending.wait_done(first);
    for (own, content) in [("second", b"2"), ("third", b"3")] {
        let directory = sending.directory(None, "d");
        let id = sending.entry(Some(directory), own, file(1));
        sending.content(id, content);
        sending.wait_done(id);
        sending.end(directory);
    }
    sending.end(whole);
    let report = sending.report();
    assert_eq!((report.failed, report.deleted), (0, 1));
    assert_eq!(ground.names(), ["d", "d/first", "d/second", "d/third"]);
}
