//! `nicstripe links`: lists the cables to another machine, and the reasons why others are not used.

use std::net::IpAddr;

use clap::Args;
use nicstripe::{
    BitRate, LinkReason, LinkState, LinkSurvey, RoutePolicy, SurveyedLink, UnusedInterface,
    escaped,
    links::{LocalInterface, local_interfaces},
    trust::PublicKey,
};
use serde::Serialize;

use crate::{
    connect::{arguments::LinkArgs, setup},
    failure::Failure,
    output::{
        json::{self, LinkEnds, State},
        logging, stdout,
        terminal::Terminal,
    },
    process::runtime,
    text::{link_text, quantity::Speed, table::aligned},
};

/// Show which cables a copy to a machine would use, which not, and why; without HOST, the
/// interfaces of this machine
///
/// Connects over each link as a copy would, but copies nothing, installs no routes and changes
/// nothing.
#[derive(Debug, Args)]
#[command(
    mut_arg("port", |port| port.help("TCP port of the daemon").default_value("7747")),
    mut_arg("link", |link| link.help("Check only this link; may be repeated"))
)]
pub(crate) struct Links {
    /// Machine that runs `nicstripe serve`, by name or address
    #[arg(value_name = "HOST")]
    host: Option<String>,

    #[command(flatten)]
    links: LinkArgs,

    /// Print one JSON document on standard output (docs/schema/links.schema.json)
    #[arg(long)]
    json: bool,
}

impl Links {
    /// Probes the links to the peer, or lists local interfaces if no host is given, and prints the
    /// result.
    pub(crate) fn run(self, terminal: &Terminal) -> Result<(), Failure> {
        logging::start(terminal)?;
        self.links.check()?;
        let Some(host) = self.host.clone() else {
            let interfaces = local_interfaces()?;
            return if self.json {
                json::print_document(&HereDocument::of(&interfaces))
            } else {
                print_here(&interfaces)
            };
        };
        let (peer, survey) = runtime::run(self.look(&host))?;
        if self.json {
            json::print_document(&Document::of(&host, &peer, &survey))
        } else {
            print_survey(&host, &peer, &survey)
        }
    }

    async fn look(&self, host: &str) -> Result<(Peer, LinkSurvey), Failure> {
        let builder = self.links.apply(setup::client()?);
        let builder = builder
            .port(self.links.port(None))
            .routes(RoutePolicy::Never);
        let client = setup::connect(builder, host).await?;
        let (key, name) = client.peer().await?;
        let survey = client.links().await?;
        client.close().await;
        Ok((Peer { key, name }, survey))
    }
}

/// Peer at the other end of the links, with its name in the peers file.
struct Peer {
    key: PublicKey,
    name: Option<String>,
}

fn print_survey(host: &str, peer: &Peer, survey: &LinkSurvey) -> Result<(), Failure> {
    let name = peer.name.as_deref().unwrap_or(host);
    stdout::line(format_args!(
        "{} ({})",
        escaped(name.as_bytes()),
        peer.key.fingerprint()
    ))?;
    let mut rows = vec![
        [
            "link", "address", "why", "MTU", "speed", "expected", "state",
        ]
        .map(str::to_owned),
    ];
    rows.extend(survey.links.iter().map(row));
    for line in aligned(&rows) {
        stdout::line(line)?;
    }
    for note in survey.links.iter().flat_map(notes) {
        stdout::line(format_args!("  {note}"))?;
    }
    if !survey.unused.is_empty() {
        stdout::line("not used:")?;
    }
    for UnusedInterface {
        is_peers,
        interface,
        why,
        ..
    } in &survey.unused
    {
        let side = if *is_peers { "there" } else { "here" };
        stdout::line(format_args!(
            "  {side} {}: {}",
            escaped(interface.as_bytes()),
            escaped(why.as_bytes())
        ))?;
    }
    for remedy in link_text::remedies(&survey.remedies) {
        stdout::line(format_args!("  remedy {remedy}"))?;
    }
    let expected = survey.expected.map_or_else(
        || "expected rate unknown".to_owned(),
        |rate| format!("{} expected", Speed(rate)),
    );
    stdout::line(format_args!(
        "{}, {expected}",
        link_text::counted(survey.links.len())
    ))
}

