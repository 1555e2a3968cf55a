//! Tests of operations that the daemon's peers file does not permit.

use std::error::Error as _;

use nicstripe::{Error, FailCode, trust::Access};
use rustic_core::{
    ConfigOptions, FileType, PruneOptions, ReadBackend as _, RusticError, WriteBackend as _,
};

use crate::{
    harness::{Served, backup, check, files_beneath, init, open, restore},
    tree::{assert_same, content, plant, plant_all},
};

/// Returns the error code of the daemon, if the error of rustic_core has one as its source.
fn code(error: &RusticError) -> Option<FailCode> {
    error.source()?.downcast_ref::<Error>()?.fail_code()
}

#[test]
fn a_peer_that_may_only_append_backs_up_and_removes_nothing() {
    let served = Served::in_folder(Access::AppendOnly);
    let backend = served.backend();
    let source = tempfile::tempdir().unwrap();
    plant_all(source.path());
    let first = backup(init(backend.clone()), source.path());
    plant(source.path(), "later", &content(9, 500_000), 0o644);
    backup(open(backend.clone()), source.path());
    let before = files_beneath(&served.path());

    let mut repository = open(backend.clone());
    let refusal = repository.delete_snapshots(&[first.id]).unwrap_err();
    assert_eq!(code(&refusal), Some(FailCode::NotPermitted));
    let log = refusal.display_log();
    let path = format!("`backup/laptop/snapshots/{}`", first.id.to_hex().as_str());
    assert!(
        log.contains(&path) && log.contains("append-only mode") && log.contains("peers file"),
        "{log}"
    );

    let mut options = PruneOptions::default().instant_delete(true);
    options.ignore_snaps = vec![first.id];
    let plan = repository
        .prune_plan(&options.clone().repack_all(true))
        .unwrap();
    assert_eq!(
        code(&repository.prune(&options, plan).unwrap_err()),
        Some(FailCode::NotPermitted)
    );
    let mut changed = ConfigOptions::default();
    changed.set_compression = Some(7);
    assert_eq!(
        code(&repository.apply_config(&changed).unwrap_err()),
        Some(FailCode::NotPermitted)
    );

    // All earlier files are unchanged; prune had written their replacements.
    let after = files_beneath(&served.path());
    assert!(before.iter().all(|file| after.contains(file)));
    check(&open(backend.clone()));
    assert_same(source.path(), restore(open(backend)).path());
}

#[test]
fn the_same_configuration_twice_is_no_change_where_nothing_may_change() {
    let served = Served::in_folder(Access::AppendOnly);
    let backend = served.backend();
    let id = Default::default();
    backend
        .write_bytes(FileType::Config, &id, false, "a configuration".into())
        .unwrap();
    backend
        .write_bytes(FileType::Config, &id, false, "a configuration".into())
        .unwrap();
    let refusal = backend
        .write_bytes(FileType::Config, &id, false, "b configuration".into())
        .unwrap_err();
    assert_eq!(code(&refusal), Some(FailCode::NotPermitted));
    assert_eq!(
        backend.read_full(FileType::Config, &id).unwrap(),
        "a configuration"
    );
}

#[test]
fn a_peer_that_may_only_read_is_refused_each_change() {
    let served = Served::in_folder(Access::ReadOnly);
    let backend = served.backend();
    let id = Default::default();
    let refusals = [
        backend.create().unwrap_err(),
        backend
            .write_bytes(FileType::Key, &id, false, "a key".into())
            .unwrap_err(),
        backend.remove(FileType::Key, &id, false).unwrap_err(),
    ];
    for refusal in refusals {
        assert_eq!(
            code(&refusal),
            Some(FailCode::NotPermitted),
            "{}",
            refusal.display_log()
        );
    }
    assert!(backend.list(FileType::Key).unwrap().is_empty());
}
