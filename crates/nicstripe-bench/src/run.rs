//! Runs a benchmark: round trips, loads, sweeps and disk stages in sequence. The report is
//! consistent at any time.

mod apart;
mod disk;
mod given;
mod sweeps;

use std::time::{Duration, Instant};

use jiff::Timestamp;
use nicstripe_link::facts::Facts;
use nicstripe_proto::BitRate;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::{
    client::{Client, Failure},
    control::{Control, Load},
    event::BenchEvent,
    links::Links,
    plan::BenchPlan,
    repeat::{Planned, Schedule},
    report::{BenchReport, Ends, Phase, RoundTrips, Run, SCHEMA},
    summary::conclude,
    window::SETTLING,
};

/// Maximum time to measure the round trips of one link.
const PINGING: Duration = Duration::from_secs(5);

/// Size of a round-trip message in bytes.
const PING_BYTES: u64 = 64;

/// Time before the end of the duration granted by the daemon in which no load starts.
const TIME_LEFT: Duration = Duration::from_secs(2);

/// State of a running benchmark at the client.
pub struct Runner<C: Client> {
    client: C,
    plan: BenchPlan,
    events: mpsc::Sender<BenchEvent>,
    stop: CancellationToken,
    began: Instant,
    report: BenchReport,
    /// Random benchmark id, shared by all sessions of the benchmark.
    id: [u8; 16],
    links: Links,
    /// Total duration of the completed loads.
    loading: Duration,
    /// Load in progress.
    under_way: Option<Load>,
    /// Time after which no further measurement starts.
    deadline: Option<Instant>,
    /// True if a part of the plan was not measured.
    is_short: bool,
    /// Sweep in progress.
    sweep: Option<sweeps::Swept>,
    /// Interfaces whose MTU the current sweep changes, restored at its end.
    packets: Option<C::Packets>,
    /// Separate session of the current sweep, closed at its end.
    apart: Option<apart::Apart<C>>,
}

impl<C: Client> Runner<C> {
    /// Prepares a benchmark. `id` is random.
    pub fn new(
        client: C,
        id: [u8; 16],
        plan: BenchPlan,
        events: mpsc::Sender<BenchEvent>,
        stop: CancellationToken,
    ) -> Self {
        let (plan, began) = (plan.bounded(), Instant::now());
        let report = BenchReport {
            schema: SCHEMA.into(),
            id: id.iter().map(|byte| format!("{byte:02x}")).collect(),
            started: format!("{:.0}", Timestamp::now()),
            versions: Ends {
                client: env!("CARGO_PKG_VERSION").into(),
                daemon: String::new(),
            },
            plan: plan.summary(1),
            ..BenchReport::default()
        };
        let deadline = plan.budget.map(|budget| began + budget);
        Self {
            client,
            plan,
            events,
            stop,
            began,
            report,
            id,
            links: Links::default(),
            loading: Duration::ZERO,
            under_way: None,
            deadline,
            is_short: false,
            sweep: None,
            packets: None,
            apart: None,
        }
    }

    /// Runs the benchmark until its end, or until it is stopped.
    ///
    /// # Errors
    ///
    /// The benchmark ended before any measurement. A later failure yields an incomplete report and
    /// a [`BenchEvent::Note`].
    pub async fn run(mut self) -> Result<BenchReport, C::Error> {
        let stop = self.stop.clone();
        let mut talk = None;
        let result = tokio::select! {
            biased;
            () = stop.cancelled() => Err(self.client.error(Failure::Cancelled)),
            result = self.measure(&mut talk) => result,
        };
        self.end_sweep().await;
        // An interrupted benchmark leaves no running load.
        if let Some(talk) = &talk {
            talk.leave().await;
        }
        self.finish_partial();
        match result {
            Ok(()) => self.report.complete = !self.is_short,
            Err(error) if self.report.links.is_empty() => return Err(error),
            Err(error) => self.note(C::text(&error)),
        }
        self.report.elapsed_s = self.began.elapsed().as_secs_f64();
        conclude(&mut self.report);
        Ok(self.report)
    }

