//! The fetches of a copy from web servers, one after the other.

use std::{path::PathBuf, sync::Arc};

use nicstripe::{Client, Error, Event, Kind, Name, Report, routes::RouteKeeper};
use nicstripe_web::{Fetch, FetchOptions, Fetched, WebError, WebUrl};

use super::{To, WebCopy, WebFile, error::WebPlanError, inside};
use crate::{
    commands::cp::{
        arguments::Cp,
        closing::Ends,
        copy_kind::CopyKind,
        show::Show,
        watch::{Running, Tell},
    },
    connect::{
        location::{Location, LocationError, Remote, RemotePath},
        setup::{self, Connected, Needs},
    },
    failure::Failure,
    output::terminal::Terminal,
    process::{
        signals::Signals,
        streams::{self, check_output},
    },
    text::shown,
};

/// Target of one file.
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
        let mut signals = Signals::take()?;
        if terminal.can_redraw() {
            signals.clear_on_suspend(terminal)?;
        }
        let To::Daemon(remote) = &self.target else {
            return self.run_to(cp, None, terminal, show, &mut signals).await;
        };
        let connecting = connect(cp, remote, keeper, show);
        let connected = signals.unless_stopped(connecting).await?;
        let result = match in_root(&connected, cp) {
            Ok(path) => {
                let at = Some((&connected.client, path.as_ref().unwrap_or(&remote.path)));
                self.run_to(cp, at, terminal, show, &mut signals).await
            }
            Err(failure) => Err(failure),
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
            show.begin(&target.kind(file)?);
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
            let none = || WebPlanError::NoName(file.shown.clone());
            file.name.clone().ok_or_else(none)
        };
        if let Some((client, path)) = daemon {
            let directory = match path {
                RemotePath::Root => None,
                RemotePath::Directory(directory) => Some(directory),
                RemotePath::File(path) if self.is_directory || is_directory(client, path).await => {
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
    fn kind(&self, file: &WebFile) -> Result<CopyKind, Failure> {
        let of_path = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default();
            Name::parse(std::os::unix::ffi::OsStrExt::as_bytes(name)).map_err(LocationError::from)
        };
        Ok(match self {
            Self::File(target) => CopyKind::Get {
                name: of_path(target)?,
                target: target.clone(),
            },
            Self::Name(_, name) => CopyKind::Get {
                name: name.clone(),
                target: PathBuf::new(),
            },
            Self::Output => match &file.name {
                Some(name) => CopyKind::GetPipe {
                    name: name.clone(),
                    to: None,
                },
                None => CopyKind::GetPipe {
                    name: Name::parse(b"-").map_err(LocationError::from)?,
                    to: None,
                },
            },
        })
    }
}

/// Connects to the daemon to which the files go.
async fn connect(
    cp: &Cp,
    remote: &Remote,
    keeper: Arc<RouteKeeper>,
    show: &mut Show,
) -> Result<Connected, Failure> {
    let adapt = |builder| cp.session.apply(builder).route_keeper(keeper.clone());
    let needs = Needs {
        paths: std::slice::from_ref(cp.paths.last().unwrap_or(&cp.paths[0])),
        timeout: Some(cp.session.timeout),
        ..Needs::default()
    };
    let tell = |event: &Event| show.on_event(event);
    setup::connect(&remote.place, &cp.links.of_daemon(), &needs, adapt, tell).await
}

/// Returns the path of the target relative to where names at the daemon begin, if that differs from the
/// typed one.
fn in_root(connected: &Connected, cp: &Cp) -> Result<Option<RemotePath>, Failure> {
    let Some(inside) = connected.inside(cp.target())? else {
        return Ok(None);
    };
    match Location::parse(&inside)? {
        Location::Remote(remote) => Ok(Some(remote.path)),
        _ => Ok(None),
    }
}

async fn is_directory(client: &Client, name: &Name) -> bool {
    let found = client.stat(name).await;
    found.is_ok_and(|found| found.kind == Kind::Dir)
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
                let mut output = streams::output(PIPE).map_err(Failure::Output)?;
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

/// Bytes of a pipe's buffer.
const PIPE: usize = 1 << 20;
