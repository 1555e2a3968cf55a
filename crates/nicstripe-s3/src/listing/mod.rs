//! Lists of the keys of a bucket, in their order and page by page.

mod flat;
mod items;
mod walk;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

pub(crate) use self::items::{Group, group_of};
use self::items::{Item, Items, Wanted};
use crate::{
    buckets::owner,
    names::Bucket,
    objects::folder_attributes,
    protocol::{
        date,
        error::{Code, S3Error},
        query::{Query, encoded_path},
        xml::Xml,
    },
    reply::{self, Reply},
    store::Store,
    stored::{Object, quoted},
};

/// How keys are written in lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Encoding {
    is_url: bool,
}

impl Encoding {
    pub(crate) fn of(query: &Query) -> Result<Self, S3Error> {
        match query.get("encoding-type") {
            None | Some("") => Ok(Self { is_url: false }),
            Some("url") => Ok(Self { is_url: true }),
            Some(_) => Err(Code::INVALID_ARGUMENT.because("the encoding type is url")),
        }
    }

    pub(crate) fn applied(self, text: &str) -> String {
        match self.is_url {
            true => encoded_path(text.as_bytes()),
            false => text.to_owned(),
        }
    }

    pub(crate) fn tell(self, xml: &mut Xml) {
        if self.is_url {
            xml.text("EncodingType", "url");
        }
    }
}

/// Page of a list that a request asks for.
struct Asked<'q> {
    query: &'q Query,
    /// True for version 2 of the operation.
    is_second: bool,
    encoding: Encoding,
    most: usize,
    wanted: Wanted,
}

#[derive(Default)]
struct Page {
    keys: Vec<(String, Object)>,
    prefixes: Vec<String>,
    /// Key or prefix behind which the next page begins; `None` for the last page.
    next: Option<String>,
}

/// Returns a page of a list, by version 1 or 2 of the operation.
pub(crate) async fn page(store: &Store, bucket: &Bucket, query: &Query) -> Result<Reply, S3Error> {
    let get = |name| query.get(name).unwrap_or_default().to_owned();
    let is_second = query.get("list-type") == Some("2");
    let after = match (is_second, query.get("continuation-token")) {
        (false, _) => get("marker"),
        (true, Some(token)) => of_token(token)?,
        (true, None) => get("start-after"),
    };
    let most = query
        .number("max-keys")?
        .unwrap_or(MOST_KEYS)
        .min(MOST_KEYS);
    let asked = Asked {
        query,
        is_second,
        encoding: Encoding::of(query)?,
        most: most as usize,
        wanted: Wanted {
            prefix: get("prefix"),
            delimiter: get("delimiter"),
            after,
        },
    };
    let page = read(store, bucket, &asked).await?;
    Ok(reply::found(&asked.told(bucket, &page)))
}

async fn read(store: &Store, bucket: &Bucket, asked: &Asked<'_>) -> Result<Page, S3Error> {
    if asked.most == 0 {
        store.require_bucket(bucket).await?;
        return Ok(Page::default());
    }
    let mut items = Items::begin(store, bucket, &asked.wanted).await?;
    let (mut found, mut page) = (Vec::new(), Page::default());
    while let Some(item) = items.next().await? {
        if found.len() + page.prefixes.len() == asked.most {
            page.next = page.last(&found);
            break;
        }
        match item {
            Item::Prefix(prefix) => page.prefixes.push(prefix),
            // A request scans no more.
            Item::Unfinished(last) => {
                page.next = Some(page.behind(last, &asked.wanted));
                break;
            }
            item => found.push(item),
        }
    }
    let described = found.into_iter().map(|item| described(store, bucket, item));
    let described = stream::iter(described).buffered(SIDE_BY_SIDE);
    page.keys = described
        .try_filter_map(|found| async { Ok(found) })
        .try_collect()
        .await?;
    Ok(page)
}

impl Page {
    /// Returns the last key or prefix of the page.
    fn last(&self, found: &[Item]) -> Option<String> {
        let key = found.last().map(Item::key);
        let prefix = self.prefixes.last().map(String::as_str);
        key.max(prefix).map(str::to_owned)
    }

