//! The way to a peer through the user's own ssh: it starts this program there, and both sides
//! exchange one-time keys and addresses. The data then takes the cables.

use std::{
    env, fs, io,
    net::{Ipv4Addr, TcpListener},
    process::Stdio,
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
    failure::{Fault, exit::Exit},
    output::terminal::Terminal,
    text::{
        invocation::{Invocation, quoted},
        shown,
    },
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
    fn words(&self) -> Result<Option<Vec<String>>, Fault> {
        let words = shell_words::split(&self.rsh).map_err(|error| {
            let text = shown(&self.rsh);
            let text = format!("the ssh command is not a command line: {text:?}: {error}");
            Fault::new(Exit::Usage, text)
        })?;
        Ok((!words.is_empty()).then_some(words))
    }

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
) -> Result<(Introduction, Channel), Fault> {
    let words = args.words()?.ok_or_else(|| {
        let text = format!(
            "{place} is reached by ssh, which is switched off by an empty --rsh or NICSTRIPE_SSH"
        );
        Fault::new(Exit::Usage, text)
    })?;
    let forward = args.allow_ssh_data.then(Forward::choose).transpose();
    let forward = forward.map_err(not_started("a forwarded port"))?;
    let through_ssh = forward.as_ref().map(|forward| forward.there);
    let mut started = Started::new(place, &words, forward.as_ref())?;
    let call = Call::new(Wishes {
        through_ssh,
        ..wishes
    })
    .map_err(|error| Fault::new(Exit::Failed, error.to_string()))?;
    let reply = started.exchange(&call.line(), args.install).await?;
    let introduction = call.answered(&reply).map_err(|why| match why {
        BootstrapError::Version { .. } => Fault::new(Exit::Protocol, format!("{place}: {why}"))
            .with_hint("update nicstripe there or here"),
        why => {
            let text = format!("nicstripe on {place} cannot serve: {why}");
            Fault::new(Exit::Refused, text)
        }
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
        let free = || -> io::Result<u16> {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            Ok(listener.local_addr()?.port())
        };
        // What is free here is as good as any number there.
        let (here, there) = (free()?, free()?);
        Ok(Self { here, there })
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
    fn new(place: &Place, words: &[String], forward: Option<&Forward>) -> Result<Self, Fault> {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).arg("-T");
        if let Some(port) = place.port {
            command.args(["-p", &port.to_string()]);
        }
        if let Some(Forward { here, there }) = forward {
            command.args(["-L", &format!("127.0.0.1:{here}:127.0.0.1:{there}")]);
        }
        if let Via::Ssh { user: Some(user) } = &place.via {
            command.args(["-l", &user.to_string()]);
        }
        command.args(["--", &place.host, SCRIPT]);
        // Passwords and questions go to the terminal; so do the messages of ssh.
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let program = shown(&words[0]);
        let failed = not_started(&program);
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
    async fn exchange(&mut self, request: &str, mut installs: bool) -> Result<String, Fault> {
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
                    let version = (found == "old").then(|| shown(&version));
                    let system = shown(system);
                    if !std::mem::take(&mut installs) {
                        return Err(absent(&self.place, version, &system));
                    }
                    self.install(&system).await?;
                }
                (Some("failed"), _) => {
                    let why = shown(line.trim_start_matches("failed").trim());
                    return Err(not_installed(&self.place, &why));
                }
                _ => self.skipped += line.len() + MARK.len(),
            }
        }
    }

    /// Returns the rest of the next line with the mark. What a login script prints before is
    /// skipped.
    async fn next_line(&mut self) -> Result<String, Fault> {
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
        Err(noise(&self.place))
    }

    async fn send(&mut self, bytes: &[u8]) -> Result<(), Fault> {
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
    async fn install(&mut self, system: &str) -> Result<(), Fault> {
        if system != this_system() {
            let why = format!("it is {system}, this program is for {}", this_system());
            return Err(not_installed(&self.place, &why));
        }
        let program = env::current_exe().and_then(fs::read);
        let program = program.map_err(|error| not_installed(&self.place, &error.to_string()))?;
        Terminal::default().say(format_args!(
            "installing nicstripe {} on {}: ~/.local/bin/nicstripe",
            env!("CARGO_PKG_VERSION"),
            self.place
        ));
        self.send(format!("{}\n", program.len()).as_bytes()).await?;
        self.send(&program).await
    }

    async fn ended(&mut self) -> Fault {
        let status = tokio::time::timeout(CLOSE_TIMEOUT, self.child.wait()).await;
        let place = &self.place;
        let Ok(Ok(status)) = status else {
            return noise(place);
        };
        let text = match status.code() {
            Some(SSH_FAILED) => format!("ssh cannot log in to {place}"),
            Some(code) => format!("ssh to {place} ended with {code} before nicstripe answered"),
            None => format!("ssh to {place} was ended by a signal"),
        };
        Fault::new(Exit::NoLink, text)
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

fn not_started(program: &str) -> impl Fn(io::Error) -> Fault + Copy {
    move |error| {
        Fault::new(Exit::NoLink, format!("cannot start {program}"))
            .because(error)
            .with_hint("install an ssh client, or name one: -e COMMAND")
    }
}

fn not_installed(place: &Place, why: &str) -> Fault {
    let text = format!("cannot install nicstripe on {place}: {why}");
    Fault::new(Exit::Failed, text)
}

/// Returns the error for a machine of which nothing that it prints is of nicstripe.
fn noise(place: &Place) -> Fault {
    let text = format!("{place} answers ssh, but not as nicstripe does");
    let hint = format!(
        "see what it prints: ssh {} nicstripe --version",
        quoted(place.to_string())
    );
    Fault::new(Exit::NoLink, text).with_hint(hint)
}

/// Returns the error for a machine without nicstripe, or with one that is too old for ssh.
fn absent(place: &Place, version: Option<String>, system: &str) -> Fault {
    let fault = match version {
        Some(version) => Fault::new(
            Exit::Protocol,
            format!("{version} on {place} is too old for ssh"),
        ),
        None => Fault::new(
            Exit::NoLink,
            format!("nicstripe is not installed on {place}"),
        ),
    };
    fault.with_hint(match system == this_system() {
        true => format!(
            "copy this program to ~/.local/bin there, and run the command: {}",
            Invocation::of_this_process().with_flag("--install")
        ),
        false => format!(
            "{place} is {system}, this program is for {}: install nicstripe there, in a directory of its PATH",
            this_system()
        ),
    })
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
