//! Implementation of the trait `ObjectStore` over a client.

use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream, stream::BoxStream};
use nicstripe::{Client, Entries, FailCode, Kind, Name, OpenOptions, Stat};

use super::{
    attribute,
    failure::{STORE, generic, not_implemented, told},
    get_result, list_result,
    multipart::UPLOADS,
    object::{content, dir_of, e_tag, meta_of, name_of, path_of, tag_of},
    object_store::{
        Attributes, CopyMode, CopyOptions, Error, GetOptions, GetRange, GetResult,
        GetResultPayload, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode,
        PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, RenameTargetMode,
        Result, path::Path,
    },
    put_result,
    upload::Upload,
};

/// Store of the objects at one daemon. Cheap to clone; clones share the client's session.
#[derive(Debug, Clone)]
pub struct NicstripeStore {
    client: Client,
}

impl NicstripeStore {
    /// Returns the store of the files below the root that the daemon serves to this client. For a
    /// part of it, use [`PrefixStore`](object_store::prefix::PrefixStore).
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// Returns the client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the metadata of an object.
    async fn stat(&self, name: &Name, location: &Path) -> Result<Stat> {
        let stat = self.client.stat(name).await;
        let stat = stat.map_err(|error| told(error, location))?;
        if stat.kind == Kind::File {
            return Ok(stat);
        }
        Err(Error::NotFound {
            path: location.to_string(),
            source: "it is a directory or a special file".into(),
        })
    }

    /// Returns the attributes of an object with this metadata.
    async fn attributes(&self, name: &Name, location: &Path, stat: &Stat) -> Result<Attributes> {
        if !stat.has_attributes {
            return Ok(Attributes::new());
        }
        let head = self.client.head(name).await;
        let head = head.map_err(|error| told(error, location))?;
        match head.stat.etag == stat.etag {
            true => Ok(attribute::told(&head.attributes)),
            false => Err(generic(
                "the object was replaced while its attributes were read",
            )),
        }
    }

    /// Returns the range of an object that is asked for, as far as its size must be known before.
    async fn options_of(
        &self,
        name: &Name,
        location: &Path,
        range: Option<&GetRange>,
    ) -> Result<OpenOptions> {
        Ok(match range {
            None => OpenOptions::default(),
            Some(GetRange::Bounded(range)) => OpenOptions {
                range: Some(range.clone()),
                only_if: None,
            },
            Some(GetRange::Offset(offset)) => OpenOptions {
                range: Some(*offset..u64::MAX),
                only_if: None,
            },
            Some(suffix @ GetRange::Suffix(_)) => {
                let stat = self.stat(name, location).await?;
                OpenOptions {
                    range: Some(suffix.as_range(stat.size).map_err(generic)?),
                    only_if: stat.etag,
                }
            }
        })
    }

    fn writing(location: &Path, mode: PutMode) -> Result<nicstripe::CopyOptions> {
        let options = nicstripe::CopyOptions {
            parents: true,
            ..nicstripe::CopyOptions::default()
        };
        Ok(match mode {
            PutMode::Create => options,
            PutMode::Overwrite => nicstripe::CopyOptions {
                replace: true,
                ..options
            },
            PutMode::Update(version) => nicstripe::CopyOptions {
                only_if: Some(tag_of(version.e_tag.as_deref(), location)?),
                ..options
            },
        })
    }

    /// Removes objects. Returns the result of each, in their order.
    async fn remove(&self, locations: Vec<Result<Path>>) -> Vec<Result<Path>> {
        let named = |location: &Result<Path>| name_of(location.as_ref().ok()?).ok();
        let names: Vec<Name> = locations.iter().filter_map(named).collect();
        let left = match self.client.remove_files(&names).await {
            Ok(left) => left,
            Err(error) => {
                let text = error.to_string();
                let fail =
                    |location: Result<Path>| location.and_then(|_| Err(generic(text.clone())));
                return locations.into_iter().map(fail).collect();
            }
        };
        // In the order of the names.
        let mut left = left.into_iter().peekable();
        let removed = |location: Result<Path>| {
            let location = location?;
            let name = name_of(&location)?;
            match left.next_if(|one| one.name == name) {
                Some(one) => Err(told(one.error, &location)),
                None => Ok(location),
            }
        };
        locations.into_iter().map(removed).collect()
    }

    /// Returns the objects of a walk below `dir`.
    fn objects(dir: Option<Name>, walk: Entries) -> BoxStream<'static, Result<ObjectMeta>> {
        let next = |state: Option<(Option<Name>, Entries)>| async move {
            let (dir, mut walk) = state?;
            loop {
                let entry = match walk.next().await {
                    Ok(entry) => entry?,
                    // Nothing is below a prefix that no directory has.
                    Err(error) if is_no_directory(&error) && dir.is_some() => return None,
                    Err(error) => return Some((Err(generic(error)), None)),
                };
                if entry.stat.kind == Kind::File && !is_of_uploads(dir.as_ref(), &entry.name) {
                    let path = path_of(dir.as_ref(), &entry.name);
                    let meta = path.map(|path| meta_of(path, &entry.stat));
                    return Some((meta, Some((dir, walk))));
                }
            }
        };
        stream::unfold(Some((dir, walk)), next).fuse().boxed()
    }

    fn listed(
        &self,
        prefix: Option<&Path>,
        begin: impl FnOnce(Entries, Option<&Name>) -> Option<Entries>,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let dir = match dir_of(prefix) {
            Ok(dir) => dir,
            Err(error) => return stream::iter([Err(error)]).boxed(),
        };
        match begin(self.client.walk(dir.clone()), dir.as_ref()) {
            Some(walk) => Self::objects(dir, walk),
            None => stream::empty().boxed(),
        }
    }
}

