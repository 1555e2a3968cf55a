//! `nicstripe verify RECEIPT FILE`: compares a file with what its receiver has signed.

use std::{ffi::OsStr, fs::File, ops::Range, path::Path};

use nicstripe::{
    receipts::{Outline, outline_of},
    trust::{Identity, Peers, PublicKey},
};
use serde::Serialize;

use super::Verify;
use crate::{
    commands::receipt::{Checked, Document, of_one_file},
    connect::{
        location::{Location, RemotePath, shown_place},
        setup::{Needs, connect_without_routes},
    },
    failure::{Failure, Fault, exit::Exit},
    output::{json::print_document, logging, terminal::Terminal},
    places,
    process::runtime,
    text::quantity::Size,
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
    let signer = signer.ok_or_else(|| {
        let text = format!("the receiver's key is not trusted here: {receiver}");
        let hint = format!("if you know that it is the receiver's: --signer '{receiver}'");
        Fault::new(Exit::Refused, text).with_hint(hint)
    })?;
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
        let sizes = (receipt.outline.size(), found.size());
        return Err(differs(&target, sizes, &wrong).into());
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
            let remote = connected.located(target)?.unwrap_or(remote);
            let found = match &remote.path {
                RemotePath::File(name) => connected.client.outline(name).await,
                RemotePath::Root | RemotePath::Directory(_) => {
                    connected.close().await;
                    return Err(of_one_file().into());
                }
            };
            connected.close().await;
            Ok(found?.1)
        }),
        Location::Pipe => Err(of_one_file().into()),
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

/// Returns the error of a file that is not what its receipt says. `sizes` are those of the receipt and of
/// the file.
fn differs(target: &str, (right, found): (u64, u64), wrong: &[Range<u64>]) -> Fault {
    let mut text = format!("{target} differs from its receipt");
    if right != found {
        text += &format!(": it has {found} bytes, expected {right}");
    }
    let shown = wrong.iter().take(MOST_SHOWN);
    let shown: Vec<String> = shown
        .map(|range| format!("{} to {}", range.start, range.end))
        .collect();
    if !shown.is_empty() {
        text += &format!("; wrong: bytes {}", shown.join(", "));
    }
    match wrong.len().saturating_sub(MOST_SHOWN) {
        0 => {}
        more => text += &format!(" and {more} more"),
    }
    Fault::new(Exit::Digest, text)
}

/// Ranges that a message names.
const MOST_SHOWN: usize = 8;
