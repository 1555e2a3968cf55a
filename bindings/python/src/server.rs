//! A daemon in this process, for tests of programs.

use std::net::IpAddr;

use nicstripe::{
    CancellationToken, Daemon, DaemonBuilder, Error,
    storage::MemoryStorage,
    trust::{Home, Identity, Peers, PublicLine},
};
use pyo3::{exceptions::PyRuntimeError, prelude::*};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::{error::invalid_home, name::LocalPath, own::Own, wait::wait};

/// Daemon in this process, on loopback only. Ends with the block of its context manager.
#[pyclass(module = "nicstripe", frozen)]
pub(crate) struct Server {
    running: Own<Running>,
    /// TCP port at which it listens.
    #[pyo3(get)]
    port: u16,
    /// Directory with the key and the trusted peers of a client: `Client(server.host, port=server.port,
    /// home=server.home)`.
    #[pyo3(get)]
    home: std::path::PathBuf,
}

struct Running {
    runtime: Runtime,
    shutdown: CancellationToken,
    ended: tokio::task::JoinHandle<Result<(), Error>>,
    _home: TempDir,
}

/// Starts a daemon in this process that serves a directory, or memory without one, to clients with
/// `Server.home`. It listens on loopback only: for tests of programs that use nicstripe.
#[pyfunction]
#[pyo3(signature = (root=None, *, port=0, read_only=false, append_only=false))]
pub(crate) fn serve(
    py: Python<'_>,
    root: Option<LocalPath>,
    port: u16,
    read_only: bool,
    append_only: bool,
) -> PyResult<Server> {
    let home = tempfile::tempdir()?;
    let client_home = Home::at(home.path());
    let client = Identity::load_or_create(client_home.identity_file())
        .map_err(|error| invalid_home(py, error))?;
    let daemon = Identity::generate().map_err(|error| invalid_home(py, error))?;
    let trusted = |identity: &Identity, name: &str| PublicLine::new(identity.public_key(), name);
    let added = Peers::edit(client_home.peers_file(), |peers| {
        peers.add(&trusted(&daemon, "server"), Some("server"))
    });
    added.map_err(|error| invalid_home(py, error))?;
    let mut peers = Peers::default();
    peers
        .add(&trusted(&client, "client"), Some("client"))
        .map_err(|error| invalid_home(py, error))?;
    let builder = Daemon::builder()
        .identity(daemon)
        .peers(peers)
        .port(port)
        .interfaces(vec!["lo".into()])
        .read_only(read_only)
        .append_only(append_only);
    let builder = match root {
        Some(LocalPath(root)) => builder.root(root),
        None => builder.storage(MemoryStorage::new()),
    };
    let home_path = home.path().to_owned();
    let (port, running) = wait(py, move || run(builder, home))?;
    Ok(Server {
        running: Own::new(running),
        port,
        home: home_path,
    })
}

fn run(builder: DaemonBuilder, home: TempDir) -> Result<(u16, Running), Error> {
    let system = |source| Error::System {
        what: "start threads",
        source,
    };
    let runtime = Runtime::new().map_err(system)?;
    let daemon = runtime.block_on(builder.bind())?;
    let port = daemon
        .addresses()
        .first()
        .map_or(0, |bound| bound.address.port());
    let shutdown = CancellationToken::new();
    let ended = runtime.spawn(daemon.run(shutdown.clone()));
    Ok((
        port,
        Running {
            runtime,
            shutdown,
            ended,
            _home: home,
        },
    ))
}

#[pymethods]
impl Server {
    /// Address at which it listens.
    #[getter]
    fn host(&self) -> String {
        LOOPBACK.to_string()
    }

    /// Ends the daemon and its threads. Its clients find that it is gone.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Some(running) = self.running.take_to_close(py)? else {
            return Ok(());
        };
        let ended = py.detach(|| {
            running.shutdown.cancel();
            running.runtime.block_on(running.ended)
        });
        match ended {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(crate::error::raised(py, &error)),
            Err(error) => Err(PyRuntimeError::new_err(error.to_string())),
        }
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    #[pyo3(signature = (*_raised))]
    fn __exit__(&self, py: Python<'_>, _raised: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        format!("<nicstripe.Server at {LOOPBACK}:{}>", self.port)
    }
}

const LOOPBACK: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
