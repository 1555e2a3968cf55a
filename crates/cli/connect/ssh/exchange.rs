//! The exchange through ssh, from its start to the answer of the program there. Each step has an end.

use std::{
    collections::VecDeque, env, ffi::OsStr, fmt::Display, fs, io, os::unix::ffi::OsStrExt as _,
    pin::pin, process::Stdio, time::Duration,
};

use nicstripe::bootstrap::MAX_LINE;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::{Instant, sleep_until, timeout, timeout_at},
};

use super::{CLOSE_TIMEOUT, Forward};
use crate::{
    connect::place::{Place, Via},
    failure::{Fault, exit::Exit},
    output::terminal::Terminal,
    text::{
        invocation::{Invocation, quoted},
        quantity::Limit,
        shown,
    },
};

/// ssh that runs, and both directions of its connection.
pub(super) struct Started {
    pub(super) place: Place,
    pub(super) child: Child,
    pub(super) input: ChildStdin,
    pub(super) output: BufReader<ChildStdout>,
    /// Begin of a line that has no end yet.
    line: Vec<u8>,
    printed: Printed,
    /// Longest wait for each step.
    patience: Duration,
}

impl Started {
    pub(super) fn new(
        place: &Place,
        words: &[String],
        forward: Option<&Forward>,
        patience: Duration,
    ) -> Result<Self, Fault> {
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
            line: Vec::new(),
            printed: Printed::default(),
            patience,
        })
    }

    /// Sends the request and returns the line of the answer. Installs this program if it is missing
    /// there, and `installs`.
    pub(super) async fn exchange(
        &mut self,
        request: &str,
        installs: bool,
    ) -> Result<String, Fault> {
        let mut step = Step::Start;
        loop {
            match self.next(step).await? {
                Said::Ready => {
                    step = Step::Answer;
                    self.send(format!("{request}\n").as_bytes(), step).await?;
                }
                Said::Reply(line) => return Ok(line),
                Said::Absent { system, version } if !installs => {
                    return Err(absent(&self.place, version, &system));
                }
                Said::Absent { system, .. } => {
                    step = Step::Installation;
                    self.install(&system).await?;
                }
                Said::Failed(why) => return Err(not_installed(&self.place, &why)),
            }
        }
    }

    /// Returns the next message that `step` awaits. Skips other text, such as that of a login script.
    async fn next(&mut self, step: Step) -> Result<Said, Fault> {
        let mut wait = Wait::new(step, &self.place, self.patience);
        while self.printed.bytes < MOST_PRINTED {
            let room = MAX_LINE.saturating_sub(self.line.len()) as u64;
            let mut bounded = (&mut self.output).take(room);
            // An interrupted read leaves what it has read in the line.
            let reading = bounded.read_until(b'\n', &mut self.line);
            let Some(read) = wait.until(reading).await else {
                return Err(self.silent(&wait));
            };
            if read.map_or(true, |count| count == 0) {
                return Err(self.ended().await);
            }
            let line = std::mem::take(&mut self.line);
            match Said::parse(&String::from_utf8_lossy(&line), step) {
                Some(said) => return Ok(said),
                None => self.printed.add(&line),
            }
        }
        Err(noise(&self.place).with_details(self.printed.told()))
    }

    /// Sends bytes; each part may take as long as a step. An error of writing is no separate one:
    /// the other side has said why, or ends.
    async fn send(&mut self, bytes: &[u8], step: Step) -> Result<(), Fault> {
        for part in bytes.chunks(PART) {
            let mut wait = Wait::new(step, &self.place, self.patience);
            let writing = async {
                self.input.write_all(part).await?;
                self.input.flush().await
            };
            match wait.until(writing).await {
                Some(Ok(())) => {}
                Some(Err(_)) => break,
                None => return Err(self.silent(&wait)),
            }
        }
        Ok(())
    }

    /// Copies this program to the other machine, which tries it before it gets its name.
    async fn install(&mut self, system: &str) -> Result<(), Fault> {
        if system != this_system() {
            let found = of("it", system);
            let why = format!("{found}, this program is for {}", this_system());
            return Err(not_installed(&self.place, &why));
        }
        let program = env::current_exe().and_then(fs::read);
        let program = program.map_err(|error| not_installed(&self.place, &error.to_string()))?;
        Terminal::default().say(format_args!(
            "installing nicstripe {} on {}: ~/.local/bin/nicstripe",
            env!("CARGO_PKG_VERSION"),
            self.place
        ));
        let length = format!("{}\n", program.len());
        self.send(length.as_bytes(), Step::Installation).await?;
        self.send(&program, Step::Installation).await
    }

    /// Returns the error for a step that has not come to an end. Dropping this value kills ssh.
    fn silent(&mut self, wait: &Wait) -> Fault {
        self.printed.add(&std::mem::take(&mut self.line));
        let (limit, awaited) = (Limit(wait.longest), &wait.awaited);
        let text = format!("no answer within {limit}: waited for {awaited}");
        Fault::new(Exit::TimedOut, text)
            .with_details(self.printed.told())
            .with_hint(see(&self.place))
    }

    async fn ended(&mut self) -> Fault {
        self.printed.add(&std::mem::take(&mut self.line));
        let status = timeout(CLOSE_TIMEOUT, self.child.wait()).await;
        let place = &self.place;
        let fault = match status {
            Ok(Ok(status)) => {
                let text = match status.code() {
                    Some(SSH_FAILED) => format!("ssh cannot log in to {place}"),
                    Some(code) => {
                        format!("ssh to {place} ended with {code} before nicstripe answered")
                    }
                    None => format!("ssh to {place} was ended by a signal"),
                };
                Fault::new(Exit::NoLink, text)
            }
            _ => noise(place),
        };
        fault.with_details(self.printed.told())
    }
}

