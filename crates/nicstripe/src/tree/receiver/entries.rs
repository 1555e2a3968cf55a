//! Path of an announced entry through the receiver: check, comparison, creation and outcome.

use std::io;

use nicstripe_proto::{
    FailCode,
    tree::{
        Content, Entry, EntryId, Existing, MOST_PENDING, MOST_UNDECIDED, OwnerNames, PACKED_MOST,
        Reason, Verdict, decide,
    },
};

use super::{
    Halt, Receiver, breach,
    comparison::Candidate,
    directories::{Spot, check_outside},
    files::EndedFile,
    leaf::Leaf,
    links::Link,
    outbox::announced,
    placing::{self, only_adds, only_files},
};
use crate::{
    file::{Attributes, FileError, inode_of},
    tree::{
        acl,
        options::{EntryOutcome, cannot_make_directory},
    },
};

impl Receiver {
    pub(super) fn on_entry(&mut self, mut entry: Entry) -> Result<(), Halt> {
        self.check_limits(&entry)?;
        if let Content::File { size, .. } = entry.content {
            self.out.progress.files += 1;
            self.out.progress.bytes = self.out.progress.bytes.saturating_add(size);
        }
        self.own_by_name(&mut entry);
        let filters = &self.context.request.filters;
        if self
            .promised
            .as_mut()
            .is_some_and(|promised| !promised.announced(&entry, filters))
        {
            breach!("peer sent an entry that was not requested");
        }
        let spot = self.directories.locate(&entry)?;
        self.out.expect_verdict();
        let request = &self.context.request;
        if !request.privileged
            && matches!(spot, Spot::Leaf(_) | Spot::Whole(..))
            && Attributes::takes_privilege(&entry, &request.rules)
        {
            self.out.stripped(1);
        }
        match spot {
            Spot::Blocked => self.pass_over(&entry, Verdict::Blocked),
            Spot::Refused(leaf, error) => self.refuse(&entry, &leaf, error),
            Spot::Whole(dir, verdict) => {
                let is_shared = self.directories.note_announced(&entry, None);
                self.out.decide(entry.id, verdict);
                self.directories.enter(&entry, dir, verdict, is_shared)
            }
            Spot::Leaf(leaf) => {
                let promised = self.promised.as_ref();
                let admitted = promised.map(|promised| promised.admit(&entry, &leaf));
                if let Some(Err(error)) = admitted {
                    return self.refuse(&entry, &leaf, error);
                }
                let is_shared = self.directories.note_announced(&entry, Some(&leaf));
                match entry.content {
                    Content::Directory => self.on_directory(entry, leaf, is_shared),
                    _ => self.on_leaf(entry, leaf),
                }
            }
        }
    }

    /// Checks that an entry is the next one, and that all entries stay within their limits.
    fn check_limits(&self, entry: &Entry) -> Result<(), Halt> {
        let next = self.out.next_entry();
        if entry.id != next {
            breach!("peer sent entry {}, expected {next}", entry.id);
        }
        // Twice the limit of a correct sender, as verdicts may still be in flight to it.
        let pending = self.files.len() + self.links.waiting() + self.directories.unfinished();
        if pending >= MOST_PENDING + 2 * MOST_UNDECIDED
            || self.out.undecided() >= 2 * MOST_UNDECIDED
        {
            breach!("peer exceeded the limit of pending entries");
        }
        // A sender that honours the announced limit stays below this one.
        let most = self.context.request.allowance.entries;
        if self.context.memory.footprint() + self.out.footprint() > most {
            let most = most >> 20;
            breach!("peer exceeded the limit of pending entries: they exceed {most} MiB of memory");
        }
        Ok(())
    }

    /// Replaces the sender's user and group IDs, also those in ACLs, by local ones. Drops the
    /// names, so that they take no memory while the entry waits.
    fn own_by_name(&mut self, entry: &mut Entry) {
        let rules = &self.context.request.rules;
        let Some(OwnerNames { user, group, acl }) =
            entry.owner_names.take().filter(|_| !rules.numeric_ids)
        else {
            return;
        };
        if rules.owners {
            entry.owner = entry
                .owner
                .map(|owner| self.owners.local(owner, user, group));
        }
        if let (Some(xattrs), Some(names), true) = (&mut entry.xattrs, acl, rules.xattrs) {
            acl::make_local(xattrs, &names, &mut self.owners);
        }
    }

