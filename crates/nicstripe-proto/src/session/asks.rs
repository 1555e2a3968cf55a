//! Requests of the client about files and directories, and the daemon's answers.
//!
//! Both are control messages: they survive the loss of any path and end with the session. Answers
//! may come in any order.

use std::collections::{BTreeMap, btree_map::Entry};

use super::{Event, PathError, Role, Session, transfers::cut};
use crate::message::{
    Answer, AnswerKind, Ask, AskKind, FailCode, MOST_ASKS, MOST_ENTRIES, Message,
};

/// Unanswered requests of a session by request ID.
#[derive(Debug, Default)]
pub(super) struct Asks(BTreeMap<u32, AskKind>);

impl Session {
    /// Sends a request to the daemon; client only. Returns false if [`MOST_ASKS`] requests are
    /// unanswered, if one of them has the same ID, or if this end is the daemon.
    pub fn ask(&mut self, ask: Ask) -> bool {
        let may = self.role == Role::Client
            && self.asks.0.len() < MOST_ASKS
            && !self.asks.0.contains_key(&ask.id);
        if may {
            self.asks.0.insert(ask.id, ask.ask.clone());
            self.send(&Message::Ask(ask));
        }
        may
    }

    /// Answers an [`Event::Asked`]; daemon only. Truncates a long error text. No effect if no
    /// request with this ID is unanswered.
    pub fn answer(&mut self, mut answer: Answer) {
        if self.role == Role::Client || self.asks.0.remove(&answer.id).is_none() {
            return;
        }
        if let AnswerKind::Failed { text, .. } = &mut answer.answer {
            cut(text);
        }
        self.send(&Message::Answer(answer));
    }

    /// Returns the number of unanswered requests.
    pub fn open_asks(&self) -> usize {
        self.asks.0.len()
    }

    pub(super) fn handle_ask(&mut self, mut ask: Ask) -> Result<(), PathError> {
        if self.role == Role::Client {
            return Err(PathError::Unexpected("a client's request"));
        }
        if let AskKind::List { most, .. } = &mut ask.ask {
            *most = (*most).clamp(1, MOST_ENTRIES);
        }
        let open = self.asks.0.len();
        match self.asks.0.entry(ask.id) {
            Entry::Occupied(_) => {
                return Err(PathError::Ask {
                    id: ask.id,
                    what: "twice",
                });
            }
            Entry::Vacant(_) if open >= MOST_ASKS => {
                return Err(PathError::Ask {
                    id: ask.id,
                    what: "while too many requests are open",
                });
            }
            Entry::Vacant(entry) => entry.insert(ask.ask.clone()),
        };
        self.events.push_back(Event::Asked(ask));
        Ok(())
    }

    pub(super) fn handle_answer(&mut self, answer: Answer) -> Result<(), PathError> {
        let id = answer.id;
        let asked = if self.role == Role::Client {
            self.asks.0.remove(&id)
        } else {
            None
        };
        let asked = asked.ok_or(PathError::Answer {
            id,
            what: "that was not requested",
        })?;
        if asked.is_answered_by(&answer.answer) {
            self.events.push_back(Event::Answered(answer));
            return Ok(());
        }
        // The caller needs an answer, and the peer will send no other one.
        let failed = AnswerKind::Failed {
            code: FailCode::Protocol,
            text: "peer sent an unexpected kind of answer".into(),
        };
        self.events
            .push_back(Event::Answered(Answer { id, answer: failed }));
        Err(PathError::Answer {
            id,
            what: "with something else",
        })
    }
}
