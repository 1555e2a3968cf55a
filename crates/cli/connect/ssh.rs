//! The way to a peer through the user's own ssh: it starts this program there, and both sides
//! exchange one-time keys and addresses. The data then takes the cables.

use std::{
    env, fs, io,
    net::{Ipv4Addr, TcpListener},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use clap::Args;
use nicstripe::{
    CancellationToken,
    bootstrap::{BootstrapError, Call, Introduction, MAX_LINE, Wishes},
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    process::{Child, ChildStdin, ChildStdout, Command},
    task::JoinHandle,
};

use super::place::{Place, Via};
use crate::{
    failure::{CommandError, exit::Exit},
    output::terminal::Terminal,
    text::{invocation::Invocation, shown},
};

/// Options for peers that ssh reaches.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options for USER@HOST, which ssh reaches")]
pub(crate) struct SshArgs {
    /// ssh program with its options, split into words as a shell does; empty for no ssh
    #[arg(
        short = 'e',
        long = "rsh",
        value_name = "COMMAND",
        env = "NICSTRIPE_SSH",
        default_value = "ssh",
        hide_env_values = true
    )]
    rsh: String,

    /// If nicstripe is missing there or too old, copy this program to ~/.local/bin there first
    #[arg(long)]
    install: bool,

    /// Send the data through ssh itself if no cable carries it; one connection, so slower
    #[arg(long)]
    allow_ssh_data: bool,
}

impl SshArgs {
    /// Returns the words of the ssh command; `None` if the user wants no ssh.
    fn words(&self) -> Result<Option<Vec<String>>, SshError> {
        let words = shell_words::split(&self.rsh).map_err(|error| SshError::Words {
            text: shown(&self.rsh),
            why: error.to_string(),
        })?;
        Ok((!words.is_empty()).then_some(words))
    }

    /// Returns true if there is an ssh program to try.
    pub(super) fn is_there(&self) -> bool {
        let Ok(Some(words)) = self.words() else {
            return false;
        };
        let path = env::var_os("PATH").unwrap_or_default();
        words[0].contains('/')
            || env::split_paths(&path).any(|folder| folder.join(&words[0]).is_file())
    }
}

/// Open ssh connection. Closing it ends the program at its other end.
#[derive(Debug)]
pub(crate) struct Channel {
    closing: CancellationToken,
    watching: JoinHandle<()>,
    /// Cancelled when ssh has ended by itself, and the program there may go on.
    pub(super) lost: CancellationToken,
    /// Local port that ssh forwards to the program there; `None` if the data may not go through ssh.
    pub(super) forwarded: Option<u16>,
}

impl Channel {
    /// Closes the connection, and waits at most [`CLOSE_TIMEOUT`] for ssh to end.
    pub(super) async fn close(self) {
        self.closing.cancel();
        let _ = self.watching.await;
    }
}

/// Starts this program on the machine of `place` by ssh, and exchanges keys with it. When
/// that program ends, the introduction counts as gone.
pub(super) async fn open(
    place: &Place,
    args: &SshArgs,
    wishes: Wishes,
) -> Result<(Introduction, Channel), SshError> {
    let words = args.words()?.ok_or_else(|| SshError::Off {
        place: place.to_string(),
    })?;
    let forward = args.allow_ssh_data.then(Forward::choose).transpose();
    let forward = forward.map_err(|source| SshError::Start {
        program: "a forwarded port".into(),
        source,
    })?;
    let through_ssh = forward.as_ref().map(|forward| forward.there);
    let mut started = Started::new(place, &words, forward.as_ref())?;
    let call = Call::new(Wishes {
        through_ssh,
        ..wishes
    })
    .map_err(|error| SshError::Key(error.to_string()))?;
    let reply = started.exchange(&call.line(), args.install).await?;
    let introduction = call.answered(&reply).map_err(|why| match why {
        BootstrapError::Version { .. } => SshError::Version {
            place: place.to_string(),
            why: why.to_string(),
        },
        why => SshError::Refused {
            place: place.to_string(),
            why: why.to_string(),
        },
    })?;
    let channel = started.into_channel(introduction.gone(), forward.map(|forward| forward.here));
    Ok((introduction, channel))
}

/// Ports of `ssh -L`, on 127.0.0.1 at both ends.
struct Forward {
    here: u16,
    there: u16,
}

