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

use std::{ffi::OsString, fs, io, sync::Arc, time::Instant};

use futures_util::future::join_all;
use nicstripe::routes::RouteKeeper;
use tokio::task::spawn_blocking;

use self::{files::Files, flow::Flow, receiver::Receiver};
use super::{arguments::Cp, check_here, copy_kind::CopyKind, error::PlanError, plan::Plan};
use crate::{
    connect::location::Location,
    failure::Failure,
    output::{logging, terminal::Terminal},
    process::{runtime, signals::Signals},
    text::{quantity::Size, shown},
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
        // A regular file is compared with what is there, as in trees. Anything else fails as it does alone.
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
        if let Some((_, option)) = of_one.into_iter().find(|(is_given, _)| *is_given) {
            return Err(PlanError::OneTarget(option).into());
        }
        for cp in &copies {
            check_here(&Plan::of(cp)?, &cp.tree)?;
        }
        if cp.allows_chain() {
            let keeper = cp.session.keeper()?;
            runtime::run(distribute(&copies, keeper, terminal))?;
        }
    }
    let mut worst: Option<Failure> = None;
    for cp in copies {
        let target = cp.target().to_owned();
        let Err(failure) = cp.run(terminal) else {
            continue;
        };
        if let Failure::Interrupted { .. } = failure {
            return Err(failure);
        }
        terminal.say(format_args!("{} failed", shown(&target)));
        let earlier = worst.take();
        let (less, more) = match earlier {
            Some(earlier) if earlier.exit().code() > failure.exit().code() => {
                (Some(failure), earlier)
            }
            earlier => (earlier, failure),
        };
        if let Some(less) = less {
            terminal.error(&less.one_line());
        }
        worst = Some(more);
    }
    worst.map_or(Ok(()), Err)
}

/// Sends the large files along the chain. Only an interruption is an error: the copies that follow send
/// what is missing, and say why they cannot.
async fn distribute(
    copies: &[Cp],
    keeper: Arc<RouteKeeper>,
    terminal: &Terminal,
) -> Result<(), Failure> {
    let mut signals = Signals::take()?;
    let begun = Instant::now();
    let wishes = copies[0].output();
    let CopyKind::PutTree { sources, .. } = Plan::of(&copies[0])?.kind else {
        return Ok(());
    };
    let is_recursive = copies[0].tree.is_recursive();
    let work = async {
        let found = spawn_blocking(move || Files::of(&sources, is_recursive)).await;
        let files = found.map_err(|error| Failure::Runtime(io::Error::other(error)))?;
        if files.items.is_empty() {
            return Ok(None);
        }
        let connected = join_all(copies.iter().map(|cp| Receiver::connect(cp, &keeper))).await;
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
        // The fastest first: nobody waits for one that is slower than itself.
        receivers.sort_by_key(|receiver| std::cmp::Reverse(receiver.expected));
        let flow = Flow::new(receivers, files, terminal, wishes).await;
        Ok(Some(flow.run().await))
    };
    let ended = signals.unless_stopped(work).await;
    if let Ok(Some(sent)) = &ended
        && sent.whole > 0
        && !wishes.quiet
    {
        terminal.say(format_args!(
            "sent {} for {} to {} machines in {:.1} s",
            Size(sent.from_here),
            Size(sent.whole),
            sent.receivers,
            begun.elapsed().as_secs_f64()
        ));
    }
    match ended {
        Err(stopped @ Failure::Interrupted { .. }) => Err(stopped),
        Err(failure) => {
            terminal.warning(&format!("no chain: {}", failure.one_line()));
            Ok(())
        }
        Ok(_) => Ok(()),
    }
}
