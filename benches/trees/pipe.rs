//! Archives copied through pipes in both directions, and a reader slower than any cable.

use std::{
    fs::File,
    io::{self, PipeReader, Read},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use blake3::{Hash, Hasher};
use nicstripe_lab::Host;
use nicstripe_testkit::bench::{
    Cell, Contender, Contents, Measured, Place, Result, Spread, Stage, Table, cell,
};

use crate::{Arguments, Figures, copy_aside, percent_of_theory, time_limit, toolchain};

/// Measures copies of a tar archive from a pipe to the daemon, and from the daemon into a pipe.
/// Returns the table of results.
pub(crate) fn bench(arguments: &Arguments) -> Figures {
    let tree = arguments
        .tree
        .first()
        .map_or_else(toolchain, |tree| Ok(tree.clone()))?;
    let weighed = Contents::of(&tree)?;
    let place = arguments.place(3 * (weighed.bytes + 4096 * weighed.files))?;
    let source = place.files(Host::A).join("tree");
    copy_aside(&tree, &source)?;
    let mut archive = start_tar(&source)?;
    let (digest, size) = digest_of(&mut archive.stdout.take().ok_or("tar has no output")?)?;
    succeeded(archive)?;

    let mut scene = Scene {
        arguments,
        place: &place,
        source: &source,
        digest,
        contents: Contents {
            bytes: size,
            files: 1,
        },
    };
    let mut runs = [Vec::new(), Vec::new()];
    for _ in 0..arguments.runs {
        runs[0].push(scene.there()?);
        runs[1].push(scene.back(None)?);
    }
    let mut table = Table::default();
    for (what, runs) in [
        "tar c into cp - host:x.tar",
        "cp host:x.tar - into a reader",
    ]
    .into_iter()
    .zip(&runs)
    {
        table.row(scene.row(what, "≥ 95", runs));
    }
    scene.shorten()?;
    let slow = scene.back(Some(SLOW))?;
    table.row(scene.row("likewise, 20 MB/s", "", &[slow]));
    Ok(table)
}

struct Scene<'a> {
    arguments: &'a Arguments,
    place: &'a Place,
    /// Path of the tree that `tar` archives.
    source: &'a Path,
    /// BLAKE3 digest of the archive.
    digest: Hash,
    contents: Contents,
}

impl Scene<'_> {
    /// Measures `tar c | nicstripe cp - host:x.tar`. Checks the received archive.
    fn there(&self) -> Result<Measured> {
        self.place.clear(Host::B)?;
        let stage = Stage::build(&self.arguments.links, self.place, Contender::Nicstripe)?;
        let ballast = self.place.ballast(self.contents.bytes)?;
        let mut tar = start_tar(self.source)?;
        let archive = tar.stdout.take().ok_or("tar has no output")?;
        let client = stage.client(&["-v", "-", &stage.remote(ARCHIVE)]);
        let measured = stage.measure_between(
            client,
            archive.into(),
            Stdio::null(),
            time_limit(&self.contents),
        )?;
        drop(ballast);
        succeeded(tar)?;
        let (digest, size) = digest_of(&mut File::open(self.place.files(Host::B).join(ARCHIVE))?)?;
        self.check(digest, size)?;
        check_links(&measured)?;
        Ok(measured)
    }

    /// Measures `nicstripe cp host:x.tar -` into a reader of at most `rate` bytes per second.
    /// Checks the received archive.
    fn back(&self, rate: Option<u64>) -> Result<Measured> {
        let stage = Stage::build(&self.arguments.links, self.place, Contender::Nicstripe)?;
        let (reader, writer) = io::pipe()?;
        let reader = thread::spawn(move || {
            digest_of(&mut Paced {
                from: reader,
                rate,
                begun: Instant::now(),
                read: 0,
            })
            .map_err(|error| error.to_string())
        });
        let client = stage.client(&["-v", &stage.remote(ARCHIVE), "-"]);
        let measured = stage.measure_between(
            client,
            Stdio::null(),
            writer.into(),
            time_limit(&self.contents),
        )?;
        let (digest, size) = reader.join().map_err(|_| "the reader panicked")??;
        self.check(digest, size)?;
        check_links(&measured)?;
        Ok(measured)
    }

    /// Truncates the daemon's archive to [`SLOW_SIZE`], because a slow reader would need minutes
    /// for the whole archive.
    fn shorten(&mut self) -> Result<()> {
        let path = self.place.files(Host::B).join(ARCHIVE);
        File::options()
            .write(true)
            .open(&path)?
            .set_len(self.contents.bytes.min(SLOW_SIZE))?;
        (self.digest, self.contents.bytes) = digest_of(&mut File::open(path)?)?;
        Ok(())
    }

    fn check(&self, digest: Hash, size: u64) -> Result<()> {
        let expected = self.contents.bytes;
        if (digest, size) == (self.digest, expected) {
            Ok(())
        } else {
            Err(format!("{size} bytes of other content received, expected {expected}").into())
        }
    }

    fn row(&self, what: &str, bar: &str, runs: &[Measured]) -> [Cell; 10] {
        let mib = |value: fn(&Measured) -> u64| Spread::of(runs, |run| value(run) as f64 / MIB);
        let growth = Spread::of(runs, |run| {
            run.growth().into_iter().max().unwrap_or(0) as f64 / MIB
        });
        let bytes = self.contents.bytes;
        let rate = Spread::of(runs, |run| bytes as f64 / 1e6 / run.wall.as_secs_f64());
        let cables = &self.arguments.links;
        let of_theory = Spread::of(runs, |run| percent_of_theory(bytes, run.wall, cables));
        [
            cell("pipe", what),
            cell("MiB", format!("{:.1}", bytes as f64 / MIB)),
            cell("s", Spread::of(runs, |run| run.wall.as_secs_f64()).print(2)),
            cell("MB/s", rate.middle(1)),
            cell("% of theory", of_theory.print(1)),
            cell("bar", bar),
            cell(
                "peak client, MiB",
                mib(|run| run.peaks[0].resident).print(1),
            ),
            cell("of the daemon", mib(|run| run.peaks[1].resident).print(1)),
            cell("later growth, MiB", growth.print(1)),
            // A lost link would have ended the case.
            cell("links lost", "none"),
        ]
    }
}

