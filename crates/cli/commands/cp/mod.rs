//! `nicstripe cp`: copies files and trees to or from a daemon.
//!
//! - [`arguments`], [`tree_arguments`]: the command line as typed
//! - [`plan`], [`copy_kind`]: one complete copy, its direction and its names
//! - [`view`], [`show`]: the state of the copy, and its output
//! - [`summary`], [`tree_summary`], [`shortfall`]: output at the end, and of partial failures
//! - [`single`]: checks at the target of a single file
//!
//! This module runs the copy.

mod arguments;
mod bars;
mod closing;
mod copy_kind;
mod filters;
mod globs;
mod habits;
mod listing;
pub(crate) mod lists;
pub(crate) mod location;
mod lookup;
mod pattern;
mod plan;
mod shortfall;
mod show;
mod single;
mod summary;
mod tree_arguments;
mod tree_summary;
mod view;

pub(crate) use self::{
    arguments::{Cp, Routes, parse_link, parse_port},
    habits::{hint as habit_hint, value_hint},
    lists::ListError,
    location::LocationError,
    lookup::listing,
    plan::PlanError,
    shortfall::{NextStep, Shortfall},
    single::{Obstacle, PlaceError},
    view::View,
};
#[cfg(test)]
pub(crate) use self::{
    shortfall::tests as shortfall_tests, summary::tests as summary_tests, view::tests as view_tests,
};

use std::{
    fs::{self, File},
    io,
    os::{
        fd::AsFd,
        unix::{ffi::OsStrExt as _, fs::FileTypeExt as _},
    },
    path::Path,
    sync::Arc,
    time::Instant,
};

use nicstripe::{
    Client, Error, Event, Report, Transfer, TreeOptions, routes::RouteKeeper, trust::Home,
};
use tokio::time::{MissedTickBehavior, interval};

use self::{
    closing::Ends,
    copy_kind::CopyKind,
    plan::Plan,
    show::{Show, TICK, Wishes},
    single::Single,
};
use crate::{
    connect::{
        choice::check_excluded,
        meeting::{connect_telling, queued},
    },
    failure::{Failure, hint::hint},
    output::{
        json::{self, Document, EventStream},
        logging,
        terminal::Terminal,
    },
    places,
    process::{
        runtime,
        signals::{Signalled, Signals, Stop},
    },
    text::{invocation::Invocation, link_text},
};

impl Cp {
    /// Runs the copy, and prints its result on standard output and standard error as requested.
    pub(crate) fn run(self, terminal: &Terminal) -> Result<(), Failure> {
        if self.asks_for_help() {
            return crate::args::print_help("cp");
        }
        let wishes = Wishes::of(&self);
        if wishes.json && self.target() == "-" {
            return Err(PlanError::JsonToPipe.into());
        }
        let begun = Instant::now();
        let stream = wishes
            .json_stream
            .then(|| EventStream::start(self.sources(), self.target(), wishes.dry_run));
        let mut shown = Shown {
            view: View::default(),
            stream,
        };
        let (report, failure) = match self.copy(terminal, wishes, &mut shown) {
            Ok(report) => {
                let shortfall = report
                    .tree
                    .as_ref()
                    .and_then(|tree| Shortfall::of(tree, &self));
                (
                    Some(report),
                    shortfall.map(|shortfall| Failure::Shortfall(Box::new(shortfall))),
                )
            }
            Err(failure) => (None, Some(failure)),
        };
        if let (Some(report), false) = (&report, wishes.quiet) {
            print_summary(report, &Ends::of(&self), wishes, terminal);
        }
        let ended = |failure: Option<Failure>| failure.map_or(Ok(()), Err);
        if wishes.json {
            let hint = failure
                .as_ref()
                .and_then(|failure| hint(failure, &Invocation::of_this_process()));
            let end = json::End {
                report: report.as_ref(),
                failure: failure.as_ref(),
                elapsed: begun.elapsed(),
                hint,
            };
            let printed = json::print(
                &Document::of(end, &shown.view, wishes.dry_run),
                shown.stream,
            );
            // A failed copy outranks failed output.
            return ended(failure).and(printed);
        }
        ended(failure)
    }

    fn copy(
        &self,
        terminal: &Terminal,
        wishes: Wishes,
        shown: &mut Shown,
    ) -> Result<Report, Failure> {
        logging::start(terminal)?;
        habits::check_values(self, &Invocation::of_this_process())?;
        let mut plan = Plan::of(self)?;
        check_here(&plan)?;
        let tree = std::mem::take(&mut plan.tree).read()?;
        let home = places::home()?;
        // Started while the process is single-threaded: the process that talks to the network must
        // not be able to change routes.
        let keeper = Arc::new(RouteKeeper::start_dedicated(
            plan.network.routes,
            &places::routes_dir(&home),
        ));
        let runtime = runtime::threaded()?;
        let result = runtime.block_on(copy(plan, tree, keeper, &home, terminal, wishes, shown));
        // Background work of the library after a close need not be awaited.
        runtime.shutdown_background();
        result
    }
}

