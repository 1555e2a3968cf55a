//! `nicstripe cp`: one file to or from a daemon.
//!
//! [`arguments`] are as typed, [`plan`] makes them one complete copy, this module runs it, [`view`] keeps what is known of it, [`show`]
//! decides what is drawn of that, [`summary`] is read when it is done.

mod arguments;
mod bars;
mod location;
mod plan;
mod show;
mod summary;
mod view;

pub(crate) use self::{
    arguments::{Cp, Routes, parse_link, parse_port},
    location::LocationError,
    plan::PlanError,
    view::View,
};
#[cfg(test)]
pub(crate) use self::{summary::tests as summary_tests, view::tests as view_tests};

use std::{fs, os::unix::ffi::OsStrExt as _, sync::Arc, time::Instant};

use nicstripe::{
    Client, Error, Report, Transfer,
    routes::RouteKeeper,
    trust::{Home, Identity, Peers},
};
use tokio::time::{MissedTickBehavior, interval};

use self::{
    plan::{Plan, Way},
    show::{Show, TICK, Wishes},
};
use crate::{
    choice::check_excluded,
    failure::Failure,
    hint::hint,
    invocation::Invocation,
    json::{self, Document, EventStream},
    link_text,
    logging::{self, Logs},
    places, runtime,
    signals::{Signals, Stop, Told},
    terminal::Terminal,
};

impl Cp {
    /// Copies, and prints what was asked for on both outputs.
    pub(crate) fn run(self, terminal: &Terminal) -> Result<(), Failure> {
        let wishes = Wishes::of(&self);
        let begun = Instant::now();
        let stream = wishes.json_stream.then(|| EventStream::start(&self.source, &self.target));
        let mut shown = Shown { view: View::default(), stream };
        let result = self.copy(terminal, wishes, &mut shown);
        if let (Ok(report), false) = (&result, wishes.quiet) {
            print_summary(report, wishes, terminal);
        }
        if wishes.json {
            let hint = result.as_ref().err().and_then(|failure| hint(failure, &Invocation::of_this_process()));
            let document = Document::of(&result, &shown.view, begun.elapsed(), hint);
            let printed = json::print(&document, shown.stream);
            // That the copy failed outranks that nobody heard of it.
            return result.and(printed);
        }
        result.map(|_| ())
    }

    fn copy(&self, terminal: &Terminal, wishes: Wishes, shown: &mut Shown) -> Result<Report, Failure> {
        logging::start(Logs::Warnings, terminal)?;
        let plan = Plan::of(self)?;
        check_here(&plan)?;
        let home = places::home()?;
        // While there is one thread: what speaks to the network shall not be able to change routes.
        let keeper = Arc::new(RouteKeeper::start_apart(plan.network.routes, &places::routes_dir(&home)));
        let runtime = runtime::threaded()?;
        let result = runtime.block_on(copy(plan, keeper, &home, terminal, wishes, shown));
        // What the library still has to do after a close is not worth waiting for.
        runtime.shutdown_background();
        result
    }
}

/// What outlives the copy itself, for the document at the end.
struct Shown {
    view: View,
    stream: Option<EventStream>,
}

/// Finds what is wrong at this end before anyone is connected to.
fn check_here(plan: &Plan) -> Result<(), Failure> {
    check_excluded(&plan.network.exclude)?;
    match &plan.way {
        Way::Put { source, .. } => match fs::metadata(source) {
            Ok(metadata) if metadata.is_dir() => Err(Failure::Directory { path: source.clone() }),
            Ok(_) => Ok(()),
            Err(error) => Err(Failure::Source { path: source.clone(), source: error }),
        },
        Way::Get { target, .. } => match target.as_os_str().as_bytes().ends_with(b"/") && !target.is_dir() {
            true => Err(Failure::NotADirectory { path: target.clone() }),
            false => Ok(()),
        },
    }
}

/// Runs one copy from connecting to closing, obeying signals all the time.
async fn copy(
    plan: Plan,
    routes: Arc<RouteKeeper>,
    home: &Home,
    terminal: &Terminal,
    wishes: Wishes,
    shown: &mut Shown,
) -> Result<Report, Failure> {
    let mut signals = Signals::take()?;
    let client = tokio::select! {
        client = connect(&plan, routes, home) => client?,
        stop = signals.stop() => return Err(Failure::Interrupted { stop, resumable: false }),
    };
    let transfer = match &plan.way {
        Way::Put { source, name } => client.put(source, name.clone(), plan.options),
        Way::Get { name, target } => client.get(name.clone(), target, plan.options),
    };
    let mut show = Show::new(terminal, wishes, plan.way.file_name(), shown.stream.take());
    let result = watch(transfer, &mut show, &mut signals).await;
    (shown.view, shown.stream) = show.finish(result.as_ref().ok());
    tokio::select! {
        () = client.close() => {}
        stop = signals.stop() => stop.at_once(),
    }
    result
}

async fn connect(plan: &Plan, routes: Arc<RouteKeeper>, home: &Home) -> Result<Client, Failure> {
    let network = plan.network.clone();
    let builder = Client::builder()
        .identity(Identity::load_or_create(&home.identity_file())?)
        .peers(Peers::load(&home.peers_file())?)
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
    Ok(builder.connect(&plan.host).await?)
}

/// Shows a transfer until it ends. The first signal cancels it, the second ends the process.
async fn watch(mut transfer: Transfer, show: &mut Show, signals: &mut Signals) -> Result<Report, Failure> {
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
                (Told::Status, _) => show.say_status(),
                (Told::Stop(stop), Some(_)) => stop.at_once(),
                (Told::Stop(stop), None) => {
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

/// Waits for the signal that ends the process, when the events have ended already and there is nothing left to cancel.
async fn second_stop(signals: &mut Signals, first: Option<Stop>) -> Stop {
    let stop = signals.stop().await;
    if first.is_some() { stop } else { signals.stop().await }
}

/// Prints what was expected and got; the last line is the last.
fn print_summary(report: &Report, wishes: Wishes, terminal: &Terminal) {
    if wishes.verbose > 0 {
        summary::link_table(report).iter().for_each(|line| terminal.say(line));
        terminal.say(format_args!("  blake3 {}", report.digest));
    }
    if wishes.stats {
        summary::stats(report).iter().for_each(|line| terminal.say(line));
    }
    summary::warnings(report).iter().for_each(|warning| terminal.warning(warning));
    link_text::remedies(&report.remedies).iter().for_each(|remedy| terminal.hint(remedy));
    terminal.say(summary::last_line(report));
}
