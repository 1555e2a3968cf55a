//! Client's request to run a command at the daemon.

use minicbor::{Decode, Encode};

use crate::{id::TransferId, wire::frame::MAX_CONTROL};

/// Client's request to run a command. Body of [`crate::Message::Exec`].
///
/// Four transfers carry its streams as batches: input, output, error output and status. Their IDs
/// follow each other.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Exec {
    /// ID of the transfer of the standard input, from the client to the daemon. It needs no
    /// separate offer. The other three need no separate request.
    #[n(0)]
    pub first: TransferId,
    /// Program and arguments: 1 to [`MOST_WORDS`] words without NUL, the first not empty. Together
    /// at most [`MOST_WORD_BYTES`] bytes, with 3 more for each word.
    #[n(1)]
    pub words: Vec<Word>,
}

/// Program or argument of a command.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(transparent)]
pub struct Word(#[cbor(n(0), with = "minicbor::bytes")] pub Vec<u8>);

/// Maximum number of words of a command.
pub const MOST_WORDS: usize = 4096;

/// Maximum number of bytes of a command's words, with 3 more for each. This leaves 64 bytes of a
/// control message for the rest of the request, which needs at most 15.
pub const MOST_WORD_BYTES: usize = MAX_CONTROL - 64;

/// Maximum number of bytes that encode the length of a word.
const WORD_HEAD: usize = 3;

impl Exec {
    /// Returns the IDs of the transfers of input, output, error output and status; `None` if there
    /// are fewer.
    pub fn streams(&self) -> Option<[TransferId; 4]> {
        let first = self.first.0;
        first.checked_add(3)?;
        Some([0, 1, 2, 3].map(|after| TransferId(first + after)))
    }

    /// Returns true if the words can be a command.
    pub fn is_valid(&self) -> bool {
        let bytes = self.words.iter().map(|word| WORD_HEAD + word.0.len());
        (1..=MOST_WORDS).contains(&self.words.len())
            && !self.words[0].0.is_empty()
            && bytes.sum::<usize>() <= MOST_WORD_BYTES
            && !self.words.iter().any(|word| word.0.contains(&0))
    }
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitStatus {
    /// The command exited with this code.
    Exited(u8),
    /// This signal killed the command.
    Signalled(u8),
}

impl ExitStatus {
    /// Returns the only batch of the transfer of the status.
    pub fn encode(self) -> [u8; 2] {
        match self {
            Self::Exited(code) => [0, code],
            Self::Signalled(signal) => [1, signal],
        }
    }

    /// Reads the batch; `None` if it is none.
    pub fn decode(batch: &[u8]) -> Option<Self> {
        match batch {
            [0, code] => Some(Self::Exited(*code)),
            [1, signal] => Some(Self::Signalled(*signal)),
            _ => None,
        }
    }

    /// Returns the exit code as a shell reports it: 128 and the number of a signal.
    pub fn code(self) -> u8 {
        match self {
            Self::Exited(code) => code,
            Self::Signalled(signal) => signal.saturating_add(128),
        }
    }
}
