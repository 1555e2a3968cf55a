//! Client of the route helper, which is a privileged process, or a thread of this one.

use std::{
    io::{self, Read as _, Write as _},
    net::Shutdown,
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream, process::CommandExt as _},
    },
    path::{self, Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::{self, JoinHandle},
    time::Duration,
};

use crate::{
    helper::{
        protocol::{ANSWER_LEN, Asked, MAX_MTU_SECONDS, Reply, Reported, Request},
        rights::Lent,
        server,
    },
    interface::InterfaceIndex,
    mtu::MtuError,
    routes::{HostRoute, RouteError},
};

/// Connection to the helper, which installs host routes and changes MTUs. The helper undoes both
/// when this value is dropped or this process ends.
///
/// The helper enforces the policy itself ([`may_install`](crate::may_install), at most
/// [`MAX_ROUTES`](crate::MAX_ROUTES)). It records each route before installation
/// ([`Routes`](crate::Routes)). If the kernel drops routes because their interface goes down, the
/// helper restores them when it comes up again. A helper process outlives this one, even after a
/// kill, until it has removed the routes. If both are killed, the next nicstripe process removes
/// them at its start.
///
/// Calls block: a request takes about a millisecond, and a few seconds at most. After
/// [`RouteError::Helper`] all further calls fail.
#[derive(Debug)]
pub struct RouteHelper {
    stream: UnixStream,
    runs: Runs,
    state_dir: PathBuf,
}

#[derive(Debug)]
enum Runs {
    Process(Child),
    Thread(Option<JoinHandle<()>>),
}

impl RouteHelper {
    /// Returns the path of the helper program in the directory of this executable. Returns `None`
    /// if it does not exist there, or if this executable's path is unknown.
    pub fn program() -> Option<PathBuf> {
        let program = std::env::current_exe().ok()?.parent()?.join(PROGRAM);
        program.is_file().then_some(program)
    }

    /// Starts the helper as a separate process. It is privileged if its file has capabilities or
    /// the calling thread has `CAP_NET_ADMIN`.
    ///
    /// A program with file capabilities ignores `state_dir` and keeps its records in
    /// [`SHARED_STATE_DIR`](crate::SHARED_STATE_DIR).
    pub fn spawn(program: &Path, state_dir: &Path) -> io::Result<Self> {
        let (ours, theirs) = connection()?;
        let _lent = Lent::lend();
        let child = Command::new(program)
            .arg(path::absolute(state_dir)?)
            .env_clear()
            .current_dir("/")
            // Signals that a terminal sends to this process's group must not reach the helper.
            .process_group(0)
            .stdin(OwnedFd::from(theirs.try_clone()?))
            .stdout(Stdio::from(OwnedFd::from(theirs)))
            .spawn()?;
        Ok(Self {
            stream: ours,
            runs: Runs::Process(child),
            state_dir: state_dir.to_owned(),
        })
    }

    /// Starts the helper in a thread of this process, with the capabilities of the calling thread.
    /// If this process is killed, its routes remain until the next nicstripe process starts.
    pub fn in_process(state_dir: &Path) -> io::Result<Self> {
        let (ours, theirs) = connection()?;
        let directory = state_dir.to_owned();
        let serve = move || {
            if let Err(error) = server::serve(&theirs, &theirs, &directory, None) {
                tracing::warn!(%error, "cannot maintain host routes");
            }
        };
        let thread = thread::Builder::new()
            .name("routes".to_owned())
            .spawn(serve)?;
        Ok(Self {
            stream: ours,
            runs: Runs::Thread(Some(thread)),
            state_dir: state_dir.to_owned(),
        })
    }

    /// Installs a host route. Does nothing if this helper has already installed it.
    pub fn add(&mut self, route: &HostRoute) -> Result<(), RouteError> {
        self.ask(&Request::Add(*route)).map(drop)
    }

    /// Removes a route that [`add`](Self::add) installed. Returns true if the route was deleted
    /// from the kernel's table, and false if it has other owners or was already gone.
    pub fn remove(&mut self, route: &HostRoute) -> Result<bool, RouteError> {
        self.ask(&Request::Remove(*route))
            .map(|removed| removed > 0)
    }

    /// Reinstalls the routes of an interface that the kernel dropped. The helper also does this
    /// without a call when the interface comes up.
    pub fn restore(&mut self, interface: InterfaceIndex) -> Result<(), RouteError> {
        self.ask(&Request::Restore(interface)).map(drop)
    }

