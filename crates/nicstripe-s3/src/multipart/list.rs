//! Lists of uploads that are not complete, and of their parts.

use std::{collections::BTreeMap, time::SystemTime};

use futures_util::{StreamExt as _, stream};
use nicstripe::Kind;

use super::{INFO, MOST_FILES, Upload, dir_of, joined};
use crate::{
    buckets::{OWNER, owner},
    listing::{Encoding, Group, group_of},
    names::{Bucket, LONGEST_KEY, Target},
    protocol::{
        date,
        error::{Code, S3Error},
        query::Query,
        xml::Xml,
    },
    reply::{self, Reply},
    store::Store,
    stored::quoted,
};

/// Lists the parts of an upload. Of parts with the same number, the newest.
pub(crate) async fn parts(store: &Store, target: &Target, query: &Query) -> Result<Reply, S3Error> {
    let most = query
        .number("max-parts")?
        .unwrap_or(MOST_LISTED)
        .min(MOST_LISTED);
    let marker = query.number("part-number-marker")?.unwrap_or_default();
    let encoding = Encoding::of(query)?;
    let upload = Upload::find(store, target, query).await?;
    let mut entries = store
        .client
        .entries(Some(upload.dir.clone()))
        .at_most(MOST_FILES);
    let gone = |error| S3Error::from(error).missing(Code::NO_SUCH_UPLOAD);
    let mut found = BTreeMap::<u64, (SystemTime, u64, String)>::new();
    while let Some(entry) = entries.next().await.map_err(gone)? {
        let name = str::from_utf8(entry.name.file_name()).unwrap_or_default();
        let part = name.strip_prefix('p').and_then(|name| name.split_once('-'));
        let Some((Ok(number), md5)) = part.map(|(number, md5)| (number.parse::<u64>(), md5)) else {
            continue;
        };
        let part = (entry.stat.modified, entry.stat.size, md5.to_owned());
        if number > marker && found.get(&number).is_none_or(|known| *known < part) {
            found.insert(number, part);
        }
    }
    let is_truncated = found.len() as u64 > most && most > 0;
    let shown: Vec<_> = found.into_iter().take(most as usize).collect();
    let mut xml = Xml::new("ListPartsResult");
    xml.text("Bucket", &target.bucket.name)
        .text("Key", &encoding.applied(&target.key))
        .text("UploadId", &upload.id)
        .shown("PartNumberMarker", marker)
        .shown(
            "NextPartNumberMarker",
            shown.last().map_or(marker, |(number, _)| *number),
        )
        .shown("MaxParts", most)
        .shown("IsTruncated", is_truncated)
        .text("StorageClass", "STANDARD");
    owner(&mut xml);
    for (number, (modified, size, md5)) in &shown {
        xml.open("Part")
            .shown("PartNumber", number)
            .text("LastModified", &date::iso(*modified))
            .text("ETag", &quoted(md5))
            .shown("Size", size)
            .close("Part");
    }
    Ok(reply::found(&xml.end()))
}

/// Upload in a list: its key, its ID, and when it began.
type Begun = (String, String, SystemTime);