/// Step of the exchange, by what it awaits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The login, and the start of the program there.
    Start,
    /// The start of the program that is being copied.
    Installation,
    Answer,
}

impl Step {
    fn awaited(self, place: &Place) -> String {
        match self {
            Self::Start => format!("ssh to log in to {place} and start nicstripe"),
            Self::Installation => format!("{place} to install the program and start it"),
            Self::Answer => format!("the answer of nicstripe on {place}, which has started"),
        }
    }
}

/// Wait for a step: says after [`NOTICE`] what is awaited, and ends.
struct Wait {
    awaited: String,
    longest: Duration,
    end: Instant,
    notice: Option<Instant>,
}

impl Wait {
    fn new(step: Step, place: &Place, patience: Duration) -> Self {
        // ssh may ask for a password, which takes a person's time.
        let longest = match step == Step::Start && Terminal::default().is_interactive() {
            true => patience.max(FOR_A_PERSON),
            false => patience,
        };
        let now = Instant::now();
        Self {
            awaited: step.awaited(place),
            longest,
            // No wait is longer than a clock can tell.
            end: now.checked_add(longest).unwrap_or(now + FOREVER),
            notice: Some(now + NOTICE),
        }
    }

    /// Returns the result of `work`; `None` if the wait has ended before.
    async fn until<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        if let Some(notice) = self.notice.filter(|notice| *notice < self.end) {
            tokio::select! {
                biased;
                done = &mut work => return Some(done),
                () = sleep_until(notice) => {}
            }
            self.notice = None;
            Terminal::default().say(format_args!("waiting for {}", self.awaited));
        }
        timeout_at(self.end, work).await.ok()
    }
}

/// Message of the other side.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    /// The program there awaits the request.
    Ready,
    /// Line of the answer.
    Reply(String),
    /// The program is missing there; with a version, it is too old.
    Absent {
        system: String,
        version: Option<String>,
    },
    /// The program was not installed, for this reason.
    Failed(String),
}

impl Said {
    /// Finds a message that `step` awaits in a line, after any text without a line break.
    fn parse(line: &str, step: Step) -> Option<Self> {
        let line = line.trim_end();
        let mut marks = line.match_indices(MARK);
        marks.find_map(|(at, _)| {
            let (word, rest) = line[at + MARK.len()..].split_once(' ').unzip();
            let word = word.unwrap_or(&line[at + MARK.len()..]);
            match (step, word, rest) {
                (Step::Start | Step::Installation, "ready", None) => Some(Self::Ready),
                (Step::Start, "missing", Some(system)) => Some(Self::Absent {
                    system: cut(system.as_bytes()),
                    version: None,
                }),
                (Step::Start, "old", Some(rest)) => {
                    let (system, version) = rest.split_once(' ')?;
                    Some(Self::Absent {
                        system: cut(system.as_bytes()),
                        version: Some(cut(version.as_bytes())),
                    })
                }
                (Step::Installation, "failed", why) => {
                    Some(Self::Failed(cut(why.unwrap_or_default().as_bytes())))
                }
                (Step::Answer, "reply", Some(_)) => Some(Self::Reply(line[at..].to_owned())),
                _ => None,
            }
        })
    }
}

/// Text of the other side that is no message.
#[derive(Default)]
struct Printed {
    /// Last lines, escaped and cut.
    lines: VecDeque<String>,
    /// Length of all text in bytes.
    bytes: usize,
}

