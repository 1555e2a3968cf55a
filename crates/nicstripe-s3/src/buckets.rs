//! Buckets: directories below the base.

use hyper::StatusCode;
use nicstripe::{FailCode, Kind};

use crate::{
    names::{Bucket, is_bucket},
    protocol::{
        date,
        error::{Code, S3Error},
        xml::Xml,
    },
    reply::{self, Reply},
    store::Store,
};

pub(crate) async fn list(store: &Store) -> Result<Reply, S3Error> {
    let mut entries = store
        .client
        .entries(store.base().cloned())
        .at_most(MOST_ENTRIES);
    let mut xml = Xml::new("ListAllMyBucketsResult");
    owner(&mut xml);
    xml.open("Buckets");
    loop {
        let entry = entries.next().await;
        let Some(entry) =
            entry.map_err(|error| S3Error::from(error).missing(Code::NO_SUCH_BUCKET))?
        else {
            break;
        };
        let name = entry.name.file_name();
        if let (Kind::Dir, true, Ok(name)) =
            (entry.stat.kind, is_bucket(name), str::from_utf8(name))
        {
            xml.open("Bucket")
                .text("Name", name)
                .text("CreationDate", &date::iso(entry.stat.modified))
                .close("Bucket");
        }
    }
    xml.close("Buckets");
    Ok(reply::found(&xml.end()))
}

pub(crate) async fn create(store: &Store, bucket: &Bucket) -> Result<Reply, S3Error> {
    match store.require_bucket(bucket).await {
        Ok(()) => {
            return Err(Code::BUCKET_ALREADY_OWNED_BY_YOU.because("the bucket exists"));
        }
        Err(error) if error.code == Code::NO_SUCH_BUCKET => {}
        Err(error) => return Err(error),
    }
    store.client.make_dir(&bucket.dir).await?;
    let mut reply = reply::empty(StatusCode::OK);
    crate::stored::add(
        reply.headers_mut(),
        "location",
        &format!("/{}", bucket.name),
    );
    Ok(reply)
}

/// Removes a bucket, which must be empty. Uploads that are not complete count.
pub(crate) async fn delete(store: &Store, bucket: &Bucket) -> Result<Reply, S3Error> {
    store.require_bucket(bucket).await?;
    let dirs = [bucket.uploads()?, bucket.dir.clone()];
    let left = store.client.remove_dirs(&dirs).await?;
    match left.into_iter().find(|one| one.name == bucket.dir) {
        None => Ok(reply::empty(StatusCode::NO_CONTENT)),
        Some(one) if one.error.fail_code() == Some(FailCode::Exists) => {
            Err(Code::BUCKET_NOT_EMPTY.because("the bucket is not empty"))
        }
        Some(one) => Err(S3Error::from(one.error).missing(Code::NO_SUCH_BUCKET)),
    }
}

/// Answers the questions about what no bucket and no object has here.
pub(crate) fn configuration(what: &str) -> Result<Reply, S3Error> {
    let word = match what {
        "location" => return Ok(constant("LocationConstraint")),
        "versioning" => return Ok(constant("VersioningConfiguration")),
        "logging" => return Ok(constant("BucketLoggingStatus")),
        "notification" => return Ok(constant("NotificationConfiguration")),
        "accelerate" => return Ok(constant("AccelerateConfiguration")),
        "acl" => return Ok(reply::found(&acl())),
        "tagging" => "NoSuchTagSet",
        "policy" | "policyStatus" => "NoSuchBucketPolicy",
        "cors" => "NoSuchCORSConfiguration",
        "lifecycle" => "NoSuchLifecycleConfiguration",
        "website" => "NoSuchWebsiteConfiguration",
        "encryption" => "ServerSideEncryptionConfigurationNotFoundError",
        "replication" => "ReplicationConfigurationNotFoundError",
        "object-lock" => "ObjectLockConfigurationNotFoundError",
        "publicAccessBlock" => "NoSuchPublicAccessBlockConfiguration",
        "ownershipControls" => "OwnershipControlsNotFoundError",
        _ => return Err(S3Error::unsupported(what)),
    };
    Err(Code::not_configured(word).because(format!("buckets have no {what} here")))
}

/// Returns the tags of an object: none.
pub(crate) fn object_tags() -> Reply {
    let mut xml = Xml::new("Tagging");
    xml.open("TagSet").close("TagSet");
    reply::found(&xml.end())
}

fn constant(root: &str) -> Reply {
    reply::found(&Xml::new(root).end())
}

/// Returns the access control list of everything: the key pair may do all that the daemon permits.
fn acl() -> String {
    let mut xml = Xml::new("AccessControlPolicy");
    owner(&mut xml);
    xml.open("AccessControlList").open("Grant").raw(
        "<Grantee xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" xsi:type=\"CanonicalUser\">",
    );
    xml.text("ID", OWNER)
        .close("Grantee")
        .text("Permission", "FULL_CONTROL");
    xml.close("Grant").close("AccessControlList");
    xml.end()
}

pub(crate) fn owner(xml: &mut Xml) {
    xml.open("Owner")
        .text("ID", OWNER)
        .text("DisplayName", OWNER)
        .close("Owner");
}

/// Name of the owner of everything.
pub(crate) const OWNER: &str = "nicstripe";

/// Number of entries of the base after which a list of buckets fails.
const MOST_ENTRIES: u64 = 10_000;
