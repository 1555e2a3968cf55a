//! Receipts as JSON documents: what the receiver of a file states about it, signed by its key. Described in
//! `docs/schema/receipt-1.json`.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::Path,
    time::SystemTime,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use nicstripe::{
    Digest, Name, Report,
    receipts::{ChainingValue, Outline, PIECE, Receipt},
    trust::PublicKey,
};
use serde::{Deserialize, Serialize};

use crate::{
    failure::{Failure, Fault, exit::Exit, usage},
    output::files,
    text::{date::Date, link_text, shown},
};

/// Receipt as it is written. No field is unknown: one that no one signed would look as if it were.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Document {
    schema: String,
    name: String,
    size: u64,
    modified: String,
    blake3: String,
    received: String,
    receiver: String,
    sender: String,
    copy: Words,
    signature: String,
    piece_size: u64,
    pieces: Vec<String>,
}

/// Words that the sender, or for a copy to here the receiver, adds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Words {
    source: String,
    started: String,
    milliseconds: u64,
    links: Vec<Link>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Link {
    link: String,
    bytes: u64,
}

/// Receipt that was read, and whose signature is right.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) receipt: Receipt,
    pub(crate) receiver: PublicKey,
}

impl Words {
    pub(crate) fn of(source: String, started: SystemTime, report: &Report) -> Self {
        let links = report.links.iter().filter(|link| link.bytes > 0);
        Self {
            source,
            started: Date::of(started).rfc3339(),
            milliseconds: report.elapsed.as_millis() as u64,
            links: links
                .map(|link| Link {
                    link: link_text::ends(&link.link),
                    bytes: link.bytes,
                })
                .collect(),
        }
    }

    /// Returns the digest that the receiver signs.
    pub(crate) fn digest(&self) -> Result<Digest, Failure> {
        let text = serde_json::to_vec(self).map_err(io::Error::from);
        let text = text.map_err(Failure::Output)?;
        Ok(Digest(*blake3::hash(&text).as_bytes()))
    }
}

impl Document {
    pub(crate) fn of(receipt: &Receipt, receiver: &PublicKey, copy: Words) -> Self {
        let outline = &receipt.outline;
        let values = outline.values().iter();
        Self {
            schema: SCHEMA.to_owned(),
            name: receipt.name.to_string(),
            size: outline.size(),
            modified: Date::of(receipt.modified).rfc3339(),
            blake3: outline.digest().to_string(),
            received: Date::of(receipt.at).rfc3339(),
            receiver: receiver.to_string(),
            sender: receipt.sender.to_string(),
            copy,
            signature: STANDARD.encode(receipt.signature),
            piece_size: PIECE,
            pieces: values.map(|value| Digest(value.0).to_string()).collect(),
        }
    }

    /// Writes the receipt, durably.
    pub(crate) fn write(&self, path: &Path) -> Result<(), Failure> {
        let text = serde_json::to_vec(self).map_err(io::Error::from);
        let mut text = text.map_err(Failure::writing(path))?;
        text.push(b'\n');
        files::replace(path, &text)
    }

    /// Reads a receipt; `None` if the file is something else.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>, Failure> {
        if !fs::metadata(path).is_ok_and(|found| found.is_file()) {
            return Ok(None);
        }
        let opening = Failure::opening(path);
        let file = File::open(path).map_err(opening)?;
        let mut text = Vec::new();
        let head = (&file).take(HEAD).read_to_end(&mut text);
        head.map_err(opening)?;
        let is_receipt = String::from_utf8_lossy(&text).contains("\"nicstripe-receipt/");
        if !is_receipt {
            return Ok(None);
        }
        let rest = file.take(MOST).read_to_end(&mut text);
        rest.map_err(opening)?;
        let document: Self =
            serde_json::from_slice(&text).map_err(|error| malformed(path, &error.to_string()))?;
        match document.schema == SCHEMA {
            true => Ok(Some(document)),
            false => {
                let why = format!(
                    "its schema is {}, expected {SCHEMA}",
                    shown(document.schema)
                );
                Err(malformed(path, &why).into())
            }
        }
    }

    /// Returns what the receiver has signed, if it has.
    pub(crate) fn check(&self, path: &Path) -> Result<Checked, Failure> {
        let receipt = self.receipt();
        let receipt = receipt.ok_or_else(|| malformed(path, "a field is not what it should be"))?;
        let words = Receipt {
            words: self.copy.digest()?,
            ..receipt
        };
        let receiver = self.receiver.parse();
        let receiver =
            receiver.map_err(|_| malformed(path, "receiver is not the key of a machine"))?;
        match words.is_by(&receiver) {
            true => Ok(Checked {
                receipt: words,
                receiver,
            }),
            false => {
                let path = shown(path);
                let text = format!("{path} was altered: it is not what its receiver has signed");
                Err(Fault::new(Exit::Digest, text).into())
            }
        }
    }

    /// Returns the receipt without words.
    fn receipt(&self) -> Option<Receipt> {
        let value = |text: &String| Some(ChainingValue(text.parse::<Digest>().ok()?.0));
        let values = self.pieces.iter().map(value).collect::<Option<Vec<_>>>()?;
        let outline = Outline::new(self.size, values)?;
        let is_whole = self.piece_size == PIECE && outline.digest().to_string() == self.blake3;
        let signature = STANDARD.decode(&self.signature).ok()?;
        is_whole.then_some(Receipt {
            name: Name::parse(self.name.as_bytes()).ok()?,
            outline,
            modified: time_of(&self.modified)?,
            at: time_of(&self.received)?,
            sender: self.sender.parse().ok()?,
            words: Digest::NONE,
            signature: signature.try_into().ok()?,
        })
    }

    /// Returns when the receiver read the file, as it is written.
    pub(crate) fn received(&self) -> String {
        shown(&self.received)
    }
}

