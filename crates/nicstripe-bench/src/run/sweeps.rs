//! Sweeps: series of measurements that vary one or two quantities.
//!
//! `crate::sweep` plans the next point, repeated measurements and the end. This
//! module measures.

use std::time::{Duration, Instant};

use nicstripe_proto::{BitRate, PathId};

use super::Runner;
use crate::{
    client::{Client, Failure, Packets as _},
    control::{Control, Load},
    event::BenchEvent,
    plan::BenchPlan,
    report::{Sweep, SweepKind, SweepPoint},
    sweep::{
        BufferSweep, GridSweep, Measured, MessageSweep, MtuSweep, Planner, Point, Stopped,
        StreamSweep,
    },
};

/// Runs the planned sweeps. Skips a point that cannot be measured and continues its sweep.
pub(super) async fn sweeps<C: Client>(
    runner: &mut Runner<C>,
    talk: &mut Control<C>,
) -> Result<(), C::Error> {
    let kinds = runner.plan.sweeps.clone();
    for (index, kind) in kinds.iter().copied().enumerate() {
        runner.report_time_left(
            0,
            kinds[index..]
                .iter()
                .map(|kind| longest_of(*kind, &runner.plan))
                .sum(),
        );
        let swept = runner.sweep(kind, talk).await;
        runner.end_sweep().await;
        swept?;
    }
    Ok(())
}

/// Sweep in progress: its link, planner and results.
#[derive(Debug)]
pub(super) struct Swept {
    link: Option<u32>,
    planner: Box<dyn Planner>,
    /// True if the sweep ended because the benchmark's time was over.
    is_late: bool,
    /// True if a point of the sweep could not be measured.
    is_short: bool,
}

impl Swept {
    fn new(link: Option<u32>, planner: Box<dyn Planner>) -> Self {
        Self {
            link,
            planner,
            is_late: false,
            is_short: false,
        }
    }

    /// Returns true if a part of the sweep was not measured.
    fn is_incomplete(&self) -> bool {
        self.is_late
            || self.is_short
            || self.planner.next().is_some()
            || self.planner.stopped() == Stopped::Budget
    }

    /// Returns the results of the sweep so far; `None` if nothing was measured.
    fn found(&self) -> Option<Sweep> {
        let mut found = self.planner.outcome();
        found.link = self.link;
        // Applies even if only the second measurement of slow points was left.
        if self.is_late {
            found.stopped = Stopped::Budget.to_string();
        }
        let is_something = !found.points.is_empty() || self.planner.stopped() == Stopped::Failed;
        is_something.then_some(found)
    }

    /// Returns the results so far of one point of the sweep.
    fn known(&self, point: &Point) -> Option<SweepPoint> {
        // A sweep of connections has them as its sizes.
        let size = point.size.or(point.streams.map(u64::from));
        let streams = point.streams.filter(|_| point.size.is_some());
        let points = self.planner.outcome().points;
        points
            .into_iter()
            .find(|known| (known.size, known.streams) == (size, streams))
    }
}

impl<C: Client> Runner<C> {
    async fn sweep(&mut self, kind: SweepKind, talk: &mut Control<C>) -> Result<(), C::Error> {
        let Some(first) = self.links.ids().first().copied() else {
            return Ok(());
        };
        let link = (kind == SweepKind::Message).then_some(first);
        self.sweep = Some(Swept::new(link, self.planner(kind, first).await));
        let path = link.and_then(|link| self.links.path(link));
        let mut run = path.map(|path| Load::none(vec![path.0]));
        if let Some(run) = &mut run {
            talk.begin_run(run).await?;
        }
        while let Some(point) = self.next_point() {
            let measured = match path {
                Some(path) => self.message(talk, path, &point).await,
                None => self.load_point(kind, &point).await,
            };
            self.took(kind, &point, measured);
        }
        match &mut run {
            Some(run) => talk.end_run(run).await,
            None => Ok(()),
        }
    }

