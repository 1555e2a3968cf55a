//! Copies to several machines. Each gets the bytes of large files from the one before it while that gets
//! them, so that they leave this machine about once. Then an ordinary copy to each target sends what is
//! left: small files, attributes, and whatever a receiver that was lost meanwhile has not.
//!
//! - [`files`]: what goes along the chain, in items
//! - [`receiver`]: a target, and how it gets an item
//! - [`flow`]: the items under way

mod files;
mod flow;
mod receiver;

use std::{ffi::OsString, fs, sync::Arc, time::Instant};

use futures_util::future::join_all;
use nicstripe::routes::RouteKeeper;
use tokio::{runtime::Runtime, task::spawn_blocking};

use self::{files::Files, flow::Flow, receiver::Receiver};
use super::{
    arguments::{Cp, OutputArgs},
    check_here,
    copy_kind::CopyKind,
    plan::Plan,
};
use crate::{
    connect::location::Location,
    failure::{Failure, usage},
    output::{logging, terminal::Terminal},
    process::{runtime, signals::Signals},
    text::{counted, first_true, quantity::Size, shown},
};

impl Cp {
    /// Returns a copy for each target if there are several: the last paths, which are at other machines,
    /// after sources here.
    pub(super) fn to_many(&self) -> Option<Vec<Self>> {
        let is_remote = |path: &OsString| matches!(Location::parse(path), Ok(Location::Remote(_)));
        let targets = self.paths.iter().rev().take_while(|path| is_remote(path));
        let count = targets.count();
        if count < 2 || count == self.paths.len() {
            return None;
        }
        let (sources, targets) = self.paths.split_at(self.paths.len() - count);
        let is_here = |path: &OsString| matches!(Location::parse(path), Ok(Location::Local(_)));
        if !sources.iter().all(is_here) {
            return None;
        }
        let copy = |target: &OsString| {
            let mut cp = self.clone();
            cp.paths = [sources, std::slice::from_ref(target)].concat();
            cp
        };
        Some(targets.iter().map(copy).collect())
    }

    /// Returns true if large files can go from receiver to receiver: all of them are copied whole.
    fn allows_chain(&self) -> bool {
        let tree = &self.tree;
        !(tree.dry_run
            || tree.update
            || tree.checksum
            || tree.one_file_system
            || tree.files_from.is_some()
            || !tree.filters.0.is_empty()
            || self.no_replace
            || self.force
            || self.delta
            || self.inplace
            || self.verify
            || self.allow_changing)
    }
}

/// Runs the copies to all targets. Prints the failure of each but the last; the exit code is the highest.
pub(super) fn run(mut copies: Vec<Cp>, terminal: &Terminal) -> Result<(), Failure> {
    logging::start(terminal)?;
    for cp in &mut copies {
        // A regular file is compared with the existing one, as in trees. Anything else fails as it does alone.
        if let [source] = cp.sources()
            && fs::symlink_metadata(source).is_ok_and(|found| found.is_file())
        {
            cp.tree.recursive |= !cp.tree.asks_for_tree();
        }
    }
    if let Some(cp) = copies.first() {
        let of_one = [
            (cp.tree.shard.shard.is_some(), "--shard"),
            (cp.follow, "--follow"),
            (cp.receipt.is_some(), "--receipt"),
        ];
        if let Some(option) = first_true(of_one) {
            return Err(usage(format!("with {option} there is one DST")).into());
        }
        for cp in &copies {
            check_here(&Plan::of(cp)?, &cp.tree)?;
        }
    }
    let mut finals = Finals {
        copies: copies.iter().cloned().map(Some).collect(),
        worst: None,
        terminal,
    };
    if copies.first().is_some_and(Cp::allows_chain) {
        distribute(&copies, &mut finals)?;
    }
    (0..copies.len()).try_for_each(|copy| finals.run(copy))?;
    finals.worst.map_or(Ok(()), Err)
}

/// The copies to each target, which send what is left.
struct Finals<'a> {
    /// Those that have not begun.
    copies: Vec<Option<Cp>>,
    worst: Option<Failure>,
    terminal: &'a Terminal,
}

