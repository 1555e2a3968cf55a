//! Reports and events in formats whose fields have names, such as JSON (feature `serde`).
//!
//! An unknown value is absent. Field names end in their unit: `_s` seconds, `_us` microseconds,
//! `_bps` bits per second. All other sizes are bytes. `docs/schema` describes the fields, with which
//! the command prints them. A later version may add fields, and words for new variants.

use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use nicstripe_proto::Name;
use serde::{Serialize, Serializer, ser::SerializeMap};

use super::{
    KernelView, LinkReport, Report,
    event::{Event, LinkName, LinkProgress, LinkState, Progress},
    survey::UnusedInterface,
};
use crate::tree::EntryOutcome;

trait Fields {
    fn write<M: SerializeMap>(&self, object: &mut Object<M>);
}

/// Object that is being written, and the first error.
struct Object<M: SerializeMap> {
    map: M,
    result: Result<(), M::Error>,
}

impl<M: SerializeMap> Object<M> {
    fn field(&mut self, name: &'static str, value: impl Serialize) -> &mut Self {
        if self.result.is_ok() {
            self.result = self.map.serialize_entry(name, &value);
        }
        self
    }

    /// Writes a field, unless its value is unknown.
    fn known(&mut self, name: &'static str, value: Option<impl Serialize>) -> &mut Self {
        match value {
            Some(value) => self.field(name, value),
            None => self,
        }
    }

    /// Writes the fields of a value among those of this object.
    fn and(&mut self, value: &impl Fields) -> &mut Self {
        value.write(self);
        self
    }
}

macro_rules! serialized {
    ($($type:ty)*) => {$(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let map = serializer.serialize_map(None)?;
                let mut object = Object { map, result: Ok(()) };
                self.write(&mut object);
                object.result?;
                object.map.end()
            }
        }
    )*};
}

serialized!(Report LinkReport UnusedInterface);
serialized!(Event Progress LinkProgress LinkName LinkState);

/// Without the survey, which describes the machines and not the transfer.
impl Fields for Report {
    fn write<M: SerializeMap>(&self, object: &mut Object<M>) {
        object
            .field("bytes", self.size)
            .field("size_bytes", self.size)
            .field("files", self.tree.as_ref().map_or(1, |tree| tree.files))
            .known("tree", self.tree.as_ref())
            .field("elapsed_s", seconds(self.elapsed))
            .field("moving_s", seconds(self.moving))
            .field("goodput_bps", self.goodput().0)
            .known("theory_bps", self.expected.map(|rate| rate.0))
            .known(
                "efficiency",
                self.efficiency().map(|part| (part * 1e4).round() / 1e4),
            )
            .known("blake3", self.digest.map(|digest| digest.to_string()))
            .known("etag", self.etag.as_ref().map(ToString::to_string))
            .field("resumed_bytes", self.resumed_bytes)
            .field("resent_bytes", self.resent_bytes)
            .field("wire_bytes", self.wire_bytes)
            .field("failovers", self.failovers)
            .field("routes_installed", self.routes_installed)
            .field("limited_by", self.limited_by.word())
            .field("links", &self.links)
            .field("failed", &self.failed)
            .field("unused", &self.unused);
    }
}

impl Fields for LinkReport {
    fn write<M: SerializeMap>(&self, object: &mut Object<M>) {
        object
            .and(&self.link)
            .field("bytes", self.bytes)
            .field("goodput_bps", self.goodput.0)
            .known("theory_bps", self.theory.map(|rate| rate.0))
            .and(&self.state)
            .known("verified", self.verified)
            .known("interface_bytes", self.interface_bytes)
            .known("path_mtu", self.path_mtu)
            .field("failures", self.failures)
            .field("damaged", self.damaged)
            .and(&self.kernel);
    }
}

impl Fields for KernelView {
    fn write<M: SerializeMap>(&self, object: &mut Object<M>) {
        object
            .known("retransmitted_bytes", self.retransmitted_bytes)
            .known("rtt_us", self.rtt.map(micros))
            .known("busy_us", self.busy.map(micros))
            .known("rwnd_limited_us", self.rwnd_limited.map(micros))
            .known("sndbuf_limited_us", self.sndbuf_limited.map(micros))
            .known("starved_us", self.starved.map(micros));
    }
}

