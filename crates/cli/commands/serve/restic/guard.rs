//! Access check in front of a repository.

use hyper::{
    Request, StatusCode,
    body::Incoming,
    header::{HeaderValue, WWW_AUTHENTICATE},
    http::request::Parts,
};

use super::{
    super::{
        connection_places::Place,
        http::{Foreign, Service, foreign},
        own_names::OwnNames,
    },
    objects::Objects,
    password::Password,
    reply::{self, Reply, ReplyBody},
    repository::Repository,
};

/// Repository with its access check.
#[derive(Debug)]
pub(super) struct Guarded<O> {
    pub(super) repository: Repository<O>,
    /// Access check; `None` if the client is the parent process.
    pub(super) guard: Option<Guard>,
}

/// Access check of requests over TCP: host name, origin and password.
#[derive(Debug)]
pub(super) struct Guard {
    /// Password that requests must carry; `None` for no password.
    pub(super) password: Option<Password>,
    /// Host names that requests may carry; `None` for any name.
    pub(super) names: Option<OwnNames>,
}

impl Guard {
    /// Returns the status and reason for rejecting a request; `None` if it passes the check.
    fn refusal(&self, head: &Parts) -> Option<(StatusCode, &'static str)> {
        match foreign(head, self.names.as_ref()) {
            Some(Foreign::Host) => {
                return Some((
                    StatusCode::MISDIRECTED_REQUEST,
                    "request for another host name",
                ));
            }
            Some(Foreign::Page) => {
                return Some((StatusCode::FORBIDDEN, "request from a web page"));
            }
            None => {}
        }
        let is_known = self
            .password
            .as_ref()
            .is_none_or(|password| password.is_known_to(&head.headers));
        (!is_known).then_some((StatusCode::UNAUTHORIZED, "wrong or missing password"))
    }
}

impl<O: Objects> Service for Guarded<O> {
    type Body = ReplyBody;

    async fn answer(&self, request: Request<Incoming>, place: Option<&Place>) -> Reply {
        let (head, body) = request.into_parts();
        let Some((status, why)) = self.guard.as_ref().and_then(|guard| guard.refusal(&head)) else {
            if let Some(place) = place {
                place.prove().await;
            }
            return self
                .repository
                .answer(Request::from_parts(head, body))
                .await;
        };
        tracing::warn!(method = %head.method, path = head.uri.path(), status = status.as_u16(), "{why}");
        let refused = reply::status(status);
        match status {
            StatusCode::UNAUTHORIZED => reply::with(
                refused,
                WWW_AUTHENTICATE,
                HeaderValue::from_static("Basic realm=\"nicstripe\""),
            ),
            _ => refused,
        }
    }
}
