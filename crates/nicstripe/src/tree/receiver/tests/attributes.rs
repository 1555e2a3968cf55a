//! Modes, owners, times and extended attributes.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use nicstripe_proto::tree::{Content, Entry, EntryId, Owner, TreeRules, Verdict, Xattr};

use super::{
    harness::{Ground, MTIME, file, symlink},
    set_mtime,
};

#[test]
fn modes_are_those_of_the_sender_or_less_the_mask() {
    let mask = crate::file::umask();
    for modes in [true, false] {
        let ground = Ground::new();
        let mut sending = ground.start(TreeRules { modes, ..TreeRules::default() });
        let entry = Entry { mode: 0o1777, ..sending.plain(None, "d", Content::Directory) };
        let directory = sending.tell(entry);
        let entry = Entry { mode: 0o466, ..sending.plain(Some(directory), "f", file(1)) };
        let id = sending.tell(entry);
        sending.end(directory);
        sending.content(id, b"x");
        sending.report();
        let mode = |path: &str| fs::metadata(ground.at(path)).unwrap().mode() & 0o7777;
        let expected = if modes { (0o1777, 0o466) } else { (0o777 & !mask, 0o466 & !mask) };
        assert_eq!((mode("d"), mode("d/f")), expected);
    }
}

#[test]
fn attributes_of_what_is_the_same_are_set() {
    let ground = Ground::new();
    fs::create_dir(ground.at("d")).unwrap();
    fs::write(ground.at("d/f"), "x").unwrap();
    set_mtime(&ground.at("d/f"), MTIME);
    let mut sending = ground.start(TreeRules { modes: true, ..TreeRules::default() });
    let entry = Entry { mode: 0o500, ..sending.plain(None, "d", Content::Directory) };
    let directory = sending.tell(entry);
    let entry = Entry { mode: 0o400, ..sending.plain(Some(directory), "f", file(1)) };
    let id = sending.tell(entry);
    sending.end(directory);
    sending.report();
    assert_eq!((sending.verdict(directory), sending.verdict(id)), (Verdict::Same, Verdict::Same));
    let [directory, inside] = ["d", "d/f"].map(|path| fs::metadata(ground.at(path)).unwrap());
    assert_eq!((directory.mode() & 0o7777, inside.mode() & 0o7777, directory.mtime()), (0o500, 0o400, MTIME.seconds));
}

#[test]
fn extended_attributes_of_a_symbolic_link_are_kept_with_its_owner_alone() {
    let ground = Ground::new();
    std::os::unix::fs::symlink("x", ground.at("probe")).unwrap();
    if rustix::fs::lsetxattr(ground.at("probe"), "trusted.a", b"1", rustix::fs::XattrFlags::empty()).is_err() {
        return eprintln!("skipped: no right, or no file system, for extended attributes of symbolic links");
    }
    for owners in [true, false] {
        let mut sending = ground.start(TreeRules { owners, xattrs: true, ..TreeRules::default() });
        let xattrs = ["trusted.a", "user.b"].map(|name| Xattr { name: name.as_bytes().to_vec().into(), value: b"one".to_vec().into() });
        let plain = sending.plain(None, &format!("link-{owners}"), symlink("nowhere"));
        sending.tell(Entry { owner: Some(Owner { uid: 0, gid: 0 }), xattrs: Some(xattrs.into()), ..plain });
        let report = sending.report();
        assert_eq!((report.symlinks, report.failed), (1, 0));
        let mut value = [0; 8];
        let found = rustix::fs::lgetxattr(ground.at(&format!("link-{owners}")), "trusted.a", &mut value[..]);
        assert_eq!(found.map(|len| value[..len].to_vec()).ok(), owners.then(|| b"one".to_vec()));
    }
}

#[test]
fn set_user_id_is_kept_with_its_owner_alone() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: owners are root's to give");
    }
    for owners in [true, false] {
        let ground = Ground::new();
        let mut sending = ground.start(TreeRules { modes: true, owners, ..TreeRules::default() });
        let entry = Entry { mode: 0o4755, owner: Some(Owner { uid: 1234, gid: 2345 }), ..sending.plain(None, "f", file(1)) };
        let id = sending.tell(entry);
        sending.content(id, b"x");
        sending.report();
        let meta = fs::metadata(ground.at("f")).unwrap();
        let expected = if owners { (1234, 2345, 0o4755) } else { (0, 0, 0o755) };
        assert_eq!((meta.uid(), meta.gid(), meta.mode() & 0o7777), expected);
    }
}

#[test]
fn extended_attributes_are_kept_and_others_removed() {
    let ground = Ground::new();
    fs::write(ground.at("same"), "x").unwrap();
    set_mtime(&ground.at("same"), MTIME);
    let set = |path: &Path, name: &str| rustix::fs::setxattr(path, name, b"old", rustix::fs::XattrFlags::empty());
    if set(&ground.at("same"), "user.gone").is_err() {
        return eprintln!("skipped: no extended attributes here");
    }
    let xattr = |name: &[u8]| Xattr { name: name.to_vec().into(), value: b"value".to_vec().into() };
    let xattrs = Some(vec![xattr(b"user.kept"), xattr(b"security.nicstripe"), xattr(b"trusted.nicstripe")]);
    let mut sending = ground.start(TreeRules { xattrs: true, ..TreeRules::default() });
    for own in ["same", "new"] {
        let entry = Entry { xattrs: xattrs.clone(), ..sending.plain(None, own, file(1)) };
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