impl Forward {
    /// Chooses a free local port, and a port there by chance. ssh, or the program there, fails if
    /// another has taken it meanwhile.
    fn choose() -> io::Result<Self> {
        let free = || {
            Ok::<_, io::Error>(
                TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
                    .local_addr()?
                    .port(),
            )
        };
        // What is free here is as good as any number there.
        let (here, there) = (free()?, free()?);
        Ok(Self { here, there })
    }

    fn option(&self) -> String {
        format!("127.0.0.1:{}:127.0.0.1:{}", self.here, self.there)
    }
}

/// ssh that runs, and both directions of its connection.
struct Started {
    place: Place,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// Number of bytes that meant nothing, at most [`MOST_SKIPPED`].
    skipped: usize,
}

impl Started {
    fn new(place: &Place, words: &[String], forward: Option<&Forward>) -> Result<Self, SshError> {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).arg("-T");
        if let Some(port) = place.port {
            command.args(["-p", &port.to_string()]);
        }
        if let Some(forward) = forward {
            command.args(["-L", &forward.option()]);
        }
        if let Via::Ssh { user: Some(user) } = &place.via {
            command.args(["-l", user]);
        }
        command.args([&place.host, SCRIPT]);
        // Passwords and questions go to the terminal; so do the messages of ssh.
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let failed = |source| SshError::Start {
            program: shown(&words[0]),
            source,
        };
        let mut child = command.kill_on_drop(true).spawn().map_err(failed)?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (input, output) = pipes.ok_or_else(|| failed(io::ErrorKind::BrokenPipe.into()))?;
        Ok(Self {
            place: place.clone(),
            child,
            input,
            output: BufReader::new(output),
            skipped: 0,
        })
    }

    /// Sends the request and returns the line of the answer. Installs this program if it is missing
    /// there, and `installs`.
    async fn exchange(&mut self, request: &str, mut installs: bool) -> Result<String, SshError> {
        let mut is_sent = false;
        loop {
            let line = self.next_line().await?;
            let mut words = line.split_whitespace();
            match (words.next(), words.next()) {
                (Some("ready"), _) if !is_sent => {
                    is_sent = true;
                    self.send(format!("{request}\n").as_bytes()).await?;
                }
                (Some("reply"), _) if is_sent => return Ok(format!("{MARK}{line}")),
                (Some(found @ ("missing" | "old")), Some(system)) => {
                    let version = words.collect::<Vec<_>>().join(" ");
                    let absent = Absent {
                        place: self.place.to_string(),
                        version: (found == "old").then(|| shown(&version)),
                        system: shown(system),
                    };
                    if !std::mem::take(&mut installs) {
                        return Err(SshError::Absent(absent));
                    }
                    self.install(absent).await?;
                }
                (Some("failed"), _) => {
                    return Err(SshError::Install {
                        place: self.place.to_string(),
                        why: shown(line.trim_start_matches("failed").trim()),
                    });
                }
                _ => self.skipped += line.len() + MARK.len(),
            }
        }
    }

    /// Returns the rest of the next line with the mark. What a login script prints before is
    /// skipped.
    async fn next_line(&mut self) -> Result<String, SshError> {
        while self.skipped < MOST_SKIPPED {
            let mut line = Vec::new();
            let most = MAX_LINE as u64;
            let read = (&mut self.output)
                .take(most)
                .read_until(b'\n', &mut line)
                .await;
            if read.map_or(true, |count| count == 0) {
                return Err(self.ended().await);
            }
            match line.strip_prefix(MARK.as_bytes()) {
                Some(rest) => return Ok(String::from_utf8_lossy(rest).trim_end().to_owned()),
                None => self.skipped += line.len(),
            }
        }
        Err(SshError::Noise {
            place: self.place.to_string(),
        })
    }

    async fn send(&mut self, bytes: &[u8]) -> Result<(), SshError> {
        let sent = async {
            self.input.write_all(bytes).await?;
            self.input.flush().await
        };
        match sent.await {
            Ok(()) => Ok(()),
            Err(_) => Err(self.ended().await),
        }
    }

    /// Copies this program to the other machine, which tries it before it gets its name.
    async fn install(&mut self, absent: Absent) -> Result<(), SshError> {
        let failed = |why: String| SshError::Install {
            place: absent.place.clone(),
            why,
        };
        if absent.system != this_system() {
            return Err(failed(format!(
                "it is {}, this program is for {}",
                absent.system,
                this_system()
            )));
        }
        let program = env::current_exe().and_then(fs::read);
        let program = program.map_err(|error| failed(error.to_string()))?;
        Terminal::default().say(format_args!(
            "installing nicstripe {} on {}: ~/.local/bin/nicstripe",
            env!("CARGO_PKG_VERSION"),
            absent.place
        ));
        self.send(format!("{}\n", program.len()).as_bytes()).await?;
        self.send(&program).await
    }

    /// Returns the error of an ssh that ended before the answer.
    async fn ended(&mut self) -> SshError {
        let status = tokio::time::timeout(CLOSE_TIMEOUT, self.child.wait()).await;
        let place = self.place.to_string();
        match status {
            Ok(Ok(status)) => SshError::Ended { place, status },
            _ => SshError::Noise { place },
        }
    }

    /// Follows ssh until it ends or is closed.
    fn into_channel(self, gone: CancellationToken, forwarded: Option<u16>) -> Channel {
        let (closing, lost) = (CancellationToken::new(), CancellationToken::new());
        let watching = tokio::spawn(watch(self, closing.clone(), gone, lost.clone()));
        Channel {
            closing,
            watching,
            lost,
            forwarded,
        }
    }
}

