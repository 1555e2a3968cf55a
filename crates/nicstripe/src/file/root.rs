//! Root directory of a daemon. No other module opens paths in it.

use std::{
    ffi::{OsStr, OsString},
    fs, io,
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use nicstripe_proto::Name;
use rustix::{
    fs::{CWD, FileType, Mode, OFlags, fstat, mkdirat, openat, readlinkat},
    io::Errno,
};

use super::{
    beneath::{Inode, inode_of, open_confined, stat_entry},
    disk::sync_names,
    error::{Barred, FileError},
    hidden::{check_given, check_sought, is_hidden_in},
    logins::Logins,
};
use crate::trust::Home;

/// Served directory, held open. [`open_confined`] resolves names beneath it.
///
/// Every name from a peer is checked here. Peers cannot access part files and journals, even
/// through a symbolic link.
#[derive(Debug, Clone)]
pub(crate) struct Root {
    dir: Arc<OwnedFd>,
    links: Links,
    logins: Logins,
}

/// Symbolic links that a root follows.
#[derive(Debug, Clone)]
enum Links {
    None,
    Beneath,
    /// All. Names without links still begin at the root, others are resolved from `slash`, the root
    /// of the file system.
    Anywhere {
        slash: Arc<OwnedFd>,
        start: PathBuf,
    },
}

impl Root {
    pub(crate) fn open(path: &Path) -> Result<Self, FileError> {
        let flags = OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC;
        let dir = openat(CWD, path, flags, Mode::empty())
            .map_err(|error| FileError::new("open directory", path.display(), error.into()))?;
        Ok(Self {
            dir: Arc::new(dir),
            links: Links::Beneath,
            logins: Logins::default(),
        })
    }

    /// Opens a directory at which names begin, but whose symbolic links may lead anywhere.
    pub(crate) fn unbounded(path: &Path) -> Result<Self, FileError> {
        let error = |cause| FileError::new("open directory", path.display(), cause);
        let start = fs::canonicalize(path).map_err(error)?;
        let slash = Self::open(Path::new("/"))?.dir;
        Ok(Self {
            links: Links::Anywhere {
                slash,
                start: start.strip_prefix("/").unwrap_or(&start).to_owned(),
            },
            ..Self::open(path)?
        })
    }

    pub(crate) fn of(dir: &OwnedFd) -> Result<Self, FileError> {
        let error = |cause: io::Error| FileError::new("serve", "the directory descriptor", cause);
        let stat = fstat(dir).map_err(|cause| error(cause.into()))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            return Err(error(io::ErrorKind::NotADirectory.into()));
        }
        Ok(Self {
            dir: Arc::new(dir.try_clone().map_err(error)?),
            links: Links::Beneath,
            logins: Logins::default(),
        })
    }

    /// Returns a path of the directory, which is valid as long as this root.
    pub(crate) fn descriptor_path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.dir.as_raw_fd()).into()
    }

    pub(crate) fn inode(&self) -> io::Result<Inode> {
        Ok(inode_of(&fstat(&self.dir)?))
    }

    /// Returns this root for a peer that may only add files: its paths may not contain symbolic links,
    /// because it could create links and write through them.
    pub(crate) fn without_links(&self) -> Self {
        Self {
            dir: self.dir.clone(),
            links: Links::None,
            logins: self.logins.to_appender(),
        }
    }

    /// Bars the log-in files of accounts to peers.
    pub(crate) fn barring(self, logins: &Logins) -> Self {
        Self {
            logins: logins.within(&self.dir),
            ..self
        }
    }

    pub(crate) fn logins(&self) -> &Logins {
        &self.logins
    }

    /// Checks that the directory does not contain this installation's key, peers file, settings or
    /// state, and shows them by no mount.
    pub(crate) fn outside_of(self, home: Option<&Home>, shown: &Path) -> Result<Self, FileError> {
        let error = |cause: io::Error| FileError::new("serve", shown.display(), cause);
        let Some(home) = home else { return Ok(self) };
        let found = self.inode().and_then(|inode| {
            let real = fs::read_link(format!("/proc/self/fd/{}", self.dir.as_raw_fd()))?;
            home.found_in_opened(inode, &real)
        });
        match found.map_err(error)? {
            None => Ok(self),
            Some(folder) => {
                let why = format!(
                    "it contains {}: this machine's key, list of peers, settings or state",
                    folder.display()
                );
                Err(error(io::Error::new(io::ErrorKind::PermissionDenied, why))
                    .with_code(nicstripe_proto::FailCode::Refused))
            }
        }
    }

    pub(crate) fn open_file(&self, name: &Name, flags: OFlags) -> io::Result<OwnedFd> {
        self.open_sought(Some(name), flags)
    }

    /// Opens the parent directory of an existing name. Returns it with the name's last component.
    pub(crate) fn open_parent_of<'a>(&self, name: &'a Name) -> io::Result<(OwnedFd, &'a OsStr)> {
        check_sought(name)?;
        let (parent, leaf) = self.open_parent(name)?;
        sought_in(&parent, leaf)?;
        Ok((parent, leaf))
    }

    /// Opens the parent directory of a name that is about to be created. Returns it with the name's
    /// last component.
    pub(crate) fn open_parent_for_new<'a>(
        &self,
        name: &'a Name,
    ) -> io::Result<(OwnedFd, &'a OsStr)> {
        check_given(name)?;
        let (parent, leaf) = self.open_parent(name)?;
        match is_hidden_in(&parent, leaf)? {
            true => Err(Barred::Hidden.into()),
            false => {
                self.logins.check(&parent, leaf)?;
                Ok((parent, leaf))
            }
        }
    }

    fn open_parent<'a>(&self, name: &'a Name) -> io::Result<(OwnedFd, &'a OsStr)> {
        let path = path_of(name);
        let parent = path.parent().unwrap_or(Path::new(""));
        Ok((
            self.open_beneath(parent, OFlags::DIRECTORY | OFlags::RDONLY)?,
            OsStr::from_bytes(name.file_name()),
        ))
    }

    /// Locates a directory beneath the root, or the root itself, with `O_PATH`.
    pub(crate) fn locate_directory(&self, name: Option<&Name>) -> io::Result<OwnedFd> {
        self.open_sought(name, OFlags::DIRECTORY | OFlags::PATH)
    }

    pub(crate) fn is_directory(&self, name: &Name) -> bool {
        self.locate_directory(Some(name)).is_ok()
    }

    /// Opens a directory beneath the root (`None`: the root itself) for listing, changes and syncs.
    pub(crate) fn open_directory(&self, name: Option<&Name>) -> io::Result<OwnedFd> {
        self.open_sought(name, OFlags::DIRECTORY | OFlags::RDONLY)
    }

    /// Creates a directory and its missing parents, and syncs each parent if its file system
    /// supports it.
    pub(crate) fn make_directory(&self, name: &Name) -> io::Result<()> {
        check_given(name)?;
        let mut path = PathBuf::new();
        for component in name.components().map(OsStr::from_bytes) {
            let parent = path.clone();
            path.push(component);
            match self.open_beneath(&path, OFlags::DIRECTORY | OFlags::PATH) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let parent = self.open_beneath(&parent, OFlags::DIRECTORY | OFlags::RDONLY)?;
                    self.logins.check(&parent, component)?;
                    match mkdirat(&parent, component, Mode::from_raw_mode(0o777)) {
                        Ok(()) | Err(Errno::EXIST) => {
                            drop(self.open_beneath(&path, OFlags::DIRECTORY | OFlags::PATH)?);
                            sync_names(&parent)?;
                        }
                        Err(error) => return Err(error.into()),
                    }
                }
                other => drop(other?),
            }
        }
        Ok(())
    }

    fn open_sought(&self, name: Option<&Name>, flags: OFlags) -> io::Result<OwnedFd> {
        name.map_or(Ok(()), check_sought)?;
        let opened = self.open_beneath(&name.map(path_of).unwrap_or_default(), flags)?;
        if let Some(name) = name.filter(|_| !flags.contains(OFlags::DIRECTORY)) {
            let path = path_of(name);
            let parent = path.parent().unwrap_or(Path::new(""));
            let parent = self.open_beneath(parent, OFlags::DIRECTORY | OFlags::PATH)?;
            sought_in(&parent, OsStr::from_bytes(name.file_name()))?;
        }
        Ok(opened)
    }

    fn open_beneath(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        match open_confined(&self.dir, path, flags) {
            Err(Errno::LOOP) => {
                let (dir, path) = self.resolved(path)?;
                open_confined(dir, &path, flags).map_err(|error| match error {
                    Errno::LOOP => Barred::Link.into(),
                    error => error.into(),
                })
            }
            opened => Ok(opened?),
        }
    }

    /// Resolves the symbolic links in a path and returns the equivalent path without links, and the
    /// directory that it begins at.
    ///
    /// The kernel could follow the links, but would not report their target, which must not be a
    /// part file or journal.
    fn resolved(&self, path: &Path) -> io::Result<(&OwnedFd, PathBuf)> {
        let mut ahead: Vec<OsString> = Vec::new();
        push_components(&mut ahead, path)?;
        let (dir, mut path, is_bounded) = match &self.links {
            Links::None => return Err(Barred::LinkOfAppender.into()),
            Links::Beneath => (&*self.dir, PathBuf::new(), true),
            Links::Anywhere { slash, start } => (&**slash, start.clone(), false),
        };
        let mut steps = 0;
        while let Some(next) = ahead.pop() {
            steps += 1;
            if steps > MOST_STEPS {
                return Err(Errno::LOOP.into());
            }
            if next == ".." {
                // The parent of the file system's root is the root itself.
                if !path.pop() && is_bounded {
                    return Err(Barred::Outside.into());
                }
                continue;
            }
            let parent = open_confined(dir, &path, OFlags::DIRECTORY | OFlags::PATH)?;
            sought_in(&parent, &next)?;
            path.push(next);
            let found = open_confined(dir, &path, OFlags::PATH | OFlags::NOFOLLOW)?;
            if FileType::from_raw_mode(fstat(&found)?.st_mode) == FileType::Symlink {
                path.pop();
                let target = OsString::from_vec(readlinkat(&found, "", Vec::new())?.into_bytes());
                let target = Path::new(&target);
                let target = match target.strip_prefix("/") {
                    Ok(from_slash) if !is_bounded => {
                        path.clear();
                        from_slash
                    }
                    _ => target,
                };
                push_components(&mut ahead, target)?;
            }
        }
        Ok((dir, path))
    }
}

