//! Copies to and from S3 stores in this process: honest ones, and ones that break the rules.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use nicstripe::{CancellationToken, Event};
use nicstripe_web::{
    Account, AccountOptions, Fetch, FetchOptions, S3Place, Sent, Store, Upload, UploadOptions,
    WebError,
};
use tempfile::TempDir;

use crate::store::{FakeStore, Reply, Request, document, refused};

const MIB: usize = 1 << 20;

struct Rig {
    fake: FakeStore,
    store: Arc<Store>,
    folder: TempDir,
}

impl Rig {
    /// Starts a store that does as `manner` says, or else what it should.
    async fn with(manner: impl Fn(&Request) -> Option<Reply> + Send + Sync + 'static) -> Self {
        let fake = FakeStore::start(manner).await;
        let mut options = AccountOptions::default();
        options.endpoint = Some(fake.server.url(""));
        options.region = Some("us-east-1".to_owned());
        options.anonymous = true;
        let account = Account::new(options).unwrap();
        let store = Arc::new(Store::find(account, &fetch_options()).await.unwrap());
        Self {
            fake,
            store,
            folder: tempfile::tempdir().unwrap(),
        }
    }

    async fn honest() -> Self {
        Self::with(|_| None).await
    }

    fn file(&self, bytes: &[u8]) -> PathBuf {
        let path = self.folder.path().join("file");
        fs::write(&path, bytes).unwrap();
        path
    }

    fn options(&self) -> UploadOptions {
        let mut options = UploadOptions::default();
        options.part = 5 << 20;
        options.state = Some(self.folder.path().join("state"));
        options.patience = Duration::from_secs(5);
        options
    }

    async fn send(&self, bytes: &[u8], options: UploadOptions) -> Result<Sent, WebError> {
        self.send_file(&self.file(bytes), options).await
    }

    async fn send_file(&self, path: &Path, options: UploadOptions) -> Result<Sent, WebError> {
        let upload = Upload::new(self.store.clone(), place("key"), options);
        upload.file(path, CancellationToken::new(), |_| {}).await
    }

    /// Stops an upload once the store has so many bytes of it.
    async fn interrupt(&self, path: &Path, most: usize) {
        let stop = CancellationToken::new();
        let stopping = stop.clone();
        let tell = move |event| match event {
            Event::Progress(progress) if progress.bytes >= most as u64 => stopping.cancel(),
            _ => {}
        };
        let upload = Upload::new(self.store.clone(), place("key"), self.options());
        let error = upload.file(path, stop, tell).await.unwrap_err();
        assert!(
            matches!(error, WebError::Cancelled { resumable: true }),
            "{error:?}"
        );
        assert_eq!(self.fake.unfinished(), 1);
    }

    /// Asserts that the store has these bytes, and nothing unfinished.
    fn has(&self, bytes: &[u8]) {
        assert!(self.fake.object("key").unwrap().bytes == bytes);
        assert_eq!(self.fake.unfinished(), 0);
    }

    async fn get(&self, key: &str) -> Result<Vec<u8>, WebError> {
        let url = self.store.account().url(&place(key)).unwrap();
        let mut options = fetch_options();
        options.account = Some(self.store.account().clone());
        let mut bytes = Vec::new();
        let fetch = Fetch::new(url, options);
        fetch
            .into_stream(&mut bytes, CancellationToken::new(), |_| {})
            .await?;
        Ok(bytes)
    }
}

fn fetch_options() -> FetchOptions {
    let mut options = FetchOptions::default();
    options.patience = Duration::from_secs(5);
    options
}

fn place(key: &str) -> S3Place {
    format!("s3://bucket/{key}").parse().unwrap()
}

