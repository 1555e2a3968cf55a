//! Copies made while the disk logs its writes: files and trees of many kinds, by concurrent
//! workers.

use std::{
    fs::{self, File},
    os::unix::fs::{FileExt, MetadataExt, symlink},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use nicstripe_sim::Rng;

use super::{
    disk::Disk,
    history::{Copy, Thing},
    room::{Daemons, Room},
};
use crate::{
    bench::{Process, Result, Way},
    tree::walk,
};

/// Condition that ends a recording.
#[derive(Clone, Copy, Debug)]
pub enum Amount {
    /// Random steps until `bytes` were written to the disk or `time` has passed.
    Until { bytes: u64, time: Duration },
    /// One worker that takes each kind of step once.
    EachOnce,
}

/// Runs the workers until `amount` is reached. Returns their copies.
pub fn run(
    room: &Room,
    disk: &Disk,
    daemons: &Daemons<'_>,
    amount: Amount,
    rng: &mut Rng,
) -> Result<Vec<Copy>> {
    let worker = |id, seed| Worker {
        id,
        room,
        disk,
        daemons,
        rng: Rng::new(seed),
        made: 0,
        files: Vec::new(),
        trees: Vec::new(),
        copies: Vec::new(),
    };
    let Amount::Until { bytes, time } = amount else {
        let mut worker = worker(0, rng.next_u64());
        Step::ALL
            .into_iter()
            .try_for_each(|step| worker.take(step))?;
        return Ok(worker.copies);
    };
    let until = Instant::now() + time;
    let is_over = || disk.logged_bytes() >= bytes || Instant::now() >= until;
    let workers = 1 + rng.below(MOST_WORKERS);
    let seeds: Vec<u64> = (0..workers).map(|_| rng.next_u64()).collect();
    thread::scope(|scope| {
        let work = |(id, seed)| {
            let mut worker = worker(id, seed);
            move || -> std::result::Result<Vec<Copy>, String> {
                while !is_over() {
                    let step = worker.choose();
                    worker
                        .take(step)
                        .map_err(|error| format!("worker {id}: {error}"))?;
                }
                Ok(worker.copies)
            }
        };
        let threads: Vec<_> = seeds
            .into_iter()
            .enumerate()
            .map(|job| scope.spawn(work(job)))
            .collect();
        let mut copies = Vec::new();
        for thread in threads {
            copies.extend(thread.join().map_err(|_| "a worker panicked")??);
        }
        Ok(copies)
    })
}

/// Kind of copy that a worker makes next. The worker makes a `File` copy if the precondition of
/// another kind is not met.
#[derive(Clone, Copy, Debug)]
enum Step {
    File,
    Replacement,
    Tree,
    Update,
    TreeThatIsThere,
    Interruption,
}

impl Step {
    const ALL: [Self; 6] = [
        Self::File,
        Self::Replacement,
        Self::Tree,
        Self::Update,
        Self::TreeThatIsThere,
        Self::Interruption,
    ];
}

struct Worker<'a> {
    id: usize,
    room: &'a Room,
    disk: &'a Disk,
    daemons: &'a Daemons<'a>,
    rng: Rng,
    /// Number of names created so far, which makes each new name unique.
    made: u32,
    /// Target and source path of each copied single file.
    files: Vec<[String; 2]>,
    /// Target and source path of each copied tree.
    trees: Vec<[String; 2]>,
    copies: Vec<Copy>,
}

