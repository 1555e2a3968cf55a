//! File system in memory, served by FUSE, that lacks what many file systems lack: those of network
//! shares, of other systems, and of memory cards.

use std::{
    cell::Cell,
    collections::{BTreeMap, HashMap},
    ffi::{OsStr, OsString},
    fs::File,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use crate::bench::Result;

use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem,
    FopenFlags, Generation, INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags,
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};

use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, unshare},
};

/// Feature that an [`OddDisk`] lacks. None of them has `fallocate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// A rename with flags is EINVAL.
    RenameFlags,
    /// link(2) is EPERM.
    HardLinks,
    /// A change of mode or owner is EPERM.
    Changes,
    /// All files are shown with mode 0777 and as those of [`NOBODY`], whatever is set.
    Owners,
    /// fsync(2) of a directory is EINVAL.
    DirectorySync,
    /// flock(2) is ENOLCK.
    Locks,
    /// Extended attributes are ENOTSUP.
    Xattrs,
    /// `O_DIRECT` is EINVAL.
    DirectIo,
    /// Names ignore the case of ASCII letters.
    Case,
    /// With [`Lack::Case`], each spelling of a name that is looked up leads to an inode number of
    /// its own, which the kernel caches for a second: FUSE without `use_ino`, SMB with `noserverino`.
    Inodes,
    /// symlink(2) is EPERM.
    Symlinks,
    /// Times are multiples of this number of nanoseconds.
    Times(u32),
}

/// Owner of all files without [`Lack::Owners`]: the user that network shares map others to.
pub const NOBODY: u32 = 65534;

/// Mounted file system. Dropping it unmounts it, also while it is in use.
pub struct OddDisk {
    shared: Arc<Shared>,
    folder: PathBuf,
    _session: BackgroundSession,
}

impl OddDisk {
    /// Mounts an empty file system on a folder, for this thread and the processes that it starts: no
    /// mount outlives them, however they end.
    pub fn mount(folder: &Path, lacks: &[Lack]) -> Result<Self> {
        let mut state = State::default();
        state
            .nodes
            .insert(ROOT, Node::new(FileType::Directory, 0o755));
        let shared = Arc::new(Shared {
            lacks: lacks.to_vec(),
            state: Mutex::new(state),
            answers: Condvar::new(),
        });
        leave_the_mounts_of_others()
            .map_err(|error| format!("cannot enter a mount namespace: {error}"))?;
        let session = fuser::spawn_mount(Server(Arc::clone(&shared)), folder, &Config::default())
            .map_err(|error| format!("cannot mount a FUSE file system: {error}"))?;
        Ok(Self {
            shared,
            folder: folder.to_owned(),
            _session: session,
        })
    }

    /// Answers no more calls until [`OddDisk::release`].
    pub fn stall(&self) {
        self.shared.set_stalled(true);
    }

    /// Answers calls again.
    pub fn release(&self) {
        self.shared.set_stalled(false);
    }
}

impl Drop for OddDisk {
    fn drop(&mut self) {
        self.release();
        // The session would leave a disk in use mounted.
        let _ = umount2(&self.folder, MntFlags::MNT_DETACH);
    }
}

/// Moves this thread into its own mount namespace, unless it is in one.
fn leave_the_mounts_of_others() -> nix::Result<()> {
    thread_local!(static HAS_LEFT: Cell<bool> = const { Cell::new(false) });
    if !HAS_LEFT.get() {
        unshare(CloneFlags::CLONE_NEWNS)?;
        let (none, private) = (None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE);
        mount(none, "/", none, private, none)?;
        HAS_LEFT.set(true);
    }
    Ok(())
}

/// Returns the reason why this machine cannot mount an [`OddDisk`]; `None` if it can.
pub fn obstacle() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("only root may mount".to_owned());
    }
    let device = File::options().read(true).write(true).open("/dev/fuse");
    device
        .err()
        .map(|error| format!("cannot open /dev/fuse: {error}"))
}

#[derive(Debug)]
struct Shared {
    lacks: Vec<Lack>,
    state: Mutex<State>,
    answers: Condvar,
}

