//! Sweeps: points measured one after the other.

use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

use nicstripe_proto::BitRate;

use super::{
    decided::spread,
    event::BenchEvent,
    links::{Links, goodput},
    report::{Phase, Run, Spread, Sweep, SweepKind, SweepPoint},
    run::{Runner, run_of},
    talk::{LoadOrder, Loaded, Talk},
};
use crate::error::Error;

/// Sweeps what the plan says.
pub(super) async fn sweeps(runner: &mut Runner, talk: &mut Talk) -> Result<(), Error> {
    for kind in runner.plan.sweeps.clone() {
        let mut sweep = Sweep {
            kind,
            link: None,
            points: Vec::new(),
            plateau: None,
            bdp_bytes: None,
            latency_us: None,
            half_size_bytes: None,
            top_decile_bps: None,
            advice: String::new(),
            stopped: "all points were measured".into(),
        };
        let result = match kind {
            SweepKind::Message => messages(runner, talk, &mut sweep).await,
            SweepKind::Buffer => points(runner, &mut sweep, &buffers(), &[None]).await,
            SweepKind::Streams => points(runner, &mut sweep, &[None], &STREAMS.map(Some)).await,
            SweepKind::Grid => points(runner, &mut sweep, &GRID_BUFFERS.map(Some), &STREAMS.map(Some)).await,
            SweepKind::Mtu => {
                mtus(runner, &mut sweep);
                Ok(())
            }
        };
        conclude(&mut sweep);
        runner.report.sweeps.push(sweep);
        result?;
    }
    Ok(())
}

/// Connections a link.
const STREAMS: [u32; 4] = [1, 2, 4, 8];

/// Sizes of socket buffers in a grid.
const GRID_BUFFERS: [u64; 4] = [64 << 10, 256 << 10, 1 << 20, 4 << 20];

/// Sizes of packets.
const MTUS: [u32; 3] = [1500, 4000, 9000];

/// Repeats of a point, and how long each of its loads counts.
const POINT_REPEATS: u32 = 3;
const POINT_TIME: Duration = Duration::from_secs(2);

/// Fewest messages of one size, and the least time in which they are sent.
const TRIALS: u32 = 3;
const TRIAL_TIME: Duration = Duration::from_millis(250);

/// A message that takes longer ends the sweep of messages.
const LONGEST_MESSAGE: Duration = Duration::from_secs(1);

/// Most time of one sweep of messages.
const MESSAGES_TIME: Duration = Duration::from_secs(60);

/// Smallest and largest message.
const MESSAGES: (u64, u64) = (1, 64 << 20);

/// What the system does by itself, then from 16 KiB to 8 MiB, doubling.
fn buffers() -> Vec<Option<u64>> {
    std::iter::once(None).chain((0..10).map(|step| Some(16 << 10 << step))).collect()
}

/// Messages of each size on the first link, one after the other.
async fn messages(runner: &Runner, talk: &mut Talk, sweep: &mut Sweep) -> Result<(), Error> {
    let Some((id, path)) = runner.links.ids().first().and_then(|id| Some((*id, runner.links.path(*id)?))) else { return Ok(()) };
    sweep.link = Some(id);
    talk.open_run(path).await?;
    let (began, mut size) = (Instant::now(), MESSAGES.0);
    while size <= MESSAGES.1 {
        if began.elapsed() >= MESSAGES_TIME || runner.is_over() {
            sweep.stopped = "its time was over".into();
            break;
        }
        // As many as its time allows.
        let mut times = talk.ping(path, TRIALS, size, Duration::from_secs(5)).await?;
        let each = times.iter().min().copied().unwrap_or(LONGEST_MESSAGE);
        let more = (TRIAL_TIME.as_secs_f64() / each.as_secs_f64().max(1e-6)) as u32;
        if more > TRIALS {
            times.extend(talk.ping(path, more, size, TRIAL_TIME * 2).await?);
        }
        let Some(point) = message_point(size, &mut times) else { break };
        let _ = runner.events.try_send(BenchEvent::Point { kind: sweep.kind, point: point.clone() });
        sweep.points.push(point);
        if each >= LONGEST_MESSAGE {
            sweep.stopped = "one message took more than a second".into();
            break;
        }
        size *= 2;
    }
    talk.close_run().await
}

/// Half a round trip of messages that come back as they are; of larger ones the time until an empty answer.
fn message_point(size: u64, times: &mut [Duration]) -> Option<SweepPoint> {
    times.sort_unstable();
    let comes_back = size <= nicstripe_proto::frame::MAX_ECHO as u64;
    let one_way = |time: Duration| if comes_back { time / 2 } else { time };
    let rates = times.iter().map(|time| BitRate::from_bytes_over(size, one_way(*time)).0).collect();
    let middle = one_way(*times.get(times.len() / 2)?);
    let spread = spread(rates)?;
    Some(SweepPoint { time_us: Some(middle.as_nanos() as f64 / 1e3), ..point(Some(size), None, spread) })
}

fn point(size: Option<u64>, streams: Option<u32>, rate: Spread) -> SweepPoint {
    SweepPoint { size, streams, rate, time_us: None, cpu_s_per_gbit: None, got_bytes: None, dropout: false, computed: false }
}