impl Worker<'_> {
    fn choose(&mut self) -> Step {
        match self.rng.below(100) {
            0..40 => Step::File,
            40..60 => Step::Replacement,
            60..75 => Step::Tree,
            75..85 => Step::Update,
            85..90 => Step::TreeThatIsThere,
            _ => Step::Interruption,
        }
    }

    fn take(&mut self, step: Step) -> Result<()> {
        match step {
            Step::Replacement if !self.files.is_empty() => self.replace_file(),
            Step::Tree => self.copy_tree(),
            Step::Update if !self.trees.is_empty() => self.update_tree(),
            Step::TreeThatIsThere => self.copy_tree_that_is_there(),
            // The traced program would outlive a killed strace.
            Step::Interruption if !self.daemons.are_traced() => self.interrupt(),
            _ => self.copy_file(),
        }
    }

    fn copy_file(&mut self) -> Result<()> {
        let copy = self.new_file()?;
        self.files.push([copy.target.clone(), copy.source.clone()]);
        self.finish(copy)
    }

    /// Creates a source file of random length. Returns its copy to a new path.
    fn new_file(&mut self) -> Result<Copy> {
        let source = self.name("file");
        let len = match self.rng.below(100) {
            0..8 => 0,
            8..35 => 1 + self.rng.below(4096),
            35..65 => 1 + self.rng.below(256 << 10),
            65..94 => 1 + self.rng.below(3 << 20),
            _ => (16 << 20) + self.rng.below(4 << 20),
        };
        let path = self.room.sources().join(&source);
        if len > 1 << 20 && self.rng.below(4) == 0 {
            self.write_sparse(&path, len)?;
        } else {
            fs::write(&path, self.bytes(len))?;
        }
        let mut options = self.flavour();
        if len >= 16 << 20 {
            // Slow enough for several syncs of the journal, which happen once a second.
            options.extend(["--bwlimit".to_owned(), "6M".to_owned()]);
        }
        let mut target = self.name("target");
        let folder = (self.rng.below(4) == 0).then(|| self.name("folder"));
        if let Some(folder) = &folder {
            target = format!("{folder}/{target}");
        }
        let mut copy = self.single(options, source, target)?;
        if let Some(folder) = folder {
            // Another program created the folder just before. A durable file needs a durable path.
            fs::create_dir(self.room.targets().join(&folder))?;
            copy.things.push((folder.into(), Thing::Directory));
        }
        Ok(copy)
    }

    /// Writes a sparse file. Each 256 KiB consist of 128 KiB of data and a hole.
    fn write_sparse(&mut self, path: &Path, len: u64) -> Result<()> {
        let file = File::create(path)?;
        file.set_len(len)?;
        for at in (0..len).step_by(256 << 10) {
            let bytes = self.bytes((len - at).min(128 << 10));
            file.write_all_at(&bytes, at)?;
        }
        Ok(())
    }

    /// Changes part of a copied file, and copies the file again to the same target.
    fn replace_file(&mut self) -> Result<()> {
        let index = self.rng.below(self.files.len() as u64) as usize;
        let [target, before] = self.files[index].clone();
        let mut bytes = fs::read(self.room.sources().join(before))?;
        let change = self.bytes(1 + self.rng.clone().below(64 << 10));
        let at = self.rng.below(bytes.len() as u64 + 1) as usize;
        bytes.resize(bytes.len().max(at + change.len()), 0);
        bytes[at..at + change.len()].copy_from_slice(&change);
        let source = self.name("file");
        fs::write(self.room.sources().join(&source), bytes)?;
        let mut options = self.flavour();
        let how = ["--force", "--force", "--delta", "--inplace"][self.rng.below(4) as usize];
        options.push(how.to_owned());
        let copy = Copy {
            is_in_place: how == "--inplace",
            ..self.single(options, source.clone(), target)?
        };
        self.files[index][1] = source;
        self.finish(copy)
    }

    fn single(&mut self, options: Vec<String>, source: String, target: String) -> Result<Copy> {
        let thing = Thing::at(&self.room.sources().join(&source))?;
        let keeps_time = options.iter().any(|option| option == "-p");
        let things = vec![(
            PathBuf::from(&target),
            if keeps_time {
                thing
            } else {
                thing.without_time()
            },
        )];
        Ok(self.copy(options, source, target, things))
    }

    fn copy(
        &mut self,
        options: Vec<String>,
        source: String,
        target: String,
        things: Vec<(PathBuf, Thing)>,
    ) -> Copy {
        let way = if self.rng.below(2) == 0 {
            Way::Put
        } else {
            Way::Get
        };
        let started = self.disk.position();
        Copy {
            worker: self.id,
            way,
            options,
            source,
            target,
            things,
            is_in_place: false,
            started,
            acknowledged: None,
        }
    }

    /// Returns random options of `cp` that change the way a file is received.
    fn flavour(&mut self) -> Vec<String> {
        let flavours: [&[&str]; 6] = [&[], &[], &[], &["-p"], &["--verify"], &["-z"]];
        flavours[self.rng.below(flavours.len() as u64) as usize]
            .iter()
            .map(|&option| option.to_owned())
            .collect()
    }

    fn copy_tree(&mut self) -> Result<()> {
        let copy = self.new_tree()?;
        self.trees.push([copy.target.clone(), copy.source.clone()]);
        self.finish(copy)
    }

    fn new_tree(&mut self) -> Result<Copy> {
        let (source, target) = (self.name("tree"), self.name("target"));
        let root = self.room.sources().join(&source);
        fs::create_dir(&root)?;
        self.plant(&root)?;
        self.tree(Vec::new(), source, target, &[])
    }

    /// Fills a tree with directories, symbolic links and mostly small files.
    fn plant(&mut self, root: &Path) -> Result<()> {
        let mut folders = vec![root.to_owned()];
        for index in 0..5 + self.rng.below(50) {
            let folder = folders[self.rng.below(folders.len() as u64) as usize].clone();
            let path = folder.join(format!("{index:02}"));
            match self.rng.below(100) {
                0..12 => {
                    fs::create_dir(&path)?;
                    folders.push(path);
                }
                12..20 => symlink(format!("../{index}"), &path)?,
                20..30 => fs::write(&path, b"")?,
                30..98 => {
                    let len = self.rng.below(60 << 10);
                    fs::write(&path, self.bytes(len))?;
                }
                // The receiver makes larger files separate transfers, each with a journal.
                _ => fs::write(&path, self.bytes(5 << 20))?,
            }
        }
        Ok(())
    }

    /// Returns the copy of a tree to `target`. `gone` lists the paths below `target` that the
    /// source no longer has.
    fn tree(
        &mut self,
        more: Vec<String>,
        source: String,
        target: String,
        gone: &[PathBuf],
    ) -> Result<Copy> {
        let mut things = vec![(PathBuf::from(&target), Thing::Directory)];
        describe(
            &self.room.sources().join(&source),
            Path::new(&target),
            &mut things,
        )?;
        things.extend(
            gone.iter()
                .map(|path| (Path::new(&target).join(path), Thing::Absent)),
        );
        let recursive = if self.rng.below(4) == 0 { "-a" } else { "-r" };
        let mut options = vec![recursive.to_owned(), "--force".to_owned()];
        options.extend(more);
        Ok(self.copy(options, format!("{source}/"), target, things))
    }

    /// Changes, adds and removes files of a copied tree, and copies the tree again with `--delete`.
    fn update_tree(&mut self) -> Result<()> {
        let index = self.rng.below(self.trees.len() as u64) as usize;
        let [target, before] = self.trees[index].clone();
        let source = self.name("tree");
        let (from, to) = (
            self.room.sources().join(before.trim_end_matches('/')),
            self.room.sources().join(&source),
        );
        replicate(&from, &to)?;
        let mut gone = Vec::new();
        let is_small = |path: &PathBuf| {
            let metadata = path.symlink_metadata();
            metadata.is_ok_and(|metadata| metadata.is_file() && metadata.size() < 1 << 20)
        };
        for path in walk(&to).into_iter().filter(is_small) {
            match self.rng.below(6) {
                0 => {
                    let len = self.rng.below(60 << 10);
                    fs::write(&path, self.bytes(len))?;
                }
                1 => {
                    fs::remove_file(&path)?;
                    gone.push(path.strip_prefix(&to)?.to_owned());
                }
                _ => {}
            }
        }
        for index in 0..self.rng.below(4) {
            fs::write(
                to.join(format!("new{}-{index}", self.made)),
                self.bytes(9000),
            )?;
        }
        let copy = self.tree(vec!["--delete".to_owned()], source, target, &gone)?;
        self.trees[index][1].clone_from(&copy.source);
        self.finish(copy)
    }

    /// Copies a tree to an identical target. Nothing is sent, but success means that the target is
    /// durable.
    fn copy_tree_that_is_there(&mut self) -> Result<()> {
        // Any content is permitted before the copy: `replicate` does not sync.
        let copy = Copy {
            is_in_place: true,
            ..self.new_tree()?
        };
        let source = self.room.sources().join(copy.source.trim_end_matches('/'));
        replicate(&source, &self.room.targets().join(&copy.target))?;
        self.trees.push([copy.target.clone(), copy.source.clone()]);
        self.finish(copy)
    }

    /// Kills the client during a copy, and reruns the copy.
    fn interrupt(&mut self) -> Result<()> {
        let copy = if self.rng.below(2) == 0 {
            self.new_tree()?
        } else {
            self.new_file()?
        };
        let patience = Duration::from_millis(self.rng.below(400));
        let mut client = self.spawn(&copy)?;
        if !client.has_ended_within(patience)? {
            client.kill()?;
        }
        drop(client);
        // Counts as interrupted even if the client had exited, because the client's result was not
        // read.
        self.copies.push(copy.clone());
        let mut again = Copy {
            started: self.disk.position(),
            ..copy
        };
        if !again.options.iter().any(|option| option == "--force") {
            // The file may have been renamed to its final name before the client was killed.
            again.options.push("--force".to_owned());
        }
        self.finish(again)
    }

    fn finish(&mut self, mut copy: Copy) -> Result<()> {
        let mut client = self.spawn(&copy)?;
        client.await_end(Instant::now() + COPY_TIMEOUT)?;
        // All writes of the copy are in the log by now.
        copy.acknowledged = Some(self.disk.position());
        client
            .succeeded()
            .map_err(|error| format!("{copy:?}: {error}"))?;
        self.copies.push(copy);
        Ok(())
    }

    fn spawn(&self, copy: &Copy) -> Result<Process> {
        Process::spawn(
            self.daemons.client(copy),
            &format!("cp-{}", self.id),
            &self.room.logs(),
        )
    }

    fn name(&mut self, kind: &str) -> String {
        self.made += 1;
        format!("{kind}-{}-{}", self.id, self.made)
    }

    fn bytes(&mut self, len: u64) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        blake3::Hasher::new()
            .update(&self.rng.next_u64().to_le_bytes())
            .finalize_xof()
            .fill(&mut bytes);
        bytes
    }
}

