use std::{fs, os::unix::fs::symlink, time::Duration};

use nicstripe_proto::BitRate;
use nicstripe_testkit::names;

use super::*;

const MIB: u64 = 1 << 20;

fn runs() -> AtomicBool {
    AtomicBool::new(false)
}

fn target(dir: &Path, name: &str, bytes: u64) -> TargetRequest {
    let dir = File::open(dir).unwrap().into();
    stage_request(dir, OsStr::new(name), [7; 32], bytes)
}

/// Returns the request of a copy to that name, of a file that no stage has.
fn copy(dir: &Path) -> TargetRequest {
    let mut request = target(dir, "target", MIB);
    request.offer.source.inode = 12;
    TargetRequest {
        options: PutOptions::default(),
        attributes: None,
        sidecar: Sidecar::None,
        ..request
    }
}

/// Returns two temporary directories, one in memory (`/dev/shm`) and one in the system's default
/// location.
fn folders() -> Vec<tempfile::TempDir> {
    let memory = tempfile::tempdir_in("/dev/shm");
    [memory, tempfile::tempdir()]
        .into_iter()
        .filter_map(Result::ok)
        .collect()
}

#[test]
fn what_is_written_is_removed_and_took_some_time() {
    for folder in folders() {
        // The last chunk is short and its length is not a multiple of a sector.
        let rate = write_stage(target(folder.path(), "target", 20 * MIB + 1001), &runs())
            .unwrap()
            .rate();
        assert!(rate > BitRate::ZERO && rate < BitRate(u64::MAX), "{rate:?}");
        assert_eq!(names(folder.path()), [""; 0]);
    }
}

#[test]
fn what_has_the_name_is_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("target"), "mine").unwrap();
    symlink("target", folder.path().join("link")).unwrap();
    for name in ["target", "link"] {
        write_stage(target(folder.path(), name, MIB), &runs()).unwrap();
    }
    assert_eq!(names(folder.path()), ["link", "target"]);
    assert_eq!(fs::read(folder.path().join("target")).unwrap(), b"mine");
    fs::create_dir(folder.path().join("dir")).unwrap();
    write_stage(target(folder.path(), "dir", MIB), &runs()).unwrap_err();
    assert_eq!(names(folder.path()), ["dir", "link", "target"]);
}

#[test]
fn what_is_written_has_no_name_so_that_a_kill_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let writer = Writer::open(target(folder.path(), "target", MIB), &runs()).unwrap();
    assert_eq!(names(folder.path()), [""; 0]);
    writer.write(&runs()).unwrap();
    assert_eq!(names(folder.path()), [""; 0]);
    // It does not block other writers either.
    write_stage(target(folder.path(), "target", 2 * MIB), &runs()).unwrap();
    drop(writer);
    assert_eq!(names(folder.path()), [""; 0]);
}

#[test]
fn a_copy_that_was_interrupted_is_not_lost() {
    let folder = tempfile::tempdir().unwrap();
    let stage = || target(folder.path(), "target", MIB);
    let mut writer = Writer::open(stage(), &runs()).unwrap();
    writer.target = Target::open(copy(folder.path())).unwrap().0;
    writer.write(&runs()).unwrap();
    drop(writer);
    let left = names(folder.path());
    assert_eq!(left.len(), 2, "{left:?}");
    let error = write_stage(stage(), &runs()).unwrap_err();
    assert_eq!((error.code, names(folder.path())), (FailCode::Exists, left));
}

#[test]
fn a_copy_to_the_same_name_keeps_a_stage_away() {
    let folder = tempfile::tempdir().unwrap();
    let copy = Target::open(copy(folder.path())).unwrap();
    let error = write_stage(target(folder.path(), "target", MIB), &runs()).unwrap_err();
    assert_eq!(error.code, FailCode::Busy);
    drop(copy);
    assert_eq!(names(folder.path()), [""; 0]);
}