    async fn measure(&mut self, control: &mut Option<Control<C>>) -> Result<(), C::Error> {
        let (talk, paths) = Control::begin(self.client.clone()).await?;
        let talk = control.insert(talk);
        let (time, version) = talk
            .enter(self.id, self.expected_seconds(paths.len()), &self.events)
            .await?;
        let over = Instant::now() + time.saturating_sub(TIME_LEFT);
        self.deadline = Some(self.deadline.map_or(over, |deadline| deadline.min(over)));
        let here = tokio::task::spawn_blocking(Facts::of_this_machine);
        let (here, there) = (here.await, self.client.facts().await);
        // A panic of the reader leaves this machine unknown.
        let (here, there) = (here.unwrap_or_default(), there.unwrap_or_default());
        self.meet(Links::new(&paths, &here, &there), version, here, there);
        let _ = self.events.try_send(BenchEvent::Connected {
            links: self.report.links.clone(),
        });
        self.loads(talk).await?;
        sweeps::sweeps(self, talk).await?;
        disk::measure(self, talk).await
    }

    fn meet(&mut self, links: Links, version: String, here: Facts, there: Facts) {
        self.report.versions.daemon = version;
        self.report.hosts = Ends {
            client: here.host,
            daemon: there.host,
        };
        self.report.plan = self.plan.summary(links.streams());
        self.report.links.clone_from(&links.links);
        self.links = links;
    }

    fn note(&self, text: String) {
        let _ = self.events.try_send(BenchEvent::Note(text));
    }

    /// Marks the benchmark as incomplete and notes which part is skipped, and why.
    fn leave_out(&mut self, what: &str, why: &str) {
        self.is_short = true;
        self.note(format!("{what} skipped: {why}"));
    }

    /// Returns true if the deadline has passed, so that no further measurement starts.
    fn is_over(&self) -> bool {
        self.deadline
            .is_some_and(|deadline| deadline <= Instant::now())
    }

    /// Returns the maximum duration of the benchmark in seconds, if every load takes its maximum.
    /// The daemon sends it to clients in the queue.
    fn expected_seconds(&self, links: usize) -> u32 {
        let loads: usize = self
            .plan
            .phases
            .iter()
            .map(|phase| if *phase == Phase::Solo { links } else { 1 })
            .sum();
        let each = self.plan.load + self.plan.warm_up + self.plan.interval;
        let all = each.saturating_mul(
            u32::try_from(loads)
                .unwrap_or(u32::MAX)
                .saturating_mul(*self.plan.repeats.end()),
        );
        let all = all.saturating_add(sweeps::longest(&self.plan));
        self.plan
            .budget
            .unwrap_or(all)
            .min(all)
            .as_secs()
            .try_into()
            .unwrap_or(u32::MAX)
    }

    async fn idle(&mut self, talk: &Control<C>) -> Result<(), C::Error> {
        for id in self.links.ids() {
            let Some(path) = self.links.path(id) else {
                continue;
            };
            let times = talk
                .ping(path, self.plan.pings, PING_BYTES, PINGING)
                .await?;
            let micros: Vec<f64> = times
                .iter()
                .map(|time| time.as_nanos() as f64 / 1e3)
                .collect();
            let Some(round_trips) = RoundTrips::of(&micros) else {
                continue;
            };
            if let Some(link) = self.report.links.iter_mut().find(|link| link.id == id) {
                link.rtt_idle = Some(round_trips);
            }
            let _ = self.events.try_send(BenchEvent::Idle {
                link: id,
                round_trips,
            });
        }
        Ok(())
    }

