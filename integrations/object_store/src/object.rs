//! Names, metadata and content of objects.

use bytes::Bytes;
use futures_util::{StreamExt as _, stream, stream::BoxStream};
use nicstripe::{ETag, Name, ObjectReader, Stat};

use super::{
    failure::{generic, told},
    object_store::{self, Error, ObjectMeta, Result, path::Path},
};

/// Returns the daemon's name of the object at a path.
pub(crate) fn name_of(path: &Path) -> Result<Name> {
    Name::new(path.parts().map(|part| part.as_ref().as_bytes().to_vec())).map_err(generic)
}

/// Returns the name of the directory that holds the objects below a prefix; `None` for the root.
pub(crate) fn dir_of(prefix: Option<&Path>) -> Result<Option<Name>> {
    let prefix = prefix.filter(|prefix| !prefix.as_ref().is_empty());
    prefix.map(name_of).transpose()
}

/// Returns the path of a name, which is relative to the directory `dir`.
pub(crate) fn path_of(dir: Option<&Name>, name: &Name) -> Result<Path> {
    let above = dir.into_iter().flat_map(Name::components);
    let all = Name::new(above.chain(name.components())).map_err(generic)?;
    let text = String::from_utf8(all.to_bytes()).map_err(|error| Error::InvalidPath {
        source: object_store::path::Error::NonUnicode {
            path: nicstripe::escaped(error.as_bytes()),
            source: error.utf8_error(),
        },
    })?;
    Ok(Path::parse(text)?)
}

pub(crate) fn meta_of(location: Path, stat: &Stat) -> ObjectMeta {
    ObjectMeta {
        location,
        last_modified: stat.modified.into(),
        size: stat.size,
        e_tag: e_tag(stat.etag),
        version: None,
    }
}

pub(crate) fn e_tag(tag: Option<ETag>) -> Option<String> {
    tag.map(|tag| tag.to_string())
}

/// Returns the tag of a version of an object, which another store may have told.
pub(crate) fn tag_of(e_tag: Option<&str>, path: &Path) -> Result<ETag> {
    let tag = e_tag.unwrap_or_default().parse();
    tag.map_err(|error| Error::Precondition {
        path: path.to_string(),
        source: Box::<nicstripe::ParseETagError>::new(error),
    })
}

/// Returns the bytes of a reader, in the client's buffers.
pub(crate) fn content(reader: ObjectReader, path: Path) -> BoxStream<'static, Result<Bytes>> {
    let next = |state: Option<(ObjectReader, Path)>| async move {
        let (mut reader, path) = state?;
        match reader.next_chunk().await {
            Ok(None) => None,
            Ok(Some(chunk)) => Some((Ok(Bytes::from_owner(chunk)), Some((reader, path)))),
            Err(error) => Some((Err(told(error, &path)), None)),
        }
    };
    stream::unfold(Some((reader, path)), next).fuse().boxed()
}
