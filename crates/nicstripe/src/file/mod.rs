//! File I/O: reads sources, writes and syncs targets. The calls block and run on the threads of
//! [`pool`]. [`shares`] divides limited resources among peers; requests for those of a [`quota`]
//! wait.

mod arrived;
mod attributes;
mod beneath;
mod buffer;
#[cfg_attr(not(feature = "compress"), path = "no_compress.rs")]
mod compress;
mod disk;
mod error;
mod hashing;
mod hidden;
mod holes;
mod journal;
mod kept;
mod lock;
mod logins;
mod names;
pub(crate) mod options;
mod ours;
mod pinned_path;
mod pool;
mod probe;
mod quota;
mod rename;
mod root;
mod shares;
mod source;
#[cfg(feature = "bench")]
pub(crate) mod stages;
mod stored;
mod target;
mod xattrs;

pub(crate) use self::compress::UNPACKS;
#[cfg(test)]
pub(crate) use self::pool::{DiskCall, Image, SimulatedDisk};
pub(crate) use self::{
    arrived::{Arrived, WriteError},
    attributes::{Attributes, Lost, creation_mask, mode_of, mtime_of, owner_of, umask},
    beneath::{
        Inode, entries_of, inode_of, is_removed, is_tmpfs, lacked_directory, no_new_files,
        open_confined, open_entry, open_on_same_mount, stat_entry,
    },
    buffer::{BufferPool, ChunkBuffer},
    disk::sync_names,
    error::Barred,
    hashing::Hashing,
    hidden::{
        check_given, check_sought, has_exact_names, hidden_name, is_hidden_in, is_hidden_name,
    },
    holes::{has_hole, may_have_holes},
    journal::remove_earlier,
    kept::{attributes_in, kept_in},
    logins::Logins,
    names::{NameChange, check_tag},
    pinned_path::PinnedPath,
    pool::{IoPool, TURN},
    probe::{MOST_UNIT, nanoseconds_between, time_unit_of},
    quota::{Lease, OF_SOURCE, OF_TARGET, Quota, most_directories},
    rename::rename_to_free,
    root::Root,
    shares::{FairShares, Grant, Owner},
    source::{Opened, ReadOptions, SOURCE_FLAGS, Source, tells_no_sizes, too_much_made},
    stored::{etag_of, identity_of, timestamp_of},
    target::{
        COPIED_AT_ONCE, CommitStage, Rehash, Sidecar, Target, TargetRequest, grid_of, make_parents,
        open_parent,
    },
    xattrs::{may_pass_acl_on, xattrs_of, xattrs_of_symlink},
};

#[cfg(any(test, fuzzing))]
pub(crate) use self::compress::{Packer, unpack};
pub use self::{
    error::FileError,
    stored::{FileIdentity, StoredFile},
};
