//! Objects below a prefix become files.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    time::Instant,
};

use nicstripe::{CancellationToken, FailCode, Name, Report};
use nicstripe_web::{Fetch, Fetched, Listed, S3Place, WebError};

use super::{
    End,
    each::{Queue, telling},
    tally::Tally,
};
use crate::{
    commands::cp::{
        closing::Ends,
        view::Shape,
        watch::{Running, Tell},
        web::error::folder,
    },
    connect::location::path_of,
    failure::Failure,
    text::shown,
};

/// Object that becomes a file.
struct Planned {
    key: String,
    size: u64,
    path: PathBuf,
    fetch: Fetch,
}

impl End<'_> {
    pub(super) async fn get_trees(
        &mut self,
        places: &[S3Place],
        target: &Path,
    ) -> Result<(Report, Ends), Failure> {
        let started = Instant::now();
        let mut tally = Tally::default();
        let mut files = Vec::new();
        let mut folders = Vec::new();
        for place in places {
            let listing = async { Ok(self.store.list(place, false).await?) };
            let listing = self.signals.unless_stopped(listing).await?;
            let is_object = listing
                .objects
                .iter()
                .any(|object| object.key == place.key());
            let folder = self.folder(place, target, places.len() > 1, is_object);
            for object in listing.objects {
                if let Some(file) = self.plan_object(place, &folder, object, &mut tally)? {
                    files.push(file);
                }
            }
            // Beside a single object, nothing else of the directory is meant.
            if !is_object {
                folders.push(folder);
            }
        }
        if files.is_empty() && tally.is_clean() {
            return Err(folder(&shown(&self.cp.sources()[0])).into());
        }
        let kept: BTreeSet<PathBuf> = files.iter().map(|file| file.path.clone()).collect();
        let name = match places {
            [place] => shown(place.to_string()),
            places => format!("{} sources", places.len()),
        };
        self.show.begin(name, Shape::Tree);
        let fetched = self.fetch_all(files, &mut tally).await;
        self.show.end(None);
        fetched?;
        if self.cp.tree.delete && tally.is_clean() {
            for folder in &folders {
                delete_others(folder, &kept, &mut tally);
            }
        }
        let (report, proof) = tally.end(started.elapsed());
        Ok((report, self.ends(proof)))
    }

    /// Returns the directory for the objects below a place. As from a daemon, a slash at the end of SRC
    /// means its content; otherwise a directory keeps its name, if DST is one.
    fn folder(&self, place: &S3Place, target: &Path, is_several: bool, is_object: bool) -> PathBuf {
        let name = place.key().rsplit('/').next().unwrap_or_default();
        let is_directory = target.is_dir() || target.as_os_str().as_bytes().ends_with(b"/");
        match !place.is_folder() && !is_object && (is_directory || is_several) {
            true => target.join(name),
            false => target.to_owned(),
        }
    }

    /// Returns the file for an object; `None` if there is nothing to copy, or its key is no name.
    fn plan_object(
        &self,
        place: &S3Place,
        folder: &Path,
        object: Listed,
        tally: &mut Tally,
    ) -> Result<Option<Planned>, Failure> {
        // An empty object whose key ends with a slash stands for a folder.
        if object.key.ends_with('/') && object.size == 0 {
            return Ok(None);
        }
        let prefix = place.key();
        let rest = match &object.key[prefix.len()..] {
            "" => prefix.rsplit('/').next().unwrap_or_default(),
            rest if place.is_folder() => rest,
            rest => match rest.strip_prefix('/') {
                Some(rest) => rest,
                // Another key that only begins like the one that is meant.
                None => return Ok(None),
            },
        };
        let at = place.with_key(&object.key);
        let url = at.map_err(|why| why.to_string()).and_then(|at| {
            let url = self.store.account().url(&at);
            url.map_err(|why| why.to_string())
        });
        let name = Name::parse(rest.as_bytes()).map_err(|why| why.to_string());
        let (name, url) = match name.and_then(|name| Ok((name, url?))) {
            Ok(both) if !rest.ends_with('/') => both,
            Ok(_) => {
                let why = "a key with a slash at its end is no name of a file".to_owned();
                tally.refused(&object.key, FailCode::NotAFile, why);
                return Ok(None);
            }
            Err(why) => {
                tally.refused(&object.key, FailCode::Io, why);
                return Ok(None);
            }
        };
        // The store chooses the names, and must not reach what a link leads to.
        if let Some(link) = link_in(folder, &name) {
            let why = format!(
                "{} is a symbolic link, expected a file or directory of its own",
                shown(&link)
            );
            tally.refused(&object.key, FailCode::Occupied, why);
            return Ok(None);
        }
        let path = folder.join(path_of(name.components()));
        let mut options = self.options.clone();
        options.copy.parents = true;
        Ok(Some(Planned {
            key: object.key,
            size: object.size,
            path,
            fetch: Fetch::new(url, options),
        }))
    }

    async fn fetch_all(&mut self, files: Vec<Planned>, tally: &mut Tally) -> Result<(), Failure> {
        let queue = Queue::new(files.into_iter().map(|file| (file.size, file)));
        let running = Running::start(move |stop, tell: Tell| async move {
            let start = |file| fetch(file, stop.clone(), tell.clone());
            queue.run(&stop, start).await
        });
        for (key, fetched) in running.finish(self.show, self.signals).await? {
            match fetched {
                Ok(fetched)
                    if fetched.report.wire_bytes == 0 && fetched.report.resumed_bytes > 0 =>
                {
                    tally.tree.unchanged += 1;
                }
                Ok(fetched) => tally.copied(fetched.report, fetched.proof.to_string()),
                Err(error) => tally.failed(&key, error)?,
            }
        }
        Ok(())
    }
}

/// Returns the first part of a name that is a symbolic link.
fn link_in(folder: &Path, name: &Name) -> Option<PathBuf> {
    let components: Vec<&[u8]> = name.components().collect();
    let parts = (1..=components.len()).map(|count| &components[..count]);
    parts
        .map(|components| folder.join(path_of(components.iter().copied())))
        .find(|path| path.is_symlink())
}

async fn fetch(
    file: Planned,
    stop: CancellationToken,
    tell: Tell,
) -> (String, Result<Fetched, WebError>) {
    let progress = telling(file.size, tell);
    let fetched = file.fetch.into_file(&file.path, stop, progress).await;
    (file.key, fetched)
}

/// Deletes regular files below a directory that no object became.
fn delete_others(folder: &Path, kept: &BTreeSet<PathBuf>, tally: &mut Tally) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => delete_others(&path, kept, tally),
            Ok(kind) if kind.is_file() && !kept.contains(&path) => match fs::remove_file(&path) {
                Ok(()) => tally.tree.deleted += 1,
                Err(error) => tally.failed_here(&path, &error),
            },
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_leads_through_a_symbolic_link() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        fs::create_dir_all(folder.join("a/b")).unwrap();
        std::os::unix::fs::symlink("/tmp", folder.join("a/link")).unwrap();
        for (key, expected) in [
            ("file", None),
            ("a/b/c/file", None),
            ("a/link", Some("a/link")),
            ("a/link/file", Some("a/link")),
            ("a/link/x/file", Some("a/link")),
        ] {
            let name = Name::parse(key.as_bytes()).unwrap();
            let expected = expected.map(|link| folder.join(link));
            assert_eq!(link_in(folder, &name), expected, "{key}");
        }
    }
}
