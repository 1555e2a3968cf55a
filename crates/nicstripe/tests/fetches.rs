//! Tests of files that one daemon fetches from another, and of the keys that may read them.

use std::{net::Ipv4Addr, ops::Range, time::Duration};

use crate::harness::{PARENTS, PLAIN, Served, content, digest, leftovers, name, ok, within};
use nicstripe::{Client, Error, FailCode, FetchRequest, Slice, trust::Identity};

const SIZE: usize = 5 << 20;

async fn served() -> Served {
    Served::start_built(tempfile::tempdir().unwrap(), |builder| builder.fetches()).await
}

/// Daemon that feeds and daemon that fetches, with a client of each.
struct Two {
    feeder: Served,
    fetcher: Served,
    at_feeder: Client,
    at_fetcher: Client,
}

impl Two {
    /// Both run, and the feeder has the file `file`, which the fetcher may read.
    async fn with(bytes: &[u8]) -> Self {
        let (feeder, fetcher) = (served().await, served().await);
        std::fs::write(feeder.path("file"), bytes).unwrap();
        let at_feeder = feeder.client(1).await;
        let at_fetcher = fetcher.client(1).await;
        let key = within(at_fetcher.fetch_key()).await.unwrap();
        ok(at_feeder.admit(&key, &[name("file")])).await;
        Self {
            feeder,
            fetcher,
            at_feeder,
            at_fetcher,
        }
    }

    async fn request(&self, bytes: &[u8], range: Range<u64>) -> FetchRequest {
        let part = &bytes[range.start as usize..range.end as usize];
        FetchRequest {
            key: within(self.at_feeder.peer()).await.unwrap().key,
            addresses: vec![Ipv4Addr::LOCALHOST.into()],
            port: self.feeder.port,
            from: name("file"),
            digest: digest(part),
            range,
            to: name("dir/fetched"),
            metadata: None,
            options: PARENTS,
        }
    }

    async fn fetch(&self, request: &FetchRequest) -> Result<nicstripe::Stat, Error> {
        within(self.at_fetcher.fetch_from(request)).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_fetched_whole_or_in_slices_with_its_time_and_mode() {
    let bytes = content(SIZE);
    let two = Two::with(&bytes).await;
    let mut request = two.request(&bytes, 0..SIZE as u64).await;
    let modified = std::time::UNIX_EPOCH + Duration::from_millis(1_600_000_000_500);
    request.metadata = Some((modified, 0o750));
    request.options.preserve = true;
    let stat = two.fetch(&request).await.unwrap();
    let fetched = two.fetcher.path("dir/fetched");
    assert!(std::fs::read(&fetched).unwrap() == bytes);
    assert_eq!((stat.size, stat.modified), (SIZE as u64, modified));
    // An existing file is not replaced unasked.
    let error = two.fetch(&request).await.unwrap_err();
    assert_eq!(error.fail_code(), Some(FailCode::Exists), "{error}");

    let half = SIZE as u64 / 2;
    for range in [half..SIZE as u64, 0..half] {
        let mut request = two.request(&bytes, range.clone()).await;
        request.to = name("sliced");
        request.options.slice = Some(Slice {
            offset: range.start,
            size: SIZE as u64,
            ..Slice::default()
        });
        two.fetch(&request).await.unwrap();
    }
    assert!(std::fs::read(two.fetcher.path("sliced")).unwrap() == bytes);
    // An empty one, too.
    let empty = two.request(&bytes, 0..0).await;
    let to = name("empty");
    two.fetch(&FetchRequest { to, ..empty }).await.unwrap();
    assert_eq!(std::fs::read(two.fetcher.path("empty")).unwrap(), b"");
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_not_those_of_the_client_get_no_name() {
    let bytes = content(SIZE);
    let two = Two::with(&bytes).await;
    let good = two.request(&bytes, 0..SIZE as u64).await;
    let mut changed = bytes.clone();
    changed[SIZE / 2] ^= 1;
    std::fs::write(two.feeder.path("file"), changed).unwrap();
    let beyond = FetchRequest {
        range: 0..SIZE as u64 + 1,
        ..good.clone()
    };
    for request in [&good, &beyond] {
        let error = two.fetch(request).await.unwrap_err();
        assert_eq!(error.fail_code(), Some(FailCode::Digest), "{error}");
    }
    let dir = two.fetcher.path("dir");
    assert!(!dir.join("fetched").exists() && leftovers(&dir).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_gives_nothing_is_told_from_one_that_gives_something_else() {
    let bytes = content(1 << 10);
    let two = Two::with(&bytes).await;
    let good = two.request(&bytes, 0..1 << 10).await;
    let other = Identity::generate().unwrap().public_key();
    for request in [
        // Another daemon is there.
        FetchRequest {
            key: other,
            ..good.clone()
        },
        // No daemon is there.
        FetchRequest {
            port: 1,
            ..good.clone()
        },
        // It may not be read.
        FetchRequest {
            from: name("other"),
            ..good.clone()
        },
    ] {
        let error = two.fetch(&request).await.unwrap_err();
        assert_eq!(error.fail_code(), Some(FailCode::Busy), "{error}");
    }
    two.fetch(&good).await.unwrap();
    let long = FetchRequest {
        range: 0..65 << 20,
        ..good
    };
    assert!(
        two.fetch(&long).await.is_err(),
        "more than may be fetched at once"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_admitted_key_reads_the_named_files_until_its_client_has_gone_and_nothing_else() {
    let served = served().await;
    for file in ["named", "other"] {
        std::fs::write(served.path(file), file).unwrap();
    }
    let owner = served.client(1).await;
    let identity = Identity::generate().unwrap();
    let key = identity.public_key();
    let connect = || {
        served
            .builder(1)
            .identity(identity.clone())
            .connect("127.0.0.1")
    };
    assert!(within(connect()).await.is_err(), "nobody knows it yet");
    within(owner.admit(&key, &[name("named")])).await.unwrap();
    let admitted = within(connect()).await.unwrap();
    let read = within(admitted.read(&name("named"), None)).await;
    assert_eq!(read.unwrap(), b"named");
    let (options, other) = (PLAIN, name("other"));
    let refused = [
        within(admitted.read(&other, None)).await.map(drop),
        within(admitted.write(&name("new"), "x", options))
            .await
            .map(drop),
        within(admitted.remove(&name("named"))).await,
        within(admitted.stat(&name("named"))).await.map(drop),
        within(admitted.list(None)).await.map(drop),
        within(admitted.admit(&key, &[other])).await,
        within(admitted.fetch_key()).await.map(drop),
    ];
    for (index, refused) in refused.into_iter().enumerate() {
        let code = refused.unwrap_err().fail_code();
        assert_eq!(code, Some(FailCode::NotPermitted), "{index}");
    }
    // The owner's session is over.
    within(owner.close()).await;
    let lost = async {
        while admitted.read(&name("named"), None).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within(lost).await;
    assert!(within(connect()).await.is_err(), "it is worth nothing now");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_write_or_read_has_no_part_in_it() {
    let plain = Served::start().await;
    let client = plain.client(1).await;
    let error = within(client.fetch_key()).await.unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");

    let reading = Served::start_built(tempfile::tempdir().unwrap(), |builder| {
        builder.fetches().read_only(true)
    });
    let reading = reading.await;
    let client = reading.client(1).await;
    let error = within(client.fetch_key()).await.unwrap_err();
    assert_eq!(error.fail_code(), Some(FailCode::NotPermitted), "{error}");
    // A key with its own line keeps the rights of that.
    let own = reading.client.public_key();
    assert!(within(client.admit(&own, &[name("file")])).await.is_err());
}