    /// Returns the text behind which the next page begins if this one ends at a key: all keys of its prefix,
    /// if that was listed.
    fn behind(&self, key: String, wanted: &Wanted) -> String {
        let listed = self.prefixes.last().unwrap_or(&wanted.after);
        match group_of(&key, &wanted.prefix, &wanted.delimiter) {
            Group::Prefix(prefix) if prefix == listed => format!("{prefix}{}", char::MAX),
            _ => key,
        }
    }
}

/// Returns an object with its metadata; `None` if it was removed meanwhile.
async fn described(
    store: &Store,
    bucket: &Bucket,
    item: Item,
) -> Result<Option<(String, Object)>, S3Error> {
    let key = match item {
        Item::Folder(key, mut stat) => {
            stat.size = 0;
            let attributes = folder_attributes()?;
            return Ok(Some((key, Object { stat, attributes })));
        }
        Item::Key(key) => key,
        Item::Prefix(_) | Item::Unfinished(_) => return Ok(None),
    };
    let target = bucket.target(&key)?;
    match store.object(&target.name).await {
        Ok(object) => Ok(Some((key, object))),
        Err(error) if error.is_missing() => Ok(None),
        Err(error) => Err(error),
    }
}

impl Asked<'_> {
    fn told(&self, bucket: &Bucket, page: &Page) -> String {
        let (encoding, wanted) = (self.encoding, &self.wanted);
        let mut xml = Xml::new("ListBucketResult");
        xml.text("Name", &bucket.name)
            .text("Prefix", &encoding.applied(&wanted.prefix))
            .shown("MaxKeys", self.most)
            .shown("IsTruncated", page.next.is_some());
        if !wanted.delimiter.is_empty() {
            xml.text("Delimiter", &encoding.applied(&wanted.delimiter));
        }
        encoding.tell(&mut xml);
        match self.is_second {
            true => self.tell_second(&mut xml, page),
            false => {
                xml.text("Marker", &encoding.applied(&wanted.after));
                if let Some(next) = &page.next {
                    xml.text("NextMarker", &encoding.applied(next));
                }
            }
        }
        let with_owner = !self.is_second || self.query.get("fetch-owner") == Some("true");
        for (key, object) in &page.keys {
            xml.open("Contents")
                .text("Key", &encoding.applied(key))
                .text("LastModified", &date::iso(object.stat.modified))
                .text("ETag", &quoted(&object.etag()))
                .shown("Size", object.stat.size)
                .text("StorageClass", "STANDARD");
            if with_owner {
                owner(&mut xml);
            }
            xml.close("Contents");
        }
        for prefix in &page.prefixes {
            xml.open("CommonPrefixes")
                .text("Prefix", &encoding.applied(prefix))
                .close("CommonPrefixes");
        }
        xml.end()
    }

    fn tell_second(&self, xml: &mut Xml, page: &Page) {
        xml.shown("KeyCount", page.keys.len() + page.prefixes.len());
        if let Some(token) = self.query.get("continuation-token") {
            xml.text("ContinuationToken", token);
        }
        if let Some(start) = self.query.get("start-after") {
            xml.text("StartAfter", &self.encoding.applied(start));
        }
        if let Some(next) = &page.next {
            xml.text("NextContinuationToken", &URL_SAFE_NO_PAD.encode(next));
        }
    }
}

fn of_token(token: &str) -> Result<String, S3Error> {
    let key = URL_SAFE_NO_PAD.decode(token).ok();
    let key = key.and_then(|key| String::from_utf8(key).ok());
    key.ok_or_else(|| Code::INVALID_ARGUMENT.because("the continuation token is of another list"))
}

/// Number of keys and prefixes of a page, that of S3.
const MOST_KEYS: u64 = 1000;

/// Number of objects whose tags are asked for at once, below the 64 requests that a session accepts.
const SIDE_BY_SIDE: usize = 32;
