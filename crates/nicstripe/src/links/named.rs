//! Planning of links that the user named, and of the first connection's role.

use nicstripe_link::Interface;
use nicstripe_proto::pairing::{Candidate, Preference};
use tokio::time::Instant;

use super::{
    contact::Contact,
    local,
    plan::{Facts, is_meant},
    probes::Probes,
    request::LinkRequest,
};
use crate::{report::error::Error, session::PathPlan};

impl Contact<'_> {
    /// Plans the paths of the links that the user named, except the one of the first connection.
    pub(crate) async fn named(
        &self,
        facts: &Facts<'_>,
        here: &[Interface],
        first: &PathPlan,
    ) -> Result<Vec<PathPlan>, Error> {
        let requests = self
            .settings
            .links
            .get(usize::from(first.named)..)
            .unwrap_or_default();
        if requests.is_empty() {
            return Ok(Vec::new());
        }
        let reached = self.reached(facts, requests).await;
        facts.named(requests, here, first, &reached)
    }

    /// Returns the address pairs that match the named links. Pairs of link-local addresses must
    /// answer a probe.
    async fn reached(&self, facts: &Facts<'_>, requests: &[LinkRequest]) -> Vec<Candidate> {
        let is_wanted =
            |candidate: &Candidate| requests.iter().any(|request| is_meant(request, candidate));
        let is_unsure = |candidate: &Candidate| candidate.preference == Preference::LinkLocal;
        let mut candidates: Vec<Candidate> =
            facts.candidates().into_iter().filter(is_wanted).collect();
        let unsure: Vec<Candidate> = candidates
            .iter()
            .filter(|candidate| is_unsure(candidate))
            .cloned()
            .collect();
        let answering = Probes::new(self.settings.port, Instant::now())
            .answering(&unsure)
            .await;
        candidates.retain(|candidate| !is_unsure(candidate) || answering.contains(&candidate.id()));
        candidates
    }

    /// Decides if the first connection carries data or only serves to reach the peer.
    ///
    /// # Errors
    ///
    /// Its interface is excluded and there is no other candidate.
    pub(crate) fn judge(
        &self,
        facts: &Facts<'_>,
        here: &[Interface],
        verified: Option<bool>,
        first: &mut PathPlan,
    ) -> Result<(), Error> {
        if first.named || !self.settings.links.is_empty() {
            return Ok(());
        }
        let is_candidate = facts
            .local
            .iter()
            .any(|interface| interface.name == first.interface && interface.candidate);
        let candidates = facts.candidates();
        if is_candidate && verified != Some(false) && !has_better(first, &candidates) {
            return Ok(());
        }
        let interface = local::find(here, &first.interface);
        let left_out =
            interface.is_some_and(|interface| local::is_among(interface, &self.settings.excluded));
        let has_others = !candidates.is_empty();
        if left_out && !has_others {
            let why = "excluded by option, and no other link reaches the peer";
            return Err(Error::link(&first.interface, why));
        }
        first.contact_only = has_others;
        first.no_data = left_out;
        Ok(())
    }
}

/// Returns true if the two interfaces of the first connection also have a more preferred address
/// pair. A peer found on a cable has an IPv6 address, and an address in a shared subnet may work by
/// chance.
fn has_better(first: &PathPlan, candidates: &[Candidate]) -> bool {
    let is_same_pair = |candidate: &&Candidate| {
        candidate.local.interface == first.interface
            && Some(&candidate.remote.interface) == first.peer_interface.as_ref()
    };
    let mut same_pair = candidates.iter().filter(is_same_pair);
    let own = same_pair
        .clone()
        .find(|candidate| candidate.remote.address == first.remote.ip());
    own.is_some_and(|own| same_pair.any(|other| other.preference < own.preference))
}