/// Reader limited to a rate in bytes per second.
struct Paced {
    from: PipeReader,
    rate: Option<u64>,
    begun: Instant,
    read: u64,
}

impl Read for Paced {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(rate) = self.rate {
            let due = Duration::from_secs_f64(self.read as f64 / rate as f64);
            thread::sleep(due.saturating_sub(self.begun.elapsed()));
        }
        let read = self.from.read(buffer)?;
        self.read += read as u64;
        Ok(read)
    }
}

/// Starts `tar` of a tree with its output in a pipe. The output for an unchanged tree is
/// deterministic.
fn start_tar(tree: &Path) -> Result<Child> {
    Ok(Command::new("tar")
        .arg("-cC")
        .arg(tree)
        .arg(".")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?)
}

fn succeeded(mut tar: Child) -> Result<()> {
    let status = tar.wait()?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("tar failed: {status}").into())
    }
}

/// Reads to the end. Returns the BLAKE3 digest and the number of bytes.
fn digest_of(from: &mut impl Read) -> Result<(Hash, u64)> {
    let mut hasher = Hasher::new();
    let mut block = vec![0; BLOCK];
    loop {
        match from.read(&mut block)? {
            0 => return Ok((hasher.finalize(), hasher.count())),
            read => hasher.update(&block[..read]),
        };
    }
}

/// Checks the states of the links in the output of `cp -v`.
///
/// # Errors
///
/// A link was lost, or the numbers of links and cables differ.
fn check_links(measured: &Measured) -> Result<()> {
    let cables = measured.cables.len();
    let states: Vec<&str> = measured
        .errors
        .lines()
        .filter(|line| line.starts_with("  eth"))
        .collect();
    let are_up =
        states.len() == cables && states.iter().all(|line| line.trim_end().ends_with("  up"));
    if are_up {
        Ok(())
    } else {
        Err(format!(
            "{cables} uninterrupted links expected:\n{}",
            measured.errors
        )
        .into())
    }
}

const ARCHIVE: &str = "x.tar";
const MIB: f64 = 1_048_576.0;

/// Read size in bytes: the default capacity of a pipe on Linux (pipe(7)).
const BLOCK: usize = 64 << 10;

/// Rate of the slow reader in bytes per second.
const SLOW: u64 = 20_000_000;

/// Maximum size of the archive for the slow reader in bytes: 13 s of reading, and far more than
/// client and daemon may hold in memory.
const SLOW_SIZE: u64 = 256 << 20;