    /// Prepares a sweep of this kind. A sweep of messages uses the `first` link.
    async fn planner(&mut self, kind: SweepKind, first: u32) -> Box<dyn Planner> {
        match kind {
            SweepKind::Message => {
                let left = self.deadline.map_or(MESSAGES_TIME, |deadline| {
                    deadline.saturating_duration_since(Instant::now())
                });
                Box::new(MessageSweep::new(
                    self.segment(first),
                    self.rate_alone(first),
                    left.min(MESSAGES_TIME),
                ))
            }
            SweepKind::Buffer => Box::new(BufferSweep::new(self.bdp())),
            SweepKind::Streams => Box::<StreamSweep>::default(),
            SweepKind::Grid => Box::new(GridSweep::new(self.largest_buffer())),
            SweepKind::Mtu => {
                let packets = self.claim_packets().await;
                let may_set = packets.is_ok();
                match packets {
                    Ok(packets) => self.packets = Some(packets),
                    Err(why) => self.note(format!(
                        "other packet sizes are computed, not measured: {why}"
                    )),
                }
                Box::new(MtuSweep::new(self.narrowest(), may_set))
            }
        }
    }

    async fn claim_packets(&self) -> Result<C::Packets, String> {
        let links = self.report.links.iter();
        let interfaces = links.map(|link| link.ends.client.name.clone()).collect();
        self.client.claim_packets(interfaces).await
    }

    fn next_point(&mut self) -> Option<Point> {
        let is_over = self.is_over();
        let swept = self.sweep.as_mut()?;
        let next = swept.planner.next()?;
        swept.is_late = is_over;
        (!is_over).then_some(next)
    }

    /// Passes the result of a point to the planner. Sends the point as an event once its repeats
    /// are complete.
    fn took(&mut self, kind: SweepKind, point: &Point, measured: Result<Measured, C::Error>) {
        let Some(swept) = self.sweep.as_mut() else {
            return;
        };
        let failure = match measured {
            Ok(measured) => {
                swept.planner.record(point, measured);
                None
            }
            Err(error) => {
                swept.planner.fail(point);
                swept.is_short = true;
                Some(format!(
                    "{} could not be measured: {}",
                    named(kind, point),
                    C::text(&error)
                ))
            }
        };
        let is_done = swept
            .planner
            .next()
            .is_none_or(|next| (next.size, next.streams) != (point.size, point.streams));
        let known = swept.known(point).filter(|_| is_done && failure.is_none());
        if let Some(point) = known {
            let _ = self.events.try_send(BenchEvent::Point { kind, point });
        }
        failure.into_iter().for_each(|text| self.note(text));
    }

    /// Measures the time of messages of one size on a path: half a round trip, or one-way delivery
    /// of messages that are longer than an echo.
    async fn message(
        &self,
        talk: &Control<C>,
        path: PathId,
        point: &Point,
    ) -> Result<Measured, C::Error> {
        let size = point.size.unwrap_or(1);
        let least = point.least.min(self.plan.load);
        let fewest = u32::try_from(point.echoes.unwrap_or(1)).unwrap_or(u32::MAX);
        let began = Instant::now();
        let mut times = talk.ping(path, fewest, size, LONGEST_MESSAGES).await?;
        let left = least.saturating_sub(began.elapsed());
        if !times.is_empty() && !left.is_zero() {
            times.extend(talk.ping(path, u32::MAX, size, left).await?);
        }
        times.sort_unstable();
        let lost = || self.client.error(Failure::Ended("connection lost"));
        let middle = *times.get(times.len() / 2).ok_or_else(lost)?;
        let time = if point.echoes.is_some() {
            middle / 2
        } else {
            middle
        };
        Ok(Measured {
            rate: BitRate::from_bytes_over(size, time),
            elapsed: began.elapsed(),
            time: Some(time),
            ..Measured::default()
        })
    }

