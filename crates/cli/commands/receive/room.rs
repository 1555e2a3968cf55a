//! Whether a directory takes what a sender offers.

use std::{
    fmt,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use nicstripe::invitation::Item;

use crate::{
    process::free_bytes,
    text::{quantity::Size, shown},
};

/// Room for an offer in a directory, before anything is written.
pub(super) struct Room {
    dir: PathBuf,
    /// Free bytes; `None` if the file system does not tell.
    free: Option<u64>,
    offered: u64,
}

impl Room {
    pub(super) fn of(items: &[Item], dir: &Path) -> Self {
        let bytes = items.iter().map(|item| item.bytes);
        Self {
            dir: dir.to_owned(),
            free: free_bytes(dir),
            offered: bytes.fold(0, u64::saturating_add),
        }
    }

    /// Returns a remark if the offer is larger than the room. It may fit all the same: holes take no
    /// room, and a part may have arrived before.
    pub(super) fn shortage(&self) -> Option<Shortage<'_>> {
        let free = self.free.filter(|free| *free < self.offered)?;
        Some(Shortage { room: self, free })
    }

    /// Returns why this end could not write; `None` if nothing is known to be in the way.
    pub(super) fn obstacle(&self) -> Option<String> {
        match takes_a_file(&self.dir) {
            Err(error) => Some(format!("cannot write to {}: {error}", shown(&self.dir))),
            Ok(()) => self.shortage().map(|shortage| shortage.to_string()),
        }
    }
}

/// More was offered than there was room.
pub(super) struct Shortage<'a> {
    room: &'a Room,
    free: u64,
}

impl fmt::Display for Shortage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (dir, offered) = (shown(&self.room.dir), Size(self.room.offered));
        write!(
            f,
            "{dir} has {} free, {offered} are offered",
            Size(self.free)
        )
    }
}

/// Checks that a directory takes a file. Leaves nothing there.
pub(super) fn takes_a_file(dir: &Path) -> io::Result<()> {
    tempfile::tempfile_in(dir)?.write_all(b"x")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_room_and_a_directory_that_takes_no_file_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let room = |dir: &Path, free| Room {
            dir: dir.to_owned(),
            free,
            offered: 20 << 20,
        };
        assert_eq!(room(dir.path(), Some(20 << 20)).obstacle(), None);
        assert_eq!(room(dir.path(), None).obstacle(), None);
        let short = room(dir.path(), Some(2 << 20)).obstacle().unwrap();
        assert!(
            short.ends_with(" has 2.0 MiB free, 20.0 MiB are offered"),
            "{short}"
        );
        let none = room(Path::new("/proc"), None).obstacle().unwrap();
        assert!(none.starts_with("cannot write to /proc: "), "{none}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
