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

#[derive(Debug, Clone, Copy)]
pub(super) struct Listed<'a> {
    pub(super) remote: &'a Remote,
    pub(super) kind: Kind,
    /// Metadata; `None` for the directory at which names begin.
    pub(super) stat: Option<&'a Stat>,
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

    /// Prints an entry: with its whole place if it is an argument itself, otherwise with its name.
    pub(super) fn entry(&mut self, listed: Listed<'_>, is_argument: bool) -> Result<(), Failure> {
        match self.json {
            true => {
                let comma = if self.has_begun { "," } else { "" };
                let _ = write!(self.waiting, "{comma}{}", json(&object(listed)));
            }
            false => {
                let line = self.line(listed, is_argument);
                self.waiting.push_str(&line);
                self.waiting.push('\n');
            }
        }
        self.has_begun = true;
        match self.waiting.len() > MOST_WAITING {
            true => self.flush(),
            false => Ok(()),
        }
    }

    pub(super) fn heading(&mut self, dir: &Remote) -> Result<(), Failure> {
        if self.json {
            return Ok(());
        }
        let dir = dir.to_string();
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

    fn line(&self, listed: Listed<'_>, is_argument: bool) -> String {
        let Listed { remote, kind, stat } = listed;
        let mut name = match (is_argument, remote.path.name()) {
            (false, Some(name)) => nicstripe::escaped(name.file_name()),
            _ => remote.to_string(),
        };
        if kind == Kind::Dir && remote.path.name().is_some() {
            name.push('/');
        }
        let size = stat.filter(|_| kind == Kind::File).map(|stat| stat.size);
        line(
            self.wishes,
            name,
            kind,
            size,
            stat.map(|stat| stat.modified),
        )
    }
}

/// Returns the line of an entry, with what is known of it.
pub(super) fn line(
    wishes: Wishes,
    name: String,
    kind: Kind,
    size: Option<u64>,
    modified: Option<SystemTime>,
) -> String {
    if !wishes.long {
        return name;
    }
    let size = match size {
        Some(size) if wishes.human_readable => Size(size).to_string(),
        Some(size) => size.to_string(),
        None => UNKNOWN.to_owned(),
    };
    let width = if wishes.human_readable { 10 } else { 13 };
    let modified = modified.map_or_else(
        || UNKNOWN.to_owned(),
        |modified| Date::of(modified).to_string(),
    );
    format!("{:<5}  {size:>width$}  {modified:<17}  {name}", word(kind))
}

/// Returns the object of an entry, described in `docs/schema/ls.schema.json`.
fn object(Listed { remote, kind, stat }: Listed<'_>) -> Object {
    let slash: &[u8] = if remote.is_absolute { b"/" } else { b"" };
    let components = remote.path.name().map(Name::components);
    let inside = components.map(|components| components.collect::<Vec<_>>().join(&b'/'));
    let exact = [slash, &inside.unwrap_or_default()].concat();
    let path = nicstripe::escaped(&exact);
    let path_base64 = (path.as_bytes() != exact).then(|| BASE64_STANDARD.encode(&exact));
    let of_file = stat.filter(|_| kind == Kind::File);
    Object::default()
        .with("host", remote.place.to_string())
        .with("path", path)
        .with("path_base64", path_base64)
        .with("kind", word(kind))
        .with("size", of_file.map(|stat| stat.size))
        .with(
            "modified",
            stat.map(|stat| Date::of(stat.modified).rfc3339()),
        )
}

pub(super) fn word(kind: Kind) -> &'static str {
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

pub(super) const SCHEMA: &str = "nicstripe-ls/1";
