//! State of a running copy, updated by its events and formatted as text. Drawing it is up to
//! `bars`.

use std::time::Duration;

use nicstripe::{
    BitRate, Event, FileCounts, LinkName, LinkProgress, LinkState, Progress, Report, TreeReport,
    trust::PublicKey,
};

use crate::{
    connect::setup::{queued, stalled, unreachable},
    text::{
        link_text::counted,
        quantity::{Clock, Size, Speed},
        shown,
    },
};

/// Kind of a transfer, as its progress shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Single file, whose size is known from the start.
    File,
    Tree,
    /// Stream, which cannot be resumed.
    Pipe,
}

/// State of a copy as the user sees it, built from its events.
#[derive(Debug, Clone, Default)]
pub(crate) struct View {
    /// Public key of the daemon, and its name in the peers file.
    pub(crate) peer: Option<(PublicKey, Option<String>)>,
    /// Last reported progress. `None` until the size of the copy is known.
    pub(crate) progress: Option<Progress>,
    /// Progress of each known link. Those in the last reported progress come first, in planning order.
    pub(crate) links: Vec<LinkProgress>,
    /// Links that were reported down, and whose cables carry nothing since.
    pub(super) lost: Vec<LinkName>,
    /// Time without any connected link; `None` while one is connected.
    pub(crate) waiting: Option<Duration>,
    /// True if a pipe is copied, which cannot be resumed.
    pub(crate) is_pipe: bool,
    /// Duration of the copy, once finished.
    pub(crate) done: Option<Duration>,
}

impl View {
    /// Updates the state by an event. Returns a message if the user must see one immediately.
    pub(crate) fn apply(&mut self, event: &Event) -> Option<Notice> {
        match event {
            Event::Connected { key, name } => {
                self.peer = Some((*key, name.clone()));
                None
            }
            Event::Link { link, state } => self.on_link(link, state),
            Event::Started { size, resumed } => {
                let progress = self.progress.insert(Progress::default());
                (progress.bytes, progress.resumed) = (*resumed, *resumed);
                progress.size = *size;
                (*resumed > 0).then(|| {
                    Notice::Told(format!("resuming at {} of {}", Size(*resumed), Size(*size)))
                })
            }
            Event::Progress(progress) => {
                self.on_progress(progress);
                None
            }
            Event::Waiting { since } => {
                self.waiting = Some(*since);
                None
            }
            Event::Unreachable { .. } => {
                let on_interrupt = match self.is_pipe {
                    true => "^C ends, a rerun starts from zero",
                    false => "^C keeps what arrived",
                };
                unreachable(event, on_interrupt).map(Notice::Warning)
            }
            Event::Stalled { .. } => stalled(event).map(Notice::Warning),
            Event::Queued { .. } => queued(event).map(Notice::Told),
            Event::Restarted => {
                self.links.iter_mut().for_each(|link| link.bytes = 0);
                Some(Notice::Warning(
                    "received data does not match the source: restarting from zero".to_owned(),
                ))
            }
            _ => None,
        }
    }

    /// Returns one link for each cable, for display: the one in use, with the bytes of all before it.
    pub(crate) fn cables(&self) -> Vec<LinkProgress> {
        let is_shown =
            |link: &LinkProgress| link.bytes > 0 || !matches!(link.state, LinkState::LeftOut(_));
        let links = self.links.iter().filter(|link| is_shown(link));
        let mut sorted: Vec<_> = links.enumerate().collect();
        sorted.sort_by_key(|(_, link)| match link.state {
            LinkState::Up | LinkState::Suspect => 0,
            LinkState::Connecting => 1,
            _ => 2,
        });
        let mut cables: Vec<(usize, LinkProgress)> = Vec::new();
        for (index, link) in sorted {
            let successor = cables.iter_mut().find(|(_, other)| {
                is_one_cable(&other.link, &link.link)
                    || (other.link.interface == link.link.interface
                        && is_connected(&other.state)
                        && !is_connected(&link.state))
            });
            match successor {
                Some((first, other)) => {
                    *first = index.min(*first);
                    other.bytes += link.bytes;
                    other.rate = BitRate(other.rate.0 + link.rate.0);
                }
                None => cables.push((index, link.clone())),
            }
        }
        cables.sort_by_key(|(index, _)| *index);
        cables.into_iter().map(|(_, link)| link).collect()
    }

