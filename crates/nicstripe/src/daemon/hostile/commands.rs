//! Tests of trusted daemons that violate the rules of commands: the client's call fails in time and
//! returns no exit status, whatever they send without end.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use nicstripe_proto::{
    ChunkId, Digest, FailCode, Frame, Grid, Message, Offer, SourceIdentity, TransferId,
    grid::ChunkSize,
    hash_tree::piece_value,
    message::{Accept, Complete, End, ExitStatus, Fail, Feature, OfferKind, Welcome},
};
use tokio::io::{AsyncReadExt as _, duplex, empty, sink};

use super::{
    is_one_of,
    peer::{Peer, chunk, offer, plain_welcome},
    servers::answering,
};
use crate::{
    client::Client,
    report::{error::Error, event::Awaited},
    wire::stream::StreamEnd,
};

/// Streams of a command, by their distance from the first.
const INPUT: u32 = 0;
const OUTPUT: u32 = 1;
const ERRORS: u32 = 2;
const STATUS: u32 = 3;

/// Step of a daemon's script, after the client's request for a command.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// Accepts a stream.
    Accept(u32),
    /// Offers a stream, and waits until the client accepts it.
    Offer(u32),
    /// Offers a stream as batches, or as a file of 10 bytes, and waits for nothing.
    Misoffer(u32, OfferKind),
    /// Sends the next batch of a stream.
    Batch(u32, &'static [u8]),
    /// Ends a stream after as many batches as were sent, and these.
    Complete(u32, u64),
    /// Fails a stream.
    Fail(u32),
    /// Sends batches of this length within the client's credit, until it ends the connection.
    Flood(u32, usize),
    /// Sends batches of this length without credit, until the client ends the connection.
    Burst(u32, usize),
    /// Answers heartbeats until the client ends the connection.
    Wait,
}

/// Connection of a daemon that plays a script.
struct Player<'a> {
    peer: &'a mut Peer,
    /// Number of the command's first stream.
    first: u32,
    /// Number of batches sent of each stream.
    sent: [u64; 5],
}

impl Player<'_> {
    async fn play(&mut self, step: Step) -> Result<(), StreamEnd> {
        match step {
            Step::Accept(stream) => {
                let accept = Accept {
                    transfer: self.transfer(stream),
                    have: Vec::new(),
                    window: Some(64),
                    delta: None,
                    memory: None,
                };
                self.peer.say(&Message::Accept(accept)).await
            }
            Step::Offer(stream) => {
                self.offer(stream, OfferKind::Batches).await?;
                while !matches!(self.peer.message().await?, Message::Accept(_)) {}
                Ok(())
            }
            Step::Misoffer(stream, kind) => self.offer(stream, kind).await,
            Step::Batch(stream, bytes) => self.batch(stream, bytes).await,
            Step::Complete(stream, more) => {
                let chunks = self.sent[stream as usize] + more;
                let complete = Complete {
                    transfer: self.transfer(stream),
                    digest: Digest::NONE,
                    streams: Vec::new(),
                    end: Some(End { chunks, size: 0 }),
                    changing: false,
                };
                self.peer.say(&Message::Complete(complete)).await
            }
            Step::Fail(stream) => {
                let fail = Fail {
                    transfer: self.transfer(stream),
                    code: FailCode::Io,
                    text: "no".into(),
                    resumable: false,
                };
                self.peer.say(&Message::Fail(fail)).await
            }
            Step::Flood(stream, len) => self.flood(stream, len).await,
            Step::Burst(stream, len) => {
                let bytes = vec![7; len];
                loop {
                    self.batch(stream, &bytes).await?;
                    // The client's call is polled by the same task.
                    tokio::task::yield_now().await;
                }
            }
            Step::Wait => Err(self.peer.end().await),
        }
    }

    fn transfer(&self, stream: u32) -> TransferId {
        TransferId(self.first + stream)
    }

    async fn offer(&mut self, stream: u32, kind: OfferKind) -> Result<(), StreamEnd> {
        let transfer = self.transfer(stream);
        let offer = match kind {
            OfferKind::Batches => Offer {
                source: SourceIdentity::default(),
                kind: Some(kind),
                ..offer(transfer, 0)
            },
            _ => offer(transfer, 10),
        };
        self.peer.say(&Message::Offer(offer)).await
    }

    async fn batch(&mut self, stream: u32, bytes: &[u8]) -> Result<(), StreamEnd> {
        let index = self.sent[stream as usize];
        let grid = Grid::open(ChunkSize::DEFAULT);
        let value = piece_value(grid, ChunkId(index), bytes, false).unwrap();
        let framed = chunk(self.transfer(stream), index, bytes, value);
        self.peer.send_bytes(&framed).await?;
        self.sent[stream as usize] += 1;
        Ok(())
    }

    async fn flood(&mut self, stream: u32, len: usize) -> Result<(), StreamEnd> {
        let bytes = vec![7; len];
        loop {
            while self.sent.iter().sum::<u64>() < self.peer.credit {
                self.batch(stream, &bytes).await?;
            }
            let frame = self.peer.next().await?;
            self.peer.react(&frame).await?;
        }
    }
}

