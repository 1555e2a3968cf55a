//! Event loop of a running transfer, which also handles signals and updates the output.

use std::io;

use nicstripe::{Client, CopyOptions, Error, Report, Transfer, TreeOptions, TreeSource};
use tokio::time::{MissedTickBehavior, interval};

use super::{
    copy_kind::CopyKind,
    show::{Show, TICK},
};
use crate::{
    failure::{Failure, exit::Stop},
    process::{
        signals::{Signalled, Signals},
        streams::unbuffered,
    },
};

/// Starts the transfer in the library, by copy kind.
pub(super) fn start(
    client: &Client,
    kind: CopyKind,
    options: CopyOptions,
    tree: TreeOptions,
) -> Result<Transfer, Failure> {
    let of_pipe = |source| Failure::Source {
        path: "-".into(),
        source,
    };
    Ok(match kind {
        CopyKind::Put { source, name } => client.put(&source, name, options),
        CopyKind::Get { name, target } => client.get(name, &target, options),
        CopyKind::PutTree {
            sources,
            name,
            as_name,
        } => client.put_tree(sources, name, TreeOptions { as_name, ..tree }),
        CopyKind::GetTree {
            sources,
            target,
            as_name,
        } => {
            let tree = TreeOptions { as_name, ..tree };
            let source = |(name, content)| match (name, content) {
                (Some(name), false) => TreeSource::named(name),
                (name, _) => TreeSource::content_of(name),
            };
            let sources = sources.into_iter().map(source);
            client.get_tree(sources, &target, tree)
        }
        CopyKind::PutPipe { name } => {
            client.put_pipe(unbuffered(io::stdin()).map_err(of_pipe)?, name, options)
        }
        CopyKind::GetPipe { name, to } => {
            let output = match to {
                Some(outlet) => outlet.file(),
                None => unbuffered(io::stdout()),
            };
            client.get_pipe(name, output.map_err(Failure::Output)?, options)
        }
    })
}

/// Shows the events of a transfer until it ends. The first signal cancels the transfer, the second
/// ends the process.
pub(super) async fn watch(
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
            _ = ticks.tick() => show.draw(),
            signal = signals.next() => match (signal, stopped) {
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
