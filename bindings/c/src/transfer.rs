//! Running copies of files and trees.

use std::{
    ffi::c_char,
    mem::MaybeUninit,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use library::{
    CancellationToken, Error, Progress, Report, TreeReport, TreeSource,
    blocking::{Client, Transfer},
};

use crate::{
    client::nicstripe_client,
    error::{Failure, call, quietly, required},
    handle::Exclusive,
    metadata::nicstripe_report,
    raw::{CopyOptionsIn, ErrorOut, OwnedText, Text, Texts, path},
};

/// Running copy of a file or a tree. It runs whether or not a thread waits for it. One thread may
/// wait at a time; nicstripe_transfer_progress and nicstripe_transfer_cancel are for any thread.
pub struct nicstripe_transfer {
    state: Exclusive<State>,
    cancel: CancellationToken,
    progress: Mutex<Progress>,
    most: Option<Duration>,
    interrupt: CancellationToken,
}

enum State {
    Running(Transfer),
    Ended(Box<Report>, Vec<(OwnedText, OwnedText)>),
    /// The error was returned.
    Failed,
}

/// Progress of a transfer.
#[repr(C)]
pub struct nicstripe_progress {
    /// Bytes at the receiver, including those of earlier attempts.
    pub bytes: u64,
    /// Size in bytes; for a tree, of the files found so far; 0 if unknown.
    pub size: u64,
    /// Bytes of earlier attempts.
    pub resumed: u64,
    /// Goodput in bit/s, averaged over about one second.
    pub bits_per_second: u64,
    /// Tree: files that are complete.
    pub files_done: u64,
    /// Tree: files that were found so far.
    pub files_found: u64,
    /// Number of links that are up.
    pub links_up: u32,
    /// True if `size` can still grow.
    pub is_open: bool,
}

/// Sends a file, and stores the transfer in `transfer`. `name` may be NULL, for the file's own name;
/// `options` may be NULL. Repeating the call after an interruption resumes.
#[unsafe(no_mangle)]
pub extern "C" fn nicstripe_put(
    client: Option<&nicstripe_client>,
    source: Text,
    name: Text,
    options: CopyOptionsIn,
    transfer: Option<&mut MaybeUninit<Option<Box<nicstripe_transfer>>>>,
    error: ErrorOut<'_>,
) -> i32 {
    call(error, || {
        let into = required(transfer, "transfer")?.write(None);
        let (source, name) = (source.path("source")?, name.optional_name()?);
        let options = options.read()?.file()?;
        begin(client, into, |client| client.put(source, name, options))
    })
}

/// Fetches a file to a path on this machine, and stores the transfer in `transfer`. `options` may be
/// NULL.
#[unsafe(no_mangle)]
pub extern "C" fn nicstripe_get(
    client: Option<&nicstripe_client>,
    name: Text,
    target: Text,
    options: CopyOptionsIn,
    transfer: Option<&mut MaybeUninit<Option<Box<nicstripe_transfer>>>>,
    error: ErrorOut<'_>,
) -> i32 {
    call(error, || {
        let into = required(transfer, "transfer")?.write(None);
        let (name, target) = (name.name("name")?, target.path("target")?);
        let options = options.read()?.file()?;
        begin(client, into, |client| client.get(name, target, options))
    })
}

/// Sends `count` files and trees into the directory `name`, or into the root if that is NULL, and
/// stores the transfer in `transfer`. Of a source that ends in a slash, only the content is copied.
#[unsafe(no_mangle)]
pub extern "C" fn nicstripe_put_tree(
    client: Option<&nicstripe_client>,
    sources: Texts,
    count: usize,
    name: Text,
    options: CopyOptionsIn,
    transfer: Option<&mut MaybeUninit<Option<Box<nicstripe_transfer>>>>,
    error: ErrorOut<'_>,
) -> i32 {
    call(error, || {
        let into = required(transfer, "transfer")?.write(None);
        let sources = sources.all(count, "sources")?;
        let (name, options) = (name.optional_name()?, options.read()?.tree()?);
        let sources = sources.into_iter().map(path);
        begin(client, into, |client| {
            client.put_tree(sources, name, options)
        })
    })
}

/// Fetches `count` files and trees into the directory `target`, and stores the transfer in
/// `transfer`. Of a name that ends in a slash, only the content is copied; "/" is the root's.
#[unsafe(no_mangle)]
pub extern "C" fn nicstripe_get_tree(
    client: Option<&nicstripe_client>,
    names: Texts,
    count: usize,
    target: Text,
    options: CopyOptionsIn,
    transfer: Option<&mut MaybeUninit<Option<Box<nicstripe_transfer>>>>,
    error: ErrorOut<'_>,
) -> i32 {
    call(error, || {
        let into = required(transfer, "transfer")?.write(None);
        let names = names.all(count, "names")?;
        let sources: Result<Vec<_>, _> = names.into_iter().map(source).collect();
        let (sources, target) = (sources?, target.path("target")?);
        let options = options.read()?.tree()?;
        begin(client, into, |client| {
            client.get_tree(sources, target, options)
        })
    })
}

fn source(name: &[u8]) -> Result<TreeSource, Failure> {
    Ok(match name.strip_suffix(b"/") {
        Some(b"") => TreeSource::content_of(None),
        Some(dir) => TreeSource::content_of(Some(library::Name::parse(dir)?)),
        None => TreeSource::named(library::Name::parse(name)?),
    })
}

fn begin(
    client: Option<&nicstripe_client>,
    into: &mut Option<Box<nicstripe_transfer>>,
    start: impl FnOnce(&Client) -> Transfer,
) -> Result<(), Failure> {
    let client = required(client, "client")?;
    let started = start(client.unlimited()?);
    *into = Some(Box::new(nicstripe_transfer {
        cancel: started.cancel_token(),
        progress: Mutex::new(started.progress()),
        state: Exclusive::new(State::Running(started)),
        most: client.most,
        interrupt: client.interrupt.clone(),
    }));
    Ok(())
}

/// Stores the progress in `progress`, at most 0.2 s old while the transfer runs. Does not wait.
#[unsafe(no_mangle)]
pub extern "C" fn nicstripe_transfer_progress(
    transfer: Option<&nicstripe_transfer>,
    progress: Option<&mut MaybeUninit<nicstripe_progress>>,
    error: ErrorOut<'_>,
) -> i32 {
    call(error, || {
        let (transfer, into) = (
            required(transfer, "transfer")?,
            required(progress, "progress")?,
        );
        transfer.state.process().check()?;
        // A thread that waits keeps the progress up to date.
        if let Ok(state) = transfer.state.lock()
            && let Some(State::Running(running)) = &*state
        {
            transfer.keep(running.progress());
        }
        let now = transfer.progress.lock();
        into.write(shown(&now.unwrap_or_else(PoisonError::into_inner)));
        Ok(())
    })
}

/// Waits until the transfer ends, at most `timeout_ms`; a negative one stands for the client's limit,
/// and 0 does not wait. On success everything is durable, and the report is in `report`, which may be
/// NULL. NICSTRIPE_TIMED_OUT and NICSTRIPE_CANCELLED by nicstripe_client_interrupt end the wait and
/// not the transfer: wait again, or cancel it.
#[unsafe(no_mangle)]
pub extern "C" fn nicstripe_transfer_wait(
    transfer: Option<&nicstripe_transfer>,
    timeout_ms: i64,
    report: Option<&mut MaybeUninit<nicstripe_report>>,
    error: ErrorOut<'_>,
) -> i32 {
    call(error, || {
        let transfer = required(transfer, "transfer")?;
        let most = u64::try_from(timeout_ms).map(Duration::from_millis).ok();
        transfer.state.with(|state| {
            if let State::Running(running) = state {
                transfer.wait(running, most.or(transfer.most))?;
                state.end()?;
            }
            match state {
                State::Ended(ended, _) => {
                    report.map(|into| into.write(nicstripe_report::of(ended)))
                }
                _ => return Err(Failure::ended()),
            };
            Ok(())
        })
    })
}

/// Stores name and message of an entry of a tree that failed; `index` counts from 0, and name and text
/// become NULL if there is no such failure. Of the failures in the report, the first 1000 are kept.
/// The transfer owns the texts, which are UTF-8 and escaped. Call after the transfer has ended.
#[unsafe(no_mangle)]
pub extern "C" fn nicstripe_transfer_failure(
    transfer: Option<&nicstripe_transfer>,
    index: usize,
    name: Option<&mut MaybeUninit<*const c_char>>,
    text: Option<&mut MaybeUninit<*const c_char>>,
    error: ErrorOut<'_>,
) -> i32 {
    call(error, || {
        let name = required(name, "name")?.write(std::ptr::null());
        let text = required(text, "text")?.write(std::ptr::null());
        required(transfer, "transfer")?.state.with(|state| {
            if let State::Ended(_, failures) = state
                && let Some((failed, why)) = failures.get(index)
            {
                (*name, *text) = (failed.as_ptr(), why.as_ptr());
            }
            Ok(())
        })
    })
}

/// Interrupts the transfer without waiting for its end. Data that has arrived becomes durable, so that
/// repeating the call that began it resumes. A waiting thread gets NICSTRIPE_CANCELLED.
#[unsafe(no_mangle)]
pub extern "C" fn nicstripe_transfer_cancel(
    transfer: Option<&nicstripe_transfer>,
    error: ErrorOut<'_>,
) -> i32 {
    call(error, || {
        let transfer = required(transfer, "transfer")?;
        transfer.state.process().check()?;
        transfer.cancel.cancel();
        Ok(())
    })
}

/// Frees a transfer; NULL is allowed. One that runs is interrupted. No thread may be in a call with
/// it.
#[unsafe(no_mangle)]
pub extern "C" fn nicstripe_transfer_free(transfer: Option<Box<nicstripe_transfer>>) {
    if let Some(transfer) = transfer {
        quietly(|| transfer.state.process().free(transfer));
    }
}

impl nicstripe_transfer {
    fn keep(&self, progress: Progress) {
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner) = progress;
    }

    /// Waits until there are no more events. Looks for interruptions between them.
    fn wait(&self, running: &mut Transfer, most: Option<Duration>) -> Result<(), Failure> {
        let begun = Instant::now();
        loop {
            let left = most.map(|most| most.saturating_sub(begun.elapsed()));
            let event = running.next_event_within(left.unwrap_or(SLICE).min(SLICE));
            self.keep(running.progress());
            match (event, most) {
                (Ok(None), _) => return Ok(()),
                _ if self.interrupt.is_cancelled() => {
                    return Err(Error::Cancelled { resumable: true }.into());
                }
                // Events that have arrived are not waited for: the last of them may be the end.
                (Err(_), Some(after)) if begun.elapsed() >= after => {
                    return Err(Error::TimedOut { after }.into());
                }
                (Ok(Some(_)), Some(after)) if !after.is_zero() && begun.elapsed() >= after => {
                    return Err(Error::TimedOut { after }.into());
                }
                _ => {}
            }
        }
    }
}

