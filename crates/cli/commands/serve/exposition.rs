//! Metrics of a daemon as OpenMetrics text for Prometheus.

use std::{fmt, fs, sync::OnceLock, time::SystemTime};

use nicstripe::{DaemonHandle, Histogram, Metrics};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, NoLabelSet, text},
    metrics::{MetricType, exemplar::Exemplar},
    registry::{Registry, Unit},
};

/// Records the start time of this process, at the first call only.
pub(super) fn remember_start() {
    STARTED.get_or_init(|| {
        SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0.0, |since| since.as_secs_f64())
    });
}

static STARTED: OnceLock<f64> = OnceLock::new();

/// Returns the current metrics of a daemon as OpenMetrics text.
pub(super) fn exposition(daemon: &DaemonHandle) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Numbers(daemon.metrics())));
    let mut body = String::new();
    text::encode(&mut body, &registry)?;
    Ok(body)
}

#[derive(Debug)]
struct Numbers(Metrics);

impl Collector for Numbers {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut page = Page(encoder);
        page.process()?;
        page.sessions(&self.0)?;
        page.transfers(&self.0)?;
        page.safety(&self.0)
    }
}

type Label<'a> = (&'static str, &'a str);

struct Page<'a>(DescriptorEncoder<'a>);

impl Page<'_> {
    fn process(&mut self) -> fmt::Result {
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        self.0
            .encode_descriptor(
                "nicstripe_build",
                "Version of the daemon",
                None,
                MetricType::Info,
            )?
            .encode_info(&version)?;
        let started = STARTED.get().copied().unwrap_or(0.0);
        self.gauge(
            "process_start_time",
            "Start time of the process since the Unix epoch",
            Some(&Unit::Seconds),
            started,
        )?;
        if let Some(bytes) = resident_bytes() {
            self.gauge(
                "process_resident_memory",
                "Resident memory of the process",
                Some(&Unit::Bytes),
                bytes,
            )?;
        }
        match fs::read_dir("/proc/self/fd") {
            Ok(entries) => self.gauge(
                "process_open_fds",
                "Open file descriptors",
                None,
                entries.count() as u64,
            ),
            Err(_) => Ok(()),
        }
    }

    fn sessions(&mut self, metrics: &Metrics) -> fmt::Result {
        self.gauge(
            "nicstripe_sessions",
            "Open sessions",
            None,
            metrics.sessions,
        )?;
        self.counter(
            "nicstripe_sessions_begun",
            "Sessions started",
            None,
            metrics.sessions_begun,
        )?;
        let paths = [
            ("up", metrics.paths.up),
            ("suspect", metrics.paths.suspect),
            ("down", metrics.paths.down),
        ];
        let paths = paths.map(|(state, count)| ([("state", state)], count));
        self.gauges("nicstripe_paths", "Paths of all sessions by state", &paths)?;
        let lost = metrics
            .paths_lost
            .iter()
            .map(|(reason, count)| ([("reason", *reason)], *count));
        self.counters(
            "nicstripe_paths_lost",
            "Connected paths lost, by reason",
            None,
            lost,
        )?;
        self.gauge(
            "nicstripe_greetings",
            "Connections not yet authenticated",
            None,
            metrics.greetings,
        )?;
        let refused = metrics
            .greetings_refused
            .iter()
            .map(|(reason, count)| ([("reason", *reason)], *count));
        self.counters(
            "nicstripe_greetings_refused",
            "Connections rejected before authentication, by reason",
            None,
            refused,
        )
    }

    fn transfers(&mut self, metrics: &Metrics) -> fmt::Result {
        self.gauge(
            "nicstripe_transfers_running",
            "Running transfers",
            None,
            metrics.transfers,
        )?;
        let ended = metrics.transfers_ended.iter();
        let ended = ended.map(|((direction, result), count)| {
            (
                [("direction", direction.word()), ("result", *result)],
                *count,
            )
        });
        self.counters(
            "nicstripe_transfers",
            "Transfers ended, by direction and result",
            None,
            ended,
        )?;
        let bytes = metrics.interfaces.iter().flat_map(|(interface, bytes)| {
            let labels = |direction| [("interface", interface.as_str()), ("direction", direction)];
            [
                (labels("receive"), bytes.received),
                (labels("send"), bytes.sent),
            ]
        });
        self.counters(
            "nicstripe_payload",
            "Payload by local interface and direction",
            Some(&Unit::Bytes),
            bytes,
        )
    }

    fn safety(&mut self, metrics: &Metrics) -> fmt::Result {
        let resent = "Chunks sent or received more than once";
        self.counter(
            "nicstripe_chunks_resent",
            resent,
            Some(&Unit::Bytes),
            metrics.resent_bytes,
        )?;
        self.counter(
            "nicstripe_corrupt_chunks",
            "Received chunks with a wrong hash",
            None,
            metrics.corrupt_chunks,
        )?;
        self.counter(
            "nicstripe_digest_mismatches",
            "Received files with a wrong digest",
            None,
            metrics.digest_mismatches,
        )?;
        self.histogram(
            "nicstripe_disk_sync",
            "Time to make received data durable",
            &metrics.syncs,
        )?;
        self.gauge(
            "nicstripe_buffers_held",
            "Memory of chunks in flight",
            Some(&Unit::Bytes),
            metrics.buffer_bytes,
        )
    }

    fn gauge(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        value: impl EncodeGaugeValue,
    ) -> fmt::Result {
        self.0
            .encode_descriptor(name, help, unit, MetricType::Gauge)?
            .encode_gauge(&value)
    }

    fn gauges(&mut self, name: &str, help: &str, values: &[([Label<'_>; 1], u64)]) -> fmt::Result {
        let mut family = self
            .0
            .encode_descriptor(name, help, None, MetricType::Gauge)?;
        values
            .iter()
            .try_for_each(|(labels, value)| family.encode_family(labels)?.encode_gauge(value))
    }

    fn counter(&mut self, name: &str, help: &str, unit: Option<&Unit>, value: u64) -> fmt::Result {
        self.0
            .encode_descriptor(name, help, unit, MetricType::Counter)?
            .encode_counter(&value, NO_EXEMPLAR)
    }

    fn counters<'l, const N: usize, V: EncodeCounterValue>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        values: impl IntoIterator<Item = ([Label<'l>; N], V)>,
    ) -> fmt::Result {
        let mut family = self
            .0
            .encode_descriptor(name, help, unit, MetricType::Counter)?;
        values.into_iter().try_for_each(|(labels, value)| {
            family
                .encode_family(&labels)?
                .encode_counter(&value, NO_EXEMPLAR)
        })
    }

    fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) -> fmt::Result {
        let bounds = Histogram::BOUNDS.into_iter().chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(histogram.counts).collect();
        let mut metric =
            self.0
                .encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
        metric.encode_histogram::<NoLabelSet>(
            histogram.sum.as_secs_f64(),
            histogram.count(),
            &buckets,
            None,
        )
    }
}

const NO_EXEMPLAR: Option<&Exemplar<NoLabelSet, f64>> = None;

fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}
