//! `nicstripe serve`: the daemon.

use std::{
    fs, io,
    net::{IpAddr, SocketAddr},
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::Args;
use nicstripe::{
    CancellationToken, DEFAULT_PORT, Daemon, ListenAddress, escaped,
    routes::RouteKeeper,
    trust::{Access, Home, Identity, PeerOptions, Peers},
};

use crate::{
    cp::{Routes, parse_port},
    failure::Failure,
    logging::{self, Logs},
    places, runtime,
    signals::Signals,
    terminal::Terminal,
    trust::{name_of, rights},
};

/// Serve a directory to the machines that are trusted, over every cable
///
/// Listens on each interface by itself, so that what comes over a cable is answered over the same. Speaks only to keys in the list of
/// `nicstripe trust`, which may change while it runs. The first SIGINT or SIGTERM ends copies in order, so that they can go on later; the
/// second ends at once.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Directory that peers see as / [default: the current directory]
    #[arg(long, value_name = "DIR", default_value = ".", hide_default_value = true)]
    root: PathBuf,

    /// Listen on this address only; may be repeated [default: every address of every interface that is up]
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = parse_listen)]
    listen: Vec<Listen>,

    /// Listen on this interface only; may be repeated [default: every interface that is up]
    #[arg(long, value_name = "NAME")]
    interface: Vec<String>,

    /// TCP port; 0 takes a free one
    #[arg(long, default_value_t = DEFAULT_PORT)]
    port: u16,

    /// Let no peer write, whatever the list of peers says
    #[arg(long)]
    read_only: bool,

    /// Let peers add new files but replace none
    #[arg(long, conflicts_with = "read_only")]
    append_only: bool,

    /// When to install host routes to peers, which are removed with their session: where their packets would be dropped, always, or never
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    routes: Routes,

    /// Answer `nicstripe discover` of every machine on the same cable, not only of those that are trusted
    #[arg(long)]
    announce: bool,
}

impl Serve {
    /// Serves until a signal comes.
    pub(crate) fn run(self, terminal: &Terminal) -> Result<(), Failure> {
        logging::start(Logs::Daemon, terminal)?;
        let home = places::home()?;
        // While there is one thread: stale routes go, and what speaks to the network shall not be able to change any.
        let routes = Arc::new(RouteKeeper::start_apart(self.routes.into(), &places::routes_dir(&home)));
        let runtime = runtime::threaded()?;
        let result = runtime.block_on(self.serve(routes, &home, terminal));
        runtime.shutdown_background();
        result
    }

    async fn serve(self, routes: Arc<RouteKeeper>, home: &Home, terminal: &Terminal) -> Result<(), Failure> {
        let mut signals = Signals::take()?;
        let identity = Identity::load_or_create(&home.identity_file())?;
        let key = identity.public_key();
        // What is wrong with the list is said now; the daemon itself reads it again when it changes.
        let peers = Peers::load(&home.peers_file())?;
        let root = canonical(&self.root)?;
        let listen = self.listen.iter().map(Listen::resolve).collect::<Result<Vec<_>, _>>()?;
        let daemon = Daemon::builder()
            .identity(identity)
            .peers_file(home.peers_file())
            .root(root.clone())
            .port(self.port)
            .listen(listen)
            .interfaces(self.interface.clone())
            .read_only(self.read_only)
            .append_only(self.append_only)
            .route_keeper(routes)
            .announce(self.announce)
            .bind()
            .await?;

        self.introduce_peers(&peers, terminal);
        terminal.say(format_args!("serving {} as {}", escaped(root.as_os_str().as_bytes()), key.fingerprint()));
        listening(daemon.addresses()).into_iter().for_each(|line| terminal.say(line));

        let shutdown = CancellationToken::new();
        let mut running = std::pin::pin!(daemon.run(shutdown.clone()));
        let stop = tokio::select! {
            ended = &mut running => return Ok(ended?),
            stop = signals.stop() => stop,
        };
        terminal.say("ending; what has arrived is kept");
        shutdown.cancel();
        tokio::select! {
            ended = running => ended?,
            stop = signals.stop() => stop.at_once(),
        }
        Err(Failure::Stopped(stop))
    }

    /// Says what each peer may do, after this command's own restrictions.
    fn introduce_peers(&self, peers: &Peers, terminal: &Terminal) {
        for peer in peers.iter() {
            let options = PeerOptions { access: self.restricted(peer.options.access), ..peer.options.clone() };
            terminal.say(format_args!("peer {} ({}) {}", name_of(peer), peer.key.fingerprint(), rights(&options)));
        }
        if peers.iter().next().is_none() {
            terminal.warning("no machine is trusted yet, so nobody will be let in");
            terminal.hint("run `nicstripe key` on the other machine, and here: nicstripe trust add 'LINE' --name NAME");
        }
    }

    fn restricted(&self, access: Access) -> Access {
        match access {
            _ if self.read_only => Access::ReadOnly,
            Access::Full if self.append_only => Access::AppendOnly,
            access => access,
        }
    }
}

