//! File systems, made and mounted by the system's own programs.

use std::{
    fmt,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::bench_support::{Result, is_installed};

/// A file system under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// With its default options: metadata alone is in the journal, and data is written before.
    Ext4,
    Xfs,
    Btrfs,
}

impl Kind {
    /// Makes an empty file system in a new file.
    pub(crate) fn make(self, image: &Path) -> Result<()> {
        File::create(image)?.set_len(SIZE)?;
        let (program, options) = self.maker();
        run(Command::new(program).args(options).arg(image))
    }

    /// Whether it can be made here.
    pub(crate) fn obstacle(self) -> Option<String> {
        let (program, _) = self.maker();
        (!is_installed(program)).then(|| format!("{program} is not installed"))
    }

    /// All is written at once, and nothing later by a thread of the kernel.
    fn maker(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::Ext4 => ("mkfs.ext4", &["-q", "-F", "-J", "size=8", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"]),
            Self::Xfs => ("mkfs.xfs", &["-q", "-f", "-K"]),
            Self::Btrfs => ("mkfs.btrfs", &["-q", "-f", "-K"]),
        }
    }

    /// Mounts the file system that a file holds.
    pub(crate) fn mount(self, file: &Path, folder: &Path) -> Result<Mounted> {
        fs::create_dir_all(folder)?;
        run(Command::new("mount").args(["-t", &self.to_string(), "-o", "loop"]).args([file, folder]))?;
        Ok(Mounted { kind: self, folder: folder.to_owned(), is_mounted: true })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        })
    }
}

/// A file system that is mounted; unmounted, and its loop device given up, when dropped.
#[derive(Debug)]
pub(crate) struct Mounted {
    kind: Kind,
    pub(crate) folder: PathBuf,
    is_mounted: bool,
}

impl Mounted {
    /// Unmounts it, which nothing may use any more.
    pub(crate) fn unmount(mut self) -> Result<()> {
        self.is_mounted = false;
        run(Command::new("umount").arg(&self.folder))?;
        if self.kind == Kind::Btrfs {
            // The kernel remembers which device had this file system, and in which state it was there.
            run(Command::new("btrfs").args(["device", "scan", "--forget"]))?;
        }
        Ok(())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.is_mounted {
            // Lazily: after an error something may still use it. The mount namespace takes the rest with it.
            let _ = Command::new("umount").arg("--lazy").arg(&self.folder).stderr(Stdio::null()).status();
        }
    }
}

fn run(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("cannot start {name}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{name} failed: {}", String::from_utf8_lossy(&output.stderr).trim()).into()),
    }
}

/// Of the disk, in bytes; XFS wants 300 MiB at least. What is not written takes no space.
const SIZE: u64 = 512 << 20;
