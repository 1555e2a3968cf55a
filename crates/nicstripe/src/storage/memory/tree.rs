//! Directories of the in-memory storage.

use std::{collections::BTreeMap, io, ops::Bound, sync::Arc, time::SystemTime};

use nicstripe_proto::{ETag, FailCode, Name, ObjectAttributes};

use super::blocks::Blocks;
use crate::{
    file::{FileError, FileIdentity, check_tag},
    storage::backend::{Kind, Listed, Replace, Stat},
};

/// Immutable content of a file, shared with its readers. A changed file gets a new one.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) blocks: Blocks,
    pub(super) size: u64,
    pub(super) mode: u32,
    pub(super) modified: SystemTime,
    pub(super) version: u64,
    pub(super) attributes: ObjectAttributes,
}

impl Content {
    pub(super) fn identity(&self) -> FileIdentity {
        FileIdentity {
            size: self.size,
            modified: self.modified,
            version: self.version,
        }
    }

    pub(super) fn read(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let end = offset.checked_add(bytes.len() as u64);
        if end.is_none_or(|end| end > self.size) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.blocks.read(bytes, offset);
        Ok(())
    }
}

/// Directory tree of the in-memory storage, from the root.
#[derive(Debug, Default)]
pub(super) struct Tree(Dir);

#[derive(Debug)]
struct Dir {
    entries: BTreeMap<Vec<u8>, Node>,
    modified: SystemTime,
}

#[derive(Debug)]
enum Node {
    File(Arc<Content>),
    Dir(Dir),
}

impl Default for Dir {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
            modified: SystemTime::now(),
        }
    }
}

impl Node {
    fn stat(&self) -> Stat {
        match self {
            Self::File(content) => Stat {
                has_attributes: !content.attributes.is_empty(),
                ..Stat::of_file(&content.identity())
            },
            Self::Dir(dir) => Stat::new(Kind::Dir, 0, dir.modified),
        }
    }
}

impl Tree {
    pub(super) fn file(&self, name: &Name) -> Result<Arc<Content>, FileError> {
        match self.find(name) {
            Some(Node::File(content)) => Ok(content.clone()),
            Some(Node::Dir(_)) => Err(not_a_file("open", name)),
            None => Err(missing("open", name)),
        }
    }

    /// Returns an error if a file cannot be created with this name: it exists and must not be
    /// replaced, is a directory, or its directory does not exist.
    pub(super) fn check_free(&self, name: &Name, replace: Replace) -> Result<(), FileError> {
        match self.find(name) {
            Some(Node::Dir(_)) => Err(not_a_file("replace", name).with_code(FailCode::Occupied)),
            Some(Node::File(content)) => replace.check(name, Some(content.identity())),
            None if self.parent(name).is_none() => Err(missing("open the directory of", name)),
            None => replace.check(name, None),
        }
    }

    pub(super) fn check_tag(
        &self,
        operation: &'static str,
        name: &Name,
        tag: ETag,
    ) -> Result<(), FileError> {
        let found = match self.find(name) {
            Some(Node::File(content)) => Some(content.identity().etag()),
            Some(Node::Dir(_)) | None => None,
        };
        check_tag(found, tag, operation, name)
    }

    pub(super) fn put(
        &mut self,
        name: &Name,
        content: Content,
        replace: Replace,
    ) -> Result<(), FileError> {
        self.check_free(name, replace)?;
        let parent = self
            .parent_mut(name)
            .ok_or_else(|| missing("open the directory of", name))?;
        parent.insert(name.file_name(), Node::File(Arc::new(content)));
        Ok(())
    }

    pub(super) fn stat(&self, name: &Name) -> Result<Stat, FileError> {
        self.find(name)
            .map(Node::stat)
            .ok_or_else(|| missing("stat", name))
    }

