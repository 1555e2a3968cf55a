//! Transfers that a client requests, and the session commands that start them.

use std::{
    collections::VecDeque,
    fmt, io,
    os::unix::ffi::OsStrExt,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use nicstripe_proto::{
    ChunkSize, Name, Offer, SourceIdentity, TransferId,
    message::{EntryRef, Get, GetRange, OfferKind, Put, PutOptions},
    tree::EntryId,
};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
};

use super::{
    feed::{Feed, Read, Written},
    sessions::{Inner, LiveSession},
    trees,
};
use crate::{
    file::{IoPool, Opened, ReadOptions, options::CopyOptions},
    report::error::Error,
    session::{
        Command, GetInto, LocalTarget, Outcome, PutFrom, SharedProgress, StandaloneFiles, Tally,
        Waiter, offer_of,
    },
    tree::TreeOptions,
};

#[derive(Debug)]
pub(super) enum TransferKind {
    /// Upload of a local file. With `trial` (dry run) the daemon discards it.
    Put {
        source: PathBuf,
        name: Option<Name>,
        options: CopyOptions,
        trial: bool,
    },
    /// Download of a file to a local path. With `trial` (dry run) the client discards it.
    Get {
        name: Name,
        target: PathBuf,
        options: CopyOptions,
        trial: bool,
    },
    /// Upload or download of files and directories.
    Tree(TreeJob, TreeOptions),
    /// Transfer from or to a pipe, of unknown length. `None` once started, since a pipe cannot be
    /// read again.
    Pipe(Mutex<Option<PipeJob>>, CopyOptions),
    /// Upload or download of an object by the program's own tasks. `None` once started.
    Object(Mutex<Option<ObjectJob>>, CopyOptions),
}

#[derive(Debug, Clone)]
pub(super) enum TreeJob {
    Put {
        sources: Vec<PathBuf>,
        name: Option<Name>,
        as_name: bool,
    },
    Get {
        sources: Vec<(Option<Name>, bool)>,
        target: PathBuf,
        as_name: bool,
    },
}

/// Pipe to transfer, with the file's name at the daemon.
pub(super) enum PipeJob {
    Put {
        reader: Box<dyn io::Read + Send>,
        name: Name,
    },
    Get {
        name: Name,
        writer: Box<dyn io::Write + Send>,
    },
}

#[derive(Debug)]
pub(super) enum ObjectJob {
    Read {
        name: Name,
        range: Option<GetRange>,
        to: mpsc::Sender<Read>,
    },
    Write {
        name: Name,
        from: mpsc::Receiver<Written>,
    },
}

/// One attempt at a transfer.
pub(super) struct Attempt {
    pub(super) transfer: TransferId,
    pub(super) peer_key: [u8; 32],
    pub(super) limit_bps: Option<u64>,
    pub(super) standalone: StandaloneFiles,
    pub(super) waiter: Waiter,
}

impl TransferKind {
    pub(super) fn object(object: ObjectJob, options: CopyOptions) -> Self {
        Self::Object(Mutex::new(Some(object)), options)
    }

    /// Returns true for an object. Programs may transfer very many, so they get no report per link.
    pub(super) fn is_object(&self) -> bool {
        matches!(self, Self::Object(..))
    }

    pub(super) fn is_get(&self) -> bool {
        match self {
            Self::Get { .. } | Self::Tree(TreeJob::Get { .. }, _) => true,
            Self::Put { .. } | Self::Tree(TreeJob::Put { .. }, _) => false,
            // Irrelevant for objects, which get no report on interfaces.
            Self::Object(..) => false,
            Self::Pipe(pipe, _) => matches!(
                *pipe.lock().unwrap_or_else(PoisonError::into_inner),
                Some(PipeJob::Get { .. })
            ),
        }
    }

    /// Returns true if a failed attempt may be repeated: the source or target can be opened again.
    pub(super) fn can_be_tried_again(&self) -> bool {
        !matches!(self, Self::Pipe(..) | Self::Object(..))
    }

    /// Opens the local file of an upload. May take long, as on a network file system.
    pub(super) async fn open(&self, pool: &IoPool) -> Result<Option<Opened>, Error> {
        let Self::Put {
            source, options, ..
        } = self
        else {
            return Ok(None);
        };
        let (path, reading) = (
            source.clone(),
            ReadOptions {
                allow_changing: options.allow_changing,
                compress: options.compress,
                range: None,
            },
        );
        let opened = pool.call(move || Opened::open(&path, reading)).await;
        Ok(Some(opened.ok_or_else(io_threads_gone)??))
    }

