//! Tests of clients that meet another service than their daemon, a link that leads nowhere, or an
//! unexpected key. Transcripts of other refusals are in `mistakes`.

use std::{
    io::{Read, Write},
    net::TcpListener,
    thread,
};

use nicstripe_testkit::{
    Daemon, Side, content,
    pair::{LOOPBACK, MIB, Pair},
};

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
