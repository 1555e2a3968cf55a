//! Directory trees to back up, and their comparison.

use std::{
    collections::BTreeMap,
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

/// Returns pseudo-random bytes that do not repeat or compress. Different seeds give different
/// bytes.
pub(crate) fn content(seed: u64, len: usize) -> Vec<u8> {
    // Xorshift64*; a state of 0 would stay 0.
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut word = || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes()
    };
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend_from_slice(&word());
    }
    bytes.truncate(len);
    bytes
}

/// Writes a file with these permission bits, and creates its parent directories.
pub(crate) fn plant(folder: &Path, name: &str, bytes: &[u8], mode: u32) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, bytes).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
}

/// Writes files of many sizes, about 9 MB in total.
pub(crate) fn plant_all(folder: &Path) {
    plant(folder, "empty", b"", 0o644);
    plant(folder, "byte", b"x", 0o600);
    plant(folder, "program", &content(1, 300_000), 0o755);
    plant(folder, "deep/down/large", &content(2, 4 << 20), 0o640);
    for number in 0..30 {
        plant(
            folder,
            &format!("many/{number}"),
            &content(100 + number, 9_973 * number as usize),
            0o644,
        );
    }
    symlink("deep/down/large", folder.join("link")).unwrap();
    fs::set_permissions(folder.join("deep"), Permissions::from_mode(0o750)).unwrap();
}

/// Entry of a tree, with its permission bits and its content or link target.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Thing {
    Folder(u32),
    File(u32, Vec<u8>),
    Link(PathBuf),
}

/// Returns all entries in a directory tree by path.
pub(crate) fn read(folder: &Path) -> BTreeMap<PathBuf, Thing> {
    let mut things = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let mode = metadata.permissions().mode() & 0o7777;
            let thing = if metadata.is_dir() {
                folders.push(path.clone());
                Thing::Folder(mode)
            } else if metadata.is_symlink() {
                Thing::Link(fs::read_link(&path).unwrap())
            } else {
                Thing::File(mode, fs::read(&path).unwrap())
            };
            things.insert(path.strip_prefix(folder).unwrap().to_owned(), thing);
        }
    }
    things
}

/// Panics if two trees differ. Prints paths only, and no content of megabytes.
#[track_caller]
pub(crate) fn assert_same(left: &Path, right: &Path) {
    let (left, right) = (read(left), read(right));
    assert_eq!(
        left.keys().collect::<Vec<_>>(),
        right.keys().collect::<Vec<_>>()
    );
    for (path, thing) in &left {
        assert!(right.get(path) == Some(thing), "{} differs", path.display());
    }
}
