//! `nicstripe serve`: the daemon.
//!
//! - [`arguments`]: the command line as typed
//! - [`config`], [`settings`]: the configuration file, and its merge with the command line
//! - [`listen`]: listen addresses
//! - [`service_manager`]: notifications to systemd
//! - [`restic`], [`s3`]: `serve restic` and `serve s3`, which serve a daemon's files to other programs
//!   instead, with [`http`] (the server), [`connection_places`] (their limits of connections), [`own_names`] and
//!   [`starter`] (the end of the parent process)
//! - [`endpoint`], [`exposition`]: the Prometheus endpoint and its text

mod arguments;
mod config;
mod connection_places;
mod endpoint;
mod exposition;
mod gateway;
mod http;
mod limits;
mod listen;
mod own_names;
mod restic;
mod root;
#[cfg(feature = "s3")]
mod s3;
mod service_manager;
mod settings;
mod starter;

use std::{
    io::{self, IsTerminal as _},
    path::Path,
    pin::pin,
    sync::Arc,
};

use nicstripe::{
    CancellationToken, Daemon, DaemonHandle,
    routes::RouteKeeper,
    trust::{Access, Home, Identity, PeerOptions, Peers, Sightings},
};
use tokio::net::TcpListener;

pub(crate) use self::arguments::Serve;
use self::{
    arguments::Instead,
    listen::{Listen, listening},
    service_manager::{ServiceManager, status_line},
    settings::Settings,
};
use super::{
    exec::executor::{Environment, Processes},
    status,
    trust::{name_of, rights},
};
use crate::text::shown;
use crate::{
    failure::{
        Failure, Fault,
        exit::{Exit, Stop},
        panics,
    },
    output::{
        logging::{self, LogControl},
        stdout,
        terminal::Terminal,
    },
    places,
    process::{
        presence::Presence,
        runtime,
        signals::{Signalled, Signals},
    },
};

impl Serve {
    pub(crate) fn run(mut self, terminal: &Terminal) -> Result<(), Failure> {
        match self.instead.take() {
            Some(Instead::Restic(restic)) => return restic.run(terminal),
            #[cfg(feature = "s3")]
            Some(Instead::S3(s3)) => return s3.run(terminal),
            None => {}
        }
        exposition::remember_start();
        let mut home = places::home()?;
        let settings = Settings::load(&self, &home)?;
        if let Some(file) = &settings.file {
            home = home.with_config_file(file);
        }
        if self.options.check_config {
            return check(&settings, &home);
        }
        let log = logging::start_daemon(&settings.log_filter, settings.log_format, terminal)?;
        // Requires a single thread: removes stale routes, and keeps the process that talks to the
        // network from changing any.
        let routes = Arc::new(RouteKeeper::start_dedicated(
            settings.routes.into(),
            places::routes_dir(&home),
        ));
        runtime::run(async {
            let mut signals = Signals::take()?;
            if !io::stderr().is_terminal() {
                signals.reload_on_hangup()?;
            }
            let started = start(&settings, routes, &home, terminal).await?;
            let service = Service {
                args: &self,
                home: &home,
                terminal,
                log,
                settings,
                daemon: started.daemon.handle(),
            };
            service.serve(started, signals).await
        })
    }
}

/// Checks the settings without listening on a port and without creating a file.
fn check(settings: &Settings, home: &Home) -> Result<(), Failure> {
    settings.log_filter.parse()?;
    root::find(&settings.root, home)?;
    settings
        .listen
        .iter()
        .try_for_each(|listen| listen.resolve().map(drop))?;
    Peers::load(home.peers_file())?;
    stdout::line(format_args!("{}: no errors", settings.shown_file()))
}

/// Daemon that listens, with the socket of its Prometheus endpoint.
struct Started {
    daemon: Daemon,
    metrics: Option<TcpListener>,
    /// Served directory, for display.
    root: String,
    /// Fingerprint of the daemon's key.
    key: String,
}

async fn start(
    settings: &Settings,
    routes: Arc<RouteKeeper>,
    home: &Home,
    terminal: &Terminal,
) -> Result<Started, Failure> {
    let identity = Identity::load_or_create(home.identity_file())?;
    let key = identity.public_key();
    // Reports errors in the list at the start; the daemon reloads the list itself when it changes.
    let peers = Peers::load(home.peers_file())?;
    let root = root::find(&settings.root, home)?;
    let listen = settings
        .listen
        .iter()
        .map(Listen::resolve)
        .collect::<Result<Vec<_>, _>>()?;
    let daemon = Daemon::builder()
        .identity(identity)
        .peers_file(home.peers_file())
        .protect_home(home.clone())
        .account_homes(places::account_homes())
        .sightings(Sightings::at(home.sightings_file()))
        .root(root.clone())
        .port(settings.port)
        .listen(listen)
        .interfaces(settings.interface.clone())
        .read_only(settings.access == Access::ReadOnly)
        .append_only(settings.access == Access::AppendOnly)
        .route_keeper(routes)
        .announce(settings.announce)
        .limits(settings.limits.clone())
        .bench(settings.bench.clone())
        .executor(Arc::new(Processes::new(Environment::Fixed)))
        .fetches()
        .bind()
        .await?;
    let metrics = match settings.metrics {
        Some(address) => Some(TcpListener::bind(address).await.map_err(|error| {
            let text = format!("cannot listen on {address} for metrics");
            Fault::new(Exit::Failed, text).because(error)
        })?),
        None => None,
    };
    let shown = shown(&root);
    let unwritable = root::write_error(&root).filter(|_| settings.access != Access::ReadOnly);
    introduce_peers(&peers, settings, unwritable.is_some(), terminal);
    if let Some(error) = unwritable {
        terminal.warning(&format!(
            "{shown} is not writable, peers can only read: {error}"
        ));
    }
    let note = if settings.root == Path::new(".") {
        ", the current directory,"
    } else {
        ""
    };
    settings.say(
        terminal,
        format_args!("serving {shown}{note} as {}", key.fingerprint()),
    );
    if let Some(address) = metrics
        .as_ref()
        .and_then(|listener| listener.local_addr().ok())
    {
        settings.say(
            terminal,
            format_args!("metrics at http://{address}/metrics"),
        );
    }
    listening(daemon.addresses())
        .into_iter()
        .for_each(|line| settings.say(terminal, line));
    Ok(Started {
        daemon,
        metrics,
        root: shown,
        key: key.fingerprint(),
    })
}

