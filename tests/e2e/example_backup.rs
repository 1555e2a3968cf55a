//! Tests of `examples/backup`: incremental backup, restore, and kills of the tool and the daemon.

use std::{
    fs::{self, Permissions},
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    path::{Path, PathBuf},
    thread::sleep,
    time::Instant,
};

use nicstripe_testkit::{
    Outcome, Process, example,
    pair::{LINKS, Pair},
    tree::{Aspects, Tree},
};

#[test]
fn a_second_backup_sends_what_has_changed_and_each_restores_what_there_was() {
    let pair = Pair::new();
    let size = make_tree(&pair.client.path("tree"), 200);
    let first_tree = read(&pair, "tree");
    backup(&pair, &["init", REPO]).expect(0);
    let first = missing(&backup(&pair, &["backup", REPO, "tree"]).expect(0));
    assert!(
        (size..size + 200 * NODE).contains(&first),
        "{first} of {size}"
    );

    // One file in a hundred, with the average size, because the sizes vary.
    for number in [13, 117] {
        write(
            &pair.client.path(format!("tree/{number}")),
            number + 1000,
            size / 200,
        );
    }
    let second_tree = read(&pair, "tree");
    let second = missing(&backup(&pair, &["backup", REPO, "tree"]).expect(0));
    assert!(second <= size / 50 + 200 * NODE, "{second} of {size}");
    // The manifest is unchanged as well.
    let third = missing(&backup(&pair, &["backup", REPO, "tree"]).expect(0));
    assert_eq!(third, 0);

    let listed = backup(&pair, &["list", REPO]).expect(0);
    let names: Vec<&str> = listed
        .stdout
        .lines()
        .filter_map(|line| line.split_once(' ').map(|(name, _)| name))
        .collect();
    assert!(names.len() >= 2, "{listed}");
    backup(&pair, &["restore", REPO, &names[0][..12], "restored-1"]).expect(0);
    assert_eq!(read(&pair, "restored-1"), first_tree);
    backup(&pair, &["restore", REPO, "latest", "restored-2"]).expect(0);
    assert_eq!(read(&pair, "restored-2"), second_tree);
    backup(&pair, &["check", REPO, "--read-data"]).expect(0);
}

#[test]
fn a_backup_that_is_killed_at_any_moment_leaves_a_repository_that_is_whole() {
    let pair = Pair::new();
    let kills = std::env::var("NICSTRIPE_KILLS").map_or(5, |kills| kills.parse().unwrap());
    make_tree(&pair.client.path("tree"), 20);
    backup(&pair, &["init", REPO]).expect(0);
    let started = Instant::now();
    backup(&pair, &["backup", REPO, "tree"]).expect(0);
    let whole = started.elapsed();
    for kill in 0..kills {
        // New data for each backup, so that the kill hits a running transfer.
        let folder = pair.client.path(format!("tree/new-{kill}"));
        fs::create_dir(&folder).unwrap();
        make_files(&folder, 20);
        let running = start_backup(&pair, &["backup", REPO, "tree"]);
        sleep(whole.mul_f64(f64::from(random(kill) % 1000) / 1000.0));
        running.kill();
        backup(&pair, &["check", REPO]).expect(0);
    }
    backup(&pair, &["backup", REPO, "tree"]).expect(0);
    backup(&pair, &["check", REPO, "--read-data"]).expect(0);
    backup(&pair, &["restore", REPO, "latest", "restored"]).expect(0);
    assert!(read(&pair, "restored") == read(&pair, "tree"));
}

#[test]
fn what_is_damaged_or_missing_in_a_repository_is_told() {
    let pair = Pair::new();
    make_tree(&pair.client.path("tree"), 20);
    backup(&pair, &["list", REPO]).expect(1).error(&["repo"]);
    backup(&pair, &["init", REPO]).expect(0);
    backup(&pair, &["init", REPO])
        .expect(1)
        .error(&["repository exists"]);
    backup(&pair, &["restore", REPO, "latest", "restored"])
        .expect(1)
        .error(&["no snapshot"]);
    backup(&pair, &["backup", REPO, "tree"]).expect(0);
    // The first pack has content only; the names of the files are in the last one, and always read.
    let written = |pack: &PathBuf| fs::metadata(pack).unwrap().modified().unwrap();
    let packs = packs(&pair).into_iter().map(|pack| pair.server.path(pack));
    let pack = packs.min_by_key(written).unwrap();
    let mut bytes = fs::read(&pack).unwrap();
    bytes[100] ^= 1;
    fs::write(&pack, bytes).unwrap();
    backup(&pair, &["check", REPO]).expect(0);
    backup(&pair, &["check", REPO, "--read-data"])
        .expect(1)
        .error(&["damaged"]);
    backup(&pair, &["restore", REPO, "latest", "restored"])
        .expect(1)
        .error(&["damaged"]);
    fs::remove_file(&pack).unwrap();
    backup(&pair, &["check", REPO])
        .expect(1)
        .error(&["is missing"]);
}

