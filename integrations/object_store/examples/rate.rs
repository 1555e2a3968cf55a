//! Rates of the store beside those of the library, over the same client and in turns.
//!
//! ```text
//! cargo run --release --example rate -- HOST [MIB [RUNS]]
//! ```
//!
//! One object of MIB MiB (2048) is put and got RUNS times (3), then 1000 objects of 100 KiB by 16 tasks.
//! Uses the key and the trusted peers of the `nicstripe` command. The objects are below `rate/`, which
//! is removed.

use std::{
    error::Error,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use nicstripe::{
    Client, CopyOptions, Name, OpenOptions,
    trust::{Home, Identity, Peers},
};
use nicstripe_object_store::NicstripeStore;
use object_store::{ObjectStore as _, ObjectStoreExt as _, WriteMultipart, path::Path};
use tokio::io::AsyncWriteExt as _;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;
type Measured<'a> = Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;
type Run = for<'a> fn(&'a Stand) -> Measured<'a>;

/// Size of a part in bytes, and how many may wait.
const PART: usize = 8 << 20;
const IN_FLIGHT: usize = 4;

const SMALL: usize = 100 << 10;
const COUNT: u64 = 1000;
const TASKS: usize = 16;

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let host = arguments.next().ok_or("usage: rate HOST [MIB [RUNS]]")?;
    let mut number = |default: u64| arguments.next().map_or(Ok(default), |text| text.parse());
    let (mib, runs) = (number(2048)?, number(3)?);
    let home = Home::from_env()?;
    let client = Client::builder()
        .identity(Identity::load_or_create(home.identity_file())?)
        .peers(Peers::load(home.peers_file())?)
        .connect(&host)
        .await?;
    let stand = Stand {
        store: Arc::new(NicstripeStore::new(client.clone())),
        client,
        part: Bytes::from(vec![7; PART]),
        parts: (mib << 20).div_ceil(PART as u64),
    };
    let (large, small) = (stand.parts * PART as u64, COUNT * SMALL as u64);
    let all: [(&str, u64, Run, Run); 4] = [
        ("put", large, Stand::put, Stand::store_put),
        ("get", large, Stand::get, Stand::store_get),
        ("put small", small, Stand::put_small, Stand::store_put_small),
        ("get small", small, Stand::get_small, Stand::store_get_small),
    ];
    for (what, bytes, library, store) in all {
        let (mut own, mut stored) = (Vec::new(), Vec::new());
        for _ in 0..runs {
            for (times, run) in [(&mut own, library), (&mut stored, store)] {
                let start = Instant::now();
                run(&stand).await?;
                times.push(start.elapsed());
            }
        }
        let (own, stored) = (rate(bytes, own), rate(bytes, stored));
        println!(
            "{what:10} library {own:7.1} MB/s, store {stored:7.1} MB/s: {:.1} %",
            stored / own * 100.0
        );
    }
    let objects = stand.store.list(Some(&Path::from("rate")));
    let objects = objects.map_ok(|meta| meta.location).boxed();
    let removed = stand.store.delete_stream(objects);
    removed.try_collect::<Vec<_>>().await?;
    stand.client.remove(&Name::parse(b"rate")?).await?;
    stand.client.close().await;
    Ok(())
}

/// Returns the median rate in MB/s.
fn rate(bytes: u64, mut times: Vec<Duration>) -> f64 {
    times.sort();
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    bytes as f64 / median.as_secs_f64() / 1e6
}

struct Stand {
    client: Client,
    store: Arc<NicstripeStore>,
    part: Bytes,
    parts: u64,
}

fn replacing() -> CopyOptions {
    CopyOptions {
        replace: true,
        parents: true,
        ..CopyOptions::default()
    }
}

fn small(number: u64) -> String {
    format!("rate/small-{number}")
}

/// Makes one call for each small object, by [`TASKS`] at a time.
async fn each_small<F: Future<Output = Result<()>>>(one: impl Fn(u64) -> F) -> Result<()> {
    let calls = stream::iter(0..COUNT).map(one);
    calls.buffer_unordered(TASKS).try_collect().await
}

fn check(bytes: usize, expected: usize) -> Result<()> {
    match bytes == expected {
        true => Ok(()),
        false => Err(format!("{bytes} bytes arrived, {expected} are there").into()),
    }
}

impl Stand {
    fn size(&self) -> usize {
        self.parts as usize * PART
    }

    fn put(&self) -> Measured<'_> {
        Box::pin(async {
            let name = Name::parse(b"rate/large")?;
            let mut writer = self.client.create(&name, replacing());
            for _ in 0..self.parts {
                writer.write_all(&self.part).await?;
            }
            writer.finish().await?;
            Ok(())
        })
    }

    fn store_put(&self) -> Measured<'_> {
        Box::pin(async {
            let path = Path::from("rate/large");
            let mut upload = WriteMultipart::new(self.store.put_multipart(&path).await?);
            for _ in 0..self.parts {
                upload.wait_for_capacity(IN_FLIGHT).await?;
                upload.put(self.part.clone());
            }
            upload.finish().await?;
            Ok(())
        })
    }

    fn get(&self) -> Measured<'_> {
        Box::pin(async {
            let name = Name::parse(b"rate/large")?;
            let mut reader = self.client.open_with(&name, OpenOptions::default()).await?;
            let mut bytes = 0;
            while let Some(chunk) = reader.next_chunk().await? {
                bytes += chunk.as_ref().len();
            }
            check(bytes, self.size())
        })
    }

    fn store_get(&self) -> Measured<'_> {
        Box::pin(async {
            let got = self.store.get(&Path::from("rate/large")).await?;
            let (mut content, mut bytes) = (got.into_stream(), 0);
            while let Some(chunk) = content.try_next().await? {
                bytes += chunk.len();
            }
            check(bytes, self.size())
        })
    }

    fn put_small(&self) -> Measured<'_> {
        Box::pin(each_small(move |number| async move {
            let name = Name::parse(small(number).as_bytes())?;
            let bytes = self.part.slice(..SMALL);
            self.client.write(&name, bytes, replacing()).await?;
            Ok(())
        }))
    }

    fn store_put_small(&self) -> Measured<'_> {
        Box::pin(each_small(move |number| async move {
            let (path, bytes) = (Path::from(small(number)), self.part.slice(..SMALL));
            self.store.put(&path, bytes.into()).await?;
            Ok(())
        }))
    }

    fn get_small(&self) -> Measured<'_> {
        Box::pin(each_small(move |number| async move {
            let name = Name::parse(small(number).as_bytes())?;
            check(self.client.read(&name, None).await?.len(), SMALL)
        }))
    }

    fn store_get_small(&self) -> Measured<'_> {
        Box::pin(each_small(move |number| async move {
            let got = self.store.get(&Path::from(small(number))).await?;
            check(got.bytes().await?.len(), SMALL)
        }))
    }
}
