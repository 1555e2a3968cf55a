//! Daemon in the test process, and the home of a client that it trusts.

use std::{
    io::{self, Write as _},
    net::TcpListener,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use library::{
    CancellationToken, Daemon,
    exec::{Executor, ExitStatus, PeerCommand, StartedCommand},
    trust::{Home, Identity, Peers, PublicLine},
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncWriteExt as _, duplex},
    runtime::Runtime,
    task::JoinHandle,
};

/// Daemon that serves an empty directory on loopback, until it is dropped.
pub(crate) struct Served {
    pub(crate) dir: TempDir,
    pub(crate) port: u16,
    runtime: Runtime,
    identity: Identity,
    peers: Peers,
    running: Option<JoinHandle<()>>,
}

impl Served {
    pub(crate) fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("root")).unwrap();
        let home = Home::at(dir.path().join("home"));
        let client = Identity::load_or_create(home.identity_file()).unwrap();
        let identity = Identity::generate().unwrap();
        let line = |identity: &Identity| PublicLine::new(identity.public_key(), "peer");
        Peers::edit(home.peers_file(), |peers| {
            peers.add(&line(&identity), Some("daemon"))
        })
        .unwrap();
        let mut peers = Peers::default();
        peers.add(&line(&client), Some("client")).unwrap();
        let options = "exec=*".parse().unwrap();
        peers.set_options(&client.public_key(), options).unwrap();
        let mut served = Self {
            dir,
            port: 0,
            runtime: Runtime::new().unwrap(),
            identity,
            peers,
            running: None,
        };
        served.begin();
        served
    }

    /// Starts the daemon, at its port if it had one.
    pub(crate) fn begin(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(10);
        // The tasks of a daemon that has crashed release its sockets soon.
        let listener = loop {
            match TcpListener::bind(("127.0.0.1", self.port)) {
                Ok(listener) => break listener,
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        self.port = listener.local_addr().unwrap().port();
        let builder = Daemon::builder()
            .identity(self.identity.clone())
            .peers(self.peers.clone())
            .root(self.root())
            .executor(Arc::new(Cat))
            .listeners(vec![listener]);
        let bound = self.runtime.block_on(builder.bind()).unwrap();
        let run = bound.run(CancellationToken::new());
        let running = self.runtime.spawn(async move { run.await.unwrap() });
        self.running = Some(running);
    }

    /// Ends the daemon as a crash does.
    pub(crate) fn crash(&mut self) {
        let running = self.running.take().unwrap();
        running.abort();
        let _ = self.runtime.block_on(running);
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }
}

/// Starts a server that answers each connection with garbage; returns its port.
pub(crate) fn garbage() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = stream.and_then(|mut stream| stream.write_all(&[0x16; 4096]));
        }
    });
    port
}

/// Executor whose only command repeats its input, and says so in its error output.
#[derive(Debug)]
struct Cat;

impl Executor for Cat {
    fn start(&self, _command: PeerCommand) -> io::Result<StartedCommand> {
        let (stdin, mut input) = duplex(64 << 10);
        let (mut output, stdout) = duplex(64 << 10);
        let (mut errors, stderr) = duplex(64 << 10);
        Ok(StartedCommand {
            stdin: Box::new(stdin),
            stdout: Box::new(stdout),
            stderr: Box::new(stderr),
            status: Box::pin(async move {
                tokio::io::copy(&mut input, &mut output).await?;
                errors.write_all(b"copied").await?;
                Ok(ExitStatus::Exited(7))
            }),
        })
    }
}
