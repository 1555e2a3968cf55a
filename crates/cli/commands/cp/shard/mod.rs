//! Copies of one share of the files of a tree, next to other processes that copy the others.
//!
//! - [`chosen`]: which share
//! - [`record`], [`store`]: what the processes agree on, at the target
//! - [`pieces`]: files of more than 1 GiB; each share copies some pieces
//!
//! The first share deletes what the source does not have. The last one to finish gives directories their
//! times, which each file that is copied into them changes.

mod chosen;
mod pieces;
mod record;
mod store;

pub(crate) use self::chosen::ShardArgs;
pub(super) use self::{
    record::Held,
    store::{Hold, PART, Store, WHOLE},
};

use std::{fs, path::Path, time::Instant};

use nicstripe::{Client, LargeFile, Listing, Name, Report, Share, TreeOptions, TreeReport};
use tokio::task::spawn_blocking;

use self::{
    pieces::{Ends, Large, Outcome},
    record::{Agreed, Record},
};
use super::copy_kind::CopyKind;
use crate::{connect::location::path_of, failure::Failure, text::quantity::Size};

/// Takes the share at the target, unless another process has it or copies something else.
pub(super) async fn hold(
    client: &Client,
    kind: &CopyKind,
    tree: &TreeOptions,
    share: Share,
) -> Result<Option<Held>, Failure> {
    let (record, listing) = match kind {
        CopyKind::PutTree { sources, name, .. } => {
            let leaves: Vec<&[u8]> = sources.iter().map(|source| leaf(source)).collect();
            let record = Record::at_daemon(client, name.as_ref(), &leaves);
            let (sources, tree) = (sources.clone(), tree.clone());
            let listing = spawn_blocking(move || Listing::of(sources, &tree)).await??;
            (record?, Some(listing.digest().to_string()))
        }
        CopyKind::GetTree {
            sources, target, ..
        } => {
            let names = sources.iter().map(|(name, content)| match name {
                Some(name) if !content => name.file_name(),
                _ => &[],
            });
            (Record::here(target, &names.collect::<Vec<_>>()), None)
        }
        // With `--shard`, everything else is a tree.
        _ => return Ok(None),
    };
    let agreed = Agreed {
        shares: share.of(),
        listing,
    };
    record
        .hold(share, &agreed, tree.files.restart)
        .await
        .map(Some)
}

/// Returns the name of a source at the target; empty if its content is copied.
fn leaf(source: &Path) -> &[u8] {
    use std::os::unix::ffi::OsStrExt as _;
    let bytes = source.as_os_str().as_bytes();
    let at = bytes
        .iter()
        .rposition(|byte| *byte == b'/')
        .map_or(0, |at| at + 1);
    match &bytes[at..] {
        b"." | b".." => &[],
        leaf => leaf,
    }
}

/// Rest of the work of a share, once the files that are in it are copied.
pub(super) struct Rest<'a> {
    pub(super) client: &'a Client,
    pub(super) kind: &'a CopyKind,
    pub(super) tree: &'a TreeOptions,
}

