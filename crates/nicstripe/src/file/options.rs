//! Options of a copy, and limits that clients and daemons share.

use std::time::SystemTime;

use nicstripe_proto::{ETag, message::PutOptions};

use super::timestamp_of;

/// Default TCP port of the daemon; not registered with IANA, unused in /etc/services.
pub const DEFAULT_PORT: u16 = 7747;

/// Maximum number of concurrent transfers of one client; further ones wait. Each keeps files open
/// at both ends.
pub const MOST_TRANSFERS: usize = 64;

/// Maximum bytes received but not yet written to the writer of
/// [`Client::get_pipe`](crate::Client::get_pipe): 16 MiB, 13 ms at 10 Gbit/s.
pub const PIPE_WINDOW: u64 = 16 << 20;

/// Options of a file copy. In a tree copy they apply to each file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CopyOptions {
    /// Replace an existing regular file of that name. Otherwise the transfer fails if the name
    /// exists.
    pub replace: bool,
    /// Overwrite a block device of that name, and replace a symbolic link. Implies `replace`.
    /// Directories, FIFOs, sockets and character devices are never replaced.
    pub force: bool,
    /// Discard the data of an interrupted attempt and start from zero.
    pub restart: bool,
    /// Preserve permission bits and modification time.
    pub preserve: bool,
    /// Preserve the modification time, as a tree copy does. Implied by `preserve`.
    pub times: bool,
    /// Read the received data back from the disk and compare its hash before the file gets its
    /// name.
    pub verify: bool,
    /// Send only the chunks (256 KiB) that differ from an existing file of that name. Implies
    /// `replace` for that file.
    pub delta: bool,
    /// Write into the existing file instead of a new one that replaces it. Implies `delta`. An
    /// interrupted transfer leaves a mix of old and new data.
    pub in_place: bool,
    /// Compress chunks with zstd if that increases the rate.
    #[cfg(feature = "compress")]
    pub compress: bool,
    /// Do not fail if the source changes while it is read. Sends the data as read, up to the size
    /// at the start.
    pub allow_changing: bool,
    /// Create the missing parent directories of the target.
    pub parents: bool,
    /// Replace a file only if it has this entity tag when the new content is complete. Implies
    /// `replace` for that file; if it has another tag or does not exist, the transfer fails with
    /// [`FailCode::Precondition`](crate::FailCode::Precondition). The order against changes by other
    /// programs than the one that writes is best effort. Not for trees.
    pub only_if: Option<ETag>,
    /// Write into a range of a file that other calls write too. Only for
    /// [`Client::create`](crate::Client::create).
    pub slice: Option<Slice>,
}

/// Range of a file that several calls write at the same time, each its own, from any process. It is
/// written in place, and durable when the writer finishes. The first call makes the file, which is then
/// private to the daemon's user.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Slice {
    /// First byte of the range, which ends where the data does.
    pub offset: u64,
    /// Size of the whole file in bytes: a shorter file is made as long. With a time or a mode, the file must
    /// have this size.
    pub size: u64,
    /// Modification time that the file gets with this range; `None` leaves it. With a time or a mode, the
    /// file must exist.
    pub modified: Option<SystemTime>,
    /// Permission bits (0o777) that the file gets with this range, without those of the daemon's umask unless
    /// [`CopyOptions::preserve`] is set; `None` leaves them, and with a time those of any new file.
    pub mode: Option<u32>,
}

/// Options of a renaming, or of a copy at the daemon. The default replaces nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RenameOptions {
    /// Replace an existing file of the new name.
    pub replace: bool,
    /// Create the missing parent directories of the new name.
    pub parents: bool,
    /// Rename or copy a file only if it has this entity tag; otherwise the call fails with
    /// [`FailCode::Precondition`](crate::FailCode::Precondition).
    pub only_if: Option<ETag>,
}

impl RenameOptions {
    /// Returns the options that replace an existing file.
    pub const fn replacing() -> Self {
        Self {
            replace: true,
            parents: false,
            only_if: None,
        }
    }
}

impl CopyOptions {
    #[cfg(feature = "compress")]
    pub(crate) fn compresses(self) -> bool {
        self.compress
    }

    #[cfg(not(feature = "compress"))]
    pub(crate) fn compresses(self) -> bool {
        false
    }

    /// Returns what the receiver is asked for.
    pub(crate) fn on_wire(self) -> PutOptions {
        PutOptions {
            replace: self.replace || self.force,
            force: self.force,
            restart: self.restart,
            preserve: self.preserve,
            times: self.times,
            verify: self.verify,
            delta: self.delta,
            in_place: self.in_place,
            trial: false,
            parents: self.parents,
            only_if: self.only_if,
            slice: self.slice.map(|slice| nicstripe_proto::message::Slice {
                offset: slice.offset,
                size: slice.size,
                mtime: slice.modified.map(timestamp_of),
                mode: slice.mode,
            }),
        }
    }
}
