//! `nicstripe cp`: copies files and trees to or from a daemon.
//!
//! - [`arguments`], [`tree_arguments`]: the command line as typed
//! - [`plan`], [`copy_kind`]: one complete copy, its direction and its names; [`error`]: contradictions
//! - [`watch`], [`view`], [`show`]: a running transfer, its state, and its output
//! - [`summary`], [`tree_summary`], [`shortfall`]: output at the end, and of partial failures
//! - [`document`], [`event`]: the same as JSON
//! - [`follow`]: copies of a file that is still written
//! - [`many`]: copies to several machines, which feed each other
//! - [`replicas`]: copies from several machines that have the same file
//! - [`shard`]: one share of the files, next to other processes
//! - [`slices`]: files that are put together from ranges
//! - [`s3`]: copies to and from S3 stores
//! - [`web`]: copies of files from web servers
//! - [`comparison`]: copies that only compare
//! - [`receipt`]: what the receiver signs about a file
//! - [`single`]: copy of a single file, and what its target decides
//!
//! This module runs the copy.

mod arguments;
mod bars;
mod closing;
mod comparison;
mod copy_kind;
mod document;
mod error;
mod event;
mod filters;
mod follow;
mod globs;
mod habits;
mod listing;
pub(crate) mod lists;
mod local_target;
mod lookup;
mod many;
mod outlet;
mod plan;
mod receipt;
mod replicas;
#[cfg(feature = "web")]
mod s3;
mod shard;
mod shortfall;
mod show;
mod single;
mod slices;
mod summary;
mod tree_arguments;
mod tree_summary;
mod view;
mod watch;
#[cfg(feature = "web")]
mod web;

pub(crate) use self::{
    arguments::{Cp, OutputArgs},
    comparison::Compared,
    filters::Filters,
    habits::hint as habit_hint,
    lookup::hint,
};

use std::{
    ffi::OsStr,
    fs, io,
    os::unix::{ffi::OsStrExt as _, fs::FileTypeExt as _},
    path::{Path, PathBuf},
    sync::{Arc, PoisonError},
};

use nicstripe::{Client, ClientBuilder, Event, Report, TreeOptions, routes::RouteKeeper};

use self::{
    closing::Ends,
    copy_kind::CopyKind,
    error::{SOCKET, dangling_source, directory, endless, not_a_directory},
    plan::{Plan, tree_options},
    receipt::Wanted,
    replicas::Replicas,
    shard::{Held, Rest},
    shortfall::Shortfall,
    show::Show,
    single::Single,
    slices::is_dir,
    tree_arguments::TreeArguments,
    view::Shape,
    watch::watch,
};
#[cfg(feature = "web")]
use self::{s3::S3Copy, web::WebCopy};
use super::status;
use crate::{
    commands::doctor::quote,
    connect::{
        location::{Location, RemotePath, is_pipe},
        place::Place,
        setup::{self, Connected, Needs},
    },
    failure::{Failure, usage},
    output::{logging, terminal::Terminal},
    places,
    process::{lately, presence::Presence, runtime, signals::Signals, streams},
    text::{first_true, invocation::Invocation},
};

impl Cp {
    /// Runs the copy, and prints its result on standard output and standard error as requested.
    pub(crate) fn run(mut self, terminal: &Terminal) -> Result<(), Failure> {
        let wishes = self.output();
        if wishes.json && is_pipe(self.target()) {
            let text = "--json and --json-stream cannot be used with standard output as the target";
            return Err(usage(text).into());
        }
        if let Some(copies) = self.to_many() {
            return many::run(copies, terminal);
        }
        self.tree.share = self.tree.shard.share(|name| std::env::var_os(name))?;
        let start = || event::start(self.sources(), self.target(), wishes.dry_run);
        let mut show = Show::new(terminal, wishes, start);
        let (done, failure) = match self.copy(terminal, &mut show) {
            Ok((report, ends)) => {
                let tree = report.tree.as_ref();
                let shortfall = tree.and_then(|tree| Shortfall::of(tree, &self));
                let differs = tree.filter(|_| wishes.compares);
                let differs = differs.and_then(comparison::differs);
                let failure = shortfall.map(Failure::from);
                let failure = failure.or_else(|| differs.map(Failure::from));
                (Some((report, ends)), failure)
            }
            Err(failure) => (None, Some(failure)),
        };
        let failure = match self.tree.share {
            Some(_) => failure.map(Failure::of_job),
            None => failure,
        };
        if let (Some((report, ends)), false) = (&done, wishes.quiet) {
            print_summary(report, ends, wishes, terminal);
        }
        let printed = show.print_document(done.as_ref(), failure.as_ref());
        // A failed copy outranks failed output.
        failure.map_or(printed, Err)
    }