    /// Returns the command for the session, and the channels between the session and the program's
    /// reader or writer. `opened` is the result of [`open`](Self::open).
    pub(super) fn command(
        &self,
        opened: Option<Opened>,
        restart: bool,
        attempt: Attempt,
    ) -> Result<(Command, Feed), Error> {
        let with = |options: CopyOptions| PutOptions {
            restart: options.restart || restart,
            ..options.into()
        };
        let command = match self {
            Self::Put {
                source: path,
                name,
                options,
                trial,
            } => {
                let own_name = Name::new(path.file_name().map(|name| name.as_bytes().to_vec()))?;
                let opened = opened.ok_or_else(io_threads_gone)?;
                let put = Put {
                    into: name.is_some().then(|| own_name.clone()),
                    name: name.clone().unwrap_or(own_name),
                    offer: match &opened {
                        Opened::Sized(source) => offer_of(attempt.transfer, source),
                        Opened::Unsized(_) => open_ended(attempt.transfer),
                    },
                    options: PutOptions {
                        trial: *trial,
                        ..with(*options)
                    },
                    entry: None,
                };
                let from = match opened {
                    Opened::Sized(source) => PutFrom::File {
                        source: Arc::from(source),
                        put: Box::new(put),
                    },
                    // The file's time and mode are meaningless: the kernel creates such a file on
                    // access.
                    Opened::Unsized(file) => {
                        let options = PutOptions {
                            preserve: false,
                            delta: false,
                            in_place: false,
                            ..put.options
                        };
                        PutFrom::Pipe {
                            reader: Box::new(file),
                            put: Box::new(Put { options, ..put }),
                        }
                    }
                };
                Command::Put {
                    transfer: attempt.transfer,
                    from,
                    waiter: attempt.waiter,
                }
            }
            Self::Get {
                name,
                target,
                options,
                trial,
            } => {
                let own_name = std::ffi::OsStr::from_bytes(name.file_name());
                let means_directory = target.as_os_str().as_bytes().ends_with(b"/");
                let path = if means_directory || target.is_dir() {
                    target.join(own_name)
                } else {
                    target.clone()
                };
                let target = LocalTarget {
                    path,
                    options: PutOptions {
                        trial: *trial,
                        ..with(*options)
                    },
                    peer_key: attempt.peer_key,
                };
                let get = get_of(
                    attempt.transfer,
                    name.clone(),
                    attempt.limit_bps,
                    *options,
                    None,
                );
                Command::Get {
                    transfer: attempt.transfer,
                    into: GetInto::File { get, target },
                    waiter: attempt.waiter,
                }
            }
            Self::Pipe(pipe, options) => {
                match pipe.lock().unwrap_or_else(PoisonError::into_inner).take() {
                    Some(PipeJob::Put { reader, name }) => {
                        let put = Box::new(Put {
                            name,
                            offer: open_ended(attempt.transfer),
                            options: with(*options),
                            into: None,
                            entry: None,
                        });
                        Command::Put {
                            transfer: attempt.transfer,
                            from: PutFrom::Pipe { reader, put },
                            waiter: attempt.waiter,
                        }
                    }
                    Some(PipeJob::Get { name, writer }) => {
                        let get = get_of(attempt.transfer, name, attempt.limit_bps, *options, None);
                        Command::Get {
                            transfer: attempt.transfer,
                            into: GetInto::Pipe { get, writer },
                            waiter: attempt.waiter,
                        }
                    }
                    None => return Err(Error::Cancelled { resumable: false }),
                }
            }
            Self::Tree(
                TreeJob::Put {
                    sources,
                    name,
                    as_name,
                },
                options,
            ) => trees::put(attempt, sources, name.clone(), *as_name, options),
            Self::Tree(
                TreeJob::Get {
                    sources,
                    target,
                    as_name,
                },
                options,
            ) => trees::get(attempt, sources, target, *as_name, options)?,
            Self::Object(object, options) => {
                match object.lock().unwrap_or_else(PoisonError::into_inner).take() {
                    Some(ObjectJob::Write { name, from }) => {
                        let put = Box::new(Put {
                            name,
                            offer: open_ended(attempt.transfer),
                            options: with(*options),
                            into: None,
                            entry: None,
                        });
                        let (chunks, taken) = oneshot::channel();
                        let command = Command::Put {
                            transfer: attempt.transfer,
                            from: PutFrom::Writer { chunks, put },
                            waiter: attempt.waiter,
                        };
                        return Ok((
                            command,
                            Feed::Writer {
                                from,
                                chunks: taken,
                            },
                        ));
                    }
                    Some(ObjectJob::Read { name, range, to }) => {
                        let (reader, from) = mpsc::unbounded_channel();
                        let get =
                            get_of(attempt.transfer, name, attempt.limit_bps, *options, range);
                        let command = Command::Get {
                            transfer: attempt.transfer,
                            into: GetInto::Reader { get, reader },
                            waiter: attempt.waiter,
                        };
                        return Ok((command, Feed::Reader { from, to }));
                    }
                    None => return Err(Error::Cancelled { resumable: false }),
                }
            }
        };
        Ok((command, Feed::None))
    }