/// Plays a script on the client's connection until its end or an error.
async fn play(peer: &mut Peer, script: &[Step]) {
    let first = loop {
        match peer.message().await {
            Ok(Message::Exec(exec)) => break exec.first.0,
            Ok(_) => {}
            Err(_) => return,
        }
    };
    let mut player = Player {
        peer,
        first,
        sent: [0; 5],
    };
    for step in script {
        if player.play(*step).await.is_err() {
            return;
        }
    }
}

/// Runs a command at a daemon that plays this script on its first connection, and ends each further
/// one. Returns the result with the output.
async fn run(script: Vec<Step>) -> Result<(ExitStatus, Vec<u8>), Error> {
    let has_begun = AtomicBool::new(false);
    let evil = async move |peer: &mut Peer| {
        if !has_begun.swap(true, Ordering::Relaxed) {
            play(peer, &script).await;
        }
    };
    let welcome = Welcome {
        features: Some([Feature::Exec].into_iter().collect()),
        ..plain_welcome()
    };
    let answer = Frame::Welcome(minicbor::to_vec(welcome).unwrap());
    answering(answer, evil, async |client: Client| {
        let (stdout, mut output) = duplex(1 << 20);
        let status = client.exec(["id"], empty(), stdout, sink()).await?;
        let mut bytes = Vec::new();
        output.read_to_end(&mut bytes).await.unwrap();
        Ok((status, bytes))
    })
    .await
}

