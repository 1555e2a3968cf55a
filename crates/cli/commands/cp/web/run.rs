//! The fetches of a copy from web servers, one after the other.

use std::{path::PathBuf, pin::Pin, sync::Arc};

use nicstripe::{
    CancellationToken, Client, Error, Event, Kind, LinkReport, Name, Report, routes::RouteKeeper,
};
use nicstripe_web::{Fetch, FetchOptions, Fetched, WebError, WebUrl};
use tokio::sync::mpsc;

use super::{To, WebCopy, WebFile, error::WebPlanError, inside};
use crate::{
    commands::cp::{
        arguments::Cp,
        closing::Ends,
        copy_kind::CopyKind,
        show::Show,
        watch::{Watched, until_end},
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
            add(&mut all.0, fetched.report);
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
        let ends = Ends::of_web(from, self.shown(cp), proofs.join(", "), is_durable);
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

/// Running work, with its pending events.
pub(in crate::commands::cp) struct Running<'a, T> {
    work: Pin<Box<dyn Future<Output = Result<T, Failure>> + 'a>>,
    events: mpsc::Receiver<Event>,
    outcome: Option<Result<T, Failure>>,
    stop: CancellationToken,
}

impl<T> Watched for Running<'_, T> {
    async fn next_event(&mut self) -> Option<Event> {
        while self.outcome.is_none() {
            tokio::select! {
                Some(event) = self.events.recv() => return Some(event),
                outcome = &mut self.work => self.outcome = Some(outcome),
            }
        }
        self.events.try_recv().ok()
    }

    fn cancel(&mut self) {
        self.stop.cancel();
    }
}

impl<'a, T> Running<'a, T> {
    /// Starts what `begin` returns. It gets a token that ends it, and hears of events through the
    /// function.
    pub(in crate::commands::cp) fn start<F>(
        begin: impl FnOnce(CancellationToken, Tell) -> F,
    ) -> Self
    where
        F: Future<Output = Result<T, Failure>> + 'a,
    {
        let stop = CancellationToken::new();
        let (tell, events) = mpsc::channel(1024);
        // Drops events if the queue is full.
        let tell: Tell = Arc::new(move |event| drop(tell.try_send(event)));
        Self {
            work: Box::pin(begin(stop.clone(), tell)),
            events,
            outcome: None,
            stop,
        }
    }

    /// Shows the events until the end.
    pub(in crate::commands::cp) async fn finish(
        mut self,
        show: &mut Show,
        signals: &mut Signals,
    ) -> Result<T, Failure> {
        let stopped = until_end(&mut self, show, signals).await;
        let ended = || Err(failed(WebError::Cancelled { resumable: false }));
        let outcome = self.outcome.take().unwrap_or_else(ended);
        outcome.map_err(|failure| match (&failure, stopped) {
            (Failure::Library(error), Some(stop)) => match **error {
                Error::Cancelled { resumable } => Failure::Interrupted { stop, resumable },
                _ => failure,
            },
            _ => failure,
        })
    }
}

/// Hears what happens.
pub(in crate::commands::cp) type Tell = Arc<dyn Fn(Event) + Send + Sync>;

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

/// Adds what a further file took.
pub(in crate::commands::cp) fn add(all: &mut Report, of_file: Report) {
    if all.links.is_empty() && all.size == 0 {
        *all = of_file;
        return;
    }
    all.size += of_file.size;
    all.wire_bytes += of_file.wire_bytes;
    all.resumed_bytes += of_file.resumed_bytes;
    all.resent_bytes += of_file.resent_bytes;
    all.failovers += of_file.failovers;
    all.elapsed += of_file.elapsed;
    all.moving += of_file.moving;
    (all.digest, all.etag) = (None, None);
    for link in of_file.links {
        let is_same = |other: &&mut LinkReport| other.link == link.link;
        match all.links.iter_mut().find(is_same) {
            Some(other) => {
                other.bytes += link.bytes;
                other.wire_bytes += link.wire_bytes;
                other.failures += link.failures;
                other.state = link.state;
            }
            None => all.links.push(link),
        }
    }
    for link in &mut all.links {
        link.goodput = nicstripe::BitRate::from_bytes_over(link.bytes, all.elapsed);
    }
}

/// Bytes of a pipe's buffer.
const PIPE: usize = 1 << 20;
