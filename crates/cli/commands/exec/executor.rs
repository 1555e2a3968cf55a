//! Processes of peers' commands, each with a guard that ends what the command has started.

use std::{
    ffi::{OsStr, OsString},
    io,
    os::unix::{ffi::OsStringExt as _, process::ExitStatusExt as _},
    process::{ExitStatus as Ended, Stdio},
};

use nicstripe::exec::{Executor, ExitStatus, PeerCommand, StartedCommand};
use nix::unistd::User;
use rustix::{
    pipe::fcntl_setpipe_size,
    process::{Pid, Signal, geteuid, getpid, kill_process, kill_process_group},
};
use tokio::{
    process::{Child, Command},
    runtime::Handle,
    time::timeout,
};

use super::guard;
use crate::process::streams::PIPE;

/// Starts commands as processes of this process's user.
#[derive(Debug)]
pub(crate) struct Processes {
    runtime: Handle,
    environment: Environment,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Environment {
    /// A small fixed one.
    Fixed,
    /// That of this process, which ssh has started for the user.
    Inherited,
}

impl Processes {
    /// Must be called inside a runtime.
    pub(crate) fn new(environment: Environment) -> Self {
        let runtime = Handle::current();
        Self {
            runtime,
            environment,
        }
    }
}

impl Executor for Processes {
    fn start(&self, command: PeerCommand) -> io::Result<StartedCommand> {
        let _inside = self.runtime.enter();
        // This program, even if its file has been replaced.
        let mut guard = Command::new("/proc/self/exe");
        guard
            .arg(guard::NAME)
            .arg(getpid().as_raw_nonzero().to_string());
        guard.args(command.words.into_iter().map(OsString::from_vec));
        if self.environment == Environment::Fixed {
            guard.env_clear().envs(fixed());
        }
        guard.env("NICSTRIPE_PEER", command.peer);
        guard.current_dir(command.root.as_deref().unwrap_or("/".as_ref()));
        guard.process_group(0);
        guard
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = guard.spawn()?;
        let missing = || io::Error::other("a stream of the command is missing");
        let stdin = child.stdin.take().ok_or_else(missing)?;
        let stdout = child.stdout.take().ok_or_else(missing)?;
        let stderr = child.stderr.take().ok_or_else(missing)?;
        // An unprivileged user may have reached the limit on pipe memory; the pipes keep their size.
        let _ = (
            fcntl_setpipe_size(&stdin, PIPE),
            fcntl_setpipe_size(&stdout, PIPE),
        );
        let mut running = Running(Some(child));
        Ok(StartedCommand {
            stdin: Box::new(stdin),
            stdout: Box::new(stdout),
            stderr: Box::new(stderr),
            status: Box::pin(async move { running.wait().await }),
        })
    }
}

/// Guard of a command, which ends all when this is dropped before the command's end.
struct Running(Option<Child>);

impl Running {
    async fn wait(&mut self) -> io::Result<ExitStatus> {
        let child = self.0.as_mut().ok_or(io::ErrorKind::NotFound)?;
        let ended = child.wait().await?;
        self.0 = None;
        Ok(status(ended))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(mut child) = self.0.take() else {
            return;
        };
        let id = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let Some(guard) = id else {
            return;
        };
        // The guard signals the others.
        let _ = kill_process(guard, Signal::TERM);
        // Without a runtime, this process is about to end, which the guard notices.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                let _ = timeout(2 * guard::LONGEST_END, child.wait()).await;
                let _ = kill_process_group(guard, Signal::KILL);
                let _ = child.wait().await;
            });
        }
    }
}

fn status(ended: Ended) -> ExitStatus {
    match (ended.code(), ended.signal()) {
        (Some(code), _) => ExitStatus::Exited(code as u8),
        (None, signal) => ExitStatus::Signalled(signal.unwrap_or(0) as u8),
    }
}

fn fixed() -> Vec<(&'static str, OsString)> {
    let mut variables = vec![("PATH", OsStr::new(PATH).to_owned())];
    if let Ok(Some(user)) = User::from_uid(geteuid().as_raw().into()) {
        variables.push(("HOME", user.dir.into()));
        variables.push(("SHELL", user.shell.into()));
        variables.push(("USER", user.name.clone().into()));
        variables.push(("LOGNAME", user.name.into()));
    }
    variables
}

/// Directories of programs. A peer that may write to one may run programs anyway.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
