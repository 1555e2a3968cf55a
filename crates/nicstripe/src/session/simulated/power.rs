//! Tests that kill either end in the middle of a transfer, or cut its power, and check what is sent
//! after the restart.

use std::{fs::OpenOptions, io::Write as _, path::PathBuf, sync::Arc, time::Duration};

use nicstripe_proto::{
    ChainingValue, ChunkId, FailCode, SessionConfig, Subtree,
    journal::{Record, Replayed, replay},
    message::CloseCode,
};
use nicstripe_sim::{End, Rng};
use tempfile::TempDir;
use tokio::time::sleep;

use super::lab::{Copy, Direction, Lab, in_virtual_time, link, mib, ms, new_folder, plan, secs};
use crate::{
    file::Image,
    report::error::Error,
    session::{Command, Tally},
};

/// How an end stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Down {
    /// The session is closed.
    InOrder,
    /// The process is killed; what it wrote stays.
    Killed,
    /// The power is cut; what was not synced may be lost.
    PowerCut,
}

/// Files of both ends after they stopped. To be restored once their runtime has ended.
#[derive(Debug)]
pub(super) struct Remains {
    folder: Arc<TempDir>,
    images: Vec<Image>,
}

impl Remains {
    /// Returns the folder of both ends, as they left it.
    pub(super) fn restore(self) -> Arc<TempDir> {
        self.images.into_iter().for_each(Image::restore);
        self.folder
    }
}

impl Lab {
    /// Takes the present files as durable. Power cuts need that.
    pub(super) fn watch(&self) {
        for end in End::BOTH {
            self.disks[end as usize].watch(&self.folder_of(end));
        }
    }

    /// Stops both ends. The caller ends the runtime, and with it all that they still do.
    pub(super) async fn stop(&self, how: [Down; 2], rng: &mut Rng) -> Remains {
        let images = End::BOTH
            .into_iter()
            .filter_map(|end| match how[end as usize] {
                Down::InOrder => None,
                Down::Killed => Some(Image::of(&self.folder_of(end))),
                Down::PowerCut => Some(self.disks[end as usize].cut_power(rng)),
            })
            .collect();
        for end in End::BOTH {
            if how[end as usize] == Down::InOrder {
                let session = &self.sessions[end as usize];
                session.command(Command::Close(CloseCode::Cancelled)).await;
                session.ended.cancelled().await;
            }
        }
        Remains {
            folder: self.folder.clone(),
            images,
        }
    }
}

const CHUNK: u64 = 256 << 10;

/// Size of the file in bytes: 8 MiB take 1.34 s over two links of 25 Mbit/s.
const SIZE: u64 = mib(8);

const CHUNKS: u64 = SIZE / CHUNK;

/// Number of written bytes that trigger a sync.
const SYNC: u64 = mib(1);

async fn two_links(folder: Arc<TempDir>, seed: u64) -> Lab {
    let config = SessionConfig {
        sync_bytes: SYNC,
        ..SessionConfig::default()
    };
    let lab = Lab::on(folder, seed, vec![link(25), link(25)], config).await;
    for disk in &lab.disks {
        disk.set_delay(ms(1));
    }
    lab.add((0..2).map(plan)).await;
    lab
}

/// Starts to copy a new file.
async fn begin(direction: Direction) -> (Lab, Copy) {
    let mut lab = two_links(new_folder(), 3).await;
    lab.write(direction.sender(), SIZE);
    lab.watch();
    let copy = lab.copy_again(direction).await;
    (lab, copy)
}

/// Copies the file again after a restart. Returns the duration and the client's statistics.
fn copy_after(remains: Remains, direction: Direction) -> (Duration, Tally) {
    let folder = remains.restore();
    in_virtual_time(async {
        let mut lab = two_links(folder, 4).await;
        let copy = lab.copy_again(direction).await;
        let (_, tally) = copy.end(secs(60)).await.unwrap();
        // A part file stays whose journal a power cut has emptied.
        lab.assert_equal();
        (lab.now(), tally)
    })
}

