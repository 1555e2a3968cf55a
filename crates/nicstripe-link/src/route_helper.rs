//! The route helper as its user sees it: a process that may change routes, or the same code in a thread.

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

/// Something that installs host routes and changes MTUs on request, and undoes that when this is dropped or the process ends.
///
/// It applies the whole policy itself ([`may_install`](crate::may_install), at most [`MAX_ROUTES`](crate::MAX_ROUTES)), records
/// each route before it is installed ([`Routes`](crate::Routes)), and puts back those that the kernel dropped when their interface
/// comes up again. As a process of its own it outlives this one by the time that it takes to remove them, however this one ends;
/// what is left when both are killed goes at the next start.
///
/// Calls block: a request takes about a millisecond, at most some seconds. After [`RouteError::Helper`] it is of no use any more.
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
    /// Finds the helper's program beside this one's. `None` where there is none, or where this program is cannot be told.
    pub fn program() -> Option<PathBuf> {
        let program = std::env::current_exe().ok()?.parent()?.join(PROGRAM);
        program.is_file().then_some(program)
    }

    /// Starts the helper as a process of its own, which has the right to change routes if its file or the calling thread has it.
    ///
    /// A program with file capabilities takes [`SHARED_STATE_DIR`](crate::SHARED_STATE_DIR) for its records, whatever it is told.
    pub fn spawn(program: &Path, state_dir: &Path) -> io::Result<Self> {
        let (ours, theirs) = connection()?;
        let _lent = Lent::lend();
        let child = Command::new(program)
            .arg(path::absolute(state_dir)?)
            .env_clear()
            .current_dir("/")
            // What a terminal sends to the group of this process is not meant for the helper.
            .process_group(0)
            .stdin(OwnedFd::from(theirs.try_clone()?))
            .stdout(Stdio::from(OwnedFd::from(theirs)))
            .spawn()?;
        Ok(Self { stream: ours, runs: Runs::Process(child), state_dir: state_dir.to_owned() })
    }

    /// Does the helper's work in a thread of this process, with the rights of the calling one. After a kill, the routes stay until
    /// the next start.
    pub fn in_process(state_dir: &Path) -> io::Result<Self> {
        let (ours, theirs) = connection()?;
        let directory = state_dir.to_owned();
        let serve = move || {
            if let Err(error) = route_server::serve(&theirs, &theirs, &directory, None) {
                tracing::warn!(%error, "host routes cannot be looked after");
            }
        };
        let thread = thread::Builder::new().name("routes".to_owned()).spawn(serve)?;
        Ok(Self { stream: ours, runs: Runs::Thread(Some(thread)), state_dir: state_dir.to_owned() })
    }

    /// Installs a route. Twice is once.
    pub fn add(&mut self, route: &HostRoute) -> Result<(), RouteError> {
        self.ask(&Request::Add(*route)).map(drop)
    }

    /// Removes a route that [`add`](Self::add) installed. Returns whether the kernel's was deleted: it may be wanted by others,
    /// or gone.
    pub fn remove(&mut self, route: &HostRoute) -> Result<bool, RouteError> {
        self.ask(&Request::Remove(*route)).map(|removed| removed > 0)
    }

    /// Puts back what the kernel dropped of an interface's routes; the helper does so by itself when it sees the interface come up.
    pub fn restore(&mut self, interface: InterfaceIndex) -> Result<(), RouteError> {
        self.ask(&Request::Restore(interface)).map(drop)
    }

    /// Has the kernel ask anew where the destination of a route is, by its own way, if it doubts what it knows. Only where the policy allows
    /// the route. Returns whether something was forgotten.
    pub fn forget_neighbour(&mut self, route: &HostRoute) -> Result<bool, RouteError> {
        self.ask(&Request::ForgetNeighbour(*route)).map(|forgotten| forgotten > 0)
    }

    /// Gives an interface another MTU, and returns the one that it had before this helper changed it.
    ///
    /// It is put back by [`restore_mtu`](Self::restore_mtu), after `longest` (in whole seconds, at most an hour; each call begins it anew),
    /// when this is dropped, when this process ends in whatever way, and when the helper is told to end by a signal; if both are killed, at
    /// the next start of any nicstripe. What is refused: [`MtuError`]. A helper that has rights which its caller lacks refuses all.
    pub fn set_mtu(&mut self, interface: InterfaceIndex, mtu: u32, longest: Duration) -> Result<u32, MtuError> {
        let seconds = longest.as_secs().clamp(1, MAX_MTU_SECONDS.into()) as u32;
        self.ask_mtu(&Request::SetMtu { interface, mtu, seconds })
    }

    /// Puts back what an interface had before [`set_mtu`](Self::set_mtu). Returns whether that changed anything.
    pub fn restore_mtu(&mut self, interface: InterfaceIndex) -> Result<bool, MtuError> {
        self.ask_mtu(&Request::RestoreMtu(interface)).map(|changed| changed > 0)
    }

    /// Removes what dead processes have left, as the helper does when it starts: routes, and changed MTUs. Returns how many routes that were.
    pub fn clean(&mut self) -> Result<u32, RouteError> {
        self.ask(&Request::Clean)
    }

    /// The number of the helper's process; `None` for a thread.
    pub fn id(&self) -> Option<u32> {
        match &self.runs {
            Runs::Process(child) => Some(child.id()),
            Runs::Thread(_) => None,
        }
    }

    fn ask(&mut self, request: &Request) -> Result<u32, RouteError> {
        let answer = self.exchange(request).map_err(|source| RouteError::Helper { source })?;
        answer.into_result(request, &self.state_dir)
    }

    fn ask_mtu(&mut self, request: &Request) -> Result<u32, MtuError> {
        let answer = self.exchange(request).map_err(|source| MtuError::Helper { source })?;
        answer.into_mtu_result(request, &self.state_dir)
    }

    fn exchange(&mut self, request: &Request) -> io::Result<Answer> {
        self.stream.write_all(&request.encode())?;
        let mut bytes = [0; ANSWER_LEN];
        let read = self.stream.read_exact(&mut bytes);
        if let Err(error) = read {
            // A late answer must not be taken for that to the next request.
            let _ = self.stream.shutdown(Shutdown::Both);
            return Err(error);
        }
        Answer::decode(&bytes).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the helper's answer cannot be read"))
    }
}

impl Drop for RouteHelper {
    /// Waits until the routes are removed, at most 3 s.
    fn drop(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Write);
        let _ = self.stream.set_read_timeout(Some(END_TIMEOUT));
        // It closes its end when it has removed them.
        let ended = matches!(self.stream.read(&mut [0; ANSWER_LEN]), Ok(0));
        match &mut self.runs {
            Runs::Process(child) if ended => drop(child.wait()),
            Runs::Process(child) => drop(child.try_wait()),
            Runs::Thread(thread) if ended => drop(thread.take().map(JoinHandle::join)),
            Runs::Thread(_) => {}
        }
    }
}

/// Makes the two ends of a connection; the first has a time limit on everything.
fn connection() -> io::Result<(UnixStream, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    ours.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    Ok((ours, theirs))
}

/// Name of the helper's program.
const PROGRAM: &str = "nicstripe-routes";

/// Longest wait for an answer: that for the lock on the records (2 s) and for the kernel (5 s), and some.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait for the helper's end: that for the lock on the records, and some. It removes the routes all the same.
const END_TIMEOUT: Duration = Duration::from_secs(3);
