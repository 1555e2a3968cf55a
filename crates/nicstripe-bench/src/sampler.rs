//! Local measurements for a benchmark: processor time, interface counters, and facts about the
//! machine.

use std::{collections::BTreeMap, time::Duration};

use nicstripe_link::{
    CpuMeter, CpuReading, Interface, InterfaceIndex, counters, facts::HostFacts, interface_details,
    interfaces,
};
use nicstripe_proto::message::{BenchFacts, BenchInterface, CpuSample, MAX_CORES, MAX_FACTS};

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

/// Returns the facts about this machine and the named interfaces. Takes some milliseconds, longer
/// with a slow driver.
pub fn facts(names: impl Iterator<Item = String>) -> BenchFacts {
    let listed = interfaces().unwrap_or_default();
    let host = HostFacts::read();
    BenchFacts {
        version: env!("CARGO_PKG_VERSION").into(),
        name: host.name,
        os: host.os,
        kernel: host.kernel,
        cpu: host.cpu,
        cores: host.cores,
        cpu_mhz: host.cpu_mhz,
        congestion: host.congestion,
        receive_buffer_max: host.receive_buffer_max_bytes,
        send_buffer_max: host.send_buffer_max_bytes,
        cpu_quota_millicores: host.cpu_quota_millicores,
        interfaces: names
            .take(MAX_FACTS.0)
            .map(|name| interface_of(name, &listed))
            .collect(),
        timestamps: host.timestamps,
    }
}

fn interface_of(name: String, listed: &[Interface]) -> BenchInterface {
    let Some(found) = listed.iter().find(|interface| interface.is_called(&name)) else {
        return BenchInterface {
            name,
            ..BenchInterface::default()
        };
    };
    let details = interface_details(&found.name);
    let offloads = details
        .offloads
        .map(|names| names.into_iter().map(str::to_owned));
    let rates = found.speed.into_iter().chain(found.egress_limit);
    BenchInterface {
        name,
        driver: details.driver,
        duplex: details.duplex.map(str::to_owned),
        offloads: offloads.map(Iterator::collect),
        mtu: Some(found.mtu),
        line_bps: rates.map(|rate| rate.0).min(),
    }
}

#[cfg(test)]
mod tests {
    use nicstripe_proto::message::BenchBody;

    use super::*;

    #[test]
    fn what_is_told_of_this_machine_is_within_the_bounds_of_the_protocol() {
        let facts = facts(["lo", "nosuch0"].map(str::to_owned).into_iter());
        assert!(
            facts.name.is_some() && facts.kernel.is_some() && facts.cores.is_some(),
            "{facts:?}"
        );
        assert_eq!(
            facts
                .interfaces
                .iter()
                .map(|interface| interface.mtu.is_some())
                .collect::<Vec<_>>(),
            [true, false]
        );
        assert!(BenchBody::Facts(facts).is_bounded());
    }

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
