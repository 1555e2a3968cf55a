//! The fetches of a copy from web servers, one after the other.

use std::{path::PathBuf, sync::Arc};

use nicstripe::{Client, Error, Event, Name, Report, escaped, routes::RouteKeeper};
use nicstripe_web::{Fetch, FetchOptions, Fetched, WebError, WebUrl};

use super::{To, WebCopy, WebFile, inside};
use crate::{
    commands::cp::{
        arguments::Cp,
        closing::Ends,
        copy_kind::shown_name,
        show::Show,
        slices::is_dir,
        view::Shape,
        watch::{Running, Tell},
    },
    connect::location::{LocationError, RemotePath},
    failure::{Failure, usage},
    output::terminal::Terminal,
    process::{
        signals::Signals,
        streams::{self, check_output},
    },
    text::shown,
};

enum Target<'a> {
    File(PathBuf),
    Output,
    /// File at a daemon.
    Name(&'a Client, Name),
}

impl WebCopy {
    /// Runs the copies. The first signal ends them, and what arrived in a file is kept.
    pub(in crate::commands::cp) async fn run(
        self,
        cp: &Cp,
        keeper: Arc<RouteKeeper>,
        terminal: &Terminal,
        show: &mut Show,
    ) -> Result<(Report, Ends), Failure> {
        let mut signals = Signals::with_bars(terminal)?;
        let To::Daemon(remote) = &self.target else {
            return self.run_to(cp, None, terminal, show, &mut signals).await;
        };
        let mut to = cp.clone();
        (to.links, to.streams) = (cp.links.of_daemon(), None);
        to.paths.drain(..to.paths.len() - 1);
        let tell = |event: &Event| show.on_event(event);
        let connecting = to.connect(&remote.place, &keeper, |builder| builder, tell);
        let connected = signals.unless_stopped(connecting).await?;
        let result = match connected.located(cp.target()) {
            Ok(located) => {
                let remote = located.as_ref().unwrap_or(remote);
                let at = Some((&connected.client, &remote.path));
                self.run_to(cp, at, terminal, show, &mut signals).await
            }
            Err(error) => Err(error.into()),
        };
        signals.finish(connected.close()).await;
        result
    }

    async fn run_to(
        &self,
        cp: &Cp,
        daemon: Option<(&Client, &RemotePath)>,
        terminal: &Terminal,
        show: &mut Show,
        signals: &mut Signals,
    ) -> Result<(Report, Ends), Failure> {
        let mut all = (Report::default(), Vec::new());
        for file in &self.files {
            let target = self.target_of(file, daemon).await?;
            let (name, shape) = target.shown(file);
            show.begin(name, shape);
            let mut options = self.options.clone();
            options.sums = cp.web.sums(&file.url)?;
            let fetched = fetch(&file.url, options, target, show, signals).await;
            show.end(fetched.as_ref().ok().map(|fetched| &fetched.report));
            let fetched = fetched?;
            for liar in &fetched.liars {
                terminal.warning(&format!("{liar} sent other bytes, which were not used"));
            }
            all.0.add(fetched.report);
            let proof = fetched.proof.to_string();
            if !all.1.contains(&proof) {
                all.1.push(proof);
            }
        }
        let (report, proofs) = all;
        let from = match &self.files[..] {
            [file] => file.shown.clone(),
            files => format!("{} files", files.len()),
        };
        let is_durable = !matches!(self.target, To::Output);
        let ends = Ends::of_elsewhere(from, self.shown(cp), proofs.join(", "), is_durable);
        Ok((report, ends))
    }

    async fn target_of<'a>(
        &self,
        file: &WebFile,
        daemon: Option<(&'a Client, &RemotePath)>,
    ) -> Result<Target<'a>, Failure> {
        let name = || {
            let shown = &file.shown;
            let none = || {
                usage(format!(
                    "{shown} names no file: expected DST as the file to write"
                ))
            };
            file.name.clone().ok_or_else(none)
        };
        if let Some((client, path)) = daemon {
            let directory = match path {
                RemotePath::Root => None,
                RemotePath::Directory(directory) => Some(directory),
                RemotePath::File(path) if self.is_directory || is_dir(client, path).await => {
                    Some(path)
                }
                RemotePath::File(path) => return Ok(Target::Name(client, path.clone())),
            };
            let name = name()?;
            let below = match directory {
                None => name,
                Some(directory) => {
                    let all = directory.components().chain(name.components());
                    Name::new(all).map_err(LocationError::from)?
                }
            };
            return Ok(Target::Name(client, below));
        }
        Ok(match &self.target {
            To::Local(path) if self.is_directory => Target::File(inside(path, &name()?)),
            To::Local(path) => Target::File(path.clone()),
            To::Output | To::Daemon(_) => Target::Output,
        })
    }

    /// Returns the target as printed.
    fn shown(&self, cp: &Cp) -> String {
        match (&self.target, &self.files[..]) {
            (To::Output, _) => "standard output".to_owned(),
            (
                To::Local(path),
                [
                    WebFile {
                        name: Some(name), ..
                    },
                ],
            ) if self.is_directory => shown(inside(path, name)),
            _ => shown(cp.target()),
        }
    }
}

impl Target<'_> {
    /// Returns the name and the kind of the transfer, for the progress.
    fn shown(&self, file: &WebFile) -> (String, Shape) {
        match (self, &file.name) {
            (Self::File(path), _) => (shown_name(path), Shape::File),
            (Self::Name(_, name), _) => (escaped(name.file_name()), Shape::File),
            (Self::Output, Some(name)) => (escaped(name.file_name()), Shape::Pipe),
            (Self::Output, None) => ("-".to_owned(), Shape::Pipe),
        }
    }
}

async fn fetch(
    url: &WebUrl,
    options: FetchOptions,
    target: Target<'_>,
    show: &mut Show,
    signals: &mut Signals,
) -> Result<Fetched, Failure> {
    let copy = options.copy;
    let fetch = Fetch::new(url.clone(), options);
    let running = Running::start(move |stop, tell: Tell| async move {
        let tell = move |event| tell(event);
        match target {
            Target::File(path) => fetch.into_file(&path, stop, tell).await.map_err(failed),
            Target::Output => {
                check_output()?;
                let mut output = streams::output(streams::PIPE).map_err(Failure::Output)?;
                let fetched = fetch.into_stream(&mut output, stop, tell).await;
                fetched.map_err(failed)
            }
            Target::Name(client, name) => {
                let mut upload = client.create(&name, copy);
                let fetched = fetch.into_stream(&mut upload, stop, tell).await;
                let mut fetched = fetched.map_err(failed)?;
                let report = upload.finish().await?;
                fetched.report.etag = report.etag;
                Ok(fetched)
            }
        }
    });
    running.finish(show, signals).await
}

pub(in crate::commands::cp) fn failed(error: WebError) -> Failure {
    match error {
        WebError::Cancelled { resumable } => Error::Cancelled { resumable }.into(),
        error => error.into(),
    }
}
