//! Files, trees and standard input become objects.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    time::{Instant, SystemTime},
};

use nicstripe::{CancellationToken, FailCode, Report};
use nicstripe_web::{Listed, S3Place, Sent, Upload, UploadOptions, WebError};

use super::{
    End,
    each::{Queue, telling},
    tally::Tally,
};
use crate::{
    commands::cp::{
        closing::Ends,
        copy_kind::shown_name,
        view::Shape,
        watch::{Running, Tell},
        web::{error::not_utf8, run::failed},
    },
    failure::Failure,
    places,
    process::streams::{PIPE, check_input, input},
    text::shown,
};

/// File that becomes an object.
#[derive(Debug, Clone)]
struct Planned {
    path: PathBuf,
    place: S3Place,
    size: u64,
    modified: Option<SystemTime>,
}

impl End<'_> {
    pub(super) async fn put(
        &mut self,
        sources: &[PathBuf],
        place: &S3Place,
    ) -> Result<(Report, Ends), Failure> {
        if let [source] = sources
            && !source.is_dir()
        {
            let place = match place.is_folder() {
                true => below(place, source.file_name().unwrap_or_default())?,
                false => place.clone(),
            };
            let name = shown_name(source);
            let (upload, source) = (self.upload(&place), source.clone());
            let send = move |stop, tell: Tell| async move {
                let sent = upload.file(&source, stop, move |event| tell(event)).await;
                sent.map_err(failed)
            };
            return self.put_one(name, Shape::File, send).await;
        }
        let started = Instant::now();
        let mut tally = Tally::default();
        let (files, prefixes) = self.plan(sources, place, &mut tally)?;
        let there = self.there(&prefixes).await?;
        let (unchanged, files): (Vec<_>, Vec<_>) = files
            .into_iter()
            .partition(|file| !self.cp.force && is_unchanged(file, &there));
        tally.tree.unchanged += unchanged.len() as u64;
        let kept: BTreeSet<&str> = unchanged
            .iter()
            .chain(&files)
            .map(|file| file.place.key())
            .collect();
        let gone: Vec<String> = there
            .keys()
            .filter(|key| !kept.contains(key.as_str()) && !key.ends_with('/'))
            .cloned()
            .collect();
        let name = match sources {
            [source] => shown_name(source),
            sources => format!("{} sources", sources.len()),
        };
        self.show.begin(name, Shape::Tree);
        let sent = self.send_all(files, &mut tally).await;
        self.show.end(None);
        sent?;
        if self.cp.tree.delete && tally.is_clean() && !gone.is_empty() {
            let left = self.store.remove(place, &gone).await?;
            tally.tree.deleted += (gone.len() - left.len()) as u64;
            for (key, code) in left {
                tally.refused(&key, FailCode::Io, format!("not deleted: {code}"));
            }
        }
        let (report, proof) = tally.end(started.elapsed());
        Ok((report, self.ends(proof)))
    }

    pub(super) async fn put_pipe(&mut self, place: S3Place) -> Result<(Report, Ends), Failure> {
        check_input()?;
        let name = shown(place.key().rsplit('/').next().unwrap_or_default());
        let upload = self.upload(&place);
        let send = move |stop, tell: Tell| async move {
            let mut input = input(PIPE).map_err(|source| Failure::Source {
                path: "-".into(),
                source,
            })?;
            let sent = upload
                .stream(&mut input, stop, move |event| tell(event))
                .await;
            sent.map_err(failed)
        };
        self.put_one(name, Shape::Pipe, send).await
    }

    /// Sends one object, and shows it.
    async fn put_one<F>(
        &mut self,
        name: String,
        shape: Shape,
        send: impl FnOnce(CancellationToken, Tell) -> F,
    ) -> Result<(Report, Ends), Failure>
    where
        F: Future<Output = Result<Sent, Failure>>,
    {
        self.show.begin(name, shape);
        let sent = Running::start(send).finish(self.show, self.signals).await;
        self.show.end(sent.as_ref().ok().map(|sent| &sent.report));
        let sent = sent?;
        let ends = self.ends(sent.proof.to_string());
        Ok((sent.report, ends))
    }

    fn upload(&self, place: &S3Place) -> Upload {
        let mut options = UploadOptions::default();
        options.replace = !self.cp.no_replace;
        options.restart = self.cp.no_resume;
        options.preserve = self.cp.preserve || self.cp.tree.archive;
        options.part = self.cp.web.part_size().unwrap_or(options.part);
        options.streams = self.cp.streams.map_or(options.streams, usize::from);
        options.state = places::home().ok().map(|home| home.state().to_owned());
        options.patience = self.options.patience;
        Upload::new(self.store.clone(), place.clone(), options)
    }

    /// Finds the files, and the beginnings of the keys that they get.
    fn plan(
        &self,
        sources: &[PathBuf],
        place: &S3Place,
        tally: &mut Tally,
    ) -> Result<(Vec<Planned>, Vec<S3Place>), Failure> {
        let (mut files, mut prefixes) = (Vec::new(), Vec::new());
        for source in sources {
            let is_content = source.as_os_str().as_encoded_bytes().ends_with(b"/")
                || source.file_name().is_none();
            let name = source.file_name().unwrap_or_default();
            if !source.is_dir() {
                let folder = as_folder(place)?;
                let of = below(&folder, name)?;
                add(source, of, &mut files, tally);
                continue;
            }
            // As from a daemon: a slash at the end of SRC means its content, one at the end of DST a
            // folder that keeps the name.
            let keeps_name = !is_content && (place.is_folder() || sources.len() > 1);
            let folder = match keeps_name {
                true => as_folder(&below(&as_folder(place)?, name)?)?,
                false => as_folder(place)?,
            };
            walk(source, &folder, &mut files, tally);
            prefixes.push(folder);
        }
        Ok((files, prefixes))
    }

    /// Returns the objects whose keys begin so.
    async fn there(&mut self, prefixes: &[S3Place]) -> Result<BTreeMap<String, Listed>, Failure> {
        let mut there = BTreeMap::new();
        for prefix in prefixes {
            let listing = async { Ok(self.store.list(prefix, false).await?) };
            let listing = self.signals.unless_stopped(listing).await?;
            there.extend(
                listing
                    .objects
                    .into_iter()
                    .map(|object| (object.key.clone(), object)),
            );
        }
        Ok(there)
    }

    async fn send_all(&mut self, files: Vec<Planned>, tally: &mut Tally) -> Result<(), Failure> {
        let work = files
            .into_iter()
            .map(|file| (file.size, (self.upload(&file.place), file)));
        let queue = Queue::new(work);
        let running = Running::start(move |stop, tell: Tell| async move {
            let start = |(upload, file)| send(upload, file, stop.clone(), tell.clone());
            queue.run(&stop, start).await
        });
        for (key, sent) in running.finish(self.show, self.signals).await? {
            match sent {
                Ok(sent) => tally.copied(sent.report, sent.proof.to_string()),
                Err(error) => tally.failed(&key, error)?,
            }
        }
        Ok(())
    }
}

