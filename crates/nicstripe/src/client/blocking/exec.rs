//! Commands at the daemon, run to their end.

use nicstripe_proto::message::ExitStatus;
use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::{client, file::FileError, report::error::Error};

/// Output of a command; see [`Client::exec`](super::Client::exec).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Output {
    /// How the command has ended.
    pub status: ExitStatus,
    /// Bytes of its standard output.
    pub stdout: Vec<u8>,
    /// Bytes of its standard error.
    pub stderr: Vec<u8>,
}

/// Runs a command with its whole input. Fails it if an output is longer than [`MOST_OUTPUT`].
pub(super) async fn output(
    client: &client::Client,
    words: Vec<Vec<u8>>,
    stdin: Vec<u8>,
) -> Result<Output, Error> {
    let (stdout, out) = tokio::io::duplex(PIPE);
    let (stderr, err) = tokio::io::duplex(PIPE);
    let status = client.exec(words, std::io::Cursor::new(stdin), stdout, stderr);
    let (stdout, stderr) = (whole(out, "standard output"), whole(err, "standard error"));
    let (status, stdout, stderr) = tokio::try_join!(status, stdout, stderr)?;
    Ok(Output {
        status,
        stdout,
        stderr,
    })
}

async fn whole(from: impl AsyncRead + Unpin, name: &str) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    let read = from.take(MOST_OUTPUT + 1).read_to_end(&mut bytes).await;
    read.map_err(|cause| FileError::new("read", name, cause))?;
    if bytes.len() as u64 > MOST_OUTPUT {
        let why = format!("it has more than {MOST_OUTPUT} bytes");
        return Err(FileError::refused("read", name, why).into());
    }
    Ok(bytes)
}

/// Maximum length of each output of [`Client::exec`](super::Client::exec), in bytes.
pub const MOST_OUTPUT: u64 = 64 << 20;

const PIPE: usize = 64 << 10;
