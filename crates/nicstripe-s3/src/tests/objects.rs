use std::{fs, time::Duration};

use hyper::{Method, StatusCode};
use md5::{Digest as _, Md5};
use nicstripe::trust::Access;

use super::rig::{Pieces, Rig, content, until};

async fn with_bucket() -> Rig {
    let rig = Rig::new().await;
    assert_eq!(rig.put("/b", b"").await.status, StatusCode::OK);
    rig
}

#[tokio::test]
async fn an_object_comes_back_with_its_attributes_and_its_md5() {
    for rig in [Rig::new().await, Rig::memory().await] {
        rig.put("/b", b"").await;
        let headers = [
            ("content-type", "text/plain"),
            ("x-amz-meta-mtime", "17.5"),
            ("content-encoding", "aws-chunked,gzip"),
            ("x-amz-checksum-crc32", "y/Q5Jg=="),
        ];
        let put = rig
            .ask(Method::PUT, "/b/a/b%20c", &headers, b"123456789")
            .await;
        assert_eq!(put.status, StatusCode::OK, "{}", put.text());
        let etag = "\"25f9e794323b453885f5181f1b624d0b\"";
        assert_eq!(put.header("etag"), etag);
        assert_eq!(put.header("x-amz-checksum-crc32"), "y/Q5Jg==");
        for method in [Method::GET, Method::HEAD] {
            let got = rig.ask(method.clone(), "/b/a/b%20c", &[], b"").await;
            assert_eq!(got.status, StatusCode::OK);
            for (name, value) in [
                ("etag", etag),
                ("content-type", "text/plain"),
                ("content-encoding", "gzip"),
                ("x-amz-meta-mtime", "17.5"),
                ("content-length", "9"),
                ("accept-ranges", "bytes"),
            ] {
                assert_eq!(got.header(name), value, "{name}");
            }
            let expected: &[u8] = if method == Method::GET {
                b"123456789"
            } else {
                b""
            };
            assert_eq!(got.body, expected);
        }
        let other = rig.get("/b/a/b%20c?response-content-type=a%2Fb").await;
        assert_eq!(other.header("content-type"), "a/b");
        assert_eq!(rig.get("/b/a").await.code(), "NoSuchKey");
        assert_eq!(rig.get("/b/x").await.code(), "NoSuchKey");
        assert_eq!(rig.get("/x/x").await.code(), "NoSuchBucket");
        assert_eq!(rig.put("/x/x", b"1").await.code(), "NoSuchBucket");
    }
}

#[tokio::test]
async fn a_large_object_is_a_stream_and_any_part_of_it_can_be_read() {
    let rig = with_bucket().await;
    let bytes = content(20 << 20);
    let put = rig.put("/b/large", &bytes).await;
    assert_eq!(put.status, StatusCode::OK, "{}", put.text());
    let etag = put.header("etag").to_owned();
    assert!(etag.ends_with("-0\""), "{etag}");
    let got = rig.get("/b/large").await;
    assert!(got.body == bytes);
    assert_eq!(got.header("etag"), etag);
    for (range, expected) in [
        ("bytes=0-0", 0..1),
        ("bytes=9000000-", 9_000_000..20 << 20),
        ("bytes=-5", (20 << 20) - 5..20 << 20),
    ] {
        let part = rig
            .ask(Method::GET, "/b/large", &[("range", range)], b"")
            .await;
        assert_eq!(part.status, StatusCode::PARTIAL_CONTENT);
        assert!(part.body == bytes[expected.clone()]);
        let shown = format!("bytes {}-{}/{}", expected.start, expected.end - 1, 20 << 20);
        assert_eq!(part.header("content-range"), shown);
    }
    let behind = [("range", "bytes=20971520-")];
    let behind = rig.refusal(Method::GET, "/b/large", &behind, b"").await;
    assert_eq!(behind, "InvalidRange");
    // Its MD5 is known in advance.
    let md5 = Md5::digest(&bytes);
    let in_base64 = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, md5);
    let known = [("content-md5", &*in_base64)];
    let known = rig.ask(Method::PUT, "/b/large", &known, &bytes).await;
    assert_eq!(known.header("etag"), format!("\"{}\"", hex::encode(md5)));
    let head = rig.ask(Method::HEAD, "/b/large", &[], b"").await;
    assert_eq!(head.header("etag"), known.header("etag"));
}

