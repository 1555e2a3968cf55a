//! Options for the connection to the peer: port, links, host routes, rate limit and timeout.

use std::{sync::Arc, time::Duration};

use clap::Args;
use nicstripe::{BitRate, Client, DEFAULT_PORT, LinkRequest, routes::RouteKeeper};

use super::{
    choice::{IpVersion, check_excluded},
    meeting,
};
use crate::{
    commands::cp::{Routes, parse_link, parse_port},
    failure::Failure,
    places,
    text::quantity::{parse_rate, parse_time},
};

/// Options for the connection to the peer.
#[derive(Debug, Args)]
pub(crate) struct ConnectArgs {
    /// TCP port of the daemon [default: 7747]
    #[arg(short = 'P', long, value_parser = parse_port)]
    port: Option<u16>,

    #[command(flatten)]
    ip_version: IpVersion,

    /// Use only this link; may be repeated [default: every cable that reaches the peer]
    #[arg(long, value_name = "LOCAL[=REMOTE][@RATE]", value_parser = parse_link)]
    link: Vec<LinkRequest>,

    /// Exclude this interface; may be repeated
    #[arg(long, value_name = "NAME")]
    exclude_link: Vec<String>,

    /// Install host routes to the peer, removed at the end: if a link needs one, always, or never
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    routes: Routes,

    /// Limit the rate over all links, per second: KiB without a unit, K, M or G for bytes, Mbit or
    /// Gbit for bits, 0 for no limit [default: no limit]
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    bwlimit: Option<BitRate>,

    /// Give up after this time without any link: seconds, or with ms, s, m or h
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = parse_time)]
    timeout: Duration,
}

impl ConnectArgs {
    /// Starts the route helper process. Must be called while this process has one thread: the
    /// helper keeps the right to change routes, and the process that talks to the network drops it.
    pub(crate) fn keeper(&self) -> Result<Arc<RouteKeeper>, Failure> {
        check_excluded(&self.exclude_link)?;
        Ok(Arc::new(RouteKeeper::start_dedicated(
            self.routes.into(),
            &places::routes_dir(&places::home()?),
        )))
    }

    /// Returns the daemon's TCP port: `-P` if given, otherwise the port in the URL, otherwise 7747.
    pub(crate) fn port(&self, in_url: Option<u16>) -> u16 {
        self.port.or(in_url).unwrap_or(DEFAULT_PORT)
    }

    pub(crate) async fn connect(
        &self,
        host: &str,
        port: u16,
        keeper: Arc<RouteKeeper>,
    ) -> Result<Client, Failure> {
        let home = places::home()?;
        let builder = places::client(&home)?
            .port(port)
            .links(self.link.clone())
            .exclude_links(self.exclude_link.clone())
            .route_keeper(keeper)
            .bandwidth(self.bwlimit.filter(|rate| *rate > BitRate::ZERO))
            .patience(self.timeout)
            .family(self.ip_version.only());
        meeting::connect(builder, host).await
    }
}
