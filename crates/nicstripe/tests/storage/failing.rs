//! Tests of a custom storage that fails, loses data, or changes a file during a read.

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::SystemTime,
};

use nicstripe::{
    BitRate, CopyOptions, FailCode, FileError, Name, ObjectAttributes,
    storage::{
        FileIdentity, Kind, Listed, MemoryStorage, PartRequest, Stat, Storage, StoredFile,
        StoredPart, Subtree,
    },
};

use super::{emptied, put, served_from};
use crate::harness::{PLAIN, content, done, interrupt_at, name, source_of, within};

/// Storage operations that fail while their flag is true.
#[derive(Debug, Default)]
struct Faults {
    write: AtomicBool,
    sync: AtomicBool,
    commit: AtomicBool,
    forget: AtomicBool,
    change: AtomicBool,
    /// Lists names without an end.
    endless: AtomicBool,
    /// Lists these names, whatever is requested.
    listed: Mutex<Vec<&'static str>>,
}

/// In-memory storage whose operations fail as selected in [`Faults`].
#[derive(Debug, Clone, Default)]
struct Failing(MemoryStorage, Arc<Faults>);

#[derive(Debug)]
struct FailingPart(Box<dyn StoredPart>, Arc<Faults>);

#[derive(Debug)]
struct FailingFile(Box<dyn StoredFile>, Arc<Faults>);

fn fault(flag: &AtomicBool) -> io::Result<()> {
    if flag.load(Ordering::Acquire) {
        Err(io::Error::other("the storage is broken"))
    } else {
        Ok(())
    }
}

impl Storage for Failing {
    fn open(&self, name: &Name) -> Result<Box<dyn StoredFile>, FileError> {
        Ok(Box::new(FailingFile(self.0.open(name)?, self.1.clone())))
    }

    fn begin(
        &self,
        request: &PartRequest<'_>,
    ) -> Result<(Box<dyn StoredPart>, Vec<Subtree>), FileError> {
        let (part, have) = self.0.begin(request)?;
        Ok((Box::new(FailingPart(part, self.1.clone())), have))
    }

    fn list(
        &self,
        dir: Option<&Name>,
        after: Option<&[u8]>,
        most: usize,
    ) -> Result<Listed, FileError> {
        let listed = self.1.listed.lock().unwrap();
        let names: Vec<String> = if self.1.endless.load(Ordering::Acquire) {
            let last = after.map_or("0", |after| str::from_utf8(after).unwrap());
            let last: u64 = last.parse().unwrap();
            let next = last + 1..=last + most as u64;
            next.map(|next| format!("{next:020}")).collect()
        } else if !listed.is_empty() {
            listed.iter().map(ToString::to_string).collect()
        } else {
            return self.0.list(dir, after, most);
        };
        let stat = Stat::new(Kind::File, 1, SystemTime::UNIX_EPOCH);
        Ok(Listed {
            entries: names
                .into_iter()
                .map(|name| (name.into_bytes(), stat))
                .collect(),
            more: true,
        })
    }

    fn stat(&self, name: &Name) -> Result<Stat, FileError> {
        self.0.stat(name)
    }

    fn remove(&self, name: &Name) -> Result<(), FileError> {
        self.0.remove(name)
    }

    fn rename(&self, from: &Name, to: &Name, replace: bool) -> Result<(), FileError> {
        self.0.rename(from, to, replace)
    }

    fn make_dir(&self, name: &Name) -> Result<(), FileError> {
        self.0.make_dir(name)
    }
}

impl StoredFile for FailingFile {
    fn identity(&self) -> io::Result<FileIdentity> {
        let identity = self.0.identity()?;
        let changed = u64::from(self.1.change.swap(true, Ordering::AcqRel));
        Ok(FileIdentity {
            version: identity.version + changed,
            ..identity
        })
    }

    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(bytes, offset)
    }
}