    /// Deletes the stale neighbour entry of a route's destination, so that the kernel resolves the
    /// address again over that route. Returns true if an entry was deleted.
    ///
    /// # Errors
    ///
    /// [`RouteError::Refused`] if the policy does not allow the route.
    pub fn forget_neighbour(&mut self, route: &HostRoute) -> Result<bool, RouteError> {
        self.ask(&Request::ForgetNeighbour(*route))
            .map(|forgotten| forgotten > 0)
    }

    /// Changes the MTU of an interface, and returns the original one, from before this helper
    /// changed it. Both are in bytes.
    ///
    /// The helper restores the original MTU at the first of these events:
    /// [`restore_mtu`](Self::restore_mtu), the end of `longest`, drop of this value, the end of
    /// this process, and a termination signal to the helper. `longest` counts in whole seconds, at
    /// most an hour, and each call restarts it. If both processes are killed, the next nicstripe
    /// process restores the MTU at its start.
    ///
    /// # Errors
    ///
    /// See [`MtuError`]. A helper with more privileges than its caller rejects all changes.
    pub fn set_mtu(
        &mut self,
        interface: InterfaceIndex,
        mtu: u32,
        longest: Duration,
    ) -> Result<u32, MtuError> {
        let seconds = longest.as_secs().clamp(1, MAX_MTU_SECONDS.into()) as u32;
        self.ask(&Request::SetMtu {
            interface,
            mtu,
            seconds,
        })
    }

    /// Restores the MTU from before [`set_mtu`](Self::set_mtu). Returns true if that changed the
    /// MTU.
    pub fn restore_mtu(&mut self, interface: InterfaceIndex) -> Result<bool, MtuError> {
        self.ask(&Request::RestoreMtu(interface))
            .map(|changed| changed > 0)
    }

    /// Removes the routes and restores the MTUs that dead processes left, as the helper does at
    /// startup. Returns the number of removed routes.
    pub fn clean(&mut self) -> Result<u32, RouteError> {
        self.ask(&Request::Clean)
    }

    /// Returns the process ID of the helper; `None` if it is a thread of this process.
    pub fn id(&self) -> Option<u32> {
        match &self.runs {
            Runs::Process(child) => Some(child.id()),
            Runs::Thread(_) => None,
        }
    }

    fn ask<E: Reported>(&mut self, request: &Request) -> Result<u32, E> {
        let answer = self.exchange(request).map_err(E::of_helper)?;
        answer.into_result(&Asked {
            request,
            directory: &self.state_dir,
        })
    }

    fn exchange(&mut self, request: &Request) -> io::Result<Reply> {
        self.stream.write_all(&request.encode())?;
        let mut bytes = [0; ANSWER_LEN];
        let read = self.stream.read_exact(&mut bytes);
        if let Err(error) = read {
            // A late answer must not be matched to the next request.
            let _ = self.stream.shutdown(Shutdown::Both);
            return Err(error);
        }
        Reply::decode(&bytes).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "malformed answer of the helper")
        })
    }
}

impl Drop for RouteHelper {
    /// Closes the connection and waits at most 3 s until the helper has undone its changes.
    fn drop(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Write);
        let _ = self.stream.set_read_timeout(Some(END_TIMEOUT));
        // The helper closes its end after it has removed the routes.
        let ended = matches!(self.stream.read(&mut [0; ANSWER_LEN]), Ok(0));
        match &mut self.runs {
            Runs::Process(child) if ended => drop(child.wait()),
            Runs::Process(child) => drop(child.try_wait()),
            Runs::Thread(thread) if ended => drop(thread.take().map(JoinHandle::join)),
            Runs::Thread(_) => {}
        }
    }
}

/// Creates the socket pair between client and helper. The client's socket has read and write
/// timeouts.
fn connection() -> io::Result<(UnixStream, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    ours.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    Ok((ours, theirs))
}

const PROGRAM: &str = "nicstripe-routes";

/// Timeout for an answer of the helper, longer than the helper itself waits for the lock on the
/// records (2 s) and for the kernel (5 s).
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout for the exit of the helper, longer than the helper itself waits for the lock on the
/// records (2 s). The helper removes the routes even if that takes longer.
const END_TIMEOUT: Duration = Duration::from_secs(3);
