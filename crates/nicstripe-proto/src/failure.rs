//! Failures that one peer reports to the other: a category, and a short text.

use minicbor::{Decode, Decoder, Encode, decode};

/// Category of a transfer's failure. The command maps each category to an exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode)]
#[cbor(index_only)]
#[non_exhaustive]
pub enum FailCode {
    /// The peer rejected the request because of the name, a permission of its file system, or a
    /// limit.
    #[n(0)]
    Refused,
    /// A required file or directory does not exist.
    #[n(1)]
    NotFound,
    /// A file with the target name exists, and `replace` was not set.
    #[n(2)]
    Exists,
    /// A read, write or sync of a file failed.
    #[n(3)]
    Io,
    /// The disk is full.
    #[n(4)]
    NoSpace,
    /// The source changed during the read.
    #[n(5)]
    SourceChanged,
    /// The digests of the two ends differ. The received data is wrong.
    #[n(6)]
    Digest,
    /// Another transfer is writing the same target.
    #[n(7)]
    Busy,
    /// The user interrupted the transfer.
    #[n(8)]
    Cancelled,
    /// The peer violated the protocol.
    #[n(9)]
    Protocol,
    /// The source or target is not a regular file.
    #[n(10)]
    NotAFile,
    /// The rights that the peer grants do not permit the request. Granting one would.
    #[n(11)]
    NotPermitted,
    /// Something that is no regular file has the target's name, and nothing replaces it.
    #[n(12)]
    Occupied,
    /// The requested range begins past the end of the file, or ends before it begins.
    #[n(13)]
    Range,
    /// The file has not the entity tag on which the request depends, or does not exist.
    #[n(14)]
    Precondition,
    /// A file has the name where a directory is needed.
    #[n(15)]
    NotADirectory,
}

impl FailCode {
    /// Returns the category's identifier in machine-readable output, logs and metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::NotFound => "not_found",
            Self::Exists => "exists",
            Self::Io => "io",
            Self::NoSpace => "no_space",
            Self::SourceChanged => "source_changed",
            Self::Digest => "digest",
            Self::Busy => "busy",
            Self::Cancelled => "cancelled",
            Self::Protocol => "protocol",
            Self::NotAFile => "not_a_file",
            Self::NotPermitted => "not_permitted",
            Self::Occupied => "occupied",
            Self::Range => "range",
            Self::Precondition => "precondition",
            Self::NotADirectory => "not_a_directory",
        }
    }
}

impl FailCode {
    /// Returns the category's number on the wire, which is never given again.
    pub const fn number(self) -> u8 {
        self as u8
    }
}

/// A code of a newer peer is read as a failure of the operation itself.
impl<C> Decode<'_, C> for FailCode {
    fn decode(decoder: &mut Decoder<'_>, _: &mut C) -> Result<Self, decode::Error> {
        Ok(match decoder.u32()? {
            0 => Self::Refused,
            1 => Self::NotFound,
            2 => Self::Exists,
            4 => Self::NoSpace,
            5 => Self::SourceChanged,
            6 => Self::Digest,
            7 => Self::Busy,
            8 => Self::Cancelled,
            9 => Self::Protocol,
            10 => Self::NotAFile,
            11 => Self::NotPermitted,
            12 => Self::Occupied,
            13 => Self::Range,
            14 => Self::Precondition,
            15 => Self::NotADirectory,
            _ => Self::Io,
        })
    }
}

pub(crate) fn truncate(text: &mut String, most: usize) {
    if text.len() > most {
        let end = (0..=most)
            .rev()
            .find(|end| text.is_char_boundary(*end))
            .unwrap_or(0);
        text.truncate(end);
    }
}

/// Maximum length of a failure's text in bytes.
pub(crate) const MAX_TEXT: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_is_read_as_it_is_written_and_an_unknown_one_as_a_failed_operation() {
        let mut words = std::collections::BTreeSet::new();
        for number in 0..=15_u32 {
            let written = minicbor::to_vec(number).unwrap();
            let code: FailCode = decode(&written).unwrap();
            assert_eq!(minicbor::to_vec(code).unwrap(), written, "{code:?}");
            assert_eq!(u32::from(code.number()), number);
            words.insert(code.word());
        }
        assert_eq!(words.len(), 16);
        let unknown = minicbor::to_vec(16_u32).unwrap();
        assert_eq!(decode::<FailCode>(&unknown).unwrap(), FailCode::Io);
    }
}
