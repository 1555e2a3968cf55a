//! Tests of tunnels: the record format, two connected ends, and hostile peers.

mod hostile;
mod random;
mod records;

use std::collections::VecDeque;

use super::{limits::*, record::*, *};
use crate::id::Role;

/// Simulation of a tunnel multiplexer: both ends, and the batches in flight between them.
pub(super) struct Mux {
    pub(super) client: Tunnels,
    pub(super) daemon: Tunnels,
    pub(super) up: VecDeque<Vec<u8>>,
    pub(super) down: VecDeque<Vec<u8>>,
}

/// Maximum number of batches in flight in each direction.
const PLACES: usize = 4;

impl Mux {
    pub(super) fn new() -> Self {
        Self {
            client: Tunnels::new(Role::Client),
            daemon: Tunnels::new(Role::Daemon),
            up: VecDeque::new(),
            down: VecDeque::new(),
        }
    }

    /// Sends a batch of at most `batch` bytes from each end that has something to send and may have
    /// another batch in flight. Returns true if a batch was sent.
    pub(super) fn send(&mut self, batch: usize) -> bool {
        let mut any = false;
        for (end, queue) in [
            (&mut self.client, &mut self.up),
            (&mut self.daemon, &mut self.down),
        ] {
            if end.is_due() && queue.len() < PLACES {
                let mut bytes = vec![0xee; batch];
                let len = end.fill(&mut bytes);
                bytes.truncate(len);
                if len > 0 {
                    queue.push_back(bytes);
                    any = true;
                }
            }
        }
        any
    }

    /// Delivers the oldest batch in flight of each direction.
    pub(super) fn arrive(&mut self) -> bool {
        let (up, down) = (self.up.pop_front(), self.down.pop_front());
        let any = up.is_some() || down.is_some();
        up.into_iter()
            .for_each(|batch| self.daemon.handle_batch(&batch).unwrap());
        down.into_iter()
            .for_each(|batch| self.client.handle_batch(&batch).unwrap());
        any
    }

    /// Sends and delivers batches until neither end has anything to send and no batch is in flight.
    pub(super) fn settle(&mut self) {
        while self.send(crate::wire::frame::MAX_PAYLOAD) | self.arrive() {}
    }

    pub(super) fn opened(&mut self) -> ConnId {
        let conn = self.client.open("host:22").unwrap();
        self.settle();
        self.daemon.accept(conn);
        self.settle();
        conn
    }
}

pub(super) fn events(end: &mut Tunnels) -> Vec<TunnelEvent> {
    std::iter::from_fn(|| end.poll_event()).collect()
}

/// Reads all received bytes in parts of at most `most` bytes. Returns the bytes, and true at the
/// end of the stream.
pub(super) fn read(end: &mut Tunnels, conn: ConnId, most: usize) -> (Vec<u8>, bool) {
    let (mut bytes, mut into) = (Vec::new(), vec![0; most]);
    loop {
        match end.peek(conn, &mut into) {
            Ok(Some(0)) => return (bytes, true),
            Ok(Some(count)) => {
                bytes.extend_from_slice(&into[..count]);
                end.consume(conn, count);
            }
            Ok(None) | Err(Broken) => return (bytes, false),
        }
    }
}

#[test]
fn bytes_go_both_ways_and_each_way_ends_by_itself() {
    let mut mux = Mux::new();
    let conn = mux.opened();
    assert_eq!(
        events(&mut mux.daemon),
        [TunnelEvent::Asked {
            conn,
            target: "host:22".into()
        }]
    );
    assert_eq!(events(&mut mux.client), [TunnelEvent::Opened(conn)]);
    assert_eq!(mux.client.write(conn, b"question"), Ok(8));
    mux.client.finish(conn);
    mux.settle();
    assert_eq!(read(&mut mux.daemon, conn, 3), (b"question".to_vec(), true));
    assert_eq!(mux.daemon.write(conn, b"answer"), Ok(6));
    mux.settle();
    assert_eq!(
        read(&mut mux.client, conn, 100),
        (b"answer".to_vec(), false)
    );
    mux.daemon.finish(conn);
    mux.settle();
    assert_eq!(read(&mut mux.client, conn, 100), (Vec::new(), true));
    mux.client.close(conn);
    mux.daemon.close(conn);
    mux.settle();
    assert!(mux.client.is_empty() && mux.daemon.is_empty());
    assert_eq!((mux.client.pool.extra, mux.daemon.pool.extra), (0, 0));
}

#[test]
fn a_refusal_says_why_and_leaves_nothing() {
    let mut mux = Mux::new();
    let conn = mux.client.open("no:1").unwrap();
    mux.settle();
    mux.daemon.refuse(conn, TargetRefusal::NotAllowed, "no");
    mux.settle();
    let refused = TunnelEvent::Refused {
        conn,
        code: TargetRefusal::NotAllowed,
        why: "no".into(),
    };
    assert_eq!(events(&mut mux.client), [refused]);
    mux.client.close(conn);
    assert!(mux.client.is_empty() && mux.daemon.is_empty());
}

#[test]
fn what_was_written_before_a_way_ended_arrives_although_its_writer_is_gone() {
    let mut mux = Mux::new();
    let conn = mux.opened();
    mux.client.write(conn, b"last words").unwrap();
    mux.client.finish(conn);
    mux.client.close(conn);
    mux.settle();
    assert_eq!(
        read(&mut mux.daemon, conn, 100),
        (b"last words".to_vec(), true)
    );
    assert_eq!(mux.daemon.write(conn, b"too late"), Err(Broken));
    mux.daemon.close(conn);
    assert!(mux.client.is_empty() && mux.daemon.is_empty());
}

