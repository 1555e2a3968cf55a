//! Copies to interrupt, and the content that each file may have before, during and after.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use super::field::Field;
use crate::{
    Side, content, is_same,
    tree::{Aspects, age, assert_same_tree_after, plant, walk},
};

/// Kind of copy to interrupt, such as those in [`CASES`].
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// Begins with `put` or `get`.
    pub name: &'static str,
    what: What,
    options: &'static [&'static str],
    /// True if the target names exist before the copy, with other content.
    replaces: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Put,
    Get,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// Single file; its size in bytes.
    File(usize),
    Tree,
}

const fn case(
    name: &'static str,
    what: What,
    options: &'static [&'static str],
    replaces: bool,
) -> Case {
    Case {
        name,
        what,
        options,
        replaces,
    }
}

/// Size in bytes of a file that the receiver syncs twice during the copy, once every 16 MiB.
const LONG: usize = (36 << 20) + 99;

/// Size in bytes of a file with three chunks. The last chunk is shorter.
const SHORT: usize = (512 << 10) + 77;

/// Kinds of copies that the tests interrupt.
pub const CASES: &[Case] = &[
    case("put", What::File(LONG), &[], false),
    case("get", What::File(LONG), &[], false),
    case("put-short", What::File(SHORT), &[], false),
    case("get-short", What::File(SHORT), &[], false),
    case("put-empty", What::File(0), &[], false),
    case("put-over", What::File(LONG), &["-f"], true),
    case("get-over", What::File(SHORT), &["-f", "-p"], true),
    case("put-verified", What::File(SHORT), &["--verify"], false),
    case("put-delta", What::File(LONG), &["--delta"], true),
    case("get-delta", What::File(LONG), &["--delta"], true),
    case("put-in-place", What::File(LONG), &[IN_PLACE], true),
    case("put-read-only", What::File(LONG), &["-p"], false),
    case("get-read-only", What::File(SHORT), &["-p"], false),
    case("put-tree", What::Tree, &["-r", "-H"], false),
    case("get-tree", What::Tree, &["-r", "-H"], false),
    case("put-tree-over", What::Tree, &["-r", "-H", "-f"], true),
    case("get-tree-over", What::Tree, &["-r", "-H", "-f"], true),
];

/// Copies of files so large that a rerun after a late kill must resume: retransmitting the whole
/// file would exceed `MOST_LOST`.
pub const VAST: &[Case] = &[
    case("put-vast", What::File(VAST_LEN), &[], false),
    case("get-vast", What::File(VAST_LEN), &[], false),
];

const VAST_LEN: usize = 192 << 20;

impl Case {
    pub fn named(name: &str) -> Option<Self> {
        CASES
            .iter()
            .chain(VAST)
            .find(|case| case.name == name)
            .copied()
    }

    /// Creates the source, and the old content at the target.
    pub fn prepare(&self, field: &Field) {
        let (from, to) = self.sides(field);
        clear(&from.files());
        clear(&to.files());
        for (name, new) in self.files() {
            plant(&from.files(), &name, &new);
            age(&from.path(&name), 1_000_000_000);
            if self.name.contains("read-only") {
                fs::set_permissions(from.path(&name), Permissions::from_mode(0o444)).unwrap();
            }
            if self.replaces {
                plant(&to.files(), &name, self.old(&new));
            }
        }
        if self.what == What::Tree {
            symlink("small", from.path("source/link")).unwrap();
            fs::hard_link(from.path("source/small"), from.path("source/second")).unwrap();
        }
    }

