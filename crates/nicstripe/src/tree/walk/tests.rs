use std::{
    ffi::OsStr,
    fs,
    os::{
        fd::AsRawFd,
        unix::{
            ffi::OsStrExt,
            fs::{MetadataExt, lchown, symlink},
        },
    },
    path::Path,
};

use nicstripe_proto::tree::{OwnerName, Share};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use tempfile::TempDir;

use super::*;
use crate::tree::tests::RECURSIVE;

/// Returns each result of a walk as a line of text.
fn lines(walk: Walk) -> Vec<String> {
    let mut paths: HashMap<EntryId, String> = HashMap::new();
    walk.filter_map(|found| {
        Some(match found {
            WalkItem::Entry(found) => {
                let path = escape(&found.location.path());
                paths.insert(found.entry.id, path.clone());
                match found.entry.content {
                    Content::Directory => format!("d {path}"),
                    Content::File { size, alone, .. } => {
                        format!("f {path} {size}{}", if alone { " alone" } else { "" })
                    }
                    Content::Symlink { target } => format!("l {path} {}", escape(&target)),
                    Content::Node(node) => format!("n {path} {:?}", node.kind),
                    Content::HardLink { to, path: first } => {
                        format!("h {path} {} {first}", paths[&to])
                    }
                }
            }
            WalkItem::EndDirectory { id, complete } => format!(
                "e {}{}",
                paths[&id],
                if complete { "" } else { " incomplete" }
            ),
            WalkItem::Special { name } => format!("special {name}"),
            WalkItem::Failed { failure, .. } => format!("! {} {:?}", failure.name, failure.code),
            WalkItem::Large { name, large } => {
                let pieces: Vec<u32> = large.pieces().map(|(index, _)| index).collect();
                format!("large {name} {} {pieces:?}", large.size())
            }
            WalkItem::Counted => return None,
        })
    })
    .collect()
}

fn escape(bytes: &[u8]) -> String {
    nicstripe_proto::name::escaped(bytes)
}

fn walk_of(
    sources: &[&Path],
    options: WalkRules,
    filters: &[&str],
    files_from: Option<&[&str]>,
) -> Vec<String> {
    let filters: Vec<String> = filters.iter().map(ToString::to_string).collect();
    let names: Option<Vec<Name>> = files_from.map(|names| {
        names
            .iter()
            .map(|name| Name::parse(name.as_bytes()).unwrap())
            .collect()
    });
    let sources = sources
        .iter()
        .map(|path| SendSource::Path(path.to_path_buf()))
        .collect();
    lines(Walk::new(
        &TreeRules::default(),
        WalkRules {
            only: names,
            ..options
        },
        Filters::new(&filters).unwrap(),
        sources,
    ))
}

fn contents(path: &Path) -> PathBuf {
    path.join("")
}

/// Creates a tree `t` with `a` (3 bytes), `d/x` (1 byte), `d/e/y` (empty) and a symbolic link `z`
/// to `a`.
fn tree() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let t = dir.path().join("t");
    fs::create_dir_all(t.join("d/e")).unwrap();
    fs::write(t.join("a"), "aaa").unwrap();
    fs::write(t.join("d/x"), "x").unwrap();
    fs::write(t.join("d/e/y"), "").unwrap();
    symlink("a", t.join("z")).unwrap();
    dir
}

#[test]
fn a_named_source_goes_with_its_name_and_with_a_slash_only_what_is_in_it() {
    let dir = tree();
    let t = dir.path().join("t");
    let named = [
        "d t",
        "f t/a 3",
        "d t/d",
        "d t/d/e",
        "f t/d/e/y 0",
        "e t/d/e",
        "f t/d/x 1",
        "e t/d",
        "l t/z a",
        "e t",
    ];
    assert_eq!(walk_of(&[&t], RECURSIVE, &[], None), named);
    let within = [
        "d ",
        "f a 3",
        "d d",
        "d d/e",
        "f d/e/y 0",
        "e d/e",
        "f d/x 1",
        "e d",
        "l z a",
        "e ",
    ];
    assert_eq!(walk_of(&[&contents(&t)], RECURSIVE, &[], None), within);
    assert_eq!(walk_of(&[&t.join(".")], RECURSIVE, &[], None), within);
}

