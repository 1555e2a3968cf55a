//! The library's part in a bench: the connection, the plan, and what it compares.

use std::sync::Arc;

use nicstripe::{
    Client,
    bench::{BenchEvent, BenchReport, Comparison, Spread, Verdict},
    routes::RouteKeeper,
    trust::{Home, Identity, Peers},
};

use super::{
    arguments::Measure,
    failure::BenchError,
    history::History,
    session::{Ended, Measurement, Session, watch},
    show::Show,
};
use crate::{
    choice::check_excluded,
    failure::Failure,
    logging, places, runtime,
    signals::{Signals, Stop},
    terminal::Terminal,
};

/// Measures, and makes of the report what was asked for.
pub(crate) fn run(measure: &Measure, terminal: &Terminal) -> Result<(), Failure> {
    // That HOST is there is what the arguments ask for where no report is named.
    let host = measure.host.as_deref().unwrap_or_default();
    let mut show = Show::new(terminal, measure, host);
    let (session, ended) = match begin(measure, host, &mut show, terminal) {
        Ok(begun) => begun,
        Err(failure) => return show.failure(&failure).and(Err(failure)),
    };
    session.conclude(ended, show, terminal)
}

fn begin<'a>(measure: &'a Measure, host: &str, show: &mut Show, terminal: &Terminal) -> Result<(Session<'a>, Ended), Failure> {
    logging::start(terminal)?;
    check_excluded(&measure.exclude_link)?;
    let home = places::home()?;
    let session = Session::new(measure, History::of(&home), compare)?;
    // While there is one thread: what speaks to the network shall not be able to change routes.
    let routes = Arc::new(RouteKeeper::start_apart(measure.routes.into(), &places::routes_dir(&home)));
    let runtime = runtime::threaded()?;
    let ended = runtime.block_on(bench(measure, host, routes, &home, show));
    // What the library still has to do after a close is not worth waiting for.
    runtime.shutdown_background();
    Ok((session, ended?))
}

async fn bench(measure: &Measure, host: &str, routes: Arc<RouteKeeper>, home: &Home, show: &mut Show) -> Result<Ended, Failure> {
    let mut signals = Signals::take()?;
    let client = tokio::select! {
        client = connect(measure, host, routes, home) => client?,
        stop = signals.stop() => return Ok(before_the_first_load(stop)),
    };
    Ok(watch(Library { client }, show, &mut signals).await)
}

fn before_the_first_load(stop: Stop) -> Ended {
    Ended { report: Err(Failure::Interrupted { stop, resumable: false }), stop: Some(stop) }
}

async fn connect(measure: &Measure, host: &str, routes: Arc<RouteKeeper>, home: &Home) -> Result<Client, Failure> {
    let builder = Client::builder()
        .identity(Identity::load_or_create(&home.identity_file())?)
        .peers(Peers::load(&home.peers_file())?)
        .port(measure.port)
        .links(measure.link.clone())
        .exclude_links(measure.exclude_link.clone())
        .route_keeper(routes)
        .family(measure.ip_version.only());
    let builder = match measure.streams {
        Some(streams) => builder.streams(streams),
        None => builder,
    };
    Ok(builder.connect(host).await?)
}

/// The library's bench, with the connections that it closes at its end.
struct Library {
    client: Client,
}

impl Measurement for Library {
    async fn next_event(&mut self) -> Option<BenchEvent> {
        None
    }

    fn stop(&self) {}

    async fn finish(self) -> Result<BenchReport, Failure> {
        self.client.close().await;
        Err(BenchError::Absent.into())
    }
}

/// Compares a report with an earlier one.
pub(super) fn compare(report: &BenchReport, baseline: &BenchReport) -> Comparison {
    let nothing = Spread { median_bps: 0, min_bps: 0, max_bps: 0, n: 0, stable: false };
    Comparison {
        id: baseline.id.clone(),
        baseline: baseline.summary.together.or(report.summary.together).unwrap_or(nothing),
        change_pct: 0.0,
        noise_pct: 0.0,
        verdict: Verdict::NotComparable,
        why: Some("the library of this version does not compare".into()),
    }
}
