//! A daemon's storage, over a session.

use hyper::body::Bytes;
use nicstripe::{Client, Name};

use super::objects::{Entry, ObjectError, Objects, Obstacle, Upload};

/// The storage of the daemon that a client is connected to.
#[derive(Debug)]
pub(super) struct Peer {
    #[expect(dead_code)]
    client: Client,
}

impl Peer {
    pub(super) fn new(client: Client) -> Self {
        Self { client }
    }
}

fn not_yet() -> ObjectError {
    ObjectError::new(Obstacle::Failed, "not yet")
}

impl Objects for Peer {
    type Upload = Written;

    async fn list(&self, _: &Name) -> Result<Vec<Entry>, ObjectError> {
        Err(not_yet())
    }

    async fn size(&self, _: &Name) -> Result<u64, ObjectError> {
        Err(not_yet())
    }

    async fn read(&self, _: &Name, _: u64, _: u64) -> Result<super::objects::Pieces, ObjectError> {
        Err(not_yet())
    }

    fn create(&self, _: &Name) -> Written {
        Written
    }

    async fn remove(&self, _: &Name) -> Result<(), ObjectError> {
        Err(not_yet())
    }

    async fn make_dir(&self, _: &Name) -> Result<(), ObjectError> {
        Err(not_yet())
    }
}

/// A file on its way.
#[derive(Debug)]
pub(super) struct Written;

impl Upload for Written {
    async fn write(&mut self, _: Bytes) -> Result<(), ObjectError> {
        Err(not_yet())
    }

    async fn finish(self) -> Result<(), ObjectError> {
        Err(not_yet())
    }
}