#[test]
fn a_daemon_reads_and_writes_what_it_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("dir")).unwrap();
    fs::write(folder.path().join("dir/source"), vec![7; MIB as usize]).unwrap();
    let root = Root::open(folder.path()).unwrap();
    let order = |name: Option<&str>, read| DiskOrder {
        bytes: 2 * MIB,
        name: name.map(|name| Name::parse(name.as_bytes()).unwrap()),
        number: 5,
        read,
    };
    let done = |name, read| serve(&root, [7; 32], &order(name, read), &runs());
    for name in [None, Some("new"), Some("dir"), Some("dir/source")] {
        let done = done(name, false).unwrap();
        assert_eq!((done.number, done.bytes), (5, 2 * MIB));
        assert!(done.micros > 0 && done.file_system.is_some(), "{done:?}");
    }
    assert_eq!(done(Some("dir/source"), true).unwrap().bytes, MIB);
    for (name, read) in [
        (None, true),
        (Some("new"), true),
        (Some("dir"), true),
        (Some("no/new"), false),
    ] {
        done(name, read).unwrap_err();
    }
    assert_eq!(names(folder.path()), ["dir"]);
    assert_eq!(names(&folder.path().join("dir")), ["source"]);
}

#[test]
fn a_stage_that_is_stopped_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let stop = AtomicBool::new(true);
    let error = write_stage(target(folder.path(), "target", 8 * MIB), &stop).unwrap_err();
    assert_eq!(error.source.kind(), io::ErrorKind::Interrupted);
    // Stop a running stage.
    let stop = runs();
    let stopped = thread::scope(|scope| {
        let stage = scope.spawn(|| write_stage(target(folder.path(), "target", 4 << 30), &stop));
        thread::sleep(Duration::from_millis(50));
        stop.store(true, Ordering::Relaxed);
        stage.join().unwrap()
    });
    // It also fails by itself if the disk has less space.
    assert!(stopped.is_err(), "{stopped:?}");
    assert_eq!(names(folder.path()), [""; 0]);
    fs::write(folder.path().join("source"), [1; 1000]).unwrap();
    read_stage(&folder.path().join("source"), MIB, &AtomicBool::new(true)).unwrap_err();
}

#[test]
fn a_disk_that_is_full_is_an_error_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let error = write_stage(target(folder.path(), "target", 1 << 43), &runs()).unwrap_err();
    assert_eq!(error.code, FailCode::NoSpace);
    assert_eq!(names(folder.path()), [""; 0]);
}

#[test]
fn a_source_is_read_from_its_disk_and_stays_as_it_is() {
    for folder in folders() {
        let path = folder.path().join("source");
        let bytes = vec![3; 9 * MIB as usize + 77];
        fs::write(&path, &bytes).unwrap();
        let before = read_from_disks();
        let rate = read_stage(&path, u64::MAX, &runs()).unwrap().rate();
        assert!(rate > BitRate::ZERO, "{rate:?}");
        let read = read_from_disks().zip(before).map(|(now, then)| now - then);
        let name = file_system(&File::open(&path).unwrap());
        if name.is_some_and(|name| name == "ext4" || name == "xfs") {
            // Upper bound only: other tests may read as well.
            assert!(
                read.is_none_or(|read| read >= 9 * MIB),
                "{read:?} bytes came from the disk"
            );
        }
        assert!(read_stage(&path, MIB, &runs()).is_ok(), "a part of it");
        assert!(fs::read(&path).unwrap() == bytes);
    }
}

/// Returns the number of bytes that this process has read from disks (`read_bytes` in
/// `/proc/self/io`); `None` if the kernel does not report it.
fn read_from_disks() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/io").ok()?;
    text.lines()
        .find_map(|line| line.strip_prefix("read_bytes: ")?.parse().ok())
}

#[test]
fn what_cannot_be_read_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty");
    fs::write(&empty, "").unwrap();
    let missing = folder.path().join("missing");
    for path in [folder.path(), &empty, &missing] {
        assert!(read_stage(path, MIB, &runs()).is_err(), "{path:?}");
    }
    let root = Root::open(folder.path()).unwrap();
    fs::write(folder.path().join("file"), "bytes").unwrap();
    let read = |name: &str| {
        read_stage_beneath(&root, &Name::parse(name.as_bytes()).unwrap(), MIB, &runs())
    };
    assert!(read("file").is_ok() && read("missing").is_err());
    symlink("/etc/passwd", folder.path().join("out")).unwrap();
    assert!(read("out").is_err());
}
