//! Client requests about files and directories, and the daemon's answers.
//!
//! Requests and answers are control messages: they survive the loss of a path and end with the
//! session. Answers may arrive in any order.

use std::collections::btree_map::Entry;

use super::{error::PathError, event::Event, requests::shape_of, state::Session};
use crate::{
    failure::{FailCode, MAX_TEXT, truncate},
    id::Role,
    wire::message::{
        Answer, AnswerKind, Ask, AskKind, MOST_ADMITTED, MOST_ASKS, MOST_ENTRIES, MOST_REASON,
        MOST_REMOVED, Message,
    },
};

impl Session {
    /// Returns true if a request can be sent to the daemon now; client only. False while no path is
    /// connected, or [`MOST_ASKS`] requests are unanswered.
    ///
    /// [`MOST_ASKS`]: crate::message::MOST_ASKS
    pub fn can_ask(&self) -> bool {
        self.role == Role::Client && self.is_connected() && self.asks.len() < MOST_ASKS
    }

    /// Sends a request to the daemon. Returns false without sending if none [can be
    /// sent](Self::can_ask), or one with the same ID is unanswered.
    pub fn ask(&mut self, ask: Ask) -> bool {
        let may = self.can_ask() && !self.asks.contains_key(&ask.id);
        if may {
            self.asks.insert(ask.id, ask.ask.clone());
            self.send(&Message::Ask(ask));
        }
        may
    }

    /// Answers an [`Event::Asked`]; daemon only. Truncates a long error text. Has no effect unless
    /// a request with the answer's ID is unanswered.
    pub fn answer(&mut self, mut answer: Answer) {
        match &mut answer.answer {
            AnswerKind::Failed { text, .. } => truncate(text, MAX_TEXT),
            AnswerKind::Removed { failed } => failed
                .iter_mut()
                .for_each(|one| truncate(&mut one.text, MOST_REASON)),
            _ => {}
        }
        if self.role == Role::Daemon && self.asks.remove(&answer.id).is_some() {
            self.send(&Message::Answer(answer));
        }
    }

    /// Returns the number of unanswered requests.
    pub fn open_asks(&self) -> usize {
        self.asks.len()
    }

    /// Handles a request that arrived at the daemon. Reduces the length of the requested listing to
    /// [`MOST_ENTRIES`].
    ///
    /// # Errors
    ///
    /// Returns [`PathError::Ask`] if the request's ID is in use, too many requests are unanswered, or
    /// it has too many names.
    pub(super) fn handle_ask(&mut self, mut ask: Ask) -> Result<(), PathError> {
        if self.role == Role::Client {
            return Err(PathError::Unexpected("a client's request"));
        }
        if let AskKind::List { most, .. } | AskKind::Walk { most, .. } = &mut ask.ask {
            *most = (*most).clamp(1, MOST_ENTRIES);
        }
        let is_full = self.asks.len() >= MOST_ASKS;
        let is_long = match &ask.ask {
            AskKind::RemoveMany { names, .. } => names.len() > MOST_REMOVED,
            AskKind::Admit { names, .. } => names.len() > MOST_ADMITTED,
            AskKind::Fetch(fetch) => {
                shape_of(&fetch.put.offer)?;
                !fetch.is_within_limits()
            }
            _ => false,
        };
        let what = match self.asks.entry(ask.id) {
            Entry::Occupied(_) => "twice",
            Entry::Vacant(_) if is_full => "while too many requests are open",
            Entry::Vacant(_) if is_long => "beyond the limits of its kind",
            Entry::Vacant(entry) => {
                entry.insert(ask.ask.clone());
                self.events.push_back(Event::Asked(ask));
                return Ok(());
            }
        };
        Err(PathError::Ask { id: ask.id, what })
    }

    /// Handles an answer that arrived at the client. Reports a failure to the caller if the answer
    /// does not fit its request, because the peer will send no other answer.
    pub(super) fn handle_answer(&mut self, mut answer: Answer) -> Result<(), PathError> {
        let id = answer.id;
        let refused = |what| PathError::Answer { id, what };
        let request = match self.role {
            Role::Client => self.asks.remove(&id),
            Role::Daemon => None,
        };
        let request = request.ok_or_else(|| refused("that was not requested"))?;
        let fits = request.is_answered_by(&answer.answer);
        if !fits {
            answer.answer = AnswerKind::Failed {
                code: FailCode::Protocol,
                text: "peer sent an unexpected kind of answer".into(),
            };
        }
        self.events.push_back(Event::Answered(answer));
        if fits {
            Ok(())
        } else {
            Err(refused("with something else"))
        }
    }
}
