//! S3 store in this process: it does as asked, and it may break every rule on purpose.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use crate::server::{self, Server};

/// Request with its body.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: BTreeMap<String, String>,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
    /// First byte and the last.
    pub(crate) range: Option<(usize, usize)>,
}

impl Request {
    pub(crate) fn has(&self, name: &str) -> bool {
        self.query.contains_key(name)
    }

    fn header(&self, name: &str) -> String {
        self.headers.get(name).cloned().unwrap_or_default()
    }

    fn part(&self) -> Option<u32> {
        self.query.get("partNumber")?.parse().ok()
    }

    /// Returns true for the end of an upload in parts.
    pub(crate) fn completes(&self) -> bool {
        self.method == "POST" && self.has("uploadId")
    }
}

/// Status, headers and body.
#[derive(Debug, Clone)]
pub(crate) struct Reply(pub(crate) u16, pub(crate) String, pub(crate) Vec<u8>);

/// Answers with a document whose root has this content.
pub(crate) fn document(root: &str, content: &str) -> Reply {
    let body = format!("<{root}>{content}</{root}>");
    Reply(200, String::new(), body.into_bytes())
}

impl From<Reply> for server::Reply {
    fn from(Reply(status, headers, body): Reply) -> Self {
        let length = body.len();
        Self {
            head: format!("HTTP/1.1 {status} X\r\n{headers}content-length: {length}\r\n\r\n"),
            body,
            ..Self::default()
        }
    }
}

pub(crate) struct FakeStore {
    pub(crate) server: Server,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Object>,
    uploads: BTreeMap<String, Upload>,
    begun: usize,
}

#[derive(Clone, Default)]
pub(crate) struct Object {
    pub(crate) bytes: Vec<u8>,
    pub(crate) headers: BTreeMap<String, String>,
}

struct Upload {
    key: String,
    headers: BTreeMap<String, String>,
    parts: BTreeMap<u32, Vec<u8>>,
}

pub(crate) fn refused(status: u16, code: &str) -> Reply {
    let body = format!("<Error><Code>{code}</Code><Message>no</Message></Error>");
    Reply(status, String::new(), body.into_bytes())
}

impl FakeStore {
    /// Starts a store that does as `manner` says, or else what it should.
    pub(crate) async fn start(
        manner: impl Fn(&Request) -> Option<Reply> + Send + Sync + 'static,
    ) -> Self {
        let state = Arc::<Mutex<State>>::default();
        let of = state.clone();
        let server = Server::start(move |request| {
            let request = parsed(request);
            let reply = manner(&request);
            let reply = reply.unwrap_or_else(|| of.lock().unwrap().answer(&request));
            reply.into()
        });
        let server = server.await;
        Self { server, state }
    }

    pub(crate) fn object(&self, key: &str) -> Option<Object> {
        self.state.lock().unwrap().objects.get(key).cloned()
    }

    pub(crate) fn put(&self, key: &str, bytes: &[u8]) {
        let object = Object {
            bytes: bytes.to_vec(),
            ..Object::default()
        };
        let mut state = self.state.lock().unwrap();
        state.objects.insert(key.to_owned(), object);
    }

    /// Returns the number of uploads that are neither complete nor aborted.
    pub(crate) fn unfinished(&self) -> usize {
        self.state.lock().unwrap().uploads.len()
    }

    /// Begins an upload as another client does, and gives it a part if it has `bytes`.
    pub(crate) fn begin(&self, id: &str, key: &str, bytes: Option<&[u8]>) {
        let part = bytes.map(|bytes| (1, bytes.to_vec()));
        let upload = Upload {
            key: key.to_owned(),
            headers: BTreeMap::new(),
            parts: part.into_iter().collect(),
        };
        let mut state = self.state.lock().unwrap();
        state.uploads.insert(id.to_owned(), upload);
    }

    /// Returns the ids of uploads that are neither complete nor aborted.
    pub(crate) fn uploads(&self) -> Vec<String> {
        let state = self.state.lock().unwrap();
        state.uploads.keys().cloned().collect()
    }

    pub(crate) fn parts_seen(&self) -> usize {
        let seen = self.server.seen();
        let parts = seen.iter().filter(|one| one.path.contains("partNumber="));
        parts.count()
    }
}

fn parsed(request: &server::Request) -> Request {
    let mut lines = request.head.lines();
    let first: Vec<&str> = lines.next().unwrap().split(' ').collect();
    let (path, query) = first[1].split_once('?').unwrap_or((first[1], ""));
    let decode = |text: &str| {
        let text = percent_encoding::percent_decode_str(text);
        text.decode_utf8_lossy().into_owned()
    };
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let pairs = pairs.map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode(name), decode(value))
    });
    let headers = lines.filter_map(|line| line.split_once(": "));
    let headers = headers.map(|(name, value)| (name.to_lowercase(), value.to_owned()));
    Request {
        method: first[0].to_owned(),
        path: decode(path),
        query: pairs.collect(),
        headers: headers.collect(),
        body: request.body.clone(),
        range: request
            .range
            .map(|(first, end)| (first as usize, end as usize - 1)),
    }
}

