//! Admission of benchmarks at a daemon: one at a time and none during copies. The others wait in a
//! queue and receive their position.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

use nicstripe_proto::message::{
    BenchAdmitted, BenchAsk, BenchBody, BenchQueued, BenchRefusal, BenchRefused,
};

/// Limits of benchmarks that peers may run: the table `[bench]` of the daemon's configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BenchLimits {
    /// True if peers may run benchmarks; true by default.
    pub enabled: bool,
    /// Maximum duration of one benchmark; 30 min by default.
    pub time: Duration,
    /// Maximum number of queued benchmarks; 8 by default.
    pub queue: usize,
}

impl Default for BenchLimits {
    fn default() -> Self {
        Self {
            enabled: true,
            time: Duration::from_secs(30 * 60),
            queue: 8,
        }
    }
}

/// Public key of a client.
type PeerKey = [u8; 32];

/// Channel to a client in the queue, for the messages of the queue.
pub trait QueueChannel: Clone + Send + Sync + 'static {
    /// Sends a message about the benchmark to the client.
    fn send(&self, body: BenchBody) -> impl Future<Output = ()> + Send;
}

/// Running and queued benchmarks of a daemon.
#[derive(Debug)]
pub struct Admissions<S>(Mutex<Turns<S>>);

#[derive(Debug, Default)]
struct Turns<S> {
    running: Option<Running>,
    waiting: VecDeque<Waiting<S>>,
    next: u64,
    /// True while an [`usher`] task polls the queue.
    has_usher: bool,
}

#[derive(Debug)]
struct Running {
    bench: (PeerKey, [u8; 16]),
    until: Instant,
    /// Tickets of the sessions that take part in the running benchmark.
    tickets: Vec<u64>,
}

#[derive(Debug)]
struct Waiting<S> {
    ticket: u64,
    bench: (PeerKey, [u8; 16]),
    duration: Duration,
    session: S,
    reported: Option<BenchQueued>,
}

/// Ticket of a session in the queue or in the running benchmark. Dropping it removes the session
/// from both.
#[derive(Debug)]
pub struct Ticket<S> {
    admissions: Weak<Admissions<S>>,
    number: u64,
    /// End of the granted time; `None` in the queue.
    over_at: Option<Instant>,
    /// Time since which the session has no connection.
    alone_since: Option<Instant>,
}

/// Time without any connection after which a daemon ends the client's benchmark. Long enough to
/// move a cable to another port.
const GONE_AFTER: Duration = Duration::from_secs(5);

impl<S> Ticket<S> {
    /// Begins the granted time.
    pub fn admit(&mut self, time: Duration, now: Instant) {
        self.over_at = Some(now + time);
    }

    /// Returns the reason to end the benchmark, so that the next in the queue can start: its time is
    /// over, or the session has had no connection for 5 s. Call several times a second.
    pub fn end(&mut self, is_connected: bool, now: Instant) -> Option<BenchRefused> {
        self.alone_since = (!is_connected).then(|| self.alone_since.unwrap_or(now));
        let is_gone = self
            .alone_since
            .is_some_and(|since| now - since >= GONE_AFTER);
        let is_over = self.over_at.is_some_and(|at| at <= now);
        (is_over || is_gone).then_some(BenchRefused {
            why: BenchRefusal::TimeOver,
            retry_after_ms: (!is_over).then_some(0),
        })
    }
}

impl<S> Drop for Ticket<S> {
    fn drop(&mut self) {
        if let Some(admissions) = self.admissions.upgrade() {
            admissions.state().leave(self.number);
        }
    }
}

/// Limits and number of transfers of the daemon at one moment, by which it admits benchmarks.
#[derive(Debug, Clone)]
pub struct Desk {
    /// Current limits.
    pub limits: BenchLimits,
    /// Number of running transfers.
    pub copies: u64,
}

/// Interval at which the queue is polled.
const USHER_PAUSE: Duration = Duration::from_millis(100);

impl<S> Default for Admissions<S> {
    fn default() -> Self {
        Self(Mutex::new(Turns {
            running: None,
            waiting: VecDeque::new(),
            next: 0,
            has_usher: false,
        }))
    }
}

impl<S> Admissions<S> {
    fn state(&self) -> MutexGuard<'_, Turns<S>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: QueueChannel> Admissions<S> {
    /// Queues a session for a benchmark. Returns its ticket or the reason for rejection; answers
    /// arrive through [`QueueChannel`]. Must be called within a tokio runtime.
    pub fn ask(
        self: &Arc<Self>,
        key: PeerKey,
        ask: &BenchAsk,
        session: S,
        desk: impl Fn() -> Desk + Send + 'static,
    ) -> Result<Ticket<S>, BenchRefused> {
        let mut state = self.state();
        let number = state.enter(
            (key, ask.id),
            Duration::from_secs(ask.seconds.into()),
            session,
            &desk().limits,
            Instant::now(),
        )?;
        if !std::mem::replace(&mut state.has_usher, true) {
            tokio::spawn(usher(Arc::downgrade(self), desk));
        }
        Ok(Ticket {
            admissions: Arc::downgrade(self),
            number,
            over_at: None,
            alone_since: None,
        })
    }
}