/// Settings, log filter and handle of a running daemon, which the signal handlers use.
struct Service<'a> {
    args: &'a Serve,
    home: &'a Home,
    terminal: &'a Terminal,
    log: LogControl,
    settings: Settings,
    daemon: DaemonHandle,
}

impl Service<'_> {
    async fn serve(mut self, started: Started, mut signals: Signals) -> Result<(), Failure> {
        let mut manager = ServiceManager::find();
        let (daemon, root, key) = (self.daemon.clone(), started.root, started.key);
        let _presence = Presence::announce(self.home, move || {
            status::of_daemon(&root, &key, &daemon.sessions())
        });
        let endpoint = started
            .metrics
            .map(|listener| tokio::spawn(endpoint::serve(listener, self.daemon.clone())));
        let shutdown = CancellationToken::new();
        let mut running = pin!(started.daemon.run(shutdown.clone()));
        manager.ready(&self.daemon.metrics());
        panics::survive_panics();
        let stop = loop {
            tokio::select! {
                ended = &mut running => return Ok(ended?),
                signal = signals.next() => if let Some(stop) = self.obey(signal, &mut manager) { break stop },
                () = manager.pause() => manager.report(&self.daemon.metrics()).await,
            }
        };
        manager.stopping(self.daemon.limits().shutdown_time);
        self.settings
            .say(self.terminal, "shutting down; received data is kept");
        shutdown.cancel();
        let ended = loop {
            tokio::select! {
                ended = &mut running => break ended,
                stop = signals.stop() => stop.at_once(),
                () = manager.pause() => manager.report(&self.daemon.metrics()).await,
            }
        };
        if let Some(endpoint) = endpoint {
            endpoint.abort();
        }
        ended?;
        Err(Failure::Stopped(stop))
    }

    /// Handles a signal. Returns it if the daemon must end.
    fn obey(&mut self, signal: Signalled, manager: &mut ServiceManager) -> Option<Stop> {
        match signal {
            Signalled::Stop(stop) => return Some(stop),
            Signalled::Status => self.terminal.say(status_line(&self.daemon.metrics())),
            Signalled::Reload => {
                manager.reloading();
                self.daemon.reload_peers();
                match self.reload() {
                    Ok(()) => {
                        tracing::info!(file = self.settings.shown_file(), "configuration reloaded");
                    }
                    Err(failure) => {
                        tracing::error!(error = %failure.one_line(), "configuration not reloaded, nothing changed");
                    }
                }
                manager.ready(&self.daemon.metrics());
            }
        }
        None
    }

    /// Reads the configuration file again, and applies the settings that can change at run time.
    fn reload(&mut self) -> Result<(), Failure> {
        let new = Settings::load(self.args, self.home)?;
        self.log.set(&new.log_filter)?;
        self.daemon.set_limits(new.limits.clone());
        self.daemon.set_bench_limits(new.bench.clone());
        for key in self.settings.fixed_that_differ(&new) {
            tracing::warn!(key, "changed setting needs a restart");
        }
        // Settings that require a restart keep their old values, so that the next reload reports
        // them again.
        self.settings.log_filter = new.log_filter;
        self.settings.file = new.file;
        Ok(())
    }
}

/// Prints the rights of each peer, limited by the access that `serve` allows to any peer.
fn introduce_peers(peers: &Peers, settings: &Settings, is_unwritable: bool, terminal: &Terminal) {
    for peer in peers.iter() {
        let most = if is_unwritable && peer.options.root.is_none() {
            Access::ReadOnly
        } else {
            settings.access
        };
        let options = PeerOptions {
            access: peer.options.access.max(most),
            ..peer.options.clone()
        };
        let (name, key) = (name_of(peer), peer.key.fingerprint());
        let rights = rights(&options);
        settings.say(terminal, format_args!("peer {name} ({key}) {rights}"));
    }
    if peers.iter().next().is_none() {
        terminal.warning("no trusted peers yet: all connections will be rejected");
        terminal.hint("run `nicstripe key` on the other machine, and here: nicstripe trust add 'LINE' --name NAME");
    }
}
