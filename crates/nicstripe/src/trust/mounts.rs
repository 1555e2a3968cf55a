//! Mounts of this process: directories that show another directory of the same file system (bind
//! mounts).
//!
//! A bind mount shows files under a second path, where no walk along the first one meets it. The
//! table of mounts has both paths. It is read as text and no mount point is looked up, because an
//! NFS server that does not answer would block that.

use std::{
    ffi::OsString,
    fs, io,
    os::unix::ffi::OsStringExt as _,
    path::{Path, PathBuf},
};

#[derive(Debug)]
pub(super) struct Mounts(Vec<Mount>);

#[derive(Debug, PartialEq, Eq)]
struct Mount {
    /// Device number of the file system as `major:minor`.
    device: Vec<u8>,
    /// Directory or file that is mounted, as an absolute path within its file system.
    root: PathBuf,
    point: PathBuf,
}

impl Mounts {
    /// Reads `/proc/self/mountinfo`.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or a line has another form. No answer may rest on the other lines.
    pub(super) fn read() -> io::Result<Self> {
        let failed = |cause: io::Error| {
            io::Error::new(cause.kind(), format!("cannot read {MOUNTS}: {cause}"))
        };
        Self::parse(&fs::read(MOUNTS).map_err(failed)?)
    }

    fn parse(text: &[u8]) -> io::Result<Self> {
        let lines = text.split(|byte| *byte == b'\n');
        let mounts = lines.filter(|line| !line.is_empty()).map(|line| {
            Mount::parse(line).ok_or_else(|| {
                let line = String::from_utf8_lossy(line);
                let why = format!("unexpected line in {MOUNTS}: {line:?}");
                io::Error::new(io::ErrorKind::InvalidData, why)
            })
        });
        let mounts = mounts.collect::<io::Result<Vec<_>>>()?;
        match mounts.is_empty() {
            true => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{MOUNTS} is empty"),
            )),
            false => Ok(Self(mounts)),
        }
    }

    /// Returns true if the directory `outer` contains `inner`, or shows it by a mount beneath
    /// `outer`. Both are absolute paths without symbolic links.
    ///
    /// A path counts as a path of each mount that lies above it, also of one that another mount
    /// covers: what is covered may be visible elsewhere.
    pub(super) fn shows(&self, outer: &Path, inner: &Path) -> bool {
        let places: Vec<(&[u8], PathBuf)> = self
            .0
            .iter()
            .filter_map(|mount| Some((mount.device.as_slice(), mount.place_of(inner)?)))
            .collect();
        self.0.iter().any(|mount| {
            mount.top_in(outer).is_some_and(|top| {
                places
                    .iter()
                    .any(|(device, place)| *device == mount.device && place.starts_with(&top))
            })
        })
    }
}

impl Mount {
    /// Parses `id parent major:minor root mount-point options [fields…] - type source
    /// super-options` (proc_pid_mountinfo(5)).
    fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b' ');
        let device = fields.nth(2)?;
        let (root, point) = (fields.next()?, fields.next()?);
        let is_device = device.split(|byte| *byte == b':').count() == 2
            && device.iter().all(|byte| matches!(byte, b'0'..=b'9' | b':'));
        let point = unescaped(point);
        // The roots of some file systems are no paths, such as `net:[4026531840]`.
        (is_device && point.is_absolute()).then(|| Self {
            device: device.to_owned(),
            root: unescaped(root),
            point,
        })
    }

    /// Returns the path of an entry within the file system, if it lies at or beneath the mount
    /// point.
    fn place_of(&self, path: &Path) -> Option<PathBuf> {
        let below = path.strip_prefix(&self.point).ok()?;
        Some(self.root.join(below))
    }

    /// Returns the topmost path within the file system that the directory `outer` shows, if any.
    fn top_in(&self, outer: &Path) -> Option<PathBuf> {
        match self.point.starts_with(outer) {
            true => Some(self.root.clone()),
            false => self.place_of(outer),
        }
    }
}

/// Decodes the octal escapes of spaces, tabs, line ends and backslashes, such as `\040`.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, behind)) = rest.split_first() {
        let escaped = match rest {
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] => {
                Some((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'))
            }
            _ => None,
        };
        bytes.push(escaped.unwrap_or(*first));
        rest = match escaped {
            Some(_) => &rest[4..],
            None => behind,
        };
    }
    OsString::from_vec(bytes).into()
}

