//! Parts of an upload.

use std::{ops::Range, sync::Arc};

use futures_util::future::try_join;
use hyper::{HeaderMap, StatusCode};
use md5::{Digest as _, Md5};
use nicstripe::{CopyOptions, Name, ObjectAttributes, OpenOptions, RenameOptions};
use tokio::io::AsyncWriteExt as _;

use super::{INFO, MOST_PARTS, Upload, dir_of, joined, random};
use crate::{
    copy,
    names::{Bucket, Target},
    protocol::{
        date,
        error::{Code, S3Error},
        payload::{Payload, RequestBody},
        query::Query,
        range,
        xml::Xml,
    },
    put::{self, Unfinished},
    reply::{self, Reply},
    store::Store,
    stored::{Object, add, quoted},
};

/// Returns the name of a part with this MD5, in hexadecimal digits.
pub(super) fn name_of(upload: &Upload, number: u64, md5: &str) -> Result<Name, S3Error> {
    joined(&upload.dir, &format!("p{number:05}-{md5}"))
}

pub(crate) async fn put_part<B: RequestBody>(
    store: &Arc<Store>,
    target: &Target,
    query: &Query,
    payload: Payload<'_, B>,
) -> Result<Reply, S3Error> {
    let number = number_of(query)?;
    let dir = dir_of(&target.bucket, query.get("uploadId").unwrap_or_default())?;
    let mut unfinished = Unfinished::new(store, vec![dir.clone(), target.bucket.uploads()?]);
    let fresh = joined(&dir, &format!("t{}", random()?))?;
    let (options, none) = (CopyOptions::default(), ObjectAttributes::new());
    let written = async {
        let written = put::stream(store, &fresh, options, &none, payload.with_md5()).await;
        written.map_err(|error| error.missing(Code::NO_SUCH_UPLOAD))
    };
    // The part is written while its upload is looked up, which takes two round trips behind other parts.
    let (upload, (_, ended)) = try_join(Upload::find(store, target, query), written).await?;
    let md5 = ended.md5.map(hex::encode).unwrap_or_default();
    finish(store, &target.bucket, &upload, &fresh, number, &md5).await?;
    unfinished.is_whole = true;
    let mut reply = reply::empty(StatusCode::OK);
    add(reply.headers_mut(), "etag", &quoted(&md5));
    put::add_checksum(&mut reply, &ended);
    Ok(reply)
}

/// Gives a part its name. Who ends an upload removes its record before it looks for parts the last time:
/// either it finds this one, or this one finds no record.
async fn finish(
    store: &Store,
    bucket: &Bucket,
    upload: &Upload,
    fresh: &Name,
    number: u64,
    md5: &str,
) -> Result<(), S3Error> {
    let name = name_of(upload, number, md5)?;
    let renamed = store
        .client
        .rename(fresh, &name, RenameOptions::replacing())
        .await;
    renamed.map_err(|error| S3Error::from(error).missing(Code::NO_SUCH_UPLOAD))?;
    match store.client.stat(&joined(&upload.dir, INFO)?).await {
        Err(error) if error.is_not_found() => {
            upload.remove_rest(store, bucket).await?;
            Err(Code::NO_SUCH_UPLOAD.because("the upload has ended meanwhile"))
        }
        found => Ok(found.map(drop)?),
    }
}

/// Stores a part that is an object or a range of one. A whole object is copied at the daemon.
pub(crate) async fn copy_part(
    store: &Arc<Store>,
    target: &Target,
    headers: &HeaderMap,
    query: &Query,
) -> Result<Reply, S3Error> {
    let number = number_of(query)?;
    let upload = Upload::find(store, target, query).await?;
    let (from, object) = copy::source(store, headers).await?;
    if from.is_folder {
        return Err(Code::INVALID_REQUEST.because("a directory is no part"));
    }
    let range = source_range(headers, object.stat.size)?;
    let (store, bucket) = (store.clone(), target.bucket.clone());
    reply::patient(async move {
        let mut unfinished = Unfinished::new(&store, upload.dirs(&bucket)?);
        let fresh = joined(&upload.dir, &format!("t{}", random()?))?;
        let md5 = match range {
            Some(range) => copy_range(&store, &from, &object, range, &fresh).await?,
            None => copy_whole(&store, &from, &object, &fresh).await?,
        };
        finish(&store, &bucket, &upload, &fresh, number, &md5).await?;
        unfinished.is_whole = true;
        let mut xml = Xml::new("CopyPartResult");
        xml.text("LastModified", &date::iso(std::time::SystemTime::now()))
            .text("ETag", &quoted(&md5));
        Ok(xml.end())
    })
    .await
}

/// Copies an object at the daemon. Returns its MD5, or a number of the same length if that is not known.
async fn copy_whole(
    store: &Store,
    from: &Target,
    object: &Object,
    fresh: &Name,
) -> Result<String, S3Error> {
    let options = RenameOptions {
        only_if: object.stat.etag,
        ..RenameOptions::default()
    };
    store.client.copy(&from.name, fresh, options).await?;
    let etag = object.etag();
    let is_md5 = etag.len() == 32;
    Ok(if is_md5 {
        etag
    } else {
        hex::encode(Md5::digest(etag))
    })
}

/// Copies a range through the gateway. Returns its MD5.
async fn copy_range(
    store: &Store,
    from: &Target,
    object: &Object,
    range: Range<u64>,
    fresh: &Name,
) -> Result<String, S3Error> {
    let len = range.end - range.start;
    let _reading = store.reading_memory(len).await;
    let _memory = store.stream_memory(len).await;
    let options = OpenOptions {
        range: Some(range),
        only_if: object.stat.etag,
    };
    let mut reader = store
        .client
        .open_with(&from.name, options)
        .await
        .map_err(S3Error::of_read)?;
    let mut writer = store.client.create(fresh, CopyOptions::default());
    let mut md5 = Md5::new();
    while let Some(chunk) = reader.next_chunk().await? {
        md5.update(chunk.as_ref());
        writer.write_all(chunk.as_ref()).await?;
    }
    writer.finish().await?;
    Ok(hex::encode(md5.finalize()))
}

fn source_range(headers: &HeaderMap, size: u64) -> Result<Option<Range<u64>>, S3Error> {
    let Some(value) = headers.get("x-amz-copy-source-range") else {
        return Ok(None);
    };
    let range = value
        .to_str()
        .ok()
        .and_then(|value| range::exact(value, size));
    let invalid = || {
        let why = format!("x-amz-copy-source-range is no range of the {size} bytes of the source");
        Code::INVALID_ARGUMENT.because(why)
    };
    let range = range.ok_or_else(invalid)?;
    Ok((range != (0..size)).then_some(range))
}

fn number_of(query: &Query) -> Result<u64, S3Error> {
    let number = query.number("partNumber")?.unwrap_or_default();
    match (1..=MOST_PARTS).contains(&number) {
        true => Ok(number),
        false => {
            Err(Code::INVALID_ARGUMENT
                .because(format!("the number of a part is 1 to {MOST_PARTS}")))
        }
    }
}
