//! Statement about a file that its receiver signs.

use minicbor::Encode;

use super::{hash_tree::Digest, journal::Timestamp, name::Name};

/// Statement that a machine has read a file, of a receipt. The signature of [`Statement::text`] by the key
/// of that machine makes it good.
#[derive(Debug, Clone, PartialEq, Eq, Encode)]
pub struct Statement {
    /// Name of the file at the receiver.
    #[n(0)]
    pub name: Name,
    /// Size in bytes.
    #[n(1)]
    pub size: u64,
    /// Modification time.
    #[n(2)]
    pub modified: Timestamp,
    /// Digest of the content that was read.
    #[n(3)]
    pub digest: Digest,
    /// When it was read, by the receiver's clock.
    #[n(4)]
    pub at: Timestamp,
    /// Public key of the machine that asked for it.
    #[cbor(n(5), with = "minicbor::bytes")]
    pub sender: [u8; 32],
    /// Digest of what that machine adds, for which the receiver does not answer.
    #[n(6)]
    pub words: Digest,
}

impl Statement {
    /// Returns the text that is signed. No other text that the keys of this protocol sign begins as it
    /// does.
    pub fn text(&self) -> Vec<u8> {
        let mut text = CONTEXT.to_vec();
        // A vector takes all bytes.
        let _ = minicbor::encode(self, &mut text);
        text
    }
}

const CONTEXT: &[u8] = b"nicstripe receipt 1\0";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_the_documented_one_and_differs_with_each_field() {
        let at = |seconds| Timestamp {
            seconds,
            nanoseconds: 0,
        };
        let statement = Statement {
            name: Name::parse(b"a").unwrap(),
            size: 300,
            modified: at(1),
            digest: Digest([2; 32]),
            at: at(3),
            sender: [4; 32],
            words: Digest([5; 32]),
        };
        let hex: String = statement.text()[20..]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let expected = [
            "87814161",
            "19012c",
            "820100",
            &format!("5820{}", "02".repeat(32)),
            "820300",
            &format!("5820{}", "04".repeat(32)),
            &format!("5820{}", "05".repeat(32)),
        ];
        assert_eq!(hex, expected.concat());
        let changes: [fn(&mut Statement); 7] = [
            |other| other.name = Name::parse(b"b").unwrap(),
            |other| other.size = 301,
            |other| other.modified.seconds = 9,
            |other| other.digest = Digest([9; 32]),
            |other| other.at.seconds = 9,
            |other| other.sender = [9; 32],
            |other| other.words = Digest([9; 32]),
        ];
        for change in changes {
            let mut other = statement.clone();
            change(&mut other);
            assert_ne!(other.text(), statement.text());
        }
    }
}
