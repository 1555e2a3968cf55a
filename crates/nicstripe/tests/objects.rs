//! Objects over a real client and daemon on loopback: names, ranges, readers, writers.

#![allow(clippy::unwrap_used)]

mod harness;

use std::{collections::BTreeMap, io::SeekFrom, path::Path, time::Duration};

use harness::{Served, content, digest, leftovers, name, within};
use nicstripe::{Client, CopyOptions, Error, FailCode, Kind, Name};
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};

const CHUNK: usize = 256 * 1024;

fn replace() -> CopyOptions {
    CopyOptions { replace: true, ..CopyOptions::default() }
}

async fn names(client: &Client, dir: &str) -> Vec<String> {
    let listed = within(client.list(Some(&name(dir)))).await.unwrap();
    listed.into_iter().map(|entry| entry.name.to_string()).collect()
}

fn code(result: Result<impl Sized, Error>) -> Option<FailCode> {
    result.err().and_then(|error| error.fail_code())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_of_10_000_names_is_listed_in_order_and_each_name_once() {
    let served = Served::start().await;
    let dir = served.path("many");
    std::fs::create_dir(&dir).unwrap();
    let mut expected = BTreeMap::new();
    for number in 0..10_000_usize {
        let name = format!("{:x}-{}", number.wrapping_mul(2_654_435_761) % 65_536, "x".repeat(number % 200));
        std::fs::write(dir.join(&name), &b"12345"[..number % 6]).unwrap();
        expected.insert(name, (number % 6) as u64);
    }
    std::fs::create_dir(dir.join("sub")).unwrap();
    std::os::unix::fs::symlink("sub", dir.join("link")).unwrap();
    std::fs::write(dir.join(".x.01234567.nicstripe-part"), "hidden").unwrap();

    let client = within(served.connect(2)).await.unwrap();
    let listed = within(client.list(Some(&name("many")))).await.unwrap();
    assert_eq!(listed.len(), expected.len() + 2);
    assert!(listed.is_sorted_by(|one, next| one.name.file_name() < next.name.file_name()));
    for entry in &listed {
        match entry.name.to_string().as_str() {
            "sub" => assert_eq!(entry.stat.kind, Kind::Dir),
            "link" => assert_eq!(entry.stat.kind, Kind::Other),
            name => assert_eq!((entry.stat.kind, entry.stat.size), (Kind::File, expected[name]), "{name}"),
        }
    }
    let age = listed[0].stat.modified.elapsed().unwrap_or_default();
    assert!(age < Duration::from_secs(3600), "{age:?}");
    assert_eq!(within(client.list(None)).await.unwrap().len(), 1);
    assert!(within(client.list(Some(&name("nothing")))).await.unwrap_err().is_not_found());
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_looked_at_removed_renamed_and_made() {
    let served = Served::start().await;
    let client = within(served.connect(1)).await.unwrap();
    let (a, b, sub) = (name("a"), name("b"), name("x/y/z"));
    within(client.write(&a, "one", CopyOptions::default())).await.unwrap();
    assert_eq!(code(within(client.write(&a, "two", CopyOptions::default())).await), Some(FailCode::Exists));
    within(client.write(&b, "two", replace())).await.unwrap();
    let stat = within(client.stat(&a)).await.unwrap();
    assert_eq!((stat.kind, stat.size), (Kind::File, 3));

    assert_eq!(code(within(client.rename(&a, &b, false)).await), Some(FailCode::Exists));
    within(client.rename(&a, &b, true)).await.unwrap();
    assert!(within(client.stat(&a)).await.unwrap_err().is_not_found());
    assert_eq!(within(client.read(&b, None)).await.unwrap(), b"one");
    assert!(within(client.rename(&a, &b, true)).await.unwrap_err().is_not_found());

    within(client.make_dir(&sub)).await.unwrap();
    within(client.make_dir(&sub)).await.unwrap();
    assert!(served.path("x/y/z").is_dir());
    within(client.rename(&b, &name("x/y/z/b"), false)).await.unwrap();
    assert_eq!(names(&client, "x/y/z").await, ["b"]);
    assert_eq!(code(within(client.make_dir(&name("x/y/z/b/c"))).await), Some(FailCode::NotFound));
    assert_eq!(code(within(client.remove(&sub)).await), Some(FailCode::Exists), "it is not empty");
    within(client.remove(&name("x/y/z/b"))).await.unwrap();
    within(client.remove(&sub)).await.unwrap();
    assert!(within(client.remove(&sub)).await.unwrap_err().is_not_found());
    assert!(!served.path("x/y/z").exists());
}
