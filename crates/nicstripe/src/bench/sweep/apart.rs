//! Sweep points that need other connections than the benchmark's: each uses a separate session.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use nicstripe_bench::{
    statistics::jain,
    sweep::{Measured, Point},
};
use nicstripe_proto::BitRate;
use tokio::task::JoinHandle;

use super::{Packets, Swept};
use crate::{
    bench::{
        control::{Control, LoadOrder, Loaded},
        figures::LoadedLink,
        links::Links,
        report::{BenchLink, CpuUse, Run, SweepKind},
        run::{Runner, run_of},
    },
    client::Client,
    report::error::Error,
    session::BenchPath,
};

/// Sweep in progress with its session and MTU changes. They must be released however the benchmark
/// ends.
#[derive(Debug, Default)]
pub(crate) struct SweepGuard {
    pub(super) sweep: Option<Swept>,
    pub(super) packets: Option<Packets>,
    apart: Option<Apart>,
}

impl SweepGuard {
    /// Closes the separate session and restores the MTUs. Returns the sweep.
    pub(super) async fn end(&mut self) -> Option<Swept> {
        if let Some(apart) = self.apart.take() {
            apart.end().await;
        }
        if let Some(packets) = self.packets.take()
            && let Err(error) = packets.restore().await
        {
            tracing::warn!(error = %crate::text::logged::logged_error(&error), "cannot restore MTU");
        }
        self.sweep.take()
    }
}

/// Separate session for the points with one buffer size and connection count.
#[derive(Debug)]
struct Apart {
    /// Buffer size in bytes and number of connections of the session's points.
    key: (Option<u64>, Option<u32>),
    /// Task that connects. It outlives a dropped caller, so that the session is still closed.
    connecting: Option<JoinHandle<Result<Client, Error>>>,
    client: Option<Client>,
    /// Control connection and links; set once the daemon has admitted the session.
    entered: Option<(Control, Links)>,
}

impl Apart {
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

impl Runner {
    /// Loads all links once with the buffer size, connection count or MTU of a point.
    pub(super) async fn load_point(
        &mut self,
        kind: SweepKind,
        point: &Point,
    ) -> Result<Measured, Error> {
        let began = Instant::now();
        let buffer = match kind {
            SweepKind::Buffer | SweepKind::Grid => point.size,
            _ => self.plan.socket_buffer,
        };
        self.enter_apart(kind, point, buffer).await?;
        let order = LoadOrder {
            longest: point.least.min(self.plan.load),
            settle_after: None,
            socket_buffer: buffer,
            ..self.order(self.point_phase(), point.repeat, &[])
        };
        let since = self.began.elapsed();
        let events = self.events.clone();
        let gone = || Error::Ended {
            host: String::new(),
            why: "before the load".into(),
        };
        let (talk, links) = self
            .held
            .apart
            .as_mut()
            .and_then(|apart| apart.entered.as_mut())
            .ok_or_else(gone)?;
        let (paths, loaded_links) = links.loaded(&links.ids());
        let order = LoadOrder {
            paths,
            links: loaded_links,
            ..order
        };
        let loaded = Mutex::new(Loaded::default());
        let done = talk.load(&order, &loaded, &events).await;
        let loaded = loaded.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = done {
            // The session's state is unknown.
            self.end_apart().await;
            return Err(error);
        }
        let nothing = || Error::Ended {
            host: self.client.host().to_owned(),
            why: "nothing arrived".into(),
        };
        let run = run_of(&order, since, &loaded)
            .filter(|run| run.total_bps > 0)
            .ok_or_else(nothing)?;
        Ok(Measured {
            rate: BitRate(run.total_bps),
            elapsed: began.elapsed(),
            time: None,
            cpu_seconds_per_gbit: cpu_per_gbit(&run),
            got_bytes: loaded.got_buffer.filter(|_| {
                matches!(kind, SweepKind::Buffer | SweepKind::Grid) && buffer.is_some()
            }),
            fairness: fairness(&order, &loaded),
        })
    }

