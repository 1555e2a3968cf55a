//! Tests of clients whose daemon does not run or has an unexpected key, and of daemons that receive
//! bytes other than a TLS handshake.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    thread,
    time::Duration,
};

use nicstripe_testkit::{
    Daemon, Side, content,
    pair::{LOOPBACK, MIB, Pair},
};

#[test]
fn where_no_daemon_runs_the_hint_says_how_to_start_one() {
    let client = Side::here();
    client.write("source", b"bytes");
    let port = free_port();
    let text = port.to_string();
    let outcome = client
        .run(["cp", "-P", &text, "--json", "source", "127.0.0.1:"])
        .expect(10);
    outcome.document();
    outcome
        .error(&[&format!("127.0.0.1:{port}"), "refused"])
        .hint(&[&format!("nicstripe serve --port {port}")]);
}

#[test]
fn a_service_that_is_no_daemon_is_not_taken_for_one() {
    let client = Side::here();
    client.write("source", b"bytes");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let greeter = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"SSH-2.0-OpenSSH_9.9\r\n").unwrap();
        // Reads the client's data until the client closes the connection.
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let outcome = client
        .run(["cp", "-P", &port, "source", "127.0.0.1:"])
        .expect(12);
    outcome.error(&["nicstripe", &port]).hint(&[&port]);
    greeter.join().unwrap();
}

#[test]
fn an_unknown_host_is_named() {
    let client = Side::here();
    client.write("source", b"bytes");
    // No name below .invalid exists (RFC 6761).
    client
        .run(["cp", "source", "no-such-host.invalid:"])
        .expect(10)
        .error(&["no-such-host.invalid"])
        .hint(&["address"]);
}

#[test]
fn a_named_link_that_is_not_here_is_an_error_with_the_choices() {
    let pair = Pair::new();
    pair.client.write("source", b"bytes");
    let port = pair.daemon.port.to_string();
    for link in [
        "nosuch1",
        "192.0.2.1",
        "127.0.0.2=127.0.1.2",
        "nosuch0=127.0.1.2",
    ] {
        let outcome = pair.client.run([
            "cp",
            "-P",
            &port,
            "--link",
            "nosuch0",
            "--link",
            link,
            "source",
            "127.0.0.1:",
        ]);
        outcome.expect(10).error(&["nosuch0", "lo"]);
    }
    assert!(pair.server.names().is_empty());
}

#[test]
fn a_named_link_that_cannot_connect_is_an_error_and_no_fallback_to_fewer() {
    let pair = Pair::new();
    pair.client.write("source", content(4 * MIB));
    // 198.51.100.1 is unassigned (RFC 5737). The copy lasts 8 s, longer than the 5 s timeout for
    // the first connection of a named link.
    let port = pair.daemon.port.to_string();
    let links = [
        "--link",
        "127.0.0.2=127.0.1.2",
        "--link",
        "127.0.0.3=198.51.100.1",
    ];
    let outcome = pair.client.run(
        [
            &["cp", "-P", &port, "--bwlimit", "512K"][..],
            &links,
            &["source", "127.0.0.1:target"],
        ]
        .concat(),
    );
    outcome.expect(10).error(&["198.51.100.1"]);
    assert!(!pair.server.has("target"));
}

#[test]
fn a_client_whose_key_is_not_trusted_gets_the_line_that_changes_it() {
    let (client, server) = (Side::here(), Side::here());
    client.trust(&server, "nas", "");
    server.run(["key"]).expect(0);
    let daemon = Daemon::start(&server, &LOOPBACK);
    client.write("source", b"bytes");
    let port = daemon.port.to_string();
    let copy = ["cp", "-P", &port, "--json", "source", "127.0.0.1:"];
    let key = key_of(&client);
    let outcome = client
        .run(copy)
        .expect(5)
        .error(&["127.0.0.1", "trust", &key]);
    outcome.document();
    let command = format!("nicstripe trust add '{key}' --name ");
    let hint = outcome.labelled("hint: ", &["on 127.0.0.1: ", &command]);
    assert!(server.names().is_empty());

    // The command in the hint takes effect without a restart.
    let name = hint.rsplit(' ').next().unwrap();
    server.run(["trust", "add", &key, "--name", name]).expect(0);
    client.run(copy).expect(0);
    assert_eq!(server.read("source"), b"bytes");
}

