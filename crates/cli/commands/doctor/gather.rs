//! Facts about both machines, the links between them, and a bench.

use std::{
    thread,
    time::{Duration, Instant},
};

use nicstripe::{
    Client, LinkFailure, LinkState as PathState, LinkSurvey,
    bench::{BenchEvent, BenchPlan, Phase},
};
use nicstripe_doctor::{Case, LinkFacts, LinkState, Machine};
use nicstripe_link::facts::{Facts, Recorded};

use super::Doctor;
use crate::{
    connect::{
        place::Place,
        setup::{Needs, connect_without_routes},
    },
    failure::Failure,
    output::{json::micros, terminal::Terminal},
    process::runtime,
    text::shown,
};

/// Gathers all that the options permit.
pub(super) fn case(doctor: &Doctor, terminal: &Terminal) -> Result<Case, Failure> {
    if let Some(root) = &doctor.root {
        let recorded = Recorded::open(root).map_err(Failure::opening(root))?;
        return Ok(Case {
            here: Facts::read(&recorded).into(),
            ..Case::default()
        });
    }
    match &doctor.host {
        None => Ok(alone()),
        Some(place) => runtime::run(with_peer(doctor, place, terminal)),
    }
}

/// Reads the facts about this machine twice, to see the traffic between.
fn alone() -> Case {
    let (facts, began) = (own(), Instant::now());
    thread::sleep(IDLE.saturating_sub(began.elapsed()));
    let later = own();
    Case {
        here: Machine {
            idle: Some((later, micros(began.elapsed()))),
            ..facts.into()
        },
        ..Case::default()
    }
}

async fn with_peer(doctor: &Doctor, place: &Place, terminal: &Terminal) -> Result<Case, Failure> {
    let connected = connect_without_routes(place, &doctor.links, &Needs::default()).await?;
    let examined = examined(doctor, place, &connected.client, terminal).await;
    connected.close().await;
    examined
}

async fn examined(
    doctor: &Doctor,
    place: &Place,
    client: &Client,
    terminal: &Terminal,
) -> Result<Case, Failure> {
    let survey = client.links().await?;
    let (ours, theirs, began) = (
        own_soon().await,
        told(client, terminal).await,
        Instant::now(),
    );
    tokio::time::sleep(IDLE).await;
    let (later, later_there) = (own_soon().await, client.facts().await.ok());
    let elapsed = micros(began.elapsed());
    let mut case = Case {
        here: Machine {
            idle: Some((later, elapsed)),
            ..ours.into()
        },
        there: theirs.map(|facts| Machine {
            idle: later_there.map(|later| (later, elapsed)),
            ..facts.into()
        }),
        links: links(&survey, Some(doctor.links.port(place.port))),
        bench: None,
    };
    if doctor.bench || doctor.disk.is_some() {
        measure(doctor, client, &mut case, terminal).await?;
    }
    Ok(case)
}

/// Loads the links, and reads the facts again.
async fn measure(
    doctor: &Doctor,
    client: &Client,
    case: &mut Case,
    terminal: &Terminal,
) -> Result<(), Failure> {
    let plan = BenchPlan {
        phases: vec![Phase::Idle, Phase::Solo, Phase::Together, Phase::Reverse],
        load: LOAD,
        warm_up: WARM_UP,
        interval: Duration::from_millis(200),
        repeats: 1..=1,
        disk: doctor.disk.clone(),
        ..BenchPlan::default()
    };
    let mut bench = client.bench(plan);
    while let Some(event) = bench.next_event().await {
        match event {
            BenchEvent::Began { phase, links, .. } if terminal.is_interactive() => {
                terminal.say(format_args!("measuring {}", load(phase, &links)));
            }
            BenchEvent::Waiting { ahead, .. } => {
                terminal.say(format_args!("waiting for {ahead} other benches"));
            }
            BenchEvent::Note(text) => terminal.warning(&shown(text)),
            _ => {}
        }
    }
    case.bench = Some(bench.finish().await?);
    case.here.loaded = Some(own_soon().await);
    if let Some(there) = &mut case.there {
        there.loaded = client.facts().await.ok();
    }
    Ok(())
}

fn load(phase: Phase, links: &[u32]) -> String {
    match phase {
        Phase::Idle => "round trips".into(),
        Phase::Solo => format!("link {} alone", links.first().copied().unwrap_or(1)),
        Phase::Together => "all links, to the peer".into(),
        Phase::Reverse => "all links, from the peer".into(),
        Phase::Both => "all links, both ways".into(),
        Phase::Pair => "two links".into(),
    }
}

/// Returns the links of a survey, those that work first.
pub(super) fn links(survey: &LinkSurvey, port: Option<u16>) -> Vec<LinkFacts> {
    let working = survey.links.iter().map(|link| LinkFacts {
        here: link.link.interface.clone(),
        there: link.link.peer_interface.clone(),
        local: link.link.local,
        remote: Some(link.link.remote),
        state: match (&link.state, link.verified) {
            (PathState::Up, Some(true)) => LinkState::Verified,
            (PathState::Up, Some(false)) => LinkState::Misdirected,
            (PathState::Up, None) => LinkState::Up,
            (PathState::Connecting, _) => LinkState::Untried,
            _ => LinkState::Silent,
        },
        path_mtu: link.path_mtu,
        port,
        ..LinkFacts::default()
    });
    let failed = survey.failed.iter().map(|failed| {
        let (state, arrived) = match &failed.why {
            LinkFailure::Silent => (LinkState::Silent, None),
            LinkFailure::Refused => (LinkState::Refused, None),
            LinkFailure::Reset => (LinkState::Reset, None),
            LinkFailure::FilteredHere => (LinkState::FilteredHere, None),
            LinkFailure::Filtered => (LinkState::Rejected, None),
            LinkFailure::Unrouted => (LinkState::Unrouted, None),
            LinkFailure::Misdirected { arrived } => (LinkState::Misdirected, Some(arrived.clone())),
            LinkFailure::Stranger => (LinkState::Stranger, None),
            _ => (LinkState::Untried, None),
        };
        LinkFacts {
            here: failed.link.interface.clone(),
            there: failed.link.peer_interface.clone(),
            local: failed.link.local,
            remote: Some(failed.link.remote),
            state,
            arrived,
            neighbour: failed.is_neighbour,
            port,
            ..LinkFacts::default()
        }
    });
    working.chain(failed).collect()
}

/// Returns the peer's facts; says why if it does not tell them.
async fn told(client: &Client, terminal: &Terminal) -> Option<Facts> {
    match client.facts().await {
        Ok(facts) => Some(facts),
        Err(error) => {
            let why = nicstripe::chain(&error);
            terminal.warning(&format!(
                "the peer sent no facts, so only this end is examined: {why}"
            ));
            None
        }
    }
}

fn own() -> Facts {
    Facts {
        version: Some(env!("CARGO_PKG_VERSION").into()),
        ..Facts::of_this_machine()
    }
}

/// Like [`own`], off the runtime: a driver may be slow.
async fn own_soon() -> Facts {
    tokio::task::spawn_blocking(own).await.unwrap_or_default()
}

/// Time between two readings, in which traffic of others shows.
const IDLE: Duration = Duration::from_millis(250);
/// Duration of each load: what limits a link shows in the first seconds.
const LOAD: Duration = Duration::from_secs(3);
const WARM_UP: Duration = Duration::from_millis(500);
