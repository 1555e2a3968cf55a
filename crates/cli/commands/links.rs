//! `nicstripe links`: lists the cables to another machine, and the reasons why others are not used.

use clap::Args;
use nicstripe::{
    BitRate, LinkReason, LinkState, LinkSurvey, SurveyedLink, UnusedInterface,
    links::{LocalInterface, local_interfaces},
    trust::PublicKey,
};

#[cfg(feature = "web")]
use super::web;
use crate::{
    commands::doctor::quote,
    connect::{
        arguments::LinkArgs,
        peer::Peer as OtherEnd,
        place::Place,
        setup::{Needs, connect_without_routes},
    },
    failure::Failure,
    output::{
        json::{Object, hinted_outcome, print_document},
        logging, stdout,
        terminal::Terminal,
    },
    process::runtime,
    text::{known, link_text, quantity::Speed, shown, table::aligned},
};

/// Show which cables a copy to a machine would use, which not, and why; without HOST, the
/// interfaces of this machine
///
/// Connects over each link as a copy would, but copies nothing, installs no routes and changes
/// nothing.
#[derive(Debug, Args)]
#[command(
    mut_arg("link", |link| link.help("Check only this link; may be repeated"))
)]
pub(crate) struct Links {
    /// Machine that runs `nicstripe serve`, by name or address; USER@HOST for ssh; or the URL of a
    /// file at a web server
    #[arg(value_name = "HOST")]
    host: Option<OtherEnd>,

    #[command(flatten)]
    links: LinkArgs,

    /// Print one JSON document on standard output (docs/schema/links.schema.json)
    #[arg(long)]
    json: bool,
}

impl Links {
    pub(crate) fn run(self, terminal: &Terminal) -> Result<(), Failure> {
        let found = self.find(terminal);
        if self.json {
            let document = Object::default()
                .with("schema", SCHEMA)
                .and(hinted_outcome(found.as_ref().err()))
                .and(found.as_ref().map_or_else(|_| Object::default(), document));
            return print_document(&document).and(found.map(drop));
        }
        match found? {
            Found::Here(interfaces) => print_here(&interfaces),
            #[cfg(feature = "web")]
            Found::Web(found) => web::print_survey(&found.0, &found.1),
            Found::Survey(found) => {
                let (host, peer, survey) = *found;
                let port = self.links.port(host.port);
                print_survey(&host.to_string(), port, &peer, &survey)
            }
        }
    }

    fn find(&self, terminal: &Terminal) -> Result<Found, Failure> {
        logging::start(terminal)?;
        self.links.check()?;
        match self.host.clone() {
            None => Ok(Found::Here(local_interfaces()?)),
            Some(OtherEnd::Daemon(host)) => {
                let (peer, survey) = runtime::run(self.look(&host))?;
                Ok(Found::Survey(Box::new((host, peer, survey))))
            }
            #[cfg(feature = "web")]
            Some(OtherEnd::Web(url)) => {
                let survey = runtime::run(web::survey(&url, &self.links))?;
                Ok(Found::Web(Box::new((url, survey))))
            }
        }
    }

    async fn look(&self, place: &Place) -> Result<(Peer, LinkSurvey), Failure> {
        let connected = connect_without_routes(place, &self.links, &Needs::default()).await?;
        let peer = connected.client.peer().await?;
        let peer = (peer.key, peer.name);
        let survey = connected.client.links().await?;
        connected.close().await;
        Ok((peer, survey))
    }
}

/// Interfaces of this machine, or the links to another.
enum Found {
    Here(Vec<LocalInterface>),
    Survey(Box<(Place, Peer, LinkSurvey)>),
    #[cfg(feature = "web")]
    Web(Box<(nicstripe_web::WebUrl, nicstripe_web::Survey)>),
}

/// Key of the peer at the other end of the links, and its name in the peers file.
type Peer = (PublicKey, Option<String>);