    async fn loads(&mut self, talk: &mut Control<C>) -> Result<(), C::Error> {
        let repeats = self.plan.repeats.clone();
        let mut schedule = Schedule::new(&self.plan.phases, &self.links.ids(), repeats);
        while let Some(planned) = schedule.next() {
            if self.is_over() {
                self.is_short = true;
                self.note("time limit reached before all repeats".into());
                return Ok(());
            }
            if planned.phase == Phase::Idle {
                self.idle(talk).await?;
                schedule.record(&planned, Some(BitRate::ZERO));
                continue;
            }
            self.report_time_left(schedule.loads_left(), sweeps::longest(&self.plan));
            let total = self.load(talk, &planned).await?;
            if total.is_none() {
                let links = planned.links.len();
                self.note(format!("no data received in a load of {links} links"));
            }
            schedule.record(&planned, total);
        }
        self.is_short |= schedule.has_given_up();
        Ok(())
    }

    /// Sends the estimated remaining time: `loads` further loads plus `after`. Assumes the mean
    /// duration of the completed loads, or, before the first has completed, that the rate settles
    /// at once.
    fn report_time_left(&self, loads: u32, after: Duration) {
        let settled = if self.plan.settle {
            self.plan.load.min(SETTLING)
        } else {
            self.plan.load
        };
        let done = u32::try_from(self.report.runs.len()).unwrap_or(u32::MAX);
        let each = self
            .loading
            .checked_div(done)
            .unwrap_or(self.plan.warm_up + settled + self.plan.interval);
        let left = each.saturating_mul(loads).saturating_add(after);
        let most = self.deadline.map_or(left, |deadline| {
            deadline.saturating_duration_since(Instant::now())
        });
        let _ = self.events.try_send(BenchEvent::Left(left.min(most)));
    }

    /// Runs a planned load. Returns its total rate, or `None` if no data arrived.
    async fn load(
        &mut self,
        talk: &mut Control<C>,
        planned: &Planned,
    ) -> Result<Option<BitRate>, C::Error> {
        let load = self.load_of(planned.phase, planned.repeat, &planned.links);
        let started_at = Instant::now();
        // An interruption does not lose the samples.
        let load = self.under_way.insert(load);
        talk.load(load, &self.events).await?;
        let Some(run) = self.take_run() else {
            return Ok(None);
        };
        self.loading += started_at.elapsed();
        if let Some(transfers @ 1..) = run.other_transfers {
            let count = if transfers == 1 {
                "a transfer".to_owned()
            } else {
                format!("{transfers} transfers")
            };
            self.note(format!(
                "{count} ran at the daemon during a load and used part of the capacity"
            ));
        }
        let _ = self.events.try_send(BenchEvent::RunDone(run.clone()));
        let total = BitRate(run.total_bps);
        self.report.runs.push(run);
        Ok(Some(total))
    }

    /// Returns a load over the links `ids`, from its phase and the plan.
    fn load_of(&self, phase: Phase, repeat: u32, ids: &[u32]) -> Load {
        let (paths, links) = self.links.loaded(ids);
        Load {
            phase,
            repeat,
            links,
            warm_up: self.plan.warm_up,
            longest: self.plan.load,
            interval: self.plan.interval,
            settles: self.plan.settle,
            message_bytes: self.plan.message_bytes,
            socket_buffer: self.plan.socket_buffer,
            ..Load::none(paths)
        }
    }

    /// Takes the load in progress and returns its results.
    fn take_run(&mut self) -> Option<Run> {
        self.under_way.take()?.run(self.began)
    }

    /// Adds an interrupted load to the report if its window is at least [`LEAST_WINDOW`].
    fn finish_partial(&mut self) {
        if let Some(run) = self
            .take_run()
            .filter(|run| run.window_us >= LEAST_WINDOW.as_micros() as u64)
        {
            self.report.runs.push(run);
        }
    }
}

/// Minimum measurement window of an interrupted load that is reported.
const LEAST_WINDOW: Duration = Duration::from_secs(1);
