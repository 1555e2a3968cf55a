//! Tests that existing chunks and holes are not sent and that compressible data is compressed.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    os::unix::fs::{FileExt, MetadataExt},
};

use nicstripe_testkit::{
    Side, content, digest, is_same, number,
    pair::{MIB, Pair},
    text,
    tree::{data_of, plant, plant_sparse},
};
use serde_json::Value;

/// Returns the source side, the target side and the `cp` arguments of a copy in each direction.
fn ways(pair: &Pair) -> [(&Side, &Side, [&'static str; 2]); 2] {
    [
        (&pair.client, &pair.server, ["file", "127.0.0.1:file"]),
        (&pair.server, &pair.client, ["127.0.0.1:file", "file"]),
    ]
}

fn cp(pair: &Pair, options: &[&str], words: [&str; 2]) -> Value {
    pair.cp(&[&["--json"], options, &words[..]].concat())
        .expect(0)
        .document()
}

/// Returns a copy of `bytes` with one byte changed in each of three chunks: the first, a middle one
/// and the last.
fn changed(bytes: &[u8]) -> Vec<u8> {
    let mut changed = bytes.to_vec();
    for at in [5, bytes.len() / 2, bytes.len() - 1] {
        changed[at] ^= 0xff;
    }
    changed
}

/// Returns the bytes on the wire from a JSON report, without the bytes retransmitted over a second
/// path.
fn sent_once(report: &Value) -> u64 {
    number(report, "wire_bytes").saturating_sub(number(report, "resent_bytes"))
}

/// Maximum bytes on the wire for three chunks of 256 KiB, with a margin for messages about the
/// other chunks.
const THREE_CHUNKS: u64 = 4 * 256 * 1024;

#[test]
fn only_chunks_that_differ_are_sent_and_the_old_file_needs_no_f() {
    let pair = Pair::new();
    for option in ["--delta", "--inplace"] {
        for (from, to, words) in ways(&pair) {
            let new = content(16 * MIB + 99);
            from.write("file", &new);
            to.write("file", changed(&new));
            let report = cp(&pair, &[option], words);
            to.check("file", &new, &report);
            assert!(sent_once(&report) <= THREE_CHUNKS, "{option}: {report:#}");
            assert!(number(&report, "wire_bytes") > 0, "{option}: {report:#}");
        }
    }
    assert_eq!(
        (pair.client.names().len(), pair.server.names().len()),
        (1, 1)
    );
}

#[test]
fn a_file_that_became_longer_or_shorter_is_right() {
    let pair = Pair::new();
    let all = content(12 * MIB + 1000);
    for option in ["--delta", "--inplace"] {
        for (old, new) in [
            (9 * MIB + 5, 12 * MIB + 1000),
            (12 * MIB + 1000, 9 * MIB + 5),
            (0, 3 * MIB),
            (3 * MIB, 0),
        ] {
            for (from, to, words) in ways(&pair) {
                from.write("file", &all[..new]);
                to.write("file", &all[..old]);
                let report = cp(&pair, &[option], words);
                to.check("file", &all[..new], &report);
                let longer = (new as u64).saturating_sub(old as u64);
                assert!(
                    sent_once(&report) <= longer + THREE_CHUNKS,
                    "{option} {old} {new}: {report:#}"
                );
            }
        }
    }
}

#[test]
fn what_is_the_same_altogether_is_not_sent_at_all() {
    let pair = Pair::new();
    let bytes = content(8 * MIB);
    for (from, to, words) in ways(&pair) {
        from.write("file", &bytes);
        to.write("file", &bytes);
        let report = cp(&pair, &["--delta"], words);
        to.check("file", &bytes, &report);
        assert_eq!(number(&report, "wire_bytes"), 0, "{report:#}");
    }
}

#[test]
fn without_an_old_file_everything_is_sent() {
    let pair = Pair::new();
    let bytes = content(4 * MIB);
    for option in ["--delta", "--inplace"] {
        for (from, to, words) in ways(&pair) {
            let _ = fs::remove_file(to.path("file"));
            from.write("file", &bytes);
            let report = cp(&pair, &[option], words);
            to.check("file", &bytes, &report);
            let _ = fs::remove_file(from.path("file"));
        }
    }
}

#[test]
fn in_place_is_the_old_file_and_delta_a_new_one() {
    let pair = Pair::new();
    let new = content(8 * MIB);
    pair.client.write("file", &new);
    for (option, is_same_file) in [("--delta", false), ("--inplace", true)] {
        pair.server.write("file", changed(&new));
        // A process that has the old file open keeps reading the old content.
        let old = fs::File::open(pair.server.path("file")).unwrap();
        cp(&pair, &[option], ["file", "127.0.0.1:file"]);
        let inode = |metadata: fs::Metadata| metadata.ino();
        let is_same = inode(old.metadata().unwrap())
            == inode(fs::metadata(pair.server.path("file")).unwrap());
        assert_eq!(is_same, is_same_file, "{option}");
    }
}

#[test]
fn large_files_of_a_tree_are_compared_chunk_by_chunk_as_well() {
    let pair = Pair::new();
    let new = content(12 * MIB);
    plant(&pair.client.path("src"), "vm.img", &new);
    plant(&pair.client.path("src"), "small", b"small");
    plant(&pair.server.path("src"), "vm.img", changed(&new));
    let report = cp(&pair, &["-r", "--delta"], ["src", "127.0.0.1:"]);
    assert!(is_same(&pair.server.read("src/vm.img"), &new));
    assert!(sent_once(&report) <= THREE_CHUNKS + 65_536, "{report:#}");
}

#[test]
fn the_last_line_says_what_was_saved() {
    let pair = Pair::new();
    let new = content(16 * MIB);
    pair.client.write("file", &new);
    pair.server.write("file", changed(&new));
    let outcome = pair
        .cp(&["--delta", "--stats", "file", "127.0.0.1:file"])
        .expect(0);
    assert!(outcome.stderr.contains(" sent for 16.0 MiB"), "{outcome}");
    assert!(
        outcome.stderr.contains("Bytes sent over the links: "),
        "{outcome}"
    );
}

#[test]
fn holes_are_neither_sent_nor_written() {
    let pair = Pair::new();
    let size = 256 * MIB as u64;
    for (from, to, words) in ways(&pair) {
        let _ = fs::remove_file(from.path("file"));
        let _ = fs::remove_file(to.path("file"));
        plant_sparse(&from.path("file"), size, &[0, 100 << 20, size - 4096]);
        let extents = data_of(&from.path("file"));
        assert_eq!(
            extents.len(),
            3,
            "temporary files are on a file system with holes: {extents:?}"
        );
        let report = cp(&pair, &[], words);
        assert_eq!(text(&report, "blake3"), digest(&from.read("file")));
        assert!(is_same(&from.read("file"), &to.read("file")));
        assert!(sent_once(&report) <= THREE_CHUNKS, "{report:#}");
        assert_eq!(data_of(&to.path("file")), extents);
    }
}

#[test]
fn a_file_of_nothing_but_a_hole_arrives() {
    let pair = Pair::new();
    for (from, to, words) in ways(&pair) {
        let _ = fs::remove_file(from.path("file"));
        let _ = fs::remove_file(to.path("file"));
        plant_sparse(&from.path("file"), 64 * MIB as u64 + 1, &[]);
        let report = cp(&pair, &[], words);
        assert_eq!(number(&report, "wire_bytes"), 0, "{report:#}");
        assert_eq!(
            fs::metadata(to.path("file")).unwrap().len(),
            64 * MIB as u64 + 1
        );
        assert!(data_of(&to.path("file")).is_empty());
    }
}

#[test]
fn text_shrinks_on_the_wire_and_noise_does_not_grow() {
    let pair = Pair::new();
    let words_of = b"the same words over and over, with a number now and then\n".repeat(150_000);
    let noise = content(4 * MIB);
    for (from, to, words) in ways(&pair) {
        for (bytes, most) in [
            (&words_of, words_of.len() as u64 / 2),
            (&noise, noise.len() as u64 + THREE_CHUNKS),
        ] {
            from.write("file", bytes);
            // Compression would not help if the cables were not the bottleneck.
            let report = cp(&pair, &["-zf", "--bwlimit", "4M"], words);
            to.check("file", bytes, &report);
            assert!(sent_once(&report) <= most, "{most}: {report:#}");
        }
        fs::remove_file(from.path("file")).unwrap();
        fs::remove_file(to.path("file")).unwrap();
    }
}

#[test]
fn a_file_that_changes_is_copied_as_it_was_read_where_that_is_allowed() {
    let pair = Pair::new();
    for (from, to, words) in ways(&pair) {
        let bytes = content(16 * MIB);
        from.write("file", &bytes);
        let _ = fs::remove_file(to.path("file"));
        let cp = pair.start_cp(
            &[
                &["--allow-changing", "--bwlimit", "16M", "--json-stream"],
                &words[..],
            ]
            .concat(),
        );
        cp.await_bytes(4 * MIB as u64);
        OpenOptions::new()
            .append(true)
            .open(from.path("file"))
            .unwrap()
            .write_all(b"more")
            .unwrap();
        OpenOptions::new()
            .write(true)
            .open(from.path("file"))
            .unwrap()
            .write_all_at(b"changed", 15 * MIB as u64)
            .unwrap();
        let report = cp.finish().expect(0).document();
        let arrived = to.read("file");
        assert_eq!(arrived.len(), 16 * MIB);
        assert_eq!(text(&report, "blake3"), digest(&arrived));
        assert!(is_same(&arrived[..15 * MIB], &bytes[..15 * MIB]));
        fs::remove_file(from.path("file")).unwrap();
    }
}

#[test]
fn a_file_that_becomes_shorter_fails_even_so() {
    let pair = Pair::new();
    pair.client.write("file", content(16 * MIB));
    let cp = pair.start_cp(&[
        "--allow-changing",
        "--bwlimit",
        "16M",
        "--json-stream",
        "file",
        "127.0.0.1:file",
    ]);
    cp.await_bytes(4 * MIB as u64);
    OpenOptions::new()
        .write(true)
        .open(pair.client.path("file"))
        .unwrap()
        .set_len(5 * MIB as u64)
        .unwrap();
    cp.finish().expect(24);
    assert!(!pair.server.has("file"));
}
