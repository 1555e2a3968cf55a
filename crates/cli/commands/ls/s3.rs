//! Listing of an S3 store.

use std::time::SystemTime;

use nicstripe::Kind;
use nicstripe_web::{Account, Listing, S3Place, Store, WebError};

use super::{
    Ls,
    show::{Listed, Show},
};
use crate::{
    commands::web,
    failure::{Failure, usage},
    output::{logging, terminal::Terminal},
    process::runtime,
    text::shown,
};

pub(super) fn run(ls: &Ls, terminal: &Terminal) -> Result<(), Failure> {
    let mut listed = Vec::new();
    let result = list(ls, terminal, &mut listed);
    let mut show = Show::new(ls.wishes, ls.json);
    for (place, entries) in &listed {
        if listed.len() > 1 {
            show.heading(&shown(place.to_string()))?;
        }
        entries.iter().try_for_each(|entry| show.entry(entry))?;
    }
    let printed = show.finish(result.as_ref().err());
    result.and(printed)
}

/// Places with the entries of each.
type Found = Vec<(S3Place, Vec<Listed>)>;

fn list(ls: &Ls, terminal: &Terminal, listed: &mut Found) -> Result<(), Failure> {
    logging::start(terminal)?;
    ls.links.check()?;
    if ls.wishes.directory {
        return Err(usage("-d cannot be used with an S3 store").into());
    }
    let account = ls.store.account()?;
    let places = ls.paths.iter().map(|path| {
        let text = path.to_str();
        let text =
            text.ok_or_else(|| usage(format!("{} is not UTF-8, which keys are", shown(path))))?;
        Ok(text.parse::<S3Place>()?)
    });
    let places = places.collect::<Result<Vec<_>, Failure>>()?;
    runtime::run(look(ls, account, places, listed))
}

async fn look(
    ls: &Ls,
    account: Account,
    places: Vec<S3Place>,
    listed: &mut Found,
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

fn entries(place: &S3Place, found: Listing, all: bool) -> Vec<Listed> {
    let objects = found.objects.into_iter();
    let objects = objects.map(|object| (object.key, Some(object.size), object.modified));
    let folders = found.folders.into_iter().map(|key| (key, None, None));
    let mut entries: Vec<_> = objects.chain(folders).collect();
    entries.sort_by(|(one, ..), (other, ..)| one.cmp(other));
    let folder = folder_of(place).len();
    let entry = |(key, size, modified): (String, Option<u64>, Option<SystemTime>)| {
        let name = key.get(folder..).unwrap_or_default();
        if name.is_empty() || (!all && name.starts_with('.')) {
            return None;
        }
        Some(Listed {
            name: shown(name),
            host: format!("s3://{}", place.bucket()),
            kind: size.map_or(Kind::Dir, |_| Kind::File),
            path: key.into_bytes(),
            size,
            modified,
        })
    };
    entries.into_iter().filter_map(entry).collect()
}

/// Returns the beginning of the keys that is the same for all names of a listing.
fn folder_of(place: &S3Place) -> &str {
    let key = place.key();
    &key[..key.rfind('/').map_or(0, |at| at + 1)]
}
