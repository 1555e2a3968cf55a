//! HTTP/1.1 and HTTP/2 server on any byte stream.

use std::{
    convert::Infallible,
    io,
    net::SocketAddr,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use hyper::{
    Request, StatusCode,
    body::{Body, Bytes, Frame, Incoming, SizeHint},
    header::{HOST, HeaderName, HeaderValue, ORIGIN, WWW_AUTHENTICATE},
    http::request::Parts,
    service::service_fn,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    time::timeout,
};

use super::{
    objects::Objects,
    password::Password,
    places::{Expired, Place, Places, Running},
    reply,
    repository::Repository,
};
use crate::commands::serve::own_names::OwnNames;

#[derive(Debug)]
pub(super) struct Server<O> {
    pub(super) repository: Repository<O>,
    /// Access check; `None` if the client is the parent process.
    pub(super) guard: Option<Guard>,
    /// Limits of connections over TCP.
    pub(super) places: Arc<Places>,
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
        let host = head.headers.get(HOST).and_then(|host| host.to_str().ok());
        let host = head
            .uri
            .authority()
            .map(|authority| authority.as_str())
            .or(host)
            .unwrap_or_default();
        if self.names.as_ref().is_some_and(|names| !names.has(host)) {
            return Some((
                StatusCode::MISDIRECTED_REQUEST,
                "request for another host name",
            ));
        }
        // Backup tools never send these headers. A browser sends them for every page; for URLs
        // typed by the user it sends "none".
        let site = head
            .headers
            .get(SEC_FETCH_SITE)
            .is_some_and(|site| site != "none");
        if site || head.headers.contains_key(ORIGIN) {
            return Some((StatusCode::FORBIDDEN, "request from a web page"));
        }
        let is_known = self
            .password
            .as_ref()
            .is_none_or(|password| password.is_known_to(&head.headers));
        (!is_known).then_some((StatusCode::UNAUTHORIZED, "wrong or missing password"))
    }
}

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

impl<O: Objects> Server<O> {
    /// Serves one connection until its end. The client chooses the HTTP version, HTTP/2 by prior
    /// knowledge (RFC 9113, section 3.3).
    ///
    /// With a place, the connection also ends when the place expires.
    pub(super) async fn serve(
        self: Arc<Self>,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        place: Option<Arc<Place>>,
    ) -> Result<(), ConnectionError> {
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIME);
        builder
            .http2()
            .max_concurrent_streams(MOST_REQUESTS)
            .initial_stream_window_size(REQUEST_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_frame_size(MOST_FRAME)
            .max_send_buf_size(SEND_BUFFER);
        let service = service_fn(|request| {
            let (server, place) = (self.clone(), place.clone());
            async move { Ok::<_, Infallible>(server.answer_counted(request, place).await) }
        });
        let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
        let Some(place) = &place else {
            return connection.await;
        };
        let expired = tokio::select! {
            end = connection.as_mut() => return end,
            expired = place.expired() => expired,
        };
        if expired == Expired::Idle {
            connection.as_mut().graceful_shutdown();
            // A client that does not react is cut off.
            let _ = timeout(CLOSING_TIME, connection).await;
        }
        Err(expired.into())
    }

    /// Accepts and serves connections until the future is dropped.
    pub(super) async fn accept(self: Arc<Self>, listener: TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, from)) => {
                    // Only slightly slower if the system refuses.
                    let _ = stream.set_nodelay(true);
                    let place = Arc::new(self.places.enter(from.ip()));
                    let serving = self.clone().serve(stream, Some(place));
                    tokio::spawn(async move { log_end(serving.await, from) });
                }
                // Most likely the process is out of file descriptors.
                Err(error) => {
                    tracing::warn!(%error, "cannot accept restic connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Answers a request, which counts as running until its response is sent.
    async fn answer_counted(
        &self,
        request: Request<Incoming>,
        place: Option<Arc<Place>>,
    ) -> hyper::Response<Counted> {
        let running = place.as_ref().map(Place::request);
        let reply = self.answer(request, place.as_deref()).await;
        reply.map(|body| Counted {
            body,
            _running: running,
        })
    }

    async fn answer(&self, request: Request<Incoming>, place: Option<&Place>) -> reply::Reply {
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

/// Body of a response, which keeps its request counted as running.
#[derive(Debug)]
struct Counted {
    body: reply::ReplyBody,
    _running: Option<Running>,
}

impl Body for Counted {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Error that ended an HTTP connection.
pub(super) type ConnectionError = Box<dyn std::error::Error + Send + Sync>;

/// Logs the error that ended a connection, at debug level, since clients may disconnect at any
/// time.
fn log_end(end: Result<(), ConnectionError>, from: SocketAddr) {
    if let Err(error) = end {
        tracing::debug!(error = nicstripe::chain(error.as_ref()), %from, "restic connection ended");
    }
}

/// Listens at an address, and returns the listener and the bound address.
///
/// # Errors
///
/// The address is invalid or in use, or is not a loopback address and there is no password.
pub(super) async fn listen(
    address: &str,
    has_password: bool,
) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address).await?;
    let bound = listener.local_addr()?;
    match bound.ip().to_canonical().is_loopback() || has_password {
        true => Ok((listener, bound)),
        false => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "reachable by other machines: not allowed with --no-password",
        )),
    }
}

/// Maximum number of concurrent requests per connection. Clients assume 100 until they receive the
/// setting, which is also the recommended minimum (RFC 9113, section 6.5.2). Transfers above the
/// session's limit are queued.
const MOST_REQUESTS: u32 = 100;

/// Maximum time of an HTTP/1.1 connection for the header of its next request, from the end of the
/// previous one. Go keeps idle connections for 90 s.
const HEADER_TIME: Duration = Duration::from_secs(120);

/// Time of an idle connection to end after the server has announced that.
const CLOSING_TIME: Duration = Duration::from_secs(5);

const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// HTTP/2 flow-control window of one upload in bytes. 1 MiB suffices, since a local pipe has almost
/// no round-trip time.
const REQUEST_WINDOW: u32 = 1 << 20;

/// HTTP/2 flow-control window of one connection for all its uploads, in bytes.
const CONNECTION_WINDOW: u32 = 8 << 20;

/// Maximum size of a received HTTP/2 frame in bytes. restic's Go library sends none larger than 512
/// KiB.
const MOST_FRAME: u32 = 512 << 10;

/// Maximum bytes of a response that are buffered for sending.
const SEND_BUFFER: usize = 1 << 20;
