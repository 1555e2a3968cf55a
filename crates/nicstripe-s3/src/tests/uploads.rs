use hyper::{Method, StatusCode};
use md5::{Digest as _, Md5};

use super::rig::{Pieces, Rig, content, until};

async fn begun(rig: &Rig, key: &str) -> String {
    let headers = [("content-type", "video/mp4"), ("x-amz-meta-a", "1")];
    let begun = rig
        .ask(Method::POST, &format!("/b/{key}?uploads"), &headers, b"")
        .await;
    let id = begun.xml("InitiateMultipartUploadResult");
    id.get("UploadId").unwrap().to_owned()
}

fn list(parts: &[(u64, &str)]) -> Vec<u8> {
    let part = |(number, etag): &(u64, &str)| {
        format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>")
    };
    let parts: String = parts.iter().map(part).collect();
    format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>").into_bytes()
}

#[tokio::test]
async fn an_upload_in_parts_becomes_one_object() {
    for rig in [Rig::new().await, Rig::memory().await] {
        rig.put("/b", b"").await;
        let id = begun(&rig, "d/film").await;
        let (one, two) = (content(5 << 20), content(1000));
        let mut tags = Vec::new();
        for (number, part) in [(1, &one), (3, &content(7)), (3, &two)] {
            let uri = format!("/b/d/film?partNumber={number}&uploadId={id}");
            let put = rig.put(&uri, part).await;
            assert_eq!(put.status, StatusCode::OK, "{}", put.text());
            tags.push(put.header("etag").to_owned());
        }
        let uploads = rig
            .get("/b?uploads")
            .await
            .xml("ListMultipartUploadsResult");
        let upload = uploads.all("Upload").next().unwrap();
        assert_eq!(upload.get("Key"), Some("d/film"));
        assert_eq!(upload.get("UploadId"), Some(id.as_str()));
        let parts = rig
            .get(&format!("/b/d/film?uploadId={id}&max-parts=1"))
            .await;
        let parts = parts.xml("ListPartsResult");
        assert_eq!(parts.get("IsTruncated"), Some("true"));
        let none = rig
            .get(&format!("/b/d/film?uploadId={id}&max-parts=0"))
            .await;
        let none = none.xml("ListPartsResult");
        assert_eq!(none.get("IsTruncated"), Some("false"));
        let none = rig.get("/b?uploads&max-uploads=0").await;
        assert_eq!(none.code(), "InvalidArgument");
        assert_eq!(
            parts.all("Part").next().unwrap().get("Size"),
            Some("5242880")
        );
        let full = rig.refusal(Method::DELETE, "/b", &[], b"").await;
        assert_eq!(full, "BucketNotEmpty");

        let complete = async |parts: &[(u64, &str)]| {
            let uri = format!("/b/d/film?uploadId={id}");
            rig.ask(Method::POST, &uri, &[], &list(parts)).await
        };
        let wrong = complete(&[(1, &tags[1])]).await;
        assert_eq!(wrong.code(), "InvalidPart");
        assert_eq!(rig.get("/b/d/film").await.code(), "NoSuchKey");
        let size = [("x-amz-mp-object-size", "5242880")];
        let parts = list(&[(1, &tags[0]), (3, &tags[2])]);
        let uri = format!("/b/d/film?uploadId={id}");
        let wrong = rig.ask(Method::POST, &uri, &size, &parts).await;
        assert_eq!(wrong.code(), "InvalidRequest");
        let done = complete(&[(1, &tags[0]), (3, &tags[2])]).await;
        let md5s = [Md5::digest(&one), Md5::digest(&two)].concat();
        let etag = format!("\"{}-2\"", hex::encode(Md5::digest(md5s)));
        assert_eq!(
            done.xml("CompleteMultipartUploadResult").get("ETag"),
            Some(etag.as_str())
        );
        let got = rig.get("/b/d/film").await;
        assert!(got.body == [one, two].concat());
        assert_eq!(got.header("etag"), etag);
        assert_eq!(got.header("content-type"), "video/mp4");
        assert_eq!(got.header("x-amz-meta-a"), "1");
        assert_eq!(complete(&[(1, &tags[0])]).await.code(), "NoSuchUpload");
        let none = rig
            .get("/b?uploads")
            .await
            .xml("ListMultipartUploadsResult");
        assert_eq!(none.all("Upload").count(), 0);
    }
}

#[tokio::test]
async fn an_upload_that_is_aborted_leaves_nothing() {
    let rig = Rig::new().await;
    rig.put("/b", b"").await;
    let id = begun(&rig, "x").await;
    let uri = format!("/b/x?partNumber=1&uploadId={id}");
    let wrong = [("x-amz-checksum-crc32", "AAAAAA==")];
    let wrong = rig.refusal(Method::PUT, &uri, &wrong, b"12").await;
    assert_eq!(wrong, "BadDigest");
    assert_eq!(rig.files().len(), 1);
    assert_eq!(rig.put(&uri, b"12").await.status, StatusCode::OK);
    assert_eq!(
        rig.put(&uri.replace("/b/x", "/b/y"), b"12").await.code(),
        "NoSuchUpload"
    );
    let strange = "/b/x?partNumber=1&uploadId=../../x";
    assert_eq!(rig.put(strange, b"12").await.code(), "NoSuchUpload");
    for number in ["0", "10001", "x"] {
        let uri = uri.replace("partNumber=1", &format!("partNumber={number}"));
        assert_eq!(rig.put(&uri, b"12").await.code(), "InvalidArgument");
    }
    assert_eq!(rig.delete(&format!("/b/x?uploadId={id}")).await, 204);
    assert!(rig.files().is_empty());
    assert_eq!(rig.put(&uri, b"12").await.code(), "NoSuchUpload");
    assert_eq!(rig.delete("/b").await, 204);
}