#[test]
fn a_directory_that_has_been_removed_fails_and_is_not_an_empty_one() {
    let dir = tempfile::tempdir().unwrap();
    let gone = dir.path().join("gone");
    fs::create_dir(&gone).unwrap();
    let open = File::open(&gone).unwrap();
    // Like `.` in a shell whose working directory it is.
    let source = PathBuf::from(format!("/proc/self/fd/{}/.", open.as_raw_fd()));
    assert_eq!(walk_of(&[&source], RECURSIVE, &[], None), ["d ", "e "]);
    fs::remove_dir(&gone).unwrap();
    assert_eq!(
        walk_of(&[&source], RECURSIVE, &[], None),
        [format!("! {} NotFound", source.display())]
    );
}

#[test]
fn entries_are_numbered_in_order_and_know_their_parents() {
    let dir = tree();
    let sources = vec![SendSource::Path(dir.path().join("t"))];
    let walk = Walk::new(
        &TreeRules {
            owners: true,
            ..TreeRules::default()
        },
        RECURSIVE,
        Filters::new(&[]).unwrap(),
        sources,
    );
    let entries: Vec<Entry> = walk
        .filter_map(|found| match found {
            WalkItem::Entry(found) => Some(found.entry),
            _ => None,
        })
        .collect();
    assert!(
        entries
            .iter()
            .enumerate()
            .all(|(index, entry)| entry.id == EntryId(index as u64))
    );
    let parents: Vec<Option<u64>> = entries
        .iter()
        .map(|entry| entry.parent.map(|parent| parent.0))
        .collect();
    assert_eq!(
        parents,
        [None, Some(0), Some(0), Some(2), Some(3), Some(2), Some(0)]
    );
    let stat = rustix::fs::stat(dir.path().join("t/a")).unwrap();
    assert_eq!(entries[1].mode, stat.st_mode & 0o7777);
    assert_eq!(entries[1].mtime, identity_of(&stat).mtime);
    assert_eq!(entries[1].owner, Some(owner_of(&stat)));
}

#[test]
fn without_recursion_files_are_sent_and_links_to_files_are_followed() {
    let dir = tree();
    let t = dir.path().join("t");
    symlink("d", t.join("to-d")).unwrap();
    let sources = [
        &t.join("a"),
        &t.join("z"),
        &t.join("d"),
        &t.join("to-d"),
        &t.join("missing"),
    ];
    let found = walk_of(
        &sources.map(PathBuf::as_path),
        WalkRules::default(),
        &[],
        None,
    );
    let missing = format!("! {} NotFound", t.join("missing").display());
    assert_eq!(
        found,
        ["f a 3", "f z 3", "! d NotAFile", "l to-d d", &missing]
    );
}

#[test]
fn a_link_that_is_typed_is_copied_as_a_link_unless_a_slash_follows() {
    let dir = tree();
    let link = dir.path().join("link");
    symlink("t/d", &link).unwrap();
    assert_eq!(walk_of(&[&link], RECURSIVE, &[], None), ["l link t/d"]);
    assert_eq!(
        walk_of(&[&contents(&link)], RECURSIVE, &[], None),
        ["d ", "d e", "f e/y 0", "e e", "f x 1", "e "]
    );
}

#[test]
fn sources_of_one_name_or_in_one_directory_do_not_delete_each_others_files() {
    let dir = tree();
    let (a, b) = (dir.path().join("t/d"), dir.path().join("d"));
    fs::create_dir(&b).unwrap();
    let found = walk_of(&[&a, &b], RECURSIVE, &[], None);
    assert_eq!(
        found[..found.len() - 1],
        ["d d", "d d/e", "f d/e/y 0", "e d/e", "f d/x 1", "e d"]
    );
    assert_eq!(found.last().unwrap(), &format!("! {} Exists", b.display()));
    let merged = walk_of(&[&contents(&a), &b], RECURSIVE, &[], None);
    assert_eq!(
        merged,
        [
            "d ",
            "d e",
            "f e/y 0",
            "e e incomplete",
            "f x 1",
            "e  incomplete",
            "d d",
            "e d incomplete"
        ]
    );
}