async fn watch(
    started: Started,
    closing: CancellationToken,
    gone: CancellationToken,
    lost: CancellationToken,
) {
    let Started {
        place,
        mut child,
        input,
        mut output,
        ..
    } = started;
    // What the program there prints later is nobody's; a full pipe would stop it.
    let draining =
        tokio::spawn(async move { tokio::io::copy(&mut output, &mut tokio::io::sink()).await });
    let ended = tokio::select! {
        status = child.wait() => Some(status),
        () = closing.cancelled() => None,
    };
    match ended {
        Some(Ok(status)) => {
            let is_program = status.code().is_some_and(|code| code != SSH_FAILED);
            // A signal from the terminal ends both ssh and this command.
            let is_closed = tokio::time::timeout(AFTER_A_SIGNAL, closing.cancelled())
                .await
                .is_ok();
            let terminal = Terminal::default();
            match (is_closed, is_program) {
                (true, _) => {}
                (false, true) => {
                    terminal.warning(&format!("nicstripe on {place} ended ({status})"));
                    gone.cancel();
                }
                (false, false) => {
                    terminal.say(format_args!(
                        "ssh to {place} ended ({status}); the copy goes on over the other connections"
                    ));
                    lost.cancel();
                }
            }
        }
        Some(Err(_)) => {}
        None => {
            drop(input);
            if tokio::time::timeout(CLOSE_TIMEOUT, child.wait())
                .await
                .is_err()
            {
                let _ = child.kill().await;
            }
        }
    }
    draining.abort();
}

/// Returns the kernel's name and the architecture of this program, as `uname -sm` prints them, with
/// a dash.
fn this_system() -> String {
    let machine = match env::consts::ARCH {
        "x86" => "i686",
        "arm" => "armv7l",
        "powerpc64" => "ppc64",
        arch => arch,
    };
    format!("Linux-{machine}")
}

/// nicstripe is not there, or too old for ssh.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Absent {
    place: String,
    /// What the old program prints as its version; `None` if there is none.
    version: Option<String>,
    /// Kernel and architecture there.
    system: String,
}

/// The way through ssh failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SshError {
    #[error("the ssh command is not a command line: {text:?}: {why}")]
    Words { text: String, why: String },
    #[error("{place} is reached by ssh, which is switched off by an empty --rsh or NICSTRIPE_SSH")]
    Off { place: String },
    #[error("cannot start {program}")]
    Start { program: String, source: io::Error },
    #[error("{0}")]
    Key(String),
    /// ssh ended before the program there answered.
    #[error("{}", of_status(.place, *.status))]
    Ended { place: String, status: ExitStatus },
    /// Nothing that the other side printed is of nicstripe.
    #[error("{place} answers ssh, but not as nicstripe does")]
    Noise { place: String },
    #[error("{}", of_absent(.0))]
    Absent(Absent),
    #[error("cannot install nicstripe on {place}: {why}")]
    Install { place: String, why: String },
    #[error("{place}: {why}")]
    Version { place: String, why: String },
    #[error("nicstripe on {place} cannot serve: {why}")]
    Refused { place: String, why: String },
    /// ssh works, but no cable carries the data.
    #[error(
        "ssh reaches {place}, but none of its addresses accepts the data on TCP port {port}{tried}"
    )]
    Blocked {
        place: String,
        port: u16,
        /// Failed connections, each after `; `.
        tried: String,
        /// Names of the interfaces there.
        there: Vec<String>,
    },
}

