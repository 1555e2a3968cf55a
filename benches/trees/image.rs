//! Cases with one image: a delta over an older copy of it, and holes; by the cables' counters.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt as _,
    path::Path,
};

use blake3::Hasher;
use nicstripe_lab::Host;
use nicstripe_testkit::bench::{
    Cell, Contender, Measured, Place, Result, Sample, Spread, Stage, Table, Way, cell, gib,
    time_limit,
};
use rustix::{
    fs::{SeekFrom, seek},
    io::Errno,
};

use crate::{Arguments, Figures, as_text};

/// Measures copies of an image over an older one, of which one extent in [`ONE_IN`] differs.
pub(crate) fn delta(arguments: &Arguments, option: &'static str) -> Figures {
    let size = arguments.image;
    let mut table = Table::default();
    for way in &arguments.direction {
        let place = arguments.place(3 * size)?;
        let [source, target] = ends(&place, *way);
        Sample::incompressible(source.clone(), size)?;
        change(&source)?;
        let new = Sample::of(source)?;
        let mut runs = Vec::new();
        for _ in 0..arguments.runs {
            if target.exists() {
                fs::remove_file(&target)?;
            }
            Sample::incompressible(target.clone(), size)?;
            let measured = copy(arguments, &place, *way, &[option])?;
            new.check(&target)?;
            runs.push(measured);
        }
        table.row(row(option, *way, size, &runs, "≤ 3".to_owned()));
    }
    Ok(table)
}

/// Measures copies of a file of 25 times the image's size, of which one byte in a hundred is data.
pub(crate) fn sparse(arguments: &Arguments) -> Figures {
    let (size, data) = (25 * arguments.image, arguments.image / 4);
    let mut table = Table::default();
    for way in &arguments.direction {
        let place = arguments.place(3 * data)?;
        let [source, target] = ends(&place, *way);
        let file = File::create_new(&source)?;
        file.set_len(size)?;
        let part = size / (data / DATA).max(1);
        for index in 0..data / DATA {
            let page = random(index, part.saturating_sub(DATA) / PAGE);
            file.write_all_at(&content(index, DATA), index * part + page * PAGE)?;
        }
        file.sync_all()?;
        let (map, whole) = (data_map(&source)?, Sample::of(source)?);
        let mut runs = Vec::new();
        for _ in 0..arguments.runs {
            if target.exists() {
                fs::remove_file(&target)?;
            }
            runs.push(copy(arguments, &place, *way, &[])?);
            if data_map(&target)? != map || Sample::of(target.clone())?.digest != whole.digest {
                return Err("the copy differs from the source in its data or its holes".into());
            }
        }
        let bar = format!("≤ {:.2}", 101.0 * data as f64 / size as f64);
        table.row(row("sparse", *way, size, &runs, bar));
    }
    Ok(table)
}

/// Changes one page in one of every [`ONE_IN`] extents of a file.
fn change(path: &Path) -> Result<()> {
    let file = File::options().write(true).open(path)?;
    let extents = file.metadata()?.len() / EXTENT;
    for first in (0..extents).step_by(ONE_IN) {
        let extent = (first + random(first, ONE_IN as u64)).min(extents - 1);
        let page = random(extent, EXTENT / PAGE) * PAGE;
        file.write_all_at(&content(extent, PAGE), extent * EXTENT + page)?;
    }
    Ok(file.sync_all()?)
}

/// Returns the data extents of a file as first offset and the one behind the last.
fn data_map(path: &Path) -> Result<Vec<(u64, u64)>> {
    let file = File::open(path)?;
    let (mut map, mut offset) = (Vec::new(), 0);
    loop {
        match seek(&file, SeekFrom::Data(offset)) {
            Ok(begin) => {
                offset = seek(&file, SeekFrom::Hole(begin))?;
                map.push((begin, offset));
            }
            Err(Errno::NXIO) => return Ok(map),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns the paths of source and target.
fn ends(place: &Place, way: Way) -> [std::path::PathBuf; 2] {
    [way.from(), way.from().peer()].map(|host| place.files(host).join(NAME))
}

fn copy(arguments: &Arguments, place: &Place, way: Way, options: &[&str]) -> Result<Measured> {
    let stage = Stage::build(&arguments.links, place, Contender::Nicstripe)?;
    let (here, remote) = (place.files(Host::A).join(NAME), stage.remote(NAME));
    let here = as_text(&here)?;
    let words = match way {
        Way::Put => [here, &remote],
        Way::Get => [&remote, here],
    };
    let client = stage.client(&[&["--quiet", "--json"], options, &words].concat());
    stage.measure(client, time_limit(u64::MAX))
}

fn row(case: &str, way: Way, size: u64, runs: &[Measured], bar: String) -> [Cell; 9] {
    let wire = Spread::of(runs, |run| 100.0 * run.wire_bytes() as f64 / size as f64);
    let [client, daemon] = [0, 1].map(|end| {
        let peak = |run: &Measured| run.peaks[end].resident as f64 / 1_048_576.0;
        Spread::of(runs, peak).middle(1)
    });
    [
        cell("case", case),
        cell("way", way.name()),
        cell("file", gib(size)),
        cell("s", Spread::of(runs, |run| run.wall.as_secs_f64()).print(2)),
        cell("% of it on the cables", wire.print(2)),
        cell("bar", bar),
        cell("peak client, MiB", client),
        cell("of the daemon", daemon),
        cell(
            "CPU s, both",
            Spread::of(runs, |run| run.cpu.as_secs_f64()).middle(1),
        ),
    ]
}

/// Returns pseudo-random bytes that depend only on `number`.
fn content(number: u64, len: u64) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    let mut hasher = Hasher::new();
    let mut stream = hasher.update(&number.to_le_bytes()).finalize_xof();
    stream.fill(&mut bytes);
    bytes
}

/// Returns a pseudo-random number below `limit` that depends only on the seed; 0 if `limit` is 0.
fn random(seed: u64, limit: u64) -> u64 {
    let bytes = content(seed, 8);
    let number = bytes
        .first_chunk()
        .map_or(0, |chunk| u64::from_le_bytes(*chunk));
    number % limit.max(1)
}

const NAME: &str = "image.bin";

/// Size in bytes of the extents that `--delta` compares.
const EXTENT: u64 = 256 << 10;

/// Size in bytes of the data between two holes.
const DATA: u64 = 1 << 20;

/// One of so many extents is changed: 2 %.
const ONE_IN: usize = 50;

const PAGE: u64 = 4096;