/// State of the output after the copy, which the final JSON document needs.
struct Shown {
    view: View,
    stream: Option<EventStream>,
}

/// Checks the excluded interfaces, and the local source or target, before connecting.
///
/// Several sources are not checked: if one is missing, the others are still copied.
fn check_here(plan: &Plan) -> Result<(), Failure> {
    check_excluded(&plan.network.exclude)?;
    match &plan.kind {
        CopyKind::Put { source, .. } => check_source(source, fs::metadata(source), false, false),
        CopyKind::PutTree { sources, .. } => match &sources[..] {
            // A symbolic link is copied as a link, whatever its target.
            [source] => check_source(
                source,
                fs::symlink_metadata(source),
                plan.tree.takes_directories(),
                plan.tree.takes_nodes(),
            ),
            _ => Ok(()),
        },
        _ => check_target(plan),
    }
}

/// Rejects a local target that must be a directory and is something else.
fn check_target(plan: &Plan) -> Result<(), Failure> {
    match &plan.kind {
        CopyKind::Get { target, .. } => {
            match ends_with_slash(target) && !target.is_dir() && !plan.options.parents {
                true => Err(Failure::NotADirectory {
                    path: target.clone(),
                }),
                false => Ok(()),
            }
        }
        CopyKind::GetTree {
            sources, target, ..
        } => match (ends_with_slash(target) || sources.len() > 1) && is_no_directory(target) {
            true => Err(Failure::NotADirectory {
                path: target.clone(),
            }),
            false => Ok(()),
        },
        _ => Ok(()),
    }
}

fn check_source(
    path: &Path,
    found: io::Result<fs::Metadata>,
    takes_directories: bool,
    takes_nodes: bool,
) -> Result<(), Failure> {
    match found {
        Ok(metadata) if metadata.is_dir() && !takes_directories => Err(Failure::Directory {
            path: path.to_owned(),
        }),
        // Opening a FIFO would wait for a writer.
        Ok(metadata) if metadata.file_type().is_fifo() && !takes_nodes => Err(Failure::Fifo {
            path: path.to_owned(),
        }),
        Ok(_) => Ok(()),
        Err(source) => Err(Failure::Source {
            path: path.to_owned(),
            source,
        }),
    }
}

fn ends_with_slash(path: &Path) -> bool {
    path.as_os_str().as_bytes().ends_with(b"/")
}

/// Returns true if the path exists and is not a directory. A missing directory is created later.
fn is_no_directory(path: &Path) -> bool {
    let without_slash: std::path::PathBuf = path.components().collect();
    without_slash.exists() && !without_slash.is_dir()
}

/// Runs one copy from connecting to closing the session, and handles signals throughout.
async fn copy(
    mut plan: Plan,
    tree: TreeOptions,
    routes: Arc<RouteKeeper>,
    home: &Home,
    terminal: &Terminal,
    wishes: Wishes,
    shown: &mut Shown,
) -> Result<Report, Failure> {
    let mut signals = Signals::take()?;
    let client = tokio::select! {
        client = connect(&plan, routes, home, terminal, wishes, &mut shown.stream) => client?,
        stop = signals.stop() => return Err(Failure::Interrupted { stop, resumable: false }),
    };
    let expanded = tokio::select! {
        kind = globs::expand(&client, plan.kind.clone(), &tree) => kind,
        stop = signals.stop() => Err(Failure::Interrupted { stop, resumable: false }),
    };
    let expanded = expanded.and_then(|kind| {
        plan.kind = kind;
        check_target(&plan)
    });
    let result = match expanded {
        Ok(()) => {
            let stream = shown
                .stream
                .take()
                .map(|stream| stream.sized(plan.kind.is_one_file()));
            let mut show = Show::new(terminal, wishes, plan.kind.file_name(), stream);
            let result = carry_out(&client, &plan, tree, &mut show, &mut signals).await;
            (shown.view, shown.stream) = show.finish(result.as_ref().ok());
            result
        }
        Err(failure) => Err(failure),
    };
    tokio::select! {
        () = client.close() => {}
        stop = signals.stop() => stop.at_once(),
    }
    result
}

/// Runs the copy on a connected client. A dry run only prints what would be done.
async fn carry_out(
    client: &Client,
    plan: &Plan,
    tree: TreeOptions,
    show: &mut Show,
    signals: &mut Signals,
) -> Result<Report, Failure> {
    if !plan.kind.is_one_file() {
        return watch(start(client, plan, tree)?, show, signals).await;
    }
    if plan.dry_run {
        return Single {
            client,
            plan,
            show,
            signals,
        }
        .run_dry()
        .await;
    }
    match watch(start(client, plan, tree)?, show, signals).await {
        Err(failure) => {
            Single {
                client,
                plan,
                show,
                signals,
            }
            .reconsider(failure)
            .await
        }
        done => done,
    }
}