#[test]
fn what_a_filter_leaves_out_is_not_entered() {
    let dir = tree();
    let t = dir.path().join("t");
    assert_eq!(
        walk_of(&[&t], RECURSIVE, &["d/"], None),
        ["d t", "f t/a 3", "l t/z a", "e t"]
    );
    // Anchored at the source, not at the target.
    assert_eq!(
        walk_of(&[&t], RECURSIVE, &["/d/e", "/t", "a", "z"], None),
        ["d t", "d t/d", "f t/d/x 1", "e t/d", "e t"]
    );
    assert_eq!(
        walk_of(&[&t], RECURSIVE, &["*", "!a"], None),
        ["d t", "f t/a 3", "e t"]
    );
}

#[test]
fn of_a_list_only_what_is_on_it_is_walked_and_what_leads_there() {
    let dir = tree();
    let t = contents(&dir.path().join("t"));
    let listed = walk_of(
        &[&t],
        WalkRules::default(),
        &[],
        Some(&["d/e/y", "a", "a/b", "d/missing"]),
    );
    assert_eq!(
        listed,
        [
            "d ",
            "! a NotFound",
            "f a 3",
            "d d",
            "d d/e",
            "f d/e/y 0",
            "e d/e incomplete",
            "! d/missing NotFound",
            "e d incomplete",
            "e  incomplete"
        ]
    );
    let whole = walk_of(&[&t], RECURSIVE, &[], Some(&["d/e"]));
    assert_eq!(
        whole,
        [
            "d ",
            "d d",
            "d d/e",
            "f d/e/y 0",
            "e d/e",
            "e d incomplete",
            "e  incomplete"
        ]
    );
    let itself = walk_of(&[&t], WalkRules::default(), &[], Some(&["d"]));
    assert_eq!(itself, ["d ", "d d", "e d incomplete", "e  incomplete"]);
    let through_file = walk_of(&[&t], RECURSIVE, &[], Some(&["a/b", "z/b"]));
    assert_eq!(
        through_file,
        ["d ", "! a NotFound", "! z NotFound", "e  incomplete"]
    );
}

#[test]
fn names_of_one_file_are_told_as_such_if_asked() {
    let dir = tree();
    let t = dir.path().join("t");
    fs::hard_link(t.join("a"), t.join("d/b")).unwrap();
    fs::hard_link(t.join("a"), dir.path().join("outside")).unwrap();
    let found = walk_of(
        &[&t],
        WalkRules {
            hard_links: true,
            ..RECURSIVE
        },
        &["e", "z", "x"],
        None,
    );
    assert_eq!(
        found,
        ["d t", "f t/a 3", "d t/d", "h t/d/b t/a t/a", "e t/d", "e t"]
    );
    let separate = walk_of(&[&t], RECURSIVE, &["e", "z", "x"], None);
    assert_eq!(
        separate,
        ["d t", "f t/a 3", "d t/d", "f t/d/b 3", "e t/d", "e t"]
    );
}

#[test]
fn special_files_are_counted_in_a_tree_and_refused_as_sources() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    assert_eq!(
        walk_of(&[&contents(dir.path())], RECURSIVE, &[], None),
        ["d ", "special s", "e "]
    );
    assert_eq!(walk_of(&[&socket], RECURSIVE, &[], None), ["! s NotAFile"]);
    let link = dir.path().join("to-s");
    symlink("s", &link).unwrap();
    assert_eq!(walk_of(&[&link], RECURSIVE, &[], None), ["l to-s s"]);
    assert_eq!(
        walk_of(&[&link], WalkRules::default(), &[], None),
        ["! to-s NotAFile"]
    );
}

