//! Facts about this machine, for peers that may know them.

use std::io;

use nicstripe_link::facts::Facts;
use nicstripe_proto::{FailCode, message::MOST_ANSWER};

use super::service::Service;
use crate::file::FileError;

impl Service {
    /// Returns the part of the facts that begins at `offset`, and true if more follow. Reads the
    /// facts at offset 0, which takes some milliseconds, longer with a slow driver.
    ///
    /// # Errors
    ///
    /// The peer may not know the facts, or asks for a part of facts that were not read.
    pub(super) fn facts(&self, offset: u32) -> Result<(Vec<u8>, bool), FileError> {
        if self.no_facts || self.shared.inbox.is_some() {
            let why = "this peer may not know facts about this machine";
            let error = failed(io::ErrorKind::PermissionDenied, why);
            return Err(error.with_code(FailCode::NotPermitted));
        }
        let mut told = self.told_facts.lock();
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
            .ok_or_else(|| failed(io::ErrorKind::InvalidInput, "no facts at this offset"))?;
        let part = rest[..rest.len().min(MOST_ANSWER)].to_vec();
        let more = part.len() < rest.len();
        if !more {
            *told = Vec::new();
        }
        Ok((part, more))
    }
}

fn failed(kind: io::ErrorKind, why: &str) -> FileError {
    FileError::new("tell", "facts", io::Error::new(kind, why))
}
