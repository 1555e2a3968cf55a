//! Attributes of a file: permission bits, owner, extended attributes, times.

use std::{
    fs::File,
    io::{self, Read as _},
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use nicstripe_proto::{
    Offer,
    journal::Timestamp,
    message::PutOptions,
    tree::{Content, Entry, Owner, TreeRules, Xattr, entry::weight_of},
};
use rustix::{
    fs::{
        AtFlags, CWD, FileType, Gid, Mode, Stat, Timespec, Timestamps, Uid, chmod, chownat, fchmod,
        fchown, fstat, futimens, utimensat,
    },
    io::Errno,
    process::geteuid,
};

use super::xattrs::{
    Kept, default_acl_bits, is_privileged_xattr, is_root, proc_path, set_link_xattrs, set_xattrs,
};

/// Attributes to set on a received file; `None` keeps the existing value.
#[derive(Debug, Clone, Default)]
pub(crate) struct Attributes {
    /// Permission bits (0o7777). Set-user-ID and set-group-ID stay unchanged unless `privileged`.
    /// They also stay if they would grant the rights of an owner other than the sender's.
    pub(crate) mode: Option<u32>,
    pub(crate) mtime: Option<Timestamp>,
    /// User and group to set, if the process has the privilege.
    pub(crate) owner: Option<Owner>,
    /// Extended attributes to set, if the file system supports them. Existing attributes of the
    /// same namespaces are removed.
    pub(crate) xattrs: Option<Vec<Xattr>>,
    /// True if the sender may set set-user-ID, set-group-ID, file capabilities and other root-only
    /// attributes.
    pub(crate) privileged: bool,
    /// True if the sender asked for `mode`; otherwise it is the one that new files usually have.
    pub(crate) asks_for_mode: bool,
    /// True for a new object, which no one else could give a mode.
    pub(crate) is_new: bool,
    /// Counter of objects that could not get all requested attributes.
    pub(crate) lost: Option<Lost>,
}

/// Number of objects whose file system cannot keep all attributes that were requested.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lost(Arc<AtomicU64>);

impl Lost {
    /// Returns the number of objects since the last call.
    pub(crate) fn take(&self) -> u64 {
        self.0.swap(0, Ordering::AcqRel)
    }
}

impl Attributes {
    /// Returns true if an entry carries attributes that `rules` preserve and only a privileged
    /// sender may set.
    pub(crate) fn takes_privilege(entry: &Entry, rules: &TreeRules) -> bool {
        let has_mode = matches!(entry.content, Content::File { .. } | Content::Directory);
        let gives_bits = rules.modes && has_mode && entry.mode & SET_ID_BITS != 0;
        let gives_xattrs = || {
            entry
                .xattrs
                .iter()
                .flatten()
                .any(|xattr| is_privileged_xattr(&xattr.name))
        };
        gives_bits || (rules.xattrs && rules.owners && is_root() && gives_xattrs())
    }

    pub(crate) fn privileged(self, privileged: bool) -> Self {
        Self { privileged, ..self }
    }

    pub(crate) fn of_existing(self) -> Self {
        Self {
            is_new: false,
            ..self
        }
    }

    /// Counts objects that cannot get all requested attributes.
    pub(crate) fn counted_by(self, lost: &Lost) -> Self {
        Self {
            lost: Some(lost.clone()),
            ..self
        }
    }

    /// Returns the attributes to set on a new object that was opened by its name. An object of
    /// another user keeps its owner: it is not the new one, or the file system decides on owners.
    pub(crate) fn of_own(&self, stat: &Stat) -> Self {
        let is_own = stat.st_uid == geteuid().as_raw();
        Self {
            owner: self.owner.filter(|_| is_own),
            ..self.clone()
        }
    }

    /// Returns the attributes of a file that is not part of a tree, under the creation mask `mask`.
    pub(crate) fn of_offer(offer: &Offer, options: PutOptions, mask: u32) -> Self {
        Self {
            mode: Some(mode_of(offer, options, mask)),
            mtime: (options.preserve || options.times).then_some(offer.source.mtime),
            asks_for_mode: options.preserve,
            is_new: true,
            ..Self::default()
        }
    }

    /// Returns the attributes that `rules` preserve for a new entry, under the creation mask `mask`.
    pub(crate) fn of_new(entry: &Entry, rules: &TreeRules, mask: u32) -> Self {
        let mode = if rules.modes {
            entry.mode & ALL_BITS
        } else {
            entry.mode & 0o777 & !mask
        };
        Self {
            mode: Some(mode),
            mtime: Some(entry.mtime),
            is_new: true,
            ..Self::of_owner(entry, rules)
        }
    }

    /// Returns the attributes that `rules` preserve for an entry whose content is already present.
    /// `with_time` is true for directories and for files compared by BLAKE3; other comparisons
    /// imply equal times.
    pub(crate) fn of_same(entry: &Entry, rules: &TreeRules, with_time: bool) -> Self {
        let mode = rules.modes.then_some(entry.mode & ALL_BITS);
        Self {
            mode,
            mtime: with_time.then_some(entry.mtime),
            ..Self::of_owner(entry, rules)
        }
    }

    fn of_owner(entry: &Entry, rules: &TreeRules) -> Self {
        let owner = entry.owner.filter(|_| rules.owners);
        Self {
            owner,
            xattrs: entry.xattrs.clone().filter(|_| rules.xattrs),
            asks_for_mode: rules.modes,
            ..Self::default()
        }
    }

    /// Returns the size of the extended attributes in bytes, see [`Entry::weight`].
    pub(crate) fn weight(&self) -> usize {
        self.xattrs.as_deref().map_or(0, weight_of)
    }

    /// Returns true if the mode, owner or modification time differ from those of the existing file.
    /// Does not compare extended attributes, which require separate reads.
    pub(crate) fn differ(&self, stat: &Stat) -> bool {
        self.mode
            .is_some_and(|mode| self.bits_of(mode, stat, true) != stat.st_mode & ALL_BITS)
            || self.mtime.is_some_and(|mtime| mtime != mtime_of(stat))
            || self.owner.is_some_and(|owner| owner != owner_of(stat))
    }

    /// Sets the attributes that differ from those of `file`, in the order owner, extended
    /// attributes, mode, times: a change of owner clears mode bits, and an ACL changes the mode.
    ///
    /// Counts the object if its file system does not keep a requested attribute.
    pub(crate) fn apply(&self, file: impl AsFd) -> io::Result<()> {
        let file = file.as_fd();
        let stat = fstat(file)?;
        let owner_kept = match self.owner {
            Some(owner) if owner != owner_of(&stat) => {
                own(|uid, gid| fchown(file, uid, gid), owner)?
            }
            owner => owner.is_some(),
        };
        // An ACL would grant the rights that `bits_of` withholds.
        let may_have_acl = self.privileged || !is_set_id_file(&stat);
        let kept = match self.xattrs.as_ref().filter(|_| may_have_acl) {
            Some(xattrs) => set_xattrs(file, xattrs, owner_kept && self.privileged)?,
            None => Kept::ALL,
        };
        let mut are_kept = kept.all;
        // A change of owner clears mode bits, and an ACL sets some.
        let mut found = if self.owner.is_none() && self.xattrs.is_none() {
            stat
        } else {
            fstat(file)?
        };
        let is_root = is_root();
        if let Some(mode) = self.mode {
            let mode = mode & (kept.mode | !0o777);
            // A process without root cannot create a file of another owner.
            let is_harmless = owner_kept || !is_root;
            let bits = self.bits_of(mode, &found, is_harmless);
            if found.st_mode & ALL_BITS != bits {
                let set = fchmod(file, Mode::from_raw_mode(bits));
                self.accept_mode(set, &stat)?;
                if self.asks_for_mode {
                    found = fstat(file)?;
                }
            }
            // Some file systems accept every mode and keep none.
            are_kept &= !self.asks_for_mode || found.st_mode & ALL_BITS == bits;
        }
        // Only root may expect to give files away.
        if let Some(owner) = self.owner.filter(|_| is_root) {
            are_kept &= owner_of(&found) == owner;
        }
        if let Some(lost) = self.lost.as_ref().filter(|_| !are_kept) {
            lost.0.fetch_add(1, Ordering::AcqRel);
        }
        match self.mtime {
            Some(mtime) if mtime != mtime_of(&stat) => Ok(futimens(file, &times_of(mtime))?),
            _ => Ok(()),
        }
    }

    /// Accepts that a file system has no modes (FAT, SMB, some FUSE file systems). A mode that this
    /// user may not change, because the object is another user's, stays an error.
    fn accept_mode(&self, set: rustix::io::Result<()>, stat: &Stat) -> io::Result<()> {
        let may_change = || self.is_new || is_root() || stat.st_uid == geteuid().as_raw();
        match set {
            Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS) if may_change() => Ok(()),
            set => Ok(set?),
        }
    }

    /// Returns the permission bits to set. An unprivileged sender keeps the existing set-ID bits,
    /// such as set-group-ID that a directory inherited, and gives no one rights to a set-ID file.
    fn bits_of(&self, mode: u32, found: &Stat, is_harmless: bool) -> u32 {
        if self.privileged && is_harmless {
            return mode;
        }
        let kept = found.st_mode & SET_ID_BITS;
        let granted = if is_set_id_file(found) {
            found.st_mode
        } else {
            ALL_BITS
        };
        (mode & granted & !SET_ID_BITS) | kept
    }

    /// Sets owner, mode and time of a FIFO, socket file or device opened with `O_PATH`. Set-ID bits
    /// have no meaning for these types. Without `/proc` mode and time stay unchanged.
    pub(crate) fn apply_to_node(&self, node: &OwnedFd) -> io::Result<()> {
        if let Some(owner) = self.owner {
            own(
                |uid, gid| chownat(node, "", uid, gid, AtFlags::EMPTY_PATH),
                owner,
            )?;
        }
        let path = proc_path(node);
        if let Some(mode) = self.mode {
            match chmod(&path, Mode::from_raw_mode(mode & !SET_ID_BITS)) {
                Err(Errno::NOENT) => {}
                set => self.accept_mode(set, &fstat(node)?)?,
            }
        }
        match self.mtime {
            Some(mtime) => set_time(node, mtime),
            None => Ok(()),
        }
    }

    /// Sets owner, extended attributes and modification time of a new symbolic link opened with
    /// `O_PATH`. A link has no mode. Sets extended attributes only as root, for a privileged sender,
    /// and if the owner was set. Without `/proc` they and the time stay unchanged.
    pub(crate) fn apply_to_link(&self, link: &OwnedFd) -> io::Result<()> {
        let change = |uid, gid| chownat(link, "", uid, gid, AtFlags::EMPTY_PATH);
        let owner_kept = self.owner.map(|owner| own(change, owner)).transpose()?;
        if let (Some(xattrs), Some(true), true) =
            (&self.xattrs, owner_kept, is_root() && self.privileged)
        {
            set_link_xattrs(link, xattrs)?;
        }
        match self.mtime {
            Some(mtime) => set_time(link, mtime),
            None => Ok(()),
        }
    }
}

