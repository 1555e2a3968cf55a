//! Reads and atomic writes of reports and snapshots.

use std::{
    fs::{self, Permissions},
    io::{self, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use crate::failure::Failure;

/// Creates or replaces a file atomically: a concurrent reader sees either the old or the new
/// content. A symbolic link stays, and its target is replaced. A device or pipe, such as
/// `/dev/stdout`, is written to.
///
/// The mode is 0666 without the umask, so that a metrics collector can read the file.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    write(path, bytes).map_err(Failure::writing(path))
}

/// Checks that a report can be written to `path`. Called before the measurement, which takes
/// minutes.
pub(crate) fn check(path: &Path) -> Result<(), Failure> {
    let failed = Failure::writing(path);
    if path.is_dir() {
        return Err(failed(io::ErrorKind::IsADirectory.into()));
    }
    // Opening a FIFO would wait for its reader.
    match destination(path).map_err(failed)? {
        Some(path) => temporary(&path).map(drop).map_err(failed),
        None => Ok(()),
    }
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let Some(path) = destination(path)? else {
        let mut node = fs::OpenOptions::new().write(true).open(path)?;
        return node.write_all(bytes);
    };
    let mut file = temporary(&path)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path).map(drop).map_err(|error| error.error)
}

/// Returns the path of the file that a path names through symbolic links, or that is to be created;
/// `None` for a device or pipe.
fn destination(path: &Path) -> io::Result<Option<PathBuf>> {
    match fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => Ok(None),
        Ok(_) => fs::canonicalize(path).map(Some),
        // A dangling link is an error: its target may be on a disk that is not mounted.
        Err(error) if path.is_symlink() => Err(error),
        Err(_) => Ok(Some(path.to_owned())),
    }
}

/// Creates a temporary file next to `path`. Its name begins with a dot and ends in `.tmp`, because
/// node_exporter reads every name that ends in `.prom`.
fn temporary(path: &Path) -> io::Result<tempfile::NamedTempFile> {
    let mode = Permissions::from_mode(0o666);
    tempfile::Builder::new()
        .prefix(".nicstripe-")
        .suffix(".tmp")
        .permissions(mode)
        .tempfile_in(Path::new(".").join(path.parent().unwrap_or(path)))
}

/// Reads a file. A file larger than `most` bytes is an error.
pub(crate) fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let size = fs::metadata(path)?.len();
    if size > most {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("{size} bytes exceed the limit of {most}"),
        ));
    }
    fs::read(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_nothing_else_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bench.prom");
        check(&path).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        replace(&path, b"one").unwrap();
        replace(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert_ne!(fs::metadata(&path).unwrap().permissions().mode() & 0o400, 0);
    }

    #[test]
    fn a_link_and_a_node_stay_what_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let [path, link, node] = ["file", "link", "node"].map(|name| folder.path().join(name));
        symlink("file", &link).unwrap();
        assert!(check(&link).is_err() && replace(&link, b"one").is_err());
        fs::write(&path, "old").unwrap();
        check(&link).unwrap();
        replace(&link, b"one").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"one");
        symlink("/dev/null", &node).unwrap();
        check(&node).unwrap();
        replace(&node, b"two").unwrap();
        assert!(link.is_symlink() && node.is_symlink());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    }

    #[test]
    fn a_place_that_cannot_be_written_to_is_found_before_the_bench() {
        let folder = tempfile::tempdir().unwrap();
        assert!(check(&folder.path().join("none/bench.html")).is_err());
        assert!(check(folder.path()).is_err());
    }

    #[test]
    fn a_file_that_is_too_long_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.json");
        fs::write(&path, b"12345").unwrap();
        assert_eq!(read(&path, 5).unwrap(), b"12345");
        assert!(read(&path, 4).is_err());
    }
}