#[test]
fn names_of_any_bytes_travel_and_places_that_are_too_long_do_not() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(OsStr::from_bytes(b"\xff\n")), "").unwrap();
    let found = walk_of(&[&contents(dir.path())], RECURSIVE, &[], None);
    assert_eq!(found, ["d ", "f \\xff\\n 0", "e "]);

    fs::remove_file(dir.path().join(OsStr::from_bytes(b"\xff\n"))).unwrap();
    // 17 levels of 250 bytes exceed the limit of 4095 bytes of a name.
    let long = "n".repeat(250);
    let mut here: OwnedFd = openat(rustix::fs::CWD, dir.path(), DIRECTORY, Mode::empty()).unwrap();
    for _ in 0..17 {
        rustix::fs::mkdirat(&here, &long, Mode::RWXU).unwrap();
        here = openat(&here, &long, DIRECTORY, Mode::empty()).unwrap();
    }
    let found = walk_of(&[&contents(dir.path())], RECURSIVE, &[], None);
    assert_eq!(
        found.iter().filter(|line| line.starts_with("d ")).count(),
        17
    );
    assert_eq!(
        found
            .iter()
            .filter(|line| line.starts_with("! ") && line.ends_with("Refused"))
            .count(),
        1
    );
    assert_eq!(
        found
            .iter()
            .filter(|line| line.ends_with(" incomplete"))
            .count(),
        1
    );
}

#[test]
fn a_tree_deeper_than_what_is_held_open_is_walked_to_its_ends() {
    let dir = tempfile::tempdir().unwrap();
    let mut path = dir.path().to_path_buf();
    for _ in 0..MOST_OPEN_LEVELS + 20 {
        path.push("d");
        fs::create_dir(&path).unwrap();
        fs::write(path.join("z"), "z").unwrap();
    }
    let found = walk_of(&[&contents(dir.path())], RECURSIVE, &[], None);
    assert_eq!(
        found.iter().filter(|line| line.starts_with("f ")).count(),
        MOST_OPEN_LEVELS + 20
    );
    assert!(
        !found
            .iter()
            .any(|line| line.starts_with('!') || line.ends_with("incomplete"))
    );
}

#[test]
fn a_directory_that_was_replaced_meanwhile_is_told_as_changed() {
    let dir = tempfile::tempdir().unwrap();
    let mut path = dir.path().to_path_buf();
    for _ in 0..MOST_OPEN_LEVELS + 1 {
        path.push("d");
        fs::create_dir(&path).unwrap();
    }
    fs::write(dir.path().join("d/z"), "z").unwrap();
    let sources = vec![SendSource::Path(contents(dir.path()))];
    let mut walk = Walk::new(
        &TreeRules::default(),
        RECURSIVE,
        Filters::new(&[]).unwrap(),
        sources,
    );
    let deepest = walk
        .by_ref()
        .filter(|found| matches!(found, WalkItem::Entry(_)))
        .nth(MOST_OPEN_LEVELS + 1);
    assert!(deepest.is_some());
    fs::rename(dir.path().join("d"), dir.path().join("moved")).unwrap();
    symlink("moved", dir.path().join("d")).unwrap();
    let rest = lines_after(walk);
    assert!(rest.contains(&"! d SourceChanged".to_string()), "{rest:?}");
    assert!(!rest.iter().any(|line| line.contains("d/z")), "{rest:?}");
}

/// Returns the failures and files of a walk as lines of text.
fn lines_after(walk: Walk) -> Vec<String> {
    walk.filter_map(|found| match found {
        WalkItem::Failed { failure, .. } => Some(format!("! {} {:?}", failure.name, failure.code)),
        WalkItem::Entry(found) => Some(escape(&found.location.path())),
        _ => None,
    })
    .collect()
}

#[test]
fn a_directory_that_cannot_be_read_is_told_and_not_complete() {
    let dir = tree();
    let t = contents(&dir.path().join("t"));
    let closed = dir.path().join("t/d");
    fs::set_permissions(&closed, std::os::unix::fs::PermissionsExt::from_mode(0o0)).unwrap();
    let found = without_capabilities(|| walk_of(&[&t], RECURSIVE, &["z"], None));
    fs::set_permissions(&closed, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    assert_eq!(
        found,
        ["d ", "f a 3", "d d", "! d Io", "e d incomplete", "e "]
    );
}

/// Runs a function on a thread without capabilities, so that permission bits apply even if the
/// process is root.
fn without_capabilities<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    let none = CapabilitySet::empty();
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            set_capabilities(
                None,
                CapabilitySets {
                    effective: none,
                    permitted: none,
                    inheritable: none,
                },
            )
            .unwrap();
            run()
        });
        thread.join().unwrap()
    })
}

