//! Removal of objects, and of the directories that are empty then.

use std::collections::BTreeSet;

use hyper::{HeaderMap, StatusCode};
use nicstripe::{FailCode, Name};

use crate::{
    names::{Bucket, Target},
    protocol::{
        condition::Conditions,
        error::{Code, S3Error},
        xml::{self, Xml},
    },
    reply::{self, Reply},
    store::Store,
};

/// Removes an object. It need not exist.
pub(crate) async fn one(
    store: &Store,
    target: &Target,
    headers: &HeaderMap,
) -> Result<Reply, S3Error> {
    for name in ["x-amz-if-match-last-modified-time", "x-amz-if-match-size"] {
        if headers.contains_key(name) {
            return Err(S3Error::unsupported(name));
        }
    }
    let conditions = Conditions::of(headers, "");
    if conditions.is_none() {
        let failed = many(store, std::slice::from_ref(target)).await?;
        if let Some((_, error)) = failed.into_iter().next() {
            return Err(error);
        }
    } else {
        let object = store.object(&target.name).await?;
        conditions.require(&object.etag(), object.stat.modified)?;
        match object.stat.etag {
            Some(tag) => store.client.remove_if(&target.name, tag).await?,
            None => store.client.remove(&target.name).await?,
        }
        remove_empty(store, [target]).await?;
    }
    Ok(reply::empty(StatusCode::NO_CONTENT))
}

/// Removes objects. Returns those that remain.
async fn many(store: &Store, targets: &[Target]) -> Result<Vec<(Target, S3Error)>, S3Error> {
    let names = |is_folder| -> Vec<Name> {
        let some = targets
            .iter()
            .filter(|target| target.is_folder == is_folder);
        some.map(|target| target.name.clone()).collect()
    };
    let (files, dirs) = (names(false), names(true));
    let mut left = store.client.remove_files(&files).await?;
    left.extend(store.client.remove_dirs(&dirs).await?);
    let is_gone = |code| {
        matches!(
            code,
            Some(FailCode::NotFound | FailCode::NotAFile | FailCode::NotADirectory)
        )
    };
    let mut failed = Vec::new();
    for one in left {
        let is_folder = dirs.contains(&one.name);
        // A directory with something in it is no object.
        let is_full = is_folder && one.error.fail_code() == Some(FailCode::Exists);
        if is_gone(one.error.fail_code()) || is_full {
            continue;
        }
        if let Some(target) = targets.iter().find(|target| target.name == one.name) {
            failed.push((target.clone(), one.error.into()));
        }
    }
    let is_removed = |target: &&Target| failed.iter().all(|(other, _)| other != *target);
    remove_empty(store, targets.iter().filter(is_removed)).await?;
    Ok(failed)
}

/// Removes the directories that held objects and are empty, as prefixes without keys are none.
pub(crate) async fn remove_empty<'t>(
    store: &Store,
    targets: impl IntoIterator<Item = &'t Target>,
) -> Result<(), S3Error> {
    let dirs: BTreeSet<Name> = targets.into_iter().flat_map(Target::parents).collect();
    // The innermost first.
    let dirs: Vec<Name> = dirs.into_iter().rev().collect();
    // Those that remain are not empty, or the next removal finds them.
    store.client.remove_dirs(&dirs).await?;
    Ok(())
}

/// Removes the objects of a list.
pub(crate) async fn listed(
    store: &Store,
    bucket: &Bucket,
    document: &[u8],
) -> Result<Reply, S3Error> {
    let mut xml = Xml::new("DeleteResult");
    let (targets, is_quiet) = wanted(bucket, document, &mut xml)?;
    store.require_bucket(bucket).await?;
    let failed = many(store, &targets).await?;
    for target in targets {
        match failed.iter().find(|(other, _)| *other == target) {
            Some((_, error)) => tell_error(&mut xml, &target.key, error),
            None if is_quiet => {}
            None => {
                xml.open("Deleted")
                    .text("Key", &target.key)
                    .close("Deleted");
            }
        }
    }
    Ok(reply::found(&xml.end()))
}

/// Returns the objects of a list, and true if the result has only those that remain. Tells the errors of
/// the others.
pub(crate) fn wanted(
    bucket: &Bucket,
    document: &[u8],
    xml: &mut Xml,
) -> Result<(Vec<Target>, bool), S3Error> {
    let malformed = |why: String| Code::MALFORMED_XML.because(why);
    let delete = xml::read(document, "Delete")?;
    let count = delete.all("Object").count();
    if !(1..=MOST_KEYS).contains(&count) {
        return Err(malformed(format!("expected 1 to {MOST_KEYS} keys")));
    }
    let mut targets = Vec::new();
    for object in delete.all("Object") {
        let key = object.get("Key");
        let key = key.ok_or_else(|| malformed("an object has no key".to_owned()))?;
        let is_version = |text: &str| !["", "null"].contains(&text.trim());
        let unsupported = UNSUPPORTED
            .into_iter()
            .find(|(name, _)| object.get(name).is_some_and(is_version));
        match (unsupported, bucket.target(key)) {
            (Some((_, what)), _) => {
                let why = format!("{what} are not supported");
                tell_error(xml, key, &Code::NOT_IMPLEMENTED.because(why));
            }
            (None, Ok(target)) => targets.push(target),
            (None, Err(error)) => tell_error(xml, key, &error),
        }
    }
    let is_quiet = delete
        .get("Quiet")
        .is_some_and(|text| text.trim() == "true");
    Ok((targets, is_quiet))
}

fn tell_error(xml: &mut Xml, key: &str, error: &S3Error) {
    xml.open("Error")
        .text("Key", key)
        .text("Code", error.word())
        .text("Message", &error.message)
        .close("Error");
}

const MOST_KEYS: usize = 1000;

/// Elements of an object that restrict what is removed.
const UNSUPPORTED: [(&str, &str); 4] = [
    ("VersionId", "versions"),
    ("ETag", "conditions in lists"),
    ("LastModifiedTime", "conditions in lists"),
    ("Size", "conditions in lists"),
];
