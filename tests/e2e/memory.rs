//! Tests of the peak memory of client and daemon.

use std::fs;

use nicstripe_testkit::{
    number,
    pair::{MIB, Pair},
};

/// Size of the copied file in bytes. The file is far larger than all buffers, so that a
/// proportional memory use would exceed the limit.
const LEN: u64 = 256 * MIB as u64;

/// Maximum peak memory of a process in bytes: a quarter of the file. `cargo bench --bench memory`
/// measures the bar (`docs/DESIGN.md`, section 10, row i), which a busy machine misses by a little.
const BOUND: u64 = LEN / 4;

#[test]
fn neither_end_takes_memory_with_the_size_of_the_file() {
    let pair = Pair::new();
    // Written as zeros, because holes would not be sent.
    fs::write(pair.client.path("zeros"), vec![0; LEN as usize]).unwrap();
    let cp = pair.start_cp(&["--json-stream", "zeros", "127.0.0.1:"]);
    // Samples the sender while it is still running. Its peak was reached long before.
    cp.await_bytes(LEN / 2);
    let sender = cp.peak_memory();
    let report = cp.finish().expect(0).document();
    let receiver = pair.daemon.process.peak_memory();
    assert_eq!(number(&report, "bytes"), LEN);
    assert!(
        sender <= BOUND && receiver <= BOUND,
        "sender {} MiB, receiver {} MiB",
        sender / MIB as u64,
        receiver / MIB as u64
    );
}
