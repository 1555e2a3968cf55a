//! Tests of modes, owners, times and extended attributes at the receiver.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
};

use nicstripe_proto::tree::{Content, Entry, EntryId, Owner, TreeRules, Verdict, Xattr};

use super::{
    harness::{MTIME, RootDir, Sending, file, with},
    set_mtime,
};
use crate::tree::receiver::ReceiverRequest;

#[test]
fn modes_are_those_of_the_sender_or_less_the_mask() {
    let mask = crate::file::umask();
    for modes in [true, false] {
        let ground = RootDir::new();
        let mut sending = ground.start(with(|rules| rules.modes = modes));
        let directory = sending.with_mode(0o1777, None, "d", Content::Directory);
        let id = sending.with_mode(0o466, Some(directory), "f", file(1));
        sending.end(directory);
        sending.content(id, b"x");
        sending.report();
        let mode = |path: &str| fs::metadata(ground.at(path)).unwrap().mode() & 0o7777;
        let expected = if modes {
            (0o1777, 0o466)
        } else {
            (0o777 & !mask, 0o466 & !mask)
        };
        assert_eq!((mode("d"), mode("d/f")), expected);
    }
}

#[test]
fn attributes_of_what_is_the_same_are_set() {
    let ground = RootDir::new();
    fs::create_dir(ground.at("d")).unwrap();
    fs::write(ground.at("d/f"), "x").unwrap();
    set_mtime(&ground.at("d/f"), MTIME);
    let mut sending = ground.start(with(|rules| rules.modes = true));
    let directory = sending.with_mode(0o500, None, "d", Content::Directory);
    let id = sending.with_mode(0o400, Some(directory), "f", file(1));
    sending.end(directory);
    sending.report();
    assert_eq!(sending.verdict(directory), Verdict::Same);
    assert_eq!(sending.verdict(id), Verdict::Same);
    let [directory, inside] = ["d", "d/f"].map(|path| fs::metadata(ground.at(path)).unwrap());
    assert_eq!(directory.mode() & 0o7777, 0o500);
    assert_eq!(inside.mode() & 0o7777, 0o400);
    assert_eq!(directory.mtime(), MTIME.seconds);
}

#[test]
fn extended_attributes_are_kept_and_others_removed() {
    let ground = RootDir::new();
    fs::write(ground.at("same"), "x").unwrap();
    set_mtime(&ground.at("same"), MTIME);
    let set = |path: &Path, name: &str| {
        rustix::fs::setxattr(path, name, b"old", rustix::fs::XattrFlags::empty())
    };
    set(&ground.at("same"), "user.gone")
        .expect("temporary files are on a file system with extended attributes");
    let xattr = |name: &[u8]| Xattr {
        name: name.to_vec().into(),
        value: b"value".to_vec().into(),
    };
    let xattrs = Some(vec![
        xattr(b"user.kept"),
        xattr(b"security.nicstripe"),
        xattr(b"trusted.nicstripe"),
    ]);
    let mut sending = ground.start(with(|rules| rules.xattrs = true));
    for own in ["same", "new"] {
        let entry = Entry {
            xattrs: xattrs.clone(),
            ..sending.plain(None, own, file(1))
        };
        sending.tell(entry);
    }
    sending.content(EntryId(1), b"x");
    sending.report();
    for own in ["same", "new"] {
        let mut list = [0; 256];
        let len = rustix::fs::listxattr(ground.at(own), &mut list[..]).unwrap();
        assert_eq!(&list[..len], b"user.kept\0", "{own}");
    }
}

fn start_without_privilege(ground: &RootDir, rules: TreeRules) -> Sending {
    Sending::start(ReceiverRequest {
        privileged: false,
        ..ground.request(rules)
    })
}

