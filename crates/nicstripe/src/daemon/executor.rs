//! Interface to the program that runs the commands of peers.

use std::{fmt, future::Future, io, path::PathBuf, pin::Pin};

use nicstripe_proto::message::ExitStatus;
use tokio::io::{AsyncRead, AsyncWrite};

/// Runs the commands of peers, whose lines permit them.
///
/// The library starts no process: the program decides how a command is started, in which
/// environment, and how it is ended.
pub trait Executor: fmt::Debug + Send + Sync {
    /// Starts a command. Blocks the thread.
    ///
    /// # Errors
    ///
    /// The command cannot be started. A command that is not found is no error: like a shell, report
    /// it in its error output and exit with 127.
    fn start(&self, command: PeerCommand) -> io::Result<StartedCommand>;
}

/// Command of a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerCommand {
    /// Program and arguments, at least one. They are bytes without NUL.
    pub words: Vec<Vec<u8>>,
    /// Name of the peer in the list of peers, or the fingerprint of its key.
    pub peer: String,
    /// Directory that the peer is served; `None` if it has none.
    pub root: Option<PathBuf>,
}

/// Running command of a peer.
pub struct StartedCommand {
    /// Standard input. It is shut down when the peer's input has ended, and dropped without that if
    /// the peer is lost.
    pub stdin: Box<dyn AsyncWrite + Send + Unpin>,
    /// Standard output.
    pub stdout: Box<dyn AsyncRead + Send + Unpin>,
    /// Standard error.
    pub stderr: Box<dyn AsyncRead + Send + Unpin>,
    /// End of the command. Dropping it earlier must end the command and what it has started.
    pub status: Pin<Box<dyn Future<Output = io::Result<ExitStatus>> + Send>>,
}

impl fmt::Debug for StartedCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StartedCommand").finish_non_exhaustive()
    }
}