/// Lists the state of all paths below a folder. `beneath` is their parent path in the list.
fn describe(folder: &Path, beneath: &Path, things: &mut Vec<(PathBuf, Thing)>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = beneath.join(entry.file_name());
        let thing = Thing::at(&entry.path())?;
        if thing == Thing::Directory {
            describe(&entry.path(), &path, things)?;
        }
        things.push((path, thing));
    }
    Ok(())
}

/// Copies a tree with its modification times, without a sync.
fn replicate(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (path, metadata) = (to.join(entry.file_name()), entry.metadata()?);
        if metadata.is_dir() {
            replicate(&entry.path(), &path)?;
        } else if metadata.is_symlink() {
            symlink(fs::read_link(entry.path())?, path)?;
        } else {
            fs::copy(entry.path(), &path)?;
            File::options()
                .append(true)
                .open(path)?
                .set_modified(metadata.modified()?)?;
        }
    }
    Ok(File::open(to)?.set_modified(from.metadata()?.modified()?)?)
}

/// Maximum number of concurrent workers. On most file systems, a sync writes the whole journal. A
/// single worker therefore reveals losses that the syncs of another worker would hide.
const MOST_WORKERS: u64 = 2;

/// Timeout of a copy on a loaded machine.
const COPY_TIMEOUT: Duration = Duration::from_secs(120);