/// Returns the script of a command without output, whose status has these batches.
fn status(batches: &[&'static [u8]]) -> Vec<Step> {
    let ends = |stream| [Step::Offer(stream), Step::Complete(stream, 0)];
    let mut script = vec![Step::Accept(INPUT)];
    script.extend(ends(OUTPUT).into_iter().chain(ends(ERRORS)));
    script.push(Step::Offer(STATUS));
    script.extend(batches.iter().map(|&bytes| Step::Batch(STATUS, bytes)));
    script.extend([Step::Complete(STATUS, 0), Step::Wait]);
    script
}

type Row = (&'static str, Vec<Step>, &'static [&'static str]);

/// Kinds of errors of a client whose daemon breaks the protocol once, and then hangs up.
const BREACH: &[&str] = &["Protocol", "Abandoned", "Ended"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_status_that_is_none_is_an_error() {
    let rows: [Row; 8] = [
        ("no batch", status(&[]), &["Peer"]),
        ("one byte", status(&[&[0]]), &["Peer"]),
        ("three bytes", status(&[&[0, 0, 0]]), &["Peer"]),
        ("another kind", status(&[&[2, 0]]), &["Peer"]),
        ("text", status(&[b"0\n"]), &["Peer"]),
        ("two", status(&[&[0, 0], &[0, 0]]), &["Peer"]),
        ("as long as is read", status(&[&[0; 16]]), &["Peer"]),
        ("longer", status(&[&[0; 17]]), &["Peer", "File"]),
    ];
    all_fail(rows).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_that_break_the_rules_or_have_no_end_are_an_error() {
    use Step::{Accept, Batch, Burst, Complete, Fail, Flood, Misoffer, Offer, Wait};
    let begun = |more: &[Step]| {
        let first = vec![Accept(INPUT), Offer(OUTPUT), Offer(STATUS)];
        [first, more.to_vec()].concat()
    };
    let sent = |more: &[Step]| [begun(&[Batch(STATUS, &[0, 0])]), more.to_vec()].concat();
    let done = |more: &[Step]| [sent(&[Complete(STATUS, 0)]), more.to_vec()].concat();
    let unended: &[&str] = &["Abandoned", "Ended"];
    let bursting: &[&str] = &["File", "Protocol", "Abandoned", "Ended"];
    let (as_file, as_batches) = (OfferKind::File, OfferKind::Batches);
    let again = [Complete(STATUS, 0), Batch(STATUS, &[0, 0])];
    let no_errors = [Complete(OUTPUT, 0), Fail(ERRORS), Wait];
    let no_status = [Complete(OUTPUT, 0), Fail(STATUS), Wait];
    let rows: [Row; 16] = [
        ("endless bytes", begun(&[Flood(STATUS, 1)]), &["File"]),
        (
            "endless chunks",
            begun(&[Flood(STATUS, 1 << 18)]),
            &["File"],
        ),
        ("no credit", begun(&[Burst(STATUS, 1)]), bursting),
        ("no room", begun(&[Burst(OUTPUT, 1 << 18)]), BREACH),
        ("a batch after the end", sent(&again), BREACH),
        ("an end too late", sent(&[Complete(STATUS, 5)]), unended),
        (
            "a status file",
            vec![Misoffer(STATUS, as_file), Wait],
            &["File"],
        ),
        (
            "an output file",
            vec![Misoffer(OUTPUT, as_file), Wait],
            &["File"],
        ),
        ("an input", vec![Misoffer(INPUT, as_batches), Wait], BREACH),
        ("a fifth", begun(&[Misoffer(4, as_batches), Wait]), BREACH),
        (
            "a second",
            begun(&[Misoffer(STATUS, as_batches), Wait]),
            BREACH,
        ),
        ("an accepted output", vec![Accept(OUTPUT), Wait], BREACH),
        ("no output", done(&[]), unended),
        ("a failed output", done(&[Fail(OUTPUT), Wait]), &["Peer"]),
        ("failed errors", done(&no_errors), &["Peer"]),
        ("a failed status", begun(&no_status), &["Peer"]),
    ];
    all_fail(rows).await;
}

/// Asserts the kind of the client's error with each of these daemons.
async fn all_fail(rows: impl IntoIterator<Item = Row>) {
    for (what, script, kinds) in rows {
        println!("{what}");
        is_one_of(&run(script).await.unwrap_err(), kinds);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_that_answers_heartbeats_and_no_command_is_an_error_in_time() {
    let silent = async |script| match run(script).await {
        Err(Error::Stalled {
            awaited, waited, ..
        }) => {
            assert_eq!(awaited, Awaited::Answer);
            assert_eq!(waited, Duration::from_secs(20));
        }
        other => panic!("{other:?}"),
    };
    let (output, errors) = (Step::Offer(OUTPUT), Step::Offer(ERRORS));
    tokio::join!(
        silent(vec![Step::Wait]),
        silent(vec![Step::Accept(INPUT), Step::Wait]),
        silent(vec![Step::Accept(INPUT), output, errors, Step::Wait]),
    );
}

/// Control test: an honest daemon succeeds, so the other tests fail for the intended reason.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_whose_status_comes_before_the_output_is_believed() {
    let script = vec![
        Step::Accept(INPUT),
        Step::Offer(STATUS),
        Step::Batch(STATUS, &[0, 7]),
        Step::Complete(STATUS, 0),
        Step::Offer(ERRORS),
        Step::Complete(ERRORS, 0),
        Step::Offer(OUTPUT),
        Step::Batch(OUTPUT, b"out"),
        Step::Batch(OUTPUT, b"put"),
        Step::Complete(OUTPUT, 0),
        Step::Wait,
    ];
    assert_eq!(
        run(script).await.unwrap(),
        (ExitStatus::Exited(7), b"output".to_vec())
    );
}
