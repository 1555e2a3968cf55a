//! `nicstripe exec`: a command at the peer, its streams over every cable, its exit status as ours.

pub(crate) mod executor;
pub(crate) mod guard;

use std::{ffi::OsString, os::unix::ffi::OsStringExt as _};

use clap::{ArgAction, Args};
use nicstripe::{Client, Error, FailCode, trust::ExecRule};

use crate::{
    connect::{arguments::ConnectArgs, place::Place, setup::Needs},
    failure::{CommandError, Failure, exit::Exit, hint::to_allow},
    output::{logging, terminal::Terminal},
    process::{runtime, signals::Signals, streams},
    text::invocation::Invocation,
};

/// Run a command on a machine, with its input, output and exit status, over every cable
///
/// For example: zfs send tank/a@now | nicstripe exec nas -- zfs recv -s tank/b. The daemon on PEER
/// runs only what its peers file allows this machine (exec=); USER@HOST runs it through ssh. After
/// -- the words are passed as they are. Without it they are read once more like those of ssh, with
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

    /// Ignored, for programs that start ssh
    #[arg(short = 'o', value_name = "OPTION")]
    ssh_options: Vec<String>,

    /// Ignored like -o, and -a, -C, -q, -T, -v too
    #[arg(short = 'x', short_aliases = ['a', 'C', 'q', 'T', 'v'], action = ArgAction::Count)]
    ssh_flags: u8,

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
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    words: Vec<OsString>,
}

impl Exec {
    /// Runs the command. Ends with its exit status.
    pub(crate) fn run(self, terminal: &Terminal) -> Result<(), Failure> {
        logging::start(terminal)?;
        streams::check_input()?;
        streams::check_output()?;
        let words = self.command()?;
        let peer = match &self.login {
            Some(user) => self.peer.as_user(user)?,
            None => self.peer.clone(),
        };
        let keeper = self.connect.keeper()?;
        // A read of standard input may block forever, and is not awaited.
        runtime::run(async {
            let mut signals = Signals::take()?;
            let needs = Needs::default();
            let connecting = self.connect.connect(&peer, &needs, keeper);
            let connected = signals.unless_stopped(connecting).await?;
            let running = run(&connected.client, &words);
            let result = signals.unless_stopped(running).await;
            // Kills the command if it has not ended.
            connected.close().await;
            result
        })
    }

    /// Returns the words of the command.
    fn command(&self) -> Result<Vec<Vec<u8>>, Failure> {
        if self.is_subsystem {
            return match &self.words[..] {
                [name] if name == "sftp" => Ok(vec![guard::SFTP_SERVER.into()]),
                _ => Err(ExecError::Subsystem.into()),
            };
        }
        if self.are_exact() {
            let words = self.words.iter().cloned().map(OsString::into_vec);
            return Ok(words.collect());
        }
        let typed: Vec<String> = self
            .words
            .iter()
            .map(|word| word.to_str().map(str::to_owned))
            .collect::<Option<_>>()
            .ok_or(ExecError::Words)?;
        let words = shell_words::split(&typed.join(" ")).map_err(|_| ExecError::Words)?;
        match words.is_empty() {
            true => Err(ExecError::Missing.into()),
            false => Ok(words.into_iter().map(String::into_bytes).collect()),
        }
    }

    /// Returns true if `--` stands before the command, which the parser drops.
    fn are_exact(&self) -> bool {
        let typed: Vec<OsString> = std::env::args_os().collect();
        let before = typed.len().checked_sub(self.words.len() + 1);
        before.is_some_and(|before| typed[before] == "--")
    }
}

async fn run(client: &Client, words: &[Vec<u8>]) -> Result<(), Failure> {
    let failed = |source| Failure::Source {
        path: "-".into(),
        source,
    };
    let stdin = streams::input(PIPE).map_err(failed)?;
    let stdout = streams::output(PIPE).map_err(Failure::Output)?;
    let stderr = streams::errors(PIPE).map_err(Failure::Output)?;
    let ended = client.exec(words.iter().cloned(), stdin, stdout, stderr);
    match ended.await {
        Ok(status) if status.code() == 0 => Ok(()),
        Ok(status) => Err(Failure::Exited(status.code())),
        Err(Error::Peer {
            host,
            code: FailCode::Refused,
            text,
            ..
        }) => Err(ExecError::Refused {
            host,
            rule: ExecRule::shown(words),
            text,
        }
        .into()),
        Err(error) => {
            let failure = Failure::from(error);
            // 1 is what many commands exit with.
            let exit = match failure.exit() {
                Exit::Failed => Exit::Protocol,
                exit => exit,
            };
            Err(ExecError::Lost(exit, failure.one_line()).into())
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum ExecError {
    #[error("no command: expected PEER and a command, such as nas -- zfs list")]
    Missing,
    #[error(
        "the command cannot be split into words: expected closed quotes and UTF-8, or -- before it"
    )]
    Words,
    #[error("no such subsystem: expected -s PEER sftp")]
    Subsystem,
    /// The command has no exit status. Running it again may not be what its user wants.
    #[error("{1}")]
    Lost(Exit, String),
    #[error("{host} refused: {text}")]
    Refused {
        host: String,
        /// Text of the rule that would permit the command.
        rule: String,
        text: String,
    },
}

impl CommandError for ExecError {
    fn exit(&self) -> Exit {
        match self {
            Self::Missing | Self::Words | Self::Subsystem => Exit::Usage,
            Self::Lost(exit, _) => *exit,
            Self::Refused { .. } => Exit::Refused,
        }
    }

    fn hint(&self, _: &Invocation) -> Option<String> {
        let Self::Refused { host, rule, text } = self else {
            return None;
        };
        let rule: ExecRule = rule.parse().ok()?;
        let rule = for_rsync(&rule).unwrap_or(rule);
        let options = nicstripe::trust::PeerOptions {
            exec: vec![rule],
            ..nicstripe::trust::PeerOptions::unrestricted()
        };
        let is_about_rules = text.contains("exec=");
        is_about_rules.then(|| to_allow(host, &options)).flatten()
    }
}

/// Returns the rule for the server of rsync, whose words depend on the options of each copy.
fn for_rsync(rule: &ExecRule) -> Option<ExecRule> {
    let typed = rule.to_string();
    let (program, _) = typed.split_once(" --server ")?;
    let is_rsync = program.rsplit('/').next()? == "rsync" && !program.contains(' ');
    is_rsync.then(|| format!("{program} --server *").parse().ok())?
}

/// Buffer size of a pipe in bytes.
const PIPE: usize = 1 << 20;
