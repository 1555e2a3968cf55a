//! Handling of the peer's control messages about transfers.

use std::time::Instant;

use super::{
    Event, PathError, Role, Session, TransferId,
    transfers::{ENDED_KEPT, MAX_OPEN_TRANSFERS, Transfer, failure, shape_of},
};
use crate::{
    grid::{ChunkSize, Shape},
    hash_tree::Subtree,
    message::{
        Accept, Committed, Complete, Expect, FailCode, Interfaces, MAX_EXPECTED, Message, Offer,
        OpenTunnels, Put, TreeBody, Window,
    },
    sender::Sender,
};

impl Session {
    pub(super) fn handle_message(
        &mut self,
        message: Message,
        now: Instant,
    ) -> Result<(), PathError> {
        match message {
            Message::Put(put) => self.handle_put(put)?,
            Message::Get(get) => {
                self.fresh(get.transfer, "get", Transfer::Requested)?;
                get.entry
                    .into_iter()
                    .for_each(|entry| self.turns.belongs(get.transfer, entry.tree));
                self.events.push_back(Event::GetRequested(get));
            }
            Message::PutTree(put) => {
                self.fresh(put.transfer, "put tree", batches())?;
                self.events.push_back(Event::TreePutRequested(put));
            }
            Message::GetTree(get) => {
                self.fresh(get.transfer, "get tree", Transfer::Requested)?;
                self.events.push_back(Event::TreeRequested(get));
            }
            Message::OpenTunnels(mux) => self.handle_open_tunnels(mux)?,
            Message::Tree(body) => self.handle_tree_message(body)?,
            Message::Window(window) => self.handle_window(window)?,
            Message::Offer(offer) => self.handle_offer(offer)?,
            Message::Accept(accept) => self.handle_accept(accept)?,
            Message::Complete(complete) => self.handle_complete(complete)?,
            Message::Holes(holes) => self.handle_holes(holes)?,
            Message::Values(values) => self.handle_values(values)?,
            Message::Keep(keep) => self.handle_keep(keep, now)?,
            Message::Committed(committed) => self.handle_committed(committed)?,
            Message::Bench(body) => self.handle_bench(body)?,
            Message::Ask(ask) => self.handle_ask(ask)?,
            Message::Answer(answer) => self.handle_answer(answer)?,
            Message::Fail(fail) => {
                if self.is_under_way(fail.transfer) {
                    self.end(fail.transfer);
                    self.events.push_back(Event::Failed(fail));
                }
            }
            Message::Interfaces(Interfaces { interfaces }) if self.role == Role::Client => {
                self.events.push_back(Event::PeerInterfaces(interfaces));
            }
            Message::Expect(Expect { mut connections }) if self.role == Role::Daemon => {
                connections.truncate(MAX_EXPECTED);
                self.events.push_back(Event::Expected(connections));
            }
            Message::Interfaces(_) => {
                return Err(PathError::Unexpected("its interfaces to a daemon"));
            }
            Message::Expect(_) => return Err(PathError::Unexpected("a client's message")),
        }
        Ok(())
    }

    fn handle_open_tunnels(&mut self, mux: OpenTunnels) -> Result<(), PathError> {
        if self.role != Role::Daemon {
            return Err(PathError::Unexpected("a tunnel multiplexer to a client"));
        }
        if mux.down <= mux.up {
            return Err(PathError::Transfer {
                what: "trunk",
                transfer: mux.down.0,
                expected: "new",
            });
        }
        self.fresh(mux.up, "trunk", batches())?;
        self.fresh(mux.down, "trunk", Transfer::Requested)?;
        self.events.push_back(Event::TunnelsRequested(mux));
        Ok(())
    }

    fn handle_put(&mut self, put: Put) -> Result<(), PathError> {
        let shape = shape_of(&put.offer)?;
        if matches!(shape, Shape::Batches(_)) {
            return Err(PathError::Transfer {
                what: "parcels",
                transfer: put.offer.transfer.0,
                expected: "a tree",
            });
        }
        // The client's user, who sends the file, has allowed the source to change.
        self.fresh(
            put.offer.transfer,
            "put",
            Transfer::Deciding {
                shape,
                may_change: true,
            },
        )?;
        self.events.push_back(Event::PutRequested(put));
        Ok(())
    }

    fn handle_offer(&mut self, offer: Offer) -> Result<(), PathError> {
        let shape = shape_of(&offer)?;
        let is_asked = |transfer: &Transfer| matches!(transfer, Transfer::Asked { .. });
        if self.expect(offer.transfer, "an offer", "asked for", is_asked)?
            && let Some(&Transfer::Asked { may_change }) = self.transfers.get(&offer.transfer)
        {
            self.insert(offer.transfer, Transfer::Deciding { shape, may_change });
            self.events.push_back(Event::Offered(offer));
        }
        Ok(())
    }

