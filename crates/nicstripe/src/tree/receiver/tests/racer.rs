//! Race test: a local process replaces a directory of the target by a symbolic link that leads out
//! of it, while trees are received.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use nicstripe_proto::tree::{Content, EntryId, TreeRules};

use super::harness::{RootDir, Sending, file, name, symlink};

/// Exchanges the directory and the link repeatedly until stopped. Returns the number of exchanges.
fn race(
    ground: &RootDir,
    stop: &Arc<AtomicBool>,
    swaps: &Arc<AtomicU64>,
) -> thread::JoinHandle<()> {
    let (victim, aside, link) = (
        ground.at("d/victim"),
        ground.at("d/aside"),
        ground.at("d/link"),
    );
    let outside = ground.outside().join("dir");
    let (stop, swaps) = (stop.clone(), swaps.clone());
    thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            let _ = std::os::unix::fs::symlink(&outside, &link);
            let _ = fs::rename(&victim, &aside);
            let _ = fs::rename(&link, &victim);
            let _ = fs::remove_file(&victim);
            let _ = fs::rename(&aside, &victim);
            let _ = fs::create_dir(&victim);
            swaps.fetch_add(1, Ordering::Relaxed);
        }
    })
}

/// Sends a tree with every kind of entry in the exchanged directory.
fn send(sending: &mut Sending, round: u64) {
    let top = sending.directory(None, "d");
    let victim = sending.directory(Some(top), "victim");
    let inner = sending.directory(Some(victim), "inner");
    let mut ids: Vec<EntryId> = Vec::new();
    for index in 0..20 {
        ids.push(sending.entry(Some(victim), &format!("f{index}"), file(3)));
        ids.push(sending.entry(Some(inner), &format!("f{index}"), file(3)));
    }
    ids.push(sending.entry(Some(victim), "secret", file(3)));
    sending.entry(Some(victim), "symbolic", symlink(&format!("round{round}")));
    sending.entry(
        Some(victim),
        "hard",
        Content::HardLink {
            to: ids[0],
            path: name("d/victim/f0"),
        },
    );
    sending.decide();
    let wanted: Vec<EntryId> = ids
        .into_iter()
        .filter(|id| {
            sending
                .verdicts
                .get(&id.0)
                .is_some_and(|verdict| verdict.is_wanted())
        })
        .collect();
    for id in wanted {
        sending.content(id, b"bad");
    }
    sending.end(inner);
    sending.end(victim);
    sending.end(top);
    let _ = sending.wait();
}

/// The variable `NICSTRIPE_RACE_SECONDS` sets the duration of the race in seconds.
#[test]
fn no_race_leads_out() {
    let seconds = std::env::var("NICSTRIPE_RACE_SECONDS")
        .ok()
        .and_then(|seconds| seconds.parse().ok())
        .unwrap_or(3);
    let ground = RootDir::quick();
    fs::create_dir_all(ground.at("d/victim")).unwrap();
    let (stop, swaps) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let racer = race(&ground, &stop, &swaps);
    let started = Instant::now();
    let (mut rounds, mut written) = (0, 0);
    while started.elapsed() < Duration::from_secs(seconds) {
        let rules = TreeRules {
            replace: true,
            delete: true,
            modes: true,
            ..TreeRules::default()
        };
        let mut sending = ground.start(rules);
        send(&mut sending, rounds);
        rounds += 1;
        written += sending.done.len();
        let swaps = swaps.load(Ordering::Relaxed);
        ground.check_outside(&format!("after {rounds} rounds and {swaps} swaps"));
    }
    stop.store(true, Ordering::Relaxed);
    racer.join().unwrap();
    let swaps = swaps.load(Ordering::Relaxed);
    println!("{rounds} trees, {written} entries written, {swaps} swaps in {seconds} s");
    assert!(
        written > 0 && swaps > 100,
        "no race: {written} entries written, {swaps} swaps"
    );
}
