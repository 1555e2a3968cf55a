//! Test of a daemon with default limits against a greedy peer.

use std::{thread, time::Duration};

use nicstripe::{
    BitRate, Client, CopyOptions, Name, TreeOptions,
    trust::{Home, Identity, Peers},
};
use nicstripe_testkit::{Daemon, Process, Side, content, pair::MIB};
use tokio::task::JoinSet;

/// Starts a daemon that may open at most `count` file descriptors.
fn daemon_with_descriptors(server: &Side, count: usize) -> Daemon {
    let mut command = server.command("/bin/sh");
    let script = format!("ulimit -n {count} && exec \"$0\" serve --port 0 --interface lo");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_nicstripe")]);
    Daemon::listening(Process::spawn(command))
}

/// Simulates a greedy peer: 8 sessions with 4 trees of 100 files each, limited to 100 kbit/s. The
/// transfers run until the returned runtime is dropped.
fn take_descriptors(greedy: &Side, port: u16) -> tokio::runtime::Runtime {
    for dir in 0..300 {
        std::fs::create_dir_all(greedy.path(format!("tree/d{dir}"))).unwrap();
        greedy.write(format!("tree/d{dir}/file"), [7; 10]);
    }
    greedy.write("tree/last", content(3 * MIB));
    greedy.write("large", content(MIB));
    let home = Home::at(greedy.home());
    let builder = Client::builder()
        .identity(Identity::load_or_create(home.identity_file()).unwrap())
        .peers(Peers::load(home.peers_file()).unwrap())
        .port(port)
        .streams(4)
        .bandwidth(Some(BitRate(100_000)));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    for session in 0..8 {
        let (connecting, large, tree) = (
            builder.clone().connect("127.0.0.1"),
            greedy.path("large"),
            greedy.path("tree"),
        );
        runtime.spawn(async move {
            let client = connecting.await.expect("it waits for a place");
            let name = |text: String| Some(Name::parse(text.as_bytes()).unwrap());
            let options = TreeOptions {
                recursive: true,
                ..TreeOptions::default()
            };
            let mut transfers = JoinSet::new();
            for index in 0..4 {
                let to = name(format!("tree-{session}-{index}"));
                let put = client.put_tree(
                    vec![tree.clone()],
                    to,
                    TreeOptions {
                        as_name: true,
                        ..options.clone()
                    },
                );
                transfers.spawn(put.finish());
            }
            for index in 0..100 {
                let to = name(format!("large-{session}-{index}"));
                let put = client.put(&large, to, CopyOptions::default());
                transfers.spawn(put.finish());
            }
            transfers.join_all().await;
        });
    }
    runtime
}

#[test]
fn a_peer_that_takes_all_descriptors_it_can_get_keeps_nobody_from_being_accepted() {
    let (client, greedy, server) = (Side::here(), Side::here(), Side::here());
    for (name, side) in [("laptop", &client), ("greedy", &greedy)] {
        side.trust(&server, "nas", "");
        server.trust(side, name, "");
    }
    let daemon = daemon_with_descriptors(&server, DESCRIPTORS);
    let port = daemon.port;
    client.write("source", content(300_000));
    let _attack = take_descriptors(&greedy, port);
    for round in 0..10 {
        thread::sleep(Duration::from_millis(300));
        client
            .run([
                "cp",
                "-P",
                &port.to_string(),
                "source",
                &format!("127.0.0.1:copy{round}"),
            ])
            .expect(0);
    }
    let open = std::fs::read_dir(format!("/proc/{}/fd", daemon.process.id()))
        .unwrap()
        .count();
    assert!(
        open > DESCRIPTORS / 3,
        "{open}: the attack takes too little to show anything"
    );
}

/// File descriptor limit of the daemon. The limit is so low that the directories of one tree could
/// exhaust it.
const DESCRIPTORS: usize = 64;