fn of_status(place: &str, status: ExitStatus) -> String {
    match status.code() {
        Some(SSH_FAILED) => format!("ssh cannot log in to {place}"),
        Some(code) => format!("ssh to {place} ended with {code} before nicstripe answered"),
        None => format!("ssh to {place} was ended by a signal"),
    }
}

fn of_absent(absent: &Absent) -> String {
    let Absent { place, version, .. } = absent;
    match version {
        Some(version) => format!("{version} on {place} is too old for ssh"),
        None => format!("nicstripe is not installed on {place}"),
    }
}

impl CommandError for SshError {
    fn exit(&self) -> Exit {
        match self {
            Self::Words { .. } | Self::Off { .. } => Exit::Usage,
            Self::Version { .. } => Exit::Protocol,
            Self::Absent(absent) if absent.version.is_some() => Exit::Protocol,
            Self::Refused { .. } => Exit::Refused,
            Self::Key(_) | Self::Install { .. } => Exit::Failed,
            _ => Exit::NoLink,
        }
    }

    fn hint(&self, invocation: &Invocation) -> Option<String> {
        match self {
            Self::Absent(absent) if absent.system == this_system() => Some(format!(
                "copy this program to ~/.local/bin there, and run the command: {}",
                invocation.with_flag("--install")
            )),
            Self::Absent(absent) => Some(format!(
                "{} is {}, this program is for {}: install nicstripe there, in a directory of its PATH",
                absent.place,
                absent.system,
                this_system()
            )),
            Self::Version { .. } => Some("update nicstripe there or here".into()),
            Self::Start { .. } => Some("install an ssh client, or name one: -e COMMAND".into()),
            Self::Noise { place } => Some(format!(
                "see what it prints: ssh {place} nicstripe --version"
            )),
            Self::Blocked {
                place, port, there, ..
            } => Some(format!(
                "open TCP port {port} on {} in the firewall of {place}, or let ssh carry the data: {}",
                there.join(", "),
                invocation.with_flag("--allow-ssh-data")
            )),
            _ => None,
        }
    }
}

/// First word of a line of nicstripe.
const MARK: &str = "NICSTRIPE ";

/// Exit code of ssh for its own failures (ssh(1)).
const SSH_FAILED: i32 = 255;

/// Maximum number of bytes that mean nothing, such as those of a login script.
const MOST_SKIPPED: usize = 64 << 10;

/// Maximum wait for ssh to end.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Time in which a signal from the terminal that has ended ssh also reaches this command.
const AFTER_A_SIGNAL: Duration = Duration::from_millis(500);

/// Command for the shell of the user there, whichever shell that is: starts nicstripe, or says that
/// it is missing and waits for a program to install. It contains no single quote and no line break.
const SCRIPT: &str = concat!(
    "exec sh -c '",
    r#"d=$HOME/.local/bin; PATH=$d:$PATH:/usr/local/bin; s=$(uname -sm | tr " " -); "#,
    r#"if nicstripe ssh-server --check >/dev/null 2>&1; then exec nicstripe ssh-server; fi; "#,
    r#"if v=$(nicstripe --version 2>/dev/null); then echo "NICSTRIPE old $s $v"; else echo "NICSTRIPE missing $s"; fi; "#,
    r#"read -r n || exit 127; f=$d/.nicstripe.$$; "#,
    r#"e=$({ mkdir -p "$d" && head -c "$n" >"$f" && test "$(wc -c <"$f")" -eq "$n" && chmod 755 "$f" && "$f" ssh-server --check && mv -f "$f" "$d/nicstripe"; } 2>&1) "#,
    r#"|| { rm -f "$f"; echo NICSTRIPE failed $e; exit 126; }; "#,
    r#"exec "$d/nicstripe" ssh-server"#,
    "'",
);

/// Returns the name of this user and machine, for the other end's log and for its journals.
pub(super) fn origin() -> String {
    let user = env::var("USER")
        .or_else(|_| env::var("LOGNAME"))
        .unwrap_or_default();
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{user}@{}", host.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_shell_reads_the_command_as_two_words() {
        let inside = SCRIPT
            .strip_prefix("exec sh -c '")
            .and_then(|rest| rest.strip_suffix('\''));
        let inside = inside.unwrap();
        assert!(!inside.contains(['\'', '\n', '!']), "{inside}");
        assert_eq!(shell_words::split(SCRIPT).unwrap().len(), 4);
    }
}