impl Rest<'_> {
    /// Copies the pieces of large files that are in the share, deletes if it is the first, and marks the
    /// share as done if all of it was copied. Adds all to the report.
    pub(super) async fn finish(
        &self,
        held: Held,
        report: &mut Report,
        tell: &dyn Fn(String),
    ) -> Result<(), Failure> {
        let begun = Instant::now();
        let Some(counts) = &mut report.tree else {
            return Ok(());
        };
        for (name, file) in std::mem::take(&mut counts.large) {
            let outcome = self.copy_large(held.store(), &name, &file, tell).await?;
            let bytes = match outcome {
                Outcome::Unchanged => {
                    // Each share finds it so; it is counted once.
                    counts.unchanged += u64::from(file.pieces().any(|(index, _)| index == 0));
                    0
                }
                Outcome::Partial { bytes } => bytes,
                Outcome::Complete { bytes } => {
                    counts.files += 1;
                    bytes
                }
            };
            counts.bytes += bytes;
            report.size += bytes;
            report.wire_bytes += bytes;
        }
        if self.tree.delete && self.tree.share.is_some_and(|share| share.number() == 1) {
            self.delete(counts).await?;
        }
        if counts.failed == 0
            && let Some(record) = held.done().await?
        {
            self.end_directories().await?;
            record.remove().await?;
        }
        report.elapsed += begun.elapsed();
        report.moving += begun.elapsed();
        Ok(())
    }

    async fn copy_large(
        &self,
        store: &Store,
        name: &Name,
        file: &LargeFile,
        tell: &dyn Fn(String),
    ) -> Result<Outcome, Failure> {
        let Some((ends, rest)) = self.ends_of(name, file).await? else {
            let error = std::io::Error::other("it is not in the source any more");
            return Err(Failure::opening(&path_of(name.components()))(error));
        };
        let count = file.pieces().count();
        tell(format!(
            "{name}: {count} of {} pieces are in this share",
            file.count()
        ));
        let large = Large::new(self.client, store, (ends, name, file), self.tree.files)?;
        let outcome = large.copy().await?;
        match outcome {
            Outcome::Unchanged => tell(format!("{name}: unchanged")),
            Outcome::Partial { bytes } => tell(format!(
                "{name}: {} copied; it gets its name with the last piece of another share",
                Size(bytes)
            )),
            Outcome::Complete { bytes } => {
                tell(format!("{name}: {} copied, and complete", Size(bytes)));
                self.set_attributes(rest).await?;
            }
        }
        Ok(outcome)
    }

    /// Returns where a large file comes from and goes to, and its source with the path in that. `None` if
    /// no source has it.
    async fn ends_of(
        &self,
        name: &Name,
        file: &LargeFile,
    ) -> Result<Option<(Ends, InSource)>, Failure> {
        match self.kind {
            CopyKind::PutTree {
                sources,
                name: target,
                ..
            } => {
                let to = target.iter().chain([name]).flat_map(Name::components);
                let to = Name::new(to)?;
                let found = sources.iter().enumerate().find_map(|(index, source)| {
                    let inside = below(leaf(source), name)?;
                    let from = match &inside {
                        Some(inside) => source.join(path_of(inside.components())),
                        None => source.clone(),
                    };
                    let found = fs::symlink_metadata(&from).ok()?;
                    let found = (found.len(), found.modified().ok()?);
                    let is_it = found == (file.size(), file.modified());
                    is_it.then_some((from, InSource { index, inside }))
                });
                Ok(found.map(|(from, inside)| (Ends::Put { from, to }, inside)))
            }
            CopyKind::GetTree {
                sources, target, ..
            } => {
                for (index, (source, content)) in sources.iter().enumerate() {
                    let leaf = match source {
                        Some(source) if !content => source.file_name(),
                        _ => &[],
                    };
                    let Some(inside) = below(leaf, name) else {
                        continue;
                    };
                    let components = source.iter().chain(&inside).flat_map(Name::components);
                    let from = Name::new(components)?;
                    match self.client.stat(&from).await {
                        Ok(stat)
                            if (stat.size, stat.modified) == (file.size(), file.modified()) =>
                        {
                            let (target, etag) = (target.clone(), stat.etag);
                            let ends = Ends::Get { from, etag, target };
                            return Ok(Some((ends, InSource { index, inside })));
                        }
                        Err(error) if !error.is_not_found() => return Err(error.into()),
                        _ => {}
                    }
                }
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    /// Gives a large file its owner and extended attributes, if they are preserved: as a tree with only this
    /// file, whose content is there.
    async fn set_attributes(&self, file: InSource) -> Result<(), Failure> {
        if !self.tree.owners && !self.tree.xattrs {
            return Ok(());
        }
        let options = TreeOptions {
            files_from: file.inside.map(|inside| vec![inside]),
            delete: false,
            list: false,
            ..self.whole()
        };
        match self.kind.of_source(file.index) {
            Some(kind) => self.copy_again(kind, options).await.map(drop),
            None => Ok(()),
        }
    }

    /// Deletes what the source does not have. The report is that of a dry run apart from that.
    async fn delete(&self, counts: &mut TreeReport) -> Result<(), Failure> {
        let options = TreeOptions {
            only_delete: true,
            ..self.whole()
        };
        let deleted = self.copy_again(self.kind.clone(), options).await?;
        counts.deleted += deleted.deleted;
        // A file that cannot be read has failed in the copy, too.
        if counts.failed == 0 {
            counts.failed = deleted.failed;
            counts.failures = deleted.failures;
        }
        Ok(())
    }

    async fn end_directories(&self) -> Result<(), Failure> {
        let options = TreeOptions {
            only_directories: true,
            delete: false,
            list: false,
            ..self.whole()
        };
        self.copy_again(self.kind.clone(), options).await.map(drop)
    }

    fn whole(&self) -> TreeOptions {
        TreeOptions {
            share: None,
            pieces: false,
            ..self.tree.clone()
        }
    }

    /// Copies with other options.
    async fn copy_again(
        &self,
        kind: CopyKind,
        options: TreeOptions,
    ) -> Result<TreeReport, Failure> {
        let copied = kind.start(self.client, options.files, options)?;
        Ok(copied.finish().await?.tree.unwrap_or_default())
    }
}

/// File in one of the sources: the source's index, and the path in it; `None` if the source is the file.
struct InSource {
    index: usize,
    inside: Option<Name>,
}

/// Returns the path in a source whose name at the target is `leaf` (empty: its content is copied) of a name
/// relative to the target: `Some(None)` for the source itself, `None` if the source cannot have it.
fn below(leaf: &[u8], name: &Name) -> Option<Option<Name>> {
    let mut components = name.components();
    if !leaf.is_empty() && components.next() != Some(leaf) {
        return None;
    }
    Some(Name::new(components).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_at_the_target_is_a_path_in_the_source_of_its_first_component() {
        let name = |text: &str| Name::parse(text.as_bytes()).unwrap();
        let inside = |leaf: &str, text: &str| {
            below(leaf.as_bytes(), &name(text)).map(|inside| inside.map(|name| name.to_string()))
        };
        assert_eq!(inside("photos", "photos/a/b"), Some(Some("a/b".into())));
        assert_eq!(inside("big", "big"), Some(None));
        assert_eq!(inside("", "a/b"), Some(Some("a/b".into())));
        assert_eq!(inside("photos", "other/a"), None);
    }
}