/// Lists the uploads of a bucket that are not complete.
pub(crate) async fn uploads(
    store: &Store,
    bucket: &Bucket,
    query: &Query,
) -> Result<Reply, S3Error> {
    let most = query
        .number("max-uploads")?
        .unwrap_or(MOST_LISTED)
        .min(MOST_LISTED);
    if most == 0 {
        return Err(Code::INVALID_ARGUMENT.because("max-uploads is at least 1"));
    }
    let encoding = Encoding::of(query)?;
    let get = |name| query.get(name).unwrap_or_default();
    let (prefix, delimiter) = (get("prefix"), get("delimiter"));
    let (marker, id_marker) = (get("key-marker"), get("upload-id-marker"));
    let begun = begun(store, bucket).await?;
    let is_behind = |(key, id, _): &&Begun| {
        key.starts_with(prefix)
            && (key.as_str() > marker
                || (key == marker && id.as_str() > id_marker && !id_marker.is_empty()))
    };
    let mut shown = Vec::new();
    let mut prefixes = Vec::<&str>::new();
    let mut is_truncated = false;
    for one in begun.iter().filter(is_behind) {
        let group = group_of(&one.0, prefix, delimiter);
        if let Group::Prefix(common) = group
            && (prefixes.last() == Some(&common) || common <= marker)
        {
            continue;
        }
        if (shown.len() + prefixes.len()) as u64 >= most {
            is_truncated = true;
            break;
        }
        match group {
            Group::Prefix(common) => prefixes.push(common),
            Group::Key => shown.push(one),
        }
    }
    let mut xml = Xml::new("ListMultipartUploadsResult");
    xml.text("Bucket", &bucket.name)
        .text("KeyMarker", &encoding.applied(marker))
        .text("UploadIdMarker", id_marker)
        .text("Prefix", &encoding.applied(prefix))
        .text("Delimiter", &encoding.applied(delimiter))
        .shown("MaxUploads", most)
        .shown("IsTruncated", is_truncated);
    encoding.tell(&mut xml);
    let last_prefix = prefixes.last().copied().unwrap_or_default();
    match shown.last() {
        Some((key, id, _)) if is_truncated && key.as_str() > last_prefix => {
            xml.text("NextKeyMarker", &encoding.applied(key))
                .text("NextUploadIdMarker", id);
        }
        _ if is_truncated => {
            xml.text("NextKeyMarker", &encoding.applied(last_prefix));
        }
        _ => {}
    }
    for (key, id, begun) in shown {
        xml.open("Upload")
            .text("Key", &encoding.applied(key))
            .text("UploadId", id);
        xml.open("Initiator").text("ID", OWNER).close("Initiator");
        owner(&mut xml);
        xml.text("StorageClass", "STANDARD")
            .text("Initiated", &date::iso(*begun))
            .close("Upload");
    }
    for common in prefixes {
        xml.open("CommonPrefixes")
            .text("Prefix", &encoding.applied(common))
            .close("CommonPrefixes");
    }
    Ok(reply::found(&xml.end()))
}

/// Returns all uploads of a bucket, in the order of their keys.
async fn begun(store: &Store, bucket: &Bucket) -> Result<Vec<Begun>, S3Error> {
    let mut entries = store
        .client
        .entries(Some(bucket.uploads()?))
        .at_most(MOST_UPLOADS);
    let mut ids = Vec::new();
    loop {
        let entry = match entries.next().await.map_err(S3Error::of_read) {
            Err(error) if error.code == Code::NO_SUCH_KEY => {
                store.require_bucket(bucket).await?;
                break;
            }
            entry => entry?,
        };
        let Some(entry) = entry else {
            break;
        };
        if let (Kind::Dir, Ok(id)) = (entry.stat.kind, str::from_utf8(entry.name.file_name())) {
            ids.push(id.to_owned());
        }
    }
    let read = |id: String| async move {
        let info = joined(&dir_of(bucket, &id).ok()?, INFO).ok()?;
        let stat = store.client.stat(&info).await.ok()?;
        let key = store
            .client
            .read(&info, Some(0..LONGEST_KEY as u64))
            .await
            .ok()?;
        Some((String::from_utf8(key).ok()?, id, stat.modified))
    };
    let read = stream::iter(ids).map(read).buffered(SIDE_BY_SIDE);
    let mut begun: Vec<Begun> = read.filter_map(std::future::ready).collect().await;
    begun.sort();
    Ok(begun)
}

/// Number of parts or uploads of a list.
const MOST_LISTED: u64 = 1000;

/// Maximum number of uploads of a bucket that can be listed.
const MOST_UPLOADS: u64 = 10_000;

const SIDE_BY_SIDE: usize = 16;
