//! Small files, which requests and answers carry.

use std::sync::Arc;

use nicstripe_proto::{
    ETag, FailCode, Name,
    message::{AnswerKind, Carried, GetRange, MOST_CARRIED, Small, Write},
};

use super::{files::io_threads_gone, served_peer::ServedPeer};
use crate::{
    file::{FileError, OF_SOURCE, OF_TARGET, ReadOptions},
    session::SessionHandle,
};

impl ServedPeer {
    /// Stores a small file durably under its name.
    pub(super) async fn write(
        self: Arc<Self>,
        write: Write,
        session: SessionHandle,
    ) -> Result<AnswerKind, FileError> {
        self.check_writable("receive", &write.put.name)?;
        let _lease = self.lease_files(OF_TARGET, &session).await?;
        let write = Arc::new(write);
        let attempt = || {
            let (peer, write) = (self.clone(), write.clone());
            async move {
                let written = peer.pool().call(move || peer.write_now(&write)).await;
                written.unwrap_or_else(|| Err(io_threads_gone("the target")))
            }
        };
        let etag = self.once_free(&session, attempt).await?;
        Ok(AnswerKind::Written { etag })
    }

    fn write_now(&self, write: &Write) -> Result<Option<ETag>, FileError> {
        let Write { put, content } = write;
        if !content.is_intact() {
            let why = "its content differs from its digest";
            return Err(FileError::refused("receive", &put.name, why).with_code(FailCode::Digest));
        }
        let (target, _) = self.open_target_now(put)?;
        target.write_all_at(&content.bytes, 0)?;
        target.commit(Some(content.digest))
    }

    /// Reads a small file or range. The answer has no content if it takes a transfer.
    pub(super) async fn read(
        self: Arc<Self>,
        name: Name,
        range: Option<GetRange>,
        session: SessionHandle,
    ) -> Result<AnswerKind, FileError> {
        self.check_readable("open", &name)?;
        let _lease = self.lease_files(OF_SOURCE, &session).await?;
        let (peer, pool) = (self.clone(), self.pool());
        let read = pool.call(move || peer.read_now(&name, range)).await;
        let file = read.unwrap_or_else(|| Err(io_threads_gone("a file")))?;
        let file = file.map(Box::new);
        Ok(AnswerKind::Content { file })
    }

    fn read_now(&self, name: &Name, range: Option<GetRange>) -> Result<Option<Small>, FileError> {
        // The holes of a range are not looked for.
        let whole = GetRange {
            offset: 0,
            len: u64::MAX,
        };
        let options = ReadOptions {
            range: Some(range.unwrap_or(whole)),
            ..ReadOptions::default()
        };
        let source = self.served.open_source(name, options)?;
        let len = source.identity.size;
        let stat = source.object().filter(|_| len <= MOST_CARRIED as u64);
        let Some(stat) = stat else { return Ok(None) };
        let mut bytes = vec![0; len as usize];
        source.read_exact_at(&mut bytes, 0)?;
        source.check_unchanged()?;
        let content = Carried::new(bytes);
        Ok(Some(Small { stat, content }))
    }
}