/// Returns true if a name, relative to `dir`, is the directory of uploads that are not complete, or below
/// it.
fn is_of_uploads(dir: Option<&Name>, name: &Name) -> bool {
    dir.is_none() && name.components().next() == Some(UPLOADS.as_bytes())
}

/// Returns true if the error says that a name is no directory.
fn is_no_directory(error: &nicstripe::Error) -> bool {
    matches!(
        error.fail_code(),
        Some(FailCode::NotFound | FailCode::NotADirectory)
    )
}

impl fmt::Display for NicstripeStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{STORE}://{}", self.client.host())
    }
}

#[async_trait]
impl ObjectStore for NicstripeStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        let (name, options) = (name_of(location)?, Self::writing(location, opts.mode)?);
        let attributes = attribute::kept(&opts.attributes)?;
        let report = self
            .client
            .write_with(&name, Bytes::from(payload), options, &attributes)
            .await;
        let report = report.map_err(|error| told(error, location))?;
        Ok(put_result(e_tag(report.etag)))
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let options = Self::writing(location, PutMode::Overwrite)?;
        let attributes = attribute::kept(&opts.attributes)?;
        let name = name_of(location)?;
        let writer = self.client.create_with(&name, options, &attributes);
        Ok(Box::new(Upload::new(location.clone(), writer)))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        if options.version.is_some() {
            return Err(not_implemented("get_opts with a version"));
        }
        let name = name_of(location)?;
        if options.head {
            let stat = self.stat(&name, location).await?;
            let meta = meta_of(location.clone(), &stat);
            options.check_preconditions(&meta)?;
            let nothing = GetResultPayload::Stream(stream::empty().boxed());
            let attributes = self.attributes(&name, location, &stat).await?;
            return Ok(get_result(nothing, meta, 0..0, attributes));
        }
        let opened = self
            .options_of(&name, location, options.range.as_ref())
            .await?;
        let reader = self.client.open_with(&name, opened).await;
        let reader = reader.map_err(|error| told(error, location))?;
        let meta = meta_of(location.clone(), reader.stat());
        options.check_preconditions(&meta)?;
        let range = match &options.range {
            Some(range) => range.as_range(meta.size).map_err(generic)?,
            None => 0..meta.size,
        };
        let attributes = self.attributes(&name, location, reader.stat()).await?;
        let content = GetResultPayload::Stream(content(reader, location.clone()));
        Ok(get_result(content, meta, range, attributes))
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        let removed = move |batch| {
            let store = store.clone();
            async move { stream::iter(store.remove(batch).await) }
        };
        locations
            .ready_chunks(REMOVED_AT_ONCE)
            .then(removed)
            .flatten()
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.listed(prefix, |walk, _| Some(walk))
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.listed(prefix, |walk, dir| {
            let offset = name_of(offset).ok();
            match (offset, dir) {
                (None, _) => Some(walk),
                (Some(offset), None) => Some(walk.after(&offset)),
                (Some(offset), Some(dir)) => match offset.strip_prefix(dir) {
                    Some(below) => Some(walk.after(&below)),
                    // All that is below the prefix is before the offset, or all behind.
                    None => (key_below(dir) > offset.to_bytes()).then_some(walk),
                },
            }
        })
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let dir = dir_of(prefix)?;
        let (mut prefixes, mut objects) = (Vec::new(), Vec::new());
        let mut entries = self.client.entries(dir.clone());
        loop {
            let entry = match entries.next().await {
                Ok(Some(entry)) => entry,
                Ok(None) => break,
                Err(error) if is_no_directory(&error) && dir.is_some() => break,
                Err(error) => return Err(generic(error)),
            };
            let path = path_of(dir.as_ref(), &entry.name)?;
            match entry.stat.kind {
                Kind::File => objects.push(meta_of(path, &entry.stat)),
                Kind::Dir if is_of_uploads(dir.as_ref(), &entry.name) => {}
                Kind::Dir => prefixes.push(path),
                _ => {}
            }
        }
        Ok(list_result(prefixes, objects))
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let options = nicstripe::RenameOptions {
            replace: matches!(options.mode, CopyMode::Overwrite),
            parents: true,
            only_if: None,
        };
        let copied = self
            .client
            .copy(&name_of(from)?, &name_of(to)?, options)
            .await;
        copied
            .map(drop)
            .map_err(|error| told_of_two(error, from, to))
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        let options = nicstripe::RenameOptions {
            replace: matches!(options.target_mode, RenameTargetMode::Overwrite),
            parents: true,
            only_if: None,
        };
        let (old, new) = (name_of(from)?, name_of(to)?);
        // A directory is no object.
        self.stat(&old, from).await?;
        let renamed = self.client.rename(&old, &new, options).await;
        renamed.map_err(|error| told_of_two(error, from, to))
    }
}

/// Converts the error of a copy or a renaming, which names the path that is in the way.
fn told_of_two(error: nicstripe::Error, from: &Path, to: &Path) -> Error {
    match error.fail_code() {
        Some(FailCode::Exists | FailCode::Occupied) => told(error, to),
        _ => told(error, from),
    }
}

/// Returns what all keys below a directory begin with.
fn key_below(dir: &Name) -> Vec<u8> {
    let mut key = dir.to_bytes();
    key.push(b'/');
    key
}

/// Number of objects that one call of the client removes.
const REMOVED_AT_ONCE: usize = 1024;