fn time_of(text: &str) -> Option<SystemTime> {
    Some(text.parse::<Timestamp>().ok()?.into())
}

const SCHEMA: &str = "nicstripe-receipt/1";

/// Bytes at the beginning of a receipt that tell it from other files.
const HEAD: u64 = 128;

/// Bytes of the longest receipt: for a file of 7 TiB.
const MOST: u64 = 512 << 20;

fn malformed(path: &Path, why: &str) -> Fault {
    let text = format!(
        "{} is no receipt that can be used: {}",
        shown(path),
        shown(why)
    );
    Fault::new(Exit::Files, text)
}

pub(crate) fn of_one_file() -> Fault {
    usage("a receipt is of one file: expected FILE HOST:PATH or HOST:FILE PATH")
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use nicstripe::trust::Identity;

    use super::*;

    fn written(folder: &Path, change: impl FnOnce(&mut Document)) -> PathBuf {
        let (receiver, sender) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        let file = folder.join("file");
        fs::write(&file, vec![7; 3_000_000]).unwrap();
        let outline =
            nicstripe::receipts::outline_of(&File::open(&file).unwrap(), 3_000_000).unwrap();
        let words = Words {
            source: "file".into(),
            started: Date::of(SystemTime::UNIX_EPOCH).rfc3339(),
            milliseconds: 5,
            links: vec![Link {
                link: "eth1".into(),
                bytes: 3_000_000,
            }],
        };
        let receipt = Receipt::signed_by(
            &receiver,
            (
                Name::parse(b"a/file").unwrap(),
                fs::metadata(&file).unwrap().modified().unwrap(),
            ),
            outline,
            (sender.public_key(), words.digest().unwrap()),
        );
        let mut document = Document::of(&receipt.unwrap(), &receiver.public_key(), words);
        change(&mut document);
        let path = folder.join("r.json");
        document.write(&path).unwrap();
        path
    }

    fn error_of(change: impl FnOnce(&mut Document)) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = written(folder.path(), change);
        match Document::read(&path) {
            Ok(found) => found.unwrap().check(&path).unwrap_err().to_string(),
            Err(failure) => failure.to_string(),
        }
    }

    #[test]
    fn a_receipt_that_was_written_is_read_and_its_signature_is_right() {
        let folder = tempfile::tempdir().unwrap();
        let path = written(folder.path(), |_| {});
        let document = Document::read(&path).unwrap().unwrap();
        let checked = document.check(&path).unwrap();
        assert_eq!(checked.receipt.name.to_string(), "a/file");
        assert_eq!(checked.receiver.to_string(), document.receiver);
        assert!(
            Document::read(&folder.path().join("file"))
                .unwrap()
                .is_none()
        );
        assert!(Document::read(folder.path()).unwrap().is_none());
    }

    #[test]
    fn no_word_of_a_receipt_can_be_altered() {
        let altered = "was altered";
        let changes: [fn(&mut Document); 8] = [
            |document| document.size += 1,
            |document| document.name = "b/file".into(),
            |document| document.modified = Date::of(SystemTime::UNIX_EPOCH).rfc3339(),
            |document| document.received = Date::of(SystemTime::UNIX_EPOCH).rfc3339(),
            |document| document.sender = document.receiver.clone(),
            |document| document.receiver = document.sender.clone(),
            |document| document.copy.source = "other".into(),
            |document| document.copy.links.clear(),
        ];
        for change in changes {
            let error = error_of(change);
            assert!(error.contains(altered), "{error}");
        }
        let changes: [fn(&mut Document); 5] = [
            |document| document.pieces.swap(0, 2),
            |document| document.blake3 = Digest::NONE.to_string(),
            |document| document.piece_size = 5,
            |document| document.signature = "?".into(),
            |document| document.schema = "nicstripe-receipt/2".into(),
        ];
        for change in changes {
            let error = error_of(change);
            assert!(error.contains("no receipt that can be used"), "{error}");
        }
    }
}