    /// Transfers the standalone files of a tree, at most [`MOST_ALONE`] at once, until the tree's
    /// result arrives. Returns that result.
    pub(super) async fn move_entries(
        &self,
        inner: &Inner,
        session: &LiveSession,
        restart: bool,
        tree: TransferId,
        mut entries: mpsc::UnboundedReceiver<(EntryId, u64)>,
        mut answer: oneshot::Receiver<Result<(Outcome, Tally), Error>>,
    ) -> Result<Result<(Outcome, Tally), Error>, oneshot::error::RecvError> {
        let Self::Tree(job, options) = self else {
            return answer.await;
        };
        let allow_changing = options.files.allow_changing;
        let options = PutOptions {
            restart: options.files.restart || restart,
            ..options.files.into()
        };
        let mut waiting = VecDeque::new();
        let mut moving = JoinSet::new();
        loop {
            while moving.len() < MOST_ALONE
                && let Some(id) = waiting.pop_front()
            {
                let (reply, end) = oneshot::channel();
                let waiter = Waiter {
                    reply,
                    events: None,
                    progress: SharedProgress::default(),
                };
                let mut numbers = inner.numbers.lock().await;
                let (transfer, entry) = (numbers.next(), EntryRef { tree, id });
                let command = match job {
                    TreeJob::Put { .. } => Command::Put {
                        transfer,
                        from: PutFrom::Entry { entry, options },
                        waiter,
                    },
                    TreeJob::Get { .. } => Command::Get {
                        transfer,
                        into: GetInto::Entry {
                            entry,
                            options,
                            allow_changing,
                        },
                        waiter,
                    },
                };
                session.handle.command(command).await;
                drop(numbers);
                // The session reports the result to the tree itself.
                moving.spawn(async { drop(end.await) });
            }
            tokio::select! {
                biased;
                result = &mut answer => return result,
                Some((id, _)) = entries.recv() => waiting.push_back(id),
                Some(_) = moving.join_next() => {}
            }
        }
    }
}

fn open_ended(transfer: TransferId) -> Offer {
    Offer {
        transfer,
        source: SourceIdentity::default(),
        chunk_log2: ChunkSize::DEFAULT.log2(),
        mode: 0o666,
        kind: Some(OfferKind::Pipe),
        data: None,
    }
}

fn io_threads_gone() -> Error {
    Error::System {
        what: "open a file",
        source: io::Error::other("the I/O threads have ended"),
    }
}

/// Number of standalone files of a tree transferred concurrently, so that the fsync of one does not
/// idle the links.
const MOST_ALONE: usize = 8;

impl fmt::Debug for PipeJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Put { name, .. } => f
                .debug_struct("Put")
                .field("name", name)
                .finish_non_exhaustive(),
            Self::Get { name, .. } => f
                .debug_struct("Get")
                .field("name", name)
                .finish_non_exhaustive(),
        }
    }
}

/// Returns the request for a file, or for a range of it.
fn get_of(
    transfer: TransferId,
    name: Name,
    limit_bps: Option<u64>,
    options: CopyOptions,
    range: Option<GetRange>,
) -> Box<Get> {
    let CopyOptions {
        compress,
        allow_changing,
        ..
    } = options;
    Box::new(Get {
        transfer,
        name,
        limit_bps,
        entry: None,
        compress,
        allow_changing,
        range,
    })
}