#[test]
fn large_files_and_files_with_holes_go_alone() {
    let dir = tempfile::tempdir().unwrap();
    let most = PACKED_MOST;
    fs::write(dir.path().join("large"), vec![1; most as usize + 1]).unwrap();
    fs::write(dir.path().join("most"), vec![1; most as usize]).unwrap();
    fs::write(dir.path().join("small"), "s").unwrap();
    File::create(dir.path().join("sparse"))
        .unwrap()
        .set_len(1 << 20)
        .unwrap();
    File::create(dir.path().join("tiny"))
        .unwrap()
        .set_len(4096)
        .unwrap();
    let found = walk_of(&[&contents(dir.path())], RECURSIVE, &[], None);
    assert_eq!(
        found,
        [
            "d ",
            "f large 4194305 alone",
            "f most 4194304",
            "f small 1",
            "f sparse 1048576 alone",
            "f tiny 4096",
            "e "
        ]
    );
}

#[test]
fn files_whose_sizes_say_nothing_are_read_by_the_walk() {
    let sources = vec![SendSource::Path("/proc/sys/kernel/ostype".into())];
    let found: Vec<WalkItem> = Walk::new(
        &TreeRules::default(),
        RECURSIVE,
        Filters::new(&[]).unwrap(),
        sources,
    )
    .collect();
    let [WalkItem::Entry(found)] = &found[..] else {
        panic!("{found:?}")
    };
    assert_eq!(
        &found.entry.content,
        &Content::File {
            size: 6,
            alone: false,
            digest: None
        }
    );
    assert_eq!(found.content.as_deref(), Some(&b"Linux\n"[..]));
}

#[test]
fn other_file_systems_are_told_as_empty_directories_if_asked() {
    // /proc is another file system; the walk stops at it because of the option.
    let sources = vec![SendSource::Path("/".into())];
    let filters = ["/*".to_string(), "!/proc".to_string()];
    let walk = Walk::new(
        &TreeRules::default(),
        WalkRules {
            one_file_system: true,
            ..RECURSIVE
        },
        Filters::new(&filters).unwrap(),
        sources,
    );
    assert_eq!(lines(walk), ["d ", "d proc", "e proc incomplete", "e "]);
}

#[test]
fn of_a_daemons_root_what_is_asked_for_is_walked_and_links_out_of_it_are_refused() {
    let dir = tree();
    symlink("t/d", dir.path().join("inside")).unwrap();
    symlink("/etc", dir.path().join("outside")).unwrap();
    let root = Arc::new(Root::open(dir.path()).unwrap());
    let beneath = |name: &str, contents: bool, options: WalkRules| {
        let name = (!name.is_empty()).then(|| Name::parse(name.as_bytes()).unwrap());
        let source = SendSource::Beneath {
            root: root.clone(),
            name,
            contents,
        };
        lines(Walk::new(
            &TreeRules::default(),
            options,
            Filters::new(&[]).unwrap(),
            vec![source],
        ))
    };
    assert_eq!(
        beneath("t/d", false, RECURSIVE),
        ["d d", "d d/e", "f d/e/y 0", "e d/e", "f d/x 1", "e d"]
    );
    assert_eq!(
        beneath("inside", true, RECURSIVE),
        ["d ", "d e", "f e/y 0", "e e", "f x 1", "e "]
    );
    assert_eq!(beneath("inside/x", false, RECURSIVE), ["f x 1"]);
    assert_eq!(beneath("t/z", false, WalkRules::default()), ["f z 3"]);
    assert_eq!(beneath("outside", true, RECURSIVE), ["! outside Refused"]);
    assert_eq!(
        beneath("outside/passwd", false, RECURSIVE),
        ["! outside/passwd Refused"]
    );
    assert_eq!(beneath("outside", false, RECURSIVE), ["l outside /etc"]);
    assert!(beneath("", false, RECURSIVE).contains(&"f t/a 3".into()));
}

