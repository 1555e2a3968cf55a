//! Tests of an attacker on the path, who can only delay and end connections.

use nicstripe_proto::BitRate;
use std::{
    fs,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    task::JoinSet,
};

use super::{
    Stage, content, digest, is_one_of, name,
    peer::tcp,
    proxy::{At, Fate, Proxy},
    within,
};
use crate::file::options::CopyOptions;

/// Manipulation of a TLS record, with storage for a second record.
type Trick = fn(&mut Vec<u8>, &Mutex<Vec<u8>>);

impl Stage {
    /// Starts an attacker at 127.0.2.`number`, on the path to the daemon.
    fn attacker(
        &self,
        number: u8,
        tamper: impl Fn(At, Vec<u8>) -> Fate + Send + Sync + 'static,
    ) -> Proxy {
        let from = ([127, 0, 2, number], self.port).into();
        Proxy::start(from, self.address(), tamper)
    }
}

/// Returns a link specification from 127.0.0.N through the proxy at 127.0.2.N.
fn link(proxy: u8) -> String {
    format!("127.0.0.{proxy}=127.0.2.{proxy}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_changed_dropped_repeated_or_exchanged_on_one_link_is_not_taken_and_the_copy_completes()
 {
    let stage = Stage::new().await;
    let bytes = content(6 << 20);
    let source = stage.file("source", &bytes);
    let tricks: [(u8, Trick); 6] = [
        (11, |record, _| *record.last_mut().unwrap() ^= 1),
        (12, |record, _| {
            let middle = record.len() / 2;
            record[middle] ^= 0x80;
        }),
        (13, |record, _| record.clear()),
        (14, |record, _| record.extend_from_within(..)),
        // Replays a record of an earlier connection in place of this one's.
        (15, |record, kept| {
            std::mem::swap(record, &mut kept.lock().unwrap());
        }),
        (16, |record, _| record.truncate(record.len() - 1)),
    ];
    let mut copies = JoinSet::new();
    for (number, trick) in tricks {
        let tampered = Arc::new(AtomicUsize::new(0));
        let counted = tampered.clone();
        let kept: Vec<u8> = [23, 3, 3, 0, 20].into_iter().chain(1..=20).collect();
        let kept = Mutex::new(kept);
        let proxy = stage.attacker(number, move |at, mut bytes| {
            // The first connection must succeed, as for any link given explicitly. Each later one
            // is attacked at another record.
            let attacked = [12, 0, 1, 2, 3, 5, 7][at.connection.min(6)];
            if at.to_daemon == (at.connection % 2 == 0) && at.record == attacked {
                counted.fetch_add(1, Ordering::SeqCst);
                trick(&mut bytes, &kept);
            }
            Fate::Pass(bytes)
        });
        let client = stage
            .client(&["127.0.0.8=127.0.1.1", &link(number)])
            .bandwidth(Some(BitRate(16_000_000)));
        let (source, target) = (source.clone(), name(&format!("target{number}")));
        copies.spawn(async move {
            let client = client.connect("127.0.1.1").await.unwrap();
            let copied = client.put(&source, Some(target), CopyOptions::default());
            let report = within(copied.finish()).await;
            (
                number,
                report,
                tampered.load(Ordering::SeqCst),
                proxy.connections.load(Ordering::SeqCst),
            )
        });
    }
    while let Some(copied) = copies.join_next().await {
        let (number, report, tampered, connections) = copied.unwrap();
        let report =
            report.unwrap_or_else(|error| panic!("trick {number}: {}", crate::text::chain(&error)));
        assert_eq!(report.digest, Some(digest(&bytes)));
        assert!(
            fs::read(stage.served(&format!("target{number}"))).unwrap() == bytes,
            "trick {number}"
        );
        assert!(
            tampered > 0 && connections > 1,
            "trick {number}: {tampered} of {connections} connections"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_was_recorded_is_worth_nothing() {
    let stage = Stage::new().await;
    let source = stage.file("source", &content(300_000));
    let proxy = stage.attacker(21, |_, bytes| Fate::Pass(bytes));
    let client = stage
        .client(&[&link(21)])
        .connect("127.0.2.21")
        .await
        .unwrap();
    within(client.put(&source, None, CopyOptions::default()).finish())
        .await
        .unwrap();
    drop(client);
    fs::remove_file(stage.served("source")).unwrap();
    let recorded = proxy.recorded.lock().unwrap().clone();
    assert!(recorded.len() > 300_000);
    for part in [recorded.len(), 300_000, 2_000] {
        let mut replay = tcp([127, 0, 2, 1], stage.address()).await;
        let _ = replay.write_all(&recorded[..part]).await;
        let _ = replay.shutdown().await;
        let mut said = Vec::new();
        let _ = within(replay.read_to_end(&mut said)).await;
        // ServerHello, key, signature and perhaps an alert: nothing of a session.
        let len = said.len();
        assert!(len < 3000, "{len} bytes in answer to {part}");
    }
    stage.serves_nothing().await;
    stage.still_serves("file").await;
}

/// The attacker ends the only connection at each record boundary in turn, in either direction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_at_any_record_is_never_taken_for_success() {
    let stage = Arc::new(Stage::new().await);
    let bytes = Arc::new(content(300_000));
    stage.file("source", &bytes);
    let mut copies = JoinSet::new();
    for (number, record) in (0..24).map(|number| (100 + number, usize::from(number / 2))) {
        let to_daemon = number % 2 == 0;
        // The handshake comes first, then records of a few frames each; the last records are among
        // these.
        let record = record + record.saturating_sub(6) * 2;
        let is_it = move |at: At| at.to_daemon == to_daemon && at.record == record;
        copies.spawn(cut_at(stage.clone(), bytes.clone(), number, is_it));
    }
    let mut failed = 0;
    while let Some(was_cut) = copies.join_next().await {
        failed += usize::from(was_cut.unwrap());
    }
    assert!(failed >= 12, "only {failed} copies were cut");
    stage.still_serves("file").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_ends_before_the_daemon_answers_is_no_verdict_and_is_tried_again() {
    let stage = Stage::new().await;
    let proxy = stage.attacker(31, |at, bytes| {
        // The first connection ends at the daemon's first record, the next at its second, and so on
        // up to its welcome.
        if !at.to_daemon && at.record >= at.connection && at.connection < 5 {
            Fate::End
        } else {
            Fate::Pass(bytes)
        }
    });
    within(stage.client(&[&link(31)]).connect("127.0.2.31"))
        .await
        .unwrap();
    assert!(proxy.connections.load(Ordering::SeqCst) >= 5);

    let _never_answers = stage.attacker(32, |at, bytes| {
        if !at.to_daemon && at.record >= 3 {
            Fate::End
        } else {
            Fate::Pass(bytes)
        }
    });
    let client = stage.client(&[]).patience(Duration::from_secs(1));
    let error = within(client.connect("127.0.2.32")).await.unwrap_err();
    is_one_of(&error, &["Connect"]);
}

/// Copies through a proxy that cuts the connection where `is_it`. Returns true if the copy failed,
/// as it must unless it was complete before the cut.
async fn cut_at(
    stage: Arc<Stage>,
    bytes: Arc<Vec<u8>>,
    number: u8,
    is_it: impl Fn(At) -> bool + Send + Sync + 'static,
) -> bool {
    let _proxy = stage.attacker(number, move |at, bytes| {
        if is_it(at) {
            Fate::Cut
        } else {
            Fate::Pass(bytes)
        }
    });
    let target = format!("target{number}");
    let host = format!("127.0.2.{number}");
    let links = link(number);
    let copied = async {
        let client = stage.client(&[&links]).patience(Duration::from_secs(1));
        let client = client.connect(&host).await?;
        let source = stage.files.path().join("source");
        client
            .put(&source, Some(name(&target)), CopyOptions::default())
            .finish()
            .await
    };
    let copied = within(copied).await;
    let path = stage.served(&target);
    if path.exists() {
        assert!(
            fs::read(&path).unwrap() == *bytes,
            "{number}: a part under the final name"
        );
    }
    match copied {
        Ok(report) => {
            assert_eq!(report.digest, Some(digest(&bytes)));
            assert!(path.exists(), "{number}: success without a file");
            false
        }
        Err(error) => {
            // Never "not trusted": the daemon has not said so.
            is_one_of(&error, &["Connect", "Link", "Abandoned", "Ended"]);
            true
        }
    }
}
