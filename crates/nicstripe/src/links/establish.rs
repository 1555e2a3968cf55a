//! Creation of a client's session: first contact, then planning of all paths.

use std::sync::Arc;

use nicstripe_proto::{Role, SessionConfig, message::CloseCode};
use tokio::sync::mpsc;

use super::sessions::{Inner, LiveSession};
use crate::{
    links::{
        connect::{Connector, FirstContact, Retries, arrived_rightly},
        contact::Contact,
        linker::{FIRST_PATH, Linker, LinkerConfig},
        local,
        plan::{Facts, described},
    },
    report::{error::Error, event::Event},
    session::{Access, Audience, Command, Driver, DriverConfig, Fault, Input},
};

impl Inner {
    fn contact(&self) -> Contact<'_> {
        Contact {
            host: &self.host,
            port: self.settings.port,
            identity: &self.identity,
            peers: &self.peers,
            family: self.settings.family,
            links: &self.settings.links,
            excluded: &self.settings.excluded,
            address_book: self.settings.address_book.as_ref(),
        }
    }

    pub(super) async fn establish(
        &self,
        wanted: Option<&mpsc::Sender<Event>>,
    ) -> Result<LiveSession, Error> {
        let routes = self.settings.session_routes().map(Arc::new);
        let here = local::listed()?;
        let local = described(&here, &self.settings.excluded);
        let connector = Arc::new(
            Connector::new(&self.identity, &self.peers, &self.host)
                .with_socket_buffer(self.settings.socket_buffer),
        );

        let events = wanted.or(self.settings.events.as_ref()).cloned();
        let mut retries =
            Retries::new(&self.host, self.settings.patience, events).queueing(self.settings.queues);
        let contact = self.contact();
        let (mut first, met) = contact
            .meet(&connector, &here, &local, &mut retries)
            .await?;
        contact.remember(met.key, &first);
        let FirstContact {
            mut established,
            remote_interfaces,
            key,
            arrival,
        } = met;
        let facts = Facts {
            local: &local,
            remote: &remote_interfaces,
            port: self.settings.port,
            family: self.settings.family,
        };
        facts.complete(&mut first);
        established.verified = arrived_rightly(first.peer_interface.as_deref(), arrival.as_deref());
        let named = contact.named(&facts, &here, &first).await?;
        contact.judge(&facts, &here, established.verified, &mut first)?;

        let audience = Audience::default();
        wanted.into_iter().for_each(|events| audience.join(events));
        let session = SessionConfig {
            patience: self.settings.patience,
            rate_limit: self.settings.bandwidth,
            ..SessionConfig::default()
        };
        let (planner, news) = mpsc::channel(NEWS);
        let handle = Driver::start(DriverConfig {
            role: Role::Client,
            access: Access::Client,
            host: self.host.clone(),
            session,
            pool: self.pool.clone(),
            buffers: self.buffers.clone(),
            share: None,
            connector: Some(connector.clone()),
            planner: Some(planner),
            audience: audience.clone(),
        });
        let (verified, path_mtu) = (established.verified, established.path_mtu);
        let one = Input::Connected {
            path: FIRST_PATH,
            plan: Some(first.clone()),
            established: Box::new(established),
        };
        let _ = handle.inputs.send(one).await;
        let config = LinkerConfig {
            port: self.settings.port,
            family: self.settings.family,
            excluded: self.settings.excluded.clone(),
            streams: self.settings.streams,
            automatic: self.settings.links.is_empty(),
            announces: routes.is_some(),
            routes: routes.clone(),
            connector: Some(connector.clone()),
        };
        let mut linker = Linker::new(config, handle.clone(), here, remote_interfaces);
        if let Err(error) = linker.begin(&first, verified, path_mtu, named).await {
            handle.command(Command::Close(CloseCode::Cancelled)).await;
            return Err(error);
        }
        let (survey, requests) = mpsc::channel(1);
        let fault = Fault::of(&handle.inputs);
        tokio::spawn(async move {
            let _fault = fault;
            linker.run(news, requests).await;
        });
        Ok(LiveSession {
            handle,
            key,
            audience,
            routes,
            survey,
            mux: Arc::default(),
        })
    }
}

/// Capacity of the path planner's event channel.
const NEWS: usize = 1024;