impl StoredPart for FailingPart {
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        fault(&self.1.write)?;
        if self.1.forget.load(Ordering::Acquire) {
            Ok(())
        } else {
            self.0.write_all_at(bytes, offset)
        }
    }

    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(bytes, offset)
    }

    fn sync(&self, durable: &[Subtree]) -> io::Result<()> {
        fault(&self.1.sync)?;
        self.0.sync(durable)
    }

    fn commit(&self, size: u64) -> Result<Option<FileIdentity>, FileError> {
        fault(&self.1.commit)
            .map_err(|cause| FileError::new("name", "it", cause).with_code(FailCode::Io))?;
        self.0.commit(size)
    }

    fn discard(&self) {
        self.0.discard();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_fails_in_a_storage_ends_the_transfer_and_leaves_no_name() {
    let faults: [fn(&Faults) -> &AtomicBool; 2] = [|faults| &faults.write, |faults| &faults.commit];
    for of in faults {
        let storage = Failing::default();
        of(&storage.1).store(true, Ordering::Release);
        let served = served_from(storage.clone()).await;
        let client = served.client(2).await;
        let (_here, source) = source_of(content(3 << 20));
        let error = put(&client, &source, "target", PLAIN).await.unwrap_err();
        assert_eq!(error.fail_code(), Some(FailCode::Io), "{error}");
        assert!(
            error.to_string().contains("the storage is broken"),
            "{error}"
        );
        assert_eq!(storage.0.contents(&name("target")), None);

        // Only the transfer has failed, not the session.
        of(&storage.1).store(false, Ordering::Release);
        put(&client, &source, "target", PLAIN).await.unwrap();
        assert!(storage.0.contents(&name("target")).unwrap() == content(3 << 20));
        assert_eq!(storage.0.unfinished(), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_not_synced_is_not_believed_and_goes() {
    let storage = Failing::default();
    storage.1.sync.store(true, Ordering::Release);
    let served = served_from(storage.clone()).await;
    let client = served.client_at(1, BitRate(400_000_000)).await;
    let (_here, source) = source_of(content(200 << 20));
    // The receiver syncs after an amount of bytes or time, and on interruption.
    let transfer = client.put(&source, Some(name("target")), PLAIN);
    let _ = interrupt_at(transfer, 8 << 20).await;
    within(client.close()).await;
    emptied(&storage.0).await;
    assert_eq!(storage.0.contents(&name("target")), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storage_that_loses_what_was_written_is_found_out_by_reading_back() {
    let storage = Failing::default();
    storage.1.forget.store(true, Ordering::Release);
    let served = served_from(storage.clone()).await;
    let client = served.client(1).await;
    let (_here, source) = source_of(content(3 << 20));
    let verify = CopyOptions {
        verify: true,
        ..PLAIN
    };
    let error = put(&client, &source, "target", verify).await.unwrap_err();
    assert_eq!(error.fail_code(), Some(FailCode::Digest), "{error}");
    emptied(&storage.0).await;
    assert_eq!(storage.0.contents(&name("target")), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stored_file_that_changes_while_it_is_read_is_not_passed_off_as_one() {
    let storage = Failing::default();
    storage.0.insert(&name("source"), content(1 << 20)).unwrap();
    let served = served_from(storage.clone()).await;
    let client = served.client(1).await;
    let here = tempfile::tempdir().unwrap();
    let error = done(client.get(name("source"), here.path().join("back"), PLAIN))
        .await
        .unwrap_err();
    assert_eq!(error.fail_code(), Some(FailCode::SourceChanged), "{error}");
    assert!(!here.path().join("back").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_without_an_end_fails() {
    let storage = Failing::default();
    let served = served_from(storage.clone()).await;
    let client = served.client(1).await;
    let count = async |most| {
        let mut entries = client.entries(None).at_most(most);
        let mut count = 0;
        loop {
            match within(entries.next()).await {
                Ok(Some(_)) => count += 1,
                ended => return (count, ended.map(drop)),
            }
        }
    };
    storage.1.endless.store(true, Ordering::Release);
    let (listed, ended) = count(20_000).await;
    assert!((15_000..=20_000).contains(&listed), "{listed}");
    let error = ended.unwrap_err();
    assert!(
        error.to_string().contains("more names than are read"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_list_of_a_storage_fails_its_request_alone() {
    use tokio::io::AsyncWriteExt;

    let storage = Failing::default();
    let served = served_from(storage.clone()).await;
    let client = served.client(1).await;
    let mut innocent = client.create(&name("innocent"), PLAIN);
    innocent.write_all(&[7; 600_000]).await.unwrap();
    for wrong in [&["b", "a"][..], &["a/b"], &[".."], &["a", "a"]] {
        *storage.1.listed.lock().unwrap() = wrong.to_vec();
        let error = within(client.list(None)).await.unwrap_err();
        assert_eq!(error.fail_code(), Some(FailCode::Io), "{wrong:?}: {error}");
        assert!(!error.is_retryable(), "{wrong:?}: {error}");
    }
    // One page again and again.
    let mut entries = client.entries(None).at_most(9000);
    *storage.1.listed.lock().unwrap() = vec!["a"];
    assert!(within(entries.next()).await.unwrap().is_some());
    storage.1.listed.lock().unwrap().clear();
    within(innocent.finish()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storage_that_keeps_no_attributes_gets_no_file_with_some() {
    let storage = Failing::default();
    let served = served_from(storage.clone()).await;
    let client = served.client(1).await;
    let mut attributes = ObjectAttributes::new();
    attributes.set("content-type", "text/html").unwrap();
    let (a, options) = (name("a"), PLAIN);
    let refused = within(client.write_with(&a, "x", options, &attributes)).await;
    let error = refused.unwrap_err();
    assert_eq!(error.fail_code(), Some(FailCode::Refused), "{error}");
    assert_eq!(storage.0.contents(&a), None);
    within(client.write(&a, "x", options)).await.unwrap();
}