impl Printed {
    fn add(&mut self, line: &[u8]) {
        self.bytes += line.len();
        let line = cut(line);
        if line.is_empty() {
            return;
        }
        if self.lines.len() == MOST_LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    /// Returns the lines to print below an error.
    fn told(&self) -> Vec<String> {
        let lines = self.lines.iter();
        lines.map(|line| format!("  it printed: {line}")).collect()
    }
}

/// Escapes a text of the other side, and cuts it at [`MOST_SHOWN`] characters.
fn cut(text: &[u8]) -> String {
    let text = text.trim_ascii();
    // No character has more than four bytes.
    let start = &text[..text.len().min(4 * (MOST_SHOWN + 1))];
    let shown = shown(OsStr::from_bytes(start));
    match shown.chars().count() > MOST_SHOWN {
        true => shown.chars().take(MOST_SHOWN - 1).chain(['…']).collect(),
        false => shown,
    }
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

/// Returns the words for the system of the other side.
fn of(place: impl Display, system: &str) -> String {
    match system {
        UNKNOWN => format!("{place} does not tell its system (uname -sm)"),
        system => format!("{place} is {system}"),
    }
}

pub(super) fn not_started(program: &str) -> impl Fn(io::Error) -> Fault + Copy {
    move |error| {
        Fault::new(Exit::NoLink, format!("cannot start {program}"))
            .because(error)
            .with_hint("install an ssh client, or name one: -e COMMAND")
    }
}

fn not_installed(place: &Place, why: &str) -> Fault {
    let why = match why {
        "" => "the program did not arrive whole",
        why => why,
    };
    let text = format!("cannot install nicstripe on {place}: {why}");
    Fault::new(Exit::Files, text)
        .with_hint("install nicstripe there, in a directory of its PATH or in /usr/local/bin")
}

/// Returns the error for a machine that prints nothing of nicstripe.
fn noise(place: &Place) -> Fault {
    let text = format!("{place} answers ssh, but not as nicstripe does");
    Fault::new(Exit::NoLink, text).with_hint(see(place))
}

/// Returns the hint for a machine that does not start nicstripe.
fn see(place: &Place) -> String {
    format!(
        "see what it prints: ssh {} nicstripe --version",
        quoted(place.to_string())
    )
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
            "{}, this program is for {}: install nicstripe there, in a directory of its PATH",
            of(place, system),
            this_system()
        ),
    })
}

/// System of a machine where `uname` fails. A message without a system would be a login script's.
const UNKNOWN: &str = "unknown";

/// First word of a line of nicstripe.
const MARK: &str = "NICSTRIPE ";

/// Exit code of ssh for its own failures (ssh(1)).
pub(super) const SSH_FAILED: i32 = 255;

/// Maximum number of bytes that are no message, such as those of a login script.
const MOST_PRINTED: usize = 64 << 10;

/// Maximum number of lines of the other side that an error shows.
const MOST_LINES: usize = 5;

/// Maximum length in characters of a text of the other side.
const MOST_SHOWN: usize = 200;

/// Number of bytes that are sent at once.
const PART: usize = 64 << 10;

/// Time after which a message says what is awaited.
const NOTICE: Duration = Duration::from_secs(10);

/// Minimum for the first step if ssh can ask a person.
const FOR_A_PERSON: Duration = Duration::from_secs(120);

const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// Command for the shell of the user there, whichever shell that is: starts nicstripe, or says that
/// it is missing and waits for a program to install. It contains no single quote and no line break.
/// A line break before each message ends what a login script has printed without one.
const SCRIPT: &str = concat!(
    "exec sh -c '",
    r#"d=$HOME/.local/bin; PATH=$d:$PATH:/usr/local/bin; s=$(uname -sm | tr " " -); s=${s:-unknown}; "#,
    r#"if nicstripe ssh-server --check >/dev/null 2>&1; then exec nicstripe ssh-server; fi; "#,
    r#"if v=$(nicstripe --version 2>/dev/null); then echo; echo "NICSTRIPE old $s $v"; else echo; echo "NICSTRIPE missing $s"; fi; "#,
    r#"read -r n || exit 127; f=$d/.nicstripe.$$; "#,
    r#"e=$({ mkdir -p "$d" && head -c "$n" >"$f" && test "$(wc -c <"$f")" -eq "$n" && chmod 755 "$f" && "$f" ssh-server --check && mv -f "$f" "$d/nicstripe"; } 2>&1) "#,
    r#"|| { rm -f "$f"; set -f; echo; echo NICSTRIPE failed $e; exit 126; }; "#,
    r#"exec "$d/nicstripe" ssh-server"#,
    "'",
);

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