impl Shared {
    fn set_stalled(&self, is_stalled: bool) {
        self.lock().is_stalled = is_stalled;
        self.answers.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the file system answers.
    fn enter(&self) -> MutexGuard<'_, State> {
        self.answers
            .wait_while(self.lock(), |state| state.is_stalled)
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn lacks(&self, lack: Lack) -> bool {
        self.lacks.contains(&lack)
    }

    /// Returns the key of a name in its directory.
    fn key(&self, name: &OsStr) -> OsString {
        if self.lacks(Lack::Case) {
            OsString::from(OsStr::from_bytes(&name.as_bytes().to_ascii_lowercase()))
        } else {
            name.to_owned()
        }
    }

    fn rounded(&self, time: SystemTime) -> SystemTime {
        let unit = self.lacks.iter().find_map(|lack| match lack {
            Lack::Times(unit) => Some(u128::from(*unit)),
            _ => None,
        });
        let (Some(unit), Ok(since)) = (unit, time.duration_since(UNIX_EPOCH)) else {
            return time;
        };
        let nanos = since.as_nanos() / unit * unit;
        UNIX_EPOCH
            + Duration::new(
                (nanos / 1_000_000_000) as u64,
                (nanos % 1_000_000_000) as u32,
            )
    }

    fn now(&self) -> SystemTime {
        self.rounded(SystemTime::now())
    }

    fn attributes(&self, inode: INodeNo, node: &Node) -> FileAttr {
        let size = node.data.len() as u64;
        let (perm, uid) = if self.lacks(Lack::Owners) {
            (0o777, NOBODY)
        } else {
            (node.mode, node.uid)
        };
        FileAttr {
            ino: inode,
            size,
            blocks: size.div_ceil(512),
            atime: node.mtime,
            mtime: node.mtime,
            ctime: node.mtime,
            crtime: node.mtime,
            kind: node.kind,
            perm,
            nlink: node.links,
            uid,
            gid: if self.lacks(Lack::Owners) {
                NOBODY
            } else {
                node.gid
            },
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    /// Adds an object to a directory. Returns its attributes.
    fn add(&self, parent: INodeNo, name: &OsStr, node: Node) -> DiskResult<FileAttr> {
        let mut state = self.enter();
        let key = self.key(name);
        if state.node(parent)?.entries.contains_key(&key) {
            return Err(Errno::EEXIST);
        }
        state.last += 1;
        let inode = INodeNo(ROOT.0 + state.last);
        let node = Node {
            mtime: self.now(),
            ..node
        };
        let attributes = self.attributes(inode, &node);
        state.nodes.insert(inode, node);
        state
            .node(parent)?
            .entries
            .insert(key, (name.to_owned(), inode));
        Ok(attributes)
    }

    fn remove(&self, parent: INodeNo, name: &OsStr, is_dir: bool) -> DiskResult<()> {
        let mut state = self.enter();
        let key = self.key(name);
        let (_, inode) = state
            .node(parent)?
            .entries
            .get(&key)
            .ok_or(Errno::ENOENT)?
            .clone();
        let node = state.node(inode)?;
        match (is_dir, node.kind == FileType::Directory) {
            (true, false) => return Err(Errno::ENOTDIR),
            (false, true) => return Err(Errno::EISDIR),
            _ if !node.entries.is_empty() => return Err(Errno::ENOTEMPTY),
            _ => {}
        }
        // Nodes stay after their last name is gone: they may be open.
        node.links -= 1;
        state.node(parent)?.entries.remove(&key);
        Ok(())
    }

    fn rename(&self, from: (INodeNo, &OsStr), to: (INodeNo, &OsStr), flags: u32) -> DiskResult<()> {
        const NOREPLACE: u32 = 1;
        if flags != 0 && (self.lacks(Lack::RenameFlags) || flags != NOREPLACE) {
            return Err(Errno::EINVAL);
        }
        let mut state = self.enter();
        let (old, new) = (self.key(from.1), self.key(to.1));
        let moved = state
            .node(from.0)?
            .entries
            .get(&old)
            .ok_or(Errno::ENOENT)?
            .1;
        if let Some((_, found)) = state.node(to.0)?.entries.get(&new).cloned() {
            if found == moved && old != new {
                return Ok(());
            }
            if flags == NOREPLACE {
                return Err(Errno::EEXIST);
            }
            let replaced = state.node(found)?;
            if !replaced.entries.is_empty() {
                return Err(Errno::ENOTEMPTY);
            }
            replaced.links -= u32::from(found != moved);
        }
        state.node(from.0)?.entries.remove(&old);
        state
            .node(to.0)?
            .entries
            .insert(new, (to.1.to_owned(), moved));
        Ok(())
    }
}

#[derive(Debug, Default)]
struct State {
    nodes: HashMap<INodeNo, Node>,
    /// Entries of open directories, by handle.
    listings: HashMap<u64, Vec<(INodeNo, FileType, OsString)>>,
    /// Inodes of nodes, by the other inode numbers that spellings of their names have.
    aliases: HashMap<INodeNo, INodeNo>,
    /// Those numbers, by node and spelling.
    spellings: HashMap<(INodeNo, OsString), INodeNo>,
    /// Last number given to a node or handle.
    last: u64,
    is_stalled: bool,
}

impl State {
    fn node(&mut self, inode: INodeNo) -> DiskResult<&mut Node> {
        let inode = self.aliases.get(&inode).unwrap_or(&inode);
        self.nodes.get_mut(inode).ok_or(Errno::ENOENT)
    }

    /// Returns the inode number that a spelling of the name of a node has.
    fn alias(&mut self, inode: INodeNo, spelling: &OsStr) -> INodeNo {
        let Self {
            last, spellings, ..
        } = self;
        let alias = *spellings
            .entry((inode, spelling.to_owned()))
            .or_insert_with(|| {
                *last += 1;
                INodeNo(ROOT.0 + *last)
            });
        self.aliases.insert(alias, inode);
        alias
    }

    /// Adds a name of an existing object, which it returns.
    fn link(
        &mut self,
        inode: INodeNo,
        parent: INodeNo,
        key: OsString,
        name: &OsStr,
    ) -> DiskResult<&Node> {
        let inode = *self.aliases.get(&inode).unwrap_or(&inode);
        let dir = self.node(parent)?;
        if dir.entries.contains_key(&key) {
            return Err(Errno::EEXIST);
        }
        dir.entries.insert(key, (name.to_owned(), inode));
        let node = self.node(inode)?;
        node.links += 1;
        Ok(node)
    }
}

#[derive(Debug)]
struct Node {
    kind: FileType,
    mode: u16,
    uid: u32,
    gid: u32,
    links: u32,
    mtime: SystemTime,
    /// Content of a file, or target of a symbolic link.
    data: Vec<u8>,
    /// Names and inodes of a directory, by key.
    entries: BTreeMap<OsString, (OsString, INodeNo)>,
    xattrs: BTreeMap<OsString, Vec<u8>>,
}

impl Node {
    fn new(kind: FileType, mode: u32) -> Self {
        Self {
            kind,
            mode: (mode & 0o7777) as u16,
            uid: 0,
            gid: 0,
            links: 1,
            mtime: UNIX_EPOCH,
            data: Vec::new(),
            entries: BTreeMap::new(),
            xattrs: BTreeMap::new(),
        }
    }
}

type DiskResult<T> = std::result::Result<T, Errno>;

struct Server(Arc<Shared>);

/// Sends an answer, or its error.
macro_rules! send {
    ($reply:expr, $answer:expr, $sent:ident => $send:expr) => {
        match $answer {
            Ok($sent) => $send,
            Err(error) => $reply.error(error),
        }
    };
}

impl Filesystem for Server {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        if self.0.lacks(Lack::Locks) {
            // Otherwise the kernel grants the locks itself.
            let _ = config.add_capabilities(InitFlags::FUSE_FLOCK_LOCKS);
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let mut state = self.0.enter();
        let key = self.0.key(name);
        let has_one = !self.0.lacks(Lack::Inodes);
        let answer = state.node(parent).and_then(|dir| {
            let (spelling, inode) = dir.entries.get(&key).ok_or(Errno::ENOENT)?;
            Ok((has_one || spelling == name, *inode))
        });
        let answer = answer.and_then(|(is_own, inode)| {
            let inode = if is_own {
                inode
            } else {
                state.alias(inode, name)
            };
            Ok(self.0.attributes(inode, state.node(inode)?))
        });
        let ttl = if has_one { TTL } else { Duration::from_secs(1) };
        send!(reply, answer, found => reply.entry(&ttl, &found, Generation(0)));
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let mut state = self.0.enter();
        let answer = state.node(inode).map(|node| self.0.attributes(inode, node));
        send!(reply, answer, found => reply.attr(&TTL, &found));
    }

    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut state = self.0.enter();
        let changes = mode.is_some() || uid.is_some() || gid.is_some();
        let answer = state.node(inode).and_then(|node| {
            if changes && self.0.lacks(Lack::Changes) {
                return Err(Errno::EPERM);
            }
            node.mode = mode.map_or(node.mode, |mode| (mode & 0o7777) as u16);
            node.uid = uid.unwrap_or(node.uid);
            node.gid = gid.unwrap_or(node.gid);
            if let Some(size) = size {
                node.data.resize(size as usize, 0);
                node.mtime = self.0.now();
            }
            match mtime {
                Some(TimeOrNow::SpecificTime(time)) => node.mtime = self.0.rounded(time),
                Some(TimeOrNow::Now) => node.mtime = self.0.now(),
                None => {}
            }
            Ok(self.0.attributes(inode, node))
        });
        send!(reply, answer, found => reply.attr(&TTL, &found));
    }

    fn readlink(&self, _: &Request, inode: INodeNo, reply: ReplyData) {
        let mut state = self.0.enter();
        send!(reply, state.node(inode), node => reply.data(&node.data));
    }

    fn mkdir(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let node = Node::new(FileType::Directory, mode & !umask);
        send!(reply, self.0.add(parent, name, node), made => reply.entry(&TTL, &made, Generation(0)));
    }

    fn symlink(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        if self.0.lacks(Lack::Symlinks) {
            return reply.error(Errno::EPERM);
        }
        let node = Node {
            data: target.as_os_str().as_bytes().to_vec(),
            ..Node::new(FileType::Symlink, 0o777)
        };
        send!(reply, self.0.add(parent, name, node), made => reply.entry(&TTL, &made, Generation(0)));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        send!(reply, self.0.remove(parent, name, false), _done => reply.ok());
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        send!(reply, self.0.remove(parent, name, true), _done => reply.ok());
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let renamed = self
            .0
            .rename((parent, name), (new_parent, new_name), flags.bits());
        send!(reply, renamed, _done => reply.ok());
    }

    fn link(&self, _: &Request, inode: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if self.0.lacks(Lack::HardLinks) {
            return reply.error(Errno::EPERM);
        }
        let mut state = self.0.enter();
        let key = self.0.key(name);
        let answer = state.link(inode, parent, key, name);
        let answer = answer.map(|node| self.0.attributes(inode, node));
        send!(reply, answer, made => reply.entry(&TTL, &made, Generation(0)));
    }

    fn open(&self, _: &Request, _: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let _entered = self.0.enter();
        let is_direct = flags.0 & rustix::fs::OFlags::DIRECT.bits() as i32 != 0;
        if is_direct && self.0.lacks(Lack::DirectIo) {
            return reply.error(Errno::EINVAL);
        }
        reply.opened(FileHandle(0), FopenFlags::empty());
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        let node = Node::new(FileType::RegularFile, mode & !umask);
        send!(reply, self.0.add(parent, name, node), made => {
            reply.created(&TTL, &made, Generation(0), FileHandle(0), FopenFlags::empty());
        });
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        at: u64,
        len: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut state = self.0.enter();
        send!(reply, state.node(inode), node => {
            let start = node.data.len().min(at as usize);
            let end = node.data.len().min(start + len as usize);
            reply.data(&node.data[start..end]);
        });
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        at: u64,
        bytes: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let mut state = self.0.enter();
        send!(reply, state.node(inode), node => {
            let end = at as usize + bytes.len();
            if node.data.len() < end {
                node.data.resize(end, 0);
            }
            node.data[at as usize..end].copy_from_slice(bytes);
            node.mtime = self.0.now();
            reply.written(bytes.len() as u32);
        });
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let _entered = self.0.enter();
        reply.ok();
    }

    fn opendir(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let mut state = self.0.enter();
        let entries: Vec<_> = match state.node(inode) {
            Ok(node) => node.entries.values().cloned().collect(),
            Err(error) => return reply.error(error),
        };
        let kind_of = |inode: INodeNo| state.nodes.get(&inode).map(|node| node.kind);
        let listing = entries
            .into_iter()
            .filter_map(|(name, inode)| Some((inode, kind_of(inode)?, name)))
            .collect();
        state.last += 1;
        let handle = state.last;
        state.listings.insert(handle, listing);
        reply.opened(FileHandle(handle), FopenFlags::empty());
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let state = self.0.enter();
        let listing = state.listings.get(&handle.0).into_iter().flatten();
        for (at, (inode, kind, name)) in listing.enumerate().skip(offset as usize) {
            if reply.add(*inode, at as u64 + 1, *kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.0.lock().listings.remove(&handle.0);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let _entered = self.0.enter();
        if self.0.lacks(Lack::DirectorySync) {
            reply.error(Errno::EINVAL);
        } else {
            reply.ok();
        }
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let _entered = self.0.enter();
        reply.statfs(1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20, 4096, 255, 4096);
    }

    fn setxattr(
        &self,
        _: &Request,
        inode: INodeNo,
        name: &OsStr,
        value: &[u8],
        _: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        if self.0.lacks(Lack::Xattrs) {
            return reply.error(Errno::ENOTSUP);
        }
        let mut state = self.0.enter();
        send!(reply, state.node(inode), node => {
            node.xattrs.insert(name.to_owned(), value.to_vec());
            reply.ok();
        });
    }

    fn getxattr(&self, _: &Request, inode: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        if self.0.lacks(Lack::Xattrs) {
            return reply.error(Errno::ENOTSUP);
        }
        let mut state = self.0.enter();
        let answer = state
            .node(inode)
            .and_then(|node| node.xattrs.get(name).ok_or(Errno::ENODATA));
        send!(reply, answer, value => send_xattr(reply, size, value));
    }

    fn listxattr(&self, _: &Request, inode: INodeNo, size: u32, reply: ReplyXattr) {
        if self.0.lacks(Lack::Xattrs) {
            return reply.error(Errno::ENOTSUP);
        }
        let mut state = self.0.enter();
        send!(reply, state.node(inode), node => {
            let names = node.xattrs.keys().flat_map(|name| [name.as_bytes(), b"\0"]);
            send_xattr(reply, size, &names.flatten().copied().collect::<Vec<u8>>());
        });
    }

    fn removexattr(&self, _: &Request, inode: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        if self.0.lacks(Lack::Xattrs) {
            return reply.error(Errno::ENOTSUP);
        }
        let mut state = self.0.enter();
        let removed = state
            .node(inode)
            .and_then(|node| node.xattrs.remove(name).ok_or(Errno::ENODATA));
        send!(reply, removed, _value => reply.ok());
    }

    fn setlk(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: LockOwner,
        _: u64,
        _: u64,
        _: i32,
        _: u32,
        _: bool,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::ENOLCK);
    }
}

/// Answers a read of extended attributes: with their size if the caller gave no room.
fn send_xattr(reply: ReplyXattr, room: u32, value: &[u8]) {
    if room == 0 {
        reply.size(value.len() as u32);
    } else if value.len() > room as usize {
        reply.error(Errno::ERANGE);
    } else {
        reply.data(value);
    }
}

const ROOT: INodeNo = INodeNo::ROOT;

/// Time for which the kernel may cache names and attributes.
const TTL: Duration = Duration::ZERO;