#[test]
fn extended_attributes_come_with_their_entries() {
    let dir = tree();
    let path = dir.path().join("t/a");
    let file = File::open(&path).unwrap();
    rustix::fs::fsetxattr(&file, "user.n", b"v", rustix::fs::XattrFlags::empty())
        .expect("temporary files are on a file system with extended attributes");
    let rules = TreeRules {
        xattrs: true,
        ..TreeRules::default()
    };
    let walk = Walk::new(
        &rules,
        RECURSIVE,
        Filters::new(&[]).unwrap(),
        vec![SendSource::Path(dir.path().join("t"))],
    );
    let xattrs: Vec<_> = walk
        .filter_map(|found| match found {
            WalkItem::Entry(found) => {
                Some((escape(&found.location.path()), found.entry.xattrs.unwrap()))
            }
            _ => None,
        })
        .collect();
    assert_eq!(xattrs.len(), 7);
    let of_a = xattrs.iter().find(|(path, _)| path == "t/a").unwrap();
    assert!(
        of_a.1
            .iter()
            .any(|xattr| xattr.name[..] == *b"user.n" && xattr.value[..] == *b"v")
    );
}

#[test]
fn owners_have_names_unless_numbers_are_kept() {
    let dir = tree();
    let path = dir.path().join("t/a");
    // Root has no name in an entry.
    if rustix::process::geteuid().is_root() {
        lchown(&path, Some(1234), Some(1234)).unwrap();
    }
    let uid = fs::metadata(&path).unwrap().uid();
    for (owners, numeric_ids, expected) in [
        (true, false, Some("alice")),
        (true, true, None),
        (false, false, None),
    ] {
        let rules = TreeRules {
            owners,
            numeric_ids,
            ..TreeRules::default()
        };
        let mut walk = Walk::new(
            &rules,
            RECURSIVE,
            Filters::new(&[]).unwrap(),
            vec![SendSource::Path(path.clone())],
        );
        walk.owners = Owners::knowing(|_| Some("alice".into()), |_| None);
        let entry = walk
            .find_map(|found| {
                if let WalkItem::Entry(found) = found {
                    Some(found.entry)
                } else {
                    None
                }
            })
            .unwrap();
        assert_eq!(entry.owner.map(|owner| owner.uid), owners.then_some(uid));
        let user = entry.owner_names.and_then(|names| names.user);
        assert_eq!(
            user.as_ref().map(OwnerName::as_str),
            expected,
            "{numeric_ids}"
        );
    }
}

fn walk_of_share(dir: &TempDir, options: WalkRules, share: Option<Share>) -> Walk {
    let walk = WalkRules { share, ..options };
    let sources = vec![SendSource::Path(dir.path().join("t"))];
    let filters = Filters::new(&["*.o".to_owned()]).unwrap();
    Walk::of_share(&TreeRules::default(), walk, filters, sources)
}

/// Returns the lines of each of `of` shares of the tree `t` in `dir`, and those of all files.
fn shares_of(dir: &TempDir, options: WalkRules, of: u32) -> (Vec<Vec<String>>, Vec<String>) {
    let walk = |share| lines(walk_of_share(dir, options.clone(), share));
    let shares = (1..=of).map(|number| walk(Some(Share::new(number, of).unwrap())));
    (shares.collect(), walk(None))
}

