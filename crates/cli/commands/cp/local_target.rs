//! Local targets that are not regular files: links, devices and FIFOs.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::{
        fd::AsRawFd as _,
        unix::fs::{FileTypeExt as _, OpenOptionsExt as _},
    },
    path::{Path, PathBuf},
};

use rustix::fs::OFlags;

use super::{copy_kind::CopyKind, outlet::Outlet};
use crate::failure::{Failure, Fault, exit::Exit};

/// Follows the local target of a single file, as cp(1) does: a link to a file is kept and its file
/// replaced, and what arrives for a character device or a FIFO is written into it, once another
/// process reads from the FIFO. Sockets and links that lead nowhere are refused.
///
/// The kernel follows the link, which it refuses for another user's link in a folder such as /tmp
/// (`fs.protected_symlinks`), and the object that it opens decides.
pub(super) fn follow(kind: CopyKind) -> Result<CopyKind, Failure> {
    let CopyKind::Get { name, target } = kind else {
        return Ok(kind);
    };
    let is_link = fs::symlink_metadata(&target).is_ok_and(|found| found.is_symlink());
    let failed = Failure::writing(&target);
    let object = match open_object(&target) {
        Ok(object) => object,
        Err(error) if is_link && error.kind() == io::ErrorKind::NotFound => {
            let text = format!("cannot write {target:?}: it is a symbolic link to a missing file");
            return Err(Fault::new(Exit::Files, text).into());
        }
        Err(error) if is_link => return Err(failed(error)),
        // The copy itself reports what is wrong with its target.
        Err(_) => return Ok(CopyKind::Get { name, target }),
    };
    let here = PathBuf::from(format!("/proc/self/fd/{}", object.as_raw_fd()));
    let found = object.metadata().map_err(failed)?;
    let of = found.file_type();
    if of.is_fifo() || of.is_char_device() {
        let file = OpenOptions::new().write(true).open(here).map_err(failed)?;
        let to = Some(Outlet::of(file));
        return Ok(CopyKind::GetPipe { name, to });
    }
    if of.is_socket() {
        let text = format!("cannot replace {target:?}: it is a socket");
        return Err(Fault::new(Exit::Files, text).into());
    }
    let target = match is_link && !of.is_dir() {
        true => fs::read_link(here).map_err(failed)?,
        false => target,
    };
    Ok(CopyKind::Get { name, target })
}

/// Opens a file of any type with `O_PATH`, which neither blocks on a FIFO nor calls a driver.
fn open_object(path: &Path) -> io::Result<File> {
    let flags = OFlags::PATH.bits().cast_signed();
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

#[cfg(test)]
mod tests {
    use std::{
        io::Read as _,
        os::unix::{fs::symlink, net::UnixListener},
        thread,
    };

    use nicstripe::Name;
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    fn followed(target: &Path) -> Result<CopyKind, Failure> {
        follow(CopyKind::Get {
            name: Name::parse(b"x").unwrap(),
            target: target.to_owned(),
        })
    }

    #[test]
    fn a_link_stays_and_its_file_is_the_target() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| fs::canonicalize(folder.path()).unwrap().join(name);
        fs::write(path("file"), "").unwrap();
        symlink("file", path("link")).unwrap();
        symlink("missing", path("dangling")).unwrap();
        let target = |name: &str| match followed(&path(name)) {
            Ok(CopyKind::Get { target, .. }) => target,
            other => panic!("{name}: {other:?}"),
        };
        for name in ["file", "link"] {
            assert_eq!(target(name), path("file"), "{name}");
        }
        assert_eq!(target("new"), path("new"));
        let error = followed(&path("dangling")).unwrap_err().to_string();
        assert!(error.contains("symbolic link"), "{error}");
    }

    #[test]
    fn a_device_or_a_fifo_is_written_to_and_a_socket_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (fifo, socket) = (folder.path().join("fifo"), folder.path().join("socket"));
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let _listener = UnixListener::bind(&socket).unwrap();
        let reader = {
            let fifo = fifo.clone();
            thread::spawn(move || File::open(fifo).unwrap().read_to_end(&mut Vec::new()))
        };
        for path in [Path::new("/dev/null"), &fifo] {
            let kind = followed(path).unwrap();
            assert!(
                matches!(kind, CopyKind::GetPipe { to: Some(_), .. }),
                "{kind:?}"
            );
        }
        reader.join().unwrap().unwrap();
        let error = followed(&socket).unwrap_err().to_string();
        assert!(error.contains("is a socket"), "{error}");
    }
}
