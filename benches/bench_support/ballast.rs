//! Memory that is given back just ahead of a copy that needs it.
//!
//! A virtual machine that reports its free memory to its host pays for each page it uses next with a fault in the host: filling a tmpfs ran
//! at 0.43 to 0.58 GB/s so, and at 3.0 GB/s with a ballast (4 GiB, `dd bs=256k`). That is slower than four gigabit cables, and says nothing
//! of the program that writes. A machine of one's own has no such cost.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    os::fd::AsFd as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use rustix::fs::{FallocateFlags, fallocate, fstatvfs};

/// A file in memory from whose start holes are cut as its file system fills up. Removed when dropped.
#[derive(Debug)]
pub(crate) struct Ballast {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Ballast {
    /// Fills `size` bytes of the file system of `folder`, and begins to make room.
    pub(crate) fn hold(folder: &Path, size: u64) -> io::Result<Self> {
        let path = folder.join("ballast");
        let mut file = File::create(&path)?;
        let zeros = vec![0; BLOCK];
        for _ in 0..size.div_ceil(BLOCK as u64) {
            file.write_all(&zeros)?;
        }
        let stop = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let stop = stop.clone();
            move || make_room(&file, size, &stop)
        });
        Ok(Self { path, stop, thread: Some(thread) })
    }
}

impl Drop for Ballast {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        if let Some(Ok(Err(error))) = ended {
            eprintln!("memory was not kept warm: {error}");
        }
        let _ = fs::remove_file(&self.path);
    }
}

/// Keeps [`LEAD`] bytes given back ahead of what the others on the file system took since the start.
///
/// First every other block, then those between: so there is seldom as much in one piece as a host takes back (2 MiB).
fn make_room(ballast: &File, size: u64, stop: &AtomicBool) -> io::Result<()> {
    let used = || fstatvfs(ballast.as_fd()).map(|stat| (stat.f_blocks - stat.f_bfree) * stat.f_frsize);
    let before = used()?;
    let block = BLOCK as u64;
    let (even, odd) = ((0..size).step_by(2 * BLOCK), (block..size).step_by(2 * BLOCK));
    let mut given = 0;
    for offset in even.chain(odd) {
        while given > (used()? + given).saturating_sub(before) + LEAD {
            thread::sleep(Duration::from_micros(500));
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
        }
        fallocate(ballast, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, block)?;
        given += block;
    }
    Ok(())
}

/// Enough for 10 ms at 3 GB/s.
const LEAD: u64 = 6 << 20;

/// Given back at once.
const BLOCK: usize = 256 << 10;
