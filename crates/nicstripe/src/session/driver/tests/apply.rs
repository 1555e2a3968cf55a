//! Tests that pass every input to [`Driver::apply`], also at unexpected times, without the event
//! loop.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use nicstripe_proto::{
    ChainingValue, ChunkId, DataHeader, Digest, Frame, FrameError, Name, TransferId,
    message::{AnswerKind, Ask, AskKind, Get, PutOptions},
    path::{Cause, Origin},
    tree::EntryId,
};
use tokio::sync::{Semaphore, oneshot};

use super::super::*;
use crate::{
    file::{self, FileError, ReadOptions, SimulatedDisk, WriteError},
    session::{
        Outcome, Starter, Tally, Waiter,
        inbox::{IoResult, Said, Step, Unanswered},
        kind::{
            entry::EntrySource,
            file::{FileSource, LocalFile, LocalTarget},
            retransmit::Produced,
        },
        simulated::lab::{pair, plan},
    },
    wire::stream::{StreamEnd, StreamEvent},
};

const P: PathId = PathId(0);
const T: TransferId = TransferId(1);
/// Identifier of a transfer that the session does not know, like one that has ended.
const GONE: TransferId = TransferId(77);

type Ended = oneshot::Receiver<Result<(Outcome, Tally), Error>>;

/// Connector that counts connection attempts and completes none.
#[derive(Default)]
struct Attempts(AtomicUsize);

impl LinkSteps for Attempts {
    fn join<'a>(&'a self, _path: PathId, _plan: &'a PathPlan, _first: bool) -> Joining<'a> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Box::pin(std::future::pending())
    }
}

/// Session of a client, to which the tests apply one input at a time.
struct Applied {
    driver: Driver,
    attempts: Arc<Attempts>,
}

impl Applied {
    fn new() -> Self {
        let attempts = Arc::new(Attempts::default());
        let (driver, _) = Driver::new(DriverConfig {
            service: None,
            host: "peer".into(),
            session: SessionConfig::default(),
            pool: IoPool::simulated(&SimulatedDisk::default()),
            buffers: BufferPool::default(),
            packs: true,
            share: None,
            steps: Some(attempts.clone()),
            audience: Audience::default(),
            events: None,
        });
        Self { driver, attempts }
    }

    /// Returns a session whose path [`P`] is connected.
    async fn connected() -> Self {
        let mut applied = Self::new();
        applied.add(plan(0));
        applied.connect().await;
        assert!(applied.driver.session.is_connected());
        applied
    }

    async fn connect(&mut self) {
        self.apply(Input::Connected {
            path: P,
            made: Box::new(Ok(pair().await.0)),
        });
    }

    /// Adds a path, whose connection begins at once.
    fn add(&mut self, plan: PathPlan) {
        let now = clock::now();
        self.driver.session.add_path(plan, now).unwrap();
        self.driver.pump(now);
    }

    /// Retires a path that is replaced by another.
    fn retire(&mut self, path: PathId) {
        let now = clock::now();
        self.driver.session.retire_path(path, Cause::Replaced, now);
        self.driver.pump(now);
    }

    fn apply(&mut self, input: Input) {
        let now = clock::now();
        self.driver.apply(input, now);
        self.driver.pump(now);
    }

    fn command(&mut self, command: Command) {
        self.apply(Input::Command(command));
    }

    /// Starts to fetch a file. Returns the receiver of the result.
    fn get(&mut self) -> Ended {
        let (waiter, ended) = waiter();
        let download = Get {
            transfer: T,
            entry: None,
            name: Name::new(["file"]).unwrap(),
            limit_bps: None,
            compress: false,
            allow_changing: false,
            range: None,
        };
        let target = LocalTarget {
            path: "/nonexistent/file".into(),
            options: PutOptions::default(),
            peer_key: [0; 32],
        };
        self.command(Command::Start {
            transfer: T,
            kind: Box::new(LocalFile { download, target }),
            starter: Starter::Program(waiter),
        });
        ended
    }

    /// Asks for the removal of a name. Returns the receiver of the answer.
    fn ask(&mut self) -> oneshot::Receiver<Result<AnswerKind, Unanswered>> {
        let (reply, answer) = oneshot::channel();
        let ask = removal();
        self.command(Command::Ask { ask, reply });
        answer
    }

    fn generation(&self) -> u64 {
        self.driver.connections[&P].generation
    }

    fn is_open(&self) -> bool {
        self.driver.connections[&P].is_open()
    }

    /// Returns the number of connection attempts so far.
    async fn attempts(&self) -> usize {
        tokio::task::yield_now().await;
        self.attempts.0.load(Ordering::Relaxed)
    }
}

