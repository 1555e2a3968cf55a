//! HTTP/1.1 and HTTP/2 server on any byte stream, for a [`Service`] that checks each request.

use std::{
    convert::Infallible,
    io,
    net::{IpAddr, SocketAddr},
    pin::pin,
    sync::Arc,
    time::Duration,
};

#[cfg(feature = "s3")]
use std::net::Ipv4Addr;

use http_body_util::BodyExt as _;
use hyper::{
    Request, Response,
    body::{Body, Bytes, Incoming},
    header::{HOST, HeaderName, ORIGIN},
    http::request::Parts,
    service::service_fn,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
};
#[cfg(feature = "s3")]
use nicstripe::{LocalListener, LocalStream};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    time::timeout,
};

use super::{
    connection_places::{Expired, Place, Places},
    own_names::OwnNames,
};

/// Handler of the requests of a server.
pub(super) trait Service: Send + Sync + 'static {
    type Body: Body<Data = Bytes, Error = io::Error> + Send + Unpin + 'static;

    /// Answers a request. Calls [`Place::prove`] once the request has passed the access check.
    fn answer(
        &self,
        request: Request<Incoming>,
        place: Option<&Place>,
    ) -> impl Future<Output = Response<Self::Body>> + Send;
}

#[derive(Debug)]
pub(super) struct Server<S> {
    pub(super) service: S,
    /// Limits of connections over sockets.
    pub(super) places: Arc<Places>,
    /// Word for its connections in the log.
    pub(super) what: &'static str,
}

/// Request that no program of the user has sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Foreign {
    /// The request is for another host name.
    Host,
    /// The request is from a web page.
    Page,
}

/// Returns why a request is from no program of the user; `None` if it may be from one. `names` are the
/// host names that requests may carry, `None` for any name.
pub(super) fn foreign(head: &Parts, names: Option<&OwnNames>) -> Option<Foreign> {
    let host = head.headers.get(HOST).and_then(|host| host.to_str().ok());
    let host = head
        .uri
        .authority()
        .map(|authority| authority.as_str())
        .or(host)
        .unwrap_or_default();
    if names.is_some_and(|names| !names.has(host)) {
        return Some(Foreign::Host);
    }
    // Programs never send these headers. A browser sends them for every page; for URLs typed by the
    // user it sends "none".
    let site = head
        .headers
        .get(SEC_FETCH_SITE)
        .is_some_and(|site| site != "none");
    (site || head.headers.contains_key(ORIGIN)).then_some(Foreign::Page)
}

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

impl<S: Service> Server<S> {
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
                    self.clone().begin(stream, from.ip());
                }
                Err(error) => self.pause(&error).await,
            }
        }
    }

    /// Accepts and serves connections by a socket file until the future is dropped.
    #[cfg(feature = "s3")]
    pub(super) async fn accept_local(self: Arc<Self>, listener: &LocalListener) {
        loop {
            match listener.accept().await {
                Ok(LocalStream::Unix(stream)) => {
                    self.clone().begin(stream, Ipv4Addr::LOCALHOST.into());
                }
                // Of no socket file.
                Ok(_) => {}
                Err(error) => self.pause(&error).await,
            }
        }
    }

    fn begin(
        self: Arc<Self>,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        from: IpAddr,
    ) {
        let what = self.what;
        let place = Arc::new(self.places.enter(from));
        let serving = self.serve(stream, Some(place));
        tokio::spawn(async move {
            // Clients may disconnect at any time.
            if let Err(error) = serving.await {
                let error = nicstripe::chain(error.as_ref());
                tracing::debug!(error, %from, what, "connection ended");
            }
        });
    }

    /// Waits after a failure to accept: most likely the process is out of file descriptors.
    async fn pause(&self, error: &io::Error) {
        tracing::warn!(%error, what = self.what, "cannot accept a connection");
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }

    /// Answers a request, which counts as running until its response is sent: until its body is dropped.
    async fn answer_counted(
        &self,
        request: Request<Incoming>,
        place: Option<Arc<Place>>,
    ) -> Response<impl Body<Data = Bytes, Error = io::Error> + use<S>> {
        let running = place.as_ref().map(Place::request);
        let reply = self.service.answer(request, place.as_deref()).await;
        reply.map(|body| {
            body.map_frame(move |frame| {
                let _running = &running;
                frame
            })
        })
    }
}

pub(super) type ConnectionError = Box<dyn std::error::Error + Send + Sync>;

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
