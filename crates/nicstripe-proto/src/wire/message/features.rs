//! Optional parts of the protocol, which each end announces in its greeting.

use std::fmt;

use minicbor::{
    Decode, Decoder, Encode, Encoder, decode,
    encode::{self, Write},
};

/// Part of the protocol that not every end supports. The numbers are never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Feature {
    /// Benchmarks.
    Bench = 1,
    /// Tunnels to TCP services.
    Tunnels = 2,
    /// Requests about names: list, stat, remove, rename and make a directory.
    Names = 3,
    /// Request for facts about the machine.
    Facts = 4,
    /// Commands that the daemon runs.
    Exec = 5,
    /// Listeners of the daemon, whose connections are tunnels to the client.
    Listeners = 6,
    /// Entity tags, and requests that depend on them.
    Tags = 7,
    /// Requests about names: copy, walk, remove many, hash and concat.
    Objects = 8,
    /// Compressed chunks, to be received.
    Compression = 9,
    /// Shares of trees, slices of files, and deletions without a copy.
    Shares = 10,
    /// Files that are fetched from another daemon.
    Fetches = 11,
    /// Outlines of files, and signed statements about them.
    Receipts = 12,
}

impl Feature {
    /// All features of this version.
    pub const ALL: [Self; 12] = [
        Self::Bench,
        Self::Tunnels,
        Self::Names,
        Self::Facts,
        Self::Exec,
        Self::Listeners,
        Self::Tags,
        Self::Objects,
        Self::Compression,
        Self::Shares,
        Self::Fetches,
        Self::Receipts,
    ];

    /// Returns true for a feature that an older peer, which announces none, may have.
    pub fn is_original(self) -> bool {
        matches!(
            self,
            Self::Bench | Self::Tunnels | Self::Names | Self::Compression
        )
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bench => "benchmarks",
            Self::Tunnels => "tunnels",
            Self::Names => "requests about names",
            Self::Facts => "facts about the machine",
            Self::Exec => "commands",
            Self::Listeners => "listeners",
            Self::Tags => "entity tags",
            Self::Objects => "copies and walks at the daemon",
            Self::Compression => "compressed chunks",
            Self::Shares => "shares of trees",
            Self::Fetches => "files from other daemons",
            Self::Receipts => "receipts",
        })
    }
}

/// Set of features. On the wire an array of their numbers; a reader ignores those that it does not
/// know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Features(u64);

impl Features {
    /// Returns true if the set has the feature.
    pub fn has(self, feature: Feature) -> bool {
        self.0 & 1 << feature as u8 != 0
    }
}

impl FromIterator<Feature> for Features {
    fn from_iter<I: IntoIterator<Item = Feature>>(features: I) -> Self {
        let bits = features.into_iter().map(|feature| 1 << feature as u8);
        Self(bits.fold(0, |all, bit| all | bit))
    }
}

impl<C> Encode<C> for Features {
    fn encode<W: Write>(
        &self,
        encoder: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        encoder.array(self.0.count_ones().into())?;
        for feature in Feature::ALL.into_iter().filter(|one| self.has(*one)) {
            encoder.u8(feature as u8)?;
        }
        Ok(())
    }
}

impl<'b, C> Decode<'b, C> for Features {
    fn decode(decoder: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
        let known = |number| Feature::ALL.into_iter().find(|one| *one as u64 == number);
        let numbers = decoder.array_iter::<u64>()?;
        numbers
            .filter_map(|number| number.map(known).transpose())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use minicbor::decode;

    use super::{Feature, Features};

    #[test]
    fn unknown_features_are_ignored() {
        let of = |bytes: &[u8]| -> Features { decode(bytes).unwrap() };
        let all: Features = Feature::ALL.into_iter().collect();
        assert_eq!(
            minicbor::to_vec(all).unwrap(),
            [0x8c, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
        );
        assert_eq!(of(&[0x8c, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]), all);
        let tunnels: Features = [Feature::Tunnels].into_iter().collect();
        // 0, 2, 99 and 2^64 - 1, in any order
        let odd = [&[0x84, 0x18, 99, 2, 0, 0x1b][..], &[0xff; 8]].concat();
        assert_eq!(of(&odd), tunnels);
        assert!(tunnels.has(Feature::Tunnels) && !tunnels.has(Feature::Bench));
        assert_eq!(of(&[0x80]), Features::default());
    }
}
