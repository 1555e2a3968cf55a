//! Tests of backups without outages.

use std::fs;

use nicstripe::trust::Access;
use rustic_core::{FileType, LimitOption, PruneOptions, ReadBackend as _};

use crate::{
    harness::{Served, backup, check, init, open, restore},
    tree::{assert_same, content, plant, plant_all},
};

#[test]
fn a_folder_at_the_daemon_keeps_what_is_backed_up() {
    keeps_what_is_backed_up(&Served::in_folder(Access::Full));
}

#[test]
fn a_storage_of_the_program_keeps_what_is_backed_up() {
    keeps_what_is_backed_up(&Served::in_memory());
}

fn keeps_what_is_backed_up(served: &Served) {
    let backend = served.backend();
    assert_eq!(backend.location(), "nicstripe:daemon:backup/laptop");
    assert!(
        backend.list(FileType::Config).unwrap().is_empty()
            && backend.list(FileType::Pack).unwrap().is_empty()
    );
    let source = tempfile::tempdir().unwrap();
    plant_all(source.path());

    let first = backup(init(backend.clone()), source.path());
    check(&open(backend.clone()));
    assert_same(source.path(), restore(open(backend.clone())).path());

    // A change of one file among many adds only that file,
    plant(source.path(), "many/7", &content(7, 100_000), 0o600);
    let before = stored(served);
    let second = backup(open(backend.clone()), source.path());
    let added = stored(served) - before;
    // plus its trees, an index and a snapshot.
    assert!(
        (100_000..150_000).contains(&added),
        "{added} bytes were added"
    );
    assert_same(source.path(), restore(open(backend.clone())).path());

    // Data referenced only by deleted snapshots is removed.
    fs::remove_file(source.path().join("deep/down/large")).unwrap();
    backup(open(backend.clone()), source.path());
    let repository = open(backend.clone());
    repository.delete_snapshots(&[first.id, second.id]).unwrap();
    let packs = backend.list(FileType::Pack).unwrap();
    let options = PruneOptions::default()
        .instant_delete(true)
        .max_unused(LimitOption::Percentage(0))
        .max_repack(LimitOption::Unlimited);
    let before = stored(served);
    repository
        .prune(&options, repository.prune_plan(&options).unwrap())
        .unwrap();
    let left = backend.list(FileType::Pack).unwrap();
    assert!(
        packs.iter().filter(|pack| !left.contains(pack)).count() >= 4,
        "{} packs of {} are left",
        left.len(),
        packs.len()
    );
    assert!(before - stored(served) > 4 << 20);
    check(&open(backend.clone()));
    assert_same(source.path(), restore(open(backend.clone())).path());
    backend.close();
}

/// Returns the total size of all files of the repository in bytes.
fn stored(served: &Served) -> u64 {
    let kinds = [
        FileType::Pack,
        FileType::Index,
        FileType::Snapshot,
        FileType::Key,
        FileType::Config,
    ];
    let backend = served.backend();
    let sizes = kinds.map(|kind| {
        backend
            .list_with_size(kind)
            .unwrap()
            .into_iter()
            .map(|(_, size)| u64::from(size))
            .sum::<u64>()
    });
    sizes.into_iter().sum()
}