#[test]
fn a_daemon_whose_key_is_not_trusted_gets_no_byte_and_the_hint_changes_it() {
    let (client, server) = (Side::here(), Side::here());
    client.run(["key"]).expect(0);
    server.trust(&client, "laptop", "");
    let daemon = Daemon::start(&server, &LOOPBACK);
    client.write("source", b"bytes");
    let port = daemon.port.to_string();
    let copy = ["cp", "-P", &port, "source", "127.0.0.1:"];
    let key = key_of(&server);
    let outcome = client
        .run(copy)
        .expect(5)
        .error(&["127.0.0.1", "not trusted", &key]);
    outcome.hint(&[&format!("trust add '{key}' --name 127.0.0.1")]);
    assert!(server.names().is_empty());

    client
        .run(["trust", "add", &key, "--name", "127.0.0.1"])
        .expect(0);
    client.run(copy).expect(0);
    assert_eq!(server.read("source"), b"bytes");
}

#[test]
fn another_key_under_a_known_name_is_refused() {
    let (client, server, other) = (Side::here(), Side::here(), Side::here());
    server.trust(&client, "laptop", "");
    client.trust(&other, "127.0.0.1", "");
    client.trust(&server, "nas", "");
    let daemon = Daemon::start(&server, &LOOPBACK);
    client.write("source", b"bytes");
    // The client trusts the daemon's key as nas, not as the requested host.
    client
        .run(["cp", "-P", &daemon.port.to_string(), "source", "127.0.0.1:"])
        .expect(5)
        .error(&["127.0.0.1"]);
    assert!(server.names().is_empty());
}

#[test]
fn garbage_and_half_handshakes_get_no_byte_and_disturb_no_copy() {
    let pair = Pair::new();
    let bytes = content(24 * MIB);
    pair.client.write("source", &bytes);
    let cp = pair.start_cp(&[
        "--bwlimit",
        "16M",
        "--json-stream",
        "source",
        "127.0.0.1:target",
    ]);
    cp.await_bytes(1);
    let garbage = content(1 << 16);
    let shouts: [&[u8]; 6] = [
        b"",
        b"\x16",
        &CLIENT_HELLO,
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\xff\xff",
        &garbage,
    ];
    for shout in shouts {
        for hangs_up in [false, true] {
            let said = shout_at(pair.daemon.port, shout, hangs_up);
            // A TLS alert has 7 bytes and reveals only that the bytes were no handshake.
            assert!(
                said.len() <= 7,
                "{said:?} in answer to {} bytes",
                shout.len()
            );
        }
    }
    let _silent: Vec<TcpStream> = (0..300).map(|_| connect(pair.daemon.port)).collect();
    let report = cp.finish().expect(0).document();
    pair.server.check("target", &bytes, &report);
    assert_eq!(report["failovers"], 0, "{report:#}");
}

#[test]
fn silent_connections_are_shown_out_and_then_others_are_let_in() {
    let pair = Pair::new();
    pair.client.write("source", b"bytes");
    let mut silent: Vec<TcpStream> = (0..300).map(|_| connect(pair.daemon.port)).collect();
    for stream in &mut silent {
        let mut said = Vec::new();
        // The daemon closes or resets the connection within the handshake timeout of 5 s.
        let _ = stream.read_to_end(&mut said);
        assert_eq!(said, b"");
    }
    pair.cp(&["source", "127.0.0.1:"]).expect(0);
}

/// First 16 bytes of a TLS record with a ClientHello. The test never sends the rest.
const CLIENT_HELLO: [u8; 16] = [0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3, 1, 2, 3, 4, 5];

/// Sends `bytes` to the daemon's port, and closes the sending direction if `hangs_up`. Returns the
/// daemon's response.
fn shout_at(port: u16, bytes: &[u8], hangs_up: bool) -> Vec<u8> {
    let mut stream = connect(port);
    // Fails if the daemon has already closed the connection.
    let _ = stream.write_all(bytes);
    if hangs_up {
        let _ = stream.shutdown(Shutdown::Write);
    } else if bytes.len() < 32 {
        // The daemon waits for the rest, as it should; this test does not wait.
        return Vec::new();
    }
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said);
    said
}

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    stream
}

/// Returns a side's public key line without the comment, as hints print it.
fn key_of(side: &Side) -> String {
    let line = side.key();
    line.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}