    pub(super) fn list(
        &self,
        dir: Option<&Name>,
        after: Option<&[u8]>,
        most: usize,
    ) -> Result<Listed, FileError> {
        let found = match dir {
            None => &self.0,
            Some(name) => match self.find(name) {
                Some(Node::Dir(dir)) => dir,
                Some(Node::File(_)) => {
                    let cause = io::Error::new(io::ErrorKind::NotADirectory, "it is a file");
                    return Err(FileError::new("list", name, cause));
                }
                None => return Err(missing("list", name)),
            },
        };
        let behind = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut entries = found.entries.range::<[u8], _>((behind, Bound::Unbounded));
        let listed = entries
            .by_ref()
            .take(most)
            .map(|(name, node)| (name.clone(), node.stat()))
            .collect();
        Ok(Listed {
            entries: listed,
            more: entries.next().is_some(),
        })
    }

    pub(super) fn remove(&mut self, name: &Name) -> Result<(), FileError> {
        match self.find(name) {
            None => return Err(missing("remove", name)),
            Some(Node::Dir(dir)) if !dir.entries.is_empty() => {
                let cause = io::Error::new(io::ErrorKind::DirectoryNotEmpty, "directory not empty");
                return Err(FileError::new("remove", name, cause).with_code(FailCode::Exists));
            }
            Some(_) => {}
        }
        if let Some(parent) = self.parent_mut(name) {
            parent.take(name.file_name());
        }
        Ok(())
    }

    pub(super) fn rename(
        &mut self,
        from: &Name,
        to: &Name,
        replace: bool,
    ) -> Result<(), FileError> {
        let is_dir = matches!(
            self.find(from).ok_or_else(|| missing("rename", from))?,
            Node::Dir(_)
        );
        if from == to && replace {
            return Ok(());
        }
        self.check_free(
            to,
            match replace && !is_dir {
                true => Replace::Always,
                false => Replace::Never,
            },
        )?;
        let is_beneath = to
            .components()
            .zip(from.components())
            .all(|(to, from)| to == from)
            && to.components().len() > from.components().len();
        if is_dir && is_beneath {
            let why = "the new name is inside it";
            return Err(FileError::refused("rename", from, why));
        }
        let node = self
            .parent_mut(from)
            .and_then(|parent| parent.take(from.file_name()));
        if let (Some(node), Some(parent)) = (node, self.parent_mut(to)) {
            parent.insert(to.file_name(), node);
        }
        Ok(())
    }

    pub(super) fn make_dir(&mut self, name: &Name) -> Result<(), FileError> {
        let mut dir = &mut self.0;
        for component in name.components() {
            if !dir.entries.contains_key(component) {
                dir.insert(component, Node::Dir(Dir::default()));
            }
            match dir.entries.get_mut(component) {
                Some(Node::Dir(next)) => dir = next,
                _ => {
                    let why = "a file has the name of a directory";
                    let error = FileError::refused("make directory", name, why);
                    return Err(error.with_code(FailCode::NotADirectory));
                }
            }
        }
        Ok(())
    }

    fn find(&self, name: &Name) -> Option<&Node> {
        self.parent(name)?.entries.get(name.file_name())
    }

    fn parent(&self, name: &Name) -> Option<&Dir> {
        let mut above = name.components();
        above.next_back();
        above.try_fold(&self.0, |dir, component| match dir.entries.get(component) {
            Some(Node::Dir(next)) => Some(next),
            _ => None,
        })
    }

    fn parent_mut(&mut self, name: &Name) -> Option<&mut Dir> {
        let mut above = name.components();
        above.next_back();
        above.try_fold(&mut self.0, |dir, component| {
            match dir.entries.get_mut(component) {
                Some(Node::Dir(next)) => Some(next),
                _ => None,
            }
        })
    }
}

impl Dir {
    fn insert(&mut self, name: &[u8], node: Node) {
        self.entries.insert(name.to_vec(), node);
        self.modified = SystemTime::now();
    }

    fn take(&mut self, name: &[u8]) -> Option<Node> {
        self.modified = SystemTime::now();
        self.entries.remove(name)
    }
}

fn missing(operation: &'static str, name: &Name) -> FileError {
    let why = io::Error::new(io::ErrorKind::NotFound, "no such file or directory");
    FileError::new(operation, name, why)
}

fn not_a_file(operation: &'static str, name: &Name) -> FileError {
    let why = io::Error::new(io::ErrorKind::IsADirectory, "it is a directory");
    FileError::new(operation, name, why).with_code(FailCode::NotAFile)
}
