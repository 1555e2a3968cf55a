//! Web server in this process, which may break every rule on purpose.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

/// Reaction of a server to the request of this number, from 0.
pub(crate) type Manner = Box<dyn Fn(&Request) -> Reply + Send + Sync>;

/// Request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) number: usize,
    pub(crate) path: String,
    /// First byte, and the one behind the last.
    pub(crate) range: Option<(u64, u64)>,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

/// Status line and headers, and the bytes after them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reply {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    /// True to keep the connection open after the body.
    pub(crate) hangs: bool,
    /// True to send a byte a second.
    pub(crate) trickles: bool,
}

impl Reply {
    /// Replaces this part of the headers.
    pub(crate) fn with(mut self, part: &str, by: &str) -> Self {
        self.head = self.head.replace(part, by);
        self
    }
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    served: Arc<Served>,
}

struct Served {
    manner: Manner,
    requests: AtomicUsize,
    bytes: AtomicU64,
    seen: Mutex<Vec<Request>>,
}

impl Server {
    pub(crate) async fn start(manner: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let served = Arc::new(Served {
            manner: Box::new(manner),
            requests: AtomicUsize::new(0),
            bytes: AtomicU64::new(0),
            seen: Mutex::default(),
        });
        let of = served.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, of.clone()));
            }
        });
        Self { address, served }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Returns the number of body bytes that were sent.
    pub(crate) fn sent(&self) -> u64 {
        self.served.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn seen(&self) -> Vec<Request> {
        self.served.seen.lock().unwrap().clone()
    }
}

async fn serve(mut stream: TcpStream, served: Arc<Served>) {
    let mut buffer = Vec::new();
    loop {
        let find = |bytes: &[u8]| bytes.windows(4).position(|four| four == b"\r\n\r\n");
        while find(&buffer).is_none() {
            if !matches!(stream.read_buf(&mut buffer).await, Ok(1..)) {
                return;
            }
        }
        let end = find(&buffer).unwrap() + 4;
        let head = String::from_utf8(buffer.drain(..end).collect()).unwrap();
        let length = value_of(&head, "content-length: ").map_or(0, |text| text.parse().unwrap());
        while buffer.len() < length {
            if !matches!(stream.read_buf(&mut buffer).await, Ok(1..)) {
                return;
            }
        }
        let request = Request {
            number: served.requests.fetch_add(1, Ordering::Relaxed),
            path: head.split(' ').nth(1).unwrap().to_owned(),
            range: range(&head),
            head,
            body: buffer.drain(..length).collect(),
        };
        served.seen.lock().unwrap().push(request.clone());
        let mut reply = (served.manner)(&request);
        if request.head.starts_with("HEAD") {
            reply.body.clear();
        }
        if stream.write_all(reply.head.as_bytes()).await.is_err() {
            return;
        }
        for piece in reply.body.chunks(if reply.trickles { 1 } else { 64 << 10 }) {
            if reply.trickles {
                tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            }
            if stream.write_all(piece).await.is_err() {
                return;
            }
            served
                .bytes
                .fetch_add(piece.len() as u64, Ordering::Relaxed);
        }
        if reply.hangs {
            std::future::pending::<()>().await;
        }
        if reply.head.contains("connection: close") {
            return;
        }
    }
}

fn value_of<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| line.strip_prefix(name))
}

fn range(head: &str) -> Option<(u64, u64)> {
    let (first, last) = value_of(head, "range: bytes=")?.split_once('-')?;
    Some((first.parse().ok()?, last.parse::<u64>().ok()? + 1))
}

/// Answers as a server should.
pub(crate) fn honest(data: &[u8], tag: &str, request: &Request) -> Reply {
    match request.range {
        Some((first, end)) => part(data, tag, first, end),
        None => whole(data, tag),
    }
}

pub(crate) fn part(data: &[u8], tag: &str, first: u64, end: u64) -> Reply {
    let size = data.len() as u64;
    if first >= size {
        return status(
            "416 Range Not Satisfiable",
            &format!("content-range: bytes */{size}\r\n"),
        );
    }
    let end = end.min(size);
    let body = data[first as usize..end as usize].to_vec();
    Reply {
        head: format!(
            "HTTP/1.1 206 Partial Content\r\netag: {tag}\r\ncontent-range: bytes {first}-{}/{size}\r\ncontent-length: {}\r\n\r\n",
            end - 1,
            body.len()
        ),
        body,
        ..Reply::default()
    }
}

pub(crate) fn whole(data: &[u8], tag: &str) -> Reply {
    let length = data.len();
    Reply {
        head: format!("HTTP/1.1 200 OK\r\netag: {tag}\r\ncontent-length: {length}\r\n\r\n"),
        body: data.to_vec(),
        ..Reply::default()
    }
}

/// Answers with a status line and no body.
pub(crate) fn status(status: &str, headers: &str) -> Reply {
    Reply {
        head: format!("HTTP/1.1 {status}\r\n{headers}content-length: 0\r\n\r\n"),
        ..Reply::default()
    }
}
