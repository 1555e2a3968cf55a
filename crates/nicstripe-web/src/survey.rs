//! Links to a web server without a copy: which of them answer, and what they carry.

use std::{
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use nicstripe::{Event, Progress};
use nicstripe_link::{Interface, interfaces};
use nicstripe_proto::BitRate;
use parking_lot::Mutex;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::{
    ask::{Found, Link},
    clock::now,
    contact::{agree, ask_all},
    error::{LinkError, WebError},
    fetch::Fetch,
    links::Links,
    options::FetchOptions,
    url::WebUrl,
};

/// Answers of a server over each interface.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Survey {
    /// Interfaces over which the server was asked.
    pub links: Vec<SurveyedLink>,
    /// Interfaces that are not used, each with the reason.
    pub unused: Vec<(String, String)>,
    /// Size of the file in bytes; `None` if the server does not tell it, or does not answer.
    pub size: Option<u64>,
    /// True if the file can be fetched in parts over several links.
    pub has_parts: bool,
}

/// Answer of a server over one interface.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SurveyedLink {
    /// Name of the interface.
    pub interface: String,
    /// Host of the URL.
    pub host: String,
    /// Address that answered; that of the proxy if any.
    pub remote: Option<IpAddr>,
    /// Version of HTTP, such as `HTTP/2.0`.
    pub protocol: Option<String>,
    /// Time to the answer, with lookup, connection and TLS.
    pub answered_after: Option<Duration>,
    /// Rate of the interface.
    pub line_rate: Option<BitRate>,
    /// Why the link is of no use; `None` if it is.
    pub why: Option<String>,
    /// Remedy, if this machine knows one.
    pub remedy: Option<String>,
}

impl Survey {
    /// Asks the server over each interface that may lead to it. Of the options `links`, `excluded`,
    /// `headers`, `cookies`, `netrc`, `mirrors` and `patience` count.
    ///
    /// # Errors
    ///
    /// No interface may lead to the server. That none has an answer is no error.
    pub async fn of(url: &WebUrl, options: &FetchOptions) -> Result<Self, WebError> {
        let Links { links, left_out } = options.links(url).await?;
        let answers = ask_all(&links, options.patience).await;
        let agreed = agree(&links, &answers);
        let here = interfaces().unwrap_or_default();
        let known = agreed.as_ref().and_then(|agreed| agreed.found.remote);
        let surveyed = links.iter().zip(answers).map(|(link, answer)| {
            let silent = || Err(LinkError::Silent(options.patience.as_secs()));
            let found = answer.unwrap_or_else(silent);
            let joined = found.clone().and_then(|found| match &agreed {
                Some(agreed) if agreed.found.can_be_dealt() => agreed.joined(link, found),
                _ => Ok(found),
            });
            let interface = here.iter().find(|one| one.is_called(&link.interface));
            surveyed(link, found.ok().as_ref(), joined.err(), interface, known)
        });
        Ok(Self {
            links: surveyed.collect(),
            unused: left_out,
            size: agreed.as_ref().and_then(|agreed| agreed.found.version.size),
            has_parts: agreed.is_some_and(|agreed| agreed.found.can_be_dealt()),
        })
    }
}

fn surveyed(
    link: &Link,
    found: Option<&Found>,
    error: Option<LinkError>,
    interface: Option<&Interface>,
    known: Option<IpAddr>,
) -> SurveyedLink {
    let has_no_way = matches!(error, Some(LinkError::Connection(_) | LinkError::Silent(_)));
    let remedy = known.zip(interface).filter(|_| has_no_way);
    SurveyedLink {
        interface: link.interface.clone(),
        host: link.asked.url.host().to_owned(),
        remote: found.and_then(|found| found.remote),
        protocol: found.map(|found| format!("{:?}", found.protocol)),
        answered_after: found.map(|found| found.took),
        line_rate: interface
            .and_then(|interface| interface.speed)
            .map(|rate| BitRate(rate.0)),
        why: error.map(|error| error.to_string()),
        remedy: remedy.map(|(remote, interface)| remedy_of(remote, interface)),
    }
}

/// Says what an interface lacks that does not reach an address which another one reaches.
fn remedy_of(remote: IpAddr, interface: &Interface) -> String {
    let name = &interface.name;
    let of_family = interface
        .addresses
        .iter()
        .filter(|own| own.ip.is_ipv4() == remote.is_ipv4());
    let own: Vec<String> = of_family
        .map(|own| format!("{}/{}", own.ip, own.prefix_len))
        .collect();
    if own.is_empty() {
        let family = if remote.is_ipv4() { "IPv4" } else { "IPv6" };
        return format!("{name} needs an {family} address and a gateway to {remote}");
    }
    if interface.addresses.iter().any(|own| own.is_on_link(remote)) {
        return format!(
            "{remote} should be on the cable of {name}: check cable, switch and firewall"
        );
    }
    format!(
        "{name} ({}) needs a gateway to {remote}, such as a second default route with another metric; \
         or the server an address in that subnet",
        own.join(", ")
    )
}

/// Rates of an interface from a server.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct MeasuredLink {
    /// Name of the interface.
    pub interface: String,
    /// Rate while no other interface was used; `None` if nothing arrived.
    pub alone: Option<BitRate>,
    /// Rate while all were used; `None` if nothing arrived.
    pub together: Option<BitRate>,
}

