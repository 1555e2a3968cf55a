//! Facts about this machine, for peers that may know them.

use std::io;

use nicstripe_link::facts::Facts;
use nicstripe_proto::message::MOST_ANSWER;
use parking_lot::Mutex;

use super::served_peer::ServedPeer;
use crate::file::FileError;

/// JSON text of the facts, after a session's peer has requested the first part.
#[derive(Debug, Default)]
pub(super) struct ToldFacts(Mutex<Vec<u8>>);

impl ToldFacts {
    /// Returns the part of the facts that begins at `offset`, and true if more follow. Reads the
    /// facts at offset 0, which takes some milliseconds, longer with a slow driver.
    ///
    /// # Errors
    ///
    /// The peer may not know the facts, or asks for a part of facts that were not read.
    pub(super) fn part(
        &self,
        peer: &ServedPeer,
        offset: u32,
    ) -> Result<(Vec<u8>, bool), FileError> {
        if peer.rights.options().no_facts || peer.shared.inbox.is_some() {
            let why = "this peer may not know facts about this machine";
            return Err(FileError::not_permitted("tell", "facts", why));
        }
        let mut told = self.0.lock();
        if offset == 0 {
            let version = Some(env!("CARGO_PKG_VERSION").to_owned());
            let facts = Facts {
                version,
                ..Facts::of_this_machine()
            };
            *told = facts.to_json();
        }
        let rest = told
            .get(offset as usize..)
            .filter(|rest| !rest.is_empty())
            .ok_or_else(|| {
                let why = io::Error::new(io::ErrorKind::InvalidInput, "no facts at this offset");
                FileError::new("tell", "facts", why)
            })?;
        let part = rest[..rest.len().min(MOST_ANSWER)].to_vec();
        let more = part.len() < rest.len();
        if !more {
            *told = Vec::new();
        }
        Ok((part, more))
    }
}
