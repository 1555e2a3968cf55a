//! Tree transfers of a client: turns the user's request into a sender at one end and a receiver at
//! the other.

use std::{
    ffi::OsString,
    io,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use nicstripe_proto::{
    Name, TransferId,
    message::{EntryRef, Feature, GetTree, MOST_SOURCES, PutTree, TreeSource as RequestedSource},
    name::escaped,
};

use super::{
    Client, Transfer,
    request::{Attempt, Opening, Request, receiving},
};
use crate::{
    file::{FileError, Root},
    report::error::Error,
    session::kind::{
        Kind,
        entry::{EntrySink, EntrySource},
        tree::{TreeSink, TreeSource as WalkedSource},
    },
    tree::{
        Listing, TreeOptions, TreeSource,
        allowance::{Receiving, Sending},
        filter::Filters,
        receiver::{Promised, ReceiverRequest},
        sender::SenderRequest,
        walk::{SendSource, listing},
    },
};

impl Client {
    /// Sends files and trees. `name` is a directory relative to the daemon's root, or `None` for
    /// the root itself. Each source is copied into it under its own name; if the source's path ends
    /// in a slash, only its content is copied.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use nicstripe::{Name, TreeOptions};
    /// let options = TreeOptions { recursive: true, ..TreeOptions::default() };
    /// let report = client
    ///     .put_tree(["photos"], Some(Name::parse(b"2026")?), options)
    ///     .finish()
    ///     .await?;
    /// let tree = report.tree.unwrap_or_default();
    /// println!("{} files, {} were there, {} failed", tree.files, tree.unchanged, tree.failed);
    /// # Ok(())
    /// # }
    /// ```
    pub fn put_tree(
        &self,
        sources: impl IntoIterator<Item: Into<PathBuf>>,
        name: Option<Name>,
        options: TreeOptions,
    ) -> Transfer {
        self.start(TreeUpload {
            sources: sources.into_iter().map(Into::into).collect(),
            name,
            options,
        })
    }

    /// Fetches files and trees into the directory `target`, mirroring [`Client::put_tree`].
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use nicstripe::{Name, TreeOptions, TreeSource};
    /// let options = TreeOptions { recursive: true, ..TreeOptions::default() };
    /// let sources = [TreeSource::named(Name::parse(b"2026/photos")?)];
    /// client.get_tree(sources, "restored", options).finish().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn get_tree(
        &self,
        sources: impl IntoIterator<Item = TreeSource>,
        target: impl Into<PathBuf>,
        options: TreeOptions,
    ) -> Transfer {
        self.start(TreeDownload {
            sources: sources.into_iter().collect(),
            target: target.into(),
            options,
        })
    }
}

impl Listing {
    /// Lists what [`Client::put_tree`](crate::Client::put_tree) sends of these sources with these options,
    /// apart from [`TreeOptions::share`]. Blocks. What cannot be read is excluded: a copy reports it.
    ///
    /// # Errors
    ///
    /// A pattern of [`TreeOptions::filters`] is not valid.
    pub fn of(
        sources: impl IntoIterator<Item: Into<PathBuf>>,
        options: &TreeOptions,
    ) -> Result<Self, Error> {
        let filters = Filters::new(&options.filters)?;
        let sources = sources.into_iter().map(Into::into).map(SendSource::Path);
        Ok(listing(
            &options.rules(),
            options.walk(),
            filters,
            sources.collect(),
        ))
    }
}

/// Request to upload files and directories.
#[derive(Debug)]
pub(super) struct TreeUpload {
    pub(super) sources: Vec<PathBuf>,
    pub(super) name: Option<Name>,
    pub(super) options: TreeOptions,
}

impl Request for TreeUpload {
    /// A daemon that does not know shares would delete nothing.
    fn needed(&self) -> Option<Feature> {
        self.options.only_delete.then_some(Feature::Shares)
    }

    fn open<'a>(&'a mut self, attempt: Attempt<'a>) -> Opening<'a> {
        if let Err(error) = without_tag(&self.options) {
            return Box::pin(async { Err(error) });
        }
        let options = &self.options;
        let sender = SenderRequest {
            sources: self.sources.iter().cloned().map(SendSource::Path).collect(),
            rules: options.rules(),
            walk: options.walk(),
            list: options.list,
            reports_large: true,
            allowance: Sending::OWN,
        };
        let upload = PutTree {
            transfer: TransferId(0),
            target: self.name.clone(),
            as_name: self.options.as_name,
            rules: options.rules(),
            heeds_memory: true,
        };
        let asked = Some((upload, attempt.standalone));
        let source = WalkedSource::new(sender.into_run(()), asked);
        Box::pin(async { Ok(Box::new(source) as _) })
    }