fn data(length: usize) -> Vec<u8> {
    crate::data(length).to_vec()
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_any_size_become_objects_and_files_again() {
    for length in [0, 1, 5 * MIB, 5 * MIB + 1, 23 * MIB + 7] {
        let (rig, data) = (Rig::honest().await, data(length));
        let sent = rig.send(&data, rig.options()).await.unwrap();
        assert_eq!(
            sent.proof.to_string(),
            "verified by the server's crc64nvme",
            "{length}"
        );
        assert_eq!(sent.report.size, length as u64);
        let object = rig.fake.object("key").unwrap();
        assert!(object.bytes == data, "{length}");
        let noted = &object.headers["x-amz-meta-nicstripe-blake3"];
        assert_eq!(*noted, blake3::hash(&data).to_string());
        assert!(object.headers.contains_key("x-amz-meta-mtime"));
        assert!(rig.get("key").await.unwrap() == data, "{length}");
        assert_eq!(rig.fake.unfinished(), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pipes_of_any_length_become_objects() {
    for length in [0, 1, 5 * MIB, 10 * MIB, 41 * MIB + 3] {
        let (rig, data) = (Rig::honest().await, data(length));
        let upload = Upload::new(rig.store.clone(), place("key"), rig.options());
        let sent = upload
            .stream(&mut &data[..], CancellationToken::new(), |_| {})
            .await
            .unwrap();
        assert_eq!(sent.proof.to_string(), "verified by the server's crc64nvme");
        rig.has(&data);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_existing_key_is_kept_unless_it_may_be_replaced() {
    let rig = Rig::honest().await;
    for length in [10, 11 * MIB] {
        rig.fake.put("key", b"old");
        let error = rig.send(&data(length), rig.options()).await.unwrap_err();
        assert!(matches!(error, WebError::Exists { .. }), "{error:?}");
        assert_eq!(rig.fake.object("key").unwrap().bytes, b"old");
        let mut options = rig.options();
        options.replace = true;
        rig.send(&data(length), options).await.unwrap();
        assert_eq!(rig.fake.object("key").unwrap().bytes.len(), length);
        assert_eq!(rig.fake.unfinished(), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_that_the_store_has_no_time_for_are_sent_again() {
    let turns = AtomicUsize::new(0);
    let rig = Rig::with(move |request| {
        let is_part = request.has("partNumber");
        let turn = if is_part {
            turns.fetch_add(1, Ordering::Relaxed)
        } else {
            1
        };
        (is_part && turn % 3 == 0).then(|| refused(503, "SlowDown"))
    })
    .await;
    let data = data(31 * MIB);
    rig.send(&data, rig.options()).await.unwrap();
    assert!(rig.fake.object("key").unwrap().bytes == data);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_upload_goes_on_with_the_parts_that_the_store_has() {
    let (rig, data) = (Rig::honest().await, data(64 * MIB));
    let path = rig.file(&data);
    rig.interrupt(&path, 20 * MIB).await;
    assert!(rig.fake.object("key").is_none());
    let before = rig.fake.parts_seen();
    let sent = rig.send_file(&path, rig.options()).await.unwrap();
    let resumed = sent.report.resumed_bytes;
    assert!(resumed >= 20 * MIB as u64, "{resumed}");
    rig.has(&data);
    // 13 parts; at most two per link were under way.
    assert!(rig.fake.parts_seen() - before <= 13 - 4 + 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_upload_of_a_file_that_changed_is_aborted_by_the_next() {
    let rig = Rig::honest().await;
    rig.interrupt(&rig.file(&data(64 * MIB)), 20 * MIB).await;
    let other = data(12 * MIB);
    let sent = rig.send(&other, rig.options()).await.unwrap();
    assert_eq!(sent.report.resumed_bytes, 0);
    rig.has(&other);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_the_store_has_forgotten_begins_again() {
    let (rig, data) = (Rig::honest().await, data(32 * MIB));
    let path = rig.file(&data);
    rig.interrupt(&path, 10 * MIB).await;
    let other = Rig::honest().await;
    // These notes, and a store that knows nothing of the upload.
    other.send_file(&path, rig.options()).await.unwrap();
    assert!(other.fake.object("key").unwrap().bytes == data);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_changes_is_no_object_and_its_upload_is_aborted() {
    let (rig, data) = (Rig::honest().await, data(40 * MIB));
    let path = rig.file(&data);
    let changing = path.clone();
    let tell = move |event| {
        if let Event::Started { .. } = event {
            fs::OpenOptions::new()
                .write(true)
                .open(&changing)
                .unwrap()
                .set_len(41 << 20)
                .unwrap();
        }
    };
    let upload = Upload::new(rig.store.clone(), place("key"), rig.options());
    let error = upload
        .file(&path, CancellationToken::new(), tell)
        .await
        .unwrap_err();
    assert!(matches!(error, WebError::SourceChanged { .. }), "{error:?}");
    assert!(rig.fake.object("key").is_none());
    assert_eq!(rig.fake.unfinished(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_store_refuses_ends_the_upload_with_its_words() {
    let rig = Rig::with(|request| {
        request
            .has("partNumber")
            .then(|| refused(403, "AccessDenied"))
    })
    .await;
    let error = rig.send(&data(11 * MIB), rig.options()).await.unwrap_err();
    assert!(error.is_refused(), "{error}");
    assert!(error.to_string().contains("AccessDenied: no"), "{error}");
    assert_eq!(rig.fake.unfinished(), 0);
    let rig = Rig::with(|_| {
        let body =
            b"<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-9</Region></Error>";
        Some(Reply(400, String::new(), body.to_vec()))
    })
    .await;
    let error = rig.send(b"x", rig.options()).await.unwrap_err().to_string();
    assert!(error.contains("--region eu-west-9"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_whose_answer_is_lost_is_known_by_the_object() {
    let turns = AtomicUsize::new(0);
    let rig = Rig::with(move |request| {
        // The second try finds no upload, as if the first had succeeded.
        let is_first = request.completes() && turns.fetch_add(1, Ordering::Relaxed) == 0;
        is_first.then(|| refused(404, "NoSuchUpload"))
    })
    .await;
    let data = data(11 * MIB);
    let error = rig.send(&data, rig.options()).await.unwrap_err();
    assert!(error.to_string().contains("NoSuchUpload"), "{error}");
    // The object is there, with the BLAKE3 of this file.
    rig.send(&data, rig.options()).await.unwrap();
    assert!(rig.fake.object("key").unwrap().bytes == data);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_inside_a_success_is_an_error() {
    let rig = Rig::with(|request| {
        let error = document("Error", "<Code>InternalError</Code>");
        request.completes().then_some(error)
    })
    .await;
    let error = rig.send(&data(11 * MIB), rig.options()).await.unwrap_err();
    assert!(error.to_string().contains("InternalError"), "{error}");
    assert!(rig.fake.object("key").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_without_the_checksum_is_used_without() {
    let rig = Rig::with(|request| {
        let asks = request.headers.contains_key("x-amz-checksum-algorithm");
        asks.then(|| refused(501, "NotImplemented"))
    })
    .await;
    let data = data(11 * MIB);
    rig.send(&data, rig.options()).await.unwrap();
    assert!(rig.fake.object("key").unwrap().bytes == data);
}

#[tokio::test(flavor = "multi_thread")]
async fn listings_without_end_or_sense_are_errors() {
    let endless = |_: &Request| {
        let page = "<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>\
                    <Contents><Key>key</Key></Contents>";
        Some(document("ListBucketResult", page))
    };
    let rig = Rig::with(endless).await;
    let error = rig.store.list(&place(""), false).await.unwrap_err();
    assert!(matches!(error, WebError::Nonsense { .. }), "{error:?}");
    for body in [
        "",
        "<html>login</html>",
        "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
    ] {
        let rig =
            Rig::with(move |_| Some(Reply(200, String::new(), body.as_bytes().to_vec()))).await;
        let listed = rig.store.list(&place(""), false).await;
        // An empty listing would delete what a copy with --delete finds.
        assert!(matches!(listed, Err(WebError::Nonsense { .. })), "{body}");
    }
    // Keys of another prefix would become files that no one asked for.
    for inside in [
        "<Contents><Key>other/x</Key></Contents>",
        "<CommonPrefixes><Prefix>o</Prefix></CommonPrefixes>",
    ] {
        let rig = Rig::with(move |_| Some(document("ListBucketResult", inside))).await;
        let error = rig.store.list(&place("mine/"), true).await.unwrap_err();
        assert!(matches!(error, WebError::Nonsense { .. }), "{error:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_object_is_not_taken_for_the_right_one() {
    let rig = Rig::honest().await;
    rig.send(&data(3 * MIB), rig.options()).await.unwrap();
    let mut object = rig.fake.object("key").unwrap();
    object.bytes[7] ^= 1;
    let other = Rig::with(move |request| {
        (request.path == "/bucket/key").then(|| {
            let noted = &object.headers["x-amz-meta-nicstripe-blake3"];
            let size = object.bytes.len();
            let kept = format!("etag: \"x\"\r\nx-amz-meta-nicstripe-blake3: {noted}\r\n");
            match request.range {
                Some((first, last)) => {
                    let last = last.min(size - 1);
                    let headers = format!("{kept}content-range: bytes {first}-{last}/{size}\r\n");
                    Reply(206, headers, object.bytes[first..=last].to_vec())
                }
                None => Reply(200, kept, object.bytes.clone()),
            }
        })
    })
    .await;
    let error = other.get("key").await.unwrap_err();
    assert!(matches!(error, WebError::Digest { .. }), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_was_begun_and_not_told_of_is_aborted_by_the_next_run() {
    let is_broken = Arc::new(AtomicBool::new(true));
    let broken = is_broken.clone();
    let rig = Rig::with(move |request| {
        let begins = request.method == "POST" && request.has("uploads");
        (begins && broken.load(Ordering::Relaxed)).then(|| refused(500, "InternalError"))
    })
    .await;
    let mut options = rig.options();
    options.patience = Duration::from_millis(100);
    let data = data(11 * MIB);
    rig.send(&data, options).await.unwrap_err();
    rig.fake.begin("lost", "key", None);
    rig.fake.begin("other's", "key", Some(b"part"));
    rig.fake.begin("other key's", "key2", None);
    is_broken.store(false, Ordering::Relaxed);
    rig.send(&data, rig.options()).await.unwrap();
    assert!(rig.fake.object("key").unwrap().bytes == data);
    assert_eq!(rig.fake.uploads(), ["other key's", "other's"]);
    // Nothing is looked for if the last run ended as it should.
    rig.fake.begin("lost", "key", None);
    let mut options = rig.options();
    options.replace = true;
    rig.send(&data, options).await.unwrap();
    assert_eq!(rig.fake.uploads(), ["lost", "other key's", "other's"]);
}
