//! `nicstripe receive`: takes one copy of a machine that runs `nicstripe send`.

mod question;
mod room;

use std::{
    cell::Cell,
    collections::HashSet,
    ffi::OsStr,
    fs, io,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use nicstripe::{
    BitRate, Metrics, Name, RoutePolicy,
    bootstrap::Serving,
    invitation::{CopyEnd, Invitation, Item, Offered, Paired, Purpose},
    routes::RouteKeeper,
    trust::{Access, Identity, PeerOptions},
};

use self::{
    question::{Question, is_taken},
    room::{Room, takes_a_file},
};
use super::one_client::{bound, port_of, serve};
use crate::{
    connect::{
        by_code::{item, totals},
        invitation::{InvitationArgs, failed, show},
    },
    failure::{Failure, Fault, exit::Exit, hint::WITH_A_NEW_CODE},
    output::{logging, terminal::Terminal},
    places,
    process::{runtime, signals::Signals},
    text::{
        quantity::{Size, Speed},
        shown,
    },
};

/// Receive files and directories from a machine that runs `nicstripe send`, by a code
///
/// Shows a code, and waits for the other machine. Lists what it wants to send, and asks before
/// anything is written. The sender can create only these names, with at most the listed files and
/// sizes, and replace or read nothing. Nothing is set up before, and nothing is left after.
#[derive(Debug, Args)]
pub(crate) struct Receive {
    /// Directory to write to [default: the current one]
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,

    /// Do not ask before writing
    #[arg(short, long)]
    yes: bool,

    /// Keep symbolic links that lead out of what is received
    #[arg(long)]
    links: bool,

    #[command(flatten)]
    invitation: InvitationArgs,
}

impl Receive {
    pub(crate) fn run(self, terminal: &Terminal) -> Result<(), Failure> {
        logging::start(terminal)?;
        let dir = self.directory()?;
        let home = places::home()?;
        let routes = RouteKeeper::start_dedicated(RoutePolicy::Auto, places::routes_dir(&home));
        runtime::run(async {
            let mut signals = Signals::take()?;
            let asking = self.ask(&dir, terminal);
            let (paired, offered) = signals.unless_stopped(asking).await?;
            self.take(paired, offered, &dir, routes, terminal, &mut signals)
                .await
        })
    }

    fn directory(&self) -> Result<PathBuf, Failure> {
        let path = self.dir.clone().unwrap_or_else(|| ".".into());
        let failed = Failure::writing(&path);
        let dir = fs::canonicalize(&path).map_err(failed)?;
        if !dir.is_dir() {
            return Err(failed(io::ErrorKind::NotADirectory.into()));
        }
        // Before a code is spent.
        takes_a_file(&dir).map_err(failed)?;
        Ok(dir)
    }

    /// Shows a code, waits for the sender, and asks the user.
    async fn ask(&self, dir: &Path, terminal: &Terminal) -> Result<(Paired, Offered), Failure> {
        let identity = Identity::generate()?;
        let options = self.invitation.to_invite(Purpose::OneCopy, None);
        let invitation = Invitation::open(&identity, options.clone()).map_err(failed)?;
        show(&invitation, &options, "nicstripe send FILE...", terminal)?;
        let mut paired = invitation.wait().await.map_err(failed)?;
        let offered = paired.offered().await.map_err(failed)?;
        if let Err(error) = check(&offered, dir) {
            paired.decline().await;
            return Err(error);
        }
        let is_unwanted = |item: &Item| item.is_link && !self.links;
        if offered.items.iter().all(is_unwanted) {
            let text = format!(
                "nothing to receive: {} offers only symbolic links, which may lead anywhere",
                sender(&paired)
            );
            paired.decline().await;
            return Err(Fault::new(Exit::Refused, text)
                .with_hint("to keep them: receive --links")
                .into());
        }
        if offered.items.iter().all(|item| is_taken(item, dir)) {
            let text = format!(
                "nothing to receive: {} has all names that {} offers, and none is replaced",
                shown(dir),
                sender(&paired)
            );
            paired.has_all().await;
            return Err(Fault::new(Exit::Files, text)
                .with_hint("move them away, or receive into another directory")
                .into());
        }
        terminal.say(format_args!(
            "{} wants to send {}:",
            sender(&paired),
            totals(&offered.items)
        ));
        let question = Question::of(&offered.items, dir);
        question.list(terminal);
        if let Some(shortage) = Room::of(&offered.items, dir).shortage() {
            terminal.warning(&shortage.to_string());
        }
        if self.yes {
            return Ok((paired, offered));
        }
        let is_wanted = tokio::select! {
            answer = question.ask(terminal) => answer?,
            error = paired.gone() => return Err(failed(error)),
        };
        match is_wanted {
            true => Ok((paired, offered)),
            false => {
                paired.decline().await;
                Err(Fault::new(Exit::Refused, "declined: nothing was written").into())
            }
        }
    }

    async fn take(
        &self,
        paired: Paired,
        offered: Offered,
        dir: &Path,
        routes: RouteKeeper,
        terminal: &Terminal,
        signals: &mut Signals,
    ) -> Result<(), Failure> {
        let Offered { items, called, .. } = offered;
        let from = sender(&paired);
        let rights = PeerOptions {
            access: Access::AppendOnly,
            ..PeerOptions::reading()
        };
        let (builder, key) = called.daemon(rights)?;
        let builder = builder
            .root(dir.to_owned())
            .inbox(items.iter().cloned(), self.links)
            .route_keeper(routes.into());
        let daemon = bound(builder, None).await?;
        let serving = Serving {
            key,
            port: port_of(&daemon),
            home: dir,
            homes: &[],
        };
        let room = Room::of(&items, dir);
        let is_new = |item: &Item| fs::symlink_metadata(path_of(item, dir)).is_err();
        let are_new = items.iter().all(is_new);
        let mut consent = paired.accept(&called, &serving).await.map_err(failed)?;
        let is_complete = Cell::new(false);
        let closed = async { is_complete.set(consent.ended().await == CopyEnd::Complete) };
        let mut progress = Progress::new(terminal, &items);
        let stopped = serve(daemon, closed, signals.stop(), |metrics| {
            progress.draw(metrics);
            progress.is_stalled(metrics)
        })
        .await;
        let elapsed = progress.end();
        // The cable of the invitation may be lost, and with it the sender's last word. What was there
        // before says nothing of this copy.
        let is_complete = is_complete.get() || (are_new && has_all(&items, dir));
        match (stopped?, is_complete) {
            (_, true) => {
                terminal.say(outcome(&items, dir, &from, elapsed));
                Ok(())
            }
            (Some(stop), false) => {
                consent.stop().await;
                Err(Failure::Interrupted {
                    stop,
                    resumable: true,
                })
            }
            (None, false) if let Some(why) = room.obstacle() => {
                let hint =
                    format!("make room, or receive into another directory: {WITH_A_NEW_CODE}");
                Err(Fault::new(Exit::Files, why).with_hint(hint).into())
            }
            (None, false) => {
                let text = format!("{from} has gone before it said that all is sent");
                let hint = format!("see its message; what has arrived is kept: {WITH_A_NEW_CODE}");
                Err(Fault::new(Exit::TimedOut, text).with_hint(hint).into())
            }
        }
    }
}

/// Returns the sender's name and address for messages.
fn sender(paired: &Paired) -> String {
    let host = match paired.host.is_empty() {
        true => "a machine without a name",
        false => &paired.host,
    };
    let on = paired
        .interface
        .as_ref()
        .map(|name| format!(" on {}", shown(name)));
    format!("{host} ({}{})", paired.address.ip(), on.unwrap_or_default())
}

/// Refuses an offer that cannot be what it says.
fn check(offered: &Offered, dir: &Path) -> Result<(), Failure> {
    let odd = |why: &str| -> Result<(), Failure> {
        let text = format!("cannot receive from the sender: {why}");
        Err(Fault::new(Exit::Protocol, text).into())
    };
    if !offered.called.is_same_version() {
        return odd("it speaks another protocol version: update nicstripe there or here");
    }
    let mut names = HashSet::new();
    let is_odd = |item: &Item| {
        let parsed = Name::new([item.name.as_slice()]);
        parsed.is_err() || !names.insert(item.name.clone())
    };
    if offered.items.is_empty() || offered.items.iter().any(is_odd) {
        return odd("its list of files is malformed");
    }
    let home = places::home()?;
    let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let own = [real(home.config()), real(home.state())];
    let leads_there = |item: &Item| own.iter().any(|own| own.starts_with(path_of(item, dir)));
    match offered.items.iter().any(leads_there) {
        true => odd("it would write to the directory of this machine's keys"),
        false => Ok(()),
    }
}

/// Returns true if all offered files are here, with the offered sizes. A file gets its name only when
/// it is verified and on disk.
fn has_all(items: &[Item], dir: &Path) -> bool {
    let is_here = |one: &Item| item(&path_of(one, dir)).is_ok_and(|found| found == *one);
    items.iter().all(is_here)
}

fn path_of(item: &Item, dir: &Path) -> PathBuf {
    dir.join(OsStr::from_bytes(&item.name))
}

/// Returns the closing line, with the sizes that the files have here.
fn outcome(items: &[Item], dir: &Path, from: &str, elapsed: Duration) -> String {
    let found = items.iter().filter_map(|one| item(&path_of(one, dir)).ok());
    let found: Vec<Item> = found.collect();
    format!(
        "received {} from {from} in {:.1} s, verified and on disk in {}",
        totals(&found),
        elapsed.as_secs_f64(),
        shown(dir)
    )
}

struct Progress {
    bar: Option<ProgressBar>,
    terminal: Terminal,
    since: Instant,
    size: u64,
    /// Time and bytes of the last measurement of the rate.
    last: (Instant, u64),
    /// Time and bytes of the last arrival.
    moved: (Instant, u64),
}

impl Progress {
    fn new(terminal: &Terminal, items: &[Item]) -> Self {
        let size = items
            .iter()
            .fold(0, |sum: u64, item| sum.saturating_add(item.bytes));
        let bar = terminal.can_redraw().then(|| {
            let style = ProgressStyle::with_template(BAR).expect("the template is well-formed");
            let bar = ProgressBar::new(size).with_style(style.progress_chars("━╸─"));
            terminal.show_bars();
            terminal.bars.add(bar)
        });
        Self {
            bar,
            terminal: terminal.clone(),
            since: Instant::now(),
            size,
            last: (Instant::now(), 0),
            moved: (Instant::now(), 0),
        }
    }

    fn draw(&mut self, metrics: &Metrics) {
        let Some(bar) = &self.bar else { return };
        let received = received(metrics);
        let (at, before) = self.last;
        bar.set_position(received.min(self.size));
        if at.elapsed() < LEAST_INTERVAL {
            return;
        }
        let rate = BitRate::from_bytes_over(u64::saturating_sub(received, before), at.elapsed());
        self.last = (Instant::now(), received);
        bar.set_message(format!("{:>9}  {:>10}", Size(received), Speed(rate)));
    }

    /// Returns true if nothing has arrived for [`PATIENCE`], or much longer during a transfer: its
    /// last sync, or a comparison of what is here, moves no data, and its cables may return.
    fn is_stalled(&mut self, metrics: &Metrics) -> bool {
        let received = received(metrics);
        if received != self.moved.1 {
            self.moved = (Instant::now(), received);
        }
        let longest = match metrics.transfers {
            0 => PATIENCE,
            _ => 12 * PATIENCE,
        };
        self.moved.0.elapsed() > longest
    }

    /// Removes the bar; returns the time since the start.
    fn end(&mut self) -> Duration {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
            self.terminal.clear_bars();
            self.terminal.leave_bars();
        }
        self.since.elapsed()
    }
}

fn received(metrics: &Metrics) -> u64 {
    let interfaces = metrics.interfaces.values();
    interfaces.map(|interface| interface.received).sum()
}

/// Time without a byte after which the sender counts as gone, the default of `send`'s `--timeout`.
const PATIENCE: Duration = Duration::from_secs(600);

const BAR: &str = "{percent:>3} % {wide_bar:.green/white.dim} {msg:22!}";

/// Least time between two measurements of the rate. The daemon counts once a second.
const LEAST_INTERVAL: Duration = Duration::from_millis(1900);