/// Returns a line for each interface or address; the two versions of IP share one.
fn listening(listens: &[ListenAddress]) -> Vec<String> {
    let mut lines = Vec::new();
    for ListenAddress { interface, address } in listens {
        let other_version = |other: &&ListenAddress| other.interface == *interface && other.address.is_ipv4() != address.is_ipv4();
        let has_other_version = listens.iter().filter(|other| other.address.ip().is_unspecified()).any(|other| other_version(&other));
        let line = match (address.ip().is_unspecified(), has_other_version) {
            (false, _) => format!("listening on {interface}, {address}"),
            (true, true) => format!("listening on {interface}, port {}", address.port()),
            (true, false) => format!("listening on {interface}, port {} ({} only)", address.port(), version(address)),
        };
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}

fn version(address: &SocketAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}

fn canonical(root: &Path) -> Result<PathBuf, Failure> {
    let failed = |source| Failure::Root { path: root.to_owned(), source };
    let path = fs::canonicalize(root).map_err(failed)?;
    match path.is_dir() {
        true => Ok(path),
        false => Err(failed(io::Error::from(io::ErrorKind::NotADirectory))),
    }
}

/// An address to listen on, with the name of its interface where it has one; port 0 stands for `--port`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Listen {
    address: SocketAddr,
    zone: Option<String>,
}

impl Listen {
    /// Turns the interface's name into its index.
    fn resolve(&self) -> Result<SocketAddr, Failure> {
        let (SocketAddr::V6(mut address), Some(zone)) = (self.address, &self.zone) else { return Ok(self.address) };
        let index = zone.parse().or_else(|_| interface_index(zone));
        address.set_scope_id(index.map_err(|source| Failure::NoInterface { name: zone.clone(), source })?);
        Ok(address.into())
    }
}

fn interface_index(name: &str) -> io::Result<u32> {
    use rustix::net::{AddressFamily, SocketType, netdevice::name_to_index, socket};
    let any = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    Ok(name_to_index(any, name)?)
}

/// Reads `10.0.0.1`, `10.0.0.1:99`, `fe80::1%eth1`, `[fe80::1%eth1]` or `[fe80::1%eth1]:99`.
fn parse_listen(text: &str) -> Result<Listen, String> {
    let wrong = || "not an address: expected ADDRESS, ADDRESS:PORT, or for IPv6 [ADDRESS]:PORT or [ADDRESS%INTERFACE]:PORT".to_owned();
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']').ok_or_else(wrong)?,
        None if text.matches(':').count() == 1 => text.split_at(text.find(':').unwrap_or(text.len())),
        None => (text, ""),
    };
    let port = match port.strip_prefix(':') {
        Some(digits) => parse_port(digits).map_err(|_| wrong())?,
        None if port.is_empty() => 0,
        None => return Err(wrong()),
    };
    let (address, zone) = host.split_once('%').map_or((host, None), |(address, zone)| (address, Some(zone)));
    let ip: IpAddr = address.parse().map_err(|_| wrong())?;
    match zone {
        Some(zone) if zone.is_empty() || ip.is_ipv4() => Err(wrong()),
        zone => Ok(Listen { address: SocketAddr::new(ip, port), zone: zone.map(str::to_owned) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<(String, Option<String>)> {
        parse_listen(text).ok().map(|listen| (listen.address.to_string(), listen.zone))
    }

    #[test]
    fn addresses_may_have_a_port_and_an_interface() {
        for (text, address, zone) in [
            ("10.0.0.1", "10.0.0.1:0", None),
            ("10.0.0.1:99", "10.0.0.1:99", None),
            ("::1", "[::1]:0", None),
            ("[::1]", "[::1]:0", None),
            ("[::1]:99", "[::1]:99", None),
            ("fe80::1%eth1", "[fe80::1]:0", Some("eth1")),
            ("[fe80::1%eth1]:99", "[fe80::1]:99", Some("eth1")),
        ] {
            assert_eq!(parse(text), Some((address.to_owned(), zone.map(str::to_owned))), "{text}");
        }
        for text in ["", "eth1", "10.0.0.1:", "10.0.0.1:0", "10.0.0.1:99x", "10.0.0.1%eth1", "[::1", "[::1]x", "fe80::1%", "nas:99"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn an_interface_is_named_once_with_the_versions_of_ip_that_it_lacks() {
        let listen = |interface: &str, address: &str| ListenAddress { interface: interface.into(), address: address.parse().unwrap() };
        let all = [
            listen("eth1", "0.0.0.0:7"),
            listen("eth1", "[::]:7"),
            listen("eth2", "0.0.0.0:7"),
            listen("eth3", "10.0.0.1:7"),
            listen("eth3", "10.0.0.2:7"),
        ];
        let expected = [
            "listening on eth1, port 7",
            "listening on eth2, port 7 (IPv4 only)",
            "listening on eth3, 10.0.0.1:7",
            "listening on eth3, 10.0.0.2:7",
        ];
        assert_eq!(listening(&all), expected);
    }

    #[test]
    fn an_interface_is_found_by_name_or_refused_by_name() {
        let listen = |zone: &str| Listen { address: "[fe80::1]:0".parse().unwrap(), zone: Some(zone.into()) };
        // A number is an index already.
        assert_eq!(listen("7").resolve().unwrap().to_string(), "[fe80::1%7]:0");
        let error = listen("nosuch0").resolve().unwrap_err();
        assert!(error.to_string().contains("nosuch0"), "{error}");
    }

    #[test]
    fn the_commands_own_restriction_is_the_upper_bound() {
        let serve = |read_only, append_only| {
            let (listen, interface) = (Vec::new(), Vec::new());
            Serve { root: ".".into(), listen, interface, port: 0, read_only, append_only, announce: false, routes: Routes::Never }
        };
        assert_eq!(serve(true, false).restricted(Access::Full), Access::ReadOnly);
        assert_eq!(serve(false, true).restricted(Access::Full), Access::AppendOnly);
        assert_eq!(serve(false, true).restricted(Access::ReadOnly), Access::ReadOnly);
        assert_eq!(serve(false, false).restricted(Access::AppendOnly), Access::AppendOnly);
    }
}
