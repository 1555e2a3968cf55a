//! Listing of an S3 store.

use std::{cmp::Ordering, time::SystemTime};

use nicstripe::Kind;
use nicstripe_web::{Account, Listing, S3Place, Store, WebError};

use super::{
    Ls,
    show::{line, word},
};
use crate::{
    commands::web,
    failure::{Failure, Fault, exit::Exit},
    output::{
        json::{Object, hinted_outcome, print_document},
        logging, stdout,
        terminal::Terminal,
    },
    process::runtime,
    text::{date::Date, shown},
};

/// Object, or beginning of keys up to a slash.
struct Entry {
    key: String,
    size: Option<u64>,
    modified: Option<SystemTime>,
}

impl Entry {
    fn kind(&self) -> Kind {
        match self.size {
            Some(_) => Kind::File,
            None => Kind::Dir,
        }
    }
}

pub(super) fn run(ls: &Ls, terminal: &Terminal) -> Result<(), Failure> {
    let mut listed = Vec::new();
    let result = list(ls, terminal, &mut listed);
    if ls.json {
        let entries: Vec<_> = listed
            .iter()
            .flat_map(|(place, all)| all.iter().map(move |entry| object(place, entry)))
            .collect();
        let document = Object::default()
            .with("schema", super::show::SCHEMA)
            .with("entries", entries)
            .and(hinted_outcome(result.as_ref().err()));
        return result.and(print_document(&document));
    }
    for (index, (place, entries)) in listed.iter().enumerate() {
        if listed.len() > 1 {
            let space = if index > 0 { "\n" } else { "" };
            stdout::line(format_args!("{space}{}:", shown(place.to_string())))?;
        }
        for entry in entries {
            let name = shown(&entry.key[folder_of(place).len()..]);
            stdout::line(line(
                ls.wishes,
                name,
                entry.kind(),
                entry.size,
                entry.modified,
            ))?;
        }
    }
    result
}

type Listed = Vec<(S3Place, Vec<Entry>)>;

fn list(ls: &Ls, terminal: &Terminal, listed: &mut Listed) -> Result<(), Failure> {
    logging::start(terminal)?;
    ls.links.check()?;
    if ls.wishes.directory {
        return Err(
            Fault::new(Exit::Usage, "-d cannot be used with an S3 store".to_owned()).into(),
        );
    }
    let account = ls.store.account()?;
    let places = ls.paths.iter().map(|path| {
        let text = path.to_str();
        let text = text.ok_or_else(|| {
            Fault::new(
                Exit::Usage,
                format!("{} is not UTF-8, which keys are", shown(path)),
            )
        })?;
        Ok(text.parse::<S3Place>()?)
    });
    let places = places.collect::<Result<Vec<_>, Failure>>()?;
    runtime::run(look(ls, account, places, listed))
}

async fn look(
    ls: &Ls,
    account: Account,
    places: Vec<S3Place>,
    listed: &mut Listed,
) -> Result<(), Failure> {
    let store = Store::find(account, &web::options(&ls.links)?).await?;
    for place in places {
        let mut found = store.list(&place, true).await?;
        // A folder without the slash at its end.
        let folder = format!("{}/", place.key());
        let place = match !place.is_folder() && found.folders == [folder.clone()] {
            true if found.objects.iter().all(|object| object.key != place.key()) => {
                let inside = place.with_key(&folder)?;
                found = store.list(&inside, true).await?;
                inside
            }
            _ => place,
        };
        let entries = entries(&place, found, ls.wishes.all);
        if entries.is_empty() && !place.key().is_empty() {
            return Err(WebError::Nothing {
                place: place.to_string(),
            }
            .into());
        }
        listed.push((place, entries));
    }
    Ok(())
}

fn entries(place: &S3Place, found: Listing, all: bool) -> Vec<Entry> {
    let objects = found.objects.into_iter().map(|object| Entry {
        key: object.key,
        size: Some(object.size),
        modified: object.modified,
    });
    let folders = found.folders.into_iter().map(|key| Entry {
        key,
        size: None,
        modified: None,
    });
    let is_shown = |entry: &Entry| {
        let name = &entry.key[folder_of(place).len().min(entry.key.len())..];
        !name.is_empty() && (all || !name.starts_with('.'))
    };
    let mut entries: Vec<_> = objects.chain(folders).filter(is_shown).collect();
    entries.sort_by(|one, other| -> Ordering { one.key.cmp(&other.key) });
    entries
}

/// Returns the beginning of the keys that is the same for all names of a listing.
fn folder_of(place: &S3Place) -> &str {
    let key = place.key();
    &key[..key.rfind('/').map_or(0, |at| at + 1)]
}

fn object(place: &S3Place, entry: &Entry) -> Object {
    Object::default()
        .with("host", format!("s3://{}", place.bucket()))
        .with("path", shown(&entry.key))
        .with("kind", word(entry.kind()))
        .with("size", entry.size)
        .with(
            "modified",
            entry.modified.map(|time| Date::of(time).rfc3339()),
        )
}