/// Starts the transfer in the library, by copy kind.
fn start(client: &Client, plan: &Plan, tree: TreeOptions) -> Result<Transfer, Failure> {
    let options = plan.options;
    let of_pipe = |source| Failure::Source {
        path: "-".into(),
        source,
    };
    Ok(match plan.kind.clone() {
        CopyKind::Put { source, name } => client.put(&source, name, options),
        CopyKind::Get { name, target } => client.get(name, &target, options),
        CopyKind::PutTree {
            sources,
            name,
            as_name,
        } => client.put_tree(sources, name, as_name, tree),
        CopyKind::GetTree {
            sources,
            target,
            as_name,
        } => client.get_tree(sources, &target, as_name, tree),
        CopyKind::PutPipe { name } => {
            client.put_pipe(unbuffered(io::stdin()).map_err(of_pipe)?, name, options)
        }
        CopyKind::GetPipe { name } => client.get_pipe(
            name,
            unbuffered(io::stdout()).map_err(Failure::Output)?,
            options,
        ),
    })
}

/// Duplicates a standard stream. The copy bypasses the buffer and lock of the standard library,
/// which a thread of the transfer would hold forever.
fn unbuffered(stream: impl AsFd) -> io::Result<File> {
    stream.as_fd().try_clone_to_owned().map(File::from)
}

async fn connect(
    plan: &Plan,
    routes: Arc<RouteKeeper>,
    home: &Home,
    terminal: &Terminal,
    wishes: Wishes,
    stream: &mut Option<EventStream>,
) -> Result<Client, Failure> {
    let network = plan.network.clone();
    let builder = places::client(home)?
        .port(plan.port)
        .links(network.links)
        .exclude_links(network.exclude)
        .route_keeper(routes)
        .bandwidth(network.bandwidth)
        .patience(network.patience)
        .family(network.family);
    let builder = match network.streams {
        Some(streams) => builder.streams(streams),
        None => builder,
    };
    let tell = |event: &Event| {
        if let Some(stream) = stream {
            stream.write(event);
        }
        if let Some(text) = queued(event).filter(|_| !wishes.quiet) {
            terminal.say(text);
        }
    };
    connect_telling(builder, &plan.host, tell).await
}

/// Shows the events of a transfer until it ends. The first signal cancels the transfer, the second
/// ends the process.
async fn watch(
    mut transfer: Transfer,
    show: &mut Show,
    signals: &mut Signals,
) -> Result<Report, Failure> {
    let mut stopped = None;
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            event = transfer.next_event() => match event {
                Some(event) => show.on_event(&event),
                None => break,
            },
            _ = ticks.tick() => show.on_tick(),
            told = signals.next() => match (told, stopped) {
                (Signalled::Status | Signalled::Reload, _) => show.print_status(),
                (Signalled::Stop(stop), Some(_)) => stop.at_once(),
                (Signalled::Stop(stop), None) => {
                    stopped = Some(stop);
                    transfer.cancel();
                }
            },
        }
    }
    let finished = tokio::select! {
        finished = transfer.finish() => finished,
        stop = second_stop(signals, stopped) => stop.at_once(),
    };
    finished.map_err(|error| match (error, stopped) {
        (Error::Cancelled { resumable }, Some(stop)) => Failure::Interrupted { stop, resumable },
        (error, _) => error.into(),
    })
}

/// Waits for the second signal, which ends the process. `first` is the signal that has cancelled
/// the transfer, if there was one.
async fn second_stop(signals: &mut Signals, first: Option<Stop>) -> Stop {
    let stop = signals.stop().await;
    if first.is_some() {
        stop
    } else {
        signals.stop().await
    }
}

/// Prints the summary of a finished copy. The closing lines come last.
fn print_summary(report: &Report, ends: &Ends, wishes: Wishes, terminal: &Terminal) {
    if wishes.verbose > 0 {
        summary::link_table(report)
            .iter()
            .for_each(|line| terminal.say(line));
        if let Some(digest) = report.digest {
            terminal.say(format_args!("  blake3 {digest}"));
        }
    }
    if wishes.stats {
        summary::stats(report)
            .iter()
            .for_each(|line| terminal.say(line));
    }
    summary::warnings(report)
        .iter()
        .for_each(|warning| terminal.warning(warning));
    link_text::remedies(&report.remedies)
        .iter()
        .for_each(|remedy| terminal.hint(remedy));
    if let Some(tree) = &report.tree {
        terminal.say(tree_summary::counts(tree, wishes.dry_run));
    }
    match wishes.dry_run {
        true => terminal.say("dry run: nothing was changed"),
        false => closing::lines(report, ends)
            .iter()
            .for_each(|line| terminal.say(line)),
    }
}
