//! Metrics of a daemon as OpenMetrics text for Prometheus.

use std::{fmt, fs, sync::OnceLock, time::SystemTime};

use nicstripe::{DaemonHandle, Histogram, Metrics};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text},
    metrics::{MetricType, exemplar::Exemplar},
    registry::{Registry, Unit},
};

use crate::process::proc_bytes;

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
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        encoder
            .encode_descriptor("nicstripe_build", VERSION, None, MetricType::Info)?
            .encode_info(&version)?;
        let started = STARTED.get().copied().unwrap_or(0.0);
        let unit = Some(&Unit::Seconds);
        encoder
            .encode_descriptor("process_start_time", START_TIME, unit, MetricType::Gauge)?
            .encode_gauge(&started)?;
        let families = [process(), sessions(&self.0), transfers(&self.0)];
        families
            .iter()
            .flatten()
            .chain(&resent_and_damaged(&self.0))
            .try_for_each(|family| family.encode(&mut encoder))?;
        encode_syncs(&self.0.syncs, &mut encoder)?;
        let buffers = Family::gauge(
            "nicstripe_buffers_held",
            "Memory of chunks in flight",
            self.0.buffer_bytes,
        );
        buffers.of(Unit::Bytes).encode(&mut encoder)
    }
}

const VERSION: &str = "Version of the daemon";
const START_TIME: &str = "Start time of the process since the Unix epoch";

fn process() -> Vec<Family<'static>> {
    let memory = proc_bytes("/proc/self/status", "VmRSS:").map(|bytes| {
        let help = "Resident memory of the process";
        Family::gauge("process_resident_memory", help, bytes).of(Unit::Bytes)
    });
    let files = fs::read_dir("/proc/self/fd").ok().map(|entries| {
        let count = entries.count() as u64;
        Family::gauge("process_open_fds", "Open file descriptors", count)
    });
    memory.into_iter().chain(files).collect()
}

fn sessions(metrics: &Metrics) -> Vec<Family<'_>> {
    let paths = [
        ("up", metrics.paths.up),
        ("suspect", metrics.paths.suspect),
        ("down", metrics.paths.down),
    ];
    let paths = paths.map(|(state, count)| (vec![("state", state)], count));
    let by_reason = |(reason, count): (&&'static str, &u64)| (vec![("reason", *reason)], *count);
    vec![
        Family::gauge("nicstripe_sessions", "Open sessions", metrics.sessions),
        Family::counter(
            "nicstripe_sessions_begun",
            "Sessions started",
            metrics.sessions_begun,
        ),
        Family {
            kind: MetricType::Gauge,
            ..Family::counters("nicstripe_paths", "Paths of all sessions by state", paths)
        },
        Family::counters(
            "nicstripe_paths_lost",
            "Connected paths lost, by reason",
            metrics.paths_lost.iter().map(by_reason),
        ),
        Family::gauge(
            "nicstripe_greetings",
            "Connections not yet authenticated",
            metrics.greetings,
        ),
        Family::counters(
            "nicstripe_greetings_refused",
            "Connections rejected before authentication, by reason",
            metrics.greetings_refused.iter().map(by_reason),
        ),
    ]
}

fn transfers(metrics: &Metrics) -> Vec<Family<'_>> {
    let ended = metrics.transfers_ended.iter();
    let ended = ended.map(|((direction, result), count)| {
        let labels = vec![("direction", direction.word()), ("result", *result)];
        (labels, *count)
    });
    let bytes = metrics.interfaces.iter().flat_map(|(interface, bytes)| {
        let labels = |direction| vec![("interface", interface.as_str()), ("direction", direction)];
        [
            (labels("receive"), bytes.received),
            (labels("send"), bytes.sent),
        ]
    });
    vec![
        Family::gauge(
            "nicstripe_transfers_running",
            "Running transfers",
            metrics.transfers,
        ),
        Family::counters(
            "nicstripe_transfers",
            "Transfers ended, by direction and result",
            ended,
        ),
        Family::counters(
            "nicstripe_payload",
            "Payload by local interface and direction",
            bytes,
        )
        .of(Unit::Bytes),
    ]
}

fn resent_and_damaged(metrics: &Metrics) -> [Family<'static>; 3] {
    [
        Family::counter(
            "nicstripe_chunks_resent",
            "Chunks sent or received more than once",
            metrics.resent_bytes,
        )
        .of(Unit::Bytes),
        Family::counter(
            "nicstripe_corrupt_chunks",
            "Received chunks with a wrong hash",
            metrics.corrupt_chunks,
        ),
        Family::counter(
            "nicstripe_digest_mismatches",
            "Received files with a wrong digest",
            metrics.digest_mismatches,
        ),
    ]
}

type Label<'a> = (&'static str, &'a str);

/// Prometheus metric family: one metric name, with a value for each set of labels.
struct Family<'a> {
    name: &'static str,
    help: &'static str,
    unit: Option<Unit>,
    kind: MetricType,
    values: Vec<(Vec<Label<'a>>, u64)>,
}

impl<'a> Family<'a> {
    fn counters(
        name: &'static str,
        help: &'static str,
        values: impl IntoIterator<Item = (Vec<Label<'a>>, u64)>,
    ) -> Self {
        Self {
            name,
            help,
            unit: None,
            kind: MetricType::Counter,
            values: values.into_iter().collect(),
        }
    }

    fn counter(name: &'static str, help: &'static str, value: u64) -> Self {
        Self::counters(name, help, [(Vec::new(), value)])
    }

    fn gauge(name: &'static str, help: &'static str, value: u64) -> Self {
        Self {
            kind: MetricType::Gauge,
            ..Self::counter(name, help, value)
        }
    }

    fn of(self, unit: Unit) -> Self {
        Self {
            unit: Some(unit),
            ..self
        }
    }

    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let (name, unit) = (self.name, self.unit.as_ref());
        let mut family = encoder.encode_descriptor(name, self.help, unit, self.kind)?;
        let encode = |metric: &mut MetricEncoder<'_>, value: &u64| match self.kind {
            MetricType::Gauge => metric.encode_gauge(value),
            _ => metric.encode_counter(value, NO_EXEMPLAR),
        };
        self.values
            .iter()
            .try_for_each(|(labels, value)| match labels.is_empty() {
                true => encode(&mut family, value),
                false => encode(&mut family.encode_family(labels)?, value),
            })
    }
}

fn encode_syncs(syncs: &Histogram, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let bounds = Histogram::BOUNDS.into_iter().chain([f64::INFINITY]);
    let buckets: Vec<(f64, u64)> = bounds.zip(syncs.counts).collect();
    let (help, unit) = ("Time to make received data durable", Some(&Unit::Seconds));
    let kind = MetricType::Histogram;
    let mut metric = encoder.encode_descriptor("nicstripe_disk_sync", help, unit, kind)?;
    let sum = syncs.sum.as_secs_f64();
    metric.encode_histogram::<NoLabelSet>(sum, syncs.count(), &buckets, None)
}

const NO_EXEMPLAR: Option<&Exemplar<NoLabelSet, f64>> = None;
