//! Tests of copies of one share of a tree, next to other processes that copy the others.

use std::{
    fs::{self, File},
    os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _},
    path::Path,
    thread::sleep,
    time::{Duration, Instant},
};

use nicstripe_testkit::{
    Process, content,
    pair::{MIB, Pair},
    tree::{Aspects, assert_same_tree, plant},
};

/// Plants a tree of 40 files in three directories, one of them empty.
fn source(pair: &Pair) {
    let src = pair.client.path("src");
    for index in 0..40 {
        let name = format!("{}/{index}", if index % 2 == 0 { "even" } else { "odd" });
        plant(&src, &name, format!("file {index}"));
    }
    fs::create_dir(src.join("empty")).unwrap();
}

/// Returns the records of shares in a directory.
fn records(dir: &Path) -> Vec<String> {
    fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".nicstripe-shares"))
        .collect()
}

/// Copies a share, which succeeds.
#[track_caller]
fn copied(pair: &Pair, number: &str, source: &str, target: &str) {
    share(pair, number, source, target).finish().expect(0);
}

fn share(pair: &Pair, share: &str, source: &str, target: &str) -> Process {
    pair.start_cp(&["-r", "--shard", share, source, target])
}

#[test]
fn shares_in_any_order_are_the_tree_and_the_last_one_removes_the_record() {
    let pair = Pair::new();
    source(&pair);
    let mut before = 0;
    for (index, number) in [3, 1, 4, 2].into_iter().enumerate() {
        copied(&pair, &format!("{number}/4"), "src/", "127.0.0.1:dst");
        let count = ["even", "odd"].map(|dir| {
            fs::read_dir(pair.server.path("dst").join(dir))
                .unwrap()
                .count()
        });
        let count = count.iter().sum();
        assert!(before < count, "share {number} is empty");
        before = count;
        let expected = usize::from(index < 3);
        assert_eq!(records(&pair.server.path("")).len(), expected);
    }
    let (src, dst) = (pair.client.path("src"), pair.server.path("dst"));
    assert_same_tree(&src, &dst, Aspects::NONE);

    let back = pair.client.path("back");
    for number in [2, 3, 1] {
        copied(&pair, &format!("{number}/3"), "127.0.0.1:dst/", "back");
    }
    assert_same_tree(&src, &back, Aspects::NONE);
    assert!(records(&pair.client.path("")).is_empty());
}

#[test]
fn who_counts_other_shares_or_lists_another_source_is_refused() {
    let pair = Pair::new();
    source(&pair);
    copied(&pair, "1/4", "src", "127.0.0.1:");
    share(&pair, "2/5", "src", "127.0.0.1:")
        .finish()
        .expect(5)
        .error(&["this copy has 5 shares, but 4 are recorded in"])
        .hint(&["--no-resume"]);
    plant(
        &pair.client.path("src"),
        "odd/1",
        "another size than before",
    );
    share(&pair, "2/4", "src", "127.0.0.1:")
        .finish()
        .expect(5)
        .error(&["the source is not the one of the other shares"]);
    pair.cp(&["-r", "--no-resume", "--shard", "1/1", "src", "127.0.0.1:"])
        .expect(0);
    assert!(records(&pair.server.path("")).is_empty());
    assert_same_tree(
        &pair.client.path("src"),
        &pair.server.path("src"),
        Aspects::NONE,
    );

    copied(&pair, "1/4", "127.0.0.1:src", "back/");
    share(&pair, "1/3", "127.0.0.1:src", "back/")
        .finish()
        .expect(5)
        .error(&["this copy has 3 shares, but 4 are recorded in"]);
}

#[test]
fn a_share_that_another_process_copies_is_left_to_it() {
    let pair = Pair::new();
    fs::create_dir(pair.client.path("src")).unwrap();
    pair.client.write("src/slow", content(24 * MIB));
    for (from, to) in [("src/", "127.0.0.1:dst"), ("127.0.0.1:dst/", "back")] {
        let slow = [
            "-r",
            "--shard",
            "1/1",
            "--bwlimit",
            "4M",
            "--json-stream",
            from,
            to,
        ];
        let slow = pair.start_cp(&slow);
        slow.await_bytes(1);
        pair.cp(&["-r", "--shard", "1/1", "--json", from, to])
            .expect(75)
            .error(&["another process copies share 1/1 now"]);
        slow.kill();
        // What the killed process held is free, and what it copied is there.
        pair.cp(&["-r", "--shard", "1/1", from, to]).expect(0);
    }
    let (src, back) = (pair.client.path("src"), pair.client.path("back"));
    assert_same_tree(&src, &back, Aspects::NONE);
}