#[test]
fn bits_that_lend_rights_stay_as_the_receiver_has_them_where_the_sender_may_not_give_them() {
    let is_root = rustix::process::geteuid().is_root();
    for modes in [true, false] {
        let ground = RootDir::new();
        let mode = |path: &str, mode| {
            fs::set_permissions(ground.at(path), fs::Permissions::from_mode(mode)).unwrap();
        };
        for dir in ["plain", "shared"] {
            fs::create_dir(ground.at(dir)).unwrap();
        }
        mode("shared", 0o2775);
        fs::write(ground.at("plain/there"), "x").unwrap();
        set_mtime(&ground.at("plain/there"), MTIME);
        mode("plain/there", 0o4711);
        let owner = is_root.then_some(Owner { uid: 0, gid: 0 });
        let mut sending = start_without_privilege(
            &ground,
            with(|rules| (rules.modes, rules.owners) = (modes, is_root)),
        );
        for (dir, bits) in [("plain", 0o2755), ("shared", 0o755)] {
            let entry = Entry {
                mode: bits,
                owner,
                ..sending.plain(None, dir, Content::Directory)
            };
            let id = sending.tell(entry);
            let entry = Entry {
                mode: 0o7755,
                owner,
                ..sending.plain(Some(id), "new", Content::Directory)
            };
            let new = sending.tell(entry);
            sending.end(new);
            let entry = Entry {
                mode: 0o6755,
                owner,
                ..sending.plain(Some(id), "file", file(1))
            };
            let file = sending.tell(entry);
            if dir == "plain" {
                let entry = Entry {
                    mode: 0o4755,
                    owner,
                    ..sending.plain(Some(id), "there", super::harness::file(1))
                };
                sending.tell(entry);
            }
            sending.end(id);
            sending.content(file, b"x");
        }
        let report = sending.report();
        // Both new directories and their files, the existing directory and the existing file.
        assert_eq!(report.stripped, if modes { 6 } else { 0 });
        assert_eq!(report.failed, 0);
        let bits = |path: &str| fs::metadata(ground.at(path)).unwrap().mode() & 0o7000;
        let sticky = if modes { 0o1000 } else { 0 };
        assert_eq!(bits("plain"), 0);
        assert_eq!(bits("plain/new"), sticky);
        assert_eq!(bits("plain/file"), 0);
        assert_eq!(
            (bits("shared"), bits("shared/new"), bits("shared/file")),
            (0o2000, 0o2000 | sticky, 0),
            "handed down"
        );
        let there = ground.meta("plain/there").mode() & 0o7777;
        assert_eq!(there, 0o4711, "it was there before: nobody else may run it");
    }
}

#[test]
fn where_a_default_acl_decides_on_new_files_it_decides_on_received_ones() {
    // Version 2; then the owner rwx, the group r-x, user 1 rwx, the mask rwx, others nothing.
    let entries: [(u16, u16, u32); 5] = [
        (0x01, 7, u32::MAX),
        (0x02, 7, 1),
        (0x04, 5, u32::MAX),
        (0x10, 7, u32::MAX),
        (0x20, 0, u32::MAX),
    ];
    let mut acl = 2u32.to_le_bytes().to_vec();
    for (tag, bits, id) in entries {
        acl.extend([tag.to_le_bytes(), bits.to_le_bytes()].as_flattened());
        acl.extend(id.to_le_bytes());
    }
    let ground = RootDir::new();
    let root = fs::File::open(ground.root()).unwrap();
    let none = rustix::fs::XattrFlags::empty();
    rustix::fs::fsetxattr(&root, "system.posix_acl_default", &acl, none)
        .expect("temporary files are on a file system with ACLs");
    let mut sending = ground.start(TreeRules::default());
    let file = sending.entry(None, "file", file(1));
    let large = sending.directory(None, "dir");
    let within = sending.entry(Some(large), "within", super::harness::file(1));
    sending.end(large);
    for id in [file, within] {
        sending.content(id, b"x");
    }
    assert_eq!(sending.report().failed, 0);
    let builder = |mode| {
        let mut builder = fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, mode);
        builder
    };
    builder(0o755).create(ground.at("made-dir")).unwrap();
    let mut options = fs::File::options();
    std::os::unix::fs::OpenOptionsExt::mode(options.write(true).create(true), 0o644);
    drop(options.open(ground.at("made")).unwrap());
    let mode = |path: &str| fs::metadata(ground.at(path)).unwrap().mode() & 0o7777;
    assert_eq!((mode("made"), mode("made-dir")), (0o640, 0o750));
    assert_eq!((mode("file"), mode("dir/within")), (0o640, 0o640));
    assert_eq!(mode("dir"), 0o750);

    // With the sender's attributes nothing is inherited.
    let mut sending = ground.start(with(|rules| rules.xattrs = true));
    let mut tell = |parent, own, content| {
        let plain = sending.plain(parent, own, content);
        let xattrs = Some(Vec::new());
        sending.tell(Entry { xattrs, ..plain })
    };
    let exact = tell(None, "exact", super::harness::file(1));
    let dir = tell(None, "exact-dir", Content::Directory);
    let within = tell(Some(dir), "within", super::harness::file(1));
    sending.end(dir);
    for id in [exact, within] {
        sending.content(id, b"x");
    }
    assert_eq!(sending.report().failed, 0);
    for path in ["exact", "exact-dir", "exact-dir/within"] {
        let mut list = [0; 256];
        let len = rustix::fs::listxattr(ground.at(path), &mut list[..]).unwrap();
        assert_eq!(&list[..len], b"", "{path}");
    }
}
