//! Stand-in for `discovery` without the feature of that name: a search fails at once, and a daemon
//! answers no question.

use std::{io, net::SocketAddrV6, time::Duration};

use nicstripe_link::{Interface, InterfaceName};

use crate::{
    report::error::Error,
    trust::{Identity, Peers, PublicKey},
    wire::tls::KeyFilter,
};

#[derive(Default)]
pub(crate) struct SearchOptions {
    pub(crate) port: u16,
    pub(crate) duration: Duration,
    pub(crate) excluded: Vec<String>,
    pub(crate) interfaces: Vec<String>,
}

pub(crate) struct DiscoveredPeer {
    pub(crate) interface: String,
    pub(crate) address: SocketAddrV6,
}

/// No value exists.
pub(crate) enum Search {}

impl Search {
    pub(crate) fn for_key(
        _: &Identity,
        _: &Peers,
        _: SearchOptions,
        _: PublicKey,
    ) -> Result<Self, Error> {
        let source = io::Error::new(io::ErrorKind::Unsupported, "this program has no discovery");
        let what = "search the cables";
        Err(Error::System { what, source })
    }

    pub(crate) fn interfaces(&self) -> Vec<String> {
        match *self {}
    }

    pub(crate) fn obstacle(&self) -> Option<Error> {
        match *self {}
    }

    pub(crate) async fn next(&mut self) -> Option<DiscoveredPeer> {
        match *self {}
    }
}

pub(crate) struct ResponderConfig {
    pub(crate) identity: Identity,
    pub(crate) accepts: KeyFilter,
    pub(crate) announce: bool,
    pub(crate) invitation: Option<nicstripe_proto::invitation::Number>,
    pub(crate) port: u16,
    pub(crate) asked_at: u16,
    pub(crate) only: Option<Vec<InterfaceName>>,
}

#[derive(Debug)]
pub(crate) struct Responder;

impl Responder {
    pub(crate) fn new(_: ResponderConfig) -> Self {
        Self
    }

    pub(crate) fn update(&mut self, _: &[Interface]) {}

    pub(crate) async fn close(self) {}
}
