//! Tests with random operations on random connections. All data must arrive in order up to the end
//! of the stream, or the connection must fail at both ends.
//!
//! `NICSTRIPE_SEED` sets the seed, to repeat a run.

use nicstripe_sim::Rng;

use super::*;

const LEAST_BATCH: usize = 2048;

/// Simulated program at one end of a connection, with the bytes that it has written and read.
#[derive(Debug, Default, Clone)]
struct User {
    written: u64,
    read: u64,
    has_finished: bool,
    has_seen_end: bool,
    has_closed: bool,
    /// True if sent or received bytes may be lost.
    is_broken: bool,
    /// Maximum number of bytes per read; 0 reads nothing until the end of the test.
    pace: usize,
}

#[derive(Debug, Clone)]
struct Life {
    conn: ConnId,
    is_open: bool,
    is_over: bool,
    /// Programs that use the connection: the client's, then the daemon's.
    users: [User; 2],
}

/// Returns the byte that end `end` of connection `conn` writes at offset `at` of its stream.
fn byte(conn: ConnId, end: usize, at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9) >> 7) as u8 ^ (conn.0 as u8) ^ ((end as u8) << 7)
}

struct World {
    mux: Mux,
    lives: Vec<Life>,
    random: Rng,
}

impl World {
    fn end(&mut self, end: usize) -> &mut Tunnels {
        if end == 0 {
            &mut self.mux.client
        } else {
            &mut self.mux.daemon
        }
    }

    fn take_events(&mut self) {
        for end in 0..2 {
            for event in events(self.end(end)) {
                match event {
                    TunnelEvent::Asked { conn, .. } => match self.random.below(8) {
                        0 => {
                            self.mux
                                .daemon
                                .refuse(conn, TargetRefusal::NotAllowed, "no");
                            self.life(conn).users[1].has_closed = true;
                        }
                        _ => self.mux.daemon.accept(conn),
                    },
                    TunnelEvent::Opened(conn) => self.life(conn).is_open = true,
                    TunnelEvent::Refused { conn, .. } => {
                        self.mux.client.close(conn);
                        let life = self.life(conn);
                        life.users
                            .iter_mut()
                            .for_each(|user| user.has_closed = true);
                        life.is_over = true;
                    }
                    TunnelEvent::Reset(conn) => self
                        .life(conn)
                        .users
                        .iter_mut()
                        .for_each(|user| user.is_broken = true),
                    TunnelEvent::Readable(_) | TunnelEvent::Writable(_) => {}
                }
            }
        }
    }

    fn life(&mut self, conn: ConnId) -> &mut Life {
        self.lives
            .iter_mut()
            .find(|life| life.conn == conn)
            .unwrap()
    }

    fn write(&mut self, at: usize, end: usize, most: u64) {
        let (conn, user) = (self.lives[at].conn, self.lives[at].users[end].clone());
        if user.has_closed || user.has_finished {
            return;
        }
        let bytes: Vec<u8> = (0..1 + self.random.below(most))
            .map(|offset| byte(conn, end, user.written + offset))
            .collect();
        if let Ok(count) = self.end(end).write(conn, &bytes) {
            self.lives[at].users[end].written += count as u64;
        }
    }

    fn read(&mut self, at: usize, end: usize) {
        let (conn, user) = (self.lives[at].conn, self.lives[at].users[end].clone());
        if user.has_closed || user.pace == 0 || user.has_seen_end {
            return;
        }
        let mut into = vec![0; user.pace];
        match self.end(end).peek(conn, &mut into) {
            Ok(Some(0)) => {
                let life = &mut self.lives[at];
                life.users[end].has_seen_end = true;
                assert!(
                    life.users[1 - end].has_finished && life.users[1 - end].written == user.read,
                    "{life:?}"
                );
            }
            Ok(Some(count)) => {
                let right = into[..count]
                    .iter()
                    .enumerate()
                    .all(|(offset, got)| *got == byte(conn, 1 - end, user.read + offset as u64));
                assert!(right, "{conn:?} at {}", user.read);
                self.end(end).consume(conn, count);
                self.lives[at].users[end].read += count as u64;
            }
            Ok(None) => {}
            Err(Broken) => self.lives[at].users[end].is_broken = true,
        }
    }

    fn finish(&mut self, at: usize, end: usize) {
        let conn = self.lives[at].conn;
        if !std::mem::replace(&mut self.lives[at].users[end].has_finished, true) {
            self.end(end).finish(conn);
        }
    }