    /// Ensures that a session for this point exists: reuses the current one or opens a new one.
    async fn enter_apart(
        &mut self,
        kind: SweepKind,
        point: &Point,
        buffer: Option<u64>,
    ) -> Result<(), Error> {
        let key = (point.size, point.streams);
        if self
            .held
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
        if let (Some(packets), Some(mtu)) = (&self.held.packets, mtu) {
            packets.set(mtu).await?;
        }
        // Some cards take their link down to change the MTU.
        let patience = Instant::now()
            + if mtu.is_some() {
                LINKS_BACK
            } else {
                Duration::ZERO
            };
        loop {
            let entered = self.try_apart(key, buffer, mtu).await;
            let is_final = matches!(
                entered,
                Ok(()) | Err(Error::Refused { .. } | Error::Full { .. })
            ) || Instant::now() >= patience;
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
    ) -> Result<(), Error> {
        let (client, streams) = (
            self.client.clone(),
            key.1.and_then(|streams| u8::try_from(streams).ok()),
        );
        let connecting = tokio::spawn(async move { client.another(streams, buffer).await });
        let apart = self.held.apart.insert(Apart {
            key,
            connecting: Some(connecting),
            client: None,
            entered: None,
        });
        let client = match apart.connecting.as_mut() {
            Some(connecting) => connecting.await.unwrap_or_else(|error| {
                Err(Error::System {
                    what: "reconnect",
                    source: std::io::Error::other(error),
                })
            }),
            None => return Ok(()),
        };
        apart.connecting = None;
        let client = apart.client.insert(client?).clone();
        let (mut talk, paths) = Control::begin(client).await?;
        let (_, there) = talk.enter(self.id, 0, &self.events).await?;
        let links = Links::new(&paths, &there, &there);
        apart.entered = Some((talk, links.clone()));
        has_all(&self.report.links, &links.links)?;
        let is_narrow = |path: &&BenchPath| {
            path.path_mtu
                .zip(mtu)
                .is_some_and(|(found, wanted)| found < wanted)
        };
        if let Some(path) = paths.iter().find(is_narrow) {
            return Err(Error::Link {
                link: path.link.interface.clone(),
                why: "packets of that size are dropped on the path".into(),
            });
        }
        Ok(())
    }

    async fn end_apart(&mut self) {
        if let Some(apart) = self.held.apart.take() {
            apart.end().await;
        }
    }
}

/// Checks that a session has all links of the benchmark. Its points would not be comparable
/// otherwise.
fn has_all(wanted: &[BenchLink], found: &[BenchLink]) -> Result<(), Error> {
    let mut left: Vec<&str> = found
        .iter()
        .map(|link| link.ends.client.name.as_str())
        .collect();
    for name in wanted.iter().map(|link| link.ends.client.name.as_str()) {
        match left.iter().position(|other| *other == name) {
            Some(place) => _ = left.swap_remove(place),
            None => {
                return Err(Error::Link {
                    link: name.to_owned(),
                    why: "it did not connect".into(),
                });
            }
        }
    }
    Ok(())
}

fn cpu_per_gbit(run: &Run) -> Option<f64> {
    let of = |cpu: &CpuUse| cpu.user_us + cpu.system_us + cpu.softirq_us;
    let micros = of(run.cpu.client.as_ref()?) + of(run.cpu.daemon.as_ref()?);
    let bytes: u64 = run.flows.iter().map(|flow| flow.bytes).sum();
    (bytes > 0).then(|| micros as f64 / 1e6 / (bytes as f64 * 8.0 / 1e9))
}

/// Returns Jain's fairness index over the connections of a link, for the link with the lowest
/// index.
fn fairness(order: &LoadOrder, loaded: &Loaded) -> Option<f64> {
    let each = (0..order.paths.len()).map(|path| LoadedLink {
        id: path as u32,
        paths: vec![path],
        theory_bps: None,
    });
    let flows = run_of(
        &LoadOrder {
            links: each.collect(),
            ..order.clone()
        },
        Duration::ZERO,
        loaded,
    )?
    .flows;
    let bytes = |path: usize| {
        flows
            .iter()
            .filter(|flow| flow.link as usize == path)
            .map(|flow| flow.bytes as f64)
            .sum()
    };
    let of = |link: &LoadedLink| {
        jain(
            &link
                .paths
                .iter()
                .map(|path| bytes(*path))
                .collect::<Vec<f64>>(),
        )
    };
    order.links.iter().filter_map(of).min_by(f64::total_cmp)
}

/// Maximum wait until the links are connected again.
const LINKS_BACK: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(500);
