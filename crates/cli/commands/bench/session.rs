//! One bench from connecting to the exit code: shows progress, handles signals, and writes the
//! requested outputs.

use std::{fs::File, path::PathBuf, pin::pin, sync::Arc};

use nicstripe::{
    ClientBuilder,
    bench::{self, BenchPlan, BenchReport, DiskPlan},
    routes::RouteKeeper,
};

use super::{arguments::Measure, history::History, html, outcome, prom, show::Show};
use crate::{
    connect::{
        peer::Peer,
        place::Place,
        setup::{self, Connected, Needs},
    },
    failure::{Failure, Fault, exit::Stop},
    output::{files, logging, terminal::Terminal},
    places,
    process::{
        runtime,
        signals::{Signalled, Signals},
    },
};

pub(crate) fn run(measure: &Measure, terminal: &Terminal) -> Result<(), Failure> {
    // clap requires HOST unless a report is named.
    let place = match &measure.host {
        None => return Ok(()),
        Some(Peer::Daemon(place)) => place,
        #[cfg(feature = "web")]
        Some(Peer::Web(url)) => return super::from_web::run(measure, url, terminal),
    };
    let host = place.to_string();
    let mut show = Show::new(terminal, measure, &host);
    match begin(measure, place, &mut show, terminal) {
        Ok((session, ended)) => session.conclude(ended, show, terminal),
        Err(failure) => show.failure(&failure).and(Err(failure)),
    }
}

fn begin<'a>(
    measure: &'a Measure,
    place: &Place,
    show: &mut Show<'_>,
    terminal: &Terminal,
) -> Result<(Session<'a>, Ended), Failure> {
    logging::start(terminal)?;
    measure.links.check()?;
    if let (Some(disk), false) = (&measure.disk, measure.reverse) {
        // A missing file would be noticed only after all links were measured.
        File::open(&disk.file).map_err(Failure::opening(&disk.file))?;
    }
    let home = places::home()?;
    let session = Session::new(measure, History::of(&home))?;
    // Started while the process is single-threaded: the process that talks to the network must not
    // be able to change routes.
    let routes = Arc::new(RouteKeeper::start_dedicated(
        measure.routes.into(),
        places::routes_dir(&home),
    ));
    let ended = runtime::run(async {
        let mut signals = Signals::take()?;
        let connecting = connect(measure, place, routes);
        let connected = signals.unless_stopped(connecting).await?;
        watch(connected, measure.plan(), show, &mut signals).await
    })?;
    Ok((session, ended))
}

async fn connect(
    measure: &Measure,
    place: &Place,
    routes: Arc<RouteKeeper>,
) -> Result<Connected, Failure> {
    let adapt = |builder: ClientBuilder| {
        let builder = builder.route_keeper(routes.clone());
        let builder = builder.socket_buffer(measure.window);
        match measure.streams {
            Some(streams) => builder.streams(streams),
            None => builder,
        }
    };
    let needs = Needs::default();
    setup::connect(place, &measure.links, &needs, adapt, setup::say).await
}

/// Report of a bench, and the signal that ended it early, if any.
type Ended = (BenchReport, Option<Stop>);

/// Shows a bench until it ends, and closes the connections. The first signal ends it with a report
/// of the data so far, the second ends the process.
async fn watch(
    connected: Connected,
    plan: BenchPlan,
    show: &mut Show<'_>,
    signals: &mut Signals,
) -> Result<Ended, Failure> {
    let mut bench = connected.client.bench(plan);
    let mut stopped = None;
    loop {
        tokio::select! {
            event = bench.next_event() => match event {
                Some(event) => show.on_event(&event),
                None => break,
            },
            signal = signals.next() => match (signal, stopped) {
                (Signalled::Status | Signalled::Reload, _) => show.print_status(),
                (Signalled::Stop(stop), Some(_)) => stop.at_once(),
                (Signalled::Stop(stop), None) => {
                    stopped = Some(stop);
                    bench.stop();
                }
            },
        }
    }
    let mut finish = pin!(async {
        let report = bench.finish().await;
        connected.close().await;
        report
    });
    loop {
        tokio::select! {
            report = &mut finish => return ended(report, stopped),
            stop = signals.stop() => match stopped {
                Some(_) => stop.at_once(),
                None => stopped = Some(stop),
            },
        }
    }
}

/// Returns the end of a bench. A signal takes precedence over the failure that it may have caused.
fn ended(
    report: Result<BenchReport, nicstripe::Error>,
    stop: Option<Stop>,
) -> Result<Ended, Failure> {
    let report = report.map_err(|failure| stop.map_or_else(|| failure.into(), interrupted))?;
    Ok((report, stop))
}

fn interrupted(stop: Stop) -> Failure {
    Failure::Interrupted {
        stop,
        resumable: false,
    }
}

/// Outputs and baseline of a bench, checked before the measurement.
#[derive(Debug)]
struct Session<'a> {
    measure: &'a Measure,
    history: History,
    baseline: Option<BenchReport>,
}

impl<'a> Session<'a> {
    /// Reads the baseline, and checks that the output files can be written.
    fn new(measure: &'a Measure, history: History) -> Result<Self, Failure> {
        for path in measure.html.iter().chain(&measure.prom) {
            files::check(path)?;
        }
        let baseline = measure.baseline.as_ref();
        let baseline = baseline.map(|path| history.find(path)).transpose()?;
        Ok(Self {
            measure,
            history,
            baseline,
        })
    }