#[tokio::test]
async fn what_is_damaged_or_breaks_off_leaves_nothing() {
    let rig = with_bucket().await;
    let long = content(9 << 20);
    let wrong_md5 = "AAAAAAAAAAAAAAAAAAAAAA==";
    for bytes in [&b"123456789"[..], &long] {
        for (header, code) in [
            (("content-md5", wrong_md5), "BadDigest"),
            (("content-md5", "AAAA"), "InvalidDigest"),
            (("x-amz-checksum-crc32", "AAAAAA=="), "BadDigest"),
            (("x-amz-checksum-sha256", wrong_md5), "BadDigest"),
            (("x-amz-checksum-crc64nvme", "AAAAAAAAAAA="), "BadDigest"),
            (("x-amz-checksum-md9", "AAAA"), "NotImplemented"),
        ] {
            let put = rig.ask(Method::PUT, "/b/x/y", &[header], bytes).await;
            assert_eq!(put.code(), code, "{header:?}: {}", put.text());
        }
        let (hash, body) = ("0".repeat(64), Pieces::of(bytes));
        let put = rig.ask_as(Method::PUT, "/b/x/y", &[], &hash, body, bytes.len());
        let put = put.await;
        assert_eq!(put.code(), "XAmzContentSHA256Mismatch", "{}", put.text());
        for len in [bytes.len() - 1, bytes.len() + 1] {
            let put = rig.put_unsigned("/b/x/y", Pieces::of(bytes), len).await;
            assert_eq!(put.status, StatusCode::BAD_REQUEST);
        }
        let body = Pieces::broken(&bytes[..bytes.len() - 1]);
        let put = rig.put_unsigned("/b/x/y", body, bytes.len());
        // The client is gone.
        let put = tokio::time::timeout(Duration::from_secs(1), put).await;
        assert!(put.is_err());
    }
    assert_eq!(rig.get("/b/x/y").await.code(), "NoSuchKey");
    until(|| rig.files().is_empty()).await;
}

#[tokio::test]
async fn trailing_checksums_are_verified() {
    let rig = with_bucket().await;
    let body = |checksum: &str| {
        format!("4\r\n1234\r\n5\r\n56789\r\n0\r\nx-amz-checksum-crc32c:{checksum}\r\n\r\n")
    };
    let headers = [
        ("x-amz-trailer", "x-amz-checksum-crc32c"),
        ("x-amz-decoded-content-length", "9"),
        ("content-encoding", "aws-chunked"),
    ];
    let put_with = async |headers: &[(&str, &str)], body: String| {
        let (bytes, len) = (Pieces::of(body.as_bytes()), body.len());
        let kind = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";
        rig.ask_as(Method::PUT, "/b/t", headers, kind, bytes, len)
            .await
    };
    let put = async |body: String| put_with(&headers, body).await;
    assert_eq!(put(body("AAAAAA==")).await.code(), "BadDigest");
    assert_eq!(rig.get("/b/t").await.code(), "NoSuchKey");
    assert_eq!(
        put("9\r\n123456789\r\n0\r\n\r\n".into()).await.code(),
        "InvalidRequest"
    );
    let other = body("4waSgw==").replace("crc32c", "sha256");
    assert_eq!(put(other).await.code(), "InvalidRequest");
    let two = body("4waSgw==\r\nx-amz-checksum-sha1:AAAA");
    assert_eq!(put(two).await.code(), "InvalidRequest");
    let good = put(body("4waSgw==")).await;
    assert_eq!(good.status, StatusCode::OK, "{}", good.text());
    let got = rig.get("/b/t").await;
    assert_eq!(got.body, b"123456789");
    assert_eq!(got.header("content-encoding"), "");
    let unannounced = put_with(&headers[1..], body("AAAAAA==")).await;
    assert_eq!(unannounced.code(), "InvalidRequest");
}

#[tokio::test]
async fn conditions_hold() {
    let rig = with_bucket().await;
    let etag = rig.put("/b/x", b"1").await.header("etag").to_owned();
    let status = async |method: Method, name: &str, value: &str, body: &[u8]| {
        rig.ask(method, "/b/x", &[(name, value)], body)
            .await
            .status
            .as_u16()
    };
    assert_eq!(status(Method::GET, "if-none-match", &etag, b"").await, 304);
    assert_eq!(status(Method::GET, "if-match", "\"x\"", b"").await, 412);
    let before = "Sun, 06 Nov 1994 08:49:37 GMT";
    for (tag, expected) in [(etag.as_str(), 206), ("\"x\"", 200), (before, 200)] {
        let headers = [("range", "bytes=0-0"), ("if-range", tag)];
        let got = rig.ask(Method::GET, "/b/x", &headers, b"").await;
        assert_eq!(got.status.as_u16(), expected, "{tag}");
    }
    assert_eq!(status(Method::HEAD, "if-match", &etag, b"").await, 200);
    assert_eq!(status(Method::PUT, "if-none-match", "*", b"2").await, 412);
    assert_eq!(status(Method::PUT, "if-match", "\"x\"", b"2").await, 412);
    assert_eq!(status(Method::PUT, "if-match", "\u{e4}", b"2").await, 412);
    assert_eq!(
        status(Method::PUT, "if-none-match", "\u{e4}", b"2").await,
        501
    );
    assert_eq!(rig.get("/b/x").await.body, b"1");
    assert_eq!(status(Method::PUT, "if-match", &etag, b"2").await, 200);
    assert_eq!(status(Method::PUT, "if-match", &etag, b"3").await, 412);
    assert_eq!(status(Method::DELETE, "if-match", &etag, b"").await, 412);
    assert_eq!(rig.get("/b/x").await.body, b"2");
    let new = rig
        .ask(Method::PUT, "/b/y", &[("if-none-match", "*")], b"1")
        .await;
    assert_eq!(new.status, StatusCode::OK);
    let none = rig
        .ask(Method::PUT, "/b/z", &[("if-match", &etag)], b"1")
        .await;
    assert_eq!(none.code(), "NoSuchKey");
}