    fn entry(&mut self, entry: EntryRef, restart: bool) -> Option<Box<dyn Kind>> {
        Some(Box::new(EntrySource {
            entry,
            options: receiving(self.options.files, restart),
        }))
    }
}

/// Request to download files and directories.
#[derive(Debug)]
pub(super) struct TreeDownload {
    pub(super) sources: Vec<TreeSource>,
    pub(super) target: PathBuf,
    pub(super) options: TreeOptions,
}

impl Request for TreeDownload {
    /// A daemon that does not know shares would send all files.
    fn needed(&self) -> Option<Feature> {
        let TreeOptions {
            share,
            only_directories,
            ..
        } = self.options;
        (share.is_some() || only_directories).then_some(Feature::Shares)
    }

    fn open<'a>(&'a mut self, attempt: Attempt<'a>) -> Opening<'a> {
        Box::pin(async move { Ok(Box::new(self.sink(attempt)?) as _) })
    }

    fn entry(&mut self, entry: EntryRef, restart: bool) -> Option<Box<dyn Kind>> {
        Some(Box::new(EntrySink {
            entry,
            options: receiving(self.options.files, restart),
            allow_changing: self.options.files.allow_changing,
        }))
    }
}

/// Checks that a tree copy does not depend on an entity tag, which is that of one file.
fn without_tag(options: &TreeOptions) -> Result<(), Error> {
    match options.files.only_if {
        Some(_) => {
            let why = "an entity tag is that of one file, and this is a tree";
            Err(FileError::refused("copy", "these", why).into())
        }
        None => Ok(()),
    }
}

impl TreeDownload {
    fn sink(&self, attempt: Attempt<'_>) -> Result<TreeSink, Error> {
        without_tag(&self.options)?;
        let count = self.sources.len();
        if count == 0 || count > MOST_SOURCES {
            let why = format!("{count} sources, expected 1 to {MOST_SOURCES}");
            return Err(FileError::refused("ask for", "these", why).into());
        }
        let sources = self.sources.iter().map(|source| RequestedSource {
            name: source.name.clone(),
            content: source.content_only || source.name.is_none(),
        });
        let sources: Vec<RequestedSource> = sources.collect();
        let options = &self.options;
        let filters = Filters::new(&options.filters)?;
        let (root, name) = local_target(&self.target)?;
        let walk = options.walk();
        let receiver = ReceiverRequest {
            root: Arc::new(root),
            target: name,
            as_name: self.options.as_name,
            rules: options.rules(),
            peer_key: attempt.peer_key,
            append_only: false,
            // Requested by the local user, limited by `rules`.
            privileged: true,
            list: options.list,
            promised: Some(Promised::new(&sources, &walk)),
            filters,
            allowance: Receiving::OWN,
        };
        let download = GetTree {
            transfer: TransferId(0),
            sources,
            walk,
            rules: options.rules(),
            limit_bps: attempt.inner.limit_bps(),
        };
        let asked = Some((download, attempt.standalone));
        Ok(TreeSink::new(receiver.into_run(()), asked))
    }
}

/// Opens the nearest existing directory on a local path. Returns it with the rest of the path,
/// which is `None` if the whole path exists.
fn local_target(path: &Path) -> Result<(Root, Option<Name>), Error> {
    let shown = || escaped(path.as_os_str().as_bytes());
    let mut missing: Vec<OsString> = Vec::new();
    let mut existing = path.to_owned();
    while !existing.is_dir() {
        match existing.components().next_back() {
            Some(Component::Normal(name)) => missing.push(name.to_owned()),
            _ => {
                return Err(FileError::new(
                    "open directory",
                    shown(),
                    io::ErrorKind::NotFound.into(),
                )
                .into());
            }
        }
        existing.pop();
        if existing.as_os_str().is_empty() {
            existing.push(".");
        }
    }
    let name = match missing.is_empty() {
        true => None,
        false => Some(Name::new(
            missing.into_iter().rev().map(OsString::into_vec),
        )?),
    };
    Ok((Root::open(&existing)?, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_target_is_the_nearest_directory_and_the_names_behind_it() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), "").unwrap();
        let name = |path: &str| {
            local_target(&dir.path().join(path)).map(|(_, name)| name.map(|name| name.to_string()))
        };
        assert_eq!(name("").unwrap(), None);
        assert_eq!(name("new").unwrap().as_deref(), Some("new"));
        assert_eq!(name("new/er/").unwrap().as_deref(), Some("new/er"));
        assert_eq!(name("file").unwrap().as_deref(), Some("file"));
        assert!(name("new/../x").is_err());
    }
}