fn print_survey(
    host: &str,
    port: u16,
    (key, name): &Peer,
    survey: &LinkSurvey,
) -> Result<(), Failure> {
    let name = name.as_deref().unwrap_or(host);
    stdout::line(format_args!("{} ({})", shown(name), key.fingerprint()))?;
    let heads = [
        "link", "address", "why", "MTU", "speed", "expected", "state",
    ];
    let unused = |unused: &UnusedInterface| {
        let side = if unused.is_peers { "there" } else { "here" };
        format!(
            "  {side} {}: {}",
            shown(&unused.interface),
            shown(&unused.why)
        )
    };
    let title = (!survey.unused.is_empty()).then(|| "not used:".to_owned());
    let remedies = quote::remedies(survey, Some(port)).into_iter();
    let causes = quote::of_survey(survey).into_iter();
    let notes = survey.links.iter().flat_map(notes);
    aligned(heads, survey.links.iter().map(row))
        .into_iter()
        .chain(notes.map(|note| format!("  {note}")))
        .chain(title)
        .chain(survey.unused.iter().map(unused))
        .chain(remedies.map(|remedy| format!("  remedy {remedy}")))
        .chain(causes.map(|cause| format!("  doctor {cause}")))
        .try_for_each(stdout::line)?;
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
    let speeds = [link.line_rate, link.peer_line_rate];
    let mtu = link.path_mtu.map_or_else(
        || link.mtu.to_string(),
        |through| format!("{} ({through})", link.mtu),
    );
    [
        link_text::ends(&link.link),
        link.link.remote.to_string(),
        reason(link.reason).0.to_owned(),
        mtu,
        known(speeds.into_iter().flatten().min()),
        known(link.theory.map(Speed)),
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
            format!("down: {}", shown(why))
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
    let name = shown(&link.link.interface);
    let mut notes = Vec::new();
    for (side, members) in [("here", &link.members), ("there", &link.peer_members)] {
        if !members.is_empty() {
            let members = members.iter().map(shown).collect::<Vec<_>>().join(", ");
            let streams = link.streams;
            notes.push(format!(
                "{name}: bond {side} of {members}, {streams} connections"
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
    let row = |interface: &LocalInterface| {
        let addresses = match addresses(interface) {
            none if none.is_empty() => "none".to_owned(),
            addresses => addresses.join(" "),
        };
        let left_out = interface.left_out.as_ref();
        [
            shown(&interface.name),
            addresses,
            interface.mtu.to_string(),
            known(interface.line_rate),
            left_out.map_or_else(|| "link".to_owned(), |why| format!("not used: {why}")),
        ]
    };
    let heads = ["interface", "addresses", "MTU", "speed", "use"];
    let lines = aligned(heads, interfaces.iter().map(row));
    lines.into_iter().try_for_each(stdout::line)
}

/// Returns the addresses of an interface, each with the length of its prefix.
fn addresses(interface: &LocalInterface) -> Vec<String> {
    let addresses = interface.addresses.iter();
    addresses.map(|(ip, len)| format!("{ip}/{len}")).collect()
}

/// Returns the fields of the document of `nicstripe links`, described in
/// `docs/schema/links.schema.json`.
fn document(found: &Found) -> Object {
    match found {
        Found::Here(interfaces) => Object::default().list("interfaces", interfaces, of_interface),
        #[cfg(feature = "web")]
        Found::Web(found) => web::document(&found.0, &found.1),
        Found::Survey(found) => {
            let (host, (key, name), survey) = &**found;
            Object::default()
                .with("host", host.to_string())
                .with("peer_key", key.to_string())
                .with("peer_name", name)
                .with("theory_bps", bps(survey.expected))
                .list("links", &survey.links, of_link)
                .list("unused", &survey.unused, of_unused)
        }
    }
}

fn of_link(link: &SurveyedLink) -> Object {
    let family = match link.link.remote.is_ipv4() {
        true => "ipv4",
        false => "ipv6",
    };
    Object::of(&link.link)
        .with("chosen_for", reason(link.reason).1)
        .and(Object::of(&link.state))
        .with("verified", link.verified)
        .with("family", family)
        .with("mtu", link.mtu)
        .with("path_mtu", link.path_mtu)
        .with("line_rate_bps", bps(link.line_rate))
        .with("peer_line_rate_bps", bps(link.peer_line_rate))
        .with("theory_bps", bps(link.theory))
        .with("streams", link.streams)
        .with("members", any(&link.members))
        .with("peer_members", any(&link.peer_members))
        .with("route", link.route)
}

fn of_unused(unused: &UnusedInterface) -> Object {
    Object::default()
        .with("side", if unused.is_peers { "peer" } else { "here" })
        .with("interface", &unused.interface)
        .with("why", &unused.why)
        .with("failed", unused.failed)
}

fn of_interface(interface: &LocalInterface) -> Object {
    Object::default()
        .with("interface", &interface.name)
        .with("addresses", addresses(interface))
        .with("mtu", interface.mtu)
        .with("line_rate_bps", bps(interface.line_rate))
        .with("is_link", interface.left_out.is_none())
        .with("why", &interface.left_out)
        .with("members", any(&interface.members))
}

fn bps(rate: Option<BitRate>) -> Option<u64> {
    rate.map(|rate| rate.0)
}

/// Returns the members of a bond; `None` if the interface is no bond.
fn any(members: &[String]) -> Option<&[String]> {
    Some(members).filter(|members| !members.is_empty())
}

const SCHEMA: &str = "nicstripe-links/1";
