//! Relay in the middle of a cable with a delay, which holds each frame for the delay.

use std::{
    collections::VecDeque,
    io,
    os::fd::OwnedFd,
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    pipe::{PipeFlags, pipe_with},
};

use crate::cable::packet::{MAX_FRAME, PacketSocket};

/// Relay of frames between two interfaces of one namespace, with one thread per direction. Dropping
/// it ends the threads.
#[derive(Debug)]
pub(crate) struct Relay {
    /// Write end of a pipe; closing it signals the threads to end.
    lifeline: Option<OwnedFd>,
    threads: Vec<JoinHandle<()>>,
}

impl Relay {
    /// Starts to relay frames between the interfaces with these indexes in the calling thread's
    /// namespace. Each direction holds at most `room` bytes.
    pub(crate) fn start(ends: [u32; 2], delay: Duration, room: usize) -> io::Result<Self> {
        let [a, b] = [PacketSocket::open(ends[0])?, PacketSocket::open(ends[1])?].map(Arc::new);
        let (end, lifeline) = pipe_with(PipeFlags::CLOEXEC)?;
        let end = Arc::new(end);
        let mut relay = Self {
            lifeline: Some(lifeline),
            threads: Vec::new(),
        };
        for (from, to) in [(&a, &b), (&b, &a)] {
            let way = OneWay {
                from: Arc::clone(from),
                to: Arc::clone(to),
                end: Arc::clone(&end),
                line: Line::new(delay, room),
            };
            relay.threads.push(
                thread::Builder::new()
                    .name("lab-relay".to_owned())
                    .spawn(|| way.run())?,
            );
        }
        Ok(relay)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.lifeline.take();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

struct OneWay {
    from: Arc<PacketSocket>,
    to: Arc<PacketSocket>,
    end: Arc<OwnedFd>,
    line: Line,
}

impl OneWay {
    fn run(mut self) {
        let mut buffer = vec![0; MAX_FRAME];
        loop {
            while let Some(frame) = self.line.arrive(Instant::now()) {
                self.to.send(&frame);
            }
            match self.is_over() {
                Ok(false) => {}
                // The thread cannot continue without poll: the cable drops all frames from here on.
                Ok(true) | Err(_) => return,
            }
            for _ in 0..BATCH {
                match self.from.receive(&mut buffer) {
                    Ok(Some(0)) => {}
                    Ok(Some(len)) => self.line.enter(&buffer[..len], Instant::now()),
                    Ok(None) => break,
                    Err(_) => {
                        thread::sleep(AFTER_AN_ERROR);
                        break;
                    }
                }
            }
        }
    }

    /// Waits until a frame arrives or the next queued one is due. Returns true if the relay must
    /// end.
    fn is_over(&self) -> io::Result<bool> {
        let mut waited_for = [
            PollFd::new(&*self.from, PollFlags::IN),
            PollFd::new(&*self.end, PollFlags::IN),
        ];
        let wait = self
            .line
            .next()
            .map(|due| due.saturating_duration_since(Instant::now()));
        let wait = wait
            .map(Timespec::try_from)
            .transpose()
            .map_err(io::Error::other)?;
        match poll(&mut waited_for, wait.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(!waited_for[1].revents().is_empty()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Frames in flight in one direction, in order of arrival, each with the time at which it is due.
struct Line {
    frames: VecDeque<(Instant, Box<[u8]>)>,
    delay: Duration,
    bytes: usize,
    room: usize,
}

impl Line {
    fn new(delay: Duration, room: usize) -> Self {
        Self {
            frames: VecDeque::new(),
            delay,
            bytes: 0,
            room,
        }
    }

    /// Queues a frame that arrived at `now`, or drops it if the line would hold more than `room`
    /// bytes.
    fn enter(&mut self, frame: &[u8], now: Instant) {
        if self.bytes + frame.len() <= self.room {
            self.bytes += frame.len();
            self.frames.push_back((now + self.delay, frame.into()));
        }
    }

    /// Removes and returns the first frame if it is due.
    fn arrive(&mut self, now: Instant) -> Option<Box<[u8]>> {
        if self.next()? > now {
            return None;
        }
        let (_, frame) = self.frames.pop_front()?;
        self.bytes -= frame.len();
        Some(frame)
    }

    /// Returns the time at which the first queued frame is due.
    fn next(&self) -> Option<Instant> {
        self.frames.front().map(|(due, _)| *due)
    }
}

/// Maximum number of frames to read before the due frames are sent.
const BATCH: usize = 32;

/// Pause after a failed read from an interface.
const AFTER_AN_ERROR: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: Duration = Duration::from_millis(5);

    #[test]
    fn frames_arrive_in_their_order_when_they_are_due() {
        let (mut line, start) = (Line::new(DELAY, 100), Instant::now());
        line.enter(b"first", start);
        line.enter(b"second", start + DELAY / 5);
        assert_eq!(line.next(), Some(start + DELAY));
        assert_eq!(line.arrive(start + DELAY - Duration::from_nanos(1)), None);
        assert_eq!(line.arrive(start + DELAY).as_deref(), Some(&b"first"[..]));
        assert_eq!(line.arrive(start + DELAY), None);
        assert_eq!(
            line.arrive(start + DELAY * 2).as_deref(),
            Some(&b"second"[..])
        );
        assert_eq!((line.next(), line.bytes), (None, 0));
    }

    #[test]
    fn a_line_that_is_full_loses_what_comes_and_nothing_else() {
        let (mut line, start) = (Line::new(DELAY, 10), Instant::now());
        for frame in [&b"sixsix"[..], b"fives", b"four"] {
            line.enter(frame, start);
        }
        let arrived: Vec<_> = std::iter::from_fn(|| line.arrive(start + DELAY)).collect();
        assert_eq!(arrived, [b"sixsix"[..].into(), Box::from(&b"four"[..])]);
    }
}
