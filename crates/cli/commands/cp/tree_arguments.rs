//! Options of `cp` for trees.

use std::path::PathBuf;

use clap::Args;

use nicstripe::Share;

use super::{filters::Filters, shard::ShardArgs};
use crate::text::first_true;

/// Options of `cp` for trees. With most of them, even a single file is copied as a tree, which
/// compares it with an existing file first.
#[derive(Debug, Clone, Args)]
pub(crate) struct TreeArguments {
    /// Copy directories recursively; symbolic links as links, always with modification times
    #[arg(short, long)]
    pub(crate) recursive: bool,

    /// Preserve all metadata: -r -p -D -X -H --owner (rsync's -a has neither -X, -A nor -H)
    #[arg(short, long)]
    pub(crate) archive: bool,

    /// Preserve owner and group if the receiver may: by name, or by number if the receiver has no
    /// such name
    #[arg(long)]
    pub(crate) owner: bool,

    /// Preserve owner and group, also in ACLs, by number regardless of names; with --owner, -X or
    /// -a
    #[arg(long)]
    pub(crate) numeric_ids: bool,

    /// Preserve FIFOs, sockets and devices, as rsync's -D (--specials --devices); devices only if
    /// the receiver is root and permits this peer
    #[arg(short = 'D', long = "specials", visible_alias = "devices")]
    pub(crate) nodes: bool,

    /// Preserve extended attributes, including ACLs
    #[arg(short = 'X', long)]
    pub(crate) xattrs: bool,

    /// Same as -X
    #[arg(short = 'A', long)]
    pub(crate) acls: bool,

    /// Preserve hard links [default: copy a file for each name]
    #[arg(short = 'H', long)]
    pub(crate) hard_links: bool,

    /// No effect; accepted for rsync compatibility: symbolic links are always copied as links
    #[arg(short = 'l', long)]
    pub(crate) links: bool,

    /// Replace only files older than those of SRC, keep newer ones
    #[arg(short, long)]
    pub(crate) update: bool,

    /// Compare files of equal size by BLAKE3, which reads them at both ends [default: by
    /// modification time]
    #[arg(short, long)]
    pub(crate) checksum: bool,

    /// Print on standard output what would be done, and change nothing
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,

    /// Stay on the file system of each SRC
    #[arg(short = 'x', long)]
    pub(crate) one_file_system: bool,

    /// Delete from directories of DST what the same directories of SRC lack, except excluded files;
    /// needs -r
    #[arg(long)]
    pub(crate) delete: bool,

    #[command(flatten)]
    pub(crate) filters: Filters,

    /// Copy only the paths listed in FILE, relative to SRC, one per line; - is standard input. SRC
    /// is taken as with a trailing slash
    #[arg(long, value_name = "FILE")]
    pub(crate) files_from: Option<PathBuf>,

    /// Expect a NUL byte instead of a newline after each name in --files-from
    #[arg(short = '0', long, requires = "files_from")]
    pub(crate) from0: bool,

    #[command(flatten)]
    pub(crate) shard: ShardArgs,

    /// Share that `shard` means.
    #[arg(skip)]
    pub(crate) share: Option<Share>,
}

impl TreeArguments {
    /// Returns true if directories are copied: with `-r` or `-a`.
    pub(crate) fn is_recursive(&self) -> bool {
        self.recursive || self.archive
    }

    /// Returns true if a source may be a directory: with `-r` or `-a`, or with `--files-from`.
    pub(crate) fn takes_directories(&self) -> bool {
        self.is_recursive() || self.files_from.is_some()
    }

    /// Returns true if FIFOs, sockets and devices are copied.
    pub(crate) fn takes_nodes(&self) -> bool {
        self.archive || self.nodes
    }

    /// Returns the first typed option that needs a tree copy or a dry run, such as `-r` or `-n`.
    /// Options without effect do not count.
    pub(crate) fn first_option(&self) -> Option<&'static str> {
        first_true(self.options())
    }

    /// Like [`first_option`](Self::first_option), without `--files-from`.
    pub(crate) fn first_option_beside_a_list(&self) -> Option<&'static str> {
        first_true(self.options().filter(|(_, name)| *name != LIST))
    }

    fn options(&self) -> impl Iterator<Item = (bool, &'static str)> {
        let options = [
            (self.recursive, "-r"),
            (self.archive, "-a"),
            (self.owner, "--owner"),
            (self.nodes, "-D"),
            (self.xattrs, "-X"),
            (self.acls, "-A"),
            (self.hard_links, "-H"),
            (self.update, "-u"),
            (self.checksum, "-c"),
            (self.dry_run, DRY_RUN),
            (self.one_file_system, "-x"),
            (self.delete, "--delete"),
            (
                !self.filters.0.is_empty(),
                "--exclude, --include or --exclude-from",
            ),
            (self.files_from.is_some(), LIST),
            (self.shard.shard.is_some(), "--shard"),
        ];
        options.into_iter()
    }

    /// Returns true if a single file must be copied as a tree, because an option for trees was
    /// given. `-n` alone does not count: a dry run reports what the command does without it.
    pub(crate) fn asks_for_tree(&self) -> bool {
        self.options()
            .any(|(is_given, name)| is_given && name != DRY_RUN)
    }
}

const DRY_RUN: &str = "-n";

const LIST: &str = "--files-from";
