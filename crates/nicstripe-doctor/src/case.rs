//! Input of a diagnosis: facts about one or two machines, links, and a bench.

use std::{fmt::Display, net::IpAddr};

use nicstripe_bench::{BenchLink, BenchReport, Direction, LinkSummary};
use nicstripe_link::facts::{Facts, InterfaceFacts};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::command::{Line, Written, quoted};

/// Known facts about this machine, the peer's, and the links between them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Case {
    /// This machine: the client's.
    pub here: Machine,
    /// Machine of the peer: the daemon's.
    pub there: Option<Machine>,
    /// Links between the machines that were tried, working or not.
    pub links: Vec<LinkFacts>,
    /// Bench over the links, if one was made.
    pub bench: Option<BenchReport>,
}

/// Facts about a machine at up to three times.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Machine {
    /// Facts at the beginning.
    pub facts: Facts,
    /// Facts some time later without a load, and that time in microseconds.
    pub idle: Option<(Facts, u64)>,
    /// Facts after the bench.
    pub loaded: Option<Facts>,
}

impl From<Facts> for Machine {
    fn from(facts: Facts) -> Self {
        Self {
            facts,
            ..Self::default()
        }
    }
}

/// One of the two machines.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// This machine.
    #[default]
    Here,
    /// Machine of the peer.
    There,
}

/// Link between two interfaces, as a session tried it.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LinkFacts {
    /// Interface of this machine.
    pub here: String,
    /// Interface of the peer.
    pub there: Option<String>,
    /// Address of this machine.
    pub local: Option<IpAddr>,
    /// Address of the peer.
    pub remote: Option<IpAddr>,
    /// Outcome of the attempt.
    pub state: LinkState,
    /// Interface of the peer at which the connection arrived, if it is another than meant.
    pub arrived: Option<String>,
    /// Path MTU in bytes, if it is smaller than the MTU of both interfaces.
    pub path_mtu: Option<u32>,
    /// Interface by which the kernel here would route packets to the peer's address.
    pub routed_by: Option<String>,
    /// True if the peer's address answered on the cable (ARP, neighbour discovery).
    pub neighbour: Option<bool>,
    /// Port of the peer.
    pub port: Option<u16>,
}

/// Outcome of an attempt to connect over a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkState {
    /// Not tried.
    #[default]
    Untried,
    /// Connected, and arrives at the interface that was meant.
    Verified,
    /// Connected; it is unknown at which interface it arrives.
    Up,
    /// Connected to another interface of the peer than meant.
    Misdirected,
    /// No answer.
    Silent,
    /// A filter there or on the way rejects connections at this port.
    Rejected,
    /// The machine refused the connection: no program listens at this address and port.
    Refused,
    /// The machine accepted and reset the connection.
    Reset,
    /// A filter of the own machine rejects connections over this link.
    FilteredHere,
    /// The kernel needs a host route for it, and none was permitted.
    Unrouted,
    /// Another machine answered.
    Stranger,
}

impl LinkState {
    /// Returns true if the link carries data.
    pub fn works(self) -> bool {
        matches!(self, Self::Verified | Self::Up)
    }
}

impl Case {
    /// Returns the machines that are known, each with its side.
    pub(crate) fn machines(&self) -> impl Iterator<Item = (Side, &Machine)> {
        let there = self.there.iter().map(|machine| (Side::There, machine));
        std::iter::once((Side::Here, &self.here)).chain(there)
    }

    /// Returns a machine, if it is known.
    pub(crate) fn machine(&self, side: Side) -> Option<&Machine> {
        match side {
            Side::Here => Some(&self.here),
            Side::There => self.there.as_ref(),
        }
    }

