//! Modes, owners, times and extended attributes.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
};

use nicstripe_proto::tree::{Content, Entry, EntryId, Owner, OwnerName, OwnerNames, TreeRules, Verdict, Xattr};

use super::{
    harness::{Ground, MTIME, Sending, file, symlink},
    set_mtime,
};
use crate::tree::receiver::ReceiverRequest;

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
fn an_owner_is_whom_the_name_says_here_unless_numbers_are_kept() {
    let Ok(Some(nobody)) = nix::unistd::User::from_name("nobody") else { return eprintln!("skipped: no user `nobody` here") };
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: owners are root's to give");
    }
    let nobody = nobody.uid.as_raw();
    let names = |user: &str, group: &str| Some(OwnerNames { user: OwnerName::new(user), group: OwnerName::new(group) });
    for (numeric_ids, expected) in [(false, nobody), (true, 1234)] {
        let ground = Ground::new();
        fs::write(ground.at("same"), "x").unwrap();
        set_mtime(&ground.at("same"), MTIME);
        let mut sending = ground.start(TreeRules { owners: true, numeric_ids, ..TreeRules::default() });
        let owner = Some(Owner { uid: 1234, gid: 2345 });
        for (name, content) in [("dir", Content::Directory), ("link", symlink("x")), ("same", file(1)), ("new", file(1))] {
            let entry = Entry { owner, owner_names: names("nobody", "nobody-has-this"), ..sending.plain(None, name, content.clone()) };
            let id = sending.tell(entry);
            match name {
                "dir" => sending.end(id),
                "new" => sending.content(id, b"x"),
                _ => {}
            }
        }
        assert_eq!(sending.report().failed, 0);
        for name in ["dir", "link", "same", "new"] {
            let meta = fs::symlink_metadata(ground.at(name)).unwrap();
            assert_eq!((meta.uid(), meta.gid()), (expected, 2345), "{name} {numeric_ids}");
        }
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

fn start_without_privilege(ground: &Ground, rules: TreeRules) -> Sending {
    Sending::start(ReceiverRequest { privileged: false, ..ground.request(rules) })
}

#[test]
fn bits_that_lend_rights_stay_as_the_receiver_has_them_where_the_sender_may_not_give_them() {
    let is_root = rustix::process::geteuid().is_root();
    for modes in [true, false] {
        let ground = Ground::new();
        let mode = |path: &str, mode| fs::set_permissions(ground.at(path), fs::Permissions::from_mode(mode)).unwrap();
        for dir in ["plain", "shared"] {
            fs::create_dir(ground.at(dir)).unwrap();
        }
        mode("shared", 0o2775);
        fs::write(ground.at("plain/there"), "x").unwrap();
        set_mtime(&ground.at("plain/there"), MTIME);
        mode("plain/there", 0o4711);
        let owner = is_root.then_some(Owner { uid: 0, gid: 0 });
        let mut sending = start_without_privilege(&ground, TreeRules { modes, owners: is_root, ..TreeRules::default() });
        for (dir, bits) in [("plain", 0o2755), ("shared", 0o755)] {
            let entry = Entry { mode: bits, owner, ..sending.plain(None, dir, Content::Directory) };
            let id = sending.tell(entry);
            let entry = Entry { mode: 0o7755, owner, ..sending.plain(Some(id), "new", Content::Directory) };
            let new = sending.tell(entry);
            sending.end(new);
            let entry = Entry { mode: 0o6755, owner, ..sending.plain(Some(id), "file", file(1)) };
            let file = sending.tell(entry);
            if dir == "plain" {
                let entry = Entry { mode: 0o4755, owner, ..sending.plain(Some(id), "there", super::harness::file(1)) };
                sending.tell(entry);
            }
            sending.end(id);
            sending.content(file, b"x");
        }
        let report = sending.report();
        // Both new directories and files, the directory and the file that were there.
        assert_eq!((report.stripped, report.failed), (if modes { 6 } else { 0 }, 0));
        let bits = |path: &str| fs::metadata(ground.at(path)).unwrap().mode() & 0o7000;
        let sticky = if modes { 0o1000 } else { 0 };
        assert_eq!((bits("plain"), bits("plain/new"), bits("plain/file")), (0, sticky, 0));
        assert_eq!((bits("shared"), bits("shared/new"), bits("shared/file")), (0o2000, 0o2000 | sticky, 0), "handed down");
        assert_eq!(bits("plain/there"), 0o4000, "it was there before");
    }
}

#[test]
fn attributes_of_root_are_not_taken_from_a_sender_who_may_not_give_them() {
    let ground = Ground::new();
    fs::write(ground.at("probe"), "x").unwrap();
    if rustix::fs::setxattr(ground.at("probe"), "trusted.a", b"1", rustix::fs::XattrFlags::empty()).is_err() {
        return eprintln!("skipped: no right, or no file system, for attributes of root");
    }
    let xattr = |name: &str, value: &[u8]| Xattr { name: name.as_bytes().to_vec().into(), value: value.to_vec().into() };
    // Version 2, cap_net_raw, effective: see linux/capability.h.
    let capability = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let xattrs = || Some(vec![xattr("security.capability", &capability), xattr("trusted.a", b"1"), xattr("user.b", b"2")]);
    let owner = Some(Owner { uid: 0, gid: 0 });
    for privileged in [true, false] {
        let rules = TreeRules { owners: true, xattrs: true, modes: true, ..TreeRules::default() };
        let mut sending = Sending::start(ReceiverRequest { privileged, ..ground.request(rules) });
        let (name, link) = (format!("file-{privileged}"), format!("link-{privileged}"));
        let entry = Entry { owner, xattrs: xattrs(), mode: 0o755, ..sending.plain(None, &name, file(1)) };
        let id = sending.tell(entry);
        let entry = Entry { owner, xattrs: xattrs(), ..sending.plain(None, &link, symlink("nowhere")) };
        sending.tell(entry);
        sending.content(id, b"x");
        let report = sending.report();
        assert_eq!((report.stripped, report.failed), (if privileged { 0 } else { 2 }, 0));
        let has = |path: &str, xattr: &str| rustix::fs::lgetxattr(ground.at(path), xattr, &mut [0; 64][..]).is_ok();
        assert_eq!((has(&name, "security.capability"), has(&name, "trusted.a"), has(&name, "user.b")), (privileged, privileged, true));
        assert_eq!(has(&link, "trusted.a"), privileged);
    }
}
