//! Options for the connection to the peer: port, links, host routes, rate limit and timeout.

use std::{sync::Arc, time::Duration};

use clap::{Args, ValueEnum};
use nicstripe::{
    BitRate, ClientBuilder, DEFAULT_PORT, Family, LinkRequest, RoutePolicy,
    links::local_interfaces, routes::RouteKeeper,
};

use super::ssh::SshArgs;
#[cfg(feature = "web")]
use crate::text::first_true;
use crate::{
    failure::{Failure, usage},
    places,
    text::{
        quantity::{parse_rate, parse_time},
        shown,
    },
};

/// Options that choose the daemon's port and the links.
#[derive(Debug, Clone, Args)]
pub(crate) struct LinkArgs {
    /// TCP port of the daemon, or of ssh for USER@HOST [default: 7747, 22]
    #[arg(short = 'P', long, value_parser = parse_port)]
    pub(crate) port: Option<u16>,

    /// Use IPv4 only
    #[arg(short = '4', long, conflicts_with = "ipv6")]
    ipv4: bool,

    /// Use IPv6 only
    #[arg(short = '6', long)]
    ipv6: bool,

    /// Use only this link; may be repeated [default: every cable that reaches the peer]
    #[arg(long, value_name = "LOCAL[=REMOTE][@RATE]", value_parser = parse_link)]
    pub(crate) link: Vec<LinkRequest>,

    /// Exclude this interface; may be repeated
    #[arg(long, value_name = "NAME")]
    exclude_link: Vec<String>,

    #[command(flatten)]
    pub(super) ssh: SshArgs,
}

impl LinkArgs {
    /// Returns the daemon's TCP port: `-P` if given, otherwise the port in the URL, otherwise 7747.
    pub(crate) fn port(&self, in_url: Option<u16>) -> u16 {
        self.port.or(in_url).unwrap_or(DEFAULT_PORT)
    }

    #[cfg(feature = "web")]
    /// Returns what the options say beyond interfaces of this machine: another end, a limit, an IP version.
    pub(crate) fn beyond_interfaces(&self) -> Option<&'static str> {
        let is_beyond = |link: &LinkRequest| link.remote.is_some() || link.cap.is_some();
        let is_link = self.link.iter().any(is_beyond);
        first_true([
            (self.ipv4, "-4"),
            (self.ipv6, "-6"),
            (is_link, "--link with =REMOTE or @RATE"),
        ])
    }

    #[cfg(feature = "web")]
    /// Returns the options for a daemon behind a web server, which do not choose the links.
    pub(crate) fn of_daemon(&self) -> Self {
        Self {
            link: Vec::new(),
            exclude_link: Vec::new(),
            ..self.clone()
        }
    }

    #[cfg(feature = "web")]
    pub(crate) fn excluded(&self) -> &[String] {
        &self.exclude_link
    }

    /// Checks that no link is named twice, and that the interfaces of `--exclude-link` exist. A
    /// misspelled name would leave the intended interface in use.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let again = |(index, link): (usize, &LinkRequest)| {
            let is_same =
                |other: &LinkRequest| other.local == link.local && other.remote == link.remote;
            self.link[..index]
                .iter()
                .any(is_same)
                .then(|| link.local.to_string())
        };
        if let Some(name) = self.link.iter().enumerate().find_map(again) {
            let text = format!(
                "--link {name} is given twice: expected each link once; more connections a link: --streams N"
            );
            return Err(usage(text).into());
        }
        if self.exclude_link.is_empty() {
            return Ok(());
        }
        let here = local_interfaces()?;
        let is_missing = |name: &&String| !here.iter().any(|interface| interface.is_called(name));
        let Some(name) = self.exclude_link.iter().find(is_missing) else {
            return Ok(());
        };
        let names = here.iter().map(|interface| shown(&interface.name));
        let names = names.collect::<Vec<_>>().join(", ");
        let text = format!(
            "cannot exclude interface {name:?}, which does not exist: expected one of {names}"
        );
        Err(usage(text).into())
    }

    /// Restricts a client to the links and the IP version that the options select.
    pub(crate) fn apply(&self, builder: ClientBuilder) -> ClientBuilder {
        let family = match (self.ipv4, self.ipv6) {
            (true, _) => Some(Family::V4),
            (_, true) => Some(Family::V6),
            _ => None,
        };
        builder
            .links(self.link.clone())
            .exclude_links(self.exclude_link.clone())
            .family(family)
    }
}