/// Checks that a name does not lead to a hidden file, which does not exist for peers.
fn sought_in(dir: &OwnedFd, name: &OsStr) -> io::Result<()> {
    match is_hidden_in(dir, name)? {
        true => Err(Errno::NOENT.into()),
        false => Ok(()),
    }
}

/// Pushes the components of a path onto the stack, so that the first one is on top.
pub(super) fn push_components(ahead: &mut Vec<OsString>, path: &Path) -> io::Result<()> {
    for component in path.components().rev() {
        match component {
            Component::Normal(_) | Component::ParentDir => {
                ahead.push(component.as_os_str().to_owned());
            }
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return Err(Barred::Outside.into()),
        }
    }
    Ok(())
}

/// Maximum number of components of a path with all its links resolved: four times the limit of a
/// name.
const MOST_STEPS: usize = 1024;

/// Returns the file type of the entry `name` in `dir`, if it exists.
pub(super) fn exists(dir: &OwnedFd, name: &OsStr) -> io::Result<Option<FileType>> {
    let stat = stat_entry(dir, name)?;
    Ok(stat.map(|stat| FileType::from_raw_mode(stat.st_mode)))
}

fn path_of(name: &Name) -> PathBuf {
    name.components().map(OsStr::from_bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_made_beneath_the_root_alone() {
        let outer = tempfile::tempdir().unwrap();
        let inside = outer.path().join("root");
        fs::create_dir_all(inside.join("real")).unwrap();
        std::os::unix::fs::symlink("real", inside.join("in")).unwrap();
        std::os::unix::fs::symlink("..", inside.join("out")).unwrap();
        std::os::unix::fs::symlink("missing", inside.join("dangling")).unwrap();

        let root = Root::open(&inside).unwrap();
        let make = |name: &str| root.make_directory(&Name::parse(name.as_bytes()).unwrap());
        make("in/a/b").unwrap();
        make("in/a/b").unwrap();
        assert!(inside.join("real/a/b").is_dir());
        assert!(make("out/a").is_err() && make("dangling/a").is_err());
        assert_eq!(fs::read_dir(outer.path()).unwrap().count(), 1);
    }

    #[test]
    fn links_lead_from_directory_to_directory_never_out_and_nowhere_when_they_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        fs::write(dir.path().join("a/b/file"), "").unwrap();
        let links = [
            ("a/b/up", "../../a"),
            ("first", "second"),
            ("second", "./a//b/"),
            ("loop", "loop"),
            ("here", "."),
            ("a/out", "b/../../.."),
            ("secret", "../secret"),
            ("absolute", "/etc/passwd"),
        ];
        for (link, target) in links {
            std::os::unix::fs::symlink(target, dir.path().join(link)).unwrap();
        }
        let root = Root::open(dir.path()).unwrap();
        let without = root.without_links();
        let open = |root: &Root, name: &str| {
            root.open_file(&Name::parse(name.as_bytes()).unwrap(), OFlags::RDONLY)
                .map(drop)
        };
        for name in [
            "a/b/up/b/file",
            "first/file",
            "first/up/b/up/b/file",
            "here/here/first/file",
        ] {
            open(&root, name).unwrap();
            let error = open(&without, name).unwrap_err();
            assert!(Barred::is_why(&error), "{name}: {error}");
        }
        open(&without, "a/b/file").unwrap();
        let kind = |name: &str| open(&root, name).unwrap_err().kind();
        let denied = io::ErrorKind::PermissionDenied;
        assert_eq!(["secret", "absolute"].map(kind), [denied; 2]);
        assert_eq!(kind("missing"), io::ErrorKind::NotFound);
        assert_eq!(
            open(&root, "loop").unwrap_err().raw_os_error(),
            Some(Errno::LOOP.raw_os_error())
        );
        assert_eq!(
            open(&root, "a/out/file").unwrap_err().to_string(),
            "leads out of the served directory"
        );
    }

    #[test]
    fn links_without_a_boundary_lead_anywhere() {
        let outer = tempfile::tempdir().unwrap();
        let inside = outer.path().join("home");
        fs::create_dir_all(inside.join("d")).unwrap();
        fs::create_dir_all(outer.path().join("disk")).unwrap();
        fs::write(outer.path().join("disk/file"), "s").unwrap();
        let link = |target: &Path, name: &str| {
            std::os::unix::fs::symlink(target, inside.join(name)).unwrap();
        };
        link(&outer.path().join("disk"), "absolute");
        link(Path::new("../disk"), "relative");
        link(Path::new("../../disk"), "d/up");
        link(Path::new("/../../.."), "slash");
        link(Path::new("loop"), "loop");
        let root = Root::unbounded(&inside).unwrap();
        let parse = |name: &str| Name::parse(name.as_bytes()).unwrap();
        for name in ["absolute", "relative", "d/up"] {
            let name = parse(&format!("{name}/file"));
            root.open_file(&name, OFlags::RDONLY).unwrap();
            drop(root.open_parent_for_new(&name).unwrap());
        }
        root.make_directory(&parse("absolute/new")).unwrap();
        assert!(outer.path().join("disk/new").is_dir());
        root.open_file(&parse("slash/etc/passwd"), OFlags::RDONLY)
            .unwrap();
        let looped = root.open_file(&parse("loop"), OFlags::RDONLY).unwrap_err();
        assert_eq!(looped.raw_os_error(), Some(Errno::LOOP.raw_os_error()));
    }
}