#[tokio::test]
async fn copies_keep_or_replace_attributes() {
    let rig = with_bucket().await;
    let kind = ("content-type", "text/plain");
    let etag = rig
        .ask(Method::PUT, "/b/x%C3%A4", &[kind], b"123")
        .await
        .header("etag")
        .to_owned();
    let copy = async |to: &str, headers: &[(&str, &str)]| {
        let headers = [&[("x-amz-copy-source", "/b/x%C3%A4")], headers].concat();
        rig.ask(Method::PUT, to, &headers, b"").await
    };
    let made = copy("/b/d/y", &[]).await;
    assert_eq!(
        made.xml("CopyObjectResult").get("ETag"),
        Some(etag.as_str())
    );
    let got = rig.get("/b/d/y").await;
    assert_eq!(got.body, b"123");
    assert_eq!(got.header("content-type"), "text/plain");
    let replace = ("x-amz-metadata-directive", "REPLACE");
    for to in ["/b/z", "/b/x%C3%A4"] {
        let made = copy(to, &[replace, ("x-amz-meta-a", "1")]).await;
        assert_eq!(made.status, StatusCode::OK, "{}", made.text());
        let got = rig.get(to).await;
        assert_eq!(got.body, b"123");
        assert_eq!(got.header("etag"), etag);
        assert_eq!(got.header("x-amz-meta-a"), "1");
        assert_eq!(got.header("content-type"), "binary/octet-stream");
    }
    let unmet = ("x-amz-copy-source-if-none-match", etag.as_str());
    for (to, headers, code) in [
        ("/b/x%C3%A4", &[][..], "InvalidRequest"),
        ("/b/z", &[unmet], "PreconditionFailed"),
        ("/b/z", &[("if-none-match", "*")], "PreconditionFailed"),
    ] {
        assert_eq!(copy(to, headers).await.code(), code, "{to}");
    }
    let missing = [("x-amz-copy-source", "b/none")];
    let missing = rig.refusal(Method::PUT, "/b/z", &missing, b"").await;
    assert_eq!(missing, "NoSuchKey");
}

#[tokio::test]
async fn what_is_removed_leaves_no_directory() {
    let rig = with_bucket().await;
    for key in ["a/b/c", "a/b/d", "a/e", "f"] {
        rig.put(&format!("/b/{key}"), b"1").await;
    }
    assert_eq!(rig.delete("/b/a/b/c").await, 204);
    assert_eq!(rig.delete("/b/none").await, 204);
    assert_eq!(rig.delete("/b/a").await, 204);
    assert_eq!(rig.delete("/b/a/").await, 204);
    assert_eq!(rig.files(), ["a/b/d", "a/e", "f"]);
    assert_eq!(rig.delete("/b").await, 409);
    let sized = [("x-amz-if-match-size", "9")];
    let kept = rig.ask(Method::DELETE, "/b/f", &sized, b"").await;
    assert_eq!(kept.code(), "NotImplemented");
    let sized = b"<Delete><Object><Key>f</Key><Size>9</Size></Object></Delete>";
    let kept = rig.ask(Method::POST, "/b?delete", &[], sized).await;
    assert_eq!(kept.xml("DeleteResult").all("Error").count(), 1);
    assert_eq!(rig.files(), ["a/b/d", "a/e", "f"]);
    let many = "<Object><Key>f</Key></Object>".repeat(1001);
    for list in ["", &many] {
        let list = format!("<Delete>{list}</Delete>");
        let refused = rig.refusal(Method::POST, "/b?delete", &[], list.as_bytes());
        assert_eq!(refused.await, "MalformedXML");
    }
    let list = "<Delete><Object><Key>a/b/d</Key></Object><Object><Key>a/e</Key></Object>\
        <Object><Key>../x</Key></Object><Object><Key>f</Key></Object><Object><Key>none</Key></Object></Delete>";
    let deleted = rig
        .ask(Method::POST, "/b?delete", &[], list.as_bytes())
        .await;
    let result = deleted.xml("DeleteResult");
    let keys: Vec<_> = result
        .all("Deleted")
        .map(|one| one.get("Key").unwrap())
        .collect();
    assert_eq!(keys, ["a/b/d", "a/e", "f", "none"]);
    assert_eq!(result.all("Error").count(), 1);
    assert!(rig.files().is_empty());
    assert!(fs::read_dir(rig.path("b")).unwrap().next().is_none());
    assert_eq!(rig.delete("/b").await, 204);
    assert_eq!(rig.delete("/b").await, 404);
}

