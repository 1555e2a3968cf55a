//! Traffic and time saved by `--delta`, `--inplace` and sparse files, by the cables' counters.
//!
//! `cargo bench --bench deltas -- --case delta,inplace,sparse --size 4G --sparse-size 100G --data
//! 1G --runs 3 --direction put,get`
//!
//! | case | copy | compared |
//! | --- | --- | --- |
//! | delta | `cp --delta` of an image of `--size` over an older one; 2 of 100 extents of 256 KiB differ | every byte, and the digest |
//! | inplace | like delta, with `--inplace` | every byte, and the digest |
//! | sparse | a file of `--sparse-size` with `--data` bytes in extents of 1 MiB, spread evenly | data and the maps of `SEEK_DATA` |
//!
//! Source and target are in memory, or in `--disk`. Needs space for three times `--size`: source,
//! old target and new target. Traffic is the number of bytes on the cables in both directions, with
//! all headers. Fails if a copy is wrong, never because of speed or traffic.
#![forbid(unsafe_code)]

use std::{
    fs::{self, File},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use blake3::Hasher;
use clap::Args;
use nicstripe_lab::Host;
use nicstripe_testkit::bench::{
    Cables, Contender, Copies, Measured, Place, Result, Sample, Spread, Stage, Table, Way,
    circumstances, gib, parse_size,
};
use rustix::{
    fs::{SeekFrom, seek},
    io::Errno,
};

#[derive(Debug, Args)]
struct Arguments {
    /// Cases to measure
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "delta,sparse"
    )]
    case: Vec<Case>,

    /// Size of the image in bytes, for the cases `delta` and `inplace`
    #[arg(long, default_value = "4G", value_parser = parse_size)]
    size: u64,

    /// Size of the sparse file in bytes
    #[arg(long, default_value = "100G", value_parser = parse_size)]
    sparse_size: u64,

    /// Bytes of data in the sparse file
    #[arg(long, default_value = "1G", value_parser = parse_size)]
    data: u64,

    /// Cables: a number of cables of 1 Gbit/s, or their rates in Mbit/s
    #[arg(long, default_value = "2")]
    links: Cables,

    #[command(flatten)]
    copies: Copies,

    /// Folder on a disk for source and target [default: memory]
    #[arg(long)]
    disk: Option<PathBuf>,
}

/// Kind of copy to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Case {
    Delta,
    Inplace,
    Sparse,
}

fn main() -> ExitCode {
    nicstripe_testkit::bench::run(bench)
}

fn bench(arguments: Arguments) -> Result<()> {
    let mut table = Table::new(&HEADINGS);
    let mut failures = Vec::new();
    for case in &arguments.case {
        for way in &arguments.copies.direction {
            let result = match case {
                Case::Delta => delta(&arguments, *way, "--delta"),
                Case::Inplace => delta(&arguments, *way, "--inplace"),
                Case::Sparse => sparse(&arguments, *way),
            };
            match result {
                Ok(row) => table.row(row),
                Err(error) => {
                    let failure = format!("{case:?}, {}: {error}", way.name());
                    eprintln!("{failure}");
                    failures.push(failure);
                }
            }
        }
    }
    println!(
        "\n{}\n{}, {} runs: median (least–greatest).\n\n{table}",
        circumstances(&[Contender::Nicstripe]),
        arguments.links,
        arguments.copies.runs
    );
    if failures.is_empty() {
        Ok(())
    } else {
        Err(failures.join("; ").into())
    }
}

/// Measures copies of a changed image over the unchanged one, with `--delta` or `--inplace`.
/// Returns the table row.
fn delta(arguments: &Arguments, way: Way, option: &'static str) -> Result<Vec<String>> {
    let place = arguments.place(3 * arguments.size)?;
    let ends = Ends::of(&place, way);
    let old = Sample::incompressible(ends.source.clone(), arguments.size)?;
    let changed = change(&ends.source)?;
    let new = Sample::of(old.path)?;
    let mut runs = Vec::new();
    for _ in 0..arguments.copies.runs {
        // Reverts the effect of the previous copy.
        if ends.target.exists() {
            fs::remove_file(&ends.target)?;
        }
        Sample::incompressible(ends.target.clone(), arguments.size)?;
        let measured = ends.copy(arguments, &place, &[option])?;
        new.check_digest(
            measured.report()?.blake3.as_deref().unwrap_or_default(),
            "nicstripe",
        )?;
        new.check(&ends.target)?;
        eprintln!(
            "{option}, {}: {:.2} s, {} bytes on the cables",
            way.name(),
            measured.wall.as_secs_f64(),
            measured.wire_bytes()
        );
        runs.push(measured);
    }
    let case = format!("{option}, {} MiB changed", changed >> 20);
    Ok(row(&case, way, arguments.size, &runs, "≤ 3 %".to_owned()))
}