#[test]
fn the_end_of_the_mux_takes_what_is_not_whole_and_leaves_what_is() {
    let mut mux = Mux::new();
    let (whole, torn) = (mux.opened(), mux.opened());
    mux.client.write(whole, b"all of it").unwrap();
    mux.client.finish(whole);
    mux.client.write(torn, b"part of it").unwrap();
    mux.settle();
    mux.daemon.end();
    assert_eq!(
        read(&mut mux.daemon, whole, 100),
        (b"all of it".to_vec(), true)
    );
    assert_eq!(read(&mut mux.daemon, torn, 100), (Vec::new(), false));
    assert_eq!(mux.daemon.write(torn, b"x"), Err(Broken));
    mux.daemon.close(whole);
    mux.daemon.close(torn);
    mux.daemon.check();
    assert!(mux.daemon.is_empty() && mux.daemon.pool.extra == 0);
}

#[test]
fn one_slow_reader_stops_its_own_writer_and_no_other() {
    let mut mux = Mux::new();
    let (slow, quick) = (mux.opened(), mux.opened());
    let block = vec![7; 1 << 20];
    let (mut to_slow, mut to_quick) = (0, 0);
    for _ in 0..500 {
        to_slow += mux.client.write(slow, &block).unwrap();
        to_quick += mux.client.write(quick, &block).unwrap();
        mux.settle();
        read(&mut mux.daemon, quick, 1 << 20);
        mux.settle();
        mux.client.check();
        mux.daemon.check();
    }
    assert_eq!(to_slow, FIRST_WINDOW as usize, "it read nothing");
    // A write has at most the length of a send queue, so 500 writes are at most 125 MiB.
    assert!(to_quick > 100 << 20, "{to_quick}");
}

#[test]
fn a_window_grows_with_use_and_not_with_a_slow_reader() {
    let mut mux = Mux::new();
    let conn = mux.opened();
    let block = vec![7; 16 << 20];
    let mut most = 0;
    for _ in 0..100 {
        let mut written = 0;
        // Fills the window before the reader begins.
        while let Ok(count @ 1..) = mux.client.write(conn, &block) {
            written += count;
            mux.settle();
        }
        most = most.max(written);
        read(&mut mux.daemon, conn, 16 << 20);
        mux.settle();
        mux.daemon.check();
    }
    assert_eq!(most, MOST_WINDOW as usize);
    let conn = mux.opened();
    let mut into = vec![0; 1000];
    for _ in 0..1000 {
        mux.client.write(conn, &block).unwrap();
        mux.settle();
        let count = mux.daemon.peek(conn, &mut into).unwrap().unwrap();
        mux.daemon.consume(conn, count);
        mux.settle();
    }
    assert!(mux.daemon.connections[&conn].inbound.held() <= u64::from(FIRST_WINDOW));
}

#[test]
fn a_window_grows_although_the_next_one_is_always_under_way() {
    let mut mux = Mux::new();
    let conn = mux.opened();
    let block = vec![7; 64 << 10];
    for _ in 0..200 {
        // The writer always has data, the reader reads at once, and batches have latency.
        while let Ok(1..) = mux.client.write(conn, &block) {}
        let has_sent = mux.send(crate::wire::frame::MAX_PAYLOAD);
        if !has_sent || mux.up.len() == PLACES {
            mux.arrive();
            read(&mut mux.daemon, conn, 64 << 10);
        }
    }
    // The window covers the mux's capacity. A larger window would not increase the rate.
    let held = mux.daemon.connections[&conn].inbound.held();
    assert!(
        held >= (PLACES * crate::wire::frame::MAX_PAYLOAD) as u64,
        "{held}"
    );
}

#[test]
fn as_many_connections_as_there_may_be_all_move_and_stay_within_the_bounds() {
    let mut mux = Mux::new();
    let conns: Vec<ConnId> = (0..MOST_CONNECTIONS)
        .map(|_| mux.client.open("host:22").unwrap())
        .collect();
    assert_eq!(mux.client.open("host:22"), Err(OpenError::TooMany));
    mux.settle();
    conns.iter().for_each(|conn| mux.daemon.accept(*conn));
    mux.settle();
    let block = vec![1; 1 << 20];
    let mut moved = vec![0; conns.len()];
    for round in 0..4 {
        for conn in &conns {
            mux.client.write(*conn, &block).unwrap();
        }
        mux.client.check();
        mux.settle();
        mux.daemon.check();
        assert!(
            mux.daemon.buffered_bytes() <= MOST_RECEIVED,
            "round {round}"
        );
        for (conn, moved) in conns.iter().zip(&mut moved) {
            *moved += read(&mut mux.daemon, *conn, 1 << 20).0.len();
        }
        mux.settle();
    }
    assert!(
        moved
            .iter()
            .all(|bytes| *bytes >= 4 * (LEAST_WINDOW as usize / 2)),
        "{:?}",
        moved.iter().min()
    );
    conns.iter().for_each(|conn| mux.client.close(*conn));
    mux.settle();
    conns.iter().for_each(|conn| mux.daemon.close(*conn));
    assert!(mux.client.is_empty() && mux.daemon.is_empty());
    assert_eq!((mux.client.pool.extra, mux.daemon.pool.extra), (0, 0));
}

#[test]
fn connections_have_turns_within_a_batch() {
    let mut mux = Mux::new();
    let conns: Vec<ConnId> = (0..8).map(|_| mux.opened()).collect();
    for conn in &conns {
        mux.client.write(*conn, &vec![1; 64 << 10]).unwrap();
    }
    let last = conns[7];
    mux.send(crate::wire::frame::MAX_PAYLOAD);
    mux.arrive();
    assert!(
        !read(&mut mux.daemon, last, 1 << 20).0.is_empty(),
        "the last tunnel has data in the first batch"
    );
}
