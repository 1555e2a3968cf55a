//! `nicstripe exec`: a command at the peer, its streams over every cable, its exit status as ours.

pub(crate) mod executor;
pub(crate) mod guard;

use std::{
    ffi::OsString,
    io,
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::Path,
};

use clap::{ArgAction, Args};
use nicstripe::{
    Client, Error, FailCode,
    trust::{ExecRule, PeerOptions},
};

use crate::{
    connect::{connect_arguments::ConnectArgs, place::Place, setup::Needs},
    failure::{Failure, Fault, exit::Exit, hint::to_allow, usage},
    output::{logging, stdout, terminal::Terminal},
    process::{
        runtime,
        signals::Signals,
        streams::{self, PIPE},
    },
};

/// Run a command on a machine, with its input, output and exit status, over every cable
///
/// For example: zfs send tank/a@now | nicstripe exec nas -- zfs recv -s tank/b. The daemon on PEER
/// runs only what its peers file allows this machine (exec=); USER@HOST runs it through ssh. After
/// -- the words are passed as they are. Without it they are read again like those of ssh, with
/// quotes and backslashes, but by no shell: so it can replace ssh in rsync -e, BORG_RSH,
/// GIT_SSH_COMMAND and scp -S.
#[derive(Debug, Args)]
#[command(
    mut_arg("timeout", |timeout| timeout.default_value("60s")),
    mut_arg("port", |port| port.short_alias('p'))
)]
pub(crate) struct Exec {
    /// User to log in as through ssh, as in ssh
    #[arg(short = 'l', value_name = "USER")]
    login: Option<String>,

    /// Ignored, for programs that start ssh; -c, -F, -i, -m and -S too
    #[arg(short = 'o', short_aliases = ['c', 'F', 'i', 'm', 'S'], value_name = "OPTION")]
    ssh_options: Vec<OsString>,

    /// Ignored like -o; -1, -2, -a, -C, -k, -n, -t, -T and -v too
    #[arg(
        short = 'x',
        short_aliases = ['1', '2', 'a', 'C', 'k', 'n', 't', 'T', 'v'],
        action = ArgAction::Count
    )]
    ssh_flags: u8,

    /// Print no error if a signal ends this process
    #[arg(short = 'q', action = ArgAction::Count)]
    quiet: u8,

    /// Print the host and the port instead of running a command, for programs that ask if this is
    /// ssh
    #[arg(short = 'G')]
    is_question: bool,

    /// The command is the name of a subsystem, as in ssh: sftp runs sftp-server there
    #[arg(short = 's')]
    is_subsystem: bool,

    #[command(flatten)]
    connect: ConnectArgs,

    /// Machine that runs `nicstripe serve`, by name or address; or USER@HOST for ssh
    #[arg(value_name = "PEER")]
    peer: Place,

    /// Command and its arguments
    #[arg(
        value_name = "COMMAND",
        required_unless_present = "is_question",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    words: Vec<OsString>,
}

impl Exec {
    /// Runs the command. Ends with its exit status.
    pub(crate) fn run(mut self, terminal: &Terminal) -> Result<(), Failure> {
        logging::start(terminal)?;
        self.connect.ignore_escape_character();
        if self.is_question {
            return self.answer();
        }
        streams::check_input()?;
        streams::check_output()?;
        let words = self.command()?;
        let peer = match &self.login {
            Some(user) => self.peer.as_user(user)?,
            None => self.peer.clone(),
        };
        let keeper = self.connect.keeper()?;
        let is_quiet = self.quiet > 0;
        // A read of standard input may block forever, and is not awaited.
        let ended = runtime::run(async {
            let mut signals = Signals::take()?;
            let needs = Needs::default();
            let connecting = self.connect.connect(&peer, &needs, keeper);
            let connected = signals.unless_stopped(connecting).await?;
            let running = run(&connected.client, &words);
            let result = signals.unless_stopped(running).await;
            // Kills the command if it has not ended.
            connected.close().await;
            result
        });
        // Behind `--`, or in quotes, a command line is one word: the name of a program.
        let is_one = words.len() == 1 && words[0].contains(&b' ');
        match ended {
            Err(Failure::Interrupted { stop, .. }) if is_quiet => Err(Failure::Stopped(stop)),
            Err(Failure::Exited(NOT_FOUND)) if is_one => {
                terminal.hint(ONE_WORD);
                Err(Failure::Exited(NOT_FOUND))
            }
            ended => ended,
        }
    }

    /// Answers a program that asks ssh for its configuration to learn if it is ssh, as git does.
    fn answer(&self) -> Result<(), Failure> {
        stdout::line(format_args!("host {}", self.peer))?;
        stdout::line(format_args!("port {}", self.connect.port(self.peer.port)))
    }