fn waiter() -> (Waiter, Ended) {
    let (reply, ended) = oneshot::channel();
    let waiter = Waiter {
        reply,
        events: None,
        progress: Default::default(),
        is_object: false,
    };
    (waiter, ended)
}

fn removal() -> AskKind {
    AskKind::Remove {
        name: Name::new(["a"]).unwrap(),
        only_if: None,
        kind: None,
    }
}

fn header(transfer: TransferId) -> DataHeader {
    DataHeader {
        transfer,
        chunk: ChunkId(0),
        value: ChainingValue([1; 32]),
        len: 4096,
        raw_len: 0,
        last: false,
    }
}

fn no_file() -> FileError {
    FileError::new("read", "a file", io::ErrorKind::NotFound.into())
}

fn refused() -> Error {
    Error::Refused {
        host: "peer".into(),
        why: "it does not know the session".into(),
    }
}

fn unanswered() -> Error {
    Error::Connect {
        address: plan(0).remote,
        source: io::ErrorKind::TimedOut.into(),
    }
}

fn failed(path: PathId, error: Error) -> Input {
    let made = Box::new(Err(error));
    Input::Connected { path, made }
}

fn stream(generation: u64, end: StreamEnd) -> Input {
    delivered(
        P,
        generation,
        vec![StreamEvent::Heard, StreamEvent::Ended(end)],
    )
}

