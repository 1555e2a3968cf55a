//! Handling of the input of a tree's sender: verdicts, results and ended jobs.

use super::*;
use crate::{
    file::ReadOptions,
    tree::{channel::Done, options::cannot_make_directory},
};

impl Sender {
    pub(super) fn handle(&mut self, input: SenderInput) -> Result<(), Halt> {
        match input {
            SenderInput::Message(queued) => {
                let (message, deleted) = queued.take();
                self.outlet.deleted_unnamed(deleted);
                self.take_message(message)
            }
            SenderInput::OpenStandalone { id, answer } => self.open_standalone(id, answer),
            SenderInput::StandaloneEnded { id, result } => self.standalone_ended(id, result),
            SenderInput::Committed => self.committed(),
            SenderInput::Job(Done::Content(file)) => {
                self.reads.arrived(file);
                Ok(())
            }
            SenderInput::Job(Done::Digest { id, digest }) => {
                self.reads.digested();
                self.digests.insert(id, Some(digest));
                Ok(())
            }
            SenderInput::Stop => Err(Halt::Stopped),
        }
    }

    fn take_message(&mut self, message: TreeMessage) -> Result<(), Halt> {
        match message {
            TreeMessage::Verdicts { first, verdicts } => self.take_verdicts(first, &verdicts),
            TreeMessage::Results {
                done,
                failed,
                deleted,
                stripped,
            } => {
                self.outlet.stripped(stripped.unwrap_or_default());
                done.into_iter()
                    .try_for_each(|(first, count)| self.take_done(first, count))?;
                failed
                    .iter()
                    .try_for_each(|failure| self.take_failure(failure))?;
                deleted
                    .iter()
                    .try_for_each(|name| self.outlet.deleted(name))
            }
        }
    }

    fn take_verdicts(&mut self, first: EntryId, verdicts: &[Verdict]) -> Result<(), Halt> {
        for (index, verdict) in verdicts.iter().enumerate() {
            let id = EntryId(first.0.saturating_add(index as u64));
            let announced = self.ledger.decide(id).map_err(protocol)?;
            self.take_verdict(id, announced, *verdict)?;
        }
        Ok(())
    }

    fn take_verdict(
        &mut self,
        id: EntryId,
        announced: Announced,
        verdict: Verdict,
    ) -> Result<(), Halt> {
        match verdict {
            Verdict::Create | Verdict::Replace if !self.rules.dry_run => {
                return self.on_wanted(id, announced, verdict);
            }
            Verdict::Newer if !self.rules.update => {
                return Err(protocol(LedgerError::NotAsked(id.0)));
            }
            Verdict::Refused => {
                self.outlet.will_not_be_sent(&announced);
                self.ledger.wait_for_result(id, announced, verdict);
                return Ok(());
            }
            _ => self.ledger.resolve(id, &announced),
        }
        match verdict {
            Verdict::Create | Verdict::Replace => self.outlet.copied(&announced, verdict),
            Verdict::Same | Verdict::Newer => self.outlet.skipped(&announced, verdict),
            Verdict::LeftOut => self.outlet.special(announced.name().as_ref()),
            Verdict::Blocked | Verdict::Refused => {
                self.outlet.will_not_be_sent(&announced);
                Ok(())
            }
            Verdict::Exists => {
                self.outlet.will_not_be_sent(&announced);
                let label = announced.location.label();
                let (code, text) = match announced.kind {
                    Kind::Directory => (FailCode::NotAFile, cannot_make_directory(&label)),
                    _ => (FailCode::Exists, format!("\"{label}\" exists and differs")),
                };
                self.outlet.failed(Some(&announced), code, text)
            }
        }
    }

    /// Handles a verdict that requests an entry: sends the file or starts its standalone transfer.
    /// An entry that is not a file only waits for its result.
    fn on_wanted(
        &mut self,
        id: EntryId,
        mut announced: Announced,
        verdict: Verdict,
    ) -> Result<(), Halt> {
        let (kind, location, content, is_failed) = (
            announced.kind,
            announced.location.clone(),
            announced.content.take(),
            announced.is_failed,
        );
        self.ledger.wait_for_result(id, announced, verdict);
        match kind {
            Kind::File { alone: true, .. } if is_failed => Ok(()),
            Kind::File {
                alone: true, size, ..
            } => {
                self.ledger.started_standalone(id);
                self.outlet.start_standalone(id, size)
            }
            Kind::File { .. } if is_failed => self.give_up(id),
            // Empty when the walk saw it: nothing to read.
            Kind::File { size: 0, .. } => self.send_content(id, &[]),
            Kind::File { identity, .. } => match content {
                Some(bytes) => self.send_content(id, &bytes),
                None => {
                    self.reads.want(ReadRequest {
                        id,
                        location,
                        identity,
                    });
                    Ok(())
                }
            },
            Kind::Directory | Kind::Symlink | Kind::HardLink | Kind::Node => Ok(()),
        }
    }

    fn take_done(&mut self, first: EntryId, count: u64) -> Result<(), Halt> {
        for pending in self.ledger.done(first, count).map_err(protocol)? {
            if pending.verdict.is_wanted() {
                self.outlet.copied(&pending.announced, pending.verdict)?;
            }
        }
        Ok(())
    }

    fn take_failure(&mut self, failure: &EntryFailure) -> Result<(), Halt> {
        let Some(id) = failure.id else {
            return self.outlet.failed_there(None, failure);
        };
        match self.ledger.failed(id).map_err(protocol)? {
            Some(announced) => self.outlet.failed_there(Some(&announced), failure),
            None => Ok(()),
        }
    }

    /// Ends the tree if every entry has its result. A missing result is a protocol violation by the
    /// peer.
    fn committed(&mut self) -> Result<(), Halt> {
        if !self.is_last_told {
            return Err(protocol(LedgerError::Early));
        }
        self.is_committed = true;
        match self.ledger.without_result() {
            Some(id) => Err(protocol(LedgerError::NoResult(id.0))),
            None => Ok(()),
        }
    }

    fn open_standalone(&mut self, id: EntryId, answer: OnOpened<Source>) -> Result<(), Halt> {
        let Some(Announced {
            kind:
                Kind::File {
                    alone: true,
                    identity,
                    ..
                },
            location,
            ..
        }) = self.ledger.announced(id)
        else {
            let why = format!("peer requested entry {id}, which is not a standalone file");
            answer(Err(FileError::violated("send", "the tree", why)));
            return Ok(());
        };
        let options = ReadOptions {
            allow_changing: self.allow_changing,
            compress: self.compress,
            range: None,
        };
        let result = open_standalone(
            &ReadRequest {
                id,
                location: location.clone(),
                identity: *identity,
            },
            options,
        );
        let failure = result.as_ref().err().map(FileError::reason);
        answer(result);
        failure.map_or(Ok(()), |failure| self.standalone_ended(id, Err(failure)))
    }

    fn standalone_ended(&mut self, id: EntryId, result: Result<(), Reason>) -> Result<(), Halt> {
        self.ledger.standalone_end(id);
        match result {
            Err(reason) if self.ledger.is_pending(id) => return self.abandon(id, reason),
            Err(_) => {}
            Ok(()) => self.ledger.on_sent(id),
        }
        Ok(())
    }
}
