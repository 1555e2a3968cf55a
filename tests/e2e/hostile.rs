//! Strangers in numbers, at a daemon that runs as it does in earnest.

use std::{
    io::Read,
    net::{Ipv4Addr, SocketAddr, TcpStream},
    time::Duration,
};

use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

use crate::{
    harness::{Daemon, Process, Side, content},
    pair::{MIB, Pair},
};

/// A connection from some address of loopback that says nothing.
fn idle(stranger: u16, port: u16) -> TcpStream {
    let [high, low] = stranger.to_be_bytes();
    let tcp = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&tcp, &SocketAddr::from((Ipv4Addr::new(127, 7, high, low), 0))).unwrap();
    connect(&tcp, &SocketAddr::from((Ipv4Addr::new(127, 0, 1, 1), port))).unwrap();
    tcp.into()
}

#[test]
fn a_daemon_with_few_file_descriptors_and_many_strangers_goes_on_with_its_peers() {
    let (client, server) = (Side::here(), Side::here());
    client.trust(&server, "nas", "");
    server.trust(&client, "laptop", "");
    let mut command = server.command("/bin/sh");
    let script = "ulimit -n 64 && exec \"$0\" serve --port 0 --interface lo";
    command.args(["-c", script, env!("CARGO_BIN_EXE_nicstripe")]);
    let pair = Pair { client, server, daemon: Daemon::listening(Process::spawn(command)) };
    let bytes = content(16 * MIB);
    pair.client.write("source", &bytes);
    let cp = pair.start_cp(&["--bwlimit", "16M", "--json-stream", "source", "127.0.0.1:target"]);
    cp.await_bytes(MIB as u64);
    let strangers: Vec<TcpStream> = (0..300).map(|stranger| idle(stranger, pair.daemon.port)).collect();
    pair.client.write("second", b"bytes");
    pair.cp(&["second", "127.0.0.1:"]).expect(0);
    cp.finish().expect(0);
    assert_eq!(pair.server.read("second"), b"bytes");
    assert!(pair.server.read("target") == bytes);
    // The first of them was turned away long ago, without a byte.
    let mut first = &strangers[0];
    first.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    assert!(matches!(first.read(&mut [0; 1]), Ok(0) | Err(_)));
}
