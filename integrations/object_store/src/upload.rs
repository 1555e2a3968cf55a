//! Uploads in parts, which are written in their order as they come.

use async_trait::async_trait;
use futures_util::FutureExt as _;
use nicstripe::{Error, ObjectWriter, Report};
use tokio::{
    io::AsyncWriteExt as _,
    sync::{mpsc, oneshot},
    task::JoinHandle,
};

use super::{
    failure::{generic, told},
    object::e_tag,
    object_store::{MultipartUpload, PutPayload, PutResult, Result, UploadPart, path::Path},
    put_result,
};

/// Upload of one object. Its parts form one stream in the order of
/// [`put_part`](MultipartUpload::put_part), whatever order their futures are awaited in.
#[derive(Debug)]
pub(crate) struct Upload {
    path: Path,
    /// Items for the task that writes them; `None` once the upload is complete or aborted.
    items: Option<mpsc::UnboundedSender<Item>>,
    writing: Option<JoinHandle<Result<Report, Error>>>,
}

#[derive(Debug)]
enum Item {
    Part {
        payload: PutPayload,
        written: oneshot::Sender<()>,
    },
    /// The object is complete. Without it nothing is committed.
    End,
}

impl Upload {
    pub(crate) fn new(path: Path, writer: ObjectWriter) -> Self {
        // As long as the caller lets parts wait, which their futures limit.
        let (items, received) = mpsc::unbounded_channel();
        Self {
            path,
            items: Some(items),
            writing: Some(tokio::spawn(write(writer, received))),
        }
    }

    /// Waits for the end of the task. An upload that has ended fails.
    async fn end(&mut self) -> Result<Report> {
        let ended = || generic("the upload has ended");
        let writing = self.writing.take().ok_or_else(ended)?;
        let report = writing.await.map_err(generic)?;
        report.map_err(|error| told(error, &self.path))
    }
}

/// Writes parts until the object is complete. Discards it if their sender is gone before.
async fn write(
    mut writer: ObjectWriter,
    mut items: mpsc::UnboundedReceiver<Item>,
) -> Result<Report, Error> {
    loop {
        let (payload, written) = match items.recv().await {
            Some(Item::Part { payload, written }) => (payload, written),
            Some(Item::End) => break,
            None => return Err(Error::Cancelled { resumable: false }),
        };
        let mut failed = false;
        for bytes in &payload {
            failed |= !failed && writer.write_all(bytes).await.is_err();
        }
        if failed {
            // Tells why.
            break;
        }
        // Nobody may wait for it.
        let _ = written.send(());
    }
    writer.finish().await
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, payload: PutPayload) -> UploadPart {
        let (written, is_written) = oneshot::channel();
        if let Some(items) = &self.items {
            // Fails if the task has ended, as `is_written` does.
            let _ = items.send(Item::Part { payload, written });
        }
        let failed = || generic("the upload has failed; completing it tells why");
        is_written.map(move |is| is.map_err(|_| failed())).boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        if let Some(items) = self.items.take() {
            // Fails if the task has ended, which tells why.
            let _ = items.send(Item::End);
        }
        Ok(put_result(e_tag(self.end().await?.etag)))
    }

    async fn abort(&mut self) -> Result<()> {
        drop(self.items.take());
        if let Some(writing) = self.writing.take() {
            // Drops the writer, which leaves nothing.
            writing.abort();
            let _ = writing.await;
        }
        Ok(())
    }
}

/// An upload that is dropped is none.
impl Drop for Upload {
    fn drop(&mut self) {
        if let Some(writing) = &self.writing {
            writing.abort();
        }
    }
}
