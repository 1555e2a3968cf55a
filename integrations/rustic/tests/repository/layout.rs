//! Tests that the daemon's directory is itself a valid repository.

use std::{fs, path::Path, process::Command, sync::Arc};

use nicstripe::trust::Access;
use rustic_backend::LocalBackend;
use rustic_core::RepositoryBackends;

use crate::{
    harness::{Served, backup, check, files_beneath, init, open, restore},
    tree::{assert_same, plant_all},
};

fn local(folder: &Path) -> RepositoryBackends {
    RepositoryBackends::new(
        Arc::new(LocalBackend::new(folder.to_str().unwrap(), []).unwrap()),
        None,
    )
}

#[test]
fn rustic_and_restic_open_the_daemons_folder_by_its_path() {
    let served = Served::in_folder(Access::Full);
    let source = tempfile::tempdir().unwrap();
    plant_all(source.path());
    backup(init(served.backend()), source.path());
    let folder = served.path();
    assert_names_are_restics(&folder);
    check(&open(local(&folder)));
    assert_same(source.path(), restore(open(local(&folder))).path());
    check_by_restic(&folder);
}

#[test]
fn what_is_written_by_the_folders_path_is_found_at_the_daemon() {
    let served = Served::in_folder(Access::Full);
    let source = tempfile::tempdir().unwrap();
    plant_all(source.path());
    backup(init(local(&served.path())), source.path());
    check(&open(served.backend()));
    assert_same(source.path(), restore(open(served.backend())).path());
}

#[track_caller]
fn assert_names_are_restics(folder: &Path) {
    let is_hex = |text: &str, len| {
        text.len() == len
            && text
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let files = files_beneath(folder);
    for (path, _) in &files {
        let parts: Vec<&str> = path.iter().map(|part| part.to_str().unwrap()).collect();
        let is_restics = match parts[..] {
            ["config"] => true,
            ["keys" | "snapshots" | "index", id] => is_hex(id, 64),
            ["data", two, id] => is_hex(id, 64) && is_hex(two, 2) && id.starts_with(two),
            _ => false,
        };
        assert!(is_restics, "{}", path.display());
    }
    for kind in ["config", "keys", "snapshots", "index", "data"] {
        assert!(
            files.iter().any(|(path, _)| path.starts_with(kind)),
            "{kind}"
        );
    }
    assert_eq!(fs::read_dir(folder.join("data")).unwrap().count(), 256);
    assert!(folder.join("locks").is_dir());
}

/// Checks the directory with restic if it is installed; otherwise does nothing, and the other
/// checks of the test must suffice.
#[track_caller]
fn check_by_restic(folder: &Path) {
    let home = tempfile::tempdir().unwrap();
    let mut restic = Command::new("restic");
    restic
        .args(["--no-cache", "--repo"])
        .arg(folder)
        .args(["check", "--read-data"]);
    restic
        .env("RESTIC_PASSWORD", "secret")
        .env("HOME", home.path());
    let Ok(checked) = restic.output() else { return };
    let said = String::from_utf8_lossy(&checked.stdout);
    assert!(
        checked.status.success() && said.contains("no errors were found"),
        "{said}\n{}",
        String::from_utf8_lossy(&checked.stderr)
    );
}
