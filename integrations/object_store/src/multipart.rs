//! Uploads in parts that are objects of their own, which another process can complete.

use std::hash::{BuildHasher as _, RandomState};

use async_trait::async_trait;
use bytes::Bytes;
use nicstripe::{Entry, Name};

use super::{
    failure::{generic, told},
    object::{e_tag, name_of},
    object_store::{
        MultipartId, PutPayload, PutResult, Result,
        multipart::{MultipartStore, PartId},
        path::Path,
    },
    put_result,
    store::NicstripeStore,
};

/// Directory of the parts of all uploads that are not complete. Not listed.
pub(crate) const UPLOADS: &str = ".nicstripe-uploads";

/// Each part is durable once it is put. The completion copies them at the daemon, and removes them.
#[async_trait]
impl MultipartStore for NicstripeStore {
    async fn create_multipart(&self, path: &Path) -> Result<MultipartId> {
        name_of(path)?;
        let number = || RandomState::new().hash_one(path.as_ref());
        let id = format!("{:016x}{:016x}", number(), number());
        let made = self.client().make_dir(&folder_of(&id)?).await;
        made.map_err(|error| told(error, path))?;
        Ok(id)
    }

    async fn put_part(
        &self,
        path: &Path,
        id: &MultipartId,
        part_idx: usize,
        data: PutPayload,
    ) -> Result<PartId> {
        let options = nicstripe::CopyOptions {
            replace: true,
            ..nicstripe::CopyOptions::default()
        };
        let content_id = part_idx.to_string();
        let part = part_of(id, &content_id)?;
        let written = self.client().write(&part, Bytes::from(data), options).await;
        written.map_err(|error| told(error, path))?;
        Ok(PartId { content_id })
    }

    async fn complete_multipart(
        &self,
        path: &Path,
        id: &MultipartId,
        parts: Vec<PartId>,
    ) -> Result<PutResult> {
        let parts = parts.iter().map(|part| part_of(id, &part.content_id));
        let parts = parts.collect::<Result<Vec<Name>>>()?;
        let options = nicstripe::RenameOptions {
            replace: true,
            parents: true,
            only_if: None,
        };
        let made = self.client().concat(&parts, &name_of(path)?, options).await;
        let made = made.map_err(|error| told(error, path))?;
        // The object is complete; a part that remains takes space, and no more.
        let _ = self.abort_multipart(path, id).await;
        Ok(put_result(e_tag(made.etag)))
    }

    async fn abort_multipart(&self, path: &Path, id: &MultipartId) -> Result<()> {
        let folder = folder_of(id)?;
        let parts = self.client().list(Some(&folder)).await;
        let parts = parts.map_err(|error| told(error, path))?;
        let below = |part: &Entry| folder.join(&part.name.to_bytes()).map_err(generic);
        let mut names = parts.iter().map(below).collect::<Result<Vec<Name>>>()?;
        names.push(folder);
        let left = self.client().remove_many(&names).await;
        match left.map_err(|error| told(error, path))?.into_iter().next() {
            Some(one) => Err(told(one.error, path)),
            None => Ok(()),
        }
    }
}

/// Returns the directory of an upload, whose ID may come from another process.
fn folder_of(id: &str) -> Result<Name> {
    if id.len() != 32 || !id.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err(generic(format!("{id:?} is no ID of an upload")));
    }
    Name::new([UPLOADS, id]).map_err(generic)
}

fn part_of(id: &str, content_id: &str) -> Result<Name> {
    let index: usize = content_id.parse().map_err(generic)?;
    folder_of(id)?
        .join(index.to_string().as_bytes())
        .map_err(generic)
}