fn delivered(path: PathId, generation: u64, events: Vec<StreamEvent>) -> Input {
    let place = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
    Input::Stream {
        path,
        generation,
        events,
        place,
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_of_an_unknown_path_is_closed_and_no_longer_awaited() {
    let mut applied = Applied::new();
    let (mut established, _peer) = pair().await;
    established.arriving = Some(applied.driver.signals.await_connection());
    applied.apply(Input::Connected {
        path: P,
        made: Box::new(Ok(established)),
    });
    assert!(applied.driver.connections.is_empty());
    assert!(!applied.driver.signals.is_awaiting());
}

#[tokio::test(start_paused = true)]
async fn a_connection_with_a_plan_adds_its_path_and_the_next_replaces_it() {
    let mut applied = Applied::new();
    let (mut established, _peer) = pair().await;
    established.arriving = Some(applied.driver.signals.await_connection());
    applied.apply(Input::Arrived {
        path: P,
        plan: Box::new(plan(0)),
        established: Box::new(established),
    });
    assert!(applied.is_open() && applied.generation() == 1);
    assert!(!applied.driver.signals.is_awaiting());
    assert!(applied.driver.signals.is_connected());
    applied.connect().await;
    assert!(applied.is_open() && applied.generation() == 2);
}

#[tokio::test(start_paused = true)]
async fn a_connection_of_a_retired_path_is_not_used() {
    let mut applied = Applied::connected().await;
    applied.retire(P);
    assert!(!applied.is_open());
    applied.connect().await;
    assert!(!applied.is_open() && !applied.driver.session.is_connected());
    // Twice, and one that is not there.
    applied.retire(P);
    applied.retire(PathId(9));
    applied.add(plan(0));
    applied.connect().await;
    assert!(applied.is_open(), "added again");
}

#[tokio::test(start_paused = true)]
async fn the_end_of_an_earlier_connection_leaves_the_current_one_alone() {
    let mut applied = Applied::connected().await;
    applied.connect().await;
    for generation in [0, 1, 3] {
        applied.apply(stream(generation, StreamEnd::Closed));
        assert!(applied.is_open(), "{generation}");
    }
    applied.apply(delivered(PathId(9), 2, vec![StreamEvent::Heard]));
    applied.apply(stream(2, StreamEnd::Closed));
    assert!(!applied.is_open() && !applied.driver.session.is_connected());
    assert_eq!(applied.driver.breaches, 0);
}

#[tokio::test(start_paused = true)]
async fn violations_end_the_path_and_the_fifth_ends_the_session() {
    let mut applied = Applied::connected().await;
    let mut ended = applied.get();
    let mut answer = applied.ask();
    for breach in 1..=MOST_BREACHES {
        assert!(applied.driver.closing.is_none());
        let end = StreamEnd::Frame(FrameError::UnknownType(99));
        applied.apply(stream(applied.generation(), end));
        assert!(!applied.is_open());
        assert_eq!(applied.driver.breaches, breach);
        applied.connect().await;
    }
    assert!(applied.driver.closing.is_some());
    assert!(matches!(ended.try_recv(), Ok(Err(Error::Protocol { .. }))));
    // Other waiters do not try again, either.
    let answer = answer.try_recv().unwrap().unwrap_err().error;
    assert!(matches!(answer, Error::Protocol { .. }) && !answer.is_retryable());
}

#[tokio::test(start_paused = true)]
async fn a_chunk_of_an_unknown_transfer_ends_no_session() {
    let mut applied = Applied::connected().await;
    let buffer = applied.driver.config.buffers.take();
    let chunk = StreamEvent::Chunk {
        header: header(GONE),
        buffer,
    };
    let generation = applied.generation();
    applied.apply(delivered(P, generation, vec![chunk]));
    assert!(applied.driver.closing.is_none());
    applied.connect().await;
    let generation = applied.generation();
    let events = vec![
        StreamEvent::Flushed(0),
        StreamEvent::Frame(Frame::Heartbeat {
            sent_us: 1,
            echo_us: 0,
        }),
    ];
    applied.apply(delivered(P, generation, events));
    assert!(applied.is_open());
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_failed_is_repeated_unless_its_path_was_named() {
    let mut applied = Applied::new();
    applied.apply(failed(PathId(9), unanswered()));
    applied.add(plan(0));
    assert_eq!(applied.attempts().await, 1);
    applied.apply(failed(P, unanswered()));
    assert!(!applied.driver.connections[&P].connecting && applied.driver.closing.is_none());
    applied.add(PathPlan {
        origin: Origin::Named,
        ..plan(1)
    });
    applied.apply(failed(PathId(1), unanswered()));
    assert!(applied.driver.closing.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_forgot_the_session_ends_it() {
    let mut applied = Applied::connected().await;
    let mut ended = applied.get();
    applied.apply(failed(P, refused()));
    assert!(applied.driver.closing.is_some());
    assert!(matches!(ended.try_recv(), Ok(Err(Error::Ended { .. }))));
}

#[tokio::test(start_paused = true)]
async fn a_carrier_matters_to_the_paths_of_its_interface() {
    let mut applied = Applied::connected().await;
    let carrier = |interface: &str, up| Input::Carrier {
        interface: interface.into(),
        up,
    };
    let before = applied.attempts().await;
    applied.apply(carrier("eth1", false));
    applied.apply(carrier("eth0", true));
    assert!(applied.is_open() && applied.attempts().await == before);
    applied.apply(carrier("eth0", false));
    assert!(!applied.is_open());
    applied.apply(carrier("eth0", true));
    applied.apply(carrier("eth0", true));
    assert_eq!(
        applied.attempts().await,
        before + 1,
        "one attempt at a time"
    );
}

#[tokio::test(start_paused = true)]
async fn results_of_ended_transfers_change_nothing() {
    let mut applied = Applied::connected().await;
    let mut ended = applied.get();
    let (transfer, path, chunk, digest) = (GONE, P, ChunkId(0), Digest([1; 32]));
    let header = header(GONE);
    let (driver, buffers) = (&mut applied.driver, BufferPool::default());
    (driver.hashing, driver.zeroing, driver.comparing) = (2, 2, 2);
    let value = ChainingValue([1; 32]);
    let subtree = nicstripe_proto::Subtree::of_chunk(chunk, value);
    let read = |result| IoResult::Read {
        path,
        transfer,
        chunk,
        result,
    };
    let hashed = |result| IoResult::Hashed {
        transfer,
        chunk,
        result,
    };
    let zeros = |result| IoResult::ZerosHashed { transfer, result };
    let compared = |result| IoResult::Compared {
        transfer,
        chunk,
        result,
    };
    let written = |result| IoResult::Written {
        path,
        header,
        result,
    };
    let arrived = Arrived {
        path,
        header,
        buffer: buffers.take(),
    };
    let results = [
        read(Ok((value, buffers.take()))),
        read(Err(no_file())),
        hashed(Ok(value)),
        hashed(Err(no_file())),
        zeros(Ok(subtree)),
        zeros(Err(no_file())),
        compared(Ok(Some(value))),
        compared(Err(no_file())),
        written(Ok(())),
        written(Err(WriteError::File(no_file()))),
        IoResult::Verified {
            arrived,
            result: Ok(()),
        },
        IoResult::Flushed {
            transfer,
            error: Box::new(unanswered()),
        },
    ];
    let steps = [true, false].into_iter().flat_map(|is_ok| {
        let committed = Step::Committed(digest);
        let steps = [
            Step::HolesMade,
            Step::Drained,
            Step::Synced,
            Step::Checked,
            committed,
        ];
        steps.map(|step| IoResult::Step {
            transfer,
            step,
            result: if is_ok { Ok(()) } else { Err(no_file()) },
        })
    });
    for result in results.into_iter().chain(steps) {
        let shown = format!("{result:?}");
        applied.apply(Input::Io(result));
        assert!(
            applied.is_open() && applied.driver.closing.is_none(),
            "{shown}"
        );
        assert!(!applied.driver.running.contains(GONE), "{shown}");
    }
    let driver = &applied.driver;
    assert_eq!(
        (driver.hashing, driver.zeroing, driver.comparing),
        (0, 0, 0)
    );
    assert!(ended.try_recv().is_err(), "the other transfer goes on");
}

#[tokio::test(start_paused = true)]
async fn a_chunk_that_is_damaged_ends_its_path_and_counts_as_a_violation() {
    let mut applied = Applied::connected().await;
    let result = Err(WriteError::Damaged);
    applied.apply(Input::Io(IoResult::Written {
        path: P,
        header: header(GONE),
        result,
    }));
    assert!(!applied.is_open() && applied.driver.closing.is_none());
    assert_eq!(applied.driver.breaches, 1);
}

#[tokio::test(start_paused = true)]
async fn what_threads_and_jobs_of_ended_transfers_say_changes_nothing() {
    let mut applied = Applied::connected().await;
    let file = tempfile::NamedTempFile::new().unwrap();
    let source = file::Source::open(file.path(), ReadOptions::default()).unwrap();
    let ask = Ask {
        id: 7,
        ask: removal(),
    };
    let said = [
        Said::Produced(Produced::End),
        Said::Produced(Produced::Failed(no_file())),
        Said::Consumed,
        Said::Finished(Err(no_file())),
        Said::Opened(Ok((Box::new(FileSource::new(source, None)), Vec::new()))),
        Said::Opened(Err(no_file())),
    ];
    let said = said.map(|said| Input::Said {
        transfer: GONE,
        said,
    });
    let done = [false, true].map(|ends_changes| Input::Done {
        ask: ask.clone(),
        answer: AnswerKind::Done,
        ends_changes,
    });
    for input in said.into_iter().chain(done) {
        let shown = format!("{input:?}");
        applied.apply(input);
        assert!(
            applied.is_open() && applied.driver.closing.is_none(),
            "{shown}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_transfer_ends_once_and_an_unknown_one_is_none() {
    let mut applied = Applied::connected().await;
    let mut ended = applied.get();
    applied.command(Command::Cancel(GONE));
    assert!(ended.try_recv().is_err());
    applied.command(Command::Cancel(T));
    assert!(matches!(
        ended.try_recv(),
        Ok(Err(Error::Cancelled { resumable: true }))
    ));
    applied.command(Command::Cancel(T));
    let offered = IoResult::Step {
        transfer: T,
        step: Step::Drained,
        result: Ok(()),
    };
    applied.apply(Input::Io(offered));
    assert!(applied.is_open());
}

#[tokio::test(start_paused = true)]
async fn a_put_whose_source_cannot_be_opened_by_its_tree_ends() {
    let mut applied = Applied::new();
    let (waiter, mut ended) = waiter();
    let entry = nicstripe_proto::message::EntryRef {
        tree: GONE,
        id: EntryId(1),
    };
    let options = PutOptions::default();
    applied.command(Command::Start {
        transfer: T,
        kind: Box::new(EntrySource { entry, options }),
        starter: Starter::Program(waiter),
    });
    assert!(matches!(ended.try_recv(), Ok(Err(Error::File(_)))));
    assert!(!applied.driver.running.contains(T));
}

#[tokio::test(start_paused = true)]
async fn a_session_that_gives_up_tells_all_who_wait() {
    let mut applied = Applied::connected().await;
    let mut ended = applied.get();
    let sent = applied.ask();
    applied.apply(stream(applied.generation(), StreamEnd::Closed));
    // No path is left: it may be asked again.
    let unsent = applied.ask();
    let mut asked = [(sent, true), (unsent, false)];
    for (answer, _) in &mut asked {
        assert!(answer.try_recv().is_err());
    }
    applied.apply(Input::Fault);
    assert!(matches!(ended.try_recv(), Ok(Err(Error::System { .. }))));
    for (answer, was_sent) in &mut asked {
        let Unanswered { error, is_sent } = answer.try_recv().unwrap().unwrap_err();
        assert!(matches!(error, Error::Ended { .. }) && is_sent == *was_sent);
    }
    assert_eq!(applied.driver.closing, Some(CloseCode::Cancelled));
}

#[tokio::test(start_paused = true)]
async fn a_session_closes_with_the_code_it_is_given() {
    let mut applied = Applied::connected().await;
    applied.command(Command::EndIfIdle);
    assert!(applied.driver.closing.is_none(), "it is connected");
    applied.apply(Input::Expected(Vec::new()));
    applied.command(Command::SendInterfaces(Vec::new()));
    applied.command(Command::Close(CloseCode::Done));
    assert_eq!(applied.driver.closing, Some(CloseCode::Done));
}
