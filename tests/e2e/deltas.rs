//! Tests that existing chunks are not sent.

use std::{fs, os::unix::fs::MetadataExt};

use nicstripe_testkit::{
    Side, content, is_same, number,
    pair::{MIB, Pair},
    tree::plant,
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
