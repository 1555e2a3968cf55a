//! Completion of an upload: the daemon makes one file of its parts.

use std::{collections::HashMap, sync::Arc};

use hyper::HeaderMap;
use md5::{Digest as _, Md5};
use nicstripe::{Name, RenameOptions};

use super::{MOST_FILES, MOST_PARTS, Upload, part::name_of};
use crate::{
    names::Target,
    protocol::{
        condition::{Conditions, bare},
        error::{Code, S3Error},
        query::{Query, encoded_path},
        xml::{self, Xml},
    },
    put::writing,
    reply::{self, Reply},
    store::Store,
    stored::{self, quoted},
};

/// Makes the object of the parts that a document lists.
pub(crate) async fn complete(
    store: &Arc<Store>,
    target: &Target,
    headers: &HeaderMap,
    query: &Query,
    document: &[u8],
) -> Result<Reply, S3Error> {
    let is_checksum = |name: &&str| {
        name.starts_with("x-amz-checksum-")
            && !name.ends_with("-type")
            && !name.ends_with("-algorithm")
    };
    if let Some(name) = headers.keys().map(|name| name.as_str()).find(is_checksum) {
        let why = format!("{name} of a whole upload is not supported: its parts have checksums");
        return Err(Code::NOT_IMPLEMENTED.because(why));
    }
    let listed = listed(document)?;
    let upload = Upload::find(store, target, query).await?;
    let (names, size) = match found(store, &upload, &listed).await {
        // Another request that ends the upload may have removed the part.
        Err(error) if error.code == Code::INVALID_PART => {
            let is_ending = store.is_ending(&upload.id);
            Upload::find(store, target, query).await?;
            return Err(if is_ending { ended() } else { error });
        }
        found => found?,
    };
    if let Some(told) = headers.get("x-amz-mp-object-size")
        && told.as_bytes() != size.to_string().as_bytes()
    {
        let why = format!("the parts have {size} bytes, not those of x-amz-mp-object-size");
        return Err(Code::INVALID_REQUEST.because(why));
    }
    let etag = etag_of(&listed)?;
    let mut attributes = upload.attributes.clone();
    stored::keep_etag(&mut attributes, &etag, size)?;
    let writing = writing(store, target, &Conditions::of(headers, "")).await?;
    let options = RenameOptions {
        replace: writing.replace,
        parents: true,
        only_if: writing.only_if,
    };
    let (store, target) = (store.clone(), target.clone());
    reply::patient(async move {
        let made = store
            .client
            .concat_with(&names, &target.name, options, &attributes);
        made.await.map_err(gone)?;
        // The object is complete; a part that remains takes space, and no more.
        if let Err(error) = upload.remove(&store, &target.bucket).await {
            tracing::warn!(error = %error, id = upload.id, "parts of a complete upload remain");
        }
        Ok(result(&target, &etag))
    })
    .await
}

fn result(target: &Target, etag: &str) -> String {
    let bucket = &target.bucket.name;
    let path = encoded_path(format!("/{bucket}/{}", target.key).as_bytes());
    let mut xml = Xml::new("CompleteMultipartUploadResult");
    xml.text("Location", &path)
        .text("Bucket", bucket)
        .text("Key", &target.key)
        .text("ETag", &quoted(etag));
    xml.end()
}

/// Part of a list: its number and its MD5 in hexadecimal digits.
type Listed = (u64, String);

pub(crate) fn listed(document: &[u8]) -> Result<Vec<Listed>, S3Error> {
    let document = xml::read(document, "CompleteMultipartUpload")?;
    let malformed = |why: &'static str| Code::MALFORMED_XML.because(why);
    let mut listed = Vec::<Listed>::new();
    for part in document.all("Part") {
        let number = part
            .get("PartNumber")
            .and_then(|text| text.trim().parse().ok());
        let number = number.ok_or_else(|| malformed("a part has no number"))?;
        let etag = bare(
            part.get("ETag")
                .ok_or_else(|| malformed("a part has no ETag"))?,
        );
        if listed.last().is_some_and(|(last, _)| *last >= number) {
            return Err(Code::INVALID_PART_ORDER.because("the numbers of the parts do not ascend"));
        }
        if !(1..=MOST_PARTS).contains(&number) || etag.len() != 32 || hex::decode(etag).is_err() {
            return Err(no_part(number));
        }
        listed.push((number, etag.to_ascii_lowercase()));
    }
    match listed.is_empty() {
        false => Ok(listed),
        true => Err(malformed("there are no parts")),
    }
}

/// Returns the names of the parts and their size together.
async fn found(
    store: &Store,
    upload: &Upload,
    listed: &[Listed],
) -> Result<(Vec<Name>, u64), S3Error> {
    let mut entries = store
        .client
        .entries(Some(upload.dir.clone()))
        .at_most(MOST_FILES);
    let mut sizes = HashMap::new();
    while let Some(entry) = entries.next().await.map_err(gone)? {
        sizes.insert(entry.name.file_name().to_owned(), entry.stat.size);
    }
    let (mut names, mut total) = (Vec::new(), 0_u64);
    for (number, md5) in listed {
        let name = name_of(upload, *number, md5)?;
        let size = sizes
            .get(name.file_name())
            .ok_or_else(|| no_part(*number))?;
        total = total.saturating_add(*size);
        names.push(name);
    }
    Ok((names, total))
}

/// Returns the tag of an object in parts: the MD5 of their MD5s, and their number.
fn etag_of(listed: &[Listed]) -> Result<String, S3Error> {
    let mut md5 = Md5::new();
    for (number, part) in listed {
        md5.update(hex::decode(part).map_err(|_| no_part(*number))?);
    }
    Ok(format!("{}-{}", hex::encode(md5.finalize()), listed.len()))
}

/// Returns the error of a part or a directory that another request has removed.
fn gone(error: nicstripe::Error) -> S3Error {
    match error.is_not_found() {
        true => ended(),
        false => error.into(),
    }
}

fn ended() -> S3Error {
    Code::NO_SUCH_UPLOAD.because("the upload has ended meanwhile")
}

fn no_part(number: u64) -> S3Error {
    Code::INVALID_PART.because(format!("there is no part {number} with this ETag"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_parts_ascends() {
        let part = |number: &str, etag: &str| {
            format!("<Part><PartNumber>{number}</PartNumber><ETag>\"{etag}\"</ETag></Part>")
        };
        let md5 = "0cc175b9c0f1b6a831c399e269772661";
        let code = |parts: &str| {
            let text = format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>");
            listed(text.as_bytes()).map_err(|error| error.code)
        };
        let both = [part("1", md5), part("3", &md5.to_uppercase())].concat();
        assert_eq!(
            code(&both),
            Ok(vec![(1, md5.to_owned()), (3, md5.to_owned())])
        );
        assert_eq!(code(""), Err(Code::MALFORMED_XML));
        assert_eq!(code(&part("x", md5)), Err(Code::MALFORMED_XML));
        assert_eq!(code(&part("0", md5)), Err(Code::INVALID_PART));
        assert_eq!(code(&part("10001", md5)), Err(Code::INVALID_PART));
        assert_eq!(code(&part("1", "../../x")), Err(Code::INVALID_PART));
        let twice = part("1", md5).repeat(2);
        assert_eq!(code(&twice), Err(Code::INVALID_PART_ORDER));
    }
}
