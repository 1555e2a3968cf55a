//! Name requests (list, stat, remove, rename, mkdir) of a client, and their answers by a daemon's
//! session.

use std::collections::{BTreeMap, VecDeque};

use nicstripe_proto::message::{Answer, AnswerKind, Ask, AskKind};

use super::Driver;
use crate::{
    report::error::Error,
    session::{
        inbox::{AskReply, Input, Unanswered, report},
        last_progress::LastProgress,
        transfer::Transfers,
    },
    wire::clock,
};

/// Unanswered name requests: those of the client, or in a daemon those of the peer.
#[derive(Debug, Default)]
pub(super) struct Asks {
    next: u32,
    /// Requests that are sent once a path is connected and others are answered.
    waiting: VecDeque<(AskKind, AskReply)>,
    pub(super) open: BTreeMap<u32, OpenAsk>,
    /// Daemon: requests to change names (remove, rename, mkdir) that have not started.
    changes: Vec<Ask>,
    is_changing: bool,
}

impl Asks {
    /// Returns true if the client waits for no answer.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.open.is_empty()
    }
}

/// Name request that the daemon has not answered.
#[derive(Debug)]
pub(super) struct OpenAsk {
    pub(super) reply: AskReply,
    pub(super) last: LastProgress,
}

impl Driver {
    /// Client: queues a name request of the owner.
    pub(super) fn ask(&mut self, ask: AskKind, reply: AskReply) {
        self.asks.waiting.push_back((ask, reply));
        self.send_asks();
    }

    /// Client: sends the waiting requests that can be sent.
    pub(super) fn send_asks(&mut self) {
        while self.session.can_ask()
            && let Some((ask, reply)) = self.asks.waiting.pop_front()
        {
            // The owner has cancelled the request.
            if reply.is_closed() {
                continue;
            }
            let id = self.asks.next;
            self.asks.next = id.wrapping_add(1);
            let is_sent = self.session.ask(Ask { id, ask });
            debug_assert!(is_sent);
            let last = LastProgress::new(clock::now());
            self.asks.open.insert(id, OpenAsk { reply, last });
        }
    }

    /// Client: passes the daemon's answer to the owner, and sends waiting requests.
    pub(super) fn on_answered(&mut self, answer: Answer) {
        let Some(OpenAsk { reply, .. }) = self.asks.open.remove(&answer.id) else {
            return;
        };
        let result = match answer.answer {
            AnswerKind::Failed { code, text } => {
                Err(Error::peer(&self.config.host, code, text).into())
            }
            answer => Ok(answer),
        };
        // Fails if the owner has cancelled the request.
        let _ = reply.send(result);
        self.send_asks();
    }

    /// Daemon: runs a name request of the client. Read-only requests start at once. Changes run one
    /// after the other: each waits for a sync, so the changes of one session occupy only one I/O
    /// thread.
    pub(super) fn serve_ask(&mut self, ask: Ask) {
        let service = self.config.service.clone();
        if let Some(answer) = service.and_then(|service| service.answer_later(&ask.ask)) {
            let (inputs, ended) = (self.jobs.inputs(), self.signals.stopped.clone());
            tokio::spawn(async move {
                let answer = tokio::select! {
                    answer = answer => answer,
                    () = ended.cancelled() => return,
                };
                let ends_changes = false;
                let done = Input::Done {
                    ask,
                    answer,
                    ends_changes,
                };
                let _ = inputs.send(done).await;
            });
        } else if ask.ask.is_change() {
            self.asks.changes.push(ask);
            self.serve_changes();
        } else {
            self.serve(vec![ask], false);
        }
    }

    fn serve_changes(&mut self) {
        if !self.asks.is_changing && !self.asks.changes.is_empty() {
            self.asks.is_changing = true;
            let asks = std::mem::take(&mut self.asks.changes);
            self.serve(asks, true);
        }
    }

    fn serve(&self, asks: Vec<Ask>, are_changes: bool) {
        let Some(service) = &self.config.service else {
            return;
        };
        let (service, inputs) = (service.clone(), self.jobs.inputs());
        let fault = self.jobs.fault();
        let last = asks.len();
        self.jobs.pool.run(move || {
            let _fault = fault;
            for (index, ask) in asks.into_iter().enumerate() {
                let answer = service.answer(&ask.ask);
                let ends_changes = are_changes && index + 1 == last;
                // The session has ended: skip the remaining requests.
                let done = Input::Done {
                    ask,
                    answer,
                    ends_changes,
                };
                if !report(&inputs, done) {
                    return;
                }
            }
        });
    }

    /// Daemon: sends the answer to a finished request. If `ends_changes`, starts the changes that
    /// were requested in the meantime.
    pub(super) fn on_done(&mut self, ask: &Ask, answer: AnswerKind, ends_changes: bool) {
        self.account_mut(|account| account.answered(&ask.ask, &answer));
        self.session.answer(Answer { id: ask.id, answer });
        if ends_changes {
            self.asks.is_changing = false;
            self.serve_changes();
        }
    }

    /// Sends an error to all owners of waiting requests and transfers, at the end of the session.
    pub(super) fn end_waiting(
        running: &mut Transfers,
        asks: &mut Asks,
        mut why: impl FnMut() -> Error,
    ) {
        running.end_waiting(&mut why);
        let Asks { waiting, open, .. } = std::mem::take(asks);
        for (_, reply) in waiting {
            let _ = reply.send(Err(Unanswered::unsent(why())));
        }
        for open in open.into_values() {
            let _ = open.reply.send(Err(why().into()));
        }
    }
}
