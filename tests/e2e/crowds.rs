//! Tests of a daemon with many concurrent trusted clients.

use std::time::{Duration, Instant};

use nicstripe_testkit::{
    Daemon, Process, Side, content,
    pair::{LOOPBACK, Pair},
};

#[test]
fn sixty_clients_at_once_from_one_address_are_all_served() {
    let pair = Pair::new();
    pair.client.write("source", content(200_000));
    let port = pair.daemon.port.to_string();
    let begun = Instant::now();
    let start = |number: u32| {
        pair.client.start([
            "cp",
            "-q",
            "-P",
            &port,
            "source",
            &format!("127.0.0.1:copy{number}"),
        ])
    };
    let clients: Vec<Process> = (0..60).map(start).collect();
    for client in clients {
        client.finish().expect(0);
    }
    let bytes = content(200_000);
    assert!((0..60).all(|number| pair.server.read(format!("copy{number}")) == bytes));
    assert!(
        begun.elapsed() < Duration::from_secs(120),
        "{:?}",
        begun.elapsed()
    );
}

#[test]
fn a_client_beyond_the_daemons_sessions_says_that_it_waits_and_is_served() {
    let (client, server) = (Side::here(), Side::here());
    client.trust(&server, "nas", "");
    server.trust(&client, "laptop", "");
    server.configure("[limits]\nsessions = 1\n");
    let daemon = Daemon::start(&server, &LOOPBACK);
    let pair = Pair {
        client,
        server,
        daemon,
    };
    pair.client.write("source", content(4_000_000));
    let port = pair.daemon.port.to_string();
    let long = pair.client.start([
        "cp",
        "--bwlimit",
        "1M",
        "--json-stream",
        "-P",
        &port,
        "source",
        "127.0.0.1:first",
    ]);
    long.await_bytes(1);
    let waiting = pair
        .client
        .start(["cp", "-P", &port, "source", "127.0.0.1:second"]);
    let told = waiting.await_stderr("waiting for 127.0.0.1: limit");
    assert_eq!(told, "waiting for 127.0.0.1: limit of 1 session reached");
    long.finish().expect(0);
    waiting.finish().expect(0);
}
