//! Socket of a running daemon or copy, by which `nicstripe status` asks what it does.
//!
//! Each process has its own socket in the state directory, which only its user may enter, and
//! answers a connection with one line of JSON.

use std::{
    fs,
    io::{self, Read as _},
    os::unix::{
        fs::{DirBuilderExt as _, MetadataExt as _},
        net::{UnixListener as StdListener, UnixStream},
    },
    path::{Path, PathBuf},
    time::Duration,
};

use nicstripe::trust::Home;
use rustix::process::geteuid;
use tokio::{io::AsyncWriteExt as _, net::UnixListener, task::JoinHandle};

use crate::output::json::Object;

/// Socket of this process. Dropping it removes the socket, and the directories made for it.
#[derive(Debug)]
pub(crate) struct Presence {
    path: PathBuf,
    /// Dropped after the socket is removed.
    _made: Made,
    task: JoinHandle<()>,
}

/// Directories that this process has made, the deepest first. Dropping them removes the empty ones.
#[derive(Debug)]
struct Made(Vec<PathBuf>);

impl Made {
    /// Creates a directory and those above that are missing.
    fn create(folder: &Path) -> io::Result<Self> {
        let missing = folder.ancestors().take_while(|path| !path.exists());
        let made = Self(missing.map(Path::to_owned).collect());
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
        Ok(made)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        let _ = self.0.iter().try_for_each(fs::remove_dir);
    }
}

impl Presence {
    /// Opens the socket, and answers each connection by `answer`. Returns `None` if that cannot be
    /// done: the process works without.
    pub(crate) fn announce(
        home: &Home,
        answer: impl Fn() -> Object + Send + Sync + 'static,
    ) -> Option<Self> {
        match open(&folder(home)) {
            Ok((listener, path, made)) => Some(Self {
                path,
                _made: made,
                task: tokio::spawn(serve(listener, answer)),
            }),
            Err(error) => {
                tracing::debug!(%error, "no socket for nicstripe status");
                None
            }
        }
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.task.abort();
        let _ = fs::remove_file(&self.path);
    }
}

fn open(folder: &Path) -> io::Result<(UnixListener, PathBuf, Made)> {
    let made = Made::create(folder)?;
    let path = folder.join(format!("{}.sock", std::process::id()));
    // An earlier process that was killed may have had this number.
    let _ = fs::remove_file(&path);
    let listener = StdListener::bind(&path)?;
    listener.set_nonblocking(true)?;
    Ok((UnixListener::from_std(listener)?, path, made))
}

async fn serve(listener: UnixListener, answer: impl Fn() -> Object) {
    loop {
        let Ok((mut stream, _)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let answer = answer().with("pid", std::process::id());
        if let Ok(line) = serde_json::to_vec(&answer) {
            // One line fits into the socket's buffer, or its reader waits for the rest.
            let _ = tokio::time::timeout(PATIENCE, stream.write_all(&line)).await;
        }
    }
}

/// Asks each process that runs with these directories. Removes the sockets of those that have been
/// killed, unless the directory is another user's, who could make a link of it.
pub(crate) fn ask_all(home: &Home) -> Vec<serde_json::Value> {
    let is_own = fs::metadata(folder(home)).is_ok_and(|found| found.uid() == geteuid().as_raw());
    let entries = fs::read_dir(folder(home)).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    let sockets = paths
        .iter()
        .filter(|path| path.extension().is_some_and(|end| end == "sock"));
    sockets.filter_map(|path| ask(path, is_own)).collect()
}

fn ask(path: &Path, cleans: bool) -> Option<serde_json::Value> {
    let stream = match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            if cleans {
                let _ = fs::remove_file(path);
            }
            return None;
        }
        stream => stream.ok()?,
    };
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let mut text = Vec::new();
    stream.take(MOST).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

fn folder(home: &Home) -> PathBuf {
    home.state().join("run")
}

/// Time for one process to answer, and for a reader to take the answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Pause after a connection could not be accepted.
const PAUSE: Duration = Duration::from_millis(500);

/// Maximum length of an answer in bytes.
const MOST: u64 = 4 << 20;
