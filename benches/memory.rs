//! Memory of client and daemon during the copy of a file that is far larger than their limit.
//!
//! `cargo bench --bench memory -- --size 20G --links 2 --direction put,get --place /mnt/disk`
//!
//! The source file is fully allocated, because holes are not sent. The cables are unshaped. Source
//! and copy are on a disk, which needs free space of twice `--size`. The output shows the peak
//! resident memory (VmHWM, including the used part of the program's code) and the anonymous memory
//! (RssAnon), sampled every 20 ms. With `--clients 40,200`, so many clients of one key each copy 50 MiB
//! at once instead, over loopback; the output shows the daemon's peak, and how many failed.
#![forbid(unsafe_code)]

use std::{
    fs,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Args;
use nicstripe_lab::Host;
use nicstripe_testkit::{
    bench::{
        Cables, Contender, Peak, Place, Process, Result, Scene, Table, Way, as_nicstripe, cell,
        circumstances, cp, parse_size, serve, start_daemon, time_limit,
    },
    program,
};

#[derive(Debug, Args)]
struct Arguments {
    /// Size of the file in bytes; the disk needs twice the space
    #[arg(long, default_value = "20G", value_parser = parse_size)]
    size: u64,

    /// Number of cables between the hosts
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=16))]
    links: u8,

    /// Directions of the copies
    #[arg(long, value_enum, value_delimiter = ',', default_value = "put,get")]
    direction: Vec<Way>,

    /// Instead: numbers of clients that copy at once, one number after the other
    #[arg(long, value_delimiter = ',')]
    clients: Vec<u32>,

    /// Folder on a disk for source and target [default: cargo's, target/tmp]
    #[arg(long)]
    place: Option<PathBuf>,
}

fn main() -> ExitCode {
    nicstripe_testkit::bench::run(bench)
}

fn bench(arguments: Arguments) -> Result<()> {
    if !arguments.clients.is_empty() {
        return crowds(&arguments.clients);
    }
    let cables = Cables::unshaped(usize::from(arguments.links));
    let place = Place::on_disk(arguments.place.as_deref(), arguments.size.saturating_mul(2))?;
    let mut sample = place.sample(arguments.size)?;
    let mut table = Table::default();
    for way in &arguments.direction {
        let scene = Scene::build(&cables, &place, &mut sample, way.from())?;
        let (took, peaks) = copy(&scene)?;
        for (end, peak) in [("client", &peaks[0]), ("daemon", &peaks[1])] {
            let mib = |bytes: u64| format!("{:.1}", bytes as f64 / f64::from(1 << 20));
            table.row([
                cell("way", way.name()),
                cell("end", end),
                cell("peak resident, MiB", mib(peak.resident)),
                cell("private, MiB", mib(peak.own)),
                cell("bar, MiB", BAR),
                cell("s", format!("{:.1}", took.as_secs_f64())),
            ]);
        }
    }
    let gib = arguments.size as f64 / f64::from(1 << 30);
    println!(
        "\n{}\n{gib:.2} GiB over {cables}, one copy each way.\n\n{table}",
        circumstances(&[Contender::Nicstripe])
    );
    Ok(())
}

/// Measures the daemon while each number of clients copies at once. Every copy is compared.
fn crowds(numbers: &[u32]) -> Result<()> {
    let most = u64::from(numbers.iter().copied().max().unwrap_or(0));
    let place = Place::in_memory((most + 2) * OF_A_CLIENT)?;
    let mut sample = place.sample(OF_A_CLIENT)?;
    let cables = Cables::unshaped(1);
    let scene = Scene::build(&cables, &place, &mut sample, Host::A)?;
    let mut table = Table::default();
    let mut all_failed = 0;
    for number in numbers {
        let daemon = start_daemon(serve(&scene), &place)?;
        let begun = Instant::now();
        let start = |client: u32| {
            let command = scene.lab.command(Host::B, program());
            let mut command = as_nicstripe(command, &place, Host::A, "cp");
            command
                .arg("--quiet")
                .arg(&scene.sample.path)
                .arg(format!("127.0.0.1:copy-{client}"));
            Process::spawn(command, &format!("client-{client}"), &place.logs())
        };
        let clients = (0..*number).map(start).collect::<Result<Vec<_>>>()?;
        let mut failed = 0;
        for (index, mut client) in clients.into_iter().enumerate() {
            client.await_end(begun + Duration::from_secs(300))?;
            let copy = place.files(Host::B).join(format!("copy-{index}"));
            let is_right = client.succeeded().and_then(|()| scene.sample.check(&copy));
            failed += usize::from(is_right.inspect_err(|error| eprintln!("{error}")).is_err());
            let _ = fs::remove_file(copy);
        }
        all_failed += failed;
        let seconds = begun.elapsed().as_secs_f64();
        let peak = daemon.memory().map_or(0, |[peak, _]| peak);
        table.row([
            cell("clients", number),
            cell("s", format!("{seconds:.1}")),
            cell("failed", failed),
            cell(
                "daemon, MiB",
                format!("{:.1}", peak as f64 / f64::from(1 << 20)),
            ),
            cell("bar, MiB", "≤ 96"),
        ]);
    }
    println!("\n{}\n\n{table}", circumstances(&[Contender::Nicstripe]));
    match all_failed {
        0 => Ok(()),
        failed => Err(format!("{failed} clients failed").into()),
    }
}

/// Copies the scene's file. Returns the wall-clock time, and the peak memory of client and daemon.
fn copy(scene: &Scene<'_>) -> Result<(Duration, [Peak; 2])> {
    let daemon = start_daemon(serve(scene), scene.place)?;
    let mut command = cp(scene)?;
    command.arg("--json");
    let begun = Instant::now();
    let mut client = Process::spawn(command, "cp", &scene.place.logs())?;
    let mut peaks = [Peak::default(), Peak::default()];
    while !client.has_ended_within(INTERVAL)? {
        peaks[0].update(&client);
        peaks[1].update(&daemon);
        if begun.elapsed() > time_limit(scene.sample.size) {
            client.await_end(Instant::now())?;
        }
    }
    let took = begun.elapsed();
    peaks[1].update(&daemon);
    scene.check(&mut client)?;
    scene.discard()?;
    Ok((took, peaks))
}

/// Bytes that each of many clients copies.
const OF_A_CLIENT: u64 = 50 << 20;

const INTERVAL: Duration = Duration::from_millis(20);

/// Memory threshold of client and daemon in MiB (docs/DESIGN.md, section 9: 32 MiB, plus 8 MiB per
/// link; the original threshold was 64 MiB).
const BAR: &str = "≤ 64";