/// Fetches the file over each interface alone, and over all together, each for `time`, and keeps
/// nothing of it. A smaller file is fetched again and again. `stop` ends the measurement.
///
/// # Errors
///
/// No interface reaches the file, or it cannot be fetched in parts.
pub async fn measure(
    url: &WebUrl,
    options: &FetchOptions,
    time: Duration,
    stop: &CancellationToken,
) -> Result<Vec<MeasuredLink>, WebError> {
    let survey = Survey::of(url, options).await?;
    let usable = survey.links.iter().filter(|link| link.why.is_none());
    let mut names: Vec<String> = usable.map(|link| link.interface.clone()).collect();
    names.dedup();
    let mut measured = Vec::new();
    for interface in &names {
        let options = FetchOptions {
            links: vec![interface.clone()],
            ..options.clone()
        };
        let rates = rates(url, &options, time, stop).await?;
        measured.push(MeasuredLink {
            interface: interface.clone(),
            alone: rates.into_iter().map(|(_, rate)| rate).next(),
            together: None,
        });
    }
    let together = rates(url, options, time, stop).await?;
    for link in &mut measured {
        let found = together.iter().find(|(name, _)| *name == link.interface);
        link.together = found.map(|(_, rate)| *rate);
    }
    Ok(measured)
}

/// Bytes of each link, at two times.
#[derive(Default)]
struct Window {
    /// Bytes of earlier fetches of the same file.
    before: Vec<(String, u64)>,
    latest: Vec<(String, u64)>,
    first: Option<(Instant, Vec<(String, u64)>)>,
    last: Option<(Instant, Vec<(String, u64)>)>,
}

impl Window {
    fn hear(&mut self, progress: &Progress, at: Instant, begins: Instant) {
        self.latest = progress
            .links
            .iter()
            .map(|link| (link.link.interface.clone(), link.bytes))
            .collect();
        let total = sum(&self.before, &self.latest);
        if at >= begins {
            self.first.get_or_insert_with(|| (at, total.clone()));
            self.last = Some((at, total));
        }
    }

    fn rates(&self) -> Vec<(String, BitRate)> {
        let (Some((from, first)), Some((to, last))) = (&self.first, &self.last) else {
            return Vec::new();
        };
        let rate = |(name, bytes): &(String, u64)| {
            let found = first.iter().find(|(other, _)| other == name);
            let moved = bytes - found.map_or(0, |(_, bytes)| *bytes);
            (moved > 0).then(|| (name.clone(), BitRate::from_bytes_over(moved, *to - *from)))
        };
        last.iter().filter_map(rate).collect()
    }
}

fn sum(one: &[(String, u64)], other: &[(String, u64)]) -> Vec<(String, u64)> {
    let mut all = one.to_vec();
    for (name, bytes) in other {
        match all.iter_mut().find(|(known, _)| known == name) {
            Some((_, sum)) => *sum += bytes,
            None => all.push((name.clone(), *bytes)),
        }
    }
    all
}

async fn rates(
    url: &WebUrl,
    options: &FetchOptions,
    time: Duration,
    stop: &CancellationToken,
) -> Result<Vec<(String, BitRate)>, WebError> {
    let begun = now();
    let window = Arc::new(Mutex::new(Window::default()));
    let ended = stop.child_token();
    let clock = async {
        sleep(WARM_UP + time).await;
        ended.cancel();
    };
    let fetching = async {
        while !ended.is_cancelled() {
            let heard = window.clone();
            let tell = move |event| {
                if let Event::Progress(progress) = event {
                    heard.lock().hear(&progress, now(), begun + WARM_UP);
                }
            };
            let fetch = Fetch::new(url.clone(), options.clone());
            let fetched = fetch
                .into_stream(&mut tokio::io::sink(), ended.clone(), tell)
                .await;
            let window = &mut *window.lock();
            window.before = sum(&window.before, &std::mem::take(&mut window.latest));
            match fetched {
                Err(WebError::Cancelled { .. }) => break,
                Err(error) => return Err(error),
                Ok(_) => {}
            }
        }
        Ok(())
    };
    tokio::select! {
        fetched = fetching => fetched?,
        () = clock => {}
    }
    if stop.is_cancelled() {
        return Err(WebError::Cancelled { resumable: false });
    }
    let rates = window.lock().rates();
    Ok(rates)
}

/// Begin of a measurement that does not count.
const WARM_UP: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use nicstripe::{LinkName, LinkProgress};
    use nicstripe_link::{InterfaceAddress, InterfaceIndex, InterfaceKind};

    use super::*;

    #[test]
    fn what_an_interface_lacks_is_said() {
        let mut interface = Interface::new(
            InterfaceIndex(2),
            "eth1".parse().unwrap(),
            InterfaceKind::Ethernet,
        );
        let remote = [192, 0, 2, 7].into();
        assert!(remedy_of(remote, &interface).contains("needs an IPv4 address"));
        interface.addresses = vec![InterfaceAddress::new([10, 0, 1, 1].into(), 24)];
        let remedy = remedy_of(remote, &interface);
        assert!(remedy.contains("needs a gateway to 192.0.2.7"), "{remedy}");
        interface.addresses = vec![InterfaceAddress::new([192, 0, 2, 1].into(), 24)];
        assert!(remedy_of(remote, &interface).contains("check cable"));
    }

    #[test]
    #[allow(clippy::disallowed_methods)]
    fn a_rate_is_that_of_the_window_over_all_fetches() {
        let (start, mut window) = (Instant::now(), Window::default());
        let at = |seconds| start + Duration::from_secs(seconds);
        let progress = |bytes| {
            let mut of = LinkProgress::new(LinkName::new("eth1".to_owned(), [1, 1, 1, 1].into()));
            of.bytes = bytes;
            let mut progress = Progress::default();
            progress.links.push(of);
            progress
        };
        window.hear(&progress(500), at(0), at(1));
        window.hear(&progress(1000), at(1), at(1));
        window.before = sum(&window.before, &std::mem::take(&mut window.latest));
        window.hear(&progress(3000), at(4), at(1));
        assert_eq!(window.rates(), [("eth1".to_owned(), BitRate(8000))]);
    }
}
