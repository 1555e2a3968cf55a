//! Uploads in parts. Each part is a file at the daemon, durable once it is put; the daemon makes the
//! object of them, so that no byte crosses the links twice.
//!
//! `.nicstripe-uploads/ID/info` of a bucket has the key as its content and the object's attributes;
//! `pNUMBER-MD5` next to it is a part, and `tNUMBER` one that is being written. So the MD5 of a part, which
//! is known behind its last byte only, is kept without another file.

mod complete;
mod list;
mod part;

use aws_lc_rs::rand;
use hyper::{HeaderMap, StatusCode};
use nicstripe::{CopyOptions, FailCode, Name, ObjectAttributes};

#[cfg(any(test, fuzzing))]
pub(crate) use self::complete::listed;
pub(crate) use self::{
    complete::complete,
    list::{parts, uploads},
    part::{copy_part, put_part},
};
use crate::{
    names::{Bucket, Target},
    protocol::{
        error::{Code, S3Error},
        query::Query,
        xml::Xml,
    },
    reply::{self, Reply},
    store::Store,
    stored,
};

/// Upload that is not complete.
#[derive(Debug, Clone)]
struct Upload {
    id: String,
    dir: Name,
    attributes: ObjectAttributes,
}

/// Begins an upload.
pub(crate) async fn create(
    store: &Store,
    target: &Target,
    headers: &HeaderMap,
) -> Result<Reply, S3Error> {
    if target.is_folder {
        let why = "a key that ends with a slash is a directory here, and has no content";
        return Err(Code::INVALID_REQUEST.because(why));
    }
    let attributes = stored::requested(headers)?;
    // Room for the tag of the complete object.
    stored::keep_etag(&mut attributes.clone(), LONGEST_ETAG, u64::MAX)?;
    store.require_bucket(&target.bucket).await?;
    let id = random()?;
    let info = joined(&dir_of(&target.bucket, &id)?, INFO)?;
    let options = CopyOptions {
        parents: true,
        ..CopyOptions::default()
    };
    let key = target.key.as_bytes();
    store
        .client
        .write_with(&info, key, options, &attributes)
        .await?;
    let mut xml = Xml::new("InitiateMultipartUploadResult");
    xml.text("Bucket", &target.bucket.name)
        .text("Key", &target.key)
        .text("UploadId", &id);
    Ok(reply::found(&xml.end()))
}

/// Removes an upload with its parts.
pub(crate) async fn abort(store: &Store, target: &Target, query: &Query) -> Result<Reply, S3Error> {
    let upload = Upload::find(store, target, query).await?;
    upload.remove(store, &target.bucket).await?;
    Ok(reply::empty(StatusCode::NO_CONTENT))
}

impl Upload {
    /// Returns the upload that a query names, which must be one of this object.
    async fn find(store: &Store, target: &Target, query: &Query) -> Result<Self, S3Error> {
        let id = query.get("uploadId").unwrap_or_default();
        let dir = dir_of(&target.bucket, id)?;
        let info = joined(&dir, INFO)?;
        let missing = |error: S3Error| error.missing(Code::NO_SUCH_UPLOAD);
        let head = store
            .client
            .head(&info)
            .await
            .map_err(S3Error::from)
            .map_err(missing)?;
        let longest = 0..crate::names::LONGEST_KEY as u64;
        let key = store.client.read(&info, Some(longest)).await;
        let key = key.map_err(S3Error::from).map_err(missing)?;
        if key != target.key.as_bytes() {
            return Err(Code::NO_SUCH_UPLOAD.because("the upload is one of another object"));
        }
        Ok(Self {
            id: id.to_owned(),
            dir,
            attributes: head.attributes,
        })
    }

    /// Removes the upload with its parts. Its record is behind them, so that a removal that failed can be
    /// repeated.
    async fn remove(&self, store: &Store, bucket: &Bucket) -> Result<(), S3Error> {
        let _ending = store.end_upload(&self.id);
        self.remove_parts(store).await?;
        remove_files(store, &[joined(&self.dir, INFO)?]).await?;
        self.remove_rest(store, bucket).await
    }

    /// Removes the parts that came until the record was removed. One that is written still removes itself,
    /// and the directory, as it finds no record.
    async fn remove_rest(&self, store: &Store, bucket: &Bucket) -> Result<(), S3Error> {
        self.remove_parts(store).await?;
        let left = store.client.remove_dirs(&self.dirs(bucket)?).await?;
        let is_harmless = |code| matches!(code, Some(FailCode::NotFound | FailCode::Exists));
        match left.into_iter().find(|one| one.name == self.dir) {
            Some(one) if !is_harmless(one.error.fail_code()) => Err(one.error.into()),
            _ => Ok(()),
        }
    }

    async fn remove_parts(&self, store: &Store) -> Result<(), S3Error> {
        let mut entries = store
            .client
            .entries(Some(self.dir.clone()))
            .at_most(MOST_FILES);
        let mut names = Vec::new();
        loop {
            let entry = match entries.next().await {
                // Another request removed the upload.
                Err(error) if error.is_not_found() => break,
                entry => entry?,
            };
            let Some(entry) = entry else {
                break;
            };
            if entry.name.file_name() != INFO.as_bytes() {
                let name = self.dir.join(entry.name.file_name());
                names.push(name.map_err(|error| internal(error.to_string()))?);
            }
        }
        remove_files(store, &names).await
    }

    /// Returns the directories that are removed with the upload, the innermost first.
    fn dirs(&self, bucket: &Bucket) -> Result<Vec<Name>, S3Error> {
        Ok(vec![self.dir.clone(), bucket.uploads()?])
    }
}

/// Removes files, which need not exist.
async fn remove_files(store: &Store, names: &[Name]) -> Result<(), S3Error> {
    let left = store.client.remove_files(names).await?;
    match left.into_iter().find(|one| !one.error.is_not_found()) {
        Some(one) => Err(one.error.into()),
        None => Ok(()),
    }
}

/// Returns the directory of an upload.
fn dir_of(bucket: &Bucket, id: &str) -> Result<Name, S3Error> {
    let is_id = id.len() == 32
        && id
            .bytes()
            .all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    if !is_id {
        return Err(Code::NO_SUCH_UPLOAD.because("there is no such upload"));
    }
    joined(&bucket.uploads()?, id)
}

fn joined(dir: &Name, name: &str) -> Result<Name, S3Error> {
    dir.join(name.as_bytes())
        .map_err(|error| internal(error.to_string()))
}

fn internal(why: String) -> S3Error {
    Code::INTERNAL_ERROR.because(why)
}

/// Returns a random number of 32 hexadecimal digits.
fn random() -> Result<String, S3Error> {
    let mut bytes = [0; 16];
    rand::fill(&mut bytes).map_err(|_| internal("the system provides no random numbers".into()))?;
    Ok(hex::encode(bytes))
}

/// File with the key and the metadata of an upload.
const INFO: &str = "info";

/// Maximum number of parts, and of the numbers of parts.
const MOST_PARTS: u64 = 10_000;

/// Maximum number of files of an upload: parts may have been put again.
const MOST_FILES: u64 = 100_000;

/// Tag of the length that those of complete objects have at most.
const LONGEST_ETAG: &str = "00000000000000000000000000000000-10000";
