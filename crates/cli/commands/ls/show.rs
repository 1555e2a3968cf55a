//! Output of `ls`: lines, or one JSON document, both written entry by entry.

use std::{fmt::Write as _, time::SystemTime};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use nicstripe::{Kind, Name, Stat};

use super::Wishes;
use crate::{
    connect::location::Remote,
    failure::Failure,
    output::{
        json::{Object, hinted_outcome},
        stdout,
    },
    text::{date::Date, quantity::Size},
};

/// Entry with what is known of it.
#[derive(Debug)]
pub(super) struct Listed {
    /// Name in the list.
    pub(super) name: String,
    pub(super) host: String,
    pub(super) path: Vec<u8>,
    pub(super) kind: Kind,
    /// Size of a file in bytes.
    pub(super) size: Option<u64>,
    pub(super) modified: Option<SystemTime>,
}

#[derive(Debug)]
pub(super) struct Show {
    wishes: Wishes,
    json: bool,
    /// Text that is not written yet.
    waiting: String,
    /// True once an entry or a heading was printed.
    has_begun: bool,
}

impl Show {
    pub(super) fn new(wishes: Wishes, json: bool) -> Self {
        Self {
            wishes,
            json,
            waiting: match json {
                true => format!(r#"{{"schema":"{SCHEMA}","entries":["#),
                false => String::new(),
            },
            has_begun: false,
        }
    }

    pub(super) fn entry(&mut self, listed: &Listed) -> Result<(), Failure> {
        match self.json {
            true => {
                let comma = if self.has_begun { "," } else { "" };
                let _ = write!(self.waiting, "{comma}{}", json(&listed.object()));
            }
            false => _ = writeln!(self.waiting, "{}", listed.line(self.wishes)),
        }
        self.has_begun = true;
        match self.waiting.len() > MOST_WAITING {
            true => self.flush(),
            false => Ok(()),
        }
    }

    pub(super) fn heading(&mut self, dir: &str) -> Result<(), Failure> {
        if self.json {
            return Ok(());
        }
        let space = if self.has_begun { "\n" } else { "" };
        let colon = if dir.ends_with(':') { "" } else { ":" };
        let _ = writeln!(self.waiting, "{space}{dir}{colon}");
        self.has_begun = true;
        Ok(())
    }

    pub(super) fn flush(&mut self) -> Result<(), Failure> {
        let text = std::mem::take(&mut self.waiting);
        match text.is_empty() {
            true => Ok(()),
            false => stdout::bytes(text.as_bytes()),
        }
    }

    pub(super) fn finish(mut self, failure: Option<&Failure>) -> Result<(), Failure> {
        if self.json {
            let details = failure.map(Failure::details).unwrap_or_default();
            let details = Some(details).filter(|lines| !lines.is_empty());
            let end = json(&hinted_outcome(failure).with("failures", details));
            let _ = writeln!(self.waiting, "],{}", &end[1..]);
        }
        self.flush()
    }
}

impl Listed {
    /// Returns an entry at a daemon, whose `stat` is `None` for the directory at which names begin. In the
    /// list it has its whole place if it is an argument itself, otherwise its name.
    pub(super) fn of(remote: &Remote, kind: Kind, stat: Option<&Stat>, is_argument: bool) -> Self {
        let known = remote.path.name();
        let mut name = match (is_argument, known) {
            (false, Some(name)) => nicstripe::escaped(name.file_name()),
            _ => remote.to_string(),
        };
        if kind == Kind::Dir && known.is_some() {
            name.push('/');
        }
        let slash: &[u8] = if remote.is_absolute { b"/" } else { b"" };
        Self {
            name,
            host: remote.place.to_string(),
            path: [slash, &known.map(Name::to_bytes).unwrap_or_default()].concat(),
            kind,
            size: stat.filter(|_| kind == Kind::File).map(|stat| stat.size),
            modified: stat.map(|stat| stat.modified),
        }
    }

    fn line(&self, wishes: Wishes) -> String {
        let (name, kind) = (&self.name, word(self.kind));
        if !wishes.long {
            return name.clone();
        }
        let (size, width) = match wishes.human_readable {
            true => (self.size.map(|size| Size(size).to_string()), 10),
            false => (self.size.map(|size| size.to_string()), 13),
        };
        let size = size.unwrap_or_else(|| UNKNOWN.to_owned());
        let modified = self.modified.map(|time| Date::of(time).to_string());
        let modified = modified.unwrap_or_else(|| UNKNOWN.to_owned());
        format!("{kind:<5}  {size:>width$}  {modified:<17}  {name}")
    }

    /// Returns the object of an entry, described in `docs/schema/ls.schema.json`.
    fn object(&self) -> Object {
        let path = nicstripe::escaped(&self.path);
        let path_base64 =
            (path.as_bytes() != self.path).then(|| BASE64_STANDARD.encode(&self.path));
        Object::default()
            .with("host", &self.host)
            .with("path", path)
            .with("path_base64", path_base64)
            .with("kind", word(self.kind))
            .with("size", self.size)
            .with(
                "modified",
                self.modified.map(|time| Date::of(time).rfc3339()),
            )
    }
}

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::File => "file",
        Kind::Dir => "dir",
        _ => "other",
    }
}

fn json(object: &Object) -> String {
    // An object of strings, numbers and lists always has a JSON form.
    serde_json::to_string(object).unwrap_or_else(|_| "{}".to_owned())
}

const UNKNOWN: &str = "-";

/// Bytes of output that wait for a write: about a page of names.
const MOST_WAITING: usize = 64 << 10;

const SCHEMA: &str = "nicstripe-ls/1";