    fn handle_tree_message(&mut self, body: TreeBody) -> Result<(), PathError> {
        let TreeBody { transfer, message } = body;
        let is_sent = |transfer: &Transfer| matches!(transfer, Transfer::Sending { sender, .. } if !sender.has_digest());
        if self.expect(
            transfer,
            "the outcome of a tree",
            "a tree being sent",
            is_sent,
        )? {
            self.events
                .push_back(Event::TreeMessageReceived { transfer, message });
        }
        Ok(())
    }

    fn handle_window(&mut self, window: Window) -> Result<(), PathError> {
        let Window { transfer, chunks } = window;
        if self.expect(transfer, "a window", "being sent", |transfer| {
            matches!(transfer, Transfer::Sending { .. })
        })? && let Some(sender) = self
            .transfers
            .get_mut(&transfer)
            .and_then(Transfer::sender_mut)
        {
            sender.on_window(chunks);
        }
        Ok(())
    }

    fn handle_complete(&mut self, complete: Complete) -> Result<(), PathError> {
        let transfer = complete.transfer;
        if self.expect(transfer, "a digest", "being received", |transfer| {
            matches!(transfer, Transfer::Receiving(_))
        })? && let Some(receiver) = self
            .transfers
            .get_mut(&transfer)
            .and_then(Transfer::receiver_mut)
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
        let Some(Transfer::Offered(shape)) = self.transfers.get(&accept.transfer) else {
            return self
                .expect(accept.transfer, "an acceptance", "offered", |_| false)
                .map(|_| ());
        };
        let have: Vec<Subtree> = accept.have.into_iter().map(Into::into).collect();
        let mut sender = Sender::new(*shape, &have, accept.window);
        self.spare(
            accept.transfer,
            &mut sender,
            accept.delta,
            accept.window.is_some(),
        );
        let resumed_bytes = sender.resumed_bytes();
        self.insert(
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

    fn handle_committed(&mut self, committed: Committed) -> Result<(), PathError> {
        let Committed { transfer, digest } = committed;
        if !self.expect(transfer, "a commit", "being sent", |transfer| {
            matches!(transfer, Transfer::Sending { .. })
        })? {
            return Ok(());
        }
        let Some(sender) = self
            .transfers
            .get_mut(&transfer)
            .and_then(Transfer::sender_mut)
        else {
            return Ok(());
        };
        // The receiver's digest stands for a source that changed: it covers each chunk as it was
        // read.
        let sent = sender
            .digest()
            .map(|sent| if sender.is_changing() { digest } else { sent });
        if sent == Some(digest) {
            // Acknowledgements may still be in flight on other paths.
            sender.on_committed();
        }
        self.end(transfer);
        self.events.push_back(match sent {
            Some(sent) if sent == digest => Event::Committed { transfer, digest },
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

    fn fresh(
        &mut self,
        id: TransferId,
        what: &'static str,
        transfer: Transfer,
    ) -> Result<(), PathError> {
        if self.last_transfer >= Some(id) {
            return Err(PathError::Transfer {
                what,
                transfer: id.0,
                expected: "new",
            });
        }
        if self.transfers.len() >= MAX_OPEN_TRANSFERS + ENDED_KEPT {
            return Err(PathError::TooManyTransfers);
        }
        self.insert(id, transfer);
        Ok(())
    }

    /// Returns true if `is` accepts the state of a transfer about which a message arrived. Returns
    /// false if the transfer has ended locally, since the peer could not know.
    ///
    /// # Errors
    ///
    /// [`PathError::Transfer`] if the transfer is in another state or unknown.
    pub(super) fn expect(
        &self,
        id: TransferId,
        what: &'static str,
        expected: &'static str,
        is: impl Fn(&Transfer) -> bool,
    ) -> Result<bool, PathError> {
        match self.transfers.get(&id) {
            Some(Transfer::Ended { .. }) => Ok(false),
            None if self.last_transfer >= Some(id) => Ok(false),
            Some(transfer) if is(transfer) => Ok(true),
            _ => Err(PathError::Transfer {
                what,
                transfer: id.0,
                expected,
            }),
        }
    }
}

/// Returns the initial state of a transfer of batches that the peer begins. Batches have no digest,
/// so the digest cannot be replaced.
fn batches() -> Transfer {
    Transfer::Deciding {
        shape: Shape::Batches(ChunkSize::DEFAULT),
        may_change: false,
    }
}
