//! Disk that can be frozen: ext4 in a file in memory, mounted in this process's mount namespace,
//! frozen by FIFREEZE.

use std::{
    env,
    fs::{self, File},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use nicstripe_testkit::bench::{Place, Result};

/// Restarts this process in a new mount namespace, with unshare(1). Returns if the process is
/// already in one, or if that is not permitted.
pub(crate) fn enter_own_mounts() {
    let Ok(program) = env::current_exe() else {
        return;
    };
    let may = Command::new("unshare")
        .args(["--mount", "true"])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if env::var_os(ENTERED).is_none() && may {
        let mut command = Command::new("unshare");
        let error = command
            .args(["--mount", "--propagation", "private", "--"])
            .arg(program)
            .args(env::args_os().skip(1))
            .env(ENTERED, "1")
            .exec();
        eprintln!("no private mounts: {error}");
    }
}

/// ext4 disk mounted over a folder. Unmounted on drop and at the exit of the process.
pub(crate) struct Disk {
    folder: PathBuf,
    image: PathBuf,
}

impl Disk {
    /// Returns the reason why a disk cannot be mounted; `None` if it can.
    pub(crate) fn obstacle() -> Option<String> {
        if env::var_os(ENTERED).is_none() {
            return Some("no private mount namespace".to_owned());
        }
        let missing = |program: &&str| {
            Command::new(program)
                .arg("--version")
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .is_err()
        };
        let missing: Vec<&str> = ["mkfs.ext4", "fsfreeze", "mount"]
            .into_iter()
            .filter(missing)
            .collect();
        (!missing.is_empty()).then(|| format!("{} is not installed", missing.join(", ")))
    }

    /// Creates a disk with at least `room` bytes of free space and mounts it over `folder`.
    pub(crate) fn over(folder: &Path, place: &Place, room: u64) -> Result<Self> {
        let image = place.logs().join("disk");
        File::create(&image)?.set_len(room + room / 8 + (64 << 20))?;
        let disk = Self {
            folder: folder.to_owned(),
            image,
        };
        run(Command::new("mkfs.ext4")
            .args(["-q", "-E", "lazy_itable_init=0"])
            .arg(&disk.image))?;
        run(Command::new("mount")
            .args(["-o", "loop"])
            .arg(&disk.image)
            .arg(&disk.folder))?;
        Ok(disk)
    }

    /// Freezes the disk for `time`. Returns once the disk is frozen. A separate process thaws the
    /// disk, even if this process is killed.
    pub(crate) fn freeze(&self, time: Duration) -> Result<Child> {
        let frozen = self.image.with_extension("frozen");
        let script = "exec 3< \"$0\"; fsfreeze -f /proc/self/fd/3; : > \"$2\"; sleep \"$1\"; fsfreeze -u /proc/self/fd/3";
        let mut command = Command::new("sh");
        command
            .args(["-c", script])
            .arg(&self.folder)
            .arg(time.as_secs_f64().to_string())
            .arg(&frozen);
        let freezer = command.stdin(Stdio::null()).process_group(0).spawn()?;
        while !frozen.exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
        fs::remove_file(frozen)?;
        Ok(freezer)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Err(error) = run(Command::new("umount").arg(&self.folder)) {
            eprintln!("{error}");
        }
        let _ = fs::remove_file(&self.image);
    }
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!(
            "{command:?}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )
        .into()),
    }
}

const ENTERED: &str = "NICSTRIPE_BENCH_OWN_MOUNTS";
