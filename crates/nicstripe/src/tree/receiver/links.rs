//! Links at the receiver: symbolic links, which are never followed, and hard links to files of the
//! tree.

use std::{
    ffi::{OsStr, OsString},
    io,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    sync::Arc,
};

use nicstripe_proto::{
    FailCode, Name,
    tree::{Entry, EntryId, Existing, Verdict},
};
use rustix::fs::{AtFlags, FileType, Stat, linkat, statat, symlinkat};

use super::{
    Halt, Leaf, Receiver,
    files::look_at,
    placing::{only_adds, prepare_link, replaced},
};
use crate::{
    file::{Attributes, FileError, Inode, check_sought, inode_of},
    tree::metadata::node_of,
};

/// Hard link that waits until its file is decided or in place.
#[derive(Debug)]
pub(super) struct Link {
    entry: Entry,
    leaf: Leaf,
    to: EntryId,
    path: Name,
    /// Verdict already sent for the link; `None` while the file itself is undecided.
    verdict: Option<Verdict>,
}

impl Receiver {
    pub(super) fn on_symlink(
        &mut self,
        entry: Entry,
        leaf: Leaf,
        target: &[u8],
    ) -> Result<(), Halt> {
        self.place(
            entry,
            leaf,
            "make symbolic link",
            |_, _, _, _| Ok(()),
            |receiver, entry, leaf, verdict| {
                receiver.link_symbolically(entry, leaf, target, verdict)
            },
        )
    }

    fn link_symbolically(
        &self,
        entry: &Entry,
        leaf: &Leaf,
        target: &[u8],
        verdict: Verdict,
    ) -> io::Result<Inode> {
        let dir = leaf.parent.open()?;
        let target = OsStr::from_bytes(target);
        let attributes = Attributes::of_new(entry, &self.request.rules, self.mask_of(leaf))
            .privileged(self.request.privileged);
        let make = |hidden: &OsStr| symlinkat(target, &dir, hidden);
        // New links too: a link with its name but not its time would count as the same in the next
        // run.
        self.put_in_place(
            &dir,
            &leaf.name,
            verdict == Verdict::Replace,
            make,
            prepare_link(&attributes, target),
        )
    }

    pub(super) fn on_hard_link(
        &mut self,
        entry: Entry,
        leaf: Leaf,
        to: EntryId,
        path: Name,
    ) -> Result<(), Halt> {
        if !self.request.rules.hard_links {
            return Err(Halt::protocol(
                "peer sent a hard link, which was not requested",
            ));
        }
        if to.0 >= entry.id.0 {
            let what = format!("peer sent a link to entry {to}, which was not announced");
            return Err(Halt::protocol(what));
        }
        // A link shares the attributes of its file.
        let entry = Entry {
            xattrs: None,
            ..entry
        };
        self.continue_link(Link {
            entry,
            leaf,
            to,
            path,
            verdict: None,
        })
    }

    /// Resumes the hard links that waited for a file, once it was decided, is in place, or has
    /// failed.
    pub(super) fn resume_links(&mut self, to: EntryId) -> Result<(), Halt> {
        for link in self.links.remove(&to).unwrap_or_default() {
            self.waiting_links -= 1;
            self.footprint -= link.entry.footprint();
            self.continue_link(link)?;
        }
        Ok(())
    }

    fn continue_link(&mut self, mut link: Link) -> Result<(), Halt> {
        if self.undecided.contains_key(&link.to) {
            self.wait(link);
            return Ok(());
        }
        if self.failed.contains(&link.to) {
            let error = link
                .leaf
                .error("link", io::Error::other("its target failed"))
                .with_code(FailCode::Refused);
            return self.end_link(link, Err(error));
        }
        if !self.files.contains_key(&link.to) && !self.request.rules.dry_run {
            return self.make_link(link);
        }
        // The file is still arriving: the link is wanted regardless of the existing file, if that
        // may be replaced.
        let existing = match self.look(&link.leaf) {
            Ok(existing) => existing,
            Err(error) => {
                let error = link.leaf.error("look for", error);
                return self.end_link(link, Err(error));
            }
        };
        let is_same = self.request.rules.dry_run
            && self
                .find_file(&link.path)
                .is_ok_and(|(.., file)| is_same(existing.as_ref(), &file));
        let verdict = if is_same {
            Verdict::Same
        } else {
            self.link_verdict(existing.as_ref())
        };
        if self.request.rules.dry_run || !verdict.is_wanted() {
            return self.end_link(link, Ok(verdict));
        }
        if let Some(error) = self.objection(&link.entry, &link.leaf, verdict) {
            return self.end_link(link, Err(error));
        }
        self.out.decide(link.entry.id, verdict);
        link.verdict = Some(verdict);
        self.wait(link);
        Ok(())
    }

