//! `nicstripe verify RECEIPT FILE`: compares a file with what its receiver has signed.

use std::{ffi::OsStr, fs::File, ops::Range, path::Path};

use nicstripe::{
    receipts::{Outline, outline_of},
    trust::{Identity, Peers, PublicKey},
};
use serde::Serialize;

use super::Verify;
use crate::{
    commands::receipt::{Checked, Document, ReceiptError},
    connect::{
        location::{Location, RemotePath, shown_place},
        setup::{Needs, connect_without_routes},
    },
    failure::{CommandError, Failure, exit::Exit},
    output::{json::print_document, logging, terminal::Terminal},
    places,
    process::runtime,
    text::{invocation::Invocation, quantity::Size},
};

/// Result as a JSON document.
#[derive(Debug, Serialize)]
struct Comparison<'a> {
    schema: &'static str,
    ok: bool,
    receiver: String,
    received: &'a str,
    blake3: String,
    size: u64,
    found_size: u64,
    /// Ranges in bytes that are wrong or missing.
    wrong: Vec<[u64; 2]>,
}

/// Checks the signature of a receipt, and compares a file with it.
pub(super) fn run(
    verify: &Verify,
    (path, document): (&Path, &Document),
    target: &OsStr,
    terminal: &Terminal,
) -> Result<(), Failure> {
    logging::start(terminal)?;
    let Checked { receipt, receiver } = document.check(path)?;
    let signer = name_of(&receiver, verify.signer.as_ref())?;
    let signer = signer.ok_or(ReceiptError::Unknown(receiver))?;
    let found = outline_at(verify, target)?;
    let wrong = wrong_ranges(&receipt.outline, &found);
    let received = document.received();
    if verify.output.json {
        let comparison = Comparison {
            schema: "nicstripe-verify-receipt/1",
            ok: wrong.is_empty(),
            receiver: receiver.to_string(),
            received: &received,
            blake3: receipt.outline.digest().to_string(),
            size: receipt.outline.size(),
            found_size: found.size(),
            wrong: wrong.iter().map(|range| [range.start, range.end]).collect(),
        };
        print_document(&comparison)?;
    }
    let target = shown_place(target);
    if !wrong.is_empty() {
        let differs = DiffersFromReceipt {
            target,
            sizes: (receipt.outline.size(), found.size()),
            wrong,
        };
        return Err(differs.into());
    }
    if !verify.output.quiet {
        terminal.say(format_args!(
            "{target} is what {signer} read at {received}: {}, blake3 {}",
            Size(found.size()),
            found.digest()
        ));
    }
    Ok(())
}

/// Returns the name under which a key is known here; `None` if it is not. `signer` is the key that the
/// user knows to be right.
fn name_of(key: &PublicKey, signer: Option<&PublicKey>) -> Result<Option<String>, Failure> {
    if signer.is_some() {
        return Ok((signer == Some(key)).then(|| "the signer".to_owned()));
    }
    let home = places::home()?;
    let own = Identity::load(home.identity_file());
    if own.is_ok_and(|own| own.public_key() == *key) {
        return Ok(Some("this machine".to_owned()));
    }
    let peers = Peers::load(home.peers_file())?;
    let peer = peers.find(key);
    Ok(peer.map(|peer| match &peer.name {
        Some(name) => name.to_string(),
        None => "a trusted peer".to_owned(),
    }))
}

fn outline_at(verify: &Verify, target: &OsStr) -> Result<Outline, Failure> {
    match Location::parse(target)? {
        Location::Local(path) => {
            let opening = Failure::opening(&path);
            let file = File::open(&path).map_err(opening)?;
            let size = file.metadata().map_err(opening)?.len();
            outline_of(&file, size).map_err(opening)
        }
        Location::Remote(remote) => runtime::run(async {
            let paths = [target.to_owned()];
            let needs = Needs {
                paths: &paths,
                timeout: Some(verify.session.timeout),
                ..Needs::default()
            };
            let connected = connect_without_routes(&remote.place, &verify.links, &needs).await?;
            let inside = connected.inside(target)?;
            let remote = match inside.map(|inside| Location::parse(&inside)).transpose()? {
                Some(Location::Remote(inside)) => inside,
                _ => remote,
            };
            let found = match &remote.path {
                RemotePath::File(name) => connected.client.outline(name).await,
                RemotePath::Root | RemotePath::Directory(_) => {
                    connected.close().await;
                    return Err(ReceiptError::OneFile.into());
                }
            };
            connected.close().await;
            Ok(found?.1)
        }),
        Location::Pipe => Err(ReceiptError::OneFile.into()),
    }
}

/// Returns the ranges in which a file is not what it should be, also behind its end.
fn wrong_ranges(right: &Outline, found: &Outline) -> Vec<Range<u64>> {
    let mut wrong = right.differing(found);
    if found.size() > right.size() {
        wrong.push(right.size()..found.size());
    }
    wrong
}

/// Error of a file that is not what its receipt says.
#[derive(Debug)]
struct DiffersFromReceipt {
    target: String,
    /// Size of the receipt, and of the file.
    sizes: (u64, u64),
    wrong: Vec<Range<u64>>,
}

impl std::fmt::Display for DiffersFromReceipt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} differs from its receipt", self.target)?;
        let (right, found) = self.sizes;
        if right != found {
            write!(f, ": it has {found} bytes, expected {right}")?;
        }
        let shown = self.wrong.iter().take(MOST_SHOWN);
        for (range, between) in
            shown.zip(std::iter::once("; wrong: bytes ").chain(std::iter::repeat(", ")))
        {
            write!(f, "{between}{} to {}", range.start, range.end)?;
        }
        match self.wrong.len().saturating_sub(MOST_SHOWN) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

impl std::error::Error for DiffersFromReceipt {}

impl CommandError for DiffersFromReceipt {
    fn exit(&self) -> Exit {
        Exit::Digest
    }

    fn hint(&self, _: &Invocation) -> Option<String> {
        None
    }
}

/// Ranges that a message names.
const MOST_SHOWN: usize = 8;
