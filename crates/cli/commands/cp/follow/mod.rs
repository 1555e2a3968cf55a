//! Copy of a file that another program is still writing.
//!
//! Its pieces of 1 MiB are sent as they appear, some at a time, into a file of slices; a mark of each run of
//! them is written once it is durable, and holds their values. The last piece is sent when the file has
//! [ended](ending). Then the file is read again: it is committed only if every piece has still the value
//! with which it was sent, so a file that was rewritten behind the position is an error.
//!
//! A rerun finds the marks. As with [`shard`](super::shard), they are removed before the file gets its name,
//! so that a mark without its pieces is never believed.

mod ending;

use std::{
    collections::VecDeque,
    fs::{File, Metadata},
    future::poll_fn,
    io,
    ops::Range,
    os::unix::fs::{FileExt as _, MetadataExt as _},
    path::PathBuf,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use nicstripe::{
    BitRate, Client, Digest, Error, Event, LinkProgress, Name, ObjectWriter, Progress,
    RenameOptions, Report, Stat, escaped,
    receipts::{ChainingValue, Outline, PIECE, outline_of, value_of},
};
use tokio::{
    io::AsyncWrite as _,
    sync::Mutex,
    task::{JoinHandle, JoinSet, spawn_blocking},
    time::sleep,
};

use self::ending::{End, Growth};
use super::{
    copy_kind::CopyKind,
    error,
    plan::Plan,
    shard::{Hold, PART, Store, WHOLE},
    show::Show,
    single::name_of_put,
    slices::{self, Version, beside},
    view::Shape,
    watch::{Running, Tell},
};
use crate::{
    failure::{Failure, Fault, exit::Exit},
    process::signals::Signals,
    text::{quantity::Size, shown},
};

/// Sends the file of a put while it grows, until it has ended.
pub(super) async fn run(
    client: &Client,
    plan: &Plan,
    idle: Option<Duration>,
    show: &mut Show,
    signals: &mut Signals,
) -> Result<Report, Failure> {
    let CopyKind::Put { source, .. } = &plan.kind else {
        return Err(error::follow().into());
    };
    let (to, found) = signals.unless_stopped(name_of_put(client, plan)).await?;
    let follow = Follow {
        client: client.clone(),
        store: Store::AtDaemon {
            client: client.clone(),
            dir: beside(Some(&to), dir_name(&to).as_bytes())?,
        },
        from: source.clone(),
        to,
        found: found.map(|found| (found.size, found.modified)),
        replace: plan.options.replace,
        restart: plan.options.restart,
        preserve: plan.options.preserve,
        speaker: Mutex::new(()),
    };
    if follow.found.is_some() && !follow.replace {
        let text = format!("cannot replace \"{}\": it exists", follow.to);
        return Err(Fault::new(Exit::Files, text).into());
    }
    // Of unknown size.
    show.begin(escaped(follow.to.file_name()), Shape::Pipe);
    let growth = Growth::open(source, idle).map_err(Failure::opening(source))?;
    if growth.sees_closings_only() {
        show.tell(format_args!(
            "cannot tell whether a program has {} open: waiting for one to close it (--idle TIME ends without)",
            shown(source)
        ));
    }
    let running = Running::start(|stop, tell: Tell| async move {
        tokio::select! {
            sent = Arc::new(follow).send(growth, tell) => sent,
            () = stop.cancelled() => Err(Error::Cancelled { resumable: true }.into()),
        }
    });
    running.finish(show, signals).await
}

/// Copy of a growing file.
struct Follow {
    client: Client,
    /// Directory with the file of slices and the marks.
    store: Store,
    from: PathBuf,
    to: Name,
    /// Size and time of what the target has under the name.
    found: Option<(u64, SystemTime)>,
    replace: bool,
    restart: bool,
    preserve: bool,
    /// Taken by the run of pieces that reports its events.
    speaker: Mutex<()>,
}

/// State of the target.
#[derive(Default)]
struct Sent {
    /// Value of each piece that was sent or is being sent.
    values: Vec<Option<ChainingValue>>,
    bytes: u64,
    /// Bytes that an earlier copy has sent.
    resumed: u64,
    report: Report,
}

/// File that has ended, and is read again.
struct Ended {
    end: End,
    version: Version,
    outline: JoinHandle<io::Result<Outline>>,
}

/// Run of pieces that is durable.
struct Run {
    range: Range<u64>,
    values: Vec<ChainingValue>,
    report: Report,
}

impl Ended {
    /// Begins to read a file that has ended.
    fn of(end: End, growth: &mut Growth) -> io::Result<Self> {
        let version = Version::of(&growth.look()?)?;
        let (file, size) = (growth.file.clone(), version.size);
        Ok(Self {
            end,
            version,
            outline: spawn_blocking(move || outline_of(&file, size)),
        })
    }
}

impl Sent {
    fn of(values: Vec<ChainingValue>) -> Self {
        let bytes = values.len() as u64 * PIECE;
        Self {
            values: values.into_iter().map(Some).collect(),
            bytes,
            resumed: bytes,
            report: Report::default(),
        }
    }

    /// Forgets the last piece of a file that was taken to have ended with this size. Returns the offset of
    /// the first byte that is not sent.
    fn go_on_from(&mut self, size: u64) -> u64 {
        self.values
            .truncate((size.saturating_sub(1) / PIECE) as usize);
        self.bytes = self.values.len() as u64 * PIECE;
        self.bytes
    }

    fn on_run(&mut self, run: Run) {
        let first = (run.range.start / PIECE) as usize;
        for (value, index) in run.values.into_iter().zip(first..) {
            self.values[index] = Some(value);
        }
        self.bytes += run.range.end - run.range.start;
        self.report.add(run.report);
    }
}

/// Why nothing was sent, or not all of it.
enum Trouble {
    /// The sent data is of no use.
    Spoiled(Failure),
    /// A rerun continues.
    Failure(Failure),
}

impl<E: Into<Failure>> From<E> for Trouble {
    fn from(error: E) -> Self {
        Self::Failure(error.into())
    }
}

impl Follow {
    async fn send(self: Arc<Self>, growth: Growth, tell: Tell) -> Result<Report, Failure> {
        let hold = self.hold().await?;
        let sent = match self.send_held(growth, &tell).await {
            Ok(report) => Ok(report),
            Err(Trouble::Spoiled(failure)) => Err(failure),
            Err(Trouble::Failure(failure)) => return Err(failure),
        };
        hold.mark().await?;
        self.store.clear().await?;
        sent
    }

    /// Lets no other process send to the same name. Waits for the daemon to notice that one was killed.
    async fn hold(&self) -> Result<Hold, Failure> {
        let begun = Instant::now();
        loop {
            match self.store.hold(SENDER).await? {
                Some(hold) => return Ok(hold),
                None if begun.elapsed() < BUSY => sleep(BUSY_PAUSE).await,
                None => {
                    let text = format!("another process sends to \"{}\"", self.to);
                    return Err(Fault::new(Exit::Refused, text).into());
                }
            }
        }
    }

    async fn send_held(
        self: &Arc<Self>,
        mut growth: Growth,
        tell: &Tell,
    ) -> Result<Report, Trouble> {
        let begun = Instant::now();
        let opening = Failure::opening(&self.from);
        let found = growth.look().map_err(opening)?;
        let version = Version::of(&found).map_err(opening)?;
        let is_kept = |(size, modified): (u64, _)| version.is_kept_as(size, modified);
        let has_it = self.found.is_some_and(is_kept) && growth.end().map_err(opening)?.is_some();
        if has_it || self.is_whole(version).await? {
            let mut report = Report::default();
            (report.size, report.resumed_bytes) = (found.len(), found.len());
            if !has_it {
                self.name_whole().await?;
            }
            return Ok(report);
        }
        let mut sent = Sent::of(self.resume(&found).await?);
        let resumed = sent.resumed;
        if resumed > 0 {
            tell(Event::Started {
                size: found.len(),
                resumed,
            });
        }
        let digest = loop {
            let ended = self.send_all(&mut growth, &mut sent, tell).await?;
            if let Some(digest) = self.complete(&mut growth, ended, &mut sent).await? {
                break digest;
            }
        };
        self.name_whole().await?;
        let mut report = sent.report;
        (report.size, report.resumed_bytes) = (sent.bytes, resumed);
        report.digest = Some(digest);
        (report.elapsed, report.moving) = (begun.elapsed(), begun.elapsed());
        for link in &mut report.links {
            link.goodput = BitRate::from_bytes_over(link.bytes, report.elapsed);
        }
        Ok(report)
    }

    /// Sends the existing bytes and those that follow, until the file has ended.
    async fn send_all(
        self: &Arc<Self>,
        growth: &mut Growth,
        sent: &mut Sent,
        tell: &Tell,
    ) -> Result<Ended, Trouble> {
        let opening = Failure::opening(&self.from);
        let mut runs: JoinSet<Result<Run, Failure>> = JoinSet::new();
        let mut next = sent.values.len() as u64 * PIECE;
        let mut ended: Option<Ended> = None;
        // Size of a file that had ended, and grows again.
        let mut reopened: Option<u64> = None;
        let mut rate = Rate::default();
        loop {
            let size = growth.look().map_err(opening)?.len();
            if size < next {
                return Err(self.spoiled(size, SHORTER));
            }
            if let Some(of) = &ended
                && !growth.has_still(&of.end).map_err(opening)?
            {
                reopened = Some(of.version.size);
                // Whoever has opened it waits for the lease.
                ended = None;
            }
            if let Some(size) = reopened.filter(|_| runs.is_empty()) {
                next = sent.go_on_from(size);
                reopened = None;
            }
            // It is read again while the rest is sent.
            if ended.is_none()
                && reopened.is_none()
                && let Some(end) = growth.end().map_err(opening)?
            {
                ended = Some(Ended::of(end, growth).map_err(opening)?);
            }
            // Whether a piece is the last decides on its value.
            let (ready, whole) = match &ended {
                Some(ended) => (ended.version.size, Some(ended.version.size)),
                None => (size.saturating_sub(1) / PIECE * PIECE, None),
            };
            let is_due = |next: u64, running: usize| {
                next < ready && (running == 0 || ready - next >= ENOUGH || whole.is_some())
            };
            while runs.len() < AT_ONCE && reopened.is_none() && is_due(next, runs.len()) {
                let range = next..ready.min(next + LONGEST);
                next = range.end;
                let pieces = next.div_ceil(PIECE) as usize;
                sent.values.resize(pieces, None);
                let (of, file, tell) = (self.clone(), growth.file.clone(), tell.clone());
                runs.spawn(async move { of.send_run(&file, range, whole, &tell).await });
            }
            if runs.is_empty()
                && next >= ready
                && let Some(ended) = ended
            {
                return Ok(ended);
            }
            tokio::select! {
                Some(run) = runs.join_next() => {
                    match run? {
                        Ok(run) => sent.on_run(run),
                        Err(Failure::Source { source, .. })
                            if source.kind() == io::ErrorKind::UnexpectedEof =>
                        {
                            return Err(self.spoiled(next, SHORTER));
                        }
                        Err(failure) => return Err(failure.into()),
                    }
                }
                () = sleep(PAUSE) => {}
            }
            tell(rate.progress(sent));
        }
    }

    /// Sends pieces, and marks them as durable unless the last one is among them. `whole` is the size of
    /// the file that has ended.
    async fn send_run(
        &self,
        file: &Arc<File>,
        range: Range<u64>,
        whole: Option<u64>,
        tell: &Tell,
    ) -> Result<Run, Failure> {
        let mut tries = 0;
        let (values, report) = loop {
            match self.try_run(file, range.clone(), whole, tell).await {
                // The session was lost: the pieces are here.
                Err(Failure::Library(error))
                    if error.fail_code().is_none()
                        && error.is_retryable()
                        && tries < MOST_TRIES =>
                {
                    tries += 1;
                }
                sent => break sent?,
            }
        };
        if whole.is_none() {
            let lines = values.iter().map(|value| format!("{}\n", Digest(value.0)));
            let text: String = lines.collect();
            let mark = range.start.to_string();
            self.store.write(&mark, text).await?;
        }
        Ok(Run {
            range,
            values,
            report,
        })
    }

    async fn try_run(
        &self,
        file: &Arc<File>,
        range: Range<u64>,
        whole: Option<u64>,
        tell: &Tell,
    ) -> Result<(Vec<ChainingValue>, Report), Failure> {
        let options = slices::options_of(range.start, range.end);
        let mut writer = self.client.create(&self.store.name(PART)?, options);
        let speaking = self.speaker.try_lock();
        let tell = speaking.is_ok().then_some(tell);
        let mut values = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let (file, len) = (file.clone(), PIECE.min(range.end - at));
            let read = spawn_blocking(move || {
                let mut bytes = vec![0; len as usize];
                file.read_exact_at(&mut bytes, at)?;
                let value = value_of(whole.unwrap_or(u64::MAX), at / PIECE, &bytes);
                Ok::<_, io::Error>((bytes, value))
            });
            let read = read.await.map_err(io::Error::other).and_then(|read| read);
            let (bytes, value) = read.map_err(Failure::opening(&self.from))?;
            values.push(value);
            at += len;
            // If the transfer has ended, its result has the reason.
            if write(&mut writer, &bytes, tell).await.is_err() {
                break;
            }
        }
        let _ = shut_down(&mut writer, tell).await;
        Ok((values, writer.finish().await?))
    }

    /// Reads the file again, and gives the copy its time, its mode and the name of a whole one. Returns the
    /// digest; `None` if a program has begun to write again.
    async fn complete(
        &self,
        growth: &mut Growth,
        ended: Ended,
        sent: &mut Sent,
    ) -> Result<Option<Digest>, Trouble> {
        let opening = Failure::opening(&self.from);
        let Ended {
            end,
            version,
            outline,
        } = ended;
        let size = version.size;
        let read = outline.await.map_err(io::Error::other);
        let outline = read.and_then(|read| read).map_err(opening)?;
        let all = outline.values().iter().zip(0..);
        let mut wrong = all.filter(|(value, index)| sent.values[*index] != Some(**value));
        if let Some((_, index)) = wrong.next() {
            let at = index as u64 * PIECE;
            return Err(self.spoiled(at, "was rewritten"));
        }
        let (part, whole) = (self.store.name(PART)?, self.store.name(WHOLE)?);
        if size == 0 {
            let empty = self.client.create(&part, slices::options_of(0, 0));
            empty.finish().await?;
        }
        slices::end(&self.client, &part, version, self.preserve).await?;
        if !growth.has_still(&end).map_err(opening)? {
            sent.go_on_from(size);
            return Ok(None);
        }
        let options = RenameOptions::replacing();
        self.client.rename(&part, &whole, options).await?;
        Ok(Some(outline.digest()))
    }

    /// Gives the whole file its name. No mark is left then.
    async fn name_whole(&self) -> Result<(), Failure> {
        let found = self.store.list().await?;
        let marks = found.into_iter().map(|(file, _)| file);
        let marks: Vec<String> = marks.filter(|file| file != WHOLE).collect();
        self.store.remove(&marks).await?;
        let whole = self.store.name(WHOLE)?;
        Ok(slices::name(&self.client, &whole, &self.to, self.replace).await?)
    }

    /// Returns true if an earlier copy of this version needs only its name.
    async fn is_whole(&self, version: Version) -> Result<bool, Failure> {
        let found = slices::found(&self.client, &self.store.name(WHOLE)?).await?;
        let is_it = |found: Stat| version.is_kept_as(found.size, found.modified);
        Ok(found.is_some_and(is_it) && !self.restart)
    }

    /// Returns the values of the pieces that an earlier copy of the same file has sent. What is there of
    /// another is removed.
    async fn resume(&self, found: &Metadata) -> Result<Vec<ChainingValue>, Failure> {
        let source = source_of(found);
        let known = self.store.read(SOURCE, source.len() as u64 + 1).await?;
        if known.as_deref() == Some(source.as_bytes()) && !self.restart {
            let values = self.marked(found.len()).await?;
            let bytes = values.len() as u64 * PIECE;
            let part = slices::found(&self.client, &self.store.name(PART)?).await?;
            if part.is_some_and(|part| part.size.min(found.len()) >= bytes) {
                return Ok(values);
            }
        }
        self.store.clear().await?;
        self.store.write(SOURCE, source).await?;
        Ok(Vec::new())
    }

    /// Returns the values of the marked pieces of a file of `size` bytes, which bounds what a daemon can tell.
    async fn marked(&self, size: u64) -> Result<Vec<ChainingValue>, Failure> {
        let mut values = Vec::new();
        while values.len() as u64 * PIECE < size {
            let mark = (values.len() as u64 * PIECE).to_string();
            let Some(text) = self.store.read(&mark, LONGEST_MARK).await? else {
                break;
            };
            let lines = str::from_utf8(&text).unwrap_or_default().lines();
            let of_mark: Vec<_> = lines
                .map_while(|line| line.parse::<Digest>().ok())
                .collect();
            if of_mark.is_empty() {
                break;
            }
            values.extend(of_mark.into_iter().map(|value| ChainingValue(value.0)));
        }
        Ok(values)
    }

    fn spoiled(&self, at: u64, how: &str) -> Trouble {
        let (path, at) = (shown(&self.from), Size(at));
        let text = format!("{path} {how} at {at}: nothing is kept of it");
        Trouble::Spoiled(Fault::new(Exit::SourceChanged, text).into())
    }
}

