//! Arguments of `cp` for trees.

use std::path::PathBuf;

use clap::Args;

use super::filters::Filters;

/// Options of trees. Each but `-p` makes even one file a tree for the library: it is compared with what is there.
#[derive(Debug, Args)]
pub(crate) struct TreeArguments {
    /// Copy directories with all that is in them; symbolic links as links, modification times always
    #[arg(short, long)]
    pub(crate) recursive: bool,

    /// -r -p -D -X -H --owner: all that is known of each file (rsync's -a has neither -X, -A nor -H)
    #[arg(short, long)]
    pub(crate) archive: bool,

    /// Keep owner and group, where the receiver may: by name, and by number where the receiver has no such name
    #[arg(long)]
    pub(crate) owner: bool,

    /// Keep owner and group, and those in ACLs, by number whatever the names, with --owner, -X or -a
    #[arg(long)]
    pub(crate) numeric_ids: bool,

    /// Keep FIFOs, sockets' names and devices, as rsync's -D (--specials --devices); devices only where the receiver is root and lets this peer
    #[arg(short = 'D', long = "specials", visible_alias = "devices")]
    pub(crate) nodes: bool,

    /// Keep extended attributes, and ACLs, which are some of them
    #[arg(short = 'X', long)]
    pub(crate) xattrs: bool,

    /// The same as -X
    #[arg(short = 'A', long)]
    pub(crate) acls: bool,

    /// Keep several names of one file as such [default: a file for each]
    #[arg(short = 'H', long)]
    pub(crate) hard_links: bool,

    /// No effect, accepted for rsync compatibility: symbolic links are copied as links anyway
    #[arg(short = 'l', long)]
    pub(crate) links: bool,

    /// Replace files that are older than those of SRC, and leave those that are newer
    #[arg(short, long)]
    pub(crate) update: bool,

    /// Compare files of one size by their BLAKE3, which both ends read them for [default: by modification time]
    #[arg(short, long)]
    pub(crate) checksum: bool,

    /// List on standard output what would be done, and change nothing
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,

    /// Do not enter other file systems than that of each SRC
    #[arg(short = 'x', long)]
    pub(crate) one_file_system: bool,

    /// Delete in directories of DST what the same directories of SRC do not have, but nothing that a pattern leaves out; asks for -r
    #[arg(long)]
    pub(crate) delete: bool,

    #[command(flatten)]
    pub(crate) filters: Filters,

    /// Copy only what this file names, a path beneath SRC a line; - is standard input. SRC is then taken as with a slash at its end
    #[arg(long, value_name = "FILE")]
    pub(crate) files_from: Option<PathBuf>,

    /// Names in --files-from end with a NUL byte instead of a line
    #[arg(short = '0', long, requires = "files_from")]
    pub(crate) from0: bool,
}

impl TreeArguments {
    /// Returns true if directories are copied.
    pub(crate) fn is_recursive(&self) -> bool {
        self.recursive || self.archive
    }

    /// Returns the first option that requires more than copying a file; options that are the
    /// default require nothing.
    pub(crate) fn first_option(&self) -> Option<&'static str> {
        self.options().find_map(|(is_given, name)| is_given.then_some(name))
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
            (!self.filters.0.is_empty(), "--exclude, --include or --exclude-from"),
            (self.files_from.is_some(), "--files-from"),
        ];
        options.into_iter()
    }

    /// Returns true if even a single file is compared like a tree entry. A dry run reports what the
    /// command does without `-n`, so it does not count.
    pub(crate) fn asks_for_tree(&self) -> bool {
        self.options().any(|(is_given, name)| is_given && name != DRY_RUN)
    }
}

const DRY_RUN: &str = "-n";