#[test]
fn a_share_is_that_of_the_scheduler_or_a_usage_error() {
    let pair = Pair::new();
    source(&pair);
    let run = |script: &str| Process::spawn(pair.shell(script)).finish();
    for number in 1..=2 {
        run(&format!(
            "PARALLEL_SEQ={number} $cp -r --shard auto --shards 2 src 127.0.0.1:"
        ))
        .expect(0);
    }
    assert_same_tree(
        &pair.client.path("src"),
        &pair.server.path("src"),
        Aspects::NONE,
    );
    // An indexed job of Kubernetes, in which the second pod fails once.
    for index in [1, 0, 1] {
        run(&format!(
            "JOB_COMPLETION_INDEX={index} $cp -r --shard auto --shards 2 src/ 127.0.0.1:job"
        ))
        .expect(0);
    }
    let (src, job) = (pair.client.path("src"), pair.server.path("job"));
    assert_same_tree(&src, &job, Aspects::NONE);
    for (words, said) in [
        (["1/2", "https://x/y", "."], "a file at a web server"),
        (["1/2", "src/", "s3://bucket/x"], "--shard"),
        (["1/2", "-", "127.0.0.1:x"], "standard input or output"),
        (["5/4", "src", "127.0.0.1:"], "expected 1 to 4"),
    ] {
        pair.cp(&[&["-r", "--shard"], &words[..]].concat())
            .expect(2)
            .error(&[said]);
    }
    // The first share would make the directory into which the second one then copied.
    share(&pair, "1/2", "src", "127.0.0.1:dst")
        .finish()
        .expect(2)
        .error(&["expected SRC/ or DST/"]);
}

/// Makes a file of 1 GiB and some more, with data in each of its pieces of 16 MiB and holes behind.
fn plant_large(path: &Path) {
    let file = File::create(path).unwrap();
    file.set_len(GIB + 5 * MIB as u64 + 3).unwrap();
    for piece in 0..64 {
        let bytes = [piece as u8 + 1; 100];
        file.write_all_at(&bytes, (piece << 24) + 7 * piece)
            .unwrap();
    }
}

const GIB: u64 = 1 << 30;

fn assert_same_large(one: &Path, other: &Path) {
    let [one, other] =
        [one, other].map(|path| (File::open(path).unwrap(), path.metadata().unwrap()));
    assert_eq!(one.1.len(), other.1.len());
    assert_eq!(one.1.modified().unwrap(), other.1.modified().unwrap());
    let mut blocks = [vec![0; MIB], vec![0; MIB]];
    for at in (0..one.1.len()).step_by(MIB) {
        let len = (one.1.len() - at).min(MIB as u64) as usize;
        one.0.read_exact_at(&mut blocks[0][..len], at).unwrap();
        other.0.read_exact_at(&mut blocks[1][..len], at).unwrap();
        assert!(blocks[0][..len] == blocks[1][..len], "from byte {at}");
    }
}

