//! Who may bench at a daemon: one bench at a time, and none beside copies; the others wait in a queue that they see.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

use nicstripe_proto::message::{BenchAdmitted, BenchAsk, BenchBody, BenchQueued, BenchRefusal, BenchRefused};

use crate::{
    session::{Command, SessionHandle},
    trust::PublicKey,
};

/// What peers may have of a daemon in benches. The table `[bench]` of its configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BenchLimits {
    /// Whether anybody may bench: yes.
    pub enabled: bool,
    /// Most time of one bench: 30 min.
    pub time: Duration,
    /// How many may wait: 8.
    pub queue: usize,
}

impl Default for BenchLimits {
    fn default() -> Self {
        Self { enabled: true, time: Duration::from_secs(30 * 60), queue: 8 }
    }
}

/// The benches of a daemon.
#[derive(Debug, Default)]
pub(crate) struct Admissions(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    running: Option<Running>,
    waiting: VecDeque<Waiting>,
    next: u64,
    /// Whether somebody looks after those who wait.
    has_usher: bool,
}

#[derive(Debug)]
struct Running {
    bench: (PublicKey, [u8; 16]),
    until: Instant,
    /// Its sessions' tickets.
    tickets: Vec<u64>,
}

#[derive(Debug)]
struct Waiting {
    ticket: u64,
    bench: (PublicKey, [u8; 16]),
    wanted: Duration,
    session: SessionHandle,
    told: Option<BenchQueued>,
}

/// A session's place. Given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Ticket {
    admissions: Weak<Admissions>,
    number: u64,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(admissions) = self.admissions.upgrade() {
            admissions.state().leave(self.number);
        }
    }
}

/// How often those who wait are looked after.
const USHER_PAUSE: Duration = Duration::from_millis(100);

impl Admissions {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A session asks to bench. Returns its place, or why it gets none; its answers come as [`Command::AnswerBench`]. `copies` says how many
    /// transfers run. Has to be called within a tokio runtime.
    pub(crate) fn ask(
        self: &Arc<Self>,
        key: PublicKey,
        ask: &BenchAsk,
        session: SessionHandle,
        limits: &BenchLimits,
        copies: impl Fn() -> u64 + Send + 'static,
    ) -> Result<Ticket, BenchRefused> {
        let mut state = self.state();
        let number = state.enter((key, ask.id), Duration::from_secs(ask.seconds.into()), session, limits, Instant::now())?;
        if !std::mem::replace(&mut state.has_usher, true) {
            let (admissions, time) = (Arc::downgrade(self), limits.time);
            tokio::spawn(usher(admissions, time, copies));
        }
        Ok(Ticket { admissions: Arc::downgrade(self), number })
    }
}

/// Lets in whoever is next, and tells the others where they are, until nobody waits.
async fn usher(admissions: Weak<Admissions>, time: Duration, copies: impl Fn() -> u64) {
    loop {
        let Some(answers) = admissions.upgrade().map(|all| all.state().look(time, copies(), Instant::now())) else { return };
        let Some(answers) = answers else { return };
        for (session, body) in answers {
            session.command(Command::AnswerBench(body)).await;
        }
        tokio::time::sleep(USHER_PAUSE).await;
    }
}

impl State {
    fn enter(
        &mut self,
        bench: (PublicKey, [u8; 16]),
        wanted: Duration,
        session: SessionHandle,
        limits: &BenchLimits,
        now: Instant,
    ) -> Result<u64, BenchRefused> {
        let refused = |why, retry_after_ms| Err(BenchRefused { why, retry_after_ms });
        if !limits.enabled {
            return refused(BenchRefusal::Disabled, None);
        }
        let joins = self.running.as_ref().is_some_and(|running| running.bench == bench);
        // Of those that wait while none runs, the first does not count.
        let room = limits.queue + usize::from(self.running.is_none());
        if !joins && self.waiting.len() >= room {
            let left = self.running.as_ref().map(|running| running.until.saturating_duration_since(now));
            return refused(BenchRefusal::Busy, left.map(|left| left.as_millis() as u64));
        }
        self.next += 1;
        let wanted = wanted.min(limits.time);
        let waiting = Waiting { ticket: self.next, bench, wanted, session, told: None };
        // Another session of the bench that runs does not wait.
        if joins {
            self.waiting.push_front(waiting);
        } else {
            self.waiting.push_back(waiting);
        }
        Ok(self.next)
    }

    fn leave(&mut self, number: u64) {
        self.waiting.retain(|waiting| waiting.ticket != number);
        if let Some(running) = &mut self.running {
            running.tickets.retain(|ticket| *ticket != number);
            if running.tickets.is_empty() {
                self.running = None;
            }
        }
    }