    fn close(&mut self, at: usize, end: usize) {
        let conn = self.lives[at].conn;
        if !std::mem::replace(&mut self.lives[at].users[end].has_closed, true) {
            self.end(end).close(conn);
            self.lives[at].users[1 - end].is_broken |= !self.lives[at].users[end].has_seen_end;
        }
    }

    fn step(&mut self) {
        match self.random.below(10) {
            0 if self.lives.len() < 60 => {
                let conn = self.mux.client.open("host:1").unwrap();
                let mut life = Life {
                    conn,
                    is_open: false,
                    is_over: false,
                    users: Default::default(),
                };
                for user in &mut life.users {
                    user.pace = [0, 1, 100, 5000, 1 << 20][self.random.below(5) as usize];
                }
                self.lives.push(life);
            }
            1 | 2 => {
                let batch = if self.random.below(2) == 0 {
                    LEAST_BATCH
                } else {
                    crate::wire::frame::MAX_PAYLOAD
                };
                self.mux.send(batch);
            }
            3 | 4 => {
                self.mux.arrive();
                self.take_events();
            }
            _ if self.lives.is_empty() => {}
            kind => {
                let (at, end) = (
                    self.random.below(self.lives.len() as u64) as usize,
                    self.random.below(2) as usize,
                );
                if !self.lives[at].is_open {
                    if self.random.below(50) == 0 && !self.lives[at].is_over {
                        self.close(at, 0);
                    }
                    return;
                }
                match kind {
                    5 | 6 => {
                        let most = [10, 3000, 100_000][self.random.below(3) as usize];
                        self.write(at, end, most);
                    }
                    7 | 8 => self.read(at, end),
                    _ if self.random.below(8) == 0 => self.finish(at, end),
                    _ if self.random.below(40) == 0 => self.close(at, end),
                    _ => {}
                }
            }
        }
    }

    /// Reads all connections to the end. Panics unless all data of intact connections has arrived.
    fn drain(&mut self) {
        for at in 0..self.lives.len() {
            for end in 0..2 {
                self.lives[at].users[end].pace = 1 << 20;
                if self.lives[at].is_open {
                    self.finish(at, end);
                } else {
                    self.close(at, 0);
                }
            }
        }
        for _ in 0..20_000 {
            self.mux.settle();
            self.take_events();
            let before: u64 = self
                .lives
                .iter()
                .flat_map(|life| &life.users)
                .map(|user| user.read + u64::from(user.has_seen_end))
                .sum();
            for at in 0..self.lives.len() {
                (0..2).for_each(|end| self.read(at, end));
            }
            let after: u64 = self
                .lives
                .iter()
                .flat_map(|life| &life.users)
                .map(|user| user.read + u64::from(user.has_seen_end))
                .sum();
            if before == after && !self.mux.send(LEAST_BATCH) {
                break;
            }
        }
        for life in self.lives.iter().filter(|life| life.is_open) {
            for end in 0..2 {
                let is_whole = life.users[end].has_seen_end;
                assert!(
                    is_whole || life.users[end].is_broken || life.users[end].has_closed,
                    "{life:?}"
                );
            }
        }
        for at in 0..self.lives.len() {
            (0..2).for_each(|end| self.close(at, end));
        }
        self.mux.settle();
        self.take_events();
        self.mux.settle();
        assert!(
            self.mux.client.is_empty() && self.mux.daemon.is_empty(),
            "{} {}",
            self.mux.client.len(),
            self.mux.daemon.len()
        );
        assert_eq!(
            (self.mux.client.pool.extra, self.mux.daemon.pool.extra),
            (0, 0)
        );
    }
}

fn live(seed: u64) {
    let mut world = World {
        mux: Mux::new(),
        lives: Vec::new(),
        random: Rng::new(seed),
    };
    for step in 0..3000 {
        world.step();
        if step % 64 == 0 {
            world.mux.client.check();
            world.mux.daemon.check();
        }
    }
    world.drain();
}

#[test]
fn whatever_connections_do_what_arrives_is_what_was_sent() {
    let only = std::env::var("NICSTRIPE_SEED")
        .ok()
        .map(|seed| seed.parse().unwrap());
    let seeds = only.map_or(0..12, |seed: u64| seed..seed + 1);
    for seed in seeds {
        println!("NICSTRIPE_SEED={seed}");
        live(seed);
    }
}