    fn wait(&mut self, link: Link) {
        self.waiting_links += 1;
        self.footprint += link.entry.footprint();
        self.links.entry(link.to).or_default().push(link);
    }

    fn link_verdict(&self, existing: Option<&(Existing, Stat)>) -> Verdict {
        let may_replace = self.request.rules.replace || self.request.rules.update;
        match existing {
            None => Verdict::Create,
            Some((Existing::Directory, _)) => Verdict::Exists,
            Some(_) if may_replace => Verdict::Replace,
            Some(_) => Verdict::Exists,
        }
    }

    fn make_link(&mut self, link: Link) -> Result<(), Halt> {
        let made = self.try_link(&link);
        let result = match made {
            Ok(verdict) if verdict == Verdict::Replace && self.request.append_only => {
                Err(only_adds(&link.leaf))
            }
            made => made.map_err(|error| link.leaf.error("link", error)),
        };
        self.end_link(link, result)
    }

    fn try_link(&self, link: &Link) -> io::Result<Verdict> {
        let (from, name, file) = self.find_file(&link.path)?;
        let inode = inode_of(&file);
        if !self.placed_inodes.contains(link.to, inode) {
            return Err(io::Error::other("this copy did not place the file"));
        }
        let dir = link.leaf.parent.open()?;
        let existing = look_at(&dir, &link.leaf.name)?;
        if is_same(existing.as_ref(), &file) {
            return Ok(Verdict::Same);
        }
        let verdict = self.link_verdict(existing.as_ref());
        match verdict {
            Verdict::Create => {}
            Verdict::Replace if !self.request.append_only => {}
            _ => return Ok(verdict),
        }
        let make = |hidden: &OsStr| linkat(&from, &name, &dir, hidden, AtFlags::empty());
        // The path may lead to another file since it was looked up.
        let check = |_: &OwnedFd, stat: &Stat| match inode_of(stat) == inode {
            true => Ok(()),
            false => Err(replaced()),
        };
        let replace = verdict == Verdict::Replace;
        self.put_in_place(&dir, &link.leaf.name, replace, make, check)?;
        Ok(verdict)
    }

    /// Finds the file of the tree to which a hard link refers. Returns its directory, its name in
    /// that directory and its metadata.
    fn find_file(&self, path: &Name) -> io::Result<(Arc<OwnedFd>, OsString, Stat)> {
        check_sought(path)?;
        let (Some(top), Some((parent, name))) = (&self.top, self.local_path(path)) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let dir = top.ground.open_directory(&parent)?;
        let stat = statat(&dir, &name, AtFlags::SYMLINK_NOFOLLOW)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        let is_node = node_of(kind, &stat)
            .is_some_and(|node| self.request.rules.nodes && self.may_have(node.kind));
        if kind != FileType::RegularFile && !is_node {
            return Err(io::Error::other("its target is not a regular file"));
        }
        Ok((Arc::new(dir), name, stat))
    }

    fn end_link(&mut self, link: Link, result: Result<Verdict, FileError>) -> Result<(), Halt> {
        let Link {
            entry,
            leaf,
            verdict: announced,
            ..
        } = link;
        let result = match (result, announced) {
            // The verdict was "wanted", so the link needs a result even if another process created
            // it meanwhile.
            (Ok(Verdict::Exists), Some(_)) => {
                let cause =
                    io::Error::new(io::ErrorKind::AlreadyExists, "its name was taken meanwhile");
                Err(leaf.error("link", cause))
            }
            (result, _) => result,
        };
        let verdict = match (result, announced) {
            (Err(error), None) => return self.refuse(entry, leaf.shown(), error),
            (Err(error), Some(_)) => {
                self.out.fail(Some(entry.id), leaf.shown(), &error)?;
                return self.settle(entry.parent, true);
            }
            (Ok(_), Some(announced)) => announced,
            (Ok(Verdict::Exists), None) => return self.leave(entry, &leaf),
            (Ok(verdict), None) => verdict,
        };
        self.out.report.hard_links += 1;
        if !verdict.is_wanted() {
            return self.skip(entry, &leaf, verdict);
        }
        if announced.is_none() {
            self.out.decide(entry.id, verdict);
        }
        self.placed(&entry, &leaf, verdict)
    }
}

/// Returns true if the existing name is already a hard link to the file.
fn is_same(existing: Option<&(Existing, Stat)>, file: &Stat) -> bool {
    existing.is_some_and(|(_, stat)| inode_of(stat) == inode_of(file))
}