/// Options of a session that transfers data: host routes, rate limit and timeout.
#[derive(Debug, Clone, Args)]
pub(crate) struct SessionArgs {
    /// Install host routes to the peer, removed at the end: if a link needs one, always, or never
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub(crate) routes: Routes,

    /// Limit the rate over all links, per second: KiB without a unit, K, M or G for bytes, Mbit or
    /// Gbit for bits, 0 for no limit [default: no limit]
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub(crate) bwlimit: Option<BitRate>,

    /// Give up after this time without any link, or in the queue of a full daemon: seconds, or with
    /// ms, s, m or h
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = parse_time)]
    pub(crate) timeout: Duration,
}

impl SessionArgs {
    /// Starts the route helper process. Must be called while this process has one thread: the
    /// helper keeps the right to change routes, and the process that talks to the network drops it.
    pub(crate) fn keeper(&self) -> Result<Arc<RouteKeeper>, Failure> {
        Ok(Arc::new(RouteKeeper::start_dedicated(
            self.routes.into(),
            places::routes_dir(&places::home()?),
        )))
    }

    /// Applies the rate limit and the timeout to a client.
    pub(crate) fn apply(&self, builder: ClientBuilder) -> ClientBuilder {
        builder.bandwidth(self.limit()).patience(self.timeout)
    }

    fn limit(&self) -> Option<BitRate> {
        self.bwlimit.filter(|rate| *rate > BitRate::ZERO)
    }
}

/// Policy for host routes to the peer (`--routes`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Routes {
    /// If binding sockets to the interface does not suffice, and privileges allow it
    Auto,
    /// For every link; fail without the privileges
    Always,
    /// For no link
    Never,
}

impl From<Routes> for RoutePolicy {
    fn from(routes: Routes) -> Self {
        match routes {
            Routes::Auto => Self::Auto,
            Routes::Always => Self::Always,
            Routes::Never => Self::Never,
        }
    }
}

/// Parses a TCP port. The error message explains that `-P` is not rsync's option of that letter.
pub(crate) fn parse_port(text: &str) -> Result<u16, String> {
    match text.parse() {
        Ok(0) | Err(_) => {
            Err("not a port: expected 1 to 65535 (-P is the port, as in scp; partial files are always kept, and a terminal shows progress)"
                .into())
        }
        Ok(port) => Ok(port),
    }
}

/// Parses a link, `LOCAL[=REMOTE][@RATE]`. The rate has the units of `--bwlimit`, so that a unit
/// means the same in all options.
pub(crate) fn parse_link(text: &str) -> Result<LinkRequest, String> {
    let (ends, cap) = match text.rsplit_once('@') {
        Some((ends, rate)) => (
            ends,
            Some(parse_rate(rate).map_err(|error| error.to_string())?),
        ),
        None => (text, None),
    };
    let link: LinkRequest = ends
        .parse()
        .map_err(|error: nicstripe::LinkRequestError| error.to_string())?;
    Ok(LinkRequest {
        cap: cap.filter(|rate| *rate > BitRate::ZERO),
        ..link
    })
}

/// The help states the default port as a number, which must be that of the library.
const _: () = assert!(DEFAULT_PORT == 7747);

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct CommandLine {
        #[command(flatten)]
        session: SessionArgs,
    }

    #[test]
    fn a_limit_of_zero_is_none() {
        let limit = |rate: &str| {
            let typed = CommandLine::try_parse_from(["cp", "--bwlimit", rate]).unwrap();
            typed.session.limit()
        };
        assert_eq!(limit("0"), None);
        assert_eq!(limit("1Mbit"), Some(BitRate::from_mbit(1)));
    }
}
