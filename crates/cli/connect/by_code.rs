//! Peer that an invitation introduces for one copy.

use std::{ffi::OsString, fs, os::unix::ffi::OsStrExt as _, path::Path};

use nicstripe::{
    CancellationToken,
    bootstrap::{Call, Introduction, Wishes},
    invitation::{Consent, CopyEnd, Item, JoinOptions, join},
    trust::Identity,
};
use tokio::{sync::oneshot, task::JoinHandle};

use super::{invitation::failed, ssh};
use crate::{
    connect::invitation::Meeting,
    failure::Failure,
    output::terminal::Terminal,
    text::{counted, quantity::Size, shown},
};

/// Code of the machine that receives, and the files to offer.
#[derive(Debug, Clone)]
pub(crate) struct Offering {
    pub(crate) meeting: Meeting,
    pub(crate) options: JoinOptions,
    pub(crate) items: Vec<Item>,
}

/// Connection on which the peer has agreed to the copy.
#[derive(Debug)]
pub(super) struct Held {
    /// Cancelled when the connection is lost: the peer was killed, or only its cable failed.
    pub(super) lost: CancellationToken,
    complete: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

/// Finds the peer and waits until its user agrees.
pub(super) async fn open(offering: &Offering) -> Result<(Introduction, Held), Failure> {
    let identity = Identity::generate()?;
    let joined = join(&identity, offering.meeting.code, offering.options.clone()).await;
    let paired = joined.map_err(failed)?;
    Terminal::default().say(format_args!(
        "waiting for {} to accept {}",
        if paired.host.is_empty() {
            "the other machine"
        } else {
            &paired.host
        },
        totals(&offering.items)
    ));
    let call = Call::new(Wishes {
        origin: ssh::origin(),
        place: "send".into(),
        ..Wishes::default()
    })?;
    let (peer, consent) = paired
        .offer(call, offering.items.clone())
        .await
        .map_err(failed)?;
    let (complete, completed) = oneshot::channel();
    let lost = CancellationToken::new();
    let task = tokio::spawn(hold(consent, completed, peer.gone(), lost.clone()));
    let held = Held {
        lost,
        complete,
        task,
    };
    Ok((peer, held))
}

/// Keeps the connection open until the copy is complete or given up.
async fn hold(
    mut consent: Consent,
    completed: oneshot::Receiver<()>,
    gone: CancellationToken,
    lost: CancellationToken,
) {
    tokio::select! {
        completed = completed => {
            if completed.is_ok() {
                consent.complete().await;
            }
        }
        ended = consent.ended() => match ended {
            CopyEnd::Lost => lost.cancel(),
            // By itself.
            _ => gone.cancel(),
        },
    }
}

impl Held {
    /// Closes the connection. Tells the peer first that the copy is complete, if it is.
    pub(super) async fn close(self, is_complete: bool) {
        let Self { complete, task, .. } = self;
        match is_complete {
            true => _ = complete.send(()),
            false => drop(complete),
        }
        let _ = task.await;
    }
}

pub(crate) fn item(path: &Path) -> Result<Item, Failure> {
    let found = fs::symlink_metadata(path).map_err(Failure::opening(path))?;
    let (files, bytes) = match found.is_dir() {
        true => sizes_in(path),
        false => (1, if found.is_file() { found.len() } else { 0 }),
    };
    Ok(Item {
        name: path.file_name().unwrap_or_default().as_bytes().to_vec(),
        is_dir: found.is_dir(),
        is_link: found.is_symlink(),
        files,
        bytes,
    })
}

/// Returns the number of files below a directory, and their bytes. What cannot be read counts as
/// nothing: the copy will name it.
fn sizes_in(directory: &Path) -> (u64, u64) {
    let (mut files, mut bytes) = (0, 0);
    let mut ahead = vec![directory.to_owned()];
    while let Some(directory) = ahead.pop() {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        for entry in entries {
            match entry.metadata() {
                Ok(found) if found.is_dir() => ahead.push(entry.path()),
                Ok(found) if found.is_file() => {
                    (files, bytes) = (files + 1, bytes + found.len());
                }
                _ => files += 1,
            }
        }
    }
    (files, bytes)
}

/// Returns the number and size of items for a message, such as `3 files (1.20 GiB)`.
pub(crate) fn totals(items: &[Item]) -> String {
    let (mut files, mut bytes) = (0_u64, 0_u64);
    for item in items {
        files = files.saturating_add(item.files);
        bytes = bytes.saturating_add(item.bytes);
    }
    format!("{} ({})", counted(files, "file"), Size(bytes))
}

pub(crate) fn line(item: &Item) -> String {
    use std::os::unix::ffi::OsStringExt as _;
    let name = shown(OsString::from_vec(item.name.clone()));
    match (item.is_dir, item.is_link) {
        (true, _) => format!("  {name}/  {}", totals(std::slice::from_ref(item))),
        (false, true) => format!("  {name}  symbolic link"),
        (false, false) => format!("  {name}  {}", Size(item.bytes)),
    }
}
