//! Command-line arguments shared by several benches.

use nicstripe_lab::Host;

/// Command line of a bench: its own arguments and the flags that cargo adds.
#[derive(Debug, clap::Parser)]
pub struct CommandLine<A: clap::Args> {
    #[command(flatten)]
    pub arguments: A,

    /// Run the measurements; `cargo bench` passes this
    #[arg(long)]
    pub bench: bool,
}

/// Number and direction of the copies that a bench makes.
#[derive(Debug, clap::Args)]
pub struct Copies {
    /// Number of copies of each kind in each direction
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub runs: u32,

    /// Directions of the copies
    #[arg(long, value_enum, value_delimiter = ',', default_value = "put,get")]
    pub direction: Vec<Way>,
}

/// Direction of a copy. The client always runs on host A, the daemon on host B.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Way {
    /// From the client's host to the daemon's.
    Put,
    /// From the daemon's host to the client's.
    Get,
}

impl Way {
    /// Returns the host that sends the file in this direction.
    pub fn from(self) -> Host {
        match self {
            Self::Put => Host::A,
            Self::Get => Host::B,
        }
    }

    /// Returns the value of `--direction` for this direction.
    pub fn name(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Get => "get",
        }
    }
}

/// Parses a size in bytes: digits and an optional suffix K, M or G (powers of 1024). Returns an
/// error for any other text and for 0.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || format!("not a size: {text:?}, expected digits and an optional K, M or G");
    let (digits, shift) = match text.char_indices().last() {
        Some((at, 'K')) => (&text[..at], 10),
        Some((at, 'M')) => (&text[..at], 20),
        Some((at, 'G')) => (&text[..at], 30),
        _ => (text, 0),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number
        .checked_mul(1 << shift)
        .filter(|size| *size > 0)
        .ok_or_else(wrong)
}
