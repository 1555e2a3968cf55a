//! Runs the library's bench for the command line.

use std::sync::Arc;

use nicstripe::{
    Client,
    bench::{self, BenchEvent, BenchPlan, BenchReport, DiskPlan},
    routes::RouteKeeper,
};

use super::{
    arguments::{Disk, Measure},
    history::History,
    session::{Ended, Measurement, Session, watch},
    show::Show,
};
use crate::{
    connect::setup,
    failure::{Failure, exit::Stop},
    output::{logging, terminal::Terminal},
    places,
    process::{runtime, signals::Signals},
};

/// Runs the bench, and writes the requested outputs.
pub(crate) fn run(measure: &Measure, terminal: &Terminal) -> Result<(), Failure> {
    // clap requires HOST unless a report is named.
    let host = measure.host.as_deref().unwrap_or_default();
    let mut show = Show::new(terminal, measure, host);
    let (session, ended) = match begin(measure, host, &mut show, terminal) {
        Ok(begun) => begun,
        Err(failure) => return show.failure(&failure).and(Err(failure)),
    };
    session.conclude(ended, show, terminal)
}

fn begin<'a>(
    measure: &'a Measure,
    host: &str,
    show: &mut Show,
    terminal: &Terminal,
) -> Result<(Session<'a>, Ended), Failure> {
    logging::start(terminal)?;
    measure.links.check()?;
    let home = places::home()?;
    let session = Session::new(measure, History::of(&home), bench::compare)?;
    // Started while the process is single-threaded: the process that talks to the network must not
    // be able to change routes.
    let routes = Arc::new(RouteKeeper::start_dedicated(
        measure.routes.into(),
        &places::routes_dir(&home),
    ));
    let ended = runtime::run(run_one(measure, host, routes, show))?;
    Ok((session, ended))
}

async fn run_one(
    measure: &Measure,
    host: &str,
    routes: Arc<RouteKeeper>,
    show: &mut Show,
) -> Result<Ended, Failure> {
    let mut signals = Signals::take()?;
    let client = tokio::select! {
        client = connect(measure, host, routes) => client?,
        stop = signals.stop() => return Ok(before_the_first_load(stop)),
    };
    let bench = client.bench(measure.plan());
    Ok(watch(Library { client, bench }, show, &mut signals).await)
}

fn before_the_first_load(stop: Stop) -> Ended {
    Ended {
        report: Err(Failure::Interrupted {
            stop,
            resumable: false,
        }),
        stop: Some(stop),
    }
}

async fn connect(
    measure: &Measure,
    host: &str,
    routes: Arc<RouteKeeper>,
) -> Result<Client, Failure> {
    let builder = measure
        .links
        .apply(setup::client()?)
        .port(measure.links.port(None))
        .route_keeper(routes)
        .socket_buffer(measure.window);
    let builder = match measure.streams {
        Some(streams) => builder.streams(streams),
        None => builder,
    };
    setup::connect(builder, host).await
}

/// Running bench of the library, with its client, which must be closed afterwards.
struct Library {
    client: Client,
    bench: bench::Bench,
}

impl Measurement for Library {
    async fn next_event(&mut self) -> Option<BenchEvent> {
        self.bench.next_event().await
    }

    fn stop(&self) {
        self.bench.stop();
    }

    async fn finish(self) -> Result<BenchReport, Failure> {
        let report = self.bench.finish().await;
        self.client.close().await;
        Ok(report?)
    }
}

impl Measure {
    fn plan(&self) -> BenchPlan {
        let disk = |disk: Disk| DiskPlan {
            file: disk.source,
            name: disk.target,
            reverse: self.reverse,
            bytes: DISK_BYTES,
        };
        BenchPlan {
            phases: self.phases(),
            load: self.load,
            warm_up: self.omit,
            interval: self.interval,
            repeats: self.repeats(),
            message_bytes: u32::try_from(self.length).unwrap_or(u32::MAX),
            socket_buffer: self.window,
            sweeps: self.sweeps(),
            disk: self.disk.clone().map(disk),
            budget: self.budget,
            ..BenchPlan::default()
        }
    }
}

/// Bytes that a disk measurement writes: enough to exceed disk caches, and little of the daemon's
/// free space.
const DISK_BYTES: u64 = 4 << 30;
