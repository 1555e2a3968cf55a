//! Implementations of the client and session traits of `nicstripe-bench`.

use std::{path::Path, sync::atomic::AtomicBool};

use nicstripe_bench::{BenchCommand, BenchPlan, Direction, Failure, Moved, Session};
use nicstripe_link::facts::Facts;
use nicstripe_proto::{BitRate, Name};

use super::{Bench, packets::Packets};
use crate::{
    client::Client,
    file::stages,
    report::error::Error,
    session::{BenchInput, Command, SessionHandle},
    text::chain,
};

impl Client {
    /// Starts a benchmark that measures the rates of the links as `plan` specifies.
    ///
    /// The daemon runs one benchmark at a time, and none during copies; others wait in a queue.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let report = client.bench(nicstripe::BenchPlan::default()).finish().await?;
    /// println!("{}", report.summary.sentence);
    /// # Ok(())
    /// # }
    /// ```
    pub fn bench(&self, plan: BenchPlan) -> Bench {
        Bench::start(self.clone(), plan)
    }
}

/// Client over whose sessions a benchmark runs.
#[derive(Clone)]
pub(super) struct BenchClient(pub(super) Client);

impl nicstripe_bench::Client for BenchClient {
    type Error = Error;
    type Session = SessionHandle;
    type Packets = Packets;

    fn error(&self, failure: Failure) -> Error {
        let host = self.0.host().to_owned();
        match failure {
            Failure::Cancelled => Error::Cancelled { resumable: false },
            Failure::Refused(why) => Error::Refused { host, why },
            Failure::Ended(why) => Error::Ended {
                host,
                why: why.into(),
            },
            Failure::Link { link, why } => Error::Link {
                link,
                why: why.into(),
            },
            Failure::Task(error) => Error::failed("reconnect", error),
        }
    }

    fn text(error: &Error) -> String {
        chain(error)
    }

    fn is_refusal(error: &Error) -> bool {
        matches!(error, Error::Refused { .. } | Error::Full { .. })
    }

    async fn facts(&self) -> Option<Facts> {
        self.0.facts().await.ok()
    }

    async fn session(&self) -> Result<SessionHandle, Error> {
        self.0.links().await?;
        self.0.session_handle().await
    }

    async fn another(
        &self,
        streams: Option<u8>,
        socket_buffer: Option<u64>,
    ) -> Result<Self, Error> {
        Ok(Self(self.0.another(streams, socket_buffer).await?))
    }

    async fn close(self) {
        self.0.close().await;
    }

    async fn claim_packets(&self, interfaces: Vec<String>) -> Result<Packets, String> {
        Packets::claim(&self.0, interfaces).await
    }

    async fn try_copy(&self, way: Direction, file: &Path, name: &Name) -> Result<BitRate, Error> {
        let transfer = match way {
            Direction::ToClient => self.0.try_get(name.clone(), file),
            Direction::ToDaemon => self.0.try_put(file, Some(name.clone())),
        };
        transfer.finish().await.map(|report| report.goodput())
    }

    fn read_stage(file: &Path, bytes: u64, stop: &AtomicBool) -> Result<Moved, String> {
        stages::read_stage(file, bytes, stop).map_err(|error| chain(&error))
    }

    fn write_stage(file: &Path, bytes: u64, stop: &AtomicBool) -> Result<Moved, String> {
        stages::write_stage_here(file, bytes, stop).map_err(|error| chain(&error))
    }
}

impl Session for SessionHandle {
    async fn command(&self, command: BenchCommand) -> bool {
        self.command(Command::Bench(BenchInput::Command(command)))
            .await
    }
}
