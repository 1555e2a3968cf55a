//! Client requests about files and directories, and the daemon's answers.
//!
//! Both are control messages: they survive the loss of any path and end with the session. Answers
//! may come in any order.

use std::collections::{BTreeMap, btree_map::Entry};

use super::error::PathError;
use crate::{
    failure::{FailCode, truncate},
    wire::message::{Answer, AnswerKind, Ask, AskKind, MOST_ASKS, MOST_ENTRIES},
};

/// Unanswered requests of a session by request ID.
#[derive(Debug, Default)]
pub(super) struct Asks(BTreeMap<u32, AskKind>);

impl Asks {
    /// Records a request of the client. Returns false if [`MOST_ASKS`] requests are unanswered, or
    /// one of them has the same ID.
    pub(super) fn ask(&mut self, ask: &Ask) -> bool {
        let may = self.0.len() < MOST_ASKS && !self.0.contains_key(&ask.id);
        if may {
            self.0.insert(ask.id, ask.ask.clone());
        }
        may
    }

    /// Records an answer of the daemon, and truncates a long error text. Returns false if no
    /// request with this ID is unanswered.
    pub(super) fn answer(&mut self, answer: &mut Answer) -> bool {
        if let AnswerKind::Failed { text, .. } = &mut answer.answer {
            truncate(text);
        }
        self.0.remove(&answer.id).is_some()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Records a request that arrived at the daemon, and limits the length of its answer.
    ///
    /// # Errors
    ///
    /// [`PathError::Ask`] if the request is not allowed now.
    pub(super) fn on_ask(&mut self, ask: &mut Ask) -> Result<(), PathError> {
        if let AskKind::List { most, .. } = &mut ask.ask {
            *most = (*most).clamp(1, MOST_ENTRIES);
        }
        let is_full = self.0.len() >= MOST_ASKS;
        let what = match self.0.entry(ask.id) {
            Entry::Occupied(_) => "twice",
            Entry::Vacant(_) if is_full => "while too many requests are open",
            Entry::Vacant(entry) => {
                entry.insert(ask.ask.clone());
                return Ok(());
            }
        };
        Err(PathError::Ask { id: ask.id, what })
    }

    /// Records an answer that arrived at the client. Returns the violation if it does not fit its
    /// request; the caller then gets a failure, since the peer will send no other answer.
    pub(super) fn on_answer(
        &mut self,
        answer: &mut Answer,
    ) -> Result<Option<PathError>, PathError> {
        let id = answer.id;
        let refused = |what| PathError::Answer { id, what };
        let request = self.0.remove(&id);
        let request = request.ok_or_else(|| refused("that was not requested"))?;
        if request.is_answered_by(&answer.answer) {
            return Ok(None);
        }
        answer.answer = AnswerKind::Failed {
            code: FailCode::Protocol,
            text: "peer sent an unexpected kind of answer".into(),
        };
        Ok(Some(refused("with something else")))
    }
}
