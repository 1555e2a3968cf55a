use std::{collections::BTreeSet, fs};

use hyper::Method;

use super::rig::Rig;
use crate::{
    listing::{Group, group_of},
    protocol::{query::encoded, xml::Element},
};

/// Keys whose order differs from that of the names of their directories.
const KEYS: [&str; 22] = [
    "-a", ".b", "a", "a!/x", "b-c", "b/1", "b/2/3", "b/2/4", "b.d", "b0", "c/d/e/f", "c/d-",
    "c/d0", "d", "e/empty/", "f", "f-/g", "f-/h/i", "ä/ö", "z/", "zz", "~",
];

async fn with_keys() -> Rig {
    let rig = Rig::new().await;
    for key in KEYS {
        let path = rig.path("b").join(key);
        match key.strip_suffix('/') {
            Some(_) => fs::create_dir_all(path).unwrap(),
            None => {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, key).unwrap();
            }
        }
    }
    // Parts of an upload are not listed.
    let begun = rig.ask(Method::POST, "/b/x?uploads", &[], b"").await;
    assert_eq!(begun.status.as_u16(), 200);
    rig
}

/// Returns the keys and prefixes of a list, as S3 defines them.
fn expected(prefix: &str, delimiter: &str, after: &str) -> Vec<String> {
    let keys: BTreeSet<&str> = KEYS.into_iter().collect();
    let keys = keys
        .into_iter()
        .filter(|key| key.starts_with(prefix) && *key > after);
    let mut found: Vec<String> = keys
        .map(|key| match group_of(key, prefix, delimiter) {
            Group::Key => key.to_owned(),
            Group::Prefix(prefix) => prefix.to_owned(),
        })
        .filter(|item| item != after)
        .collect();
    found.dedup();
    found
}

fn items(page: &Element) -> Vec<String> {
    let keys = page.all("Contents").map(|one| one.get("Key").unwrap());
    let prefixes = page
        .all("CommonPrefixes")
        .map(|one| one.get("Prefix").unwrap());
    let mut items: Vec<String> = keys.chain(prefixes).map(str::to_owned).collect();
    items.sort();
    items
}

/// Lists all pages with this number of keys each.
async fn listed(
    rig: &Rig,
    version: u8,
    prefix: &str,
    delimiter: &str,
    after: &str,
    most: usize,
) -> Vec<String> {
    let [prefix, delimiter, mut after] =
        [prefix, delimiter, after].map(|text| encoded(text.as_bytes()));
    let mut found = Vec::new();
    let mut token = String::new();
    loop {
        let start = match version {
            1 => format!("marker={after}"),
            _ => format!("list-type=2&start-after={after}{token}"),
        };
        let uri = format!("/b?{start}&prefix={prefix}&delimiter={delimiter}&max-keys={most}");
        let page = rig.get(&uri).await.xml("ListBucketResult");
        let items = items(&page);
        assert!(items.len() <= most);
        found.extend(items);
        if page.get("IsTruncated") == Some("false") {
            return found;
        }
        match version {
            1 => after = encoded(page.get("NextMarker").unwrap().as_bytes()),
            _ => {
                token = format!(
                    "&continuation-token={}",
                    page.get("NextContinuationToken").unwrap()
                );
            }
        }
        assert!(found.len() <= 1000, "{found:?}");
    }
}

#[tokio::test]
async fn lists_are_those_of_s3_whatever_their_pages() {
    let rig = with_keys().await;
    for delimiter in ["", "/", "-", "2/"] {
        for prefix in [
            "", ".", "..", "b", "b/", "b/2", "b/2/", "c/d", "c/d/", "e/empty/", "f-", "none/", "/",
            "ä", "z/", "z",
        ] {
            for (version, most) in [(1, 1), (2, 2), (2, 1000)] {
                let found = listed(&rig, version, prefix, delimiter, "", most).await;
                let wanted = expected(prefix, delimiter, "");
                assert_eq!(found, wanted, "{prefix:?} {delimiter:?} {version} {most}");
            }
        }
    }
}