    /// Returns all interfaces of both machines, each with its place.
    pub(crate) fn interfaces(&self) -> impl Iterator<Item = Place<'_>> {
        self.machines().flat_map(|(side, machine)| {
            let place = move |interface| Place {
                side,
                machine,
                interface,
            };
            machine.facts.interfaces.iter().map(place)
        })
    }

    /// Returns the network cards of both machines: interfaces with a cable of their own.
    pub(crate) fn cards(&self) -> impl Iterator<Item = Place<'_>> {
        self.interfaces().filter(|place| is_card(place.interface))
    }

    /// Returns the cards that have a carrier.
    pub(crate) fn live_cards(&self) -> impl Iterator<Item = Place<'_>> {
        self.cards()
            .filter(|place| place.interface.carrier != Some(false))
    }

    /// Returns an interface by its name.
    pub(crate) fn place(&self, side: Side, name: &str) -> Option<Place<'_>> {
        let machine = self.machine(side)?;
        let interface = machine.facts.interface(name)?;
        Some(Place {
            side,
            machine,
            interface,
        })
    }

    /// Returns both ends of each link whose interfaces are known.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&LinkFacts, Place<'_>, Place<'_>)> {
        self.links.iter().filter_map(|link| {
            let here = self.place(Side::Here, &link.here)?;
            let there = self.place(Side::There, link.there.as_deref()?)?;
            Some((link, here, there))
        })
    }

    /// Returns the links of the bench with their summaries.
    pub(crate) fn measured(
        &self,
    ) -> impl Iterator<Item = (&BenchReport, &BenchLink, &LinkSummary)> {
        self.bench.iter().flat_map(|report| {
            report.links.iter().filter_map(move |link| {
                let mut summaries = report.summary.links.iter();
                let summary = summaries.find(|summary| summary.link == link.id)?;
                Some((report, link, summary))
            })
        })
    }

    /// Returns the name of a machine for sentences. A peer that claims this machine's name is called
    /// the peer.
    pub(crate) fn name(&self, side: Side) -> String {
        let of = |side| {
            let machine = self.machine(side)?;
            machine.facts.host.name.as_deref()
        };
        match side {
            Side::Here => of(side).map_or_else(|| "this machine".into(), quoted),
            Side::There => of(side)
                .filter(|name| Some(*name) != of(Side::Here))
                .map_or_else(|| "the peer".into(), quoted),
        }
    }

    /// Returns an interface's name for sentences, with its machine if two are known: `eth1 on nas`.
    pub(crate) fn label(&self, side: Side, interface: &str) -> String {
        match self.there {
            None => quoted(interface),
            Some(_) => format!("{} on {}", quoted(interface), self.name(side)),
        }
    }
}

/// Interface with its machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    pub(crate) side: Side,
    pub(crate) machine: &'a Machine,
    pub(crate) interface: &'a InterfaceFacts,
}

/// Counter with its value.
type Counted = (&'static str, u64);

impl Place<'_> {
    /// Returns the interface's name for sentences.
    pub(crate) fn label(&self, case: &Case) -> String {
        case.label(self.side, &self.interface.name)
    }

    /// Returns the name of a fact about the interface: `MTU of eth1`.
    pub(crate) fn fact(&self, what: &str) -> String {
        format!("{what} of {}", self.interface.name)
    }

    /// Returns the counter that grew most under load, and the one that is highest; `None` if the
    /// interface has none of them.
    pub(crate) fn worst(&self, counters: &[&'static str]) -> Option<(Option<Counted>, Counted)> {
        let most = |count: &dyn Fn(&str) -> Option<u64>| {
            let known = counters
                .iter()
                .filter_map(|name| Some((*name, count(name)?)));
            known.max_by_key(|(_, count)| *count)
        };
        let total = most(&|name| self.interface.statistic(name))?;
        Some((most(&|name| self.growth(name)), total))
    }

    /// Returns a command line of the text, in which the interface's name is the first fact.
    pub(crate) fn line(&self, text: &'static str, facts: &[&dyn Display]) -> Written {
        Line::new(
            text,
            &[&[&self.interface.name as &dyn Display], facts].concat(),
        )
    }

    /// Returns the growth of a counter of the interface under load; `None` without a bench.
    pub(crate) fn growth(&self, statistic: &str) -> Option<u64> {
        let after = self
            .machine
            .loaded
            .as_ref()?
            .interface(&self.interface.name)?;
        let (now, then) = (
            after.statistic(statistic)?,
            self.interface.statistic(statistic)?,
        );
        Some(now.saturating_sub(then))
    }

    /// Returns the negotiated rate in bit/s.
    pub(crate) fn speed_bps(&self) -> Option<u64> {
        Some(u64::from(self.interface.speed_mbps?) * 1_000_000)
    }
}

impl Machine {
    /// Returns the growth of a counter of the kernel under load; `None` without a bench.
    pub(crate) fn growth(&self, counter: &str) -> Option<u64> {
        let now = *self.loaded.as_ref()?.counters.get(counter)?;
        let then = *self.facts.counters.get(counter)?;
        Some(now.saturating_sub(then))
    }
}

/// Returns true if the interface is a network card with a cable: neither virtual nor wireless.
fn is_card(interface: &InterfaceFacts) -> bool {
    interface.kind.as_deref() == Some("ethernet")
        && interface.driver.as_deref() != Some("virtio_net")
}

/// Returns the sender's and the receiver's side of a direction of a bench.
pub(crate) fn sides(way: Direction) -> (Side, Side) {
    match way {
        Direction::ToDaemon => (Side::Here, Side::There),
        Direction::ToClient => (Side::There, Side::Here),
    }
}

/// Formats a line rate in the unit of its name: `100 Mb/s`.
pub(crate) fn line(mbps: u32) -> String {
    format!("{mbps} Mb/s")
}
