//! The way to a peer through the user's own ssh: it starts this program there, and both sides
//! exchange one-time keys and addresses. The data then takes the cables.

mod exchange;

use std::{
    env, fs, io,
    net::{Ipv4Addr, TcpListener},
    time::Duration,
};

use clap::Args;
use nicstripe::{
    CancellationToken,
    bootstrap::{BootstrapError, Call, Introduction, Wishes},
};
use tokio::task::JoinHandle;

use self::exchange::{SSH_FAILED, Started, not_started};
use super::place::Place;
use crate::{
    failure::{Fault, exit::Exit, usage},
    output::terminal::Terminal,
    text::shown,
};

/// Options for peers that ssh reaches.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Options for USER@HOST, which ssh reaches")]
pub(crate) struct SshArgs {
    /// ssh program with its options, split into words as a shell does; empty for no ssh
    #[arg(
        short = 'e',
        long = "rsh",
        value_name = "COMMAND",
        env = "NICSTRIPE_SSH",
        default_value = SSH,
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
            usage(format!(
                "the ssh command is not a command line: {text:?}: {error}"
            ))
        })?;
        Ok((!words.is_empty()).then_some(words))
    }

    /// Ignores the value of `-e` if it is the escape character of ssh: one character, `^` and one,
    /// or `none`.
    pub(super) fn ignore_escape_character(&mut self) {
        let is_escape = |text: &str| {
            text == "none" || matches!(text.trim_start_matches('^').chars().count(), 1)
        };
        if is_escape(&self.rsh) {
            self.rsh = env::var("NICSTRIPE_SSH").unwrap_or_else(|_| SSH.to_owned());
        }
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

/// Program that reaches USER@HOST.
const SSH: &str = "ssh";

/// Open ssh connection. Closing it ends the program at its other end.
#[derive(Debug)]
pub(crate) struct Channel {
    closing: CancellationToken,
    watching: JoinHandle<()>,
    /// Cancelled when ssh has ended by itself, and the program there may continue.
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
/// that program ends, the introduction counts as gone. `patience` is the longest wait for each
/// step.
pub(super) async fn open(
    place: &Place,
    args: &SshArgs,
    wishes: Wishes,
    patience: Duration,
) -> Result<(Introduction, Channel), Fault> {
    let words = args.words()?.ok_or_else(|| {
        let text = format!(
            "{place} is reached by ssh, which is switched off by an empty --rsh or NICSTRIPE_SSH"
        );
        usage(text)
    })?;
    let forward = args.allow_ssh_data.then(Forward::choose).transpose();
    let forward = forward.map_err(not_started("a forwarded port"))?;
    let through_ssh = forward.as_ref().map(|forward| forward.there);
    let mut started = Started::new(place, &words, forward.as_ref(), patience)?;
    let call = Call::new(Wishes {
        through_ssh,
        ..wishes
    })
    .map_err(|error| Fault::new(Exit::Failed, error.to_string()))?;
    let reply = started.exchange(&call.line(), args.install).await?;
    let introduction = call.answered(&reply).map_err(|why| match why {
        BootstrapError::Version { .. } => Fault::new(Exit::Protocol, format!("{place}: {why}"))
            .with_hint("update nicstripe there or here"),
        BootstrapError::Malformed => {
            let text = format!("the answer of {place} is malformed");
            Fault::new(Exit::Protocol, text).with_hint("update nicstripe there or here")
        }
        why => {
            let text = format!("nicstripe on {place} cannot serve: {why}");
            Fault::new(Exit::Refused, text)
        }
    })?;
    let channel = follow(
        started,
        introduction.gone(),
        forward.map(|forward| forward.here),
    );
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
        // A port that is free here is as good as any number there.
        let (here, there) = (free()?, free()?);
        Ok(Self { here, there })
    }
}

/// Follows ssh until it ends or is closed.
fn follow(started: Started, gone: CancellationToken, forwarded: Option<u16>) -> Channel {
    let (closing, lost) = (CancellationToken::new(), CancellationToken::new());
    let watching = tokio::spawn(watch(started, closing.clone(), gone, lost.clone()));
    Channel {
        closing,
        watching,
        lost,
        forwarded,
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
    // Later output of the program there is for no one; a full pipe would stop it.
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

/// Maximum wait for ssh to end.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Time in which a signal from the terminal that has ended ssh also reaches this command.
const AFTER_A_SIGNAL: Duration = Duration::from_millis(500);

/// Returns the name of this user and machine, for the other end's log and for its journals.
pub(super) fn origin() -> String {
    let user = env::var("USER")
        .or_else(|_| env::var("LOGNAME"))
        .unwrap_or_default();
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{user}@{}", host.trim())
}