/// Time in which a waiting thread notices an interruption.
const SLICE: Duration = Duration::from_millis(100);

impl State {
    /// Takes the result of a transfer that has ended.
    fn end(&mut self) -> Result<(), Failure> {
        if let Self::Running(ended) = std::mem::replace(self, Self::Failed) {
            let mut report = ended.finish()?;
            let failures = report.tree.as_mut().map(failures).unwrap_or_default();
            *self = Self::Ended(Box::new(report), failures);
        }
        Ok(())
    }
}

fn failures(tree: &mut TreeReport) -> Vec<(OwnedText, OwnedText)> {
    let failures = std::mem::take(&mut tree.failures).into_iter();
    failures
        .map(|entry| (OwnedText::new(entry.name), OwnedText::new(entry.text)))
        .collect()
}

fn shown(progress: &Progress) -> nicstripe_progress {
    let files = progress.files.unwrap_or_default();
    let up = progress.links.iter();
    let up = up.filter(|link| link.state == library::LinkState::Up);
    nicstripe_progress {
        bytes: progress.bytes,
        size: progress.size,
        resumed: progress.resumed,
        bits_per_second: progress.rate.0,
        files_done: files.done,
        files_found: files.found,
        links_up: up.count().try_into().unwrap_or(u32::MAX),
        is_open: progress.open,
    }
}
