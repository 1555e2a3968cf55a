//! Local measurements for a benchmark: processor time and interface counters.

use std::{collections::BTreeMap, time::Duration};

use nicstripe_link::{CpuMeter, CpuReading, InterfaceIndex, counters, interfaces};
use nicstripe_proto::message::{CpuSample, MAX_CORES};

/// Meter of the processor time since the start of a load.
#[derive(Debug)]
pub struct CpuSampler {
    meter: CpuMeter,
    first: CpuReading,
}

impl CpuSampler {
    /// Starts counting. Create a new one for each load, because the process may move to another
    /// control group.
    pub fn begin() -> Self {
        let meter = CpuMeter::find();
        Self {
            first: meter.read(),
            meter,
        }
    }

    /// Returns the processor time since [`CpuSampler::begin`]; `None` if the system does not report
    /// it.
    pub fn sample(&self) -> Option<CpuSample> {
        let spent = self.meter.read().since(&self.first);
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
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Indices of the interfaces whose received and sent bytes are counted, by name.
#[derive(Debug, Default)]
pub struct InterfaceCounters(BTreeMap<String, InterfaceIndex>);

impl InterfaceCounters {
    /// Looks up the indices of interfaces by name.
    pub fn of(names: impl Iterator<Item = String>) -> Self {
        let listed = interfaces().unwrap_or_default();
        let index = |name: String| {
            listed
                .iter()
                .find(|interface| interface.is_called(&name))
                .map(|found| (name, found.index))
        };
        Self(names.filter_map(index).collect())
    }

    /// Returns the received and sent bytes of each interface, by name.
    pub fn read(&self) -> BTreeMap<String, (u64, u64)> {
        let read = |(name, index): (&String, &InterfaceIndex)| {
            let counted = counters(*index).ok()?;
            Some((name.clone(), (counted.received, counted.sent)))
        };
        self.0.iter().filter_map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_only_rises() {
        let sampler = CpuSampler::begin();
        let [one, other] = std::array::from_fn(|_| sampler.sample().unwrap());
        assert!(
            other.user_us >= one.user_us
                && other.process_us >= one.process_us
                && other.cores_us.len() == one.cores_us.len()
        );
    }
}