/// Admits the next benchmark and sends the others their positions, until the queue is empty.
async fn usher<S: QueueChannel>(admissions: Weak<Admissions<S>>, desk: impl Fn() -> Desk) {
    loop {
        let all = admissions.upgrade();
        let answers = all.and_then(|all| all.state().look(&desk(), Instant::now()));
        let Some(answers) = answers else { return };
        for (session, body) in answers {
            session.send(body).await;
        }
        tokio::time::sleep(USHER_PAUSE).await;
    }
}

impl<S> Turns<S> {
    fn leave(&mut self, number: u64) {
        self.waiting.retain(|waiting| waiting.ticket != number);
        if let Some(running) = &mut self.running {
            running.tickets.retain(|ticket| *ticket != number);
            if running.tickets.is_empty() {
                self.running = None;
            }
        }
    }
}

impl<S: Clone> Turns<S> {
    fn enter(
        &mut self,
        bench: (PeerKey, [u8; 16]),
        duration: Duration,
        session: S,
        limits: &BenchLimits,
        now: Instant,
    ) -> Result<u64, BenchRefused> {
        let refused = |why, retry_after_ms| {
            Err(BenchRefused {
                why,
                retry_after_ms,
            })
        };
        let joins = self.is_of_running(&bench);
        if !limits.enabled && !joins {
            return refused(BenchRefusal::Disabled, None);
        }
        // While no benchmark runs, the first in the queue does not count against the limit.
        let room = limits.queue + usize::from(self.running.is_none());
        if !joins && self.waiting.len() >= room {
            let left = self
                .running
                .as_ref()
                .map(|running| running.until.saturating_duration_since(now));
            return refused(BenchRefusal::Busy, left.map(|left| left.as_millis() as u64));
        }
        self.next += 1;
        let duration = duration.min(limits.time);
        let waiting = Waiting {
            ticket: self.next,
            bench,
            duration,
            session,
            reported: None,
        };
        // A further session of the running benchmark does not wait.
        if joins {
            self.waiting.push_front(waiting);
        } else {
            self.waiting.push_back(waiting);
        }
        Ok(self.next)
    }

    fn is_of_running(&self, bench: &(PeerKey, [u8; 16])) -> bool {
        self.running
            .as_ref()
            .is_some_and(|running| running.bench == *bench)
    }

    /// Returns the answers to send now; `None` when the queue is empty and polling can stop.
    fn look(&mut self, desk: &Desk, now: Instant) -> Option<Vec<(S, BenchBody)>> {
        let Desk {
            limits: BenchLimits { enabled, time, .. },
            copies,
        } = *desk;
        let mut answers = Vec::new();
        if !enabled {
            let refused = BenchBody::Refused(BenchRefused {
                why: BenchRefusal::Disabled,
                retry_after_ms: None,
            });
            let running = self.running.as_ref().map(|running| running.bench);
            self.waiting.retain(|waiting| {
                let stays = running == Some(waiting.bench);
                if !stays {
                    answers.push((waiting.session.clone(), refused.clone()));
                }
                stays
            });
        }
        while let Some(waiting) = self.waiting.pop_front() {
            let until = match &mut self.running {
                Some(running) if running.bench == waiting.bench => {
                    running.tickets.push(waiting.ticket);
                    running.until
                }
                None if copies == 0 => {
                    let until = now + time;
                    self.running = Some(Running {
                        bench: waiting.bench,
                        until,
                        tickets: vec![waiting.ticket],
                    });
                    until
                }
                _ => {
                    self.waiting.push_front(waiting);
                    break;
                }
            };
            let seconds = until.saturating_duration_since(now).as_secs_f64().ceil() as u32;
            answers.push((
                waiting.session,
                BenchBody::Admitted(BenchAdmitted { seconds }),
            ));
        }
        let left = self.running.as_ref().map_or(Duration::ZERO, |running| {
            running.until.saturating_duration_since(now)
        });
        let (mut ahead, mut wait) = (u32::from(self.running.is_some()), left);
        let transfers = if self.running.is_none() {
            u32::try_from(copies).unwrap_or(u32::MAX)
        } else {
            0
        };
        for waiting in &mut self.waiting {
            let queued = BenchQueued {
                ahead,
                wait_ms: wait.as_millis() as u64,
                transfers,
            };
            let is_news = waiting.reported.is_none_or(|reported| {
                (reported.ahead, reported.transfers) != (ahead, transfers)
                    || reported.wait_ms.abs_diff(queued.wait_ms) >= 1000
            });
            if is_news {
                waiting.reported = Some(queued);
                answers.push((waiting.session.clone(), BenchBody::Queued(queued)));
            }
            (ahead, wait) = (ahead + 1, wait + waiting.duration);
        }
        if answers.is_empty() && self.waiting.is_empty() {
            self.has_usher = false;
            return None;
        }
        Some(answers)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU8, Ordering};

