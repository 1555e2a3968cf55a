//! File systems under test, created and mounted with the system's tools.

use std::{
    fmt,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{bench::Result, trial::is_installed};

/// Type of file system under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// ext4 with its default `data=ordered`: only metadata is journaled, and data is written before
    /// the metadata.
    Ext4,
    Xfs,
    Btrfs,
}

impl Kind {
    /// Creates a file with an empty file system.
    pub fn make(self, image: &Path) -> Result<()> {
        File::create(image)?.set_len(SIZE)?;
        let (program, options) = self.maker();
        run(Command::new(program).args(options).arg(image))
    }

    /// Returns the reason why this file system cannot be created on this machine; `None` if it can.
    pub fn obstacle(self) -> Option<String> {
        let (program, _) = self.maker();
        (!is_installed(program)).then(|| format!("{program} is not installed"))
    }

    /// Returns the mkfs program and its options, which prevent later initialization by a kernel
    /// thread.
    fn maker(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::Ext4 => (
                "mkfs.ext4",
                &[
                    "-q",
                    "-F",
                    "-J",
                    "size=8",
                    "-E",
                    "nodiscard,lazy_itable_init=0,lazy_journal_init=0",
                ],
            ),
            Self::Xfs => ("mkfs.xfs", &["-q", "-f", "-K"]),
            Self::Btrfs => ("mkfs.btrfs", &["-q", "-f", "-K"]),
        }
    }

    /// Mounts the file system in `file` on `folder`, through a loop device.
    pub fn mount(self, file: &Path, folder: &Path) -> Result<Mounted> {
        fs::create_dir_all(folder)?;
        run(Command::new("mount")
            .args(["-t", &self.to_string(), "-o", "loop"])
            .args([file, folder]))?;
        Ok(Mounted {
            kind: self,
            folder: folder.to_owned(),
            is_mounted: true,
        })
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

/// Mounted file system. Dropping it unmounts it and releases its loop device.
#[derive(Debug)]
pub struct Mounted {
    kind: Kind,
    pub folder: PathBuf,
    is_mounted: bool,
}

impl Mounted {
    /// Unmounts the file system, which must not be in use.
    pub fn unmount(mut self) -> Result<()> {
        self.is_mounted = false;
        run(Command::new("umount").arg(&self.folder))?;
        if self.kind == Kind::Btrfs {
            // The kernel caches the device and its state.
            run(Command::new("btrfs").args(["device", "scan", "--forget"]))?;
        }
        Ok(())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.is_mounted {
            // Lazily, because the file system may still be in use after an error. The end of the
            // mount namespace cleans up.
            let _ = Command::new("umount")
                .arg("--lazy")
                .arg(&self.folder)
                .stderr(Stdio::null())
                .status();
        }
    }
}

fn run(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot start {name}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!(
            "{name} failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )
        .into()),
    }
}

/// Size of the disk in bytes. XFS needs at least 300 MiB. Blocks that were never written use no
/// space on the host.
const SIZE: u64 = 512 << 20;