#[tokio::test]
async fn a_list_of_more_than_a_request_reads_goes_on() {
    let rig = Rig::new().await;
    let dir = rig.path("b");
    fs::create_dir_all(dir.join("d/empty")).unwrap();
    for number in 0..200 {
        fs::write(dir.join(format!("a-{number}")), "").unwrap();
        fs::write(dir.join(format!("d/f{number}.x")), "").unwrap();
        std::os::unix::fs::symlink("x", dir.join(format!("c{number:03}"))).unwrap();
    }
    for name in ["b", "c063+", "c064+", "c127+", "e"] {
        fs::write(dir.join(name), "").unwrap();
    }
    let files = ["c063+", "c064+", "c127+"];
    let wanted: Vec<&str> = ["a-", "b"].into_iter().chain(files).collect();
    for (version, most) in [(1, 1), (2, 2), (2, 1000)] {
        let found = listed(&rig, version, "", "-", "", most).await;
        let (others, below): (Vec<_>, Vec<_>) =
            found.iter().partition(|key| !key.starts_with("d/"));
        assert_eq!(others, [&wanted[..], &["e"]].concat(), "{version} {most}");
        assert_eq!(below.len(), 201);
        let found = listed(&rig, version, "c", "/", "", most).await;
        assert_eq!(found, files, "{version} {most}");
        let found = listed(&rig, version, "d/", ".", "", most).await;
        assert_eq!(found.len(), 201, "{version} {most}");
    }
}

#[tokio::test]
async fn a_list_begins_behind_any_text() {
    let rig = with_keys().await;
    let afters = [
        "a", "b", "b-", "b-c", "b/", "b/1", "b/2/", "b/2/3", "b//", "c/d/", "e/", "e/empty/",
        "f-/", "f-/h/i", "x", "~~", "\u{1}",
    ];
    for delimiter in ["", "/"] {
        for prefix in ["", "b", "b/", "f-/"] {
            for after in afters {
                let found = listed(&rig, 2, prefix, delimiter, after, 3).await;
                let wanted = expected(prefix, delimiter, after);
                assert_eq!(found, wanted, "{prefix:?} {delimiter:?} {after:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_list_tells_tags_sizes_and_what_is_missing() {
    let rig = Rig::new().await;
    assert_eq!(rig.get("/b").await.code(), "NoSuchBucket");
    assert_eq!(
        rig.get("/b?prefix=x/&delimiter=/").await.code(),
        "NoSuchBucket"
    );
    rig.put("/b", b"").await;
    let etag = rig.put("/b/a%26", b"123").await.header("etag").to_owned();
    let page = rig
        .get("/b?list-type=2&encoding-type=url")
        .await
        .xml("ListBucketResult");
    let one = page.all("Contents").next().unwrap();
    assert_eq!(one.get("Key"), Some("a%26"));
    assert_eq!(one.get("ETag"), Some(etag.as_str()));
    assert_eq!(one.get("Size"), Some("3"));
    assert_eq!(page.get("KeyCount"), Some("1"));
    let none = rig.get("/b?max-keys=0").await.xml("ListBucketResult");
    assert_eq!(none.get("IsTruncated"), Some("false"));
    assert_eq!(items(&none).len(), 0);
    assert_eq!(rig.get("/b?max-keys=x").await.code(), "InvalidArgument");
    assert_eq!(
        rig.get("/b?list-type=2&continuation-token=_").await.code(),
        "InvalidArgument"
    );
    let all = rig.get("/").await.xml("ListAllMyBucketsResult");
    let buckets = all.all("Buckets").next().unwrap();
    assert_eq!(buckets.all("Bucket").next().unwrap().get("Name"), Some("b"));
    for (what, code) in [
        ("policy", "NoSuchBucketPolicy"),
        ("tagging", "NoSuchTagSet"),
        ("versions", "NotImplemented"),
    ] {
        assert_eq!(rig.get(&format!("/b?{what}")).await.code(), code);
    }
    rig.get("/b?location").await.xml("LocationConstraint");
    rig.get("/b?versioning")
        .await
        .xml("VersioningConfiguration");
    rig.get("/b/a%26?tagging").await.xml("Tagging");
    rig.get("/b/a%26?acl").await.xml("AccessControlPolicy");
}