    fn copy(&mut self, terminal: &Terminal, show: &mut Show) -> Result<(Report, Ends), Failure> {
        logging::start(terminal)?;
        habits::check_values(self, &Invocation::of_this_process())?;
        #[cfg(feature = "web")]
        if let Some(copy) = S3Copy::of(self)? {
            let keeper = self.keeper()?;
            return runtime::run(copy.run(self, keeper, terminal, show));
        }
        #[cfg(feature = "web")]
        if let Some(copy) = WebCopy::of(self)? {
            let keeper = self.keeper()?;
            return runtime::run(copy.run(self, keeper, terminal, show));
        }
        if let Some(copy) = Replicas::of(self)? {
            let keeper = self.keeper()?;
            return runtime::run(copy.run(self, keeper, terminal, show));
        }
        let mut plan = Plan::of(self)?;
        self.links.check()?;
        check_here(&plan, &self.tree)?;
        if !self.tree.dry_run {
            plan.kind = local_target::follow(plan.kind)?;
        }
        let tree = tree_options(self)?;
        let keeper = self.session.keeper()?;
        runtime::run(self.transfer(plan, tree, keeper, terminal, show))
    }

    /// Runs the copy from connecting to closing the session, and handles signals throughout.
    async fn transfer(
        &mut self,
        mut plan: Plan,
        tree: TreeOptions,
        keeper: Arc<RouteKeeper>,
        terminal: &Terminal,
        show: &mut Show,
    ) -> Result<(Report, Ends), Failure> {
        let mut signals = Signals::with_bars(terminal)?;
        let tell = |event: &Event| show.on_event(event);
        let connecting = self.connect(&plan.place, &keeper, |builder| builder, tell);
        let connected = signals.unless_stopped(connecting).await?;
        let client = connected.client.clone();
        if let Err(failure) = self.find_in_root(&connected, &mut plan) {
            signals.finish(connected.close()).await;
            return Err(failure);
        }
        let kind = plan.kind.clone();
        let expanding = async {
            let kind = globs::expand(&client, kind, &tree).await?;
            // Only the closing line needs it.
            let is_quiet = self.output.quiet;
            Ok((
                kind,
                !is_quiet && is_directory(&client, self.target()).await,
            ))
        };
        let expanded = signals.unless_stopped(expanding).await;
        let expanded = expanded.and_then(|(kind, is_directory)| {
            plan.kind = kind;
            check_target(&plan)?;
            Ok(Ends::of(self, &plan, is_directory))
        });
        let _presence = self.presence(show);
        let result = match expanded {
            Ok(ends) => {
                let copied = self.copy_plan(&client, &plan, tree, show, &mut signals);
                copied.await.map(|report| (report, ends))
            }
            Err(failure) => Err(failure),
        };
        let is_whole = |report: &Report| report.tree.as_ref().is_none_or(|tree| tree.failed == 0);
        let is_complete = result.as_ref().is_ok_and(|(report, _)| is_whole(report));
        signals.finish(connected.close_as(is_complete)).await;
        result
    }

    /// Copies all, or the share that is asked for.
    async fn copy_plan(
        &self,
        client: &Client,
        plan: &Plan,
        tree: TreeOptions,
        show: &mut Show,
        signals: &mut Signals,
    ) -> Result<Report, Failure> {
        let wanted = Wanted::of(self, client, plan);
        let wanted = signals.unless_stopped(wanted).await?;
        let held = self.hold_share(client, plan, &tree);
        let held = signals.unless_stopped(held).await?;
        let result = if self.follow {
            follow::run(client, plan, self.idle, show, signals).await
        } else {
            show.begin(plan.kind.file_name(), plan.kind.shape());
            carry_out(client, plan, tree.clone(), show, signals).await
        };
        show.end(result.as_ref().ok());
        let mut report = result?;
        if let Some(held) = held {
            let (kind, tree, tell) = (&plan.kind, &tree, |text| show.tell(text));
            let rest = Rest { client, kind, tree };
            let ended = rest.finish(held, &mut report, &tell);
            signals.unless_stopped(ended).await?;
        }
        if let Some(wanted) = wanted {
            let written = wanted.write(client, &report);
            signals.unless_stopped(written).await?;
        }
        Ok(report)
    }

