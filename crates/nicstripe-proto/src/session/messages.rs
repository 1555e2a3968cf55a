//! Dispatch of the peer's control messages, and handling of messages about transfers.

use std::time::Instant;

use super::{
    error::PathError, event::Event, request::Request, requests::shape_of, state::Session,
    transfers::Transfer,
};
use crate::{
    failure::FailCode,
    file::grid::{ChunkSize, Shape},
    id::Role,
    transfer::sender::Sender,
    wire::message::{
        Accept, Committed, Complete, EntryRef, Exec, Fail, Get, GetTree, Message, Offer,
        OpenTunnels, Put, PutTree, TreeBody, Window, failure,
    },
};

impl Session {
    pub(super) fn handle_message(
        &mut self,
        message: Message,
        now: Instant,
    ) -> Result<(), PathError> {
        match message {
            Message::Put(put) => self.handle_put(put),
            Message::Get(get) => self.handle_get(get),
            Message::PutTree(put) => self.handle_put_tree(put),
            Message::GetTree(get) => self.handle_get_tree(get),
            Message::OpenTunnels(mux) => self.handle_open_tunnels(mux),
            Message::Exec(exec) => self.handle_exec(exec),
            Message::Offer(offer) => self.handle_offer(offer),
            Message::Accept(accept) => self.handle_accept(accept),
            Message::Window(window) => self.handle_window(window),
            Message::Tree(body) => self.handle_tree_message(body),
            Message::Holes(holes) => self.handle_holes(holes),
            Message::Values(values) => self.handle_values(values),
            Message::Keep(keep) => self.handle_keep(keep, now),
            Message::Complete(complete) => self.handle_complete(complete),
            Message::Committed(committed) => self.handle_committed(committed),
            Message::Fail(fail) => self.handle_fail(fail),
            Message::Ask(ask) => self.handle_ask(ask),
            Message::Answer(answer) => self.handle_answer(answer),
            Message::Bench(body) => self.handle_bench(body),
            Message::Interfaces(list) => self.handle_interface_list(list),
            Message::Expect(expect) => self.handle_expect(expect),
        }
    }

    fn handle_put_tree(&mut self, put: PutTree) -> Result<(), PathError> {
        self.transfers.begin(put.transfer, "put tree", batches())?;
        self.events
            .push_back(Event::Requested(Request::PutTree(put)));
        Ok(())
    }

    fn handle_get_tree(&mut self, get: GetTree) -> Result<(), PathError> {
        self.transfers
            .begin(get.transfer, "get tree", Transfer::Requested)?;
        self.events
            .push_back(Event::Requested(Request::GetTree(get)));
        Ok(())
    }

    fn handle_open_tunnels(&mut self, mux: OpenTunnels) -> Result<(), PathError> {
        if self.role != Role::Daemon {
            return Err(PathError::Unexpected("a tunnel multiplexer to a client"));
        }
        if mux.down <= mux.up {
            return Err(PathError::Transfer {
                what: "tunnels",
                transfer: mux.down.0,
                expected: "new",
            });
        }
        self.transfers.begin(mux.up, "tunnels", batches())?;
        self.transfers
            .begin(mux.down, "tunnels", Transfer::Requested)?;
        let requests = [Request::TunnelsUp(mux.up), Request::TunnelsDown(mux.down)];
        self.events.extend(requests.map(Event::Requested));
        Ok(())
    }

    fn handle_exec(&mut self, exec: Exec) -> Result<(), PathError> {
        if self.role != Role::Daemon {
            return Err(PathError::Unexpected("a command to a client"));
        }
        let streams = exec.streams().filter(|_| exec.is_valid());
        let [input, outputs @ ..] = streams.ok_or(PathError::Unexpected("an invalid command"))?;
        // All four begin, or the command is not requested.
        self.transfers.begin(input, "exec", batches())?;
        for output in outputs {
            self.transfers.begin(output, "exec", Transfer::Requested)?;
        }
        let requests = outputs.map(Request::ExecOutput);
        let requests = [Request::Exec(exec)].into_iter().chain(requests);
        self.events.extend(requests.map(Event::Requested));
        Ok(())
    }

    /// Checks that the tree to which a file claims to belong is one that `is_tree` accepts, or has
    /// ended. IDs only rise, so no chain of references can form.
    fn check_entry(
        &mut self,
        entry: EntryRef,
        expected: &'static str,
        is_tree: impl FnOnce(&Transfer) -> bool,
    ) -> Result<(), PathError> {
        let pick = |transfer: &mut Transfer| is_tree(transfer).then_some(());
        self.transfers
            .expect(entry.tree, "an entry", expected, pick)
            .map(drop)
    }

    fn handle_get(&mut self, get: Get) -> Result<(), PathError> {
        if let Some(entry) = get.entry {
            self.check_entry(entry, "a tree being sent", |transfer| {
                let sender = transfer.sender();
                sender.is_some_and(|sender| !sender.shape.has_digest())
            })?;
        }
        self.transfers
            .begin(get.transfer, "get", Transfer::Requested)?;
        if let Some(entry) = get.entry {
            self.transfers.round_robin.belongs(get.transfer, entry.tree);
        }
        self.events.push_back(Event::Requested(Request::Get(get)));
        Ok(())
    }