    fn command(&self) -> Result<Vec<Vec<u8>>, Failure> {
        if self.is_subsystem {
            return match &self.words[..] {
                [name] if name == "sftp" => Ok(vec![guard::SFTP_SERVER.into()]),
                _ => Err(usage("no such subsystem: expected -s PEER sftp").into()),
            };
        }
        if self.are_exact() {
            let words = self.words.iter().cloned().map(OsString::into_vec);
            return Ok(words.collect());
        }
        let typed: Vec<&[u8]> = self.words.iter().map(|word| word.as_bytes()).collect();
        match split(&typed.join(&b' ')) {
            None => Err(usage(
                "the command cannot be split into words: expected closed quotes, or -- before it",
            )
            .into()),
            Some(words) if words.is_empty() => Err(usage(
                "no command: expected PEER and a command, such as nas -- zfs list",
            )
            .into()),
            Some(words) => Ok(words),
        }
    }

    /// Returns true if `--` stands before the command, which the parser drops.
    fn are_exact(&self) -> bool {
        let typed: Vec<OsString> = std::env::args_os().collect();
        let before = typed.len().checked_sub(self.words.len() + 1);
        before.is_some_and(|before| typed[before] == "--")
    }
}

/// Splits a command line of any bytes into words, with quotes and backslashes. `None` if a quote is
/// open.
fn split(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    // One character for each byte: all that has a meaning is ASCII.
    let line: String = line.iter().map(|byte| char::from(*byte)).collect();
    let words = shell_words::split(&line).ok()?;
    let bytes = |word: String| word.chars().map(|c| c as u8).collect();
    Some(words.into_iter().map(bytes).collect())
}

async fn run(client: &Client, words: &[Vec<u8>]) -> Result<(), Failure> {
    let stdin = streams::input(PIPE).map_err(Failure::opening(Path::new("-")))?;
    let stdout = streams::output(PIPE).map_err(Failure::Output)?;
    let stderr = streams::errors(PIPE).map_err(Failure::Output)?;
    let ended = client.exec(words.iter().cloned(), stdin, stdout, stderr);
    match ended.await {
        Ok(status) if status.code() == 0 => Ok(()),
        Ok(status) => Err(Failure::Exited(status.code())),
        Err(Error::Peer {
            host,
            code: code @ (FailCode::Refused | FailCode::NotPermitted),
            text,
            ..
        }) => {
            // No rule would permit what is refused otherwise.
            let is_rule = code == FailCode::NotPermitted;
            let hint = is_rule.then(|| permitting(&host, words)).flatten();
            let text = format!("{host} refused: {text}");
            Err(Fault::new(Exit::Refused, text).hinted(hint).into())
        }
        // The reader of an output has gone: no failure, as for results of other commands.
        Err(Error::File(error)) if error.source.kind() == io::ErrorKind::BrokenPipe => {
            Err(Failure::Output(error.source))
        }
        // A stream of this machine. The command itself is refused, and the daemon breaks the protocol.
        Err(Error::File(error))
            if !matches!(error.code, FailCode::Refused | FailCode::Protocol) =>
        {
            let text = format!(
                "cannot {} {}: {}",
                error.operation, error.name, error.source
            );
            Err(Fault::new(Exit::Files, text).into())
        }
        Err(error) => {
            // The command has no exit status, and running it again may not be what its user wants.
            let failure = Failure::from(error);
            // 1 is what many commands exit with.
            let exit = match failure.exit() {
                Exit::Failed => Exit::Protocol,
                exit => exit,
            };
            Err(Fault::new(exit, failure.one_line()).into())
        }
    }
}

/// Returns the hint for a command that no rule at the peer permits.
fn permitting(host: &str, words: &[Vec<u8>]) -> Option<String> {
    let rule: ExecRule = ExecRule::shown(words).parse().ok()?;
    if is_one_word(&rule) {
        return Some(ONE_WORD.to_owned());
    }
    let options = PeerOptions {
        exec: vec![for_rsync(&rule).unwrap_or(rule)],
        ..PeerOptions::unrestricted()
    };
    to_allow(host, &options)
}

/// Returns true if the rule is of a program whose name has blanks, and of no arguments.
fn is_one_word(rule: &ExecRule) -> bool {
    let words = shell_words::split(&rule.to_string()).unwrap_or_default();
    matches!(&words[..], [word] if word.contains(' '))
}

/// Returns the rule for the server of rsync, whose words depend on the options of each copy.
fn for_rsync(rule: &ExecRule) -> Option<ExecRule> {
    let typed = rule.to_string();
    let (program, _) = typed.split_once(" --server ")?;
    let is_rsync = program.rsplit('/').next()? == "rsync" && !program.contains(' ');
    is_rsync.then(|| format!("{program} --server *").parse().ok())?
}

/// Hint for a command that is one word with blanks.
const ONE_WORD: &str = "behind -- each word is passed as it is, and this one has blanks: leave out -- to split it, or type the words apart";

/// Exit code of a shell for a command that is not found.
const NOT_FOUND: u8 = 127;