    fn on_directory(&mut self, entry: Entry, leaf: Leaf, is_shared: bool) -> Result<(), Halt> {
        check_outside(&entry, &leaf)?;
        let existing = match self.directories.look(&leaf) {
            Ok(existing) => existing.map(|(existing, _)| existing),
            Err(error) => return self.refuse(&entry, &leaf, leaf.error("look for", error)),
        };
        let verdict = decide(&self.context.request.rules, &entry, existing.as_ref());
        if verdict == Verdict::Exists {
            let text = cannot_make_directory(&leaf.text());
            self.out
                .note_failure(leaf.shown(), FailCode::NotAFile, text)?;
            return self.pass_over(&entry, verdict);
        }
        match self.directories.make(&entry, &leaf, verdict) {
            Ok(dir) => {
                self.out.decide(entry.id, verdict);
                self.directories.enter(&entry, dir, verdict, is_shared)
            }
            Err(error) => self.refuse(&entry, &leaf, leaf.error("make directory", error)),
        }
    }

    fn on_leaf(&mut self, mut entry: Entry, leaf: Leaf) -> Result<(), Halt> {
        if self.comparison.is_busy(&leaf) || self.files.is_busy(&leaf) {
            let why = io::Error::other("a file of this name is being received");
            let error = leaf.error("receive", why).with_code(FailCode::Busy);
            return self.refuse(&entry, &leaf, error);
        }
        match entry.content {
            Content::HardLink { .. } if !self.context.request.rules.hard_links => {
                breach!("peer sent a hard link, which was not requested");
            }
            Content::HardLink { to, .. } if to.0 >= entry.id.0 => {
                breach!("peer sent a link to entry {to}, which was not announced");
            }
            Content::HardLink { to, ref path } => {
                let path = path.clone();
                // A link shares the attributes of its file.
                entry.xattrs = None;
                return self.on_link(Link {
                    entry,
                    leaf,
                    to,
                    path,
                    verdict: None,
                });
            }
            Content::File { size, alone, .. } if !alone && size > PACKED_MOST => {
                breach!("peer packed a file of {size} bytes, limit is {PACKED_MOST}")
            }
            Content::Node(_) if !self.context.request.rules.nodes => {
                breach!("peer sent a FIFO, socket or device, which was not requested")
            }
            Content::Node(node) if !self.context.may_have(node.kind) => {
                return self.leave_out(&entry, &leaf);
            }
            _ => {}
        }
        let existing = match self.directories.look_unless_new(&leaf) {
            Ok(existing) => existing,
            Err(error) => return self.refuse(&entry, &leaf, leaf.error("look for", error)),
        };
        let mut candidate = Candidate {
            entry,
            leaf,
            existing,
        };
        self.comparison.round_time(&mut candidate);
        if self.comparison.needs_digest(&candidate) {
            return self.comparison.push(candidate);
        }
        self.judge(candidate)
    }

    /// Compares an entry with the existing object, and requests, creates or skips it.
    pub(super) fn judge(&mut self, candidate: Candidate) -> Result<(), Halt> {
        let Candidate {
            entry,
            leaf,
            existing,
        } = candidate;
        let found = existing.as_ref().map(|(existing, _)| existing);
        let verdict = decide(&self.context.request.rules, &entry, found);
        match verdict {
            Verdict::Create | Verdict::Replace => {
                if let Some(error) = self.objection(&entry, &leaf, verdict) {
                    return self.refuse(&entry, &leaf, error);
                }
                match entry.content {
                    Content::File { size, alone, .. } => {
                        self.request_file(&entry, leaf, verdict, size, alone)
                    }
                    _ => self.make(&entry, &leaf, verdict),
                }
            }
            Verdict::Same => {
                if let Some((_, stat)) = &existing {
                    if let Err(error) = placing::keep(&self.context, &entry, &leaf, stat) {
                        let error = leaf.error("set the attributes of", error);
                        return self.refuse(&entry, &leaf, error);
                    }
                    self.links.on_placed(&entry, inode_of(stat));
                }
                self.out.report.unchanged += 1;
                self.skip(&entry, &leaf, verdict)
            }
            Verdict::Newer => {
                self.out.report.newer += 1;
                self.skip(&entry, &leaf, verdict)
            }
            _ if matches!(entry.content, Content::File { .. })
                && matches!(found, Some(Existing::Node(_) | Existing::Other)) =>
            {
                let error = only_files(&leaf);
                self.refuse(&entry, &leaf, error)
            }
            _ => self.leave(&entry, &leaf),
        }
    }