    /// Applies the final report, which is newer than the last progress. Rates become averages over
    /// the whole copy.
    pub(crate) fn complete(&mut self, report: &Report) {
        let of = |link: &nicstripe::LinkReport| {
            let mut progress = LinkProgress::new(link.link.clone());
            progress.bytes = link.bytes;
            progress.rate = link.goodput;
            progress.state = link.state.clone();
            progress
        };
        let mut progress = Progress::default();
        (progress.bytes, progress.size) = (report.size, report.size);
        progress.files = report.tree.as_ref().map(files_of);
        progress.resumed = report.resumed_bytes;
        progress.rate = report.goodput();
        progress.links = report.links.iter().map(of).collect();
        self.on_progress(&progress);
        self.waiting = None;
        self.done = Some(report.elapsed);
    }

    pub(crate) fn links_up(&self) -> usize {
        self.links
            .iter()
            .filter(|link| link.state == LinkState::Up)
            .count()
    }

    /// Returns the estimated remaining time at the present rate; `None` if the total is unknown.
    pub(crate) fn time_left(&self) -> Option<Duration> {
        let progress = self
            .progress
            .as_ref()
            .filter(|progress| progress.rate > BitRate::ZERO && !progress.open)?;
        Some(
            progress
                .rate
                .time_for(progress.size.saturating_sub(progress.bytes)),
        )
    }

    /// Returns the progress of the copy in one line.
    pub(crate) fn status(&self) -> String {
        let Some(progress) = &self.progress else {
            return match self.peer {
                Some(_) => "connected, opening the file".to_owned(),
                None => "connecting".to_owned(),
            };
        };
        let links = counted(self.links_up());
        let left = self
            .time_left()
            .map(|left| format!(", {} left", Clock(left)))
            .unwrap_or_default();
        format!(
            "{}, {}, {links}{left}",
            amount(progress),
            Speed(progress.rate)
        )
    }

    fn on_link(&mut self, link: &LinkName, state: &LinkState) -> Option<Notice> {
        let index = self.index_of(link);
        let known = &mut self.links[index];
        let before = std::mem::replace(&mut known.state, state.clone());
        known.link = link.clone();
        if *state == LinkState::Up {
            self.waiting = None;
        }
        let cables = self.cables();
        let name = label(link, cables.iter().map(|cable| &cable.link));
        let mut others = self
            .links
            .iter()
            .filter(|other| is_connected(&other.state) && !is_same(&other.link, link));
        match (before, state) {
            (LinkState::Up | LinkState::Suspect, LinkState::Down(why)) => {
                if others.any(|other| is_one_cable(&other.link, link)) {
                    return None;
                }
                self.lost.push(link.clone());
                Some(Notice::Warning(format!("{name} is down: {}", shown(why))))
            }
            (_, LinkState::Up) => {
                let is_only = others.all(|other| other.link.interface != link.interface);
                let was_lost = self.lost.iter().position(|lost| {
                    is_one_cable(lost, link) || (is_only && lost.interface == link.interface)
                });
                self.lost.remove(was_lost?);
                Some(Notice::Told(format!("{name} is up again")))
            }
            // Its interface is used all the same.
            (_, LinkState::LeftOut(_))
                if others.any(|other| other.link.interface == link.interface) =>
            {
                None
            }
            (_, LinkState::LeftOut(why)) => Some(Notice::Detail(format!(
                "{name} is not used: {}",
                shown(why)
            ))),
            _ => None,
        }
    }

