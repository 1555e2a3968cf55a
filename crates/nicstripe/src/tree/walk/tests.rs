use std::{
    ffi::OsStr,
    fs, io,
    os::{
        fd::AsRawFd,
        unix::{
            ffi::OsStrExt,
            fs::{MetadataExt, PermissionsExt, lchown, symlink},
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
            WalkItem::EndDirectory { id, complete: true } => format!("e {}", paths[&id]),
            WalkItem::EndDirectory { id, .. } => format!("e {} incomplete", paths[&id]),
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

fn walk(source: SendSource, rules: &TreeRules, options: WalkRules) -> Walk {
    walk_all(vec![source], rules, options, &[])
}

fn walk_all(
    sources: Vec<SendSource>,
    rules: &TreeRules,
    options: WalkRules,
    filters: &[&str],
) -> Walk {
    let filters: Vec<String> = filters.iter().map(ToString::to_string).collect();
    Walk::new(rules, options, Filters::new(&filters).unwrap(), sources)
}

/// Returns the lines of a walk, each followed by a semicolon but the last.
fn told_of(sources: &[&Path], options: WalkRules, filters: &[&str]) -> String {
    let sources = sources
        .iter()
        .map(|path| SendSource::Path(path.to_path_buf()));
    lines(walk_all(
        sources.collect(),
        &TreeRules::default(),
        options,
        filters,
    ))
    .join("; ")
}

/// Returns the lines of a recursive walk of one source.
fn told(source: &Path) -> String {
    told_of(&[source], RECURSIVE, &[])
}

/// Returns the lines of a walk that is limited to these names.
fn told_of_list(source: &Path, names: &[&str], options: WalkRules) -> String {
    let names = names
        .iter()
        .map(|name| Name::parse(name.as_bytes()).unwrap());
    let only = Some(names.collect());
    told_of(&[source], WalkRules { only, ..options }, &[])
}

/// Returns the entries of a recursive walk.
fn entries(source: &Path, rules: &TreeRules) -> Vec<Entry> {
    let walk = walk(SendSource::Path(source.to_owned()), rules, RECURSIVE);
    let entry = |found| match found {
        WalkItem::Entry(found) => Some(found.entry),
        _ => None,
    };
    walk.filter_map(entry).collect()
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
    let named =
        "d t; f t/a 3; d t/d; d t/d/e; f t/d/e/y 0; e t/d/e; f t/d/x 1; e t/d; l t/z a; e t";
    assert_eq!(told(&t), named);
    let within = "d ; f a 3; d d; d d/e; f d/e/y 0; e d/e; f d/x 1; e d; l z a; e ";
    assert_eq!(told(&contents(&t)), within);
    assert_eq!(told(&t.join(".")), within);
}

#[test]
fn a_directory_that_has_been_removed_fails_and_is_not_an_empty_one() {
    let dir = tempfile::tempdir().unwrap();
    let gone = dir.path().join("gone");
    fs::create_dir(&gone).unwrap();
    let open = File::open(&gone).unwrap();
    // Like `.` in a shell whose working directory it is.
    let source = PathBuf::from(format!("/proc/self/fd/{}/.", open.as_raw_fd()));
    assert_eq!(told(&source), "d ; e ");
    fs::remove_dir(&gone).unwrap();
    assert_eq!(told(&source), format!("! {} NotFound", source.display()));
}

#[test]
fn entries_are_numbered_in_order_and_know_their_parents() {
    let dir = tree();
    let rules = TreeRules {
        owners: true,
        ..TreeRules::default()
    };
    let entries = entries(&dir.path().join("t"), &rules);
    let ids = entries.iter().map(|entry| entry.id.0);
    assert!(ids.eq(0..entries.len() as u64));
    let parents = entries
        .iter()
        .map(|entry| entry.parent.map(|parent| parent.0));
    assert!(parents.eq([None, Some(0), Some(0), Some(2), Some(3), Some(2), Some(0)]));
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
    let sources = ["a", "z", "d", "to-d", "missing"].map(|name| t.join(name));
    let missing = sources[4].display();
    let found = told_of(
        &sources.each_ref().map(PathBuf::as_path),
        WalkRules::default(),
        &[],
    );
    let expected = format!("f a 3; f z 3; ! d NotAFile; l to-d d; ! {missing} NotFound");
    assert_eq!(found, expected);
}

#[test]
fn a_link_that_is_typed_is_copied_as_a_link_unless_a_slash_follows() {
    let dir = tree();
    let link = dir.path().join("link");
    symlink("t/d", &link).unwrap();
    assert_eq!(told(&link), "l link t/d");
    assert_eq!(told(&contents(&link)), "d ; d e; f e/y 0; e e; f x 1; e ");
}

#[test]
fn sources_of_one_name_or_in_one_directory_do_not_delete_each_others_files() {
    let dir = tree();
    let (a, b) = (dir.path().join("t/d"), dir.path().join("d"));
    fs::create_dir(&b).unwrap();
    let found = told_of(&[&a, &b], RECURSIVE, &[]);
    let expected = "d d; d d/e; f d/e/y 0; e d/e; f d/x 1; e d";
    assert_eq!(found, format!("{expected}; ! {} Exists", b.display()));
    let merged = told_of(&[&contents(&a), &b], RECURSIVE, &[]);
    let expected = "d ; d e; f e/y 0; e e incomplete; f x 1; e  incomplete; d d; e d incomplete";
    assert_eq!(merged, expected);
}

#[test]
fn what_a_filter_leaves_out_is_not_entered() {
    let dir = tree();
    let t = dir.path().join("t");
    for (filters, expected) in [
        (&["d/"][..], "d t; f t/a 3; l t/z a; e t"),
        // Anchored at the source, not at the target.
        (
            &["/d/e", "/t", "a", "z"],
            "d t; d t/d; f t/d/x 1; e t/d; e t",
        ),
        (&["*", "!a"], "d t; f t/a 3; e t"),
    ] {
        assert_eq!(told_of(&[&t], RECURSIVE, filters), expected, "{filters:?}");
    }
}

#[test]
fn of_a_list_only_what_is_on_it_is_walked_and_what_leads_there() {
    let dir = tree();
    let t = contents(&dir.path().join("t"));
    for (listed, options, expected) in [
        (
            &["d/e/y", "a", "a/b", "d/missing"][..],
            WalkRules::default(),
            "d ; ! a NotFound; f a 3; d d; d d/e; f d/e/y 0; e d/e incomplete; \
             ! d/missing NotFound; e d incomplete; e  incomplete",
        ),
        (
            &["d/e"],
            RECURSIVE,
            "d ; d d; d d/e; f d/e/y 0; e d/e; e d incomplete; e  incomplete",
        ),
        (
            &["d"],
            WalkRules::default(),
            "d ; d d; e d incomplete; e  incomplete",
        ),
        (
            &["a/b", "z/b"],
            RECURSIVE,
            "d ; ! a NotFound; ! z NotFound; e  incomplete",
        ),
    ] {
        assert_eq!(told_of_list(&t, listed, options), expected, "{listed:?}");
    }
}

#[test]
fn names_of_one_file_are_told_as_such_if_asked() {
    let dir = tree();
    let t = dir.path().join("t");
    fs::hard_link(t.join("a"), t.join("d/b")).unwrap();
    fs::hard_link(t.join("a"), dir.path().join("outside")).unwrap();
    for (hard_links, second) in [(true, "h t/d/b t/a t/a"), (false, "f t/d/b 3")] {
        let options = WalkRules {
            hard_links,
            ..RECURSIVE
        };
        let found = told_of(&[&t], options, &["e", "z", "x"]);
        assert_eq!(found, format!("d t; f t/a 3; d t/d; {second}; e t/d; e t"));
    }
}

#[test]
fn special_files_are_counted_in_a_tree_and_refused_as_sources() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    assert_eq!(told(&contents(dir.path())), "d ; special s; e ");
    assert_eq!(told(&socket), "! s NotAFile");
    let link = dir.path().join("to-s");
    symlink("s", &link).unwrap();
    assert_eq!(told(&link), "l to-s s");
    assert_eq!(
        told_of(&[&link], WalkRules::default(), &[]),
        "! to-s NotAFile"
    );
}

#[test]
fn names_of_any_bytes_travel_and_places_that_are_too_long_do_not() {
    let dir = tempfile::tempdir().unwrap();
    let odd = dir.path().join(OsStr::from_bytes(b"\xff\n"));
    fs::write(&odd, "").unwrap();
    assert_eq!(told(&contents(dir.path())), "d ; f \\xff\\n 0; e ");

    fs::remove_file(odd).unwrap();
    // 17 levels of 250 bytes exceed the limit of 4095 bytes of a name.
    let long = "n".repeat(250);
    let mut here: OwnedFd = openat(rustix::fs::CWD, dir.path(), DIRECTORY, Mode::empty()).unwrap();
    for _ in 0..17 {
        rustix::fs::mkdirat(&here, &long, Mode::RWXU).unwrap();
        here = openat(&here, &long, DIRECTORY, Mode::empty()).unwrap();
    }
    let found = told(&contents(dir.path()));
    let count = |is_it: fn(&&str) -> bool| found.split("; ").filter(is_it).count();
    assert_eq!(count(|line| line.starts_with("d ")), 17);
    assert_eq!(
        count(|line| line.starts_with("! ") && line.ends_with("Refused")),
        1
    );
    assert_eq!(count(|line| line.ends_with(" incomplete")), 1);
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
    let found = told(&contents(dir.path()));
    let files = found.split("; ").filter(|line| line.starts_with("f "));
    assert_eq!(files.count(), MOST_OPEN_LEVELS + 20);
    assert!(!found.contains('!') && !found.contains("incomplete"));
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
    let source = SendSource::Path(contents(dir.path()));
    let mut walk = walk(source, &TreeRules::default(), RECURSIVE);
    let is_entry = |found: &WalkItem| matches!(found, WalkItem::Entry(_));
    let deepest = walk.by_ref().filter(is_entry).nth(MOST_OPEN_LEVELS + 1);
    assert!(deepest.is_some());
    fs::rename(dir.path().join("d"), dir.path().join("moved")).unwrap();
    symlink("moved", dir.path().join("d")).unwrap();
    let rest: Vec<String> = walk
        .filter_map(|found| match found {
            WalkItem::Failed { failure, .. } => {
                Some(format!("{} {:?}", failure.name, failure.code))
            }
            WalkItem::Entry(found) => Some(escape(&found.location.path())),
            _ => None,
        })
        .collect();
    assert!(rest.contains(&"d SourceChanged".to_string()), "{rest:?}");
    assert!(!rest.iter().any(|line| line.contains("d/z")), "{rest:?}");
}

#[test]
fn a_directory_that_cannot_be_read_is_told_and_not_complete() {
    let dir = tree();
    let t = contents(&dir.path().join("t"));
    let closed = dir.path().join("t/d");
    let set = |mode| fs::set_permissions(&closed, fs::Permissions::from_mode(mode)).unwrap();
    set(0o0);
    let found = without_capabilities(|| told_of(&[&t], RECURSIVE, &["z"]));
    set(0o700);
    assert_eq!(found, "d ; f a 3; d d; ! d Io; e d incomplete; e ");
}

/// Runs a function on a thread without capabilities, so that permission bits apply even if the
/// process is root.
fn without_capabilities<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    let run = || {
        set_capabilities(None, none).unwrap();
        run()
    };
    std::thread::scope(|scope| scope.spawn(run).join().unwrap())
}

#[test]
fn large_files_and_files_with_holes_go_alone() {
    let dir = tempfile::tempdir().unwrap();
    let most = PACKED_MOST as usize;
    for (name, size) in [("large", most + 1), ("most", most), ("small", 1)] {
        fs::write(dir.path().join(name), vec![1; size]).unwrap();
    }
    for (name, size) in [("sparse", 1 << 20), ("tiny", 4096)] {
        let file = File::create(dir.path().join(name)).unwrap();
        file.set_len(size).unwrap();
    }
    let files =
        "f large 4194305 alone; f most 4194304; f small 1; f sparse 1048576 alone; f tiny 4096";
    assert_eq!(told(&contents(dir.path())), format!("d ; {files}; e "));
}

#[test]
fn files_whose_sizes_say_nothing_are_read_by_the_walk() {
    let source = SendSource::Path("/proc/sys/kernel/ostype".into());
    let found: Vec<WalkItem> = walk(source, &TreeRules::default(), RECURSIVE).collect();
    let [WalkItem::Entry(found)] = &found[..] else {
        panic!("{found:?}")
    };
    let expected = Content::File {
        size: 6,
        alone: false,
        digest: None,
    };
    assert_eq!(found.entry.content, expected);
    assert_eq!(found.content.as_deref(), Some(&b"Linux\n"[..]));
}

#[test]
fn other_file_systems_are_told_as_empty_directories_if_asked() {
    // /proc is another file system; the walk stops at it because of the option.
    let options = WalkRules {
        one_file_system: true,
        ..RECURSIVE
    };
    let found = told_of(&[Path::new("/")], options, &["/*", "!/proc"]);
    assert_eq!(found, "d ; d proc; e proc incomplete; e ");
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
        lines(walk(source, &TreeRules::default(), options)).join("; ")
    };
    for (name, contents, expected) in [
        ("t/d", false, "d d; d d/e; f d/e/y 0; e d/e; f d/x 1; e d"),
        ("inside", true, "d ; d e; f e/y 0; e e; f x 1; e "),
        ("inside/x", false, "f x 1"),
        ("outside", true, "! outside Refused"),
        ("outside/passwd", false, "! outside/passwd Refused"),
        ("outside", false, "l outside /etc"),
    ] {
        assert_eq!(
            beneath(name, contents, RECURSIVE),
            expected,
            "{name} {contents}"
        );
    }
    assert_eq!(beneath("t/z", false, WalkRules::default()), "f z 3");
    assert!(beneath("", false, RECURSIVE).contains("; f t/a 3; "));
}