    /// Returns the reason to reject a wanted entry: the sender may not replace it, or the disk is
    /// full.
    fn objection(&mut self, entry: &Entry, leaf: &Leaf, verdict: Verdict) -> Option<FileError> {
        if verdict == Verdict::Replace && self.context.request.append_only {
            return Some(only_adds(leaf));
        }
        match entry.content {
            Content::File { size, .. } if self.files.lacks_room(leaf, size) => {
                Some(leaf.error("receive", io::ErrorKind::StorageFull.into()))
            }
            _ => None,
        }
    }

    fn request_file(
        &mut self,
        entry: &Entry,
        leaf: Leaf,
        verdict: Verdict,
        size: u64,
        alone: bool,
    ) -> Result<(), Halt> {
        self.out.decide(entry.id, verdict);
        if self.context.request.rules.dry_run {
            self.out.copied_file(leaf.shown(), verdict, size)?;
            return self.settle(entry.parent, false);
        }
        self.files.expect(entry, leaf, verdict)?;
        if alone {
            self.out.start_standalone(entry.id, size)?;
        }
        Ok(())
    }

    /// Creates a wanted symbolic link or node.
    fn make(&mut self, entry: &Entry, leaf: &Leaf, verdict: Verdict) -> Result<(), Halt> {
        if !self.context.request.rules.dry_run {
            match placing::make(&self.context, entry, leaf, verdict) {
                Ok(inode) => self.links.on_placed(entry, inode),
                Err(error) => return self.refuse(entry, leaf, error),
            }
        }
        self.out.decide(entry.id, verdict);
        match entry.content {
            Content::Symlink { .. } => self.out.report.symlinks += 1,
            _ => self.out.report.nodes += 1,
        }
        self.placed(entry, leaf, verdict)
    }

    /// Resumes the hard links that waited for a file, once it was decided, is in place, or has
    /// failed.
    pub(super) fn resume_links(&mut self, to: EntryId) -> Result<(), Halt> {
        self.links.take(to).try_for_each(|link| self.on_link(link))
    }

    fn on_link(&mut self, mut link: Link) -> Result<(), Halt> {
        if self.comparison.contains(link.to) {
            self.links.wait(link);
            return Ok(());
        }
        let is_arriving = self.files.contains(link.to);
        let result = if self.links.has_failed(link.to) {
            let why = io::Error::other("its target failed");
            Err(link.leaf.error("link", why).with_code(FailCode::Refused))
        } else if is_arriving || self.context.request.rules.dry_run {
            self.links.foresee(&link, &mut self.directories)
        } else {
            self.links.make(&link, &self.directories)
        };
        match result {
            Ok(verdict) if is_arriving && verdict.is_wanted() => {
                self.out.decide(link.entry.id, verdict);
                link.verdict = Some(verdict);
                self.links.wait(link);
                Ok(())
            }
            result => self.end_link(link, result),
        }
    }

    fn end_link(&mut self, link: Link, result: Result<Verdict, FileError>) -> Result<(), Halt> {
        let Link {
            entry,
            leaf,
            verdict: announced,
            ..
        } = link;
        let result = match result {
            // The verdict was "wanted", so the link needs a result even if another process created
            // it meanwhile.
            Ok(Verdict::Exists) if announced.is_some() => {
                let why = "its name was taken meanwhile";
                Err(leaf.error("link", io::Error::new(io::ErrorKind::AlreadyExists, why)))
            }
            result => result,
        };
        let verdict = match (result, announced) {
            (Err(error), None) => return self.refuse(&entry, &leaf, error),
            (Err(error), Some(_)) => {
                self.out.fail(Some(entry.id), leaf.shown(), &error)?;
                return self.settle(entry.parent, true);
            }
            (Ok(Verdict::Exists), _) => return self.leave(&entry, &leaf),
            (Ok(verdict), announced) => announced.unwrap_or(verdict),
        };
        if !verdict.is_wanted() {
            self.out.report.unchanged += 1;
            return self.skip(&entry, &leaf, verdict);
        }
        self.out.report.hard_links += 1;
        if announced.is_none() {
            self.out.decide(entry.id, verdict);
        }
        self.placed(&entry, &leaf, verdict)
    }

