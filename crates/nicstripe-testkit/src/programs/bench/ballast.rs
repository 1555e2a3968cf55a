//! Memory ballast: a file in a tmpfs that is freed just ahead of a copy into the same tmpfs.
//!
//! A virtual machine with free page reporting takes a host page fault for each page that it uses
//! again. Filling a tmpfs ran at 0.43 to 0.58 GB/s without a ballast and at 3.0 GB/s with one (4
//! GiB, `dd bs=256k`). 0.43 GB/s is slower than four gigabit cables, and is not a property of the
//! writing program. A physical machine has no such cost.

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

/// Ballast file in a tmpfs. A thread punches holes into the ballast file while other files grow, so
/// that the other files reuse its memory. Dropping the ballast stops the thread and removes the
/// file.
#[derive(Debug)]
pub struct Ballast {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Ballast {
    /// Creates a ballast file of `size` bytes in `folder` and starts the thread that punches holes.
    pub fn hold(folder: &Path, size: u64) -> io::Result<Self> {
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
        Ok(Self {
            path,
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Ballast {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        if let Some(Ok(Err(error))) = ended {
            eprintln!("cannot keep memory warm: {error}");
        }
        let _ = fs::remove_file(&self.path);
    }
}

/// Punches holes into the ballast file, [`LEAD`] bytes ahead of the growth of other files on the
/// same file system. Returns when the whole file is freed or `stop` is set.
///
/// Frees the blocks with an even index first, then the others: the host reclaims only contiguous
/// pieces of 2 MiB, which are rare in this order.
fn make_room(ballast: &File, size: u64, stop: &AtomicBool) -> io::Result<()> {
    let used =
        || fstatvfs(ballast.as_fd()).map(|stat| (stat.f_blocks - stat.f_bfree) * stat.f_frsize);
    let before = used()?;
    let block = BLOCK as u64;
    let (even, odd) = (
        (0..size).step_by(2 * BLOCK),
        (block..size).step_by(2 * BLOCK),
    );
    let mut given = 0;
    for offset in even.chain(odd) {
        while given > (used()? + given).saturating_sub(before) + LEAD {
            thread::sleep(Duration::from_micros(500));
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
        }
        fallocate(
            ballast,
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            offset,
            block,
        )?;
        given += block;
    }
    Ok(())
}

/// Bytes freed ahead of the growth of other files: enough for a wake-up delay of 2 ms at 3 GB/s.
const LEAD: u64 = 6 << 20;

/// Length of a punched hole in bytes.
const BLOCK: usize = 256 << 10;