/// Waits until a record in the directory has pieces of a large file.
fn await_pieces(dir: &Path) {
    let begun = Instant::now();
    let has_pieces = || {
        let records = records(dir);
        let entries = records
            .iter()
            .flat_map(|record| fs::read_dir(dir.join(record)));
        let mut pieces = entries
            .flatten()
            .flatten()
            .filter(|entry| entry.path().is_dir());
        pieces.any(|pieces| fs::read_dir(pieces.path()).unwrap().count() > 2)
    };
    while !has_pieces() {
        assert!(begun.elapsed() < Duration::from_secs(60));
        sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_large_file_is_made_once_of_the_pieces_of_all_shares_whoever_is_killed() {
    let pair = Pair::new();
    source(&pair);
    let (here, there) = (pair.client.path(""), pair.server.path(""));
    let original = here.join("src/even/large");
    plant_large(&original);
    let private = fs::Permissions::from_mode(0o600);
    fs::set_permissions(&original, private).unwrap();
    let mode = |file: &Path| file.metadata().unwrap().permissions().mode() & 0o777;
    for (from, to, target) in [
        ("src/", "127.0.0.1:dst", &there),
        ("127.0.0.1:dst/", "back", &here),
    ] {
        let killed = pair.start_cp(&["-rp", "--shard", "2/3", "--bwlimit", "50M", from, to]);
        await_pieces(target);
        killed.kill();
        for number in [3, 1] {
            copied(&pair, &format!("{number}/3"), from, to);
        }
        let large = target
            .join(to.trim_start_matches("127.0.0.1:"))
            .join("even/large");
        assert!(!large.exists() && !records(target).is_empty());
        copied(&pair, "2/3", from, to);
        assert!(records(target).is_empty());
        assert_same_large(&here.join("src/even/large"), &large);
        assert_eq!(mode(&large), 0o600, "nobody else may read it");
        // Another run finds it.
        let inode = large.metadata().unwrap().ino();
        for number in 1..=3 {
            copied(&pair, &format!("{number}/3"), from, to);
        }
        assert_eq!(large.metadata().unwrap().ino(), inode);
        assert!(records(target).is_empty());
    }
    let large = here.join("back/even/large").metadata().unwrap();
    assert!(large.blocks() * 512 < GIB, "holes are kept here");
    // Alone, into a directory that is not there.
    copied(&pair, "1/1", "127.0.0.1:dst/even/large", "new/");
    assert_same_large(&here.join("src/even/large"), &here.join("new/large"));
    // What is there and differs stays.
    let other = here.join("new/large");
    File::options()
        .write(true)
        .open(&other)
        .unwrap()
        .set_len(1)
        .unwrap();
    let keep = ["-r", "--no-replace", "--shard", "1/1"];
    pair.cp(&[&keep[..], &["127.0.0.1:dst/even/large", "new/"]].concat())
        .expect(11)
        .error(&["it exists and differs"]);
    assert_eq!(other.metadata().unwrap().len(), 1);
}

#[test]
fn a_peer_that_may_only_append_is_told_that_the_record_stays() {
    let pair = Pair::serving(&[], "append-only");
    source(&pair);
    copied(&pair, "1/2", "src", "127.0.0.1:");
    share(&pair, "2/2", "src", "127.0.0.1:")
        .finish()
        .expect(5)
        .error(&["nicstripe-shares/", "may only add files"]);
    // Directories keep the time at which the shares added to them.
    let (src, dst) = (pair.client.path("src"), pair.server.path("src"));
    for dir in ["even", "odd", "empty"] {
        let names = fs::read_dir(src.join(dir)).unwrap();
        for name in names.map(|entry| Path::new(dir).join(entry.unwrap().file_name())) {
            let read = |root: &Path| fs::read(root.join(&name)).unwrap();
            assert_eq!(read(&src), read(&dst), "{name:?}");
        }
        assert!(dst.join(dir).is_dir());
    }
}

#[test]
fn the_first_share_deletes_what_the_source_does_not_have_and_no_other_does() {
    let pair = Pair::new();
    source(&pair);
    let dst = pair.server.path("src");
    for (number, is_left) in [(2, true), (1, false), (3, false)] {
        if number != 3 {
            plant(&dst, "odd/surplus", "s");
            plant(&dst, "gone/surplus", "s");
        }
        pair.cp(&[
            "-r",
            "--delete",
            "--shard",
            &format!("{number}/3"),
            "src",
            "127.0.0.1:",
        ])
        .expect(0);
        for surplus in ["odd/surplus", "gone/surplus"] {
            assert_eq!(dst.join(surplus).exists(), is_left, "share {number}");
        }
    }
    assert_same_tree(&pair.client.path("src"), &dst, Aspects::NONE);
    // The record is in the target's directory, and no surplus.
    let back = pair.client.path("back");
    for number in 1..=2 {
        let shard = format!("{number}/2");
        let words = ["-r", "--delete", "--shard", &shard, "127.0.0.1:", "back/"];
        pair.cp(&words).expect(0);
        assert_eq!(records(&pair.client.path("")).len(), 2 - number);
    }
    assert_same_tree(&pair.client.path("src"), &back.join("src"), Aspects::NONE);
}