    /// Processes the sender's report that it cannot send a file. The sender has counted the
    /// failure.
    pub(super) fn on_abandoned(&mut self, id: EntryId, reason: &Reason) -> Result<(), Halt> {
        let Some((leaf, parent)) = self.files.abandon(id, self.links.has_failed(id))? else {
            return Ok(());
        };
        self.links.on_failed(id);
        self.out
            .note_failure(leaf.shown(), reason.code, announced(reason))?;
        self.resume_links(id)?;
        self.settle(parent, true)
    }

    pub(super) fn on_ended(&mut self, (id, file, result): EndedFile) -> Result<(), Halt> {
        let (shown, failed) = (file.leaf.shown(), result.is_err());
        match result {
            Ok(inode) => {
                if let Some(inode) = inode {
                    self.links.on_received(id, inode);
                }
                self.out.done(id);
                self.out.copied_file(shown, file.verdict, file.size)?;
            }
            Err(error) => {
                self.links.on_failed(id);
                self.out.fail(Some(id), shown, &error)?;
            }
        }
        self.resume_links(id)?;
        self.settle(file.parent, failed)
    }

    fn refuse(&mut self, entry: &Entry, leaf: &Leaf, error: FileError) -> Result<(), Halt> {
        self.out.fail(Some(entry.id), leaf.shown(), &error)?;
        self.pass_over(entry, Verdict::Refused)
    }

    /// Keeps an existing file that differs but may not be replaced. The sender derives the failure
    /// from the verdict.
    fn leave(&mut self, entry: &Entry, leaf: &Leaf) -> Result<(), Halt> {
        let cause = io::Error::new(io::ErrorKind::AlreadyExists, "it exists and differs");
        let text = leaf.error("replace", cause).one_line();
        self.out
            .note_failure(leaf.shown(), FailCode::Exists, text)?;
        self.pass_over(entry, Verdict::Exists)
    }

    /// Skips an entry that cannot be received, and all entries of such a directory. The failure has
    /// already been reported.
    fn pass_over(&mut self, entry: &Entry, verdict: Verdict) -> Result<(), Halt> {
        self.out.decide(entry.id, verdict);
        self.out.skip_file(entry);
        match entry.content {
            Content::Directory => {
                self.directories.block(entry, verdict);
                return Ok(());
            }
            Content::File { .. } | Content::Node(_) => self.links.on_failed(entry.id),
            _ => {}
        }
        self.settle(entry.parent, true)
    }

    /// Skips a device that this sender may not create; an existing file of that name stays.
    fn leave_out(&mut self, entry: &Entry, leaf: &Leaf) -> Result<(), Halt> {
        self.out.decide(entry.id, Verdict::LeftOut);
        self.out.report.special += 1;
        self.links.on_failed(entry.id);
        self.out.tell(leaf.shown(), EntryOutcome::Special)?;
        self.settle(entry.parent, false)
    }

    /// Skips a file that the sender need not send, and sends the verdict.
    fn skip(&mut self, entry: &Entry, leaf: &Leaf, verdict: Verdict) -> Result<(), Halt> {
        self.out.decide(entry.id, verdict);
        self.out.skip_file(entry);
        self.out
            .tell(leaf.shown(), EntryOutcome::Skipped(verdict))?;
        self.settle(entry.parent, false)
    }

    /// Sends the result of a link or node that is in place.
    fn placed(&mut self, entry: &Entry, leaf: &Leaf, verdict: Verdict) -> Result<(), Halt> {
        if !self.context.request.rules.dry_run {
            self.out.done(entry.id);
        }
        self.out
            .tell(leaf.shown(), EntryOutcome::Copied { verdict, bytes: 0 })?;
        self.settle(entry.parent, false)
    }

    fn settle(&mut self, parent: Option<EntryId>, failed: bool) -> Result<(), Halt> {
        self.directories.settle(parent, failed, &mut self.out)
    }
}