fn row(link: &SurveyedLink) -> [String; 7] {
    let unknown = || "?".to_owned();
    let speed = match (link.line_rate, link.peer_line_rate) {
        (Some(ours), Some(theirs)) => ours.min(theirs).to_string(),
        (Some(rate), None) | (None, Some(rate)) => rate.to_string(),
        (None, None) => unknown(),
    };
    let mtu = link.path_mtu.map_or_else(
        || link.mtu.to_string(),
        |through| format!("{} ({through})", link.mtu),
    );
    let expected = link
        .theory
        .map_or_else(unknown, |rate| Speed(rate).to_string());
    [
        link_text::ends(&link.link),
        link.link.remote.to_string(),
        reason(link.reason).0.to_owned(),
        mtu,
        speed,
        expected,
        state_text(link),
    ]
}

fn state_text(link: &SurveyedLink) -> String {
    match (&link.state, link.verified) {
        (LinkState::Up, Some(true)) => "verified".to_owned(),
        (LinkState::Up, Some(false)) => "arrives on another interface (ARP flux)".to_owned(),
        (LinkState::Up, None) => "up, not verified".to_owned(),
        (LinkState::Connecting, _) => "connecting".to_owned(),
        (LinkState::Suspect, _) => "no answer".to_owned(),
        (LinkState::Down(why) | LinkState::LeftOut(why), _) => {
            format!("down: {}", escaped(why.as_bytes()))
        }
        _ => "?".to_owned(),
    }
}

/// Returns the reason why a link was chosen: as text, and as the word of the JSON document.
fn reason(reason: LinkReason) -> (&'static str, &'static str) {
    match reason {
        LinkReason::Named => ("named", "named"),
        LinkReason::Contact => ("route to the host", "contact"),
        LinkReason::OwnSubnet => ("own IPv4 subnet", "own_subnet"),
        LinkReason::LinkLocal => ("IPv6 link-local", "link_local"),
        LinkReason::OwnPrefix => ("own IPv6 prefix", "own_prefix"),
        LinkReason::SharedSubnet => ("shared subnet", "shared_subnet"),
        _ => ("?", "unknown"),
    }
}

/// Returns the remarks on one link that are printed below the table.
fn notes(link: &SurveyedLink) -> Vec<String> {
    let name = escaped(link.link.interface.as_bytes());
    let mut notes = Vec::new();
    for (side, members) in [("here", &link.members), ("there", &link.peer_members)] {
        if !members.is_empty() {
            let members: Vec<String> = members
                .iter()
                .map(|member| escaped(member.as_bytes()))
                .collect();
            notes.push(format!(
                "{name}: bond {side} of {}, {} connections",
                members.join(", "),
                link.streams
            ));
        }
    }
    notes.extend(
        link.path_mtu
            .map(|through| format!("{name}: {}", link_text::narrow(through))),
    );
    notes.extend(link.route.map(|route| {
        format!("{name}: a copy would install a host route to {route}, if permitted (--routes)")
    }));
    notes
}

fn print_here(interfaces: &[LocalInterface]) -> Result<(), Failure> {
    let mut rows = vec![["interface", "addresses", "MTU", "speed", "use"].map(str::to_owned)];
    rows.extend(interfaces.iter().map(|interface| {
        let addresses = match addresses(interface) {
            none if none.is_empty() => "none".to_owned(),
            addresses => addresses.join(" "),
        };
        [
            escaped(interface.name.as_bytes()),
            addresses,
            interface.mtu.to_string(),
            interface
                .line_rate
                .map_or_else(|| "?".to_owned(), |rate| rate.to_string()),
            interface
                .left_out
                .as_ref()
                .map_or_else(|| "link".to_owned(), |why| format!("not used: {why}")),
        ]
    }));
    aligned(&rows).into_iter().try_for_each(stdout::line)
}

