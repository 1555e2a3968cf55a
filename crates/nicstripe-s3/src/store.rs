//! Files at the daemon, and the memory for requests.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
};

use nicstripe::{Client, Kind, Name, PIPE_WINDOW};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    names::Bucket,
    protocol::error::{Code, S3Error},
    stored::Object,
};

/// Files at the daemon, and the memory for requests.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) client: Client,
    base: Option<Name>,
    /// Memory for bodies of requests, and for objects that are read.
    memory: Arc<Semaphore>,
    reading: Arc<Semaphore>,
    /// Uploads whose parts are being removed.
    ending: Mutex<HashSet<String>>,
}

/// Removal of an upload's parts, which ends on drop.
#[derive(Debug)]
pub(crate) struct Ending<'a> {
    store: &'a Store,
    id: &'a str,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let ending = self.store.ending.lock();
        ending
            .unwrap_or_else(PoisonError::into_inner)
            .remove(self.id);
    }
}

impl Store {
    pub(crate) fn new(client: Client, base: Option<Name>) -> Self {
        let units = MOST_BUFFERED / UNIT as usize;
        Self {
            client,
            base,
            memory: Arc::new(Semaphore::new(units)),
            reading: Arc::new(Semaphore::new(units)),
            ending: Mutex::default(),
        }
    }

    /// Begins the removal of an upload's parts.
    pub(crate) fn end_upload<'a>(&'a self, id: &'a str) -> Ending<'a> {
        let ending = self.ending.lock();
        let mut ending = ending.unwrap_or_else(PoisonError::into_inner);
        ending.insert(id.to_owned());
        Ending { store: self, id }
    }

    /// Returns true if the parts of the upload are being removed.
    pub(crate) fn is_ending(&self, id: &str) -> bool {
        let ending = self.ending.lock();
        ending.unwrap_or_else(PoisonError::into_inner).contains(id)
    }

    /// Returns the directory whose directories are the buckets; `None` for the daemon's root.
    pub(crate) fn base(&self) -> Option<&Name> {
        self.base.as_ref()
    }

    pub(crate) fn bucket(&self, name: &str) -> Result<Bucket, S3Error> {
        Bucket::new(self.base(), name)
    }

    /// Fails unless a bucket exists.
    pub(crate) async fn require_bucket(&self, bucket: &Bucket) -> Result<(), S3Error> {
        let missing = || Code::NO_SUCH_BUCKET.because("there is no such bucket");
        let stat = self.client.stat(&bucket.dir).await;
        let stat = stat.map_err(|error| S3Error::from(error).missing(Code::NO_SUCH_BUCKET))?;
        match stat.kind {
            Kind::Dir => Ok(()),
            _ => Err(missing()),
        }
    }

    pub(crate) async fn object(&self, name: &Name) -> Result<Object, S3Error> {
        let head = self.client.head(name).await.map_err(S3Error::of_read)?;
        match head.stat.kind {
            Kind::File => Ok(head.into()),
            _ => Err(Code::NO_SUCH_KEY.because("there is no such object")),
        }
    }

    /// Waits for memory for a body that is read before it is written, and for the client's copy.
    pub(crate) async fn memory(&self, bytes: u64) -> Option<OwnedSemaphorePermit> {
        taken(&self.memory, bytes.saturating_mul(2)).await
    }

    /// Waits for memory for a body that is written as it arrives.
    pub(crate) async fn stream_memory(&self, bytes: u64) -> Option<OwnedSemaphorePermit> {
        taken(&self.memory, bytes.min(MOST_UNSENT)).await
    }

    /// Waits for memory for an object that is read.
    pub(crate) async fn reading_memory(&self, bytes: u64) -> Option<OwnedSemaphorePermit> {
        taken(&self.reading, bytes.min(PIPE_WINDOW)).await
    }
}

async fn taken(memory: &Arc<Semaphore>, bytes: u64) -> Option<OwnedSemaphorePermit> {
    let units = bytes.div_ceil(UNIT).clamp(1, MOST_BUFFERED as u64 / UNIT);
    let units = u32::try_from(units).ok()?;
    // The semaphore is never closed.
    memory.clone().acquire_many_owned(units).await.ok()
}

/// Bytes of the bodies of requests in memory at once, and as many of objects that are read.
pub const MOST_BUFFERED: usize = 32 << 20;

/// Bytes that wait for the links when an object is written.
const MOST_UNSENT: u64 = 9 << 20;

/// Bytes of memory that are counted as one.
const UNIT: u64 = 64 << 10;