/// Changes one page in one of every [`ONE_IN`] extents of a file. Returns the total size of the
/// changed extents in bytes.
fn change(path: &Path) -> Result<u64> {
    let file = File::options().write(true).open(path)?;
    let extents = file.metadata()?.len() / EXTENT;
    let mut changed = 0;
    for first in (0..extents).step_by(usize::try_from(ONE_IN)?) {
        let extent = first + random(first, ONE_IN);
        let page = random(extent, EXTENT / PAGE) * PAGE;
        if extent < extents {
            file.write_all_at(
                &content(extent)[..usize::try_from(PAGE)?],
                extent * EXTENT + page,
            )?;
            changed += EXTENT;
        }
    }
    file.sync_all()?;
    Ok(changed)
}

/// Measures copies of a sparse file. Returns the table row.
fn sparse(arguments: &Arguments, way: Way) -> Result<Vec<String>> {
    let place = arguments.place(3 * arguments.data)?;
    let ends = Ends::of(&place, way);
    let file = File::create_new(&ends.source)?;
    file.set_len(arguments.sparse_size)?;
    for offset in data_offsets(arguments) {
        file.write_all_at(&content(offset), offset)?;
    }
    file.sync_all()?;
    let map = data_map(&file)?;
    let mut runs = Vec::new();
    for _ in 0..arguments.copies.runs {
        if ends.target.exists() {
            fs::remove_file(&ends.target)?;
        }
        let measured = ends.copy(arguments, &place, &[])?;
        check_sparse(&file, &map, &File::open(&ends.target)?)?;
        eprintln!(
            "sparse, {}: {:.2} s, {} bytes on the cables",
            way.name(),
            measured.wall.as_secs_f64(),
            measured.wire_bytes()
        );
        runs.push(measured);
    }
    let data: u64 = map.iter().map(|(begin, end)| end - begin).sum();
    let case = format!(
        "sparse, {} MiB of data in {} extents",
        data >> 20,
        map.len()
    );
    Ok(row(
        &case,
        way,
        arguments.sparse_size,
        &runs,
        format!("≤ {:.3} GiB", data as f64 * 1.01 / MIB / 1024.0),
    ))
}

/// Returns the offsets of the data extents. Each of equal parts of the file has one extent, at a
/// pseudo-random page.
fn data_offsets(arguments: &Arguments) -> impl Iterator<Item = u64> + use<> {
    let extents = (arguments.data / DATA_EXTENT).max(1);
    let part = arguments.sparse_size / extents;
    (0..extents).map(move |index| {
        index * part + random(index, part.saturating_sub(DATA_EXTENT) / PAGE) * PAGE
    })
}

