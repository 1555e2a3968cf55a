//! Requests of a program for transfers. Each attempt to transfer opens the local source or sink.

use std::{pin::Pin, sync::Arc};

use nicstripe_proto::{
    Name, TransferId,
    message::{EntryRef, Feature, Get, GetRange, PutOptions},
};
use tokio::sync::{Mutex, mpsc};

use super::sessions::Inner;
use crate::{
    file::options::CopyOptions,
    report::error::Error,
    session::kind::{
        Kind,
        object::{self, Read},
        stream::StartedOnce,
        tree::StandaloneFiles,
    },
};

/// Request of a program for one transfer.
pub(super) trait Request: Send {
    /// Opens the local source or sink for an attempt. May take long, for example on a network file
    /// system.
    fn open<'a>(&'a mut self, attempt: Attempt<'a>) -> Opening<'a>;

    /// Returns true if an attempt may be repeated after the session was lost, because the local
    /// source or sink can be opened again.
    fn can_be_tried_again(&self) -> bool {
        true
    }

    /// Returns true if an attempt may be repeated from zero, because nothing that was received has
    /// been passed on.
    fn can_start_over(&self) -> bool {
        self.can_be_tried_again()
    }

    /// Returns true if the data of an interrupted attempt are of use to a later call.
    fn is_resumable(&self) -> bool {
        self.can_be_tried_again()
    }

    /// Returns true for an object. A program may transfer many objects, so they get no report per
    /// link.
    fn is_object(&self) -> bool {
        false
    }

    /// Returns the feature that the daemon must have; `None` if any daemon will do.
    fn needed(&self) -> Option<Feature> {
        None
    }

    /// Returns the source or sink of a standalone file that the tree has announced. `restart` is
    /// that of the attempt.
    fn entry(&mut self, _entry: EntryRef, _restart: bool) -> Option<Box<dyn Kind>> {
        None
    }
}

/// Future of the local source or sink, returned by [`Request::open`].
pub(super) type Opening<'a> =
    Pin<Box<dyn Future<Output = Result<Box<dyn Kind>, Error>> + Send + 'a>>;

/// One attempt at a transfer.
pub(super) struct Attempt<'a> {
    pub(super) inner: &'a Inner,
    pub(super) peer_key: [u8; 32],
    /// True if the receiver must discard the data that it already has.
    pub(super) restart: bool,
    /// Channel on which a tree announces its standalone files.
    pub(super) standalone: StandaloneFiles,
}

/// Request whose source or sink can be started only once: a pipe, or an object that the program's
/// own tasks read or write. An attempt in which it was not started is repeated.
pub(super) struct Once<E> {
    end: E,
    is_object: bool,
    needed: Option<Feature>,
}

impl<E: StartedOnce> Once<E> {
    pub(super) fn pipe(end: E) -> Self {
        Self {
            end,
            is_object: false,
            needed: None,
        }
    }

    pub(super) fn object(end: E) -> Self {
        Self {
            is_object: true,
            ..Self::pipe(end)
        }
    }

    pub(super) fn needing(self, needed: Option<Feature>) -> Self {
        Self { needed, ..self }
    }
}

impl<E: StartedOnce> Request for Once<E> {
    fn open<'a>(&'a mut self, _attempt: Attempt<'a>) -> Opening<'a> {
        let end: Box<dyn Kind> = Box::new(self.end.again());
        Box::pin(std::future::ready(Ok(end)))
    }

    fn can_be_tried_again(&self) -> bool {
        self.end.is_unstarted()
    }

    fn is_resumable(&self) -> bool {
        false
    }

    fn is_object(&self) -> bool {
        self.is_object
    }

    fn needed(&self) -> Option<Feature> {
        self.needed
    }
}

/// Download of a file, or of a range of it, into the channel of a reader. An attempt after a lost
/// session continues after the chunks that the reader was given.
#[derive(Debug)]
pub(super) struct ObjectDownload {
    download: Get,
    to: mpsc::Sender<Read>,
    /// Number of bytes that the reader was given. An attempt holds the lock until it gives no more.
    given: Arc<Mutex<u64>>,
}

impl ObjectDownload {
    pub(super) fn new(download: Get, to: mpsc::Sender<Read>) -> Self {
        Self {
            download,
            to,
            given: Arc::default(),
        }
    }
}

impl Request for ObjectDownload {
    fn open<'a>(&'a mut self, _attempt: Attempt<'a>) -> Opening<'a> {
        Box::pin(async {
            let given = self.given.clone().lock_owned().await;
            let mut download = self.download.clone();
            if *given > 0 {
                let whole = GetRange {
                    offset: 0,
                    len: u64::MAX,
                };
                let range = download.range.unwrap_or(whole);
                download.range = Some(GetRange {
                    offset: range.offset.saturating_add(*given),
                    len: range.len.saturating_sub(*given),
                });
            }
            let sink = object::sink(self.to.clone(), given, download);
            Ok(Box::new(sink) as _)
        })
    }

    fn can_start_over(&self) -> bool {
        false
    }

    fn is_object(&self) -> bool {
        true
    }
}

pub(super) fn download_of(
    name: Name,
    limit_bps: Option<u64>,
    options: CopyOptions,
    range: Option<GetRange>,
) -> Get {
    Get {
        transfer: TransferId(0),
        name,
        limit_bps,
        entry: None,
        compress: options.compresses(),
        allow_changing: options.allow_changing,
        range,
    }
}

/// Returns the options that the receiver applies to a file.
pub(super) fn receiving(options: CopyOptions, restart: bool) -> PutOptions {
    PutOptions {
        restart: options.restart || restart,
        ..options.on_wire()
    }
}
