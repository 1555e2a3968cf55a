//! Creation, description and comparison of directory trees.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs::{self, File, Metadata, Permissions},
    io,
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, PermissionsExt, symlink},
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{
        AtFlags, CWD, SeekFrom, Timespec, Timestamps, XattrFlags, lgetxattr, llistxattr, lsetxattr,
        seek, utimensat,
    },
    io::Errno,
};

/// Metadata compared in addition to names, types, contents, link targets and times.
#[derive(Debug, Clone, Copy, Default)]
pub struct Aspects {
    pub owners: bool,
    pub modes: bool,
    pub xattrs: bool,
    pub hard_links: bool,
    pub holes: bool,
}

impl Aspects {
    pub const ALL: Self = Self {
        owners: true,
        modes: true,
        xattrs: true,
        hard_links: true,
        holes: true,
    };
    pub const NONE: Self = Self {
        owners: false,
        modes: false,
        xattrs: false,
        hard_links: false,
        holes: false,
    };
}

/// Description of a directory tree, by path. The empty path is the root directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree(BTreeMap<PathBuf, Thing>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Thing {
    kind: Kind,
    mtime: (i64, i64),
    owner: Option<(u32, u32)>,
    mode: Option<u32>,
    xattrs: Option<BTreeMap<Vec<u8>, Vec<u8>>>,
    /// First path of the same hard-linked file; `None` if the file has only one path.
    same_as: Option<PathBuf>,
    /// Offsets and lengths of the file's data extents; `None` if holes are not compared.
    data: Option<Vec<(u64, u64)>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    File { size: u64, digest: blake3::Hash },
    Directory,
    Symlink(PathBuf),
    Other,
}

impl Tree {
    /// Reads the description of the tree at `path`.
    pub fn read(path: &Path, aspects: Aspects) -> Self {
        let mut tree = Self::default();
        let mut groups = BTreeMap::new();
        tree.add(path, Path::new(""), aspects, &mut groups);
        tree.name_groups(groups);
        tree
    }

    /// Returns the paths in the tree, without the empty path of the root directory.
    pub fn paths(&self) -> Vec<String> {
        let paths = self.0.keys().filter(|path| !path.as_os_str().is_empty());
        paths
            .map(|path| path.to_string_lossy().into_owned())
            .collect()
    }

    fn add(
        &mut self,
        root: &Path,
        path: &Path,
        aspects: Aspects,
        groups: &mut BTreeMap<u64, BTreeSet<PathBuf>>,
    ) {
        let full = if path.as_os_str().is_empty() {
            root.to_owned()
        } else {
            root.join(path)
        };
        let metadata = fs::symlink_metadata(&full)
            .unwrap_or_else(|error| panic!("{}: {error}", full.display()));
        if metadata.is_dir() {
            for entry in fs::read_dir(&full).unwrap() {
                self.add(
                    root,
                    &path.join(entry.unwrap().file_name()),
                    aspects,
                    groups,
                );
            }
        }
        self.0
            .insert(path.to_owned(), Thing::read(&full, &metadata, aspects));
        if aspects.hard_links && metadata.is_file() && metadata.nlink() > 1 {
            groups
                .entry(metadata.ino())
                .or_default()
                .insert(path.to_owned());
        }
    }

    /// Identifies each set of hard links by its first path, which is equal in both trees.
    fn name_groups(&mut self, groups: BTreeMap<u64, BTreeSet<PathBuf>>) {
        for group in groups.into_values() {
            for path in &group {
                if let Some(thing) = self.0.get_mut(path) {
                    thing.same_as = group.first().cloned();
                }
            }
        }
    }
}

impl Thing {
    fn read(path: &Path, metadata: &Metadata, aspects: Aspects) -> Self {
        let kind = match metadata.file_type() {
            kind if kind.is_dir() => Kind::Directory,
            kind if kind.is_symlink() => Kind::Symlink(fs::read_link(path).unwrap()),
            kind if kind.is_file() => Kind::File {
                size: metadata.len(),
                digest: blake3::hash(&fs::read(path).unwrap()),
            },
            _ => Kind::Other,
        };
        Self {
            mtime: (metadata.mtime(), metadata.mtime_nsec()),
            owner: aspects.owners.then(|| (metadata.uid(), metadata.gid())),
            mode: (aspects.modes && kind != Kind::Other && !metadata.is_symlink())
                .then_some(metadata.mode() & 0o7777),
            xattrs: (aspects.xattrs && !metadata.is_symlink()).then(|| xattrs(path)),
            same_as: None,
            data: (aspects.holes && metadata.is_file()).then(|| data_of(path)),
            kind,
        }
    }
}