    fn on_progress(&mut self, progress: &Progress) {
        let mut links = progress.links.clone();
        links.extend(self.links.drain(..).filter(|known| {
            !progress
                .links
                .iter()
                .any(|link| is_same(&link.link, &known.link))
        }));
        self.links = links;
        if self.links_up() > 0 {
            self.waiting = None;
        }
        self.progress = Some(progress.clone());
    }

    /// Returns the index of a link in `links`. Appends the link if it is unknown.
    fn index_of(&mut self, link: &LinkName) -> usize {
        self.links
            .iter()
            .position(|known| is_same(&known.link, link))
            .unwrap_or_else(|| {
                self.links.push(LinkProgress::new(link.clone()));
                self.links.len() - 1
            })
    }
}

/// Message to print while the copy runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Notice {
    /// Problem that slows the copy down, or may stop it.
    Warning(String),
    /// Information that every user should see.
    Told(String),
    /// Detail that is printed only with `-vv`.
    Detail(String),
}

/// Returns a name for a link: its interface. If several links share the interface, appends the
/// peer's interface, or an address if the peer's is unknown.
pub(crate) fn label<'a>(link: &LinkName, all: impl Iterator<Item = &'a LinkName>) -> String {
    let interface = shown(&link.interface);
    let beside: Vec<&LinkName> = all
        .filter(|other| other.interface == link.interface)
        .collect();
    match &link.peer_interface {
        _ if beside.len() < 2 => interface,
        Some(peer) if !link.remote.is_loopback() => format!("{interface}→{}", shown(peer)),
        _ => format!("{interface} {}", link.local.unwrap_or(link.remote)),
    }
}

/// Returns the progress in whole per cent; 100 only if everything has arrived. `None` while the
/// total is unknown.
pub(crate) fn percent(progress: &Progress) -> Option<u64> {
    match progress.size {
        _ if progress.open => None,
        0 => Some(100),
        size => u64::try_from(u128::from(progress.bytes) * 100 / u128::from(size)).ok(),
    }
}

/// Returns finished and found files, as `12/345 files`, with `≥` while the search continues. `None`
/// if the copy is no tree.
pub(crate) fn files(progress: &Progress) -> Option<String> {
    let FileCounts { done, found } = progress.files?;
    Some(format!(
        "{done}/{}{found} files",
        if progress.open { "≥" } else { "" }
    ))
}

/// Returns the received bytes as text, with the total if known.
fn amount(progress: &Progress) -> String {
    let (bytes, size) = (Size(progress.bytes), Size(progress.size));
    let of = match percent(progress) {
        Some(percent) => format!("{bytes} of {size} ({percent} %)"),
        None if progress.size > 0 => format!("{bytes} of ≥ {size}"),
        None => bytes.to_string(),
    };
    match files(progress) {
        Some(files) => format!("{of}, {files}"),
        None => of,
    }
}

/// Returns the number of finished files, including unchanged ones, and the number of all files
/// found.
fn files_of(tree: &TreeReport) -> FileCounts {
    let done = tree.files + tree.unchanged + tree.newer;
    FileCounts {
        done,
        found: done + tree.failed,
    }
}

fn is_connected(state: &LinkState) -> bool {
    matches!(state, LinkState::Up | LinkState::Suspect)
}

/// Returns true if both links use the same interfaces. On loopback, each pair of addresses is a
/// cable.
fn is_one_cable(one: &LinkName, other: &LinkName) -> bool {
    let is_peers = one.interface == other.interface && one.peer_interface == other.peer_interface;
    is_peers && (one.remote == other.remote || !one.remote.is_loopback())
}