/// Returns true for a regular file that runs with the rights of its owner or group.
fn is_set_id_file(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        && stat.st_mode & SET_ID_BITS != 0
}

/// Returns the file creation mask of the process, read from /proc because umask(2) would change it
/// for all threads; 0o022 without /proc.
pub(crate) fn umask() -> u32 {
    // The second line, behind the name of at most 16 bytes.
    let mut status = [0; 256];
    let read = File::open("/proc/self/status").and_then(|mut file| file.read(&mut status));
    let status = String::from_utf8_lossy(&status[..read.unwrap_or(0)]);
    let mask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    mask.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok())
        .unwrap_or(0o022)
}

/// Returns the permission bits that new files in a directory do not get: those that the directory's
/// default ACL withholds, otherwise `umask`, as the kernel decides (acl(5)).
pub(crate) fn creation_mask(dir: impl AsFd, umask: u32) -> u32 {
    default_acl_bits(dir).map_or(umask, |bits| 0o777 & !bits)
}

/// Returns the permission bits that a file of an offer gets, under the creation mask `mask`.
pub(crate) fn mode_of(offer: &Offer, options: PutOptions, mask: u32) -> u32 {
    let mask = if options.preserve { 0 } else { mask };
    offer.mode & 0o777 & !mask
}

pub(crate) fn mtime_of(stat: &Stat) -> Timestamp {
    Timestamp {
        seconds: stat.st_mtime,
        nanoseconds: stat.st_mtime_nsec as u32,
    }
}