async fn send(
    upload: Upload,
    file: Planned,
    stop: CancellationToken,
    tell: Tell,
) -> (String, Result<Sent, WebError>) {
    let progress = telling(file.size, tell);
    let sent = upload.file(&file.path, stop, progress).await;
    (file.place.key().to_owned(), sent)
}

/// Adds the regular files of a directory. Links, devices and the like are skipped and counted.
fn walk(directory: &Path, place: &S3Place, files: &mut Vec<Planned>, tally: &mut Tally) {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) => return tally.failed_here(directory, &error),
    };
    for entry in entries {
        // A name that is not read must not be deleted at the store.
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                tally.failed_here(directory, &error);
                continue;
            }
        };
        let path = entry.path();
        let kind = entry.file_type().ok();
        let is = |of: fn(&fs::FileType) -> bool| kind.as_ref().is_some_and(of);
        let is_directory = is(fs::FileType::is_dir);
        if !is_directory && !is(fs::FileType::is_file) {
            tally.tree.special += 1;
            continue;
        }
        match below(place, &entry.file_name()) {
            Ok(of) if !is_directory => add(&path, of, files, tally),
            of => match of.and_then(|of| as_folder(&of)) {
                Ok(folder) => walk(&path, &folder, files, tally),
                Err(failure) => tally.failed_here(&path, &failure),
            },
        }
    }
}

fn add(path: &Path, place: S3Place, files: &mut Vec<Planned>, tally: &mut Tally) {
    match fs::metadata(path) {
        Ok(metadata) => files.push(Planned {
            path: path.to_owned(),
            place,
            size: metadata.len(),
            modified: metadata.modified().ok(),
        }),
        Err(error) => tally.failed_here(path, &error),
    }
}

/// Returns true if the object has the file's size and was written after the file.
fn is_unchanged(file: &Planned, there: &BTreeMap<String, Listed>) -> bool {
    there.get(file.place.key()).is_some_and(|object| {
        object.size == file.size
            && file
                .modified
                .zip(object.modified)
                .is_some_and(|(file, object)| file <= object)
    })
}

fn below(folder: &S3Place, name: &OsStr) -> Result<S3Place, Failure> {
    let name = name.to_str().ok_or_else(|| not_utf8(name))?;
    Ok(folder.with_key(&format!("{}{name}", folder.key()))?)
}

fn as_folder(place: &S3Place) -> Result<S3Place, Failure> {
    match place.is_folder() {
        true => Ok(place.clone()),
        false => Ok(place.with_key(&format!("{}/", place.key()))?),
    }
}