impl State {
    fn answer(&mut self, request: &Request) -> Reply {
        let key = request
            .path
            .trim_start_matches("/bucket")
            .trim_start_matches('/')
            .to_owned();
        let etag = |bytes: &[u8]| format!("etag: \"{}\"\r\n", blake3::hash(bytes).to_hex());
        match (&*request.method, request.query.get("uploadId").cloned()) {
            ("GET", None) if request.has("list-type") => self.list(request),
            ("GET", None) if request.has("uploads") => {
                let uploads = self.uploads.iter().map(|(id, upload)| {
                    let key = &upload.key;
                    format!("<Upload><Key>{key}</Key><UploadId>{id}</UploadId></Upload>")
                });
                document("ListMultipartUploadsResult", &uploads.collect::<String>())
            }
            ("GET" | "HEAD", None) => match self.objects.get(&key) {
                Some(object) => got(object, request, &etag(&object.bytes)),
                None => refused(404, "NoSuchKey"),
            },
            ("PUT", None) => {
                if request.headers.contains_key("if-none-match") && self.objects.contains_key(&key)
                {
                    return refused(412, "PreconditionFailed");
                }
                let crc = request.header("x-amz-checksum-crc64nvme");
                let object = Object {
                    bytes: request.body.clone(),
                    headers: request.headers.clone(),
                };
                self.objects.insert(key, object);
                let headers = format!("{}x-amz-checksum-crc64nvme: {crc}\r\n", etag(&request.body));
                Reply(200, headers, Vec::new())
            }
            ("POST", None) if request.has("uploads") => {
                self.begun += 1;
                let id = format!("upload/{}+", self.begun);
                let upload = Upload {
                    key,
                    headers: request.headers.clone(),
                    parts: BTreeMap::new(),
                };
                self.uploads.insert(id.clone(), upload);
                let id = format!("<UploadId>{id}</UploadId>");
                document("InitiateMultipartUploadResult", &id)
            }
            ("POST", None) => document("DeleteResult", ""),
            (_, Some(id)) => self.of_upload(request, &id, etag),
            _ => refused(405, "MethodNotAllowed"),
        }
    }

    fn of_upload(&mut self, request: &Request, id: &str, etag: impl Fn(&[u8]) -> String) -> Reply {
        let Some(upload) = self.uploads.get_mut(id) else {
            return refused(404, "NoSuchUpload");
        };
        match (&*request.method, request.part()) {
            ("PUT", Some(part)) => {
                upload.parts.insert(part, request.body.clone());
                Reply(200, etag(&request.body), Vec::new())
            }
            ("DELETE", None) => {
                self.uploads.remove(id);
                Reply(204, String::new(), Vec::new())
            }
            ("GET", None) => {
                let parts = upload.parts.iter().map(|(number, bytes)| {
                    let etag = blake3::hash(bytes).to_hex();
                    let size = bytes.len();
                    format!("<Part><PartNumber>{number}</PartNumber><ETag>\"{etag}\"</ETag><Size>{size}</Size></Part>")
                });
                document("ListPartsResult", &parts.collect::<String>())
            }
            ("POST", None) => {
                if request.headers.contains_key("if-none-match")
                    && self.objects.contains_key(&upload.key)
                {
                    return refused(412, "PreconditionFailed");
                }
                let asked = String::from_utf8(request.body.clone()).unwrap();
                let is_known = |bytes: &Vec<u8>| asked.contains(&*blake3::hash(bytes).to_hex());
                if !upload.parts.values().all(is_known) {
                    return refused(400, "InvalidPart");
                }
                let crc = request.header("x-amz-checksum-crc64nvme");
                if let Some(upload) = self.uploads.remove(id) {
                    let object = Object {
                        bytes: upload.parts.into_values().flatten().collect(),
                        headers: upload.headers,
                    };
                    self.objects.insert(upload.key, object);
                }
                let crc = format!("<ChecksumCRC64NVME>{crc}</ChecksumCRC64NVME>");
                document("CompleteMultipartUploadResult", &crc)
            }
            _ => refused(405, "MethodNotAllowed"),
        }
    }

    fn list(&self, request: &Request) -> Reply {
        let prefix = request.query.get("prefix").cloned().unwrap_or_default();
        let keys = self
            .objects
            .iter()
            .filter(|(key, _)| key.starts_with(&prefix));
        let contents = keys.map(|(key, object)| {
            let size = object.bytes.len();
            format!("<Contents><Key>{key}</Key><Size>{size}</Size><LastModified>2026-01-02T03:04:05Z</LastModified></Contents>")
        });
        document("ListBucketResult", &contents.collect::<String>())
    }
}

fn got(object: &Object, request: &Request, etag: &str) -> Reply {
    let kept = object
        .headers
        .iter()
        .filter(|(name, _)| name.starts_with("x-amz-meta-"));
    let kept: String = kept
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    let size = object.bytes.len();
    match request.range {
        Some((first, _)) if first >= size => refused(416, "InvalidRange"),
        Some((first, last)) => {
            let last = last.min(size - 1);
            let headers = format!("{etag}{kept}content-range: bytes {first}-{last}/{size}\r\n");
            Reply(206, headers, object.bytes[first..=last].to_vec())
        }
        None => Reply(200, format!("{etag}{kept}"), object.bytes.clone()),
    }
}
