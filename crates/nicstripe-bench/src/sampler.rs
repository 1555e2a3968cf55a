//! Samples of a run at one end: counters of its paths, their interfaces and the processors.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use nicstripe_link::{CpuMeter, CpuReading, InterfaceIndex, counters, interfaces};
use nicstripe_proto::{
    PathId,
    message::{BenchSample, CpuSample, MAX_CORES, PathSample, RunNumber, RunOrder},
};

/// Sampler of one run at one end, for the session that carries the run.
#[derive(Debug)]
pub struct Sampler {
    run: RunNumber,
    /// Paths of the run, and the local interface of each if it is known.
    paths: Vec<(PathId, Option<InterfaceIndex>)>,
    began: Instant,
    interval: Duration,
    next: Instant,
    ends_at: Instant,
    meter: CpuMeter,
    first: CpuReading,
}

impl Sampler {
    /// Begins to sample a run. `interface` returns the name of a path's local interface.
    pub fn begin<'a>(
        order: &RunOrder,
        interface: impl Fn(PathId) -> Option<&'a str>,
        now: Instant,
    ) -> Self {
        let listed = interfaces().unwrap_or_default();
        let index = |path| {
            let name = interface(path)?;
            let found = listed.iter().find(|listed| listed.is_called(name))?;
            Some(found.index)
        };
        let paths = order.paths.iter().copied().map(PathId);
        // A new one for each run, because the process may move to another control group.
        let meter = CpuMeter::find();
        Self {
            run: RunNumber { run: order.run },
            paths: paths.map(|path| (path, index(path))).collect(),
            began: now,
            interval: Duration::from_millis(order.interval_ms.into()),
            next: now,
            ends_at: now + Duration::from_millis(order.longest_ms.into()),
            first: meter.read(),
            meter,
        }
    }

    /// Returns the time of the next sample.
    pub fn next(&self) -> Instant {
        self.next
    }

    /// Returns the run if the daemon has to end it, because the client has not done so in time.
    pub fn overdue(&self, now: Instant) -> Option<RunNumber> {
        (self.ends_at <= now).then_some(self.run)
    }

    /// Takes the sample that is due. `path` returns the counters of a path, without those of its
    /// interface.
    pub fn sample(
        &mut self,
        path: impl Fn(PathId) -> PathSample,
        last: bool,
        now: Instant,
    ) -> BenchSample {
        let mut counted = BTreeMap::new();
        let mut count =
            |index: InterfaceIndex| *counted.entry(index).or_insert_with(|| counters(index).ok());
        let paths = self.paths.iter().map(|(id, interface)| {
            let carried = interface.and_then(&mut count);
            PathSample {
                interface_received: carried.map(|carried| carried.received),
                interface_sent: carried.map(|carried| carried.sent),
                ..path(*id)
            }
        });
        let sample = BenchSample {
            run: self.run.run,
            at_us: micros(now.saturating_duration_since(self.began)),
            paths: paths.collect(),
            cpu: processor_time(&self.meter, &self.first),
            last,
            transfers: None,
        };
        // A busy machine skips the samples it missed.
        while self.next <= now {
            self.next += self.interval;
        }
        sample
    }
}

/// Returns the processor time since the first reading; `None` if the system does not report it.
fn processor_time(meter: &CpuMeter, first: &CpuReading) -> Option<CpuSample> {
    let spent = meter.read().since(first);
    let mut cores_us: Vec<u64> = spent.cores.into_iter().map(micros).collect();
    cores_us.truncate(MAX_CORES);
    Some(CpuSample {
        user_us: micros(spent.user?),
        system_us: micros(spent.system?),
        softirq_us: micros(spent.interrupts?),
        process_us: micros(spent.process?),
        throttled_us: spent.throttled.map(micros),
        cores_us,
    })
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_only_rises() {
        let meter = CpuMeter::find();
        let first = meter.read();
        let [one, other] = std::array::from_fn(|_| processor_time(&meter, &first).unwrap());
        assert!(
            other.user_us >= one.user_us
                && other.process_us >= one.process_us
                && other.cores_us.len() == one.cores_us.len()
        );
    }
}