fn hidden(lab: &Lab, end: End, kind: &str) -> PathBuf {
    let names = std::fs::read_dir(lab.folder_of(end)).unwrap();
    let mut paths = names.map(|name| name.unwrap().path());
    let is_it = |path: &PathBuf| path.to_string_lossy().ends_with(kind);
    paths.find(is_it).unwrap()
}

/// Returns the number of chunks in the receiver's part file.
fn written(lab: &Lab, direction: Direction) -> u64 {
    let sent = std::fs::read(lab.file(direction.sender())).unwrap();
    let part = std::fs::read(hidden(lab, direction.sender().other(), "part")).unwrap();
    let pairs = sent.chunks(CHUNK as usize).zip(part.chunks(CHUNK as usize));
    pairs.filter(|(sent, part)| sent == part).count() as u64
}

fn journal(path: &PathBuf) -> Replayed {
    replay(&std::fs::read(path).unwrap()).unwrap()
}

/// Returns the number of chunks that a journal claims.
fn claimed(path: &PathBuf) -> u64 {
    let replayed = journal(path);
    let chunks = |subtree: Subtree| subtree.chunks(replayed.header.grid).unwrap().count;
    replayed.tree.subtrees().map(chunks).sum()
}

#[test]
fn after_a_crash_only_what_was_not_durable_is_sent_again() {
    for direction in Direction::BOTH {
        for (down, killed) in [
            (Down::PowerCut, End::A),
            (Down::PowerCut, End::B),
            (Down::Killed, End::A),
            (Down::Killed, End::B),
        ] {
            let (remains, path, written) = in_virtual_time(async {
                let (lab, copy) = begin(direction).await;
                sleep(ms(1000)).await;
                let written = written(&lab, direction);
                let progress = copy.progress.get().bytes;
                assert!(progress <= written * CHUNK, "{progress}, {written} written");
                let path = hidden(&lab, direction.sender().other(), "journal");
                let mut how = [Down::InOrder; 2];
                how[killed as usize] = down;
                (lab.stop(how, &mut Rng::new(1)).await, path, written)
            });
            let folder = remains.restore();
            let durable = claimed(&path);
            let remains = Remains {
                folder,
                images: Vec::new(),
            };
            // A sync, and what was written during one: 6 MB/s for 1 ms. A receiver that ends in
            // order loses nothing.
            let lost = if killed == direction.sender() {
                0
            } else {
                SYNC / CHUNK + 1
            };
            let case = format!("{direction:?}, {killed:?} {down:?}");
            assert!(
                written <= durable + lost && written > CHUNKS / 2,
                "{case}: {written} chunks written, {durable} durable"
            );
            let (took, tally) = copy_after(remains, direction);
            let (stats, missing) = (tally.stats, CHUNKS - durable);
            assert_eq!(stats.resumed_bytes, durable * CHUNK, "{case}");
            assert_eq!(stats.delivered_bytes, missing * CHUNK, "{case}");
            let repeated = if direction == Direction::Put {
                stats.repeated_bytes
            } else {
                0
            };
            assert_eq!(tally.wire_bytes - repeated, missing * CHUNK, "{case}");
            let ideal = ms(1343) * missing as u32 / CHUNKS as u32;
            assert!(took <= ideal + ms(100), "{case}: {took:?}, ideal {ideal:?}");
        }
    }
}

#[test]
fn an_orderly_end_keeps_what_was_written_while_a_sync_was_under_way() {
    for millis in [400, 500, 600, 700, 800] {
        let (remains, path, written) = in_virtual_time(async {
            let (lab, _copy) = begin(Direction::Put).await;
            // Writes overtake the syncs that are among the slow jobs.
            lab.disks[1].slow_every_fifth(ms(300));
            sleep(ms(millis)).await;
            let written = written(&lab, Direction::Put);
            let path = hidden(&lab, End::B, "journal");
            let how = [Down::Killed, Down::InOrder];
            (lab.stop(how, &mut Rng::new(1)).await, path, written)
        });
        let _folder = remains.restore();
        let durable = claimed(&path);
        assert!(durable >= written, "{millis} ms: {durable} of {written}");
    }
}

