//! Copies of real files from disk to disk: a tar of the Rust toolchain, followed by /usr if the
//! toolchain is too short.
//!
//! `cargo bench --bench disk -- --size 2G --runs 1 --links 1,2,4 --direction put,get --place
//! /mnt/disk`
//!
//! The page cache of the source is dropped before each copy, and the copy is durable when the
//! command exits. Each copy is compared byte by byte, and with `b3sum` if `b3sum` is installed.
//! Needs `tar`, and disk space for twice `--size`.
#![forbid(unsafe_code)]

use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

use clap::Args;
use nicstripe_testkit::bench::{
    Cables, Cell, Contender, Copied, Copies, Place, Result, Sample, Scene, Spread, Table, Way,
    cell, circumstances, measure, parse_size,
};
use rustix::fs::{Advice, fadvise};

#[derive(Debug, Args)]
struct Arguments {
    /// Size of the tar in bytes
    #[arg(long, default_value = "2G", value_parser = parse_size)]
    size: u64,

    #[command(flatten)]
    copies: Copies,

    /// Numbers of gigabit cables, or rates in Mbit/s such as 1000+100
    #[arg(long, value_delimiter = ',', default_value = "1,2,4")]
    links: Vec<Cables>,

    /// Folder on the disk for source and target [default: cargo's, target/tmp]
    #[arg(long)]
    place: Option<PathBuf>,

    /// Copy this file instead of a tar; it is first copied to the folder of --place
    #[arg(long, conflicts_with = "size")]
    file: Option<PathBuf>,
}

fn main() -> ExitCode {
    nicstripe_testkit::bench::run(bench)
}

fn bench(arguments: Arguments) -> Result<()> {
    let size = arguments.file.as_ref().map_or(Ok(arguments.size), |file| {
        Ok::<_, io::Error>(fs::metadata(file)?.len())
    })?;
    let place = Place::on_disk(arguments.place.as_deref(), 2 * size)?;
    let path = place.files(Way::Put.from()).join("real.tar");
    match &arguments.file {
        Some(file) => drop(fs::copy(file, &path)?),
        None => archive(&path, size)?,
    }
    let mut sample = Sample::of(path)?;
    println!(
        "{} bytes of real files, BLAKE3 {}",
        sample.size, sample.digest
    );
    let mut table = Table::default();
    for cables in &arguments.links {
        for way in &arguments.copies.direction {
            let runs = (0..arguments.copies.runs)
                .map(|_| copy(cables, *way, &place, &mut sample))
                .collect::<Result<Vec<_>>>()?;
            table.row(row(cables, *way, &runs));
        }
    }
    println!(
        "\n{}\nDisk to disk; median (least–greatest), {} runs each.\n\n{table}",
        circumstances(&[Contender::Nicstripe]),
        arguments.copies.runs
    );
    Ok(())
}

/// Creates a tar of the Rust toolchain and /usr, truncated to `size` bytes.
fn archive(path: &Path, size: u64) -> Result<()> {
    let toolchain = Command::new("rustc")
        .args(["--print", "sysroot"])
        .stderr(Stdio::inherit())
        .output()?;
    let toolchain = PathBuf::from(String::from_utf8(toolchain.stdout)?.trim());
    let mut file = File::create_new(path)?;
    let first = append_tar(&mut file, &toolchain, size)?;
    let second = append_tar(&mut file, Path::new("/usr"), size - first)?;
    match first + second {
        found if found < size => Err(format!(
            "the toolchain and /usr make {found} bytes, expected {size}: choose a smaller --size"
        )
        .into()),
        _ => Ok(()),
    }
}

/// Appends a tar of a folder, truncated to `most` bytes. Returns the number of appended bytes.
fn append_tar(file: &mut File, folder: &Path, most: u64) -> Result<u64> {
    // tar's messages about files that change meanwhile, and about its closed output, do not matter.
    let mut tar = Command::new("tar")
        .arg("-cC")
        .arg(folder)
        .arg(".")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let copied = tar
        .stdout
        .take()
        .map_or(Ok(0), |output| io::copy(&mut output.take(most), file))?;
    tar.wait()?;
    Ok(copied)
}

fn copy(cables: &Cables, way: Way, place: &Place, sample: &mut Sample) -> Result<Copied> {
    let scene = Scene::build(cables, place, sample, way.from())?;
    // Dirty pages would stay in the page cache.
    let file = File::open(&scene.sample.path)?;
    file.sync_all()?;
    fadvise(&file, 0, None, Advice::DontNeed)?;
    let copied = measure(Contender::Nicstripe, &scene)?;
    eprintln!(
        "{cables}, {}: {:.3} s",
        way.name(),
        copied.wall.as_secs_f64()
    );
    Ok(copied)
}

fn row(cables: &Cables, way: Way, runs: &[Copied]) -> [Cell; 9] {
    let theory = cables.theory().unwrap_or(f64::NAN);
    let of_theory = Spread::of(runs, |run| 100.0 * run.goodput() / theory);
    let shares = Copied::typical(runs).map(|run| run.shares(way.from()));
    let [.., both] = Copied::cpu_cells(runs, Spread::middle);
    // A copy that differs would have ended the bench.
    let by_b3sum = match Sample::b3sum_is_installed() {
        true => "same",
        false => "not installed",
    };
    [
        cell("cables", cables),
        cell("way", way.name()),
        cell("s", Copied::seconds(runs).print(2)),
        cell(
            "MB/s",
            Spread::of(runs, |run| run.goodput() / 8e6).middle(1),
        ),
        cell("% of theory", of_theory.print(1)),
        cell("CPU s/GB, both", both.1),
        cell("MB sent/received by cable", shares.unwrap_or_default()),
        cell("cmp", "same"),
        cell("b3sum", by_b3sum),
    ]
}