    /// Takes the share that is asked for. A dry run takes none.
    async fn hold_share(
        &self,
        client: &Client,
        plan: &Plan,
        tree: &TreeOptions,
    ) -> Result<Option<Held>, Failure> {
        match tree.share.filter(|_| !tree.dry_run) {
            Some(share) => shard::hold(client, &plan.kind, tree, share).await,
            None => Ok(None),
        }
    }

    /// Opens the socket for `nicstripe status`, unless this copy is one by a code, or this user has
    /// no home directory.
    fn presence(&self, show: &Show) -> Option<Presence> {
        let home = places::home().ok()?;
        let has_place = home.state().is_dir() || places::own_home().is_dir();
        if self.offering.is_some() || !has_place {
            return None;
        }
        let (command, last) = (
            Invocation::of_this_process().typed(),
            show.last_progress.clone(),
        );
        Presence::announce(&home, move || {
            let last = last.lock().unwrap_or_else(PoisonError::into_inner);
            status::of_copy(&command, last.as_deref())
        })
    }

    /// Makes remote paths relative to what names begin at: absolute ones to the directory that the
    /// daemon serves, those of ssh to the home directory or the root of the file system.
    fn find_in_root(&mut self, connected: &Connected, plan: &mut Plan) -> Result<(), Failure> {
        let mut is_changed = false;
        for path in &mut self.paths {
            if let Some(inside) = connected.inside(path)? {
                *path = inside;
                is_changed = true;
            }
        }
        if is_changed {
            let Plan { place, kind, .. } = Plan::of(self)?;
            plan.place = place;
            plan.kind = match self.tree.dry_run {
                true => kind,
                false => local_target::follow(kind)?,
            };
        }
        Ok(())
    }

    /// Checks the links, and starts the helper for host routes.
    fn keeper(&self) -> Result<Arc<RouteKeeper>, Failure> {
        self.links.check()?;
        self.session.keeper()
    }

    /// Connects to the daemon at a place. `adapt` adds to the settings of the copy.
    async fn connect(
        &self,
        place: &Place,
        keeper: &Arc<RouteKeeper>,
        adapt: impl Fn(ClientBuilder) -> ClientBuilder,
        tell: impl FnMut(&Event),
    ) -> Result<Connected, Failure> {
        let adapt = |builder| {
            let builder = self.session.apply(builder).route_keeper(keeper.clone());
            adapt(match self.streams {
                Some(streams) => builder.streams(streams),
                None => builder,
            })
        };
        let needs = Needs {
            paths: &self.paths,
            offering: self.offering.as_ref(),
            timeout: Some(self.session.timeout),
            ..Needs::default()
        };
        setup::connect(place, &self.links, &needs, adapt, tell).await
    }
}

/// Returns true if the target is an existing directory that was typed without a slash.
async fn is_directory(client: &Client, target: &OsStr) -> bool {
    match Location::parse(target) {
        Ok(Location::Local(path)) => path.is_dir(),
        Ok(Location::Remote(remote)) => match remote.path {
            RemotePath::File(name) => is_dir(client, &name).await,
            RemotePath::Root | RemotePath::Directory(_) => false,
        },
        Ok(Location::Pipe) | Err(_) => false,
    }
}

/// Checks the local source or target before connecting.
///
/// Several sources are not checked: if one is missing, the others are still copied.
fn check_here(plan: &Plan, tree: &TreeArguments) -> Result<(), Failure> {
    match &plan.kind {
        CopyKind::Put { source, .. } => check_source(source, fs::metadata(source), false, false),
        CopyKind::PutTree { sources, .. } => match &sources[..] {
            // A symbolic link is copied as a link, whatever its target.
            [source] => check_source(
                source,
                fs::symlink_metadata(source),
                tree.takes_directories(),
                tree.takes_nodes(),
            ),
            _ => Ok(()),
        },
        CopyKind::PutPipe { .. } => Ok(streams::check_input()?),
        CopyKind::GetPipe { to: None, .. } => Ok(streams::check_output()?),
        _ => check_target(plan),
    }
}

