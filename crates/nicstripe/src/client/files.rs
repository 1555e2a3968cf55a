//! Requests for local files: uploads and downloads.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::PathBuf};

use nicstripe_proto::{
    Name,
    message::{Feature, PutOptions},
};

use super::request::{Attempt, Opening, Request, download_of, receiving};
use crate::{
    file::{Opened, ReadOptions, options::CopyOptions},
    report::error::Error,
    session::kind::{
        Kind, Upload,
        file::{FileSource, LocalFile, LocalTarget, Stored},
        pipe,
    },
};

/// Request to upload a local file. In a dry run (`trial`), the daemon discards the file.
#[derive(Debug)]
pub(super) struct FileUpload {
    pub(super) source: PathBuf,
    pub(super) name: Option<Name>,
    pub(super) options: CopyOptions,
    pub(super) trial: bool,
}

impl Request for FileUpload {
    fn open<'a>(&'a mut self, attempt: Attempt<'a>) -> Opening<'a> {
        Box::pin(async move {
            let own_name = Name::new(self.source.file_name().map(|name| name.as_bytes().to_vec()))?;
            let into = self.name.is_some().then(|| own_name.clone());
            let name = self.name.clone().unwrap_or(own_name);
            let options = PutOptions {
                trial: self.trial,
                ..receiving(self.options, attempt.restart)
            };
            let (path, reading) = (
                self.source.clone(),
                ReadOptions {
                    allow_changing: self.options.allow_changing,
                    compress: self.options.compresses(),
                    range: None,
                },
            );
            let pool = &attempt.inner.pool;
            let opened = pool.call(move || Opened::open(&path, reading)).await;
            let upload = |options| Upload {
                name,
                into,
                options,
                attributes: None,
            };
            let kind: Box<dyn Kind> = match opened.ok_or_else(io_threads_gone)?? {
                Opened::Sized(file) => {
                    Box::new(FileSource::new(*file, Some(Stored::Named(upload(options)))))
                }
                // The file's time and mode are meaningless: the kernel creates such a file on
                // access.
                Opened::Unsized(file) => {
                    let options = PutOptions {
                        preserve: false,
                        delta: false,
                        in_place: false,
                        ..options
                    };
                    Box::new(pipe::source(file, upload(options)))
                }
            };
            Ok(kind)
        })
    }

    fn needed(&self) -> Option<Feature> {
        self.options.only_if.map(|_| Feature::Tags)
    }
}

/// Request to download a file to a local path. In a dry run (`trial`), the client discards the
/// file.
#[derive(Debug)]
pub(super) struct FileDownload {
    pub(super) name: Name,
    pub(super) target: PathBuf,
    pub(super) options: CopyOptions,
    pub(super) trial: bool,
}

impl Request for FileDownload {
    fn open<'a>(&'a mut self, attempt: Attempt<'a>) -> Opening<'a> {
        Box::pin(async move {
            let own_name = OsStr::from_bytes(self.name.file_name());
            let means_directory = self.target.as_os_str().as_bytes().ends_with(b"/");
            let path = if means_directory || self.target.is_dir() {
                self.target.join(own_name)
            } else {
                self.target.clone()
            };
            let limit_bps = attempt.inner.limit_bps();
            Ok(Box::new(LocalFile {
                download: download_of(self.name.clone(), limit_bps, self.options, None),
                target: LocalTarget {
                    path,
                    options: PutOptions {
                        trial: self.trial,
                        ..receiving(self.options, attempt.restart)
                    },
                    peer_key: attempt.peer_key,
                },
            }) as _)
        })
    }
}

fn io_threads_gone() -> Error {
    Error::failed("open a file", "the I/O threads have ended")
}