    /// Says what to answer to whom; `None` when nobody waits, and nobody needs to look again.
    fn look(&mut self, time: Duration, copies: u64, now: Instant) -> Option<Vec<(SessionHandle, BenchBody)>> {
        let mut answers = Vec::new();
        while let Some(waiting) = self.waiting.pop_front() {
            let until = match &mut self.running {
                Some(running) if running.bench == waiting.bench => {
                    running.tickets.push(waiting.ticket);
                    running.until
                }
                None if copies == 0 => {
                    let until = now + time;
                    self.running = Some(Running { bench: waiting.bench, until, tickets: vec![waiting.ticket] });
                    until
                }
                _ => {
                    self.waiting.push_front(waiting);
                    break;
                }
            };
            let seconds = until.saturating_duration_since(now).as_secs_f64().ceil() as u32;
            answers.push((waiting.session, BenchBody::Admitted(BenchAdmitted { seconds })));
        }
        let left = self.running.as_ref().map_or(Duration::ZERO, |running| running.until.saturating_duration_since(now));
        let (mut ahead, mut wait) = (u32::from(self.running.is_some()), left);
        let transfers = if self.running.is_none() { u32::try_from(copies).unwrap_or(u32::MAX) } else { 0 };
        for waiting in &mut self.waiting {
            let queued = BenchQueued { ahead, wait_ms: wait.as_millis() as u64, transfers };
            let is_news = waiting
                .told
                .is_none_or(|told| (told.ahead, told.transfers) != (ahead, transfers) || told.wait_ms.abs_diff(queued.wait_ms) >= 1000);
            if is_news {
                waiting.told = Some(queued);
                answers.push((waiting.session.clone(), BenchBody::Queued(queued)));
            }
            (ahead, wait) = (ahead + 1, wait + waiting.wanted);
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
    use super::*;
    use crate::trust::Identity;

    fn session() -> SessionHandle {
        let (inputs, _) = tokio::sync::mpsc::channel(1);
        SessionHandle { inputs, connected: Arc::default(), ended: Default::default() }
    }

    fn key() -> PublicKey {
        Identity::generate().unwrap().public_key()
    }

    struct Desk {
        state: State,
        limits: BenchLimits,
        now: Instant,
    }

    impl Desk {
        fn new(queue: usize) -> Self {
            let limits = BenchLimits { queue, time: Duration::from_secs(100), ..BenchLimits::default() };
            Self { state: State::default(), limits, now: Instant::now() }
        }

        fn enter(&mut self, key: PublicKey, id: u8) -> Result<u64, BenchRefused> {
            self.state.enter((key, [id; 16]), Duration::from_secs(30), session(), &self.limits, self.now)
        }

        fn look(&mut self, copies: u64) -> Vec<BenchBody> {
            let answers = self.state.look(self.limits.time, copies, self.now).unwrap_or_default();
            answers.into_iter().map(|(_, body)| body).collect()
        }
    }

    fn queued(ahead: u32, seconds: u64, transfers: u32) -> BenchBody {
        BenchBody::Queued(BenchQueued { ahead, wait_ms: seconds * 1000, transfers })
    }

    const ADMITTED: BenchBody = BenchBody::Admitted(BenchAdmitted { seconds: 100 });

    #[test]
    fn one_benches_and_the_others_wait_in_their_order_and_see_it() {
        let mut desk = Desk::new(2);
        let first = desk.enter(key(), 1).unwrap();
        let second = desk.enter(key(), 2).unwrap();
        let third = desk.enter(key(), 3).unwrap();
        assert_eq!(desk.look(0), [ADMITTED, queued(1, 100, 0), queued(2, 130, 0)]);
        assert_eq!(desk.look(0), [], "nothing is new");
        let refused = desk.enter(key(), 4).unwrap_err();
        assert_eq!((refused.why, refused.retry_after_ms), (BenchRefusal::Busy, Some(100_000)));
        desk.state.leave(second);
        assert_eq!(desk.look(0), [queued(1, 100, 0)]);
        desk.state.leave(first);
        assert_eq!(desk.look(0), [ADMITTED]);
        desk.state.leave(third);
        assert_eq!(desk.look(0), []);
        assert!(desk.state.running.is_none() && !desk.state.has_usher);
    }

    #[test]
    fn sessions_of_one_bench_are_let_in_together_and_it_ends_with_the_last() {
        let mut desk = Desk::new(1);
        let owner = key();
        let first = desk.enter(owner, 1).unwrap();
        assert_eq!(desk.look(0), [ADMITTED]);
        desk.enter(key(), 2).unwrap();
        let more = desk.enter(owner, 1).unwrap();
        assert_eq!(desk.look(3), [ADMITTED, queued(1, 100, 0)], "copies that began meanwhile do not end a bench");
        desk.state.leave(first);
        assert_eq!(desk.look(0), []);
        desk.state.leave(more);
        assert_eq!(desk.look(0), [ADMITTED]);
    }

    #[test]
    fn a_bench_waits_for_copies_to_end() {
        let mut desk = Desk::new(8);
        desk.enter(key(), 1).unwrap();
        assert_eq!(desk.look(2), [queued(0, 0, 2)]);
        assert_eq!(desk.look(1), [queued(0, 0, 1)]);
        assert_eq!(desk.look(0), [ADMITTED]);
    }

    #[test]
    fn where_it_is_off_nobody_waits() {
        let mut desk = Desk::new(8);
        desk.limits.enabled = false;
        assert_eq!(desk.enter(key(), 1).unwrap_err().why, BenchRefusal::Disabled);
    }
}
