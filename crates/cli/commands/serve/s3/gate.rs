//! Access check in front of the gateway.

use hyper::{Request, body::Incoming};
use nicstripe_s3::{Gateway, Reply, ReplyBody};

use super::super::{
    connection_places::Place,
    http::{Foreign, Service, foreign},
    own_names::OwnNames,
};

/// Gateway that answers programs of the user.
#[derive(Debug)]
pub(super) struct Gate {
    pub(super) gateway: Gateway,
    /// Host names that requests may carry; `None` for any name.
    pub(super) names: Option<OwnNames>,
}

impl Service for Gate {
    type Body = ReplyBody;

    async fn answer(&self, request: Request<Incoming>, place: Option<&Place>) -> Reply {
        let (head, body) = request.into_parts();
        match foreign(&head, self.names.as_ref()) {
            Some(Foreign::Host) => return self.gateway.misdirected(&head),
            Some(Foreign::Page) => return self.gateway.from_a_page(&head),
            None => {}
        }
        match self.gateway.check(&head) {
            Err(refusal) => *refusal,
            Ok(allowed) => {
                if let Some(place) = place {
                    place.prove().await;
                }
                self.gateway.answer(allowed, &head, body).await
            }
        }
    }
}
