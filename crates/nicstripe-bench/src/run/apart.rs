//! Sweep points that need connections with other settings than the benchmark's: each uses a
//! separate session.

use std::time::{Duration, Instant};

use nicstripe_link::facts::Facts;
use nicstripe_proto::BitRate;
use tokio::task::JoinHandle;

use super::Runner;
use crate::{
    client::{BenchPath, Client, Failure, Packets as _},
    control::{Control, Load},
    links::Links,
    metrics,
    report::{BenchLink, CpuUse, Run, SweepKind},
    sweep::{Measured, Point},
};

/// Separate session for the points with one buffer size and connection count.
#[derive(Debug)]
pub(super) struct Apart<C: Client> {
    /// Buffer size in bytes and number of connections of the session's points.
    key: (Option<u64>, Option<u32>),
    /// Task that opens the session. Continues if the caller is dropped, so that the session is
    /// closed in any case.
    connecting: Option<JoinHandle<Result<C, C::Error>>>,
    client: Option<C>,
    /// Control connection and links; set once the daemon has admitted the session.
    entered: Option<(Control<C>, Links)>,
}

impl<C: Client> Apart<C> {
    async fn end(self) {
        if let Some((talk, _)) = &self.entered {
            talk.leave().await;
        }
        drop(self.entered);
        if let Some(client) = self.client {
            client.close().await;
        }
        if let Some(connecting) = self.connecting {
            // Not awaited: the daemon may never answer.
            tokio::spawn(async move {
                if let Ok(Ok(client)) = connecting.await {
                    client.close().await;
                }
            });
        }
    }
}

impl<C: Client> Runner<C> {
    /// Loads all links once with the buffer size, connection count or MTU of a point.
    pub(super) async fn load_point(
        &mut self,
        kind: SweepKind,
        point: &Point,
    ) -> Result<Measured, C::Error> {
        let began = Instant::now();
        let buffer = match kind {
            SweepKind::Buffer | SweepKind::Grid => point.size,
            _ => self.plan.socket_buffer,
        };
        self.enter_apart(kind, point, buffer).await?;
        let mut load = Load {
            longest: point.least.min(self.plan.load),
            settles: false,
            socket_buffer: buffer,
            ..self.load_of(self.point_way().phase(), point.repeat, &[])
        };
        let ended = |why| self.client.error(Failure::Ended(why));
        let (talk, links) = self
            .apart
            .as_mut()
            .and_then(|apart| apart.entered.as_mut())
            .ok_or_else(|| ended("before the load"))?;
        (load.paths, load.links) = links.loaded(&links.ids());
        if let Err(error) = talk.load(&mut load, &self.events).await {
            // The session's state is unknown.
            self.end_apart().await;
            return Err(error);
        }
        let run = load
            .run(self.began)
            .filter(|run| run.total_bps > 0)
            .ok_or_else(|| self.client.error(Failure::Ended("nothing arrived")))?;
        Ok(Measured {
            rate: BitRate(run.total_bps),
            elapsed: began.elapsed(),
            time: None,
            cpu_seconds_per_gbit: cpu_per_gbit(&run),
            got_bytes: load.got_buffer.filter(|_| {
                matches!(kind, SweepKind::Buffer | SweepKind::Grid) && buffer.is_some()
            }),
            fairness: load.fairness(),
        })
    }

    /// Ensures that a session for this point exists: reuses the current one or opens a new one.
    async fn enter_apart(
        &mut self,
        kind: SweepKind,
        point: &Point,
        buffer: Option<u64>,
    ) -> Result<(), C::Error> {
        let key = (point.size, point.streams);
        if self
            .apart
            .as_ref()
            .is_some_and(|apart| apart.key == key && apart.entered.is_some())
        {
            return Ok(());
        }
        self.end_apart().await;
        let mtu = point
            .size
            .and_then(|size| u32::try_from(size).ok())
            .filter(|_| kind == SweepKind::Mtu);
        if let (Some(packets), Some(mtu)) = (&self.packets, mtu) {
            packets.set(mtu).await?;
        }
        // Some cards take their link down to change the MTU.
        let patience = Instant::now() + mtu.map_or(Duration::ZERO, |_| LINKS_BACK);
        loop {
            let entered = self.try_apart(key, buffer, mtu).await;
            let is_final =
                entered.as_ref().err().is_none_or(C::is_refusal) || Instant::now() >= patience;
            if entered.is_err() {
                self.end_apart().await;
            }
            if is_final {
                return entered;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn try_apart(
        &mut self,
        key: (Option<u64>, Option<u32>),
        buffer: Option<u64>,
        mtu: Option<u32>,
    ) -> Result<(), C::Error> {
        let apart = self.apart.insert(Apart {
            key,
            connecting: None,
            client: None,
            entered: None,
        });
        let client = self.client.clone();
        let streams = key.1.and_then(|streams| u8::try_from(streams).ok());
        let connecting = tokio::spawn(async move { client.another(streams, buffer).await });
        let connected = apart.connecting.insert(connecting).await;
        apart.connecting = None;
        let client = connected.unwrap_or_else(|error| Err(self.client.error(Failure::Task(error))));
        let client = apart.client.insert(client?).clone();
        let (mut talk, paths) = Control::begin(client).await?;
        talk.enter(self.id, 0, &self.events).await?;
        // Only the names of its interfaces are compared.
        let links = Links::new(&paths, &Facts::default(), &Facts::default());
        apart.entered = Some((talk, links.clone()));
        if let Some(link) = first_missing(&self.report.links, &links.links) {
            let why = "it did not connect";
            return Err(self.client.error(Failure::Link { link, why }));
        }
        let is_narrow = |path: &&BenchPath| {
            path.path_mtu
                .zip(mtu)
                .is_some_and(|(found, expected)| found < expected)
        };
        if let Some(path) = paths.iter().find(is_narrow) {
            return Err(self.client.error(Failure::Link {
                link: path.interface.clone(),
                why: "packets of that size are dropped on the path",
            }));
        }
        Ok(())
    }

    /// Closes the separate session.
    pub(super) async fn end_apart(&mut self) {
        if let Some(apart) = self.apart.take() {
            apart.end().await;
        }
    }
}

/// Returns the first link of the benchmark that a session lacks. Its points would not be
/// comparable.
fn first_missing(expected: &[BenchLink], found: &[BenchLink]) -> Option<String> {
    let name = |link: &BenchLink| link.ends.client.name.clone();
    let mut left: Vec<String> = found.iter().map(name).collect();
    expected.iter().map(name).find(|name| {
        let index = left.iter().position(|other| other == name);
        index.map(|index| left.swap_remove(index)).is_none()
    })
}

fn cpu_per_gbit(run: &Run) -> Option<f64> {
    let of = |cpu: &CpuUse| cpu.user_us + cpu.system_us + cpu.softirq_us;
    let micros = of(run.cpu.client.as_ref()?) + of(run.cpu.daemon.as_ref()?);
    let bytes: u64 = run.flows.iter().map(|flow| flow.bytes).sum();
    metrics::cpu_seconds_per_gbit(micros as f64 / 1e6, bytes)
}

/// Maximum wait until the links are connected again.
const LINKS_BACK: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(500);