    /// Returns the `cp` arguments of the copy.
    pub fn words(&self) -> Vec<&'static str> {
        let words = match self.way() {
            Way::Put => ["source", "127.0.0.1:"],
            Way::Get => ["127.0.0.1:source", "."],
        };
        self.options.iter().copied().chain(words).collect()
    }

    pub fn receiver<'a>(&self, field: &'a Field) -> &'a Side {
        self.sides(field).1
    }

    pub fn way(&self) -> Way {
        match self.name.starts_with("put") {
            true => Way::Put,
            false => Way::Get,
        }
    }

    pub fn is_file(&self) -> bool {
        self.what != What::Tree
    }

    /// Panics if a target file has content that is neither the old nor the complete new one.
    #[track_caller]
    pub fn check_between(&self, field: &Field) {
        let to = self.receiver(field).files();
        let files = self.files();
        for path in walk(&to) {
            let name = path.strip_prefix(&to).unwrap().to_str().unwrap().to_owned();
            let name = if name == "source/second" {
                "source/small".to_owned()
            } else {
                name
            };
            if is_hidden(&name) || path.is_symlink() || path.is_dir() {
                continue;
            }
            let (_, new) = files
                .iter()
                .find(|(known, _)| *known == name)
                .unwrap_or_else(|| panic!("{name:?} came from nowhere"));
            let found = fs::read(&path).unwrap();
            let is_old = self.replaces
                && (is_same(&found, &self.old(new)) || self.options.contains(&IN_PLACE));
            assert!(
                is_old || is_same(&found, new),
                "{}: {name:?} is neither old nor new, of {} bytes",
                self.name,
                found.len()
            );
        }
    }

    /// Panics unless each target file has the new content and no temporary file remains.
    #[track_caller]
    pub fn check_end(&self, field: &Field, context: &str) {
        let (from, to) = self.sides(field);
        let left: Vec<PathBuf> = walk(&to.files())
            .into_iter()
            .filter(|path| is_hidden(&path.to_string_lossy()))
            .collect();
        assert!(left.is_empty(), "{context}: left behind: {left:?}");
        match self.what {
            What::Tree => {
                let aspects = Aspects {
                    hard_links: true,
                    ..Aspects::NONE
                };
                assert_same_tree_after(context, &from.path("source"), &to.path("source"), aspects);
            }
            What::File(len) => assert!(
                is_same(&to.read("source"), &content(len)),
                "{context}: the target is wrong"
            ),
        }
        assert_eq!(to.names(), ["source"], "{context}");
    }

    /// Removes the journals in the target folder, and preserves the modification times of their
    /// directories.
    pub fn remove_journals(&self, field: &Field) {
        let found = walk(&self.receiver(field).files());
        for path in found
            .iter()
            .filter(|path| path.to_string_lossy().ends_with(".nicstripe-journal"))
        {
            let directory = fs::File::open(path.parent().unwrap()).unwrap();
            let modified = directory.metadata().unwrap().modified().unwrap();
            fs::remove_file(path).unwrap();
            directory.set_modified(modified).unwrap();
        }
    }

    fn sides<'a>(&self, field: &'a Field) -> (&'a Side, &'a Side) {
        match self.way() {
            Way::Put => (&field.client, &field.server),
            Way::Get => (&field.server, &field.client),
        }
    }

    fn files(&self) -> Vec<(String, Vec<u8>)> {
        let tree = [
            ("empty", 0),
            ("small", 10_000),
            ("deep/one", 1),
            ("deep/er/middle", 700_000),
            ("large", (5 << 20) + 3),
        ];
        match self.what {
            What::File(len) => vec![("source".into(), content(len))],
            What::Tree => {
                let many =
                    (0..30).map(|index| (format!("source/many/{index}"), content(index * 500)));
                tree.iter()
                    .map(|(name, len)| (format!("source/{name}"), content(*len)))
                    .chain(many)
                    .collect()
            }
        }
    }

    /// Returns the old content of a target file. Some of its chunks equal the new ones.
    fn old(&self, new: &[u8]) -> Vec<u8> {
        let every = if self.options.contains(&"-f") {
            1
        } else {
            3 << 20
        };
        let mut old = new.to_vec();
        old.iter_mut().step_by(every).for_each(|byte| *byte ^= 0xff);
        old.push(1);
        old
    }
}

/// `cp` option that writes in place. An interrupted copy may leave a mixture of old and new data.
const IN_PLACE: &str = "--inplace";

fn is_hidden(name: &str) -> bool {
    name.contains(".nicstripe-")
}

fn clear(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.is_symlink() {
            fs::remove_dir_all(path).unwrap();
        } else {
            fs::remove_file(path).unwrap();
        }
    }
}