#[test]
fn power_cut_after_power_cut_the_file_arrives() {
    for (direction, seed) in Direction::BOTH.into_iter().zip(0..) {
        let mut rng = Rng::new(seed);
        let mut remains = in_virtual_time(async {
            let (lab, _copy) = begin(direction).await;
            sleep(ms(300)).await;
            lab.stop([Down::PowerCut; 2], &mut rng).await
        });
        for cut in 0..5 {
            let folder = remains.restore();
            remains = in_virtual_time(async {
                let mut lab = two_links(folder, seed + cut).await;
                lab.watch();
                let _copy = lab.copy_again(direction).await;
                sleep(ms(300)).await;
                let mut how = [Down::InOrder; 2];
                how[cut as usize % 2] = Down::PowerCut;
                lab.stop(how, &mut rng).await
            });
        }
        copy_after(remains, direction);
    }
}

/// Interrupts a copy, and appends this claim to the receiver's journal.
fn interrupted(direction: Direction, claim: Subtree) -> Remains {
    let (remains, path) = in_virtual_time(async {
        let (lab, _copy) = begin(direction).await;
        sleep(ms(300)).await;
        let path = hidden(&lab, direction.sender().other(), "journal");
        (lab.stop([Down::InOrder; 2], &mut Rng::new(1)).await, path)
    });
    let record = Record { subtree: claim }.encode(journal(&path).header.id);
    let mut file = OpenOptions::new().append(true).open(path).unwrap();
    file.write_all(&record).unwrap();
    remains
}

#[test]
fn a_receiver_that_claims_what_it_does_not_have_ends_in_a_mismatch_and_begins_anew() {
    for direction in Direction::BOTH {
        let lie = Subtree {
            first: ChunkId(16),
            level: 3,
            value: ChainingValue([7; 32]),
        };
        let folder = interrupted(direction, lie).restore();
        in_virtual_time(async {
            let mut lab = two_links(folder, 4).await;
            let copy = lab.copy_again(direction).await;
            let ended = copy.end(secs(60)).await;
            let code = ended.as_ref().err().and_then(Error::fail_code);
            assert_eq!(code, Some(FailCode::Digest), "{direction:?} {ended:?}");
            assert!(!lab.file(direction.sender().other()).exists());
            sleep(ms(100)).await;
            let at_daemon = lab.meters.read().transfers_ended;
            assert!(
                at_daemon.keys().all(|(_, how)| *how == "digest"),
                "{at_daemon:?}"
            );
            let again = lab.copy_again(direction).await;
            let (_, tally) = again.end(secs(60)).await.unwrap();
            lab.assert_delivered();
            assert_eq!(tally.stats.resumed_bytes, 0);
        });
    }
}

#[test]
fn a_whole_file_that_was_durable_is_only_hashed() {
    for direction in Direction::BOTH {
        let remains = in_virtual_time(async {
            let (lab, _copy) = begin(direction).await;
            // The sender is killed while the receiver commits.
            lab.disks[direction.sender().other() as usize].set_delay(ms(200));
            sleep(secs(1)).await;
            while written(&lab, direction) < CHUNKS {
                sleep(ms(20)).await;
            }
            let mut how = [Down::InOrder; 2];
            how[direction.sender() as usize] = Down::Killed;
            lab.stop(how, &mut Rng::new(1)).await
        });
        let (took, tally) = copy_after(remains, direction);
        assert_eq!((tally.stats.resumed_bytes, tally.wire_bytes), (SIZE, 0));
        assert!(took <= ms(200), "{direction:?}: {took:?}");
    }
}
