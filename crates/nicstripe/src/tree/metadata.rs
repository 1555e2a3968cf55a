//! FIFOs, socket files and devices, as an entry describes them.

use nicstripe_proto::tree::{Node, NodeKind};
use rustix::fs::{FileType, Stat, major, minor};

/// Returns the type and device number of a FIFO, socket or device; `None` for other file types.
pub(super) fn node_of(kind: FileType, stat: &Stat) -> Option<Node> {
    let kind = match kind {
        FileType::Fifo => NodeKind::Fifo,
        FileType::Socket => NodeKind::Socket,
        FileType::CharacterDevice => NodeKind::CharDevice,
        FileType::BlockDevice => NodeKind::BlockDevice,
        _ => return None,
    };
    let (major, minor) = if kind.is_device() {
        (major(stat.st_rdev), minor(stat.st_rdev))
    } else {
        (0, 0)
    };
    Some(Node { kind, major, minor })
}