    fn handle_put(&mut self, put: Put) -> Result<(), PathError> {
        let shape = shape_of(&put.offer)?;
        if matches!(shape, Shape::Batches(_)) {
            return Err(PathError::Transfer {
                what: "batches",
                transfer: put.offer.transfer.0,
                expected: "a tree",
            });
        }
        if let Some(entry) = put.entry {
            self.check_entry(entry, "a tree being received", |transfer| {
                let receiver = transfer.receiver();
                receiver.is_some_and(|receiver| !receiver.shape.has_digest())
            })?;
        }
        // The client's user sends the file and has allowed the source to change.
        self.transfers.begin(
            put.offer.transfer,
            "put",
            Transfer::Deciding {
                shape,
                may_change: true,
            },
        )?;
        self.events.push_back(Event::Requested(Request::Put(put)));
        Ok(())
    }

    fn handle_offer(&mut self, offer: Offer) -> Result<(), PathError> {
        let shape = shape_of(&offer)?;
        let asked = |transfer: &mut Transfer| match *transfer {
            Transfer::Asked { may_change } => Some(may_change),
            _ => None,
        };
        let may_change = self
            .transfers
            .expect(offer.transfer, "an offer", "asked for", asked)?;
        if let Some(may_change) = may_change {
            self.transfers
                .insert(offer.transfer, Transfer::Deciding { shape, may_change });
            self.events.push_back(Event::Offered(offer));
        }
        Ok(())
    }

    fn handle_tree_message(&mut self, body: TreeBody) -> Result<(), PathError> {
        let sent = |transfer: &mut Transfer| {
            let shape = transfer.sender()?.shape;
            (!shape.has_digest()).then_some(())
        };
        let (what, expected) = ("the outcome of a tree", "a tree being sent");
        let tree = self.transfers.expect(body.transfer, what, expected, sent)?;
        if tree.is_some() {
            self.events.push_back(Event::TreeMessage(body));
        }
        Ok(())
    }

    fn handle_window(&mut self, window: Window) -> Result<(), PathError> {
        let Window { transfer, chunks } = window;
        if let Some(sender) = self.transfers.expect_sender(transfer, "a window")? {
            sender.on_window(chunks);
        }
        Ok(())
    }

    fn handle_complete(&mut self, complete: Complete) -> Result<(), PathError> {
        let transfer = complete.transfer;
        if let Some(receiver) = self.transfers.expect_receiver(transfer, "a digest")?
            && receiver.on_complete(complete.digest)
        {
            if let Some(end) = complete.end {
                receiver.on_end(end)?;
            }
            if complete.changing {
                receiver.on_changing();
            }
            self.events.push_back(Event::Completed(complete));
            self.poll_finished(transfer);
        }
        Ok(())
    }

    fn handle_accept(&mut self, accept: Accept) -> Result<(), PathError> {
        let offered = |transfer: &mut Transfer| match *transfer {
            Transfer::Offered(shape) => Some(shape),
            _ => None,
        };
        let shape = self
            .transfers
            .expect(accept.transfer, "an acceptance", "offered", offered)?;
        let Some(shape) = shape else {
            return Ok(());
        };
        let mut sender = Sender::new(shape, &accept.have, accept.window);
        self.spare(
            accept.transfer,
            &mut sender,
            accept.delta,
            accept.window.is_some(),
        );
        let resumed_bytes = sender.stats().resumed_bytes;
        self.transfers.insert(
            accept.transfer,
            Transfer::Sending {
                sender,
                read: false,
            },
        );
        self.events.push_back(Event::Accepted {
            transfer: accept.transfer,
            resumed_bytes,
            memory: accept.memory,
        });
        self.poll_read(accept.transfer);
        Ok(())
    }

    fn handle_fail(&mut self, fail: Fail) -> Result<(), PathError> {
        if self.is_under_way(fail.transfer) {
            self.end(fail.transfer);
            self.events.push_back(Event::Failed(fail));
        }
        Ok(())
    }

    fn handle_committed(&mut self, committed: Committed) -> Result<(), PathError> {
        let Committed {
            transfer, digest, ..
        } = committed;
        let Some(sender) = self.transfers.expect_sender(transfer, "a commit")? else {
            return Ok(());
        };
        // The receiver's digest replaces that of a source that changed: it covers each chunk as the
        // sender read it.
        let sent = sender
            .digest()
            .map(|sent| if sender.is_changing { digest } else { sent });
        if sent == Some(digest) {
            // Acknowledgements may still be in flight on other paths.
            sender.on_committed();
        }
        self.end(transfer);
        self.events.push_back(match sent {
            Some(sent) if sent == digest => Event::Committed(committed),
            Some(sent) => {
                let text = format!("peer committed digest {digest}, but {sent} was sent");
                Event::Failed(failure(transfer, FailCode::Digest, text, false))
            }
            None => Event::Failed(failure(
                transfer,
                FailCode::Protocol,
                "peer committed a file that was not sent yet",
                false,
            )),
        });
        Ok(())
    }
}

/// Returns the initial state of a batch transfer that the peer begins. A batch transfer has no
/// digest, so `may_change` has no effect.
fn batches() -> Transfer {
    Transfer::Deciding {
        shape: Shape::Batches(ChunkSize::DEFAULT),
        may_change: false,
    }
}
