//! Prometheus endpoint: a minimal HTTP server for `GET /metrics`.

use std::{io, sync::Arc, time::Duration};

use nicstripe::DaemonHandle;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::timeout,
};

use super::exposition::exposition;
use super::own_names::OwnNames;

/// Maximum number of concurrent connections. Further ones wait in the backlog.
const MOST_CONNECTIONS: usize = 4;

/// Maximum lifetime of an accepted connection.
const CONNECTION_TIME: Duration = Duration::from_secs(2);

/// Maximum size of a request in bytes. Requests of Prometheus and curl have about 300.
const MOST_REQUEST: usize = 4096;

/// Accepts connections and answers requests until the future is dropped.
pub(super) async fn serve(listener: TcpListener, daemon: DaemonHandle) {
    let connections = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let names = listener
        .local_addr()
        .ok()
        .and_then(|bound| OwnNames::of("", bound));
    loop {
        let permit = connections.clone().acquire_owned().await;
        match listener.accept().await {
            Ok((stream, _)) => {
                let (daemon, names) = (daemon.clone(), names.clone());
                tokio::spawn(async move {
                    let _permit = permit;
                    // Invalid requests and early disconnects are not logged.
                    let _ = timeout(CONNECTION_TIME, answer(stream, &daemon, names.as_ref())).await;
                });
            }
            // Most likely the process is out of file descriptors.
            Err(error) => {
                tracing::warn!(%error, "cannot accept a metrics connection");
                tokio::time::sleep(CONNECTION_TIME).await;
            }
        }
    }
}

async fn answer(
    mut stream: TcpStream,
    daemon: &DaemonHandle,
    names: Option<&OwnNames>,
) -> io::Result<()> {
    let head = read_head(&mut stream).await?;
    let plain = |status: &str, text: &str| response(status, PLAIN, text, true);
    let response = match requested_page(&head) {
        // Every browser sends a `Host` header.
        _ if names
            .zip(host(&head))
            .is_some_and(|(names, host)| !names.has(host)) =>
        {
            plain("421 Misdirected Request", "expected an address as Host\n")
        }
        Requested::Metrics { body } => match exposition(daemon) {
            Ok(text) => response("200 OK", OPEN_METRICS, &text, body),
            Err(_) => {
                let text = "cannot encode the metrics\n";
                response("500 Internal Server Error", PLAIN, text, body)
            }
        },
        Requested::Elsewhere => plain("404 Not Found", "expected /metrics\n"),
        Requested::Otherwise => plain("405 Method Not Allowed", "expected GET or HEAD\n"),
        Requested::Nonsense => plain("400 Bad Request", "expected an HTTP/1 request\n"),
    };
    stream.write_all(response.as_bytes()).await?;
    stream.shutdown().await
}

/// Reads a request up to the empty line after the headers, or up to [`MOST_REQUEST`] bytes.
async fn read_head(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(512);
    let mut limited = stream.take(MOST_REQUEST as u64);
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if limited.read_buf(&mut head).await? == 0 {
            break;
        }
    }
    Ok(head)
}

#[derive(Debug, PartialEq, Eq)]
enum Requested {
    Metrics { body: bool },
    Elsewhere,
    Otherwise,
    Nonsense,
}

fn requested_page(head: &[u8]) -> Requested {
    let is_whole = head.windows(4).any(|end| end == b"\r\n\r\n");
    let line = head
        .split(|byte| *byte == b'\r')
        .next()
        .and_then(|line| std::str::from_utf8(line).ok());
    let words: Vec<&str> = line
        .filter(|_| is_whole)
        .map_or_else(Vec::new, |line| line.split(' ').collect());
    let [method, target, "HTTP/1.0" | "HTTP/1.1"] = words[..] else {
        return Requested::Nonsense;
    };
    let path = target.split('?').next().unwrap_or_default();
    match (method, path) {
        ("GET" | "HEAD", "/metrics") => Requested::Metrics {
            body: method == "GET",
        },
        ("GET" | "HEAD", _) => Requested::Elsewhere,
        _ => Requested::Otherwise,
    }
}

/// Returns the value of the `Host` header of a request, if present.
fn host(head: &[u8]) -> Option<&str> {
    let lines = head
        .split(|byte| *byte == b'\n')
        .filter_map(|line| std::str::from_utf8(line).ok());
    let mut fields = lines.filter_map(|line| line.split_once(':'));
    fields
        .find(|(name, _)| name.eq_ignore_ascii_case("host"))
        .map(|(_, host)| host.trim())
}

fn response(status: &str, kind: &str, text: &str, body: bool) -> String {
    let body = if body { text } else { "" };
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        text.len()
    )
}

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_what_the_request_says() {
        for (head, expected) in [
            (
                "GET /metrics HTTP/1.1\r\nAccept: a\r\nhOST:  evil.com:9 \r\n\r\n",
                Some("evil.com:9"),
            ),
            (
                "GET /metrics HTTP/1.1\r\nHost: [::1]:9\r\n\r\n",
                Some("[::1]:9"),
            ),
            ("GET /metrics HTTP/1.0\r\n\r\n", None),
        ] {
            assert_eq!(host(head.as_bytes()), expected, "{head:?}");
        }
    }

    #[test]
    fn only_the_metrics_are_to_be_had() {
        for (head, expected) in [
            (
                "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
                Requested::Metrics { body: true },
            ),
            (
                "GET /metrics?x=1 HTTP/1.0\r\n\r\n",
                Requested::Metrics { body: true },
            ),
            (
                "HEAD /metrics HTTP/1.1\r\n\r\n",
                Requested::Metrics { body: false },
            ),
            ("GET / HTTP/1.1\r\n\r\n", Requested::Elsewhere),
            ("GET /metrics/../x HTTP/1.1\r\n\r\n", Requested::Elsewhere),
            ("POST /metrics HTTP/1.1\r\n\r\n", Requested::Otherwise),
            ("GET /metrics HTTP/2\r\n\r\n", Requested::Nonsense),
            ("GET /metrics\r\n\r\n", Requested::Nonsense),
            ("GET /metrics HTTP/1.1\r\n", Requested::Nonsense),
            ("", Requested::Nonsense),
            ("\u{0}\u{ff}\r\n\r\n", Requested::Nonsense),
        ] {
            assert_eq!(requested_page(head.as_bytes()), expected, "{head:?}");
        }
    }
}