/// Returns true if both names are of the same link: equal local interface and remote address.
fn is_same(one: &LinkName, other: &LinkName) -> bool {
    one.interface == other.interface && one.remote == other.remote
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::commands::cp::summary::tests::report;
    use nicstripe_testkit::with;

    pub(crate) fn link(interface: &str) -> LinkName {
        LinkName::new(interface.into(), "10.0.0.2".parse().unwrap())
    }

    fn progress(bytes: u64, links: &[(&str, u64)]) -> Event {
        let rate = BitRate::from_mbit(8);
        let of = |(interface, bytes): &(&str, u64)| with!(LinkProgress::new(link(interface)), bytes: *bytes, rate: rate, state: LinkState::Up);
        Event::Progress(
            with!(Progress::default(), bytes: bytes, size: 4_000_000, open: false, files: None, resumed: 0, rate: rate, links: links.iter().map(of).collect()),
        )
    }

    pub(crate) fn state(interface: &str, state: LinkState) -> Event {
        let link = link(interface);
        Event::Link { link, state }
    }

    pub(crate) fn connected(name: Option<&str>) -> Event {
        Event::Connected {
            key: PublicKey::from_bytes([1; 32]).unwrap(),
            name: name.map(str::to_owned),
        }
    }

    pub(crate) fn started(size: u64, resumed: u64) -> Event {
        Event::Started { size, resumed }
    }

    pub(crate) fn unreachable(interfaces: &[&str], patience: Option<u64>) -> Event {
        Event::Unreachable {
            host: "nas".into(),
            interfaces: interfaces.iter().map(|name| (*name).into()).collect(),
            since: Duration::from_secs(2),
            patience: patience.map(Duration::from_secs),
        }
    }

    pub(crate) fn queued(most: Option<u32>) -> Event {
        Event::Queued {
            host: "nas".into(),
            since: Duration::from_secs(2),
            most,
        }
    }

    #[test]
    fn the_status_line_says_how_far_it_is_at_every_moment() {
        let mut view = View::default();
        assert_eq!(view.status(), "connecting");
        view.apply(&connected(None));
        assert_eq!(view.status(), "connected, opening the file");
        view.apply(&started(4_000_000, 0));
        assert_eq!(view.status(), "0 B of 3.8 MiB (0 %), 0.0 kB/s, 0 links");
        view.apply(&progress(
            1_000_000,
            &[("eth1", 600_000), ("eth2", 400_000)],
        ));
        assert_eq!(
            view.status(),
            "976.6 KiB of 3.8 MiB (25 %), 1.0 MB/s, 2 links, 0:03 left"
        );
    }

    #[test]
    fn what_is_not_known_yet_is_not_promised() {
        let status = |progress: Progress| {
            let progress = with!(progress, rate: BitRate::from_mbit(8));
            let view = View {
                progress: Some(progress),
                ..View::default()
            };
            view.status()
        };
        let tree = with!(Progress::default(), bytes: 1 << 20, size: 4 << 20, files: Some(FileCounts { done: 12, found: 345 }), open: true);
        assert_eq!(
            status(tree.clone()),
            "1.0 MiB of ≥ 4.0 MiB, 12/≥345 files, 1.0 MB/s, 0 links"
        );
        let found = status(with!(tree, open: false));
        assert_eq!(
            found,
            "1.0 MiB of 4.0 MiB (25 %), 12/345 files, 1.0 MB/s, 0 links, 0:03 left"
        );
        let pipe = with!(Progress::default(), bytes: 1 << 20, open: true);
        assert_eq!(status(pipe), "1.0 MiB, 1.0 MB/s, 0 links");
    }

    #[test]
    fn only_a_link_that_carried_data_is_reported_down_and_up_again() {
        let mut view = View::default();
        let down = || LinkState::Down("no carrier".into());
        assert_eq!(view.apply(&state("eth1", down())), None);
        assert_eq!(view.apply(&state("eth2", LinkState::Up)), None);
        assert_eq!(
            view.apply(&state("eth2", down())),
            Some(Notice::Warning("eth2 is down: no carrier".into()))
        );
        assert_eq!(view.apply(&state("eth2", down())), None);
        assert_eq!(
            view.apply(&state("eth2", LinkState::Up)),
            Some(Notice::Told("eth2 is up again".into()))
        );
        assert_eq!(view.links_up(), 1);
    }

    fn of_cable(interface: &str, peer: &str, remote: &str, state: LinkState) -> Event {
        let link = with!(link(interface), peer_interface: Some(peer.into()), remote: remote.parse().unwrap());
        Event::Link { link, state }
    }

    #[test]
    fn a_cable_has_one_row_and_returns_once_whatever_its_addresses() {
        let mut view = View::default();
        let down = || LinkState::Down("no carrier".into());
        let told = |text: &str| Some(Notice::Told(text.into()));
        let rows = |view: &View| {
            let cables = view.cables();
            let row = |cable: &LinkProgress| (cable.link.interface.clone(), cable.state.clone());
            cables.iter().map(row).collect::<Vec<_>>()
        };
        for (interface, remote) in [("eth1", "10.0.1.2"), ("eth2", "10.0.2.2")] {
            view.apply(&of_cable(interface, interface, remote, LinkState::Up));
        }
        let warning = view.apply(&of_cable("eth2", "eth2", "10.0.2.2", down()));
        assert_eq!(
            warning,
            Some(Notice::Warning("eth2 is down: no carrier".into()))
        );
        let up = |name: &str| (name.to_owned(), LinkState::Up);
        assert_eq!(rows(&view), [up("eth1"), ("eth2".into(), down())]);
        // Its other address is tried meanwhile, and first works.
        let other = |state| of_cable("eth2", "eth2", "fe80::2", state);
        assert_eq!(view.apply(&other(LinkState::Connecting)), None);
        assert_eq!(rows(&view).len(), 2);
        assert_eq!(view.apply(&other(LinkState::Up)), told("eth2 is up again"));
        assert_eq!(rows(&view), [up("eth1"), up("eth2")]);
        assert_eq!(
            view.apply(&of_cable("eth2", "eth2", "10.0.2.2", LinkState::Up)),
            None
        );
        // One of its connections goes, the cable stays.
        assert_eq!(view.apply(&other(down())), None);
        // The card finds another one of the peer.
        view.apply(&of_cable("eth1", "eth1", "10.0.1.2", down()));
        let crossed = of_cable("eth1", "eth3", "fe80::3", LinkState::Up);
        assert_eq!(view.apply(&crossed), told("eth1 is up again"));
        assert_eq!(rows(&view), [up("eth1"), up("eth2")]);
    }

    #[test]
    fn links_on_one_interface_are_told_apart_by_address() {
        let other = with!(link("lo"), local: Some("10.0.0.9".parse().unwrap()));
        let all = [link("lo"), other.clone(), link("eth1")];
        assert_eq!(label(&other, all.iter()), "lo 10.0.0.9");
        assert_eq!(label(&all[0], all.iter()), "lo 10.0.0.2");
        assert_eq!(label(&all[2], all.iter()), "eth1");
    }

    #[test]
    fn links_on_one_interface_are_told_apart_by_the_peers() {
        let to = |peer: &str, remote: &str| with!(link("eth1"), peer_interface: Some(peer.into()), remote: remote.parse().unwrap());
        let elsewhere = [to("eth1", "fe80::1"), to("eth2", "fe80::2")];
        assert_eq!(
            elsewhere
                .each_ref()
                .map(|link| label(link, elsewhere.iter())),
            ["eth1→eth1", "eth1→eth2"]
        );
    }

    #[test]
    fn a_link_that_yields_to_another_of_its_interface_is_no_news() {
        let mut view = View::default();
        let to = |peer: &str, address: &str, state| of_cable("eth2", peer, address, state);
        view.apply(&to("eth1", "10.0.0.1", LinkState::Up));
        view.apply(&to("eth2", "10.0.0.2", LinkState::Up));
        let replaced = || LinkState::LeftOut("replaced by another link".into());
        assert_eq!(view.apply(&to("eth1", "10.0.0.1", replaced())), None);
        let last = view.apply(&to("eth2", "10.0.0.2", replaced()));
        assert!(matches!(last, Some(Notice::Detail(_))), "{last:?}");
    }

    #[test]
    fn a_reason_cannot_move_the_cursor() {
        let mut view = View::default();
        let notice = view.apply(&state("eth1", LinkState::LeftOut("\u{1b}[2J".into())));
        assert_eq!(
            notice,
            Some(Notice::Detail("eth1 is not used: \\u{1b}[2J".into()))
        );
    }

    #[test]
    fn a_wait_without_links_names_what_is_tried_and_ends_with_the_first_link() {
        let mut view = View::default();
        let waiting = |seconds| Event::Waiting {
            since: Duration::from_secs(seconds),
        };
        assert_eq!(view.apply(&waiting(2)), None);
        let unreachable = unreachable(&["eth1", "eth2"], Some(600));
        let text = "nas is unreachable on eth1, eth2; trying for 10 min, ^C keeps what arrived";
        assert_eq!(view.apply(&unreachable), Some(Notice::Warning(text.into())));
        assert!(view.waiting.is_some());
        let mut piped = View {
            is_pipe: true,
            ..View::default()
        };
        let text = text.replace("keeps what arrived", "ends, a rerun starts from zero");
        assert_eq!(piped.apply(&unreachable), Some(Notice::Warning(text)));
        view.apply(&state("eth1", LinkState::Up));
        assert_eq!(view.waiting, None);
    }

    #[test]
    fn a_first_contact_without_an_answer_names_what_is_tried() {
        for (interfaces, text) in [
            (
                &["eth1", "eth2"][..],
                "nas does not answer on eth1, eth2; still trying, ^C ends",
            ),
            (&[], "nas does not answer; still trying, ^C ends"),
        ] {
            let told = View::default().apply(&unreachable(interfaces, None));
            assert_eq!(told, Some(Notice::Warning(text.into())));
        }
    }

    #[test]
    fn a_wait_for_a_place_says_how_many_there_are() {
        let told = |text: &str| Some(Notice::Told(text.into()));
        assert_eq!(
            View::default().apply(&queued(Some(64))),
            told("waiting for nas: limit of 64 sessions reached")
        );
        let no_number = told("waiting for nas: connection limit reached");
        assert_eq!(View::default().apply(&queued(None)), no_number);
    }

    #[test]
    fn links_are_in_the_order_of_the_last_progress() {
        let mut view = View::default();
        for interface in ["eth3", "eth2", "wlan0"] {
            view.apply(&state(interface, LinkState::Up));
        }
        view.apply(&progress(5, &[("eth1", 1), ("eth2", 2), ("eth3", 2)]));
        let names: Vec<&str> = view
            .links
            .iter()
            .map(|link| link.link.interface.as_str())
            .collect();
        assert_eq!(names, ["eth1", "eth2", "eth3", "wlan0"]);
    }

    #[test]
    fn what_is_done_is_whole_whatever_the_last_progress_said() {
        let mut view = View::default();
        view.apply(&progress(1_000_000, &[("eth1", 1_000_000)]));
        let report = report();
        view.complete(&report);
        assert_eq!(view.progress.as_ref().and_then(percent), Some(100));
        assert_eq!(
            view.links.iter().map(|link| link.bytes).sum::<u64>(),
            report.size
        );
        assert_eq!(view.done, Some(report.elapsed));
    }

    #[test]
    fn an_empty_file_is_whole_from_the_start() {
        assert_eq!(percent(&Progress::default()), Some(100));
        assert_eq!(
            percent(&with!(Progress::default(), bytes: 999, size: 1000)),
            Some(99)
        );
    }
}
