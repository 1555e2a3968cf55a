//! Facts about the daemon's machine.

use nicstripe_link::facts::{Facts, MAX_JSON};
use nicstripe_proto::message::{AnswerKind, AskKind, Feature};

use super::Client;
use crate::report::error::Error;

impl Client {
    /// Returns facts about the daemon's machine: processors, interfaces, kernel settings.
    ///
    /// The texts are the peer's: escape them before they reach a terminal.
    ///
    /// # Errors
    ///
    /// The daemon's peer line for this key has `no-facts`
    /// ([`FailCode::NotPermitted`](crate::FailCode::NotPermitted)); the daemon does not know the
    /// request ([`Error::Unsupported`]), or cannot be reached; its answer is no facts.
    pub async fn facts(&self) -> Result<Facts, Error> {
        let mut text = Vec::new();
        // A daemon could send one byte at a time, each as late as it may.
        for _ in 0..MOST_PARTS {
            // A text has at most `MAX_JSON` bytes.
            let offset = text.len() as u32;
            let ask = AskKind::Facts { offset };
            let AnswerKind::Facts { part, more } = self.ask_for(Feature::Facts, ask).await? else {
                return Err(self.nonsense());
            };
            text.extend_from_slice(&part);
            if !more {
                return Facts::from_json(&text).map_err(|_| self.nonsense());
            }
            if text.len() > MAX_JSON {
                break;
            }
        }
        Err(self.nonsense())
    }
}

/// Maximum number of answers with facts. Those of the longest text have 4 KiB or more each.
const MOST_PARTS: usize = MAX_JSON / 4096;