/// Loads all links with each of the buffers and each number of connections, each in a session of its own.
async fn points(runner: &Runner, sweep: &mut Sweep, buffers: &[Option<u64>], streams: &[Option<u32>]) -> Result<(), Error> {
    for buffer in buffers {
        for count in streams {
            if runner.is_over() {
                sweep.stopped = "its time was over".into();
                return Ok(());
            }
            let (rates, mut of) = load_point(runner, *buffer, *count).await?;
            if let Some(rate) = spread(rates) {
                of.rate = rate;
                // Of a sweep of one thing, that is its size.
                (of.size, of.streams) = match sweep.kind {
                    SweepKind::Streams => (count.map(u64::from), None),
                    _ => (*buffer, *count),
                };
                let _ = runner.events.try_send(BenchEvent::Point { kind: sweep.kind, point: of.clone() });
                sweep.points.push(of);
            }
        }
    }
    Ok(())
}

async fn load_point(runner: &Runner, buffer: Option<u64>, streams: Option<u32>) -> Result<(Vec<u64>, SweepPoint), Error> {
    let client = runner.client.another(streams.and_then(|streams| u8::try_from(streams).ok())).await?;
    let (mut talk, paths) = Talk::begin(client.clone()).await?;
    let (_, there) = talk.enter(runner.id, 0, &runner.events).await?;
    let links = Links::new(&paths, &there, &there);
    let mut runs = Vec::new();
    let mut got = None;
    for repeat in 1..=POINT_REPEATS {
        let (paths, loaded) = links.loaded(&links.ids());
        let order = LoadOrder {
            paths,
            links: loaded,
            longest: POINT_TIME,
            settle_after: None,
            socket_buffer: buffer,
            ..runner.order(Phase::Together, repeat, &[])
        };
        let loaded = Mutex::new(Loaded::default());
        talk.load(&order, &loaded, &runner.events).await?;
        let loaded = std::mem::take(&mut *loaded.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        got = got.or(loaded.got_buffer);
        runs.extend(run_of(&order, runner.began.elapsed(), &loaded));
    }
    talk.leave().await;
    drop(talk);
    client.close().await;
    let rates: Vec<u64> = runs.iter().map(|run| run.total_bps).collect();
    let none = Spread { median_bps: 0, min_bps: 0, max_bps: 0, n: 0, stable: false };
    let of =
        SweepPoint { got_bytes: got.filter(|_| buffer.is_some()), cpu_s_per_gbit: cpu_per_gbit(&runs), ..point(buffer, streams, none) };
    Ok((rates, of))
}

/// Processor time of both ends for a gigabit.
fn cpu_per_gbit(runs: &[Run]) -> Option<f64> {
    let busy = |run: &Run| {
        let of = |cpu: &super::report::CpuUse| cpu.user_us + cpu.system_us + cpu.softirq_us;
        Some(of(run.cpu.client.as_ref()?) + of(run.cpu.daemon.as_ref()?))
    };
    let micros: u64 = runs.iter().map(busy).sum::<Option<u64>>()?;
    let bytes: u64 = runs.iter().flat_map(|run| &run.flows).map(|flow| flow.bytes).sum();
    (bytes > 0).then(|| micros as f64 / 1e6 / (bytes as f64 * 8.0 / 1e9))
}

/// What packets of other sizes would bring, as far as that can be computed.
fn mtus(runner: &Runner, sweep: &mut Sweep) {
    for mtu in MTUS {
        let theory: Option<u64> =
            runner.report.links.iter().map(|link| Some(goodput(&super::report::TheoryInputs { mtu, ..link.theory? }))).sum();
        let Some(bps) = theory.filter(|bps| *bps > 0) else { continue };
        let rate = Spread { median_bps: bps, min_bps: bps, max_bps: bps, n: 0, stable: true };
        sweep.points.push(SweepPoint { computed: true, ..point(Some(mtu.into()), None, rate) });
    }
    sweep.stopped = "the interfaces were left as they are".into();
}

/// What the points come to.
fn conclude(sweep: &mut Sweep) {
    sweep.points.sort_by_key(|point| (point.size, point.streams));
    let best = sweep.points.iter().map(|point| point.rate.median_bps).max().unwrap_or(0);
    let reaches = |part: f64| {
        let enough = |point: &&SweepPoint| point.rate.median_bps as f64 >= best as f64 * part;
        sweep.points.iter().filter(|point| point.size.is_some()).find(enough).and_then(|point| point.size)
    };
    let (plateau, half) = (reaches(0.98), reaches(0.5));
    sweep.plateau = plateau;
    if sweep.kind == SweepKind::Message {
        sweep.half_size_bytes = half;
        let small = sweep.points.iter().filter(|point| point.size <= Some(64)).filter_map(|point| point.time_us);
        sweep.latency_us = small.min_by(f64::total_cmp);
    }
    let mut rates: Vec<u64> = sweep.points.iter().map(|point| point.rate.median_bps).collect();
    rates.sort_unstable();
    let top = rates.split_off(rates.len() - rates.len().div_ceil(10));
    sweep.top_decile_bps = (!top.is_empty()).then(|| top.iter().sum::<u64>() / top.len() as u64);
}