#[tokio::test]
async fn a_key_with_a_slash_is_a_directory() {
    let rig = with_bucket().await;
    assert_eq!(rig.put("/b/d/", b"").await.status, StatusCode::OK);
    assert_eq!(rig.put("/b/d/", b"1").await.code(), "InvalidRequest");
    let head = rig.ask(Method::HEAD, "/b/d/", &[], b"").await;
    assert_eq!(head.status.as_u16(), 200);
    assert_eq!(head.header("content-length"), "0");
    let only_new = [("if-none-match", "*")];
    let again = rig.ask(Method::PUT, "/b/d/", &only_new, b"").await;
    assert_eq!(again.code(), "PreconditionFailed");
    let copied = [("x-amz-copy-source", "b/d/"), only_new[0]];
    let again = rig.ask(Method::PUT, "/b/d/", &copied, b"").await;
    assert_eq!(again.code(), "PreconditionFailed");
    assert_eq!(rig.get("/b/d").await.code(), "NoSuchKey");
    assert_eq!(rig.put("/b/d", b"1").await.code(), "NameConflict");
    assert_eq!(rig.files(), ["d/"]);
    assert_eq!(rig.delete("/b/d/").await, 204);
    assert!(rig.files().is_empty());
}

#[tokio::test]
async fn names_that_are_no_files_here_are_refused() {
    let rig = with_bucket().await;
    // The tests of buckets have all names.
    for uri in ["/b/../x", "/b/%2E%2E%2Fx", "/b/.nicstripe-uploads/x"] {
        let put = rig.put(uri, b"1").await;
        assert_eq!(put.code(), "InvalidArgument", "{uri}");
        assert_eq!(rig.get(uri).await.code(), "InvalidArgument", "{uri}");
    }
    assert_eq!(
        rig.put("/.hidden/x", b"1").await.code(),
        "InvalidBucketName"
    );
    let long = format!("/b/{}", "a/".repeat(512) + "x");
    assert_eq!(rig.put(&long, b"1").await.code(), "KeyTooLongError");
    assert!(rig.files().is_empty());
}

#[tokio::test]
async fn what_is_not_the_content_of_an_object_does_not_replace_it() {
    let rig = with_bucket().await;
    rig.put("/b/x", b"1").await;
    for what in ["acl", "encryption", "legal-hold", "retention", "tagging"] {
        let put = rig.put(&format!("/b/x?{what}"), b"<Document/>").await;
        assert_eq!(put.code(), "NotImplemented", "{what}");
    }
    assert_eq!(rig.get("/b/x").await.body, b"1");
}

#[tokio::test]
async fn what_the_daemon_does_not_permit_is_denied() {
    let rig = Rig::with_access(Access::ReadOnly).await;
    fs::create_dir_all(rig.path("b")).unwrap();
    fs::write(rig.path("b/x"), "1").unwrap();
    assert_eq!(rig.put("/b/y", b"1").await.code(), "AccessDenied");
    assert_eq!(rig.put("/c", b"").await.code(), "AccessDenied");
    let kept = rig.refusal(Method::DELETE, "/b/x", &[], b"").await;
    assert_eq!(kept, "AccessDenied");
    assert_eq!(rig.get("/b/x").await.body, b"1");
    let rig = Rig::with_access(Access::AppendOnly).await;
    fs::create_dir_all(rig.path("b")).unwrap();
    assert_eq!(rig.put("/b/y", b"1").await.status, StatusCode::OK);
    assert_eq!(rig.put("/b/y", b"2").await.code(), "AccessDenied");
    let kept = rig.refusal(Method::DELETE, "/b/y", &[], b"").await;
    assert_eq!(kept, "AccessDenied");
    assert_eq!(rig.get("/b/y").await.body, b"1");
}