/// Rate of what becomes durable.
#[derive(Default)]
struct Rate {
    /// Bytes at each time of the last seconds.
    known: VecDeque<(Instant, u64)>,
}

impl Rate {
    fn progress(&mut self, sent: &Sent) -> Event {
        let now = Instant::now();
        self.known.push_back((now, sent.bytes));
        while self.known.len() > 2 && self.known.front().is_some_and(|(at, _)| now - *at > OVER) {
            self.known.pop_front();
        }
        let mut progress = Progress::default();
        (progress.bytes, progress.resumed) = (sent.bytes, sent.resumed);
        if let Some((at, bytes)) = self.known.front() {
            let more = sent.bytes.saturating_sub(*bytes);
            progress.rate = BitRate::from_bytes_over(more, now - *at);
        }
        for link in &sent.report.links {
            let mut of_link = LinkProgress::new(link.link.clone());
            (of_link.bytes, of_link.state) = (link.bytes, link.state.clone());
            progress.links.push(of_link);
        }
        Event::Progress(progress)
    }
}

/// Writes bytes, and reports the events of the transfer meanwhile.
async fn write(writer: &mut ObjectWriter, mut bytes: &[u8], tell: Option<&Tell>) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = poll_fn(|cx| {
            hear(writer, cx, tell);
            Pin::new(&mut *writer).poll_write(cx, bytes)
        });
        let written = written.await?;
        bytes = &bytes[written..];
    }
    Ok(())
}