/// Runs the backup tool over both links and waits until it exits.
fn backup(pair: &Pair, arguments: &[&str]) -> Outcome {
    start_backup(pair, arguments).finish()
}

/// Starts the backup tool with small packs, so that a backup consists of many packs.
fn start_backup(pair: &Pair, arguments: &[&str]) -> Process {
    let mut command = pair.client.command(example("backup"));
    command.args(arguments).args([
        "--port",
        &pair.daemon.port.to_string(),
        "--pack-size",
        "262144",
    ]);
    command.args(LINKS.iter().flat_map(|link| ["--link", link]));
    Process::spawn(command)
}

/// Returns the number of bytes that the backup tool reports as sent, which are the bytes that the
/// daemon lacked.
#[track_caller]
fn missing(outcome: &Outcome) -> u64 {
    let words: Vec<&str> = outcome.stdout.split_whitespace().collect();
    let place = words
        .iter()
        .position(|word| *word == "sent")
        .unwrap_or_else(|| panic!("{outcome}"));
    words[place - 2].parse().unwrap()
}

/// Returns the paths of all complete packs at the daemon, relative to its served directory.
fn packs(pair: &Pair) -> Vec<PathBuf> {
    let entries = fs::read_dir(pair.server.path("repo/packs")).unwrap();
    let names = entries.map(|entry| Path::new("repo/packs").join(entry.unwrap().file_name()));
    names
        .filter(|name| !name.to_string_lossy().contains("nicstripe"))
        .collect()
}

fn read(pair: &Pair, name: &str) -> Tree {
    Tree::read(
        &pair.client.path(name),
        Aspects {
            modes: true,
            ..Aspects::NONE
        },
    )
}

/// Creates a tree of `files` files of many sizes, and some entries of other types, names and modes.
/// Returns the total size of the files in bytes.
fn make_tree(folder: &Path, files: u32) -> u64 {
    fs::create_dir(folder).unwrap();
    let size = make_files(folder, files);
    fs::write(folder.join("empty"), "").unwrap();
    fs::create_dir_all(folder.join("dir/empty")).unwrap();
    fs::write(
        folder.join(std::ffi::OsStr::from_bytes(b"dir/\xff\n")),
        "a name that is no text",
    )
    .unwrap();
    std::os::unix::fs::symlink("../nowhere", folder.join("dir/link")).unwrap();
    fs::write(folder.join("dir/tool"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(folder.join("dir/tool"), Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(folder.join("dir/empty"), Permissions::from_mode(0o500)).unwrap();
    size
}

/// Creates `files` files of 1 to 240 KB. Returns their total size in bytes.
fn make_files(folder: &Path, files: u32) -> u64 {
    let mut size = 0;
    for number in 0..files {
        let len = 1000 + 239_000 * u64::from(number) / u64::from(files);
        write(&folder.join(number.to_string()), number, len);
        size += len;
    }
    size
}

/// Writes a file of `len` pseudo-random bytes. The bytes depend on the path and `number`.
fn write(path: &Path, number: u32, len: u64) {
    let mut bytes = vec![0; len as usize];
    blake3::Hasher::new()
        .update(path.as_os_str().as_bytes())
        .update(&number.to_le_bytes())
        .finalize_xof()
        .fill(&mut bytes);
    fs::write(path, bytes).unwrap();
}

/// Returns a pseudo-random number that depends only on `seed`.
fn random(seed: u32) -> u32 {
    let hash = blake3::hash(&seed.to_le_bytes());
    u32::from_le_bytes(*hash.as_bytes().first_chunk().unwrap())
}

const REPO: &str = "127.0.0.1:repo";

/// Maximum size of a file's entry in the manifest, in bytes.
const NODE: u64 = 256;
