//! What several benches let one type.

use nicstripe_lab::Host;

/// A bench's own arguments, and what cargo adds to them.
#[derive(Debug, clap::Parser)]
pub(crate) struct CommandLine<A: clap::Args> {
    #[command(flatten)]
    pub(crate) arguments: A,

    /// Measure; `cargo bench` passes it
    #[arg(long)]
    pub(crate) bench: bool,
}

/// How often a bench copies, and which way.
#[derive(Debug, clap::Args)]
pub(crate) struct Copies {
    /// Copies of each kind each way
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) runs: u32,

    /// Which way the file goes
    #[arg(long, value_enum, value_delimiter = ',', default_value = "put,get")]
    pub(crate) direction: Vec<Way>,
}

/// Which way the bytes go; the client is always host A.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Way {
    /// To the daemon.
    Put,
    /// From the daemon.
    Get,
}

impl Way {
    /// The host that has the file.
    pub(crate) fn from(self) -> Host {
        match self {
            Self::Put => Host::A,
            Self::Get => Host::B,
        }
    }

    /// As one types it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Get => "get",
        }
    }
}

/// Reads a size in bytes: digits, and K, M or G for powers of 1024.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || format!("not a size: {text:?}, expected digits and an optional K, M or G");
    let (digits, shift) = match text.char_indices().last() {
        Some((at, 'K')) => (&text[..at], 10),
        Some((at, 'M')) => (&text[..at], 20),
        Some((at, 'G')) => (&text[..at], 30),
        _ => (text, 0),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).filter(|size| *size > 0).ok_or_else(wrong)
}