async fn shut_down(writer: &mut ObjectWriter, tell: Option<&Tell>) -> io::Result<()> {
    poll_fn(|cx| {
        hear(writer, cx, tell);
        Pin::new(&mut *writer).poll_shutdown(cx)
    })
    .await
}

/// Tells what concerns the links.
fn hear(writer: &mut ObjectWriter, cx: &mut Context<'_>, tell: Option<&Tell>) {
    while let Poll::Ready(Some(event)) = pin!(writer.next_event()).poll(cx) {
        let is_of_transfer = matches!(event, Event::Progress(_) | Event::Started { .. });
        if let (Some(tell), false) = (tell, is_of_transfer) {
            tell(event);
        }
    }
}

/// Returns the name of the directory for the copy to a name, which is next to it.
fn dir_name(to: &Name) -> String {
    let word = &blake3::hash(to.to_string().as_bytes()).to_hex()[..16];
    format!(".nicstripe-{word}.follow")
}

/// Returns what distinguishes the file from another one that has its name later.
fn source_of(found: &Metadata) -> String {
    let made = found.created().ok();
    let made = made.and_then(|made| made.duration_since(UNIX_EPOCH).ok());
    format!("{} {}\n", found.ino(), made.unwrap_or_default().as_nanos())
}

/// Runs of pieces that are sent at a time: enough to fill the links while others are made durable.
const AT_ONCE: usize = 3;

/// Bytes that make another run worth its round trips while one is under way, and most bytes of a run.
const ENOUGH: u64 = 2 << 20;
const LONGEST: u64 = 32 << 20;

/// Time between two looks at the file.
const PAUSE: Duration = Duration::from_millis(20);

/// Time over which a rate is reported.
const OVER: Duration = Duration::from_secs(2);

/// Time for which a name that another process has is waited for, and between two looks.
const BUSY: Duration = Duration::from_secs(20);
const BUSY_PAUSE: Duration = Duration::from_millis(500);

/// How often a run is resent after a lost session.
const MOST_TRIES: u32 = 5;

/// Bytes of the longest mark: a line of 64 digits for each piece.
const LONGEST_MARK: u64 = LONGEST / PIECE * 65;

/// Files of the directory next to the file of slices: what tells the source from another, and one that the
/// process has that sends. A mark is named by the offset of its first piece.
const SOURCE: &str = "source";
const SENDER: &str = "sender";

/// Outcome of a file that only may grow.
const SHORTER: &str = "became shorter";
