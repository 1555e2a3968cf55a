//! Options and setup of the connection to the peer, for commands that transfer data.

use std::{sync::Arc, time::Duration};

use clap::Args;
use nicstripe::routes::RouteKeeper;

use super::{
    arguments::{LinkArgs, SessionArgs},
    place::Place,
    setup::{self, Connected, Needs},
};
use crate::failure::Failure;

/// Options for the connection to the peer, of commands that transfer data.
#[derive(Debug, Args)]
pub(crate) struct ConnectArgs {
    #[command(flatten)]
    links: LinkArgs,

    #[command(flatten)]
    session: SessionArgs,
}

impl ConnectArgs {
    pub(crate) fn keeper(&self) -> Result<Arc<RouteKeeper>, Failure> {
        self.links.check()?;
        self.session.keeper()
    }

    /// Returns the longest wait for an answer.
    pub(crate) fn timeout(&self) -> Duration {
        self.session.timeout
    }

    pub(crate) async fn connect(
        &self,
        place: &Place,
        needs: &Needs<'_>,
        keeper: Arc<RouteKeeper>,
    ) -> Result<Connected, Failure> {
        let adapt = |builder| self.session.apply(builder).route_keeper(keeper.clone());
        let needs = Needs {
            timeout: Some(self.session.timeout),
            ..needs.clone()
        };
        setup::connect(place, &self.links, &needs, adapt, setup::say).await
    }

    /// Ignores the value of `-e` if it is the escape character of ssh, not a program.
    pub(crate) fn ignore_escape_character(&mut self) {
        self.links.ssh.ignore_escape_character();
    }

    /// Returns the daemon's TCP port: `-P` if given, otherwise the port in the URL, otherwise 7747.
    pub(crate) fn port(&self, in_url: Option<u16>) -> u16 {
        self.links.port(in_url)
    }
}