#[test]
fn extended_attributes_come_with_their_entries() {
    let dir = tree();
    let file = File::open(dir.path().join("t/a")).unwrap();
    rustix::fs::fsetxattr(&file, "user.n", b"v", rustix::fs::XattrFlags::empty())
        .expect("temporary files are on a file system with extended attributes");
    let rules = TreeRules {
        xattrs: true,
        ..TreeRules::default()
    };
    let entries = entries(&dir.path().join("t"), &rules);
    assert!(entries.len() == 7 && entries.iter().all(|entry| entry.xattrs.is_some()));
    let mut of_a = entries[1].xattrs.iter().flatten();
    assert!(of_a.any(|xattr| xattr.name[..] == *b"user.n" && xattr.value[..] == *b"v"));
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
        let mut walk = walk(SendSource::Path(path.clone()), &rules, RECURSIVE);
        walk.owners = Owners::knowing(|_| Some("alice".into()), |_| None);
        let Some(WalkItem::Entry(found)) = walk.next() else {
            panic!("no entry")
        };
        let entry = found.entry;
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

/// Creates a tree with 50 more files in a directory.
fn tree_of_many() -> TempDir {
    let dir = tree();
    for index in 0..50 {
        fs::write(dir.path().join(format!("t/d/{index}")), vec![0; index]).unwrap();
    }
    dir
}

#[test]
fn each_file_is_in_one_share_and_each_directory_in_all_as_incomplete() {
    let dir = tree_of_many();
    (0..50).for_each(|index| fs::write(dir.path().join(format!("t/d/{index}.o")), "").unwrap());
    let (shares, whole) = shares_of(&dir, RECURSIVE, 4);
    let is_of_directory = |line: &&String| line.starts_with("d ") || line.starts_with("e ");
    let in_share = |line: &String| match line.starts_with("e ") {
        true => format!("{line} incomplete"),
        false => line.clone(),
    };
    let directories: Vec<String> = whole.iter().filter(is_of_directory).map(in_share).collect();
    for share in &shares {
        let found = share.iter().filter(is_of_directory);
        assert!(
            found.eq(&directories) && share.len() > directories.len(),
            "{share:?}"
        );
    }
    let is_file = |line: &&String| !is_of_directory(line);
    let mut files: Vec<&String> = shares.iter().flatten().filter(is_file).collect();
    let mut expected: Vec<&String> = whole.iter().filter(is_file).collect();
    files.sort_unstable();
    expected.sort_unstable();
    assert_eq!(files, expected);
}

#[test]
fn files_are_counted_one_at_a_step_so_that_a_walk_can_be_stopped() {
    let dir = tree_of_many();
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
        let mut pieces: Vec<u32> = Vec::new();
        for found in walk_of_share(&dir, options.clone(), Share::new(number, 8).ok()) {
            if let WalkItem::Large { name, large } = found {
                assert_eq!(name.to_string(), "t/large");
                pieces.extend(large.pieces().map(|(index, _)| index));
            }
        }
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
    let t = dir.path().join("t");
    (0..50).for_each(|index| fs::hard_link(t.join("a"), t.join(format!("d/{index}"))).unwrap());
    let options = WalkRules {
        hard_links: true,
        ..RECURSIVE
    };
    let (shares, _) = shares_of(&dir, options, 4);
    let links = |share: &Vec<String>| share.iter().filter(|line| line.starts_with("h ")).count();
    let counts: Vec<usize> = shares.iter().map(links).collect();
    let (most, sum) = (counts.iter().max(), counts.iter().sum::<usize>());
    assert_eq!((most, sum), (Some(&50), 50));
}

#[test]
fn a_listing_tells_names_types_and_sizes_apart_and_no_more() {
    let listed = |dir: &TempDir| {
        let sources = vec![SendSource::Path(contents(&dir.path().join("t")))];
        listing(
            &TreeRules::default(),
            RECURSIVE,
            Filters::new(&[]).unwrap(),
            sources,
        )
    };
    let first = listed(&tree());
    assert_eq!((first.files(), first.bytes()), (4, 4));
    type Change = fn(&Path) -> io::Result<()>;
    let changes: [(bool, Change); 4] = [
        (false, |t| fs::write(t.join("d/x"), "y")),
        (true, |t| fs::write(t.join("d/x"), "xx")),
        (true, |t| fs::rename(t.join("d/x"), t.join("d/w"))),
        (true, |t| {
            fs::remove_file(t.join("z")).and_then(|()| fs::write(t.join("z"), ""))
        }),
    ];
    for (is_other, change) in changes {
        let changed = tree();
        change(&changed.path().join("t")).unwrap();
        assert_eq!(listed(&changed).digest() != first.digest(), is_other);
    }
}
