//! Steps that the protocol asks for, carried out for a client's session: connections, probes, host
//! routes and announcements. Nothing here decides which links there are.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc, time::Duration};

use nicstripe_link::{Interface, interface_for};
use nicstripe_proto::{
    PathId,
    message::Expected,
    pairing::{Candidate, Obstacle},
    path::{Origin, PathPlan, socket_address},
    session::Routed,
};

use super::{
    address_proof,
    connect::{Connector, touch},
    local,
    request::RoutePolicy,
    route_keeper::RouteKeeper,
};
use crate::{
    report::error::{Error, obstacle_to},
    session::{Joining, LinkSteps, SessionHandle, StepFuture},
};

/// Needs of a client's session to carry out the steps for its links.
pub(crate) struct Steps {
    pub(crate) connector: Arc<Connector>,
    pub(crate) routes: Option<Arc<RouteKeeper>>,
    pub(crate) port: u16,
}

impl LinkSteps for Steps {
    fn join<'a>(&'a self, path: PathId, plan: &'a PathPlan, first: bool) -> Joining<'a> {
        Box::pin(self.connector.join(path, plan, first))
    }

    fn probe<'a>(&'a self, candidate: &'a Candidate) -> StepFuture<'a, Result<(), Obstacle>> {
        Box::pin(answers(candidate, self.port))
    }

    fn hold_routes<'a>(
        &'a self,
        paths: &'a [(PathId, PathPlan, bool)],
    ) -> StepFuture<'a, Result<Vec<(PathId, Routed)>, Error>> {
        Box::pin(async move {
            let Some(routes) = &self.routes else {
                let held = paths.iter().map(|(path, ..)| (*path, Routed::Held));
                return Ok(held.collect());
            };
            let interfaces = local::listed()?;
            let mut results = Vec::new();
            for (path, plan, is_connected) in paths {
                if !is_connected && !self.is_the_peers(plan, routes, &interfaces).await {
                    let why = "peer does not answer at its address, no host route installed";
                    if routes.policy() == RoutePolicy::Always {
                        return Err(Error::link(&plan.interface, why));
                    }
                    tracing::info!(interface = %plan.interface, address = %plan.remote.ip(), "{why}");
                    results.push((*path, Routed::Unproved));
                    if plan.origin == Origin::Planned {
                        continue;
                    }
                }
                routes.hold_all(&[plan], &interfaces).await?;
                results.push((*path, Routed::Held));
            }
            Ok(results)
        })
    }

    fn announce<'a>(
        &'a self,
        connections: BTreeSet<(IpAddr, u32)>,
        session: SessionHandle,
    ) -> StepFuture<'a, Vec<Expected>> {
        Box::pin(async move { address_proof::announced(connections, &session).await })
    }
}

impl Steps {
    /// Returns true if a host route for this path diverts no traffic of other machines: it follows
    /// the existing route, or the peer has proved its key at the address. An address typed by the
    /// user is trusted.
    async fn is_the_peers(
        &self,
        plan: &PathPlan,
        routes: &RouteKeeper,
        interfaces: &[Interface],
    ) -> bool {
        let is_typed = plan.origin == Origin::Named && plan.local.is_none();
        let interface = local::find(interfaces, &plan.interface);
        let Some(interface) = interface
            .filter(|interface| !is_typed && routes.diverts(plan.remote.ip(), interface.index.0))
        else {
            return true;
        };
        routes
            .refresh_neighbour(plan.remote.ip(), interface.index.0)
            .await;
        let Some(current) = interface_for(plan.remote.ip(), interfaces) else {
            return false;
        };
        self.connector.answers_at(&current.name, plan.remote).await
    }
}

/// Finds out if the remote address of a candidate answers over its local interface.
pub(super) async fn answers(candidate: &Candidate, port: u16) -> Result<(), Obstacle> {
    let remote = socket_address(candidate.remote.address, port, candidate.local.index);
    let answer = touch(&candidate.local.interface, remote, PROBE_TIMEOUT).await;
    answer.map_err(|error| obstacle_to(&error))
}

/// Timeout of a probe of an address pair. On a LAN the answer takes less than a millisecond.
const PROBE_TIMEOUT: Duration = Duration::from_millis(500);