#[test]
fn each_file_is_in_one_share_and_each_directory_in_all_as_incomplete() {
    let dir = tree();
    for index in 0..50 {
        fs::write(dir.path().join(format!("t/d/{index}")), vec![0; index]).unwrap();
        fs::write(dir.path().join(format!("t/d/{index}.o")), "").unwrap();
    }
    let (shares, whole) = shares_of(&dir, RECURSIVE, 4);
    let is_of_directory = |line: &&String| line.starts_with("d ") || line.starts_with("e ");
    let directories: Vec<String> = whole
        .iter()
        .filter(is_of_directory)
        .map(|line| {
            line.clone()
                + if line.starts_with("e ") {
                    " incomplete"
                } else {
                    ""
                }
        })
        .collect();
    for share in &shares {
        assert!(
            share.iter().filter(is_of_directory).eq(&directories),
            "{share:?}"
        );
        assert!(share.len() > directories.len(), "{share:?}");
    }
    let mut files: Vec<&String> = shares
        .iter()
        .flatten()
        .filter(|line| !is_of_directory(line))
        .collect();
    files.sort_unstable();
    let mut expected: Vec<&String> = whole.iter().filter(|line| !is_of_directory(line)).collect();
    expected.sort_unstable();
    assert_eq!(files, expected);
}

#[test]
fn files_are_counted_one_at_a_step_so_that_a_walk_can_be_stopped() {
    let dir = tree();
    for index in 0..50 {
        fs::write(dir.path().join(format!("t/d/{index}")), "").unwrap();
    }
    let walk = walk_of_share(&dir, RECURSIVE, Share::new(1, 2).ok());
    let counted = walk.take_while(|found| matches!(found, WalkItem::Counted));
    assert!(counted.count() > 50);
}

#[test]
fn each_piece_of_a_large_file_is_in_one_share_and_shares_weigh_the_same() {
    let dir = tree();
    let large = File::create(dir.path().join("t/large")).unwrap();
    large.set_len(2 << 30).unwrap();
    let options = WalkRules {
        pieces: true,
        ..RECURSIVE
    };
    let mut all = Vec::new();
    for number in 1..=8 {
        let share = Share::new(number, 8).ok();
        let pieces: Vec<u32> = walk_of_share(&dir, options.clone(), share)
            .filter_map(|found| match found {
                WalkItem::Large { name, large } => Some((name, large)),
                _ => None,
            })
            .flat_map(|(name, large)| {
                assert_eq!(name.to_string(), "t/large");
                large.pieces().map(|(index, _)| index).collect::<Vec<_>>()
            })
            .collect();
        // 128 pieces, 16 in each.
        assert!(pieces.len().abs_diff(16) <= 1, "{pieces:?}");
        all.extend(pieces);
    }
    all.sort_unstable();
    assert!(all.into_iter().eq(0..128));
}

#[test]
fn all_names_of_a_file_are_in_one_share() {
    let dir = tree();
    for index in 0..50 {
        fs::hard_link(
            dir.path().join("t/a"),
            dir.path().join(format!("t/d/{index}")),
        )
        .unwrap();
    }
    let options = WalkRules {
        hard_links: true,
        ..RECURSIVE
    };
    let (shares, _) = shares_of(&dir, options, 4);
    let links = |share: &Vec<String>| share.iter().filter(|line| line.starts_with("h ")).count();
    let counts: Vec<usize> = shares.iter().map(links).collect();
    assert_eq!(counts.iter().max(), Some(&50));
    assert_eq!(counts.iter().sum::<usize>(), 50);
}

#[test]
fn a_listing_tells_names_types_and_sizes_apart_and_no_more() {
    let (dir, twin) = (tree(), tree());
    let listed = |dir: &TempDir| {
        let sources = vec![SendSource::Path(contents(&dir.path().join("t")))];
        let filters = Filters::new(&[]).unwrap();
        listing(&TreeRules::default(), RECURSIVE, filters, sources)
    };
    let first = listed(&dir);
    assert_eq!((first.files(), first.bytes()), (4, 4));
    fs::write(twin.path().join("t/d/x"), "y").unwrap();
    assert_eq!(listed(&twin).digest(), first.digest());
    for change in [
        |t: &Path| fs::write(t.join("d/x"), "xx"),
        |t: &Path| fs::rename(t.join("d/x"), t.join("d/w")),
        |t: &Path| fs::remove_file(t.join("z")).and_then(|()| fs::write(t.join("z"), "")),
    ] {
        let changed = tree();
        change(&changed.path().join("t")).unwrap();
        assert_ne!(listed(&changed).digest(), first.digest());
    }
}