/// Returns the data extents of a sparse file (`SEEK_DATA`, `SEEK_HOLE`) as start and end offsets.
fn data_map(file: &File) -> Result<Vec<(u64, u64)>> {
    let mut map = Vec::new();
    let mut offset = 0;
    loop {
        match seek(file, SeekFrom::Data(offset)) {
            Ok(begin) => {
                offset = seek(file, SeekFrom::Hole(begin))?;
                map.push((begin, offset));
            }
            Err(Errno::NXIO) => return Ok(map),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Compares size, data extents and data of a copy with the sparse source. `map` is the source's
/// data extents.
///
/// # Errors
///
/// A size, an extent or a byte differs.
fn check_sparse(source: &File, map: &[(u64, u64)], copy: &File) -> Result<()> {
    let (size, found) = (source.metadata()?.len(), copy.metadata()?.len());
    if size != found {
        return Err(format!("the copy has {found} bytes, expected {size}").into());
    }
    let copied = data_map(copy)?;
    if let Some((ours, theirs)) = map
        .iter()
        .zip(&copied)
        .find(|(ours, theirs)| ours != theirs)
    {
        return Err(format!("data at {ours:?} of the source is at {theirs:?} of the copy").into());
    }
    if copied.len() != map.len() {
        return Err(format!(
            "the copy has {} extents of data, expected {}",
            copied.len(),
            map.len()
        )
        .into());
    }
    let mut blocks = [vec![0; BLOCK], vec![0; BLOCK]];
    for (begin, end) in map {
        for offset in (*begin..*end).step_by(BLOCK) {
            let len = usize::try_from(end - offset)?.min(BLOCK);
            let [ours, theirs] = &mut blocks;
            source.read_exact_at(&mut ours[..len], offset)?;
            copy.read_exact_at(&mut theirs[..len], offset)?;
            if ours[..len] != theirs[..len] {
                return Err(format!(
                    "the copy differs from the source in the block at byte {offset}"
                )
                .into());
            }
        }
    }
    Ok(())
}

/// Paths of source and target, and the direction of the copy.
#[derive(Debug)]
struct Ends {
    source: PathBuf,
    target: PathBuf,
    way: Way,
}

impl Ends {
    fn of(place: &Place, way: Way) -> Self {
        let [source, target] =
            [way.from(), way.from().peer()].map(|host| place.files(host).join(NAME));
        Self {
            source,
            target,
            way,
        }
    }

    fn copy(&self, arguments: &Arguments, place: &Place, options: &[&str]) -> Result<Measured> {
        let stage = Stage::build(&arguments.links, place, Contender::Nicstripe)?;
        let (here, remote) = (place.files(Host::A).join(NAME), stage.remote(NAME));
        let here = here.to_str().ok_or("the path is not UTF-8")?;
        let words = match self.way {
            Way::Put => [here, &remote],
            Way::Get => [&remote, here],
        };
        let client = stage.client(&[&["--quiet", "--json"], options, &words].concat());
        stage.measure(client, TIME_LIMIT)
    }
}

impl Arguments {
    fn place(&self, room: u64) -> Result<Place> {
        match &self.disk {
            Some(folder) => Place::on_disk(Some(folder), room),
            None => Place::in_memory(room),
        }
    }
}

const HEADINGS: [&str; 10] = [
    "case",
    "way",
    "file",
    "s",
    "on the cables",
    "% of the file",
    "bar",
    "peak client, MiB",
    "of the daemon",
    "CPU s, both",
];

fn row(case: &str, way: Way, size: u64, runs: &[Measured], bar: String) -> Vec<String> {
    let wire = Spread::of(runs, |run| run.wire_bytes() as f64);
    let [client, daemon] =
        [0, 1].map(|end| Spread::of(runs, |run| run.peaks[end].resident as f64 / MIB).middle(1));
    vec![
        case.to_owned(),
        way.name().to_owned(),
        gib(size),
        Spread::of(runs, |run| run.wall.as_secs_f64()).print(2),
        format!("{:.3} GiB", wire.median() / MIB / 1024.0),
        format!("{:.2}", 100.0 * wire.median() / size as f64),
        bar,
        client,
        daemon,
        Spread::of(runs, |run| run.cpu.as_secs_f64()).middle(1),
    ]
}

/// Returns 1 MiB of pseudo-random bytes that depend only on `number`.
fn content(number: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK];
    Hasher::new()
        .update(&number.to_le_bytes())
        .finalize_xof()
        .fill(&mut bytes);
    bytes
}

/// Returns a pseudo-random number below `limit` that depends only on the seed; 0 if `limit` is 0.
fn random(seed: u64, limit: u64) -> u64 {
    let mut bytes = [0; 8];
    Hasher::new()
        .update(b"where")
        .update(&seed.to_le_bytes())
        .finalize_xof()
        .fill(&mut bytes);
    u64::from_le_bytes(bytes) % limit.max(1)
}

const NAME: &str = "image.bin";
const MIB: f64 = 1_048_576.0;
const BLOCK: usize = 1 << 20;

/// Size of the extents that `--delta` compares and transfers, in bytes.
const EXTENT: u64 = 256 << 10;

/// Ratio of all extents to changed extents: 50, so that 2 % change.
const ONE_IN: u64 = 50;

const PAGE: u64 = 4096;

/// Size of each data extent of the sparse file, in bytes.
const DATA_EXTENT: u64 = BLOCK as u64;

/// Timeout of one measured copy.
const TIME_LIMIT: Duration = Duration::from_secs(600);
