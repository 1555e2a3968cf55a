//! Text for users about a path or a pair of interfaces: one cause, one sentence.

use nicstripe_proto::{
    PathLoss,
    message::Idle,
    pairing::{Candidate, Failure, Obstacle},
    path::{Cause, PathPlan, PathStatus},
};

use super::event::{LinkName, LinkState};

impl From<&PathPlan> for LinkName {
    fn from(plan: &PathPlan) -> Self {
        Self {
            interface: plan.interface.clone(),
            peer_interface: plan.peer_interface.clone(),
            local: plan.local,
            remote: plan.remote.ip(),
        }
    }
}

pub(crate) fn state_of(plan: &PathPlan, status: &PathStatus) -> LinkState {
    match status {
        PathStatus::Connecting => LinkState::Connecting,
        PathStatus::Up => LinkState::Up,
        PathStatus::Suspect => LinkState::Suspect,
        PathStatus::Down(cause) => LinkState::Down(cause_text(plan, cause)),
        PathStatus::LeftOut(cause) => LinkState::LeftOut(cause_text(plan, cause)),
    }
}

/// Returns the state of a link that carried data and yielded to another.
pub(crate) fn replaced() -> LinkState {
    LinkState::LeftOut(REPLACED.to_owned())
}

const REPLACED: &str = "replaced by another link";

pub(crate) fn cause_text(plan: &PathPlan, cause: &Cause) -> String {
    let text = match cause {
        Cause::Lost(loss) => loss_text(*loss),
        Cause::NotConnected(text) => return text.clone(),
        Cause::WrongInterface { arrived } => {
            let meant = plan
                .peer_interface
                .as_deref()
                .unwrap_or("another interface");
            return wrong_interface(meant, arrived);
        }
        Cause::Replaced => REPLACED,
        Cause::ContactOnly => "used for the first contact only",
        Cause::NotInTime => "still connecting when the transfer ended",
    };
    text.to_owned()
}

fn loss_text(loss: PathLoss) -> &'static str {
    match loss {
        PathLoss::Unreachable => "could not connect",
        PathLoss::CarrierLost => "no carrier: cable unplugged or peer's port down",
        PathLoss::Silent => "nothing heard from the peer for 1.5 s or longer",
        PathLoss::Reset => "connection closed",
        PathLoss::Protocol => "peer violated the protocol",
        PathLoss::Damaged => "damaged data: check cable, card and switch",
        _ => "lost",
    }
}

fn wrong_interface(meant: &str, arrived: &str) -> String {
    format!("sent to {meant}, arrives on the peer's {arrived} (ARP flux)")
}

/// Returns why an address pair carries nothing.
pub(crate) fn failure_text(candidate: &Candidate, failure: &Failure) -> String {
    let there = &candidate.remote.interface;
    let text = match failure {
        Failure::Unreachable(obstacle) => match obstacle {
            Obstacle::Silence => "no answer",
            Obstacle::Refused => {
                return format!("refused: no daemon listens on the peer's {there}");
            }
            Obstacle::Reset => "reset by the peer, or by a filter on the way",
            Obstacle::FilteredHere => "rejected by a filter of this machine",
            Obstacle::Filtered => "rejected by a filter of the peer or on the way",
        },
        Failure::WrongInterface { arrived } => return wrong_interface(there, arrived),
        Failure::Unrouted => {
            "required host route rejected: peer address not verified, or not permitted"
        }
        Failure::Stranger => "another machine answers",
        Failure::NoPathLeft => "the session has used all its connections",
    };
    text.to_owned()
}

/// Returns why an idle interface carries nothing, with the command that enables it.
pub(crate) fn idle_text(idle: Idle, interface: &str, is_peers: bool) -> String {
    match (idle, is_peers) {
        (Idle::Down, false) => format!("{idle}: ip link set {interface} up"),
        (Idle::Down, true) => format!("{idle}; there: ip link set {interface} up"),
        _ => idle.to_string(),
    }
}