impl Finals<'_> {
    /// Runs a copy unless it has run. Only an interruption is an error.
    fn run(&mut self, copy: usize) -> Result<(), Failure> {
        let Some(cp) = self.copies[copy].take() else {
            return Ok(());
        };
        let target = cp.target().to_owned();
        let Err(failure) = cp.run(self.terminal) else {
            return Ok(());
        };
        if let Failure::Interrupted { .. } = failure {
            return Err(failure);
        }
        self.terminal.say(format_args!("{} failed", shown(&target)));
        let (less, more) = match self.worst.take() {
            Some(earlier) if earlier.exit().code() > failure.exit().code() => {
                (Some(failure), earlier)
            }
            earlier => (earlier, failure),
        };
        if let Some(less) = less {
            self.terminal.error(&less.one_line());
        }
        self.worst = Some(more);
        Ok(())
    }
}

/// Sends the large files along the chain. A target that has got them gets the rest at once; those that
/// are slow continue meanwhile. Only an interruption is an error: the copies that follow send what is
/// missing, and say why they cannot.
fn distribute(copies: &[Cp], finals: &mut Finals<'_>) -> Result<(), Failure> {
    let keeper = copies[0].session.keeper()?;
    let runtime = runtime::start()?;
    let carried = carry(&runtime, copies, &keeper, finals);
    runtime.shutdown_background();
    carried
}

fn carry(
    runtime: &Runtime,
    copies: &[Cp],
    keeper: &Arc<RouteKeeper>,
    finals: &mut Finals<'_>,
) -> Result<(), Failure> {
    let (wishes, terminal, begun) = (copies[0].output(), finals.terminal, Instant::now());
    let begin = begin(copies, keeper, terminal, wishes);
    let flow = match runtime.block_on(unless_stopped(begin)) {
        Err(failure) if !matches!(failure, Failure::Interrupted { .. }) => {
            terminal.warning(&format!("no chain: {}", failure.one_line()));
            None
        }
        flow => flow?,
    };
    let Some(mut flow) = flow else {
        return Ok(());
    };
    let mut is_first = true;
    loop {
        let work = async { Ok(flow.run().await) };
        let ended = runtime.block_on(unless_stopped(work))?;
        if ended.is_empty() {
            return Ok(());
        }
        let sent = flow.sent();
        if std::mem::take(&mut is_first) && sent.whole > 0 && !wishes.quiet {
            terminal.say(format_args!(
                "sent {} for {} to {} in {:.1} s",
                Size(sent.from_here),
                Size(sent.whole),
                counted(ended.len() as u64, "machine"),
                begun.elapsed().as_secs_f64()
            ));
        }
        ended.into_iter().try_for_each(|copy| finals.run(copy))?;
    }
}

async fn unless_stopped<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    Signals::take()?.unless_stopped(work).await
}

/// Connects to the targets, and plans what each gets from whom; `None` if that is nothing.
async fn begin(
    copies: &[Cp],
    keeper: &Arc<RouteKeeper>,
    terminal: &Terminal,
    wishes: OutputArgs,
) -> Result<Option<Flow>, Failure> {
    let CopyKind::PutTree { sources, .. } = Plan::of(&copies[0])?.kind else {
        return Ok(None);
    };
    let is_recursive = copies[0].tree.is_recursive();
    let mut files = spawn_blocking(move || Files::of(&sources, is_recursive)).await?;
    if files.files.is_empty() {
        return Ok(None);
    }
    let all = copies.iter().enumerate();
    let connected = join_all(all.map(|cp| Receiver::connect(cp, keeper))).await;
    let mut receivers = Vec::new();
    for (cp, connected) in copies.iter().zip(connected) {
        match connected {
            Ok(receiver) => receivers.push(receiver),
            Err(failure) => {
                let (target, why) = (shown(cp.target()), failure.one_line());
                terminal.warning(&format!("{target} is not in the chain: {why}"));
            }
        }
    }
    if receivers.len() < 2 {
        return Ok(None);
    }
    files.cut(
        receivers
            .iter()
            .filter_map(|receiver| receiver.expected)
            .min(),
    );
    // The fastest first: no one waits for one that is slower than itself.
    receivers.sort_by_key(|receiver| std::cmp::Reverse(receiver.expected));
    Ok(Some(Flow::new(receivers, files, terminal, wishes).await))
}