pub(crate) fn owner_of(stat: &Stat) -> Owner {
    Owner {
        uid: stat.st_uid,
        gid: stat.st_gid,
    }
}

pub(super) fn times_of(mtime: Timestamp) -> Timestamps {
    let mtime = Timespec {
        tv_sec: mtime.seconds,
        tv_nsec: mtime.nanoseconds.min(999_999_999).into(),
    };
    Timestamps {
        last_access: mtime,
        last_modification: mtime,
    }
}

/// Sets the times of an object opened with `O_PATH` through its path in `/proc`, which leads to
/// the object itself, also to a symbolic link. Does nothing if `/proc` is not mounted.
fn set_time(object: &OwnedFd, mtime: Timestamp) -> io::Result<()> {
    match utimensat(CWD, proc_path(object), &times_of(mtime), AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        set => Ok(set?),
    }
}

/// Sets user and group of a file; returns true if both were set. A process without the privilege
/// sets only the group, which must be one of its groups.
fn own(
    chown: impl Fn(Option<Uid>, Option<Gid>) -> rustix::io::Result<()>,
    owner: Owner,
) -> io::Result<bool> {
    // The highest number means "unchanged" to the kernel.
    if owner.uid == u32::MAX || owner.gid == u32::MAX {
        return Ok(false);
    }
    let gid = Some(Gid::from_raw(owner.gid));
    match chown(Some(Uid::from_raw(owner.uid)), gid) {
        Err(Errno::PERM | Errno::INVAL) => {
            let _ = chown(None, gid);
            Ok(false)
        }
        other => Ok(other.map(|()| true)?),
    }
}

/// Mask of all permission bits, with set-user-ID, set-group-ID and sticky.
const ALL_BITS: u32 = 0o7777;

/// Mask of the set-user-ID and set-group-ID bits.
pub(crate) const SET_ID_BITS: u32 = 0o6000;