#[tokio::test]
async fn a_part_that_is_written_while_its_upload_ends_leaves_nothing() {
    let rig = Rig::new().await;
    let bytes = content(4 << 20);
    for (is_sent, is_complete) in [(true, false), (true, true), (false, false)] {
        rig.put("/b", b"").await;
        let id = begun(&rig, "x").await;
        let uri = format!("/b/x?uploadId={id}");
        let first = rig.put(&format!("{uri}&partNumber=1"), b"1").await;
        let tag = first.header("etag").to_owned();
        let late = format!("{uri}&partNumber=2");
        let (body, go_on) = Pieces::held(&bytes);
        let late = rig.put_unsigned(&late, body, bytes.len());
        let end = async {
            until(|| rig.files().len() > 2).await;
            let done = match is_complete {
                true => {
                    let list = list(&[(1, &tag)]);
                    rig.ask(Method::POST, &uri, &[], &list).await.status
                }
                false => rig.ask(Method::DELETE, &uri, &[], b"").await.status,
            };
            assert!(done.is_success(), "{done}");
            match is_sent {
                true => go_on.send(()).unwrap(),
                false => drop(go_on),
            }
        };
        match is_sent {
            true => assert_eq!(tokio::join!(late, end).0.code(), "NoSuchUpload"),
            // The client is gone.
            false => tokio::select! {
                _ = late => unreachable!("its body has no end"),
                () = end => {}
            },
        }
        let left: &[&str] = if is_complete { &["x"] } else { &[] };
        until(|| rig.files() == left).await;
        rig.ask(Method::DELETE, "/b/x", &[], b"").await;
        let removed = rig.ask(Method::DELETE, "/b", &[], b"").await;
        assert_eq!(removed.status, StatusCode::NO_CONTENT, "{}", removed.text());
    }
}

#[tokio::test]
async fn two_completions_at_once_are_not_mixed() {
    let rig = Rig::new().await;
    rig.put("/b", b"").await;
    for _ in 0..8 {
        let mut uploads = Vec::new();
        for content in ["a", "b"] {
            let uri = format!("/b/x?uploadId={}", begun(&rig, "x").await);
            let mut tags = Vec::new();
            for number in 1..=4 {
                let part = format!("{uri}&partNumber={number}");
                let part = rig.put(&part, content.as_bytes()).await;
                tags.push((number, part.header("etag").to_owned()));
            }
            let tags: Vec<_> = tags
                .iter()
                .map(|(number, tag)| (*number, tag.as_str()))
                .collect();
            uploads.push((uri, list(&tags)));
        }
        let complete =
            async |(uri, list): &(String, Vec<u8>)| rig.ask(Method::POST, uri, &[], list).await;
        let (one, other, again) = tokio::join!(
            complete(&uploads[0]),
            complete(&uploads[1]),
            complete(&uploads[1])
        );
        assert_eq!(one.status, StatusCode::OK, "{}", one.text());
        let are = [&other, &again].map(|answer| answer.status);
        assert!(are.contains(&StatusCode::OK), "{are:?}");
        for answer in [other, again] {
            if answer.status != StatusCode::OK {
                assert_eq!(answer.code(), "NoSuchUpload", "{}", answer.text());
            }
        }
        let got = rig.get("/b/x").await.text();
        assert!(["aaaa", "bbbb"].contains(&got.as_str()), "{got}");
    }
}

#[tokio::test]
async fn parts_are_copied_from_objects() {
    let rig = Rig::new().await;
    rig.put("/b", b"").await;
    rig.put("/b/source", b"0123456789").await;
    let id = begun(&rig, "x").await;
    let part = async |number: u64, headers: &[(&str, &str)]| {
        let headers = [&[("x-amz-copy-source", "b/source")], headers].concat();
        let uri = format!("/b/x?partNumber={number}&uploadId={id}");
        let made = rig.ask(Method::PUT, &uri, &headers, b"").await;
        made.xml("CopyPartResult").get("ETag").unwrap().to_owned()
    };
    let whole = part(1, &[]).await;
    let range = part(2, &[("x-amz-copy-source-range", "bytes=2-4")]).await;
    assert_eq!(range, format!("\"{}\"", hex::encode(Md5::digest(b"234"))));
    let beyond = [
        ("x-amz-copy-source", "b/source"),
        ("x-amz-copy-source-range", "bytes=2-10"),
    ];
    let uri = format!("/b/x?partNumber=3&uploadId={id}");
    let refused = rig.refusal(Method::PUT, &uri, &beyond, b"").await;
    assert_eq!(refused, "InvalidArgument");
    let uri = format!("/b/x?uploadId={id}");
    let done = rig
        .ask(Method::POST, &uri, &[], &list(&[(1, &whole), (2, &range)]))
        .await;
    assert_eq!(done.status, StatusCode::OK, "{}", done.text());
    assert_eq!(rig.get("/b/x").await.body, b"0123456789234");
}