const MOUNTS: &str = "/proc/self/mountinfo";

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Root file system on 254:0 with `/srv/keys` mounted at `/etc/nicstripe`, one disk at `/data`
    /// and `/mnt/my disk`, and other binds of both.
    const TABLE: &str = "\
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
22 27 0:21 / /proc rw,relatime - proc proc rw
30 27 254:0 /srv/keys /etc/nicstripe rw - ext4 /dev/vda rw
31 27 8:1 / /data rw - xfs /dev/sda1 rw
32 27 8:1 /photos /mnt/my\\040disk\\134 rw master:2 - xfs /dev/sda1 rw
33 31 254:0 /home/me /data/homes/me rw - ext4 /dev/vda rw
34 27 254:0 /etc/secret/peers /pub/p rw - ext4 /dev/vda rw
35 27 0:4 net:[4026531840] /run/netns/a rw shared:9 - nsfs nsfs rw
";

    fn shows(outer: &str, inner: &str) -> bool {
        let mounts = Mounts::parse(TABLE.as_bytes()).unwrap();
        mounts.shows(Path::new(outer), Path::new(inner))
    }

    #[test]
    fn a_directory_is_found_beneath_another_by_a_bind_mount_and_its_neighbours_are_not() {
        for (outer, inner) in [
            ("/home", "/home/me/.config/nicstripe"),
            ("/data", "/home/me/.config/nicstripe"),
            ("/data/homes", "/home/me/.config/nicstripe"),
            ("/data/homes/me/.config", "/home/me/.config/nicstripe"),
            ("/home/me/.config", "/data/homes/me/.config/nicstripe"),
            ("/pub", "/etc/secret/peers"),
            // The key folder itself is the bind mount.
            ("/srv", "/etc/nicstripe/identity"),
            ("/srv/keys", "/etc/nicstripe"),
            ("/mnt", "/data/photos/key"),
            ("/mnt/my disk\\", "/data/photos/key"),
            ("/data/photos", "/mnt/my disk\\/key"),
            ("/", "/data/photos/key"),
        ] {
            assert!(shows(outer, inner), "{outer} {inner}");
        }
        for (outer, inner) in [
            ("/home/other", "/home/me/.config/nicstripe"),
            ("/data/homes/me/shared", "/home/me/.config/nicstripe"),
            ("/data/photos", "/home/me/.config/nicstripe"),
            ("/data/photos", "/data/photographs/key"),
            ("/pub", "/etc/secret/identity"),
            ("/srv/files", "/etc/nicstripe/identity"),
            ("/mnt", "/data/key"),
            ("/run", "/etc/nicstripe/identity"),
        ] {
            assert!(!shows(outer, inner), "{outer} {inner}");
        }
    }

    #[test]
    fn a_table_that_is_not_understood_is_an_error() {
        for text in [
            "",
            "\n",
            "27 1 254:0 /\n",
            "27 1 254 / / rw - ext4 /dev/vda rw\n",
            "27 1 ext4 / / rw - ext4 /dev/vda rw\n",
            "27 1 254:0 / relative rw - ext4 /dev/vda rw\n",
            "27 1 254:0 / / rw - ext4 /dev/vda rw\nx\n",
        ] {
            assert!(Mounts::parse(text.as_bytes()).is_err(), "{text:?}");
        }
    }

    #[test]
    fn escapes_are_decoded_and_what_is_none_stays() {
        for (field, expected) in [
            ("/a\\040b\\011c\\012d\\134e", "/a b\tc\nd\\e"),
            ("/a\\04", "/a\\04"),
            ("/a\\", "/a\\"),
            ("/a\\999", "/a\\999"),
            ("/a\\400", "/a\\400"),
        ] {
            assert_eq!(unescaped(field.as_bytes()), Path::new(expected), "{field}");
        }
        assert_eq!(
            unescaped(b"/\\377\xfe"),
            PathBuf::from(OsString::from_vec(vec![b'/', 0xff, 0xfe]))
        );
    }

    #[test]
    fn the_kernels_own_table_is_understood() {
        let mounts = Mounts::read().unwrap();
        assert!(mounts.shows(Path::new("/"), Path::new("/proc/self")));
    }
}
