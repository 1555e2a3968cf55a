//! Tests of a session that ends while its copy waits for a lock. No part file or journal may appear
//! afterwards.

use std::time::Duration;

use crate::harness::{PLAIN, Served, done, leftovers, name, source_of, within};

/// Returns the path of the daemon's journal for this client's copy to `file`.
fn journal_of(served: &Served, file: &str) -> std::path::PathBuf {
    let tag = blake3::hash(served.client.public_key().as_bytes()).to_hex();
    served.path(&format!(".{file}.{}.nicstripe-journal", &tag[..8]))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_has_ended_does_not_begin_a_file_that_it_has_waited_for() {
    let served = Served::start().await;
    let (_here, source) = source_of(b"content");

    // Another transfer holds the lock of the file. The client waits for the lock and then
    // disconnects.
    let path = journal_of(&served, "target");
    let journal = std::fs::File::create(&path).unwrap();
    rustix::fs::flock(&journal, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let client = served.client(1).await;
    let waiting = client.put(&source, Some(name("target")), PLAIN);
    tokio::time::sleep(Duration::from_millis(300)).await;
    waiting.cancel();
    assert!(done(waiting).await.is_err());
    within(client.close()).await;
    tokio::time::sleep(Duration::from_secs(1)).await;

    std::fs::remove_file(&path).unwrap();
    drop(journal);
    // The daemon retries the lock every 50 ms.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(leftovers(served.root.path()), Vec::<String>::new());
}