/// Returns the paths of the files with final names. Skips journals and part files, which a running
/// copy may remove meanwhile.
pub fn finished_files(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let entry = entry.unwrap();
            match entry.file_type().unwrap() {
                _ if entry.file_name().to_string_lossy().contains("nicstripe") => {}
                kind if kind.is_dir() => directories.push(entry.path()),
                kind if kind.is_file() => {
                    found.push(entry.path().strip_prefix(root).unwrap().to_owned());
                }
                _ => {}
            }
        }
    }
    found
}

/// Returns the paths of all entries below a folder, without those that vanish meanwhile. Follows no
/// symbolic link.
pub fn walk(folder: &Path) -> Vec<PathBuf> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
        entries => entries.unwrap_or_else(|error| panic!("{}: {error}", folder.display())),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.is_symlink() {
            found.extend(walk(&path));
        }
        found.push(path);
    }
    found
}

/// Panics with the first differences unless two trees are equal.
#[track_caller]
pub fn assert_same_tree(one: &Path, other: &Path, aspects: Aspects) {
    assert_same_tree_after("", one, other, aspects);
}

/// Like [`assert_same_tree`], with `context` in the panic message.
#[track_caller]
pub fn assert_same_tree_after(context: &str, one: &Path, other: &Path, aspects: Aspects) {
    let found = differences(one, other, aspects);
    assert!(
        found.is_empty(),
        "{context}\n{} and {} differ:\n{}",
        one.display(),
        other.display(),
        found.join("\n")
    );
}

/// Returns the first differences of two trees.
pub fn differences(one: &Path, other: &Path, aspects: Aspects) -> Vec<String> {
    let (left, right) = (Tree::read(one, aspects), Tree::read(other, aspects));
    let paths: BTreeSet<_> = left.0.keys().chain(right.0.keys()).collect();
    let differing = paths
        .into_iter()
        .map(|path| (path, left.0.get(path), right.0.get(path)));
    let differing = differing.filter(|(_, left, right)| left != right);
    differing
        .take(10)
        .map(|(path, left, right)| format!("{path:?}:\n  {left:?}\n  {right:?}"))
        .collect()
}

/// Reads the extended attributes in the `user.` and `system.` namespaces.
fn xattrs(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut names = vec![0; ATTRIBUTES];
    let len = llistxattr(path, &mut names).unwrap_or(0);
    let names = names[..len]
        .split(|byte| *byte == 0)
        .filter(|name| name.starts_with(b"user.") || name.starts_with(b"system."));
    let value = |name: &[u8]| {
        let mut value = vec![0; ATTRIBUTES];
        let len = lgetxattr(path, OsStr::from_bytes(name), &mut value).unwrap_or(0);
        value.truncate(len);
        value
    };
    names.map(|name| (name.to_vec(), value(name))).collect()
}

/// Limit of Linux for a list of attribute names and for a value, in bytes (`XATTR_LIST_MAX`).
const ATTRIBUTES: usize = 64 << 10;

/// Returns the data extents of a file, without holes (SEEK_DATA).
pub fn data_of(path: &Path) -> Vec<(u64, u64)> {
    let file = File::open(path).unwrap();
    let mut extents = Vec::new();
    let mut offset = 0;
    loop {
        match seek(&file, SeekFrom::Data(offset)) {
            Ok(begin) => {
                offset = seek(&file, SeekFrom::Hole(begin)).unwrap();
                extents.push((begin, offset - begin));
            }
            Err(Errno::NXIO) => return extents,
            Err(error) => panic!("{}: {error}", path.display()),
        }
    }
}