/// Returns the addresses of an interface, each with the length of its prefix.
fn addresses(interface: &LocalInterface) -> Vec<String> {
    let addresses = interface.addresses.iter();
    addresses.map(|(ip, len)| format!("{ip}/{len}")).collect()
}

/// JSON document of `nicstripe links HOST`, described in `docs/schema/links.schema.json`.
#[derive(Debug, Serialize)]
struct Document<'a> {
    schema: &'static str,
    host: &'a str,
    peer_key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    theory_bps: Option<u64>,
    links: Vec<LinkDocument<'a>>,
    unused: Vec<UnusedDocument<'a>>,
}

#[derive(Debug, Serialize)]
struct LinkDocument<'a> {
    #[serde(flatten)]
    ends: LinkEnds<'a>,
    chosen_for: &'static str,
    #[serde(flatten)]
    state: State<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verified: Option<bool>,
    family: &'static str,
    mtu: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_mtu: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line_rate_bps: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer_line_rate_bps: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    theory_bps: Option<u64>,
    streams: u32,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    members: &'a [String],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    peer_members: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    route: Option<IpAddr>,
}

#[derive(Debug, Serialize)]
struct UnusedDocument<'a> {
    side: &'static str,
    interface: &'a str,
    why: &'a str,
    failed: bool,
}

impl<'a> Document<'a> {
    fn of(host: &'a str, peer: &'a Peer, survey: &'a LinkSurvey) -> Self {
        let bps = |rate: Option<BitRate>| rate.map(|rate| rate.0);
        let link = |link: &'a SurveyedLink| LinkDocument {
            ends: LinkEnds::from(&link.link),
            chosen_for: reason(link.reason).1,
            state: State::from(&link.state),
            verified: link.verified,
            family: if link.link.remote.is_ipv4() {
                "ipv4"
            } else {
                "ipv6"
            },
            mtu: link.mtu,
            path_mtu: link.path_mtu,
            line_rate_bps: bps(link.line_rate),
            peer_line_rate_bps: bps(link.peer_line_rate),
            theory_bps: bps(link.theory),
            streams: link.streams,
            members: &link.members,
            peer_members: &link.peer_members,
            route: link.route,
        };
        let unused = |unused: &'a UnusedInterface| UnusedDocument {
            side: if unused.is_peers { "peer" } else { "here" },
            interface: &unused.interface,
            why: &unused.why,
            failed: unused.failed,
        };
        Self {
            schema: SCHEMA,
            host,
            peer_key: peer.key.to_string(),
            peer_name: peer.name.as_deref(),
            theory_bps: bps(survey.expected),
            links: survey.links.iter().map(link).collect(),
            unused: survey.unused.iter().map(unused).collect(),
        }
    }
}

/// JSON document of `nicstripe links` without a host, described in `docs/schema/links.schema.json`.
#[derive(Debug, Serialize)]
struct HereDocument<'a> {
    schema: &'static str,
    interfaces: Vec<HereInterface<'a>>,
}

#[derive(Debug, Serialize)]
struct HereInterface<'a> {
    interface: &'a str,
    addresses: Vec<String>,
    mtu: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    line_rate_bps: Option<u64>,
    is_link: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'a str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    members: &'a [String],
}

impl<'a> HereDocument<'a> {
    fn of(interfaces: &'a [LocalInterface]) -> Self {
        let one = |interface: &'a LocalInterface| HereInterface {
            interface: &interface.name,
            addresses: addresses(interface),
            mtu: interface.mtu,
            line_rate_bps: interface.line_rate.map(|rate| rate.0),
            is_link: interface.left_out.is_none(),
            why: interface.left_out.as_deref(),
            members: &interface.members,
        };
        Self {
            schema: SCHEMA,
            interfaces: interfaces.iter().map(one).collect(),
        }
    }
}

const SCHEMA: &str = "nicstripe-links/1";