impl Fields for UnusedInterface {
    fn write<M: SerializeMap>(&self, object: &mut Object<M>) {
        object
            .field("side", if self.is_peers { "peer" } else { "here" })
            .field("interface", &self.interface)
            .field("reason", &self.why);
    }
}

impl Fields for LinkName {
    fn write<M: SerializeMap>(&self, object: &mut Object<M>) {
        object
            .field("interface", &self.interface)
            .known("peer_interface", self.peer_interface.as_ref())
            .known("local", self.local)
            .field("remote", self.remote);
    }
}

impl Fields for LinkState {
    fn write<M: SerializeMap>(&self, object: &mut Object<M>) {
        object
            .field("state", self.word())
            .known("reason", self.reason());
    }
}

impl Fields for LinkProgress {
    fn write<M: SerializeMap>(&self, object: &mut Object<M>) {
        object
            .and(&self.link)
            .field("bytes", self.bytes)
            .field("goodput_bps", self.rate.0)
            .and(&self.state);
    }
}

impl Fields for Progress {
    fn write<M: SerializeMap>(&self, object: &mut Object<M>) {
        // A pipe has no total. A tree has the size of the entries found so far.
        let is_sized = !self.open || self.files.is_some();
        object
            .field("bytes", self.bytes)
            .known("size_bytes", is_sized.then_some(self.size))
            .field("open", self.open)
            .known("files", self.files.map(|files| files.done))
            .known("files_found", self.files.map(|files| files.found))
            .field("resumed_bytes", self.resumed)
            .field("goodput_bps", self.rate.0)
            .field("links", &self.links);
    }
}

/// The field `event` is the variant's word.
impl Fields for Event {
    fn write<M: SerializeMap>(&self, object: &mut Object<M>) {
        match self {
            Self::Connected { key, name } => object
                .field("event", "connected")
                .field("peer_key", key.to_string())
                .known("peer_name", name.as_ref()),
            Self::Link { link, state } => object.field("event", "link").and(link).and(state),
            Self::Started { size, resumed } => object
                .field("event", "started")
                .field("size_bytes", *size)
                .field("resumed_bytes", *resumed),
            Self::Progress(progress) => object.field("event", "progress").and(progress),
            Self::Waiting { since } => object
                .field("event", "waiting")
                .field("waited_s", seconds(*since)),
            Self::Unreachable {
                host,
                interfaces,
                since,
                patience,
            } => object
                .field("event", "unreachable")
                .field("host", host)
                .field("interfaces", interfaces)
                .field("waited_s", seconds(*since))
                .known("timeout_s", patience.map(seconds)),
            Self::Stalled { since, awaited } => object
                .field("event", "stalled")
                .field("waited_s", seconds(*since))
                .field("awaited", awaited.word()),
            Self::Queued { host, since, most } => object
                .field("event", "queued")
                .field("host", host)
                .field("waited_s", seconds(*since))
                .known("sessions", *most),
            Self::Crowded { running, since } => object
                .field("event", "crowded")
                .field("running", *running)
                .field("waited_s", seconds(*since)),
            Self::Entry { name, outcome } => object.field("event", "entry").and(name).and(outcome),
            Self::Restarted => object.field("event", "restarted"),
        };
    }
}

/// As it is shown, and its bytes in base64 if these differ.
impl Fields for Name {
    fn write<M: SerializeMap>(&self, object: &mut Object<M>) {
        let (shown, exact) = (self.to_string(), self.to_bytes());
        let differs = shown.as_bytes() != exact;
        object.field("name", shown).known(
            "name_base64",
            differs.then(|| BASE64_STANDARD.encode(exact)),
        );
    }
}

impl Fields for EntryOutcome {
    fn write<M: SerializeMap>(&self, object: &mut Object<M>) {
        object.field("outcome", self.word());
        match self {
            Self::Copied { bytes, .. } => object.field("bytes", *bytes),
            Self::Failed { code, text } => object.field("code", code.word()).field("text", text),
            Self::Skipped(_) | Self::Special | Self::Deleted => object,
        };
    }
}

/// Returns the duration in seconds, rounded to microseconds.
fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e6
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
