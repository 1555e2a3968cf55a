//! Tests of block devices as sources and targets.
//!
//! Run by `cargo test --test devices`, as root on a machine with loop devices. Otherwise the tests
//! are listed as ignored, with the reason.

#![allow(clippy::unwrap_used)]

mod harness;

use std::{
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
};

use harness::{PLAIN, REPLACE, Served, content, digest, done, finished, name};
use libtest_mimic::{Arguments, Completion, Trial};
use nicstripe::{CopyOptions, FailCode};

macro_rules! trials {
    ($obstacle:expr, $($name:ident),* $(,)?) => { vec![$({
        let obstacle: Option<String> = $obstacle.clone();
        let run = || {
            tokio::runtime::Runtime::new().unwrap().block_on($name());
            Completion::Completed
        };
        Trial::ignorable_test(stringify!($name), move || Ok(obstacle.map_or_else(run, Completion::ignored_with)))
    }),*] };
}

fn main() {
    let arguments = Arguments::from_args();
    let obstacle = if arguments.list { None } else { obstacle() };
    let trials = trials![
        obstacle,
        a_device_is_read_and_written_over,
        holes_are_zeros_on_a_device,
        a_device_that_is_too_small_or_in_use_is_refused,
        a_tree_replaces_neither_the_name_nor_the_content_of_a_device,
    ];
    libtest_mimic::run(&arguments, trials).exit();
}

fn obstacle() -> Option<String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(4096).unwrap();
    Loop::over(file.path()).err()
}

/// Path of a loop device that is attached to a file. Detached on drop.
struct Loop(PathBuf);

impl Loop {
    /// Attaches a loop device to a file. Returns the reason as an error if losetup(8) is missing or
    /// fails.
    fn over(file: &Path) -> Result<Self, String> {
        let output = Command::new("losetup")
            .args(["--find", "--show"])
            .arg(file)
            .output()
            .map_err(|error| format!("no losetup: {error}"))?;
        match output.status.success() {
            true => Ok(Self(
                String::from_utf8(output.stdout).unwrap().trim().into(),
            )),
            false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup")
            .arg("--detach")
            .arg(&self.0)
            .status();
    }
}

fn force() -> CopyOptions {
    CopyOptions {
        force: true,
        ..PLAIN
    }
}

const SIZE: usize = (8 << 20) + 4096;

async fn a_device_is_read_and_written_over() {
    let (served, here) = (Served::start().await, tempfile::tempdir().unwrap());
    let (image, target) = (here.path().join("image"), here.path().join("target"));
    std::fs::write(&image, content(SIZE)).unwrap();
    std::fs::write(&target, vec![7; SIZE + 8192]).unwrap();
    let (source, device) = (Loop::over(&image).unwrap(), Loop::over(&target).unwrap());
    let client = served.client(2).await;

    let report = finished(client.put(&source.0, Some(name("copy")), PLAIN)).await;
    assert_eq!(
        (report.size, report.digest),
        (SIZE as u64, Some(digest(&content(SIZE))))
    );
    assert!(std::fs::read(served.path("copy")).unwrap() == content(SIZE));

    let error = done(client.get(name("copy"), &device.0, REPLACE))
        .await
        .unwrap_err();
    assert_eq!(error.fail_code(), Some(FailCode::Exists), "only by force");
    let report = finished(client.get(
        name("copy"),
        &device.0,
        CopyOptions {
            verify: true,
            ..force()
        },
    ))
    .await;
    assert_eq!(report.digest, Some(digest(&content(SIZE))));
    let written = std::fs::read(&device.0).unwrap();
    assert!(
        written[..SIZE] == content(SIZE) && written[SIZE..] == [7; 8192],
        "data after the file stays"
    );

    let delta = CopyOptions {
        delta: true,
        ..force()
    };
    let report = finished(client.get(name("copy"), &device.0, delta)).await;
    assert_eq!(
        (report.wire_bytes, report.digest),
        (0, Some(digest(&content(SIZE))))
    );
}

async fn holes_are_zeros_on_a_device() {
    let (served, here) = (Served::start().await, tempfile::tempdir().unwrap());
    let target = here.path().join("target");
    std::fs::write(&target, vec![7; 16 << 20]).unwrap();
    let device = Loop::over(&target).unwrap();
    let source = std::fs::File::create(served.path("source")).unwrap();
    source.set_len(16 << 20).unwrap();
    [(4096, 4096), (10 << 20, 1 << 20)]
        .iter()
        .for_each(|&(offset, len)| source.write_all_at(&content(len), offset).unwrap());
    let client = served.client(1).await;
    finished(client.get(name("source"), &device.0, force())).await;
    assert!(std::fs::read(&device.0).unwrap() == std::fs::read(served.path("source")).unwrap());
}

async fn a_device_that_is_too_small_or_in_use_is_refused() {
    let (served, here) = (Served::start().await, tempfile::tempdir().unwrap());
    let target = here.path().join("target");
    std::fs::write(&target, vec![7; 4 << 20]).unwrap();
    let device = Loop::over(&target).unwrap();
    std::fs::write(served.path("large"), content(SIZE)).unwrap();
    std::fs::write(served.path("small"), content(5)).unwrap();
    let client = served.client(1).await;
    let error = done(client.get(name("large"), &device.0, force()))
        .await
        .unwrap_err();
    assert_eq!(error.fail_code(), Some(FailCode::NoSpace), "{error:?}");
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::EXCL;
    let _held = rustix::fs::open(&device.0, flags, rustix::fs::Mode::empty()).unwrap();
    let client = served.client(1).await;
    let error = done(client.get(name("small"), &device.0, force()))
        .await
        .unwrap_err();
    assert_eq!(error.fail_code(), Some(FailCode::Busy), "{error:?}");
    assert!(std::fs::read(&device.0).unwrap() == vec![7; 4 << 20]);
}

async fn a_tree_replaces_neither_the_name_nor_the_content_of_a_device() {
    let (served, here) = (Served::start().await, tempfile::tempdir().unwrap());
    let disk = here.path().join("disk");
    std::fs::write(&disk, vec![7; SIZE + (8 << 20)]).unwrap();
    let device = Loop::over(&disk).unwrap();
    // The file is too large for a batch and is therefore a standalone file. A forced copy of a
    // single file would write into the device.
    let (tree, bytes) = (here.path().join("tree"), content(6 << 20));
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("sda"), &bytes).unwrap();
    std::fs::create_dir(served.path("tree")).unwrap();
    let number = std::os::unix::fs::MetadataExt::rdev(&std::fs::metadata(&device.0).unwrap());
    let (kind, mode) = (
        rustix::fs::FileType::BlockDevice,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
    );
    rustix::fs::mknodat(rustix::fs::CWD, served.path("tree/sda"), kind, mode, number).unwrap();
    let client = served.client(1).await;
    let options = nicstripe::TreeOptions {
        recursive: true,
        files: CopyOptions {
            replace: true,
            ..force()
        },
        ..nicstripe::TreeOptions::default()
    };
    let report = finished(client.put_tree(vec![tree], None, options)).await;
    let failed = report.tree.unwrap().failures;
    assert_eq!(failed[0].code, FailCode::Occupied, "{failed:?}");
    let found = served.path("tree/sda").symlink_metadata().unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::rdev(&found), number);
    assert!(std::fs::read(&disk).unwrap() == vec![7; SIZE + (8 << 20)]);
}
