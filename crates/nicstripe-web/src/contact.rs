//! First answers over all links, and which version of the file they agree on.

use std::time::Duration;

use tokio::{task::JoinSet, time::sleep_until};

use crate::{
    answer::Version,
    ask::{Found, Link},
    clock::now,
    error::{Breach, LinkError},
    moving::Pauses,
};

/// Answers of all links, in their order; `None` for a link that has not answered in time.
pub(crate) type Answers = Vec<Option<Result<Found, LinkError>>>;

/// Asks over all links at once. Once one has answered, the others have a second.
pub(crate) async fn ask_all(links: &[Link], patience: Duration) -> Answers {
    let patience = patience.min(FIRST_CONTACT);
    let mut found: Vec<_> = links.iter().map(|_| None).collect();
    let mut asking = JoinSet::new();
    for (index, link) in links.iter().enumerate() {
        let link = link.clone();
        asking.spawn(async move { (index, ask(&link, patience).await) });
    }
    let mut until = now() + FIRST_CONTACT + Duration::from_secs(30);
    loop {
        tokio::select! {
            answer = asking.join_next() => match answer {
                None => return found,
                Some(Err(_)) => {}
                Some(Ok((index, answer))) => {
                    let others = match &answer {
                        Ok(answer) if answer.can_be_dealt() => Some(OTHERS_TIME),
                        // A login page answers sooner than the server behind a slower link.
                        Ok(_) => Some(OTHERS_TIME_IN_DOUBT),
                        Err(error) => error.is_final().then_some(OTHERS_TIME_IN_DOUBT),
                    };
                    until = others.map_or(until, |others| until.min(now() + others));
                    found[index] = Some(answer);
                }
            },
            () = sleep_until(until.into()) => return found,
        }
    }
}

/// Asks over one link until it answers, or nothing is to be expected.
async fn ask(link: &Link, patience: Duration) -> Result<Found, LinkError> {
    let begun = now();
    let mut pauses = Pauses::default();
    loop {
        let answer = link.asked.find(link).await;
        let error = match &answer {
            Ok(_) => return answer,
            Err(error) => error,
        };
        let wait = pauses.after(error);
        if error.is_final() || now() - begun + wait >= patience {
            return answer;
        }
        tracing::debug!(interface = link.interface, %error, "asks again");
        tokio::time::sleep(wait).await;
    }
}

pub(crate) fn causes(links: &[Link], answers: Answers) -> Vec<(String, LinkError)> {
    let cause = |(link, answer): (&Link, Option<Result<Found, LinkError>>)| {
        let silent = || Err(LinkError::Silent(FIRST_CONTACT.as_secs()));
        let error = answer.unwrap_or_else(silent).err()?;
        Some((link.shown(), error))
    };
    links.iter().zip(answers).filter_map(cause).collect()
}

/// Version and size that most answers agree on.
pub(crate) struct Agreed {
    /// Number of the link whose answer stands for all.
    pub(crate) link: usize,
    pub(crate) found: Found,
    /// Version at each URL; `None` for a URL without an answer, or whose file has another size.
    pub(crate) versions: Vec<Option<Version>>,
}

/// Chooses for each URL the version that most links have: one of them may lead to another server, or
/// into a captive portal. Of equally many, the first one that has parts. Of several URLs, the size that
/// most of them have counts, or else that of the first. Returns `None` if no link has an answer.
pub(crate) fn agree(links: &[Link], answers: &Answers) -> Option<Agreed> {
    let sources = links.iter().map(|link| link.source + 1).max()?;
    let of_source = |source: usize| {
        let all = links.iter().zip(answers).enumerate();
        let of = all.filter_map(move |(index, (link, answer))| {
            let found = answer.as_ref()?.as_ref().ok()?;
            (link.source == source).then_some((index, found))
        });
        let of: Vec<_> = of.collect();
        let votes = |one: &Found| {
            of.iter()
                .filter(|(_, other)| other.version == one.version)
                .count()
        };
        let best = of
            .iter()
            .rev()
            .max_by_key(|(_, found)| (votes(found), found.can_be_dealt()));
        best.map(|(index, found)| (*index, (*found).clone()))
    };
    let best: Vec<_> = (0..sources).map(of_source).collect();
    let has = |size: Option<u64>| {
        let of = best.iter().flatten();
        of.filter(|(_, found)| found.version.size == size).count()
    };
    let (link, found) = best
        .iter()
        .flatten()
        .rev()
        .max_by_key(|(_, found)| (has(found.version.size), found.can_be_dealt()))
        .cloned()?;
    let is_of_one_size = |version: &Version| version.size == found.version.size;
    let versions = best
        .iter()
        .map(|best| {
            best.as_ref()
                .map(|(_, found)| found.version.clone())
                .filter(is_of_one_size)
        })
        .collect();
    Some(Agreed {
        link,
        found,
        versions,
    })
}

impl Agreed {
    /// Returns an answer over a link if its bytes can be joined with those of the others.
    pub(crate) fn joined(&self, link: &Link, found: Found) -> Result<Found, LinkError> {
        let version = self.versions[link.source].as_ref();
        match version == Some(&found.version) && found.can_be_dealt() {
            true => Ok(found),
            false => Err(Breach::OtherVersion(found.version.to_string()).into()),
        }
    }
}

/// Time that other links have to answer after one that has parts.
const OTHERS_TIME: Duration = Duration::from_secs(1);

/// Time that they have after another answer.
const OTHERS_TIME_IN_DOUBT: Duration = Duration::from_secs(5);

/// Time after which a server that no link has reached is given up.
pub(crate) const FIRST_CONTACT: Duration = Duration::from_secs(15);