    /// Writes the files and prints the output that the options request, and returns the result of
    /// the command.
    ///
    /// A file that cannot be written does not suppress the printed output. The cause of an early
    /// end takes precedence over the checks of the report.
    fn conclude(&self, ended: Ended, show: Show<'_>, terminal: &Terminal) -> Result<(), Failure> {
        let (mut report, stop) = ended;
        let compare = |baseline| bench::compare(&report, baseline);
        report.baseline = self.baseline.as_ref().map(compare);
        if !self.measure.no_history
            && let Err(failure) = self.history.keep(&report)
        {
            terminal.warning(&format!("cannot store the report: {}", failure.one_line()));
        }
        let written = self.write(&report);
        let printed = show.report(&report);
        if let Some(stop) = stop {
            return Err(interrupted(stop));
        }
        written.and(printed)?;
        Ok(self.check(&report)?)
    }

    fn write(&self, report: &BenchReport) -> Result<(), Failure> {
        let write = |path: &Option<PathBuf>, text: fn(&BenchReport) -> String| match path {
            Some(path) => files::replace(path, text(report).as_bytes()),
            None => Ok(()),
        };
        let html = write(&self.measure.html, html::page);
        let prom = write(&self.measure.prom, prom::metrics);
        html.and(prom)
    }

    /// Checks the report against its baseline first, since a regression says more than a missed
    /// minimum rate.
    fn check(&self, report: &BenchReport) -> Result<(), Fault> {
        report
            .baseline
            .as_ref()
            .map_or(Ok(()), outcome::check_comparison)?;
        self.measure
            .assert_floor
            .map_or(Ok(()), |floor| outcome::check_floor(report, floor))
    }
}

impl Measure {
    fn plan(&self) -> BenchPlan {
        let disk = |disk: DiskPlan| DiskPlan {
            reverse: self.reverse,
            ..disk
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

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use nicstripe::trust::Home;

    use super::*;
    use crate::commands::bench::{arguments::tests::parse, live::tests::events, tests::samples};

    /// Runs a simulated bench with the arguments `bench nas -q` and `words`, and returns the exit
    /// code.
    fn run(folder: &Path, words: &[&str], report: BenchReport, stop: Option<Stop>) -> u8 {
        let words: Vec<&str> = ["nas", "-q"].iter().chain(words).copied().collect();
        let bench = parse(&words).unwrap();
        let terminal = Terminal::default();
        let session = match Session::new(&bench.measure, History::of(&Home::at(folder))) {
            Ok(session) => session,
            Err(failure) => return failure.exit().code(),
        };
        let mut show = Show::new(&terminal, &bench.measure, "nas");
        events(&report)
            .iter()
            .for_each(|event| show.on_event(event));
        let result = session.conclude((report, stop), show, &terminal);
        result.map_or_else(|failure| failure.exit().code(), |()| 0)
    }

    #[test]
    fn a_report_goes_to_all_places_and_the_exit_code_says_how_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let (html, prom, base) = (path("r.html"), path("r.prom"), path("base.json"));
        let run = |words: &[&str], report, stop| run(folder.path(), words, report, stop);
        let kept = || History::of(&Home::at(folder.path())).list().unwrap().len();
        let text = |path: &str| fs::read_to_string(path).unwrap();
        let words = ["--html", &html, "--prom", &prom, "--assert-floor", "97%"];
        assert_eq!(run(&words, samples::good(), None), 0);
        assert!(text(&html).ends_with("</html>\n"));
        assert!(text(&prom).contains("nicstripe_bench_complete{peer=\"nas\"} 1"));
        assert_eq!(kept(), 1);
        assert_eq!(run(&words, samples::shared(), None), 41);
        assert_eq!(run(&["--no-history"], samples::shared(), None), 0);
        assert_eq!(kept(), 2);
        fs::write(&base, serde_json::to_vec(&samples::good()).unwrap()).unwrap();
        let words = ["--baseline", &base, "--html", &html];
        assert_eq!(run(&words, samples::good(), None), 0);
        assert_eq!(run(&words, samples::shared(), None), 41);
        assert!(text(&html).contains("SLOWER (significant)"));
        // A signal outranks the verdict, and the partial report is written.
        let words = ["--html", &html, "--assert-floor", "97%"];
        for (stop, code) in [(Stop::Interrupt, 130), (Stop::Terminate, 143)] {
            assert_eq!(run(&words, samples::partial(), Some(stop)), code);
            assert!(text(&html).contains("Incomplete"));
        }
    }

    #[test]
    fn what_cannot_work_is_found_before_anything_is_measured() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        fs::write(path("x.json"), "{}").unwrap();
        for words in [
            ["--html", &path("none/r.html")],
            ["--baseline", "ffffffff"],
            ["--baseline", &path("x.json")],
        ] {
            let code = run(folder.path(), &words, samples::good(), None);
            assert_eq!(code, 11, "{words:?}");
        }
    }

    #[test]
    fn without_a_report_the_failure_counts_unless_a_signal_was_its_cause() {
        for (stop, code) in [(None, 10), (Some(Stop::Interrupt), 130)] {
            let failure = nicstripe::Error::NoInterface { why: "none is up" };
            let result = ended(Err(failure), stop);
            assert_eq!(result.unwrap_err().exit().code(), code);
        }
    }
}
