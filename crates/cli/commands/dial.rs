//! `nicstripe dial`: one connection to a service of the peer, on standard input and output.

use std::{io, path::Path};

use clap::Args;
use nicstripe::{Client, Tunnel, trust::DialTarget};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf, split};

use crate::{
    connect::{connect_arguments::ConnectArgs, place::Place, setup::Needs},
    failure::{Failure, Fault, exit::Exit},
    output::{logging, terminal::Terminal},
    process::{runtime, signals::Signals, streams},
};

/// Connect standard input and output to a service of a machine, over every cable
///
/// For ssh: ssh -o ProxyCommand='nicstripe dial PEER %h:%p' localhost. The daemon on PEER resolves
/// the service and connects to it; its peers file must grant this machine exactly dial=HOST:PORT.
/// Ends when both directions have ended.
#[derive(Debug, Args)]
#[command(mut_arg("timeout", |timeout| timeout.default_value("60s")))]
pub(crate) struct Dial {
    /// Machine that runs `nicstripe serve`, by name or address; or USER@HOST for ssh
    #[arg(value_name = "PEER")]
    peer: Place,

    /// Service as seen from PEER, such as localhost:22, or unix:/PATH for a socket file
    #[arg(value_name = "HOST:PORT")]
    target: DialTarget,

    #[command(flatten)]
    connect: ConnectArgs,
}

impl Dial {
    pub(crate) fn run(self, terminal: &Terminal) -> Result<(), Failure> {
        logging::start(terminal)?;
        streams::check_input()?;
        streams::check_output()?;
        let keeper = self.connect.keeper()?;
        // A read of standard input may block forever, and is not awaited.
        runtime::run_here(async {
            let mut signals = Signals::take()?;
            let talk = async {
                let needs = Needs {
                    dial: vec![self.target.clone()],
                    ..Needs::default()
                };
                let connected = self.connect.connect(&self.peer, &needs, keeper).await?;
                let result = self.talk(&connected.client).await;
                // Flushes the written data before the session ends.
                connected.close().await;
                result
            };
            match signals.unless_stopped(talk).await {
                // ssh ends its ProxyCommand by a signal when the session is over.
                Err(Failure::Interrupted { stop, .. }) => Err(Failure::Stopped(stop)),
                result => result,
            }
        })
    }

    async fn talk(&self, client: &Client) -> Result<(), Failure> {
        let (from_peer, to_peer) = split(client.dial(self.target.as_str()).await?);
        let (sent, received) = (self.send(to_peer), self.receive(from_peer));
        tokio::try_join!(sent, received).map(|_| ())
    }

    async fn send(&self, mut to_peer: WriteHalf<Tunnel>) -> Result<(), Failure> {
        let failed = Failure::opening(Path::new("-"));
        let broken = |source| self.broken(source);
        let mut input = streams::input(PIPE).map_err(failed)?;
        let mut bytes = vec![0; BLOCK];
        loop {
            let count = input.read(&mut bytes).await.map_err(failed)?;
            if count == 0 {
                return to_peer.shutdown().await.map_err(broken);
            }
            let written = to_peer.write_all(&bytes[..count]).await;
            written.map_err(broken)?;
        }
    }

    async fn receive(&self, mut from_peer: ReadHalf<Tunnel>) -> Result<(), Failure> {
        let mut output = streams::output(PIPE).map_err(Failure::Output)?;
        let mut bytes = vec![0; BLOCK];
        loop {
            let read = from_peer.read(&mut bytes).await;
            let count = read.map_err(|source| self.broken(source))?;
            if count == 0 {
                return streams::finish(output).await.map_err(Failure::Output);
            }
            let written = output.write_all(&bytes[..count]).await;
            written.map_err(Failure::Output)?;
            output.flush().await.map_err(Failure::Output)?;
        }
    }

    fn broken(&self, source: io::Error) -> Failure {
        let text = format!("connection to {} lost", self.target);
        Fault::new(Exit::Failed, text).because(source).into()
    }
}

/// Maximum bytes of one read from standard input or one write to standard output.
const BLOCK: usize = 64 << 10;

/// Buffer size of a pipe in bytes: four times Linux's default (pipe(7)), so that its reader and
/// writer wake each other less often.
const PIPE: usize = 256 << 10;