    use super::*;

    /// Returns a different public key on each call.
    fn key() -> PeerKey {
        static KEYS: AtomicU8 = AtomicU8::new(0);
        [KEYS.fetch_add(1, Ordering::Relaxed); 32]
    }

    struct Daemon {
        state: Turns<()>,
        limits: BenchLimits,
        now: Instant,
    }

    impl Daemon {
        fn new(queue: usize) -> Self {
            let limits = BenchLimits {
                queue,
                time: Duration::from_secs(100),
                ..BenchLimits::default()
            };
            Self {
                state: Turns::default(),
                limits,
                now: Instant::now(),
            }
        }

        fn enter(&mut self, key: PeerKey, id: u8) -> Result<u64, BenchRefused> {
            self.state.enter(
                (key, [id; 16]),
                Duration::from_secs(30),
                (),
                &self.limits,
                self.now,
            )
        }

        fn look(&mut self, copies: u64) -> Vec<BenchBody> {
            let answers = self
                .state
                .look(
                    &Desk {
                        limits: self.limits.clone(),
                        copies,
                    },
                    self.now,
                )
                .unwrap_or_default();
            answers.into_iter().map(|(_, body)| body).collect()
        }
    }

    fn queued(ahead: u32, seconds: u64, transfers: u32) -> BenchBody {
        BenchBody::Queued(BenchQueued {
            ahead,
            wait_ms: seconds * 1000,
            transfers,
        })
    }

    const ADMITTED: BenchBody = BenchBody::Admitted(BenchAdmitted { seconds: 100 });

    #[test]
    fn one_benches_and_the_others_wait_in_their_order_and_see_it() {
        let mut daemon = Daemon::new(2);
        let first = daemon.enter(key(), 1).unwrap();
        let second = daemon.enter(key(), 2).unwrap();
        let third = daemon.enter(key(), 3).unwrap();
        assert_eq!(
            daemon.look(0),
            [ADMITTED, queued(1, 100, 0), queued(2, 130, 0)]
        );
        assert_eq!(daemon.look(0), [], "nothing is new");
        let refused = daemon.enter(key(), 4).unwrap_err();
        assert_eq!(
            (refused.why, refused.retry_after_ms),
            (BenchRefusal::Busy, Some(100_000))
        );
        daemon.state.leave(second);
        assert_eq!(daemon.look(0), [queued(1, 100, 0)]);
        daemon.state.leave(first);
        assert_eq!(daemon.look(0), [ADMITTED]);
        daemon.state.leave(third);
        assert_eq!(daemon.look(0), []);
        assert!(daemon.state.running.is_none() && !daemon.state.has_usher);
    }

    #[test]
    fn sessions_of_one_bench_are_let_in_together_and_it_ends_with_the_last() {
        let mut daemon = Daemon::new(1);
        let owner = key();
        let first = daemon.enter(owner, 1).unwrap();
        assert_eq!(daemon.look(0), [ADMITTED]);
        daemon.enter(key(), 2).unwrap();
        let more = daemon.enter(owner, 1).unwrap();
        assert_eq!(
            daemon.look(3),
            [ADMITTED, queued(1, 100, 0)],
            "later copies do not end a bench"
        );
        daemon.state.leave(first);
        assert_eq!(daemon.look(0), []);
        daemon.state.leave(more);
        assert_eq!(daemon.look(0), [ADMITTED]);
    }

    #[test]
    fn a_bench_waits_for_copies_to_end() {
        let mut daemon = Daemon::new(8);
        daemon.enter(key(), 1).unwrap();
        assert_eq!(daemon.look(2), [queued(0, 0, 2)]);
        assert_eq!(daemon.look(1), [queued(0, 0, 1)]);
        assert_eq!(daemon.look(0), [ADMITTED]);
    }

    #[test]
    fn where_it_is_off_nobody_waits() {
        let mut daemon = Daemon::new(8);
        daemon.limits.enabled = false;
        assert_eq!(
            daemon.enter(key(), 1).unwrap_err().why,
            BenchRefusal::Disabled
        );
    }

    #[test]
    fn limits_that_change_hold_for_those_who_wait() {
        let mut daemon = Daemon::new(8);
        let owner = key();
        daemon.enter(owner, 1).unwrap();
        let running = daemon.look(0);
        daemon.enter(key(), 2).unwrap();
        assert_eq!(
            (running, daemon.look(0)),
            (vec![ADMITTED], vec![queued(1, 100, 0)])
        );
        daemon.limits.enabled = false;
        let refused = BenchBody::Refused(BenchRefused {
            why: BenchRefusal::Disabled,
            retry_after_ms: None,
        });
        assert_eq!(daemon.look(0), [refused]);
        daemon.enter(owner, 1).unwrap();
        assert_eq!(daemon.look(0), [ADMITTED], "a running bench keeps its time");
    }
}
