//! Sources of facts: this machine, or a recorded one.

use std::{
    fs::{self, File},
    io::Read as _,
    path::Path,
};

use crate::facts::{host::HostFacts, interface::InterfaceFacts};

/// Source of the facts about one machine.
///
/// Paths are absolute, such as `/proc/stat`. A method returns nothing for a missing file, and for
/// one that it may not read.
pub trait System {
    /// Reads the first 256 KiB of a file as text. Replaces invalid UTF-8 by U+FFFD.
    fn read(&self, path: &str) -> Option<String>;

    /// Lists the names in a directory in alphabetical order, at most 4096 of them.
    fn list(&self, path: &str) -> Vec<String>;

    /// Returns the absolute path without symbolic links of an existing file or directory.
    fn follow(&self, path: &str) -> Option<String>;

    /// Lists the interfaces in order of their indices, with the answers of the kernel and drivers
    /// to requests. [`Facts::read`](crate::facts::Facts::read) adds the facts from files.
    fn interfaces(&self) -> Vec<InterfaceFacts>;

    /// Returns the answers to system calls about the machine and this process. Facts that are
    /// missing are read from files.
    fn host(&self) -> HostFacts {
        HostFacts::default()
    }

    /// Returns the number of periods in which a control group's quota stopped this process.
    fn throttled_periods(&self) -> Option<u64> {
        None
    }

    /// Returns the number of destinations whose TCP metrics the kernel has cached.
    fn cached_destinations(&self) -> Option<u32> {
        None
    }
}

/// Maximum length of a text that [`System::read`] returns, in bytes. `/proc/interrupts` and
/// `/proc/cpuinfo` are longer on machines with more than about 100 processors.
pub(crate) const MOST_BYTES: u64 = 256 << 10;
/// Maximum number of names that [`System::list`] returns (picked by eye).
pub(crate) const MOST_NAMES: usize = 4096;

/// Reads the first [`MOST_BYTES`] bytes of a file as text.
pub(crate) fn read_file(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    let file = File::open(path).ok()?;
    file.take(MOST_BYTES).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Lists at most [`MOST_NAMES`] names in a directory, sorted; none if it cannot be read.
pub(crate) fn list_directory(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).into_iter().flatten();
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<_> = names.take(MOST_NAMES).collect();
    names.sort_unstable();
    names
}