/// Rejects a local target that must be a directory but exists as another type of file.
fn check_target(plan: &Plan) -> Result<(), Failure> {
    let (target, is_wrong) = match &plan.kind {
        CopyKind::Get { target, .. } => {
            let is_missing = !target.is_dir() && !plan.options.parents;
            (target, ends_with_slash(target) && is_missing)
        }
        CopyKind::GetTree {
            sources, target, ..
        } => {
            let is_directory = ends_with_slash(target) || sources.len() > 1;
            (target, is_directory && is_no_directory(target))
        }
        _ => return Ok(()),
    };
    match is_wrong {
        true => Err(not_a_directory(target).into()),
        false => Ok(()),
    }
}

fn check_source(
    path: &Path,
    found: io::Result<fs::Metadata>,
    takes_directories: bool,
    takes_nodes: bool,
) -> Result<(), Failure> {
    match found {
        Ok(metadata) if metadata.is_dir() && !takes_directories => {
            Err(directory(&format!("{path:?}")).into())
        }
        Ok(metadata) => match kind_without_end(&metadata) {
            Some(kind) if !takes_nodes => Err(endless(path, kind).into()),
            _ => Ok(()),
        },
        Err(_) if path.is_symlink() => Err(dangling_source(path).into()),
        Err(error) => Err(Failure::opening(path)(error)),
    }
}

/// Returns the kind of a file without a size; `None` for all others. Opening a FIFO would wait for a
/// writer.
fn kind_without_end(metadata: &fs::Metadata) -> Option<&'static str> {
    let kind = metadata.file_type();
    first_true([
        (kind.is_fifo(), "a FIFO"),
        (kind.is_char_device(), "a character device"),
        (kind.is_socket(), SOCKET),
    ])
}

fn ends_with_slash(path: &Path) -> bool {
    path.as_os_str().as_bytes().ends_with(b"/")
}

/// Returns true if the path exists and is not a directory. A missing directory is created later.
fn is_no_directory(path: &Path) -> bool {
    let without_slash: PathBuf = path.components().collect();
    without_slash.exists() && !without_slash.is_dir()
}

/// Runs the copy on a connected client. A dry run only prints what would be done.
async fn carry_out(
    client: &Client,
    plan: &Plan,
    tree: TreeOptions,
    show: &mut Show,
    signals: &mut Signals,
) -> Result<Report, Failure> {
    if plan.kind.shape() != Shape::File {
        let transfer = plan.kind.clone().start(client, plan.options, tree)?;
        return watch(transfer, show, signals).await;
    }
    let mut single = Single {
        client,
        plan,
        show,
        signals,
    };
    match tree.dry_run {
        true => single.run_dry().await,
        false => single.run().await,
    }
}

/// Prints the summary of a finished copy. The closing lines come last.
fn print_summary(report: &Report, ends: &Ends, wishes: OutputArgs, terminal: &Terminal) {
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
    let survey = report.survey.iter();
    survey
        .flat_map(|survey| quote::remedies(survey, None))
        .for_each(|remedy| terminal.hint(&remedy));
    if let Some(tree) = &report.tree {
        terminal.say(match wishes.compares {
            true => comparison::counts(tree),
            false => tree_summary::counts(tree, wishes.dry_run),
        });
    }
    match wishes.dry_run {
        true if wishes.compares => {}
        true => terminal.say("dry run: nothing was changed"),
        false => {
            let lines = closing::lines(report, ends);
            lines.iter().for_each(|line| terminal.say(line));
            let cause = if closing::is_brief(report) {
                None
            } else {
                quote::of_copy(report)
            };
            let due = cause.filter(|_| lately::is_due(ends.peer()));
            due.iter().for_each(|cause| terminal.say(cause));
        }
    }
}

/// Re-exports of errors and test helpers of `cp`, for tests of modules that `cp` uses.
#[cfg(test)]
pub(crate) mod tests {
    pub(crate) use super::{
        error::{both_local, directory, not_a_directory},
        shortfall::tests::shortfall,
        view::tests::link,
    };
}
