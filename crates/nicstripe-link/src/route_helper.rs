//! Client side of the route helper: a privileged process, or the same code in a thread.

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
    interface::InterfaceIndex,
    mtu::MtuError,
    rights::Lent,
    route_protocol::{ANSWER_LEN, Answer, MAX_MTU_SECONDS, Request},
    route_server,
    routes::{HostRoute, RouteError},
};

/// Helper that installs host routes and changes MTUs, and undoes both on drop or when this process
/// ends.
///
/// The helper enforces the policy itself ([`may_install`](crate::may_install), at most
/// [`MAX_ROUTES`](crate::MAX_ROUTES)). It records each route before installation
/// ([`Routes`](crate::Routes)), and restores routes that the kernel dropped when their interface
/// comes up again. A helper process outlives this one, however that ends, until it has removed the
/// routes. If both are killed, the next start removes them.
///
/// Calls block: a request takes about a millisecond, and a few seconds at most. Unusable after
/// [`RouteError::Helper`].
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
    /// Finds the helper's program in the directory of this one. `None` if it does not exist, or
    /// this program's path is unknown.
    pub fn program() -> Option<PathBuf> {
        let program = std::env::current_exe().ok()?.parent()?.join(PROGRAM);
        program.is_file().then_some(program)
    }

    /// Starts the helper as a separate process, which is privileged if its file or the calling
    /// thread is.
    ///
    /// A program with file capabilities always records in
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
    /// After a kill, the routes remain until the next start.
    pub fn in_process(state_dir: &Path) -> io::Result<Self> {
        let (ours, theirs) = connection()?;
        let directory = state_dir.to_owned();
        let serve = move || {
            if let Err(error) = route_server::serve(&theirs, &theirs, &directory, None) {
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

    /// Installs a route. Idempotent.
    pub fn add(&mut self, route: &HostRoute) -> Result<(), RouteError> {
        self.ask(&Request::Add(*route)).map(drop)
    }

    /// Removes a route that [`add`](Self::add) installed. Returns true if the kernel's route was
    /// deleted; it may have other owners, or be gone.
    pub fn remove(&mut self, route: &HostRoute) -> Result<bool, RouteError> {
        self.ask(&Request::Remove(*route))
            .map(|removed| removed > 0)
    }

    /// Reinstalls an interface's routes that the kernel dropped. The helper does so by itself when
    /// the interface comes up.
    pub fn restore(&mut self, interface: InterfaceIndex) -> Result<(), RouteError> {
        self.ask(&Request::Restore(interface)).map(drop)
    }

    /// Deletes the stale neighbour entry of a route's destination, so that the kernel resolves it
    /// again over its own route. The policy must allow the route. Returns true if an entry was
    /// deleted.
    pub fn forget_neighbour(&mut self, route: &HostRoute) -> Result<bool, RouteError> {
        self.ask(&Request::ForgetNeighbour(*route))
            .map(|forgotten| forgotten > 0)
    }

    /// Changes the MTU of an interface, and returns the MTU from before this helper changed it.
    ///
    /// The helper restores it at the first of these events: [`restore_mtu`](Self::restore_mtu), the
    /// end of `longest`, drop of this value, the end of this process, and a termination signal to
    /// the helper. `longest` counts in whole seconds, at most an hour, and each call restarts it.
    /// If both processes are killed, the next nicstripe start restores the MTU.
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
        self.ask_mtu(&Request::SetMtu {
            interface,
            mtu,
            seconds,
        })
    }

    /// Restores the MTU from before [`set_mtu`](Self::set_mtu). Returns true if that changed it.
    pub fn restore_mtu(&mut self, interface: InterfaceIndex) -> Result<bool, MtuError> {
        self.ask_mtu(&Request::RestoreMtu(interface))
            .map(|changed| changed > 0)
    }

    /// Removes routes and restores MTUs left by dead processes, as the helper does at startup.
    /// Returns the number of routes.
    pub fn clean(&mut self) -> Result<u32, RouteError> {
        self.ask(&Request::Clean)
    }

    /// Process ID of the helper; `None` for a thread.
    pub fn id(&self) -> Option<u32> {
        match &self.runs {
            Runs::Process(child) => Some(child.id()),
            Runs::Thread(_) => None,
        }
    }

    fn ask(&mut self, request: &Request) -> Result<u32, RouteError> {
        let answer = self
            .exchange(request)
            .map_err(|source| RouteError::Helper { source })?;
        answer.into_result(request, &self.state_dir)
    }

    fn ask_mtu(&mut self, request: &Request) -> Result<u32, MtuError> {
        let answer = self
            .exchange(request)
            .map_err(|source| MtuError::Helper { source })?;
        answer.into_mtu_result(request, &self.state_dir)
    }

    fn exchange(&mut self, request: &Request) -> io::Result<Answer> {
        self.stream.write_all(&request.encode())?;
        let mut bytes = [0; ANSWER_LEN];
        let read = self.stream.read_exact(&mut bytes);
        if let Err(error) = read {
            // A late answer must not be matched to the next request.
            let _ = self.stream.shutdown(Shutdown::Both);
            return Err(error);
        }
        Answer::decode(&bytes).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "malformed answer of the helper")
        })
    }
}

impl Drop for RouteHelper {
    /// Waits until the routes are removed, at most 3 s.
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

/// Creates both ends of a connection; the first has read and write timeouts.
fn connection() -> io::Result<(UnixStream, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    ours.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    Ok((ours, theirs))
}

const PROGRAM: &str = "nicstripe-routes";

/// Timeout for an answer: covers the lock on the records (2 s) and the kernel (5 s).
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout for the helper's end: covers the lock on the records. After it, the helper still removes
/// the routes.
const END_TIMEOUT: Duration = Duration::from_secs(3);