    /// Ends the current sweep: closes its session, restores the MTUs, and adds its results to the
    /// report. Must run however the benchmark ends.
    pub(super) async fn end_sweep(&mut self) {
        self.end_apart().await;
        if let Some(packets) = self.packets.take()
            && let Err(error) = packets.restore().await
        {
            tracing::warn!(error = %C::text(&error), "cannot restore MTU");
        }
        if let Some(swept) = self.sweep.take() {
            self.is_short |= swept.is_incomplete();
            self.report.sweeps.extend(swept.found());
        }
    }
}

/// Returns the maximum duration of the plan's sweeps, for the estimate that queued clients see.
pub(super) fn longest(plan: &BenchPlan) -> Duration {
    plan.sweeps.iter().map(|kind| longest_of(*kind, plan)).sum()
}

fn longest_of(kind: SweepKind, plan: &BenchPlan) -> Duration {
    let each = plan.warm_up + plan.load.min(Duration::from_secs(2)) + plan.interval;
    match kind {
        SweepKind::Message => MESSAGES_TIME,
        SweepKind::Buffer => each * 60,
        SweepKind::Streams | SweepKind::Mtu => each * 12,
        SweepKind::Grid => each * 72,
    }
}

/// Returns the display name of a point, such as `buffers of 65536 bytes`.
fn named(kind: SweepKind, point: &Point) -> String {
    let size = point.size.map_or_else(
        || "the system default".to_owned(),
        |size| format!("{size} bytes"),
    );
    match (kind, point.streams) {
        (SweepKind::Message, _) => format!("messages of {size}"),
        (SweepKind::Mtu, _) => format!("packets of {size}"),
        (SweepKind::Streams, streams) => format!("{} connections per link", streams.unwrap_or(1)),
        (SweepKind::Buffer | SweepKind::Grid, None) => format!("buffers of {size}"),
        (SweepKind::Buffer | SweepKind::Grid, Some(streams)) => {
            format!("buffers of {size} and {streams} connections per link")
        }
    }
}

/// Maximum duration of one sweep of message sizes.
const MESSAGES_TIME: Duration = Duration::from_secs(60);

/// Time after which no further message of a point is sent. The point keeps the results measured so
/// far.
const LONGEST_MESSAGES: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_that_ends_by_itself_as_its_time_is_up_is_not_complete() {
        let budget = Duration::from_millis(1);
        let mut swept = Swept::new(Some(1), Box::new(MessageSweep::new(None, None, budget)));
        while let Some(point) = swept.planner.next() {
            swept.planner.record(
                &point,
                Measured {
                    rate: BitRate::from_mbit(1),
                    elapsed: budget,
                    time: Some(budget),
                    ..Measured::default()
                },
            );
        }
        assert_eq!(
            swept.found().map(|sweep| sweep.stopped),
            Some("the time was up".into())
        );
        assert!(swept.is_incomplete());
    }

    #[test]
    fn a_sweep_without_the_time_to_look_again_says_that_its_time_was_up() {
        let mut swept = Swept::new(
            Some(1),
            Box::new(MessageSweep::new(None, None, Duration::from_secs(60))),
        );
        while let Some(point) = swept.planner.next() {
            let size = point.size.unwrap();
            let is_slow = size == 4096;
            // Slow points are measured again after all others.
            if is_slow && swept.known(&point).is_some_and(|known| known.rate.n >= 3) {
                break;
            }
            let time = Duration::from_nanos(10_000 + size * if is_slow { 100 } else { 1 });
            let rate = BitRate::from_bytes_over(size, time);
            swept.planner.record(
                &point,
                Measured {
                    rate,
                    elapsed: time,
                    time: Some(time),
                    ..Measured::default()
                },
            );
        }
        assert_ne!(swept.planner.stopped(), Stopped::Early);
        swept.is_late = true;
        assert_eq!(
            swept.found().map(|sweep| sweep.stopped),
            Some("the time was up".into())
        );
    }
}
