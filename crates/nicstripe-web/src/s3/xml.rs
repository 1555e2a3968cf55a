//! XML documents of S3, with the elements that are needed.

use quick_xml::{Reader, de::from_reader, events::Event};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// Answer of a store, whose outermost element has this name.
pub(crate) trait Answer: DeserializeOwned {
    const ROOT: &str;
}

/// Parses an answer; `None` if it is another document, such as a login page. Nothing is expanded but the
/// five entities of XML itself.
pub(crate) fn parsed<T: Answer>(bytes: &[u8]) -> Option<T> {
    let mut reader = Reader::from_reader(bytes);
    let is_meant = loop {
        match reader.read_event().ok()? {
            Event::Start(root) | Event::Empty(root) => {
                break root.local_name().as_ref() == T::ROOT;
            }
            Event::Eof => return None,
            _ => {}
        }
    };
    is_meant.then(|| from_reader(bytes).ok())?
}

#[derive(Debug, Deserialize)]
pub(crate) struct ErrorBody {
    #[serde(rename = "Code", default)]
    pub(crate) code: String,
    #[serde(rename = "Message", default)]
    pub(crate) message: String,
    #[serde(rename = "Region", default)]
    pub(crate) region: String,
}

impl Answer for ErrorBody {
    const ROOT: &str = "Error";
}

/// Page of a listing (ListObjectsV2).
#[derive(Debug, Deserialize)]
pub(crate) struct ListBody {
    #[serde(rename = "Contents", default)]
    pub(crate) contents: Vec<Content>,
    #[serde(rename = "CommonPrefixes", default)]
    pub(crate) folders: Vec<Folder>,
    #[serde(rename = "IsTruncated", default)]
    pub(crate) is_truncated: bool,
    #[serde(rename = "NextContinuationToken", default)]
    pub(crate) next: Option<String>,
}

impl Answer for ListBody {
    const ROOT: &str = "ListBucketResult";
}

#[derive(Debug, Deserialize)]
pub(crate) struct Content {
    #[serde(rename = "Key")]
    pub(crate) key: String,
    #[serde(rename = "Size", default)]
    pub(crate) size: u64,
    #[serde(rename = "LastModified", default)]
    pub(crate) modified: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Folder {
    #[serde(rename = "Prefix")]
    pub(crate) prefix: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct CreatedBody {
    #[serde(rename = "UploadId")]
    pub(crate) upload: String,
}

impl Answer for CreatedBody {
    const ROOT: &str = "InitiateMultipartUploadResult";
}

/// Uploads in parts that are neither complete nor aborted.
#[derive(Debug, Deserialize)]
pub(crate) struct UploadsBody {
    #[serde(rename = "Upload", default)]
    pub(crate) uploads: Vec<BegunBody>,
}

impl Answer for UploadsBody {
    const ROOT: &str = "ListMultipartUploadsResult";
}

#[derive(Debug, Deserialize)]
pub(crate) struct BegunBody {
    #[serde(rename = "Key")]
    pub(crate) key: String,
    #[serde(rename = "UploadId")]
    pub(crate) upload: String,
}

/// Answer to the end of an upload in parts.
#[derive(Debug, Deserialize)]
pub(crate) struct CompletedBody {
    #[serde(rename = "ChecksumCRC64NVME", default)]
    pub(crate) crc64: Option<String>,
}

impl Answer for CompletedBody {
    const ROOT: &str = "CompleteMultipartUploadResult";
}

#[derive(Debug, Deserialize)]
pub(crate) struct PartsBody {
    #[serde(rename = "Part", default)]
    pub(crate) parts: Vec<PartBody>,
    #[serde(rename = "IsTruncated", default)]
    pub(crate) is_truncated: bool,
    #[serde(rename = "NextPartNumberMarker", default)]
    pub(crate) next: Option<String>,
}

impl Answer for PartsBody {
    const ROOT: &str = "ListPartsResult";
}

#[derive(Debug, Deserialize)]
pub(crate) struct PartBody {
    #[serde(rename = "PartNumber")]
    pub(crate) number: u32,
    #[serde(rename = "ETag")]
    pub(crate) etag: String,
    #[serde(rename = "Size", default)]
    pub(crate) size: u64,
}

/// Request to end an upload in parts.
#[derive(Debug, Serialize)]
#[serde(rename = "CompleteMultipartUpload")]
pub(crate) struct CompleteBody {
    #[serde(rename = "Part")]
    pub(crate) parts: Vec<CompletePart>,
}

#[derive(Debug, Serialize)]
pub(crate) struct CompletePart {
    #[serde(rename = "PartNumber")]
    pub(crate) number: u32,
    #[serde(rename = "ETag")]
    pub(crate) etag: String,
    #[serde(rename = "ChecksumCRC64NVME", skip_serializing_if = "Option::is_none")]
    pub(crate) crc64: Option<String>,
}

/// Request to remove many objects.
#[derive(Debug, Serialize)]
#[serde(rename = "Delete")]
pub(crate) struct DeleteBody<'a> {
    #[serde(rename = "Quiet")]
    pub(crate) quiet: bool,
    #[serde(rename = "Object")]
    pub(crate) objects: Vec<DeleteObject<'a>>,
}

#[derive(Debug, Serialize)]
pub(crate) struct DeleteObject<'a> {
    #[serde(rename = "Key")]
    pub(crate) key: &'a str,
}

/// Objects that could not be removed.
#[derive(Debug, Deserialize)]
pub(crate) struct DeletedBody {
    #[serde(rename = "Error", default)]
    pub(crate) errors: Vec<NotDeleted>,
}

impl Answer for DeletedBody {
    const ROOT: &str = "DeleteResult";
}

#[derive(Debug, Deserialize)]
pub(crate) struct NotDeleted {
    #[serde(rename = "Key", default)]
    pub(crate) key: String,
    #[serde(rename = "Code", default)]
    pub(crate) code: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_read_and_unknown_elements_are_skipped() {
        let text = "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
            <Name>b</Name><IsTruncated>true</IsTruncated><NextContinuationToken>t/=</NextContinuationToken>\
            <Contents><Key>a&amp;b%2Fc</Key><LastModified>2026-01-02T03:04:05.000Z</LastModified><Size>7</Size>\
            <Owner><ID>x</ID></Owner></Contents><Contents><Key>z</Key></Contents>\
            <CommonPrefixes><Prefix>dir/</Prefix></CommonPrefixes></ListBucketResult>";
        let page: ListBody = parsed(text.as_bytes()).unwrap();
        assert_eq!(page.contents.len(), 2);
        assert_eq!(&*page.contents[0].key, "a&b%2Fc");
        assert_eq!(page.contents[0].size, 7);
        assert_eq!(page.folders[0].prefix, "dir/");
        assert!(page.is_truncated && page.next.as_deref() == Some("t/="));
    }

    #[test]
    fn a_bomb_and_nonsense_are_no_answers() {
        let bomb = "<!DOCTYPE x [<!ENTITY a \"aaaaaaaaaa\"><!ENTITY b \"&a;&a;&a;&a;&a;&a;\">]>\
            <Error><Code>&b;</Code></Error>";
        assert!(parsed::<ErrorBody>(bomb.as_bytes()).is_none());
        for text in [
            "",
            "<",
            "<html>",
            "<html></html>",
            "<Error/>",
            "\u{0}\u{1}",
            "{}",
        ] {
            assert!(parsed::<CreatedBody>(text.as_bytes()).is_none(), "{text}");
        }
        let deep = "<a>".repeat(100_000);
        assert!(parsed::<ErrorBody>(deep.as_bytes()).is_none());
    }
}