/// Sets the access and modification time of a file or symbolic link to `seconds` after 1970, plus a
/// fixed fraction.
pub fn age(path: &Path, seconds: u64) {
    let time = Timespec {
        tv_sec: i64::try_from(seconds).unwrap(),
        tv_nsec: 123_456_789,
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// Creates a file with this content, and its missing parent directories.
pub fn plant(root: &Path, name: &str, bytes: impl AsRef<[u8]>) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// Creates a sparse file. Each offset in `data` has one page of data; the rest is a hole.
pub fn plant_sparse(path: &Path, size: u64, data: &[u64]) {
    use std::os::unix::fs::FileExt;
    let file = File::create(path).unwrap();
    file.set_len(size).unwrap();
    for offset in data {
        file.write_all_at(&[0xab; 4096], *offset).unwrap();
    }
    file.sync_all().unwrap();
}

/// Creates a tree with one entry of each type that is copied, and modification times in the past.
/// The file system must support extended attributes and ACLs.
pub fn plant_everything(root: &Path) {
    for (name, len) in [
        ("empty", 0),
        ("one", 1),
        ("small", 10_000),
        ("deep/a/b/c/file", 300_000),
        ("large", (5 << 20) + 3),
    ] {
        plant(root, name, crate::content(len));
    }
    for index in 0..300 {
        plant(
            root,
            &format!("many/file-{index:03}"),
            crate::content(index * 7),
        );
    }
    plant(root, "name with spaces", b"spaces");
    fs::write(root.join(OsStr::from_bytes(b"wild\n\x1b[2J\xff")), b"wild").unwrap();
    fs::create_dir(root.join("nothing in it")).unwrap();
    symlink("small", root.join("link")).unwrap();
    symlink("/nowhere/at/all", root.join("dangling")).unwrap();
    symlink("deep", root.join("deep link")).unwrap();
    fs::hard_link(root.join("small"), root.join("second name")).unwrap();
    fs::hard_link(root.join("small"), root.join("deep/third name")).unwrap();
    plant_sparse(&root.join("sparse"), 8 << 20, &[0, 3 << 20]);
    for (name, mode) in [
        ("one", 0o640),
        ("large", 0o755),
        ("many/file-001", 0o400),
        ("deep/a", 0o750),
        ("nothing in it", 0o700),
    ] {
        fs::set_permissions(root.join(name), Permissions::from_mode(mode)).unwrap();
    }
    set_xattr(&root.join("small"), "user.colour", b"blue");
    set_xattr(&root.join("deep"), "user.colour", b"green");
    set_acl(&root.join("one"));
    age_all(root, 1_000_000_000);
}

fn set_xattr(path: &Path, name: &str, value: &[u8]) {
    lsetxattr(path, name, value, XattrFlags::empty())
        .unwrap_or_else(|error| panic!("{name} of {}: {error}", path.display()));
}

/// Sets an ACL that permits user and group 1234 to read a file.
pub fn set_acl(path: &Path) {
    set_xattr(path, ACL, &acl());
}

/// Extended attribute that holds the access ACL of a file.
pub const ACL: &str = "system.posix_acl_access";

/// Returns an ACL that permits user and group 1234 to read, in the kernel's format
/// (linux/posix_acl_xattr.h).
pub fn acl() -> Vec<u8> {
    let entry = |tag: u16, bits: u16, id: u32| {
        [
            &tag.to_le_bytes()[..],
            &bits.to_le_bytes(),
            &id.to_le_bytes(),
        ]
        .concat()
    };
    let nobody = u32::MAX;
    let entries = [
        entry(1, 6, nobody),
        entry(2, 4, 1234),
        entry(4, 4, nobody),
        entry(8, 4, 1234),
        entry(16, 4, nobody),
        entry(32, 0, nobody),
    ];
    [&2_u32.to_le_bytes()[..], &entries.concat()].concat()
}

/// Sets the modification times of a tree, entries before directories. A change of an entry would
/// update the time of its directory.
fn age_all(path: &Path, seconds: u64) {
    if fs::symlink_metadata(path).unwrap().is_dir() {
        fs::read_dir(path)
            .unwrap()
            .for_each(|entry| age_all(&entry.unwrap().path(), seconds + 1));
    }
    age(path, seconds);
}
