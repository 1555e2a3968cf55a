//! Tests of the attributes of objects.

use nicstripe::{
    Client, CopyOptions, Name, ObjectAttributes, RenameOptions, TreeOptions, TreeSource,
    storage::MemoryStorage,
};
use tokio::io::AsyncWriteExt;

use crate::harness::{PLAIN, Served, name, ok, within};

fn html() -> ObjectAttributes {
    let mut attributes = ObjectAttributes::new();
    attributes.set("content-type", "text/html").unwrap();
    attributes.set("größe", "x".repeat(2000)).unwrap();
    attributes
}

async fn attributes(client: &Client, name: &Name) -> ObjectAttributes {
    let head = within(client.head(name)).await.unwrap();
    assert_eq!(head.stat.has_attributes, !head.attributes.is_empty());
    assert_eq!(within(client.stat(name)).await.unwrap(), head.stat);
    head.attributes
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_has_the_attributes_that_it_was_written_with() {
    let root = tempfile::tempdir().unwrap();
    let memory = Served::start_built(root, |builder| builder.storage(MemoryStorage::new())).await;
    for served in [Served::start().await, memory] {
        let client = served.client(2).await;
        let (a, b, c) = (name("a"), name("b"), name("c"));
        ok(client.write_with(&a, "<p>", PLAIN, &html())).await;
        let mut writer = client.create_with(&b, PLAIN, &html());
        within(writer.write_all(b"<p>")).await.unwrap();
        within(writer.finish()).await.unwrap();
        within(client.write(&c, "plain", PLAIN)).await.unwrap();
        assert_eq!(attributes(&client, &a).await, html());
        assert_eq!(attributes(&client, &b).await, html());
        assert_eq!(attributes(&client, &c).await, ObjectAttributes::new());
        let d = name("d");
        let whole = [a.clone(), c.clone()];
        let made = within(client.concat_with(&whole, &d, RenameOptions::default(), &html())).await;
        assert!(made.unwrap().has_attributes);
        assert_eq!(attributes(&client, &d).await, html());
        let reader = within(client.open(&a)).await.unwrap();
        assert!(reader.stat().has_attributes);

        // They go with the object, and end with its content.
        let renaming = RenameOptions::replacing();
        within(client.copy(&a, &c, renaming)).await.unwrap();
        assert_eq!(attributes(&client, &c).await, html());
        ok(client.rename(&b, &name("d"), renaming)).await;
        assert_eq!(attributes(&client, &name("d")).await, html());
        let replacing = CopyOptions {
            replace: true,
            ..PLAIN
        };
        within(client.write(&a, "plain", replacing)).await.unwrap();
        assert_eq!(attributes(&client, &a).await, ObjectAttributes::new());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_takes_attributes_along_and_what_is_no_attribute_is_none() {
    let served = Served::start().await;
    let client = served.client(1).await;
    let a = name("a");
    ok(client.write_with(&a, "<p>", PLAIN, &html())).await;
    let there = tempfile::tempdir().unwrap();
    let xattrs = TreeOptions {
        recursive: true,
        xattrs: true,
        ..TreeOptions::default()
    };
    let fetched = client.get_tree([TreeSource::named(a.clone())], there.path(), xattrs.clone());
    within(fetched.finish()).await.unwrap();
    let back = client.put_tree([there.path().join("a")], Some(name("back")), xattrs);
    within(back.finish()).await.unwrap();
    assert_eq!(attributes(&client, &name("back/a")).await, html());

    let kept = "user.nicstripe.attributes";
    for wrong in [
        &b""[..],
        b"x",
        &[0xa1, 0x61, b'\n', 0x61, b'x'],
        &[0xbf; 300],
    ] {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(served.path("a"), kept, wrong, flags).unwrap();
        assert_eq!(attributes(&client, &a).await, ObjectAttributes::new());
    }
}
