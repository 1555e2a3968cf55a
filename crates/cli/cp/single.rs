//! One file and what has its name at the target: dry runs, files that are there already, directories that are missing.
//!
//! The copy itself asks nothing before it starts. It is when it failed, or where nothing is to be changed, that the place is looked at.

use std::{
    ffi::OsStr,
    fmt, fs,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use nicstripe::{Client, CopyOptions, EntryOutcome, Event, FailCode, Kind, Name, Report, Stat, TreeOptions, TreeReport, Verdict, escaped};

use super::{Show, ends_with_slash, location::LocationError, plan::Plan, watch, way::Way};
use crate::{failure::Failure, signals::Signals};

/// One file that is copied, and those who watch it.
pub(super) struct Single<'a> {
    pub(super) client: &'a Client,
    pub(super) plan: &'a Plan,
    pub(super) show: &'a mut Show,
    pub(super) signals: &'a mut Signals,
}

impl Single<'_> {
    /// Tells what the copy would do, and changes nothing.
    pub(super) async fn foretell(&mut self) -> Result<Report, Failure> {
        let place = Place::find(self.client, self.plan).await?;
        let options = self.plan.options;
        let verdict = match place.judge(options)? {
            Judgement::Differs => return Err(place.error(Obstacle::Differs).into()),
            Judgement::Compare if !self.compare(&place, true).await?.0 => return Err(place.error(Obstacle::Differs).into()),
            Judgement::Compare | Judgement::Same => Verdict::Same,
            Judgement::Copy(verdict) => verdict,
        };
        // The daemon says what this machine may not do there.
        let (_, report) = self.compare(&place, false).await?;
        let outcome = match verdict {
            Verdict::Same => EntryOutcome::Skipped(verdict),
            verdict => EntryOutcome::Copied { verdict, bytes: place.source.size },
        };
        self.show.on_event(&Event::Entry { name: place.own_name.clone(), outcome });
        Ok(place.report(report, verdict))
    }

    /// Takes a failed copy for done where the file is there already; says what is in its way where that is known.
    pub(super) async fn reconsider(&mut self, failure: Failure) -> Result<Report, Failure> {
        let code = match &failure {
            Failure::Library(error) => error.fail_code(),
            _ => None,
        };
        if !matches!(code, Some(FailCode::Exists | FailCode::NotFound | FailCode::Io))
            || self.plan.options.replace && code == Some(FailCode::Exists)
        {
            return Err(failure);
        }
        // Whatever cannot be found out leaves the failure as it is.
        let Ok(place) = Place::find(self.client, self.plan).await else { return Err(failure) };
        match (code, place.judge(self.plan.options)) {
            (_, Err(obstacle)) => Err(obstacle.into()),
            (Some(FailCode::Exists), Ok(Judgement::Differs)) => Err(place.error(Obstacle::Differs).into()),
            (Some(FailCode::Exists), Ok(judgement @ (Judgement::Same | Judgement::Compare))) => {
                let compares = judgement == Judgement::Compare;
                if compares && place.source.size >= MUCH {
                    self.show.tell(format_args!("\"{}\" is there with another time: comparing what is in it", place.shown));
                }
                match self.compare(&place, compares).await {
                    Ok((true, report)) => Ok(place.report(report, Verdict::Same)),
                    Ok((false, _)) => Err(place.error(Obstacle::Differs).into()),
                    Err(stopped @ Failure::Interrupted { .. }) => Err(stopped),
                    Err(_) => Err(failure),
                }
            }
            _ => Err(failure),
        }
    }

    /// Lets both ends look at the file and change nothing. Says whether it is the same: by its BLAKE3 if `checksum`, which both ends read it
    /// for.
    async fn compare(&mut self, place: &Place, checksum: bool) -> Result<(bool, Report), Failure> {
        let files = CopyOptions { replace: self.plan.options.replace, ..CopyOptions::default() };
        let options = TreeOptions { dry_run: true, checksum, files, ..TreeOptions::default() };
        let transfer = match &place.ends {
            // A link that was typed is followed.
            Ends::Put { source, name } => self.client.put_tree(vec![source.clone()], Some(name.clone()), true, options),
            Ends::Get { name, target } => self.client.get_tree(vec![(Some(name.clone()), false)], target, true, options),
        };
        let report = watch(transfer, self.show, self.signals).await?;
        let is_same = report.tree.as_ref().is_some_and(|tree| tree.unchanged == 1 && tree.failed == 0);
        Ok((is_same, report))
    }
}

/// Where a file comes from and goes to, and what is there.
struct Place {
    ends: Ends,
    source: Looked,
    found: Found,
    own_name: Name,
    /// The target, for people.
    shown: String,
    /// The daemon, where the target is there.
    host: Option<String>,
}

/// The file and its target, once a target that is a directory has the file's name.
enum Ends {
    Put { source: PathBuf, name: Name },
    Get { name: Name, target: PathBuf },
}

/// What is known of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Looked {
    /// Whether it is a regular file; of nothing else is the rest known.
    is_file: bool,
    size: u64,
    modified: SystemTime,
}

/// What has a name.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Found {
    Nothing,
    /// A directory that leads to it is missing: the outermost.
    NoParent(String),
    /// Something that leads to it is no directory.
    NotADirectory(String),
    Directory,
    File(Looked),
}

/// What becomes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Judgement {
    Copy(Verdict),
    Same,
    Differs,
    /// It is of the same size; its content decides.
    Compare,
}

impl Place {
    async fn find(client: &Client, plan: &Plan) -> Result<Self, Failure> {
        match &plan.way {
            Way::Put { source, name } => Self::of_put(client, plan, source, name.as_ref()).await,
            Way::Get { name, target } => Self::of_get(client, name, target).await,
            _ => Err(LocationError::Empty.into()),
        }
    }

    async fn of_put(client: &Client, plan: &Plan, source: &Path, name: Option<&Name>) -> Result<Self, Failure> {
        let open = |error| Failure::Source { path: source.to_owned(), source: error };
        let own_name = own_name(source.file_name().unwrap_or_default().as_bytes())?;
        let looked = Looked::of(&fs::metadata(source).map_err(open)?);
        let (name, found) = match name {
            None => (own_name.clone(), at_daemon(client, &own_name).await?),
            Some(name) => match at_daemon(client, name).await? {
                Found::Directory => {
                    let inside = name.join(own_name.file_name()).map_err(LocationError::from)?;
                    let found = at_daemon(client, &inside).await?;
                    (inside, found)
                }
                found => (name.clone(), found),
            },
        };
        let shown = name.to_string();
        let ends = Ends::Put { source: fs::canonicalize(source).map_err(open)?, name };
        Ok(Self { ends, source: looked, found, own_name, shown, host: Some(plan.host.clone()) })
    }

    async fn of_get(client: &Client, name: &Name, target: &Path) -> Result<Self, Failure> {
        let source = Looked::at_daemon(&client.stat(name).await?);
        let own_name = own_name(name.file_name())?;
        let is_directory = ends_with_slash(target) || target.is_dir();
        let target = if is_directory { target.join(OsStr::from_bytes(name.file_name())) } else { target.to_owned() };
        let found = here(&target);
        let shown = escaped(target.as_os_str().as_bytes());
        Ok(Self { ends: Ends::Get { name: name.clone(), target }, source, found, own_name, shown, host: None })
    }

    fn judge(&self, options: CopyOptions) -> Result<Judgement, PlaceError> {
        match &self.found {
            Found::Nothing => Ok(Judgement::Copy(Verdict::Create)),
            Found::NoParent(_) if options.parents => Ok(Judgement::Copy(Verdict::Create)),
            Found::NoParent(directory) => Err(self.error(Obstacle::NoParent(directory.clone()))),
            Found::NotADirectory(directory) => Err(self.error(Obstacle::NotADirectory(directory.clone()))),
            Found::Directory => Err(self.error(Obstacle::Directory)),
            Found::File(_) if options.replace => Ok(Judgement::Copy(Verdict::Replace)),
            Found::File(found) => Ok(self.source.judge(found)),
        }
    }

    fn error(&self, obstacle: Obstacle) -> PlaceError {
        PlaceError { host: self.host.clone(), name: self.shown.clone(), obstacle }
    }

    /// The report of a copy that this is all there is to say of.
    fn report(&self, report: Report, verdict: Verdict) -> Report {
        let tree = match verdict {
            Verdict::Same => TreeReport { unchanged: 1, ..TreeReport::default() },
            _ => TreeReport { files: 1, bytes: self.source.size, ..TreeReport::default() },
        };
        Report { tree: Some(tree), ..report }
    }
}

impl Looked {
    fn of(metadata: &fs::Metadata) -> Self {
        let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        Self { is_file: metadata.is_file(), size: metadata.len(), modified }
    }

    fn at_daemon(stat: &Stat) -> Self {
        Self { is_file: stat.kind == Kind::File, size: stat.size, modified: stat.modified }
    }

    /// As files of trees are compared, and by content where only the times differ: without `-p` the copy's time is that of the copy.
    fn judge(&self, found: &Self) -> Judgement {
        match self.is_file && found.is_file && self.size == found.size {
            false => Judgement::Differs,
            true if is_same_time(self.modified, found.modified) => Judgement::Same,
            true => Judgement::Compare,
        }
    }
}

/// Not every file system keeps nanoseconds.
fn is_same_time(sent: SystemTime, found: SystemTime) -> bool {
    let since = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let (sent, found) = (since(sent), since(found));
    sent == found || (found.subsec_nanos() == 0 && sent.as_secs() == found.as_secs())
}

fn own_name(bytes: &[u8]) -> Result<Name, Failure> {
    Ok(Name::new([bytes]).map_err(LocationError::from)?)
}

/// What has a name at the daemon.
async fn at_daemon(client: &Client, name: &Name) -> Result<Found, Failure> {
    let error = match client.stat(name).await {
        Ok(stat) if stat.kind == Kind::Dir => return Ok(Found::Directory),
        Ok(stat) => return Ok(Found::File(Looked::at_daemon(&stat))),
        Err(error) => error,
    };
    for count in 1..name.components().len() {
        let parent = Name::new(name.components().take(count)).map_err(LocationError::from)?;
        match client.stat(&parent).await {
            Ok(stat) if stat.kind == Kind::File => return Ok(Found::NotADirectory(parent.to_string())),
            Ok(_) => {}
            Err(error) if error.is_not_found() => return Ok(Found::NoParent(parent.to_string())),
            Err(error) => return Err(error.into()),
        }
    }
    if error.is_not_found() { Ok(Found::Nothing) } else { Err(error.into()) }
}

/// What has a name here.
fn here(path: &Path) -> Found {
    if let Ok(metadata) = fs::symlink_metadata(path) {
        return if metadata.is_dir() { Found::Directory } else { Found::File(Looked::of(&metadata)) };
    }
    let mut parents: Vec<&Path> = path.ancestors().skip(1).filter(|parent| !parent.as_os_str().is_empty()).collect();
    parents.reverse();
    let shown = |parent: &Path| escaped(parent.as_os_str().as_bytes());
    match parents.into_iter().find(|parent| !parent.is_dir()) {
        None => Found::Nothing,
        Some(parent) if fs::symlink_metadata(parent).is_ok() => Found::NotADirectory(shown(parent)),
        Some(parent) => Found::NoParent(shown(parent)),
    }
}

/// Something stands against a file at its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlaceError {
    /// The daemon, where the place is there.
    host: Option<String>,
    name: String,
    /// What stands against it.
    pub(crate) obstacle: Obstacle,
}

/// What stands against a file at its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// Another file, which was not to be replaced.
    Differs,
    /// A directory.
    Directory,
    /// A directory that leads there is missing.
    NoParent(String),
    /// Something that leads there is no directory.
    NotADirectory(String),
}

impl fmt::Display for PlaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(host) = &self.host {
            write!(f, "{host}: ")?;
        }
        let name = &self.name;
        match &self.obstacle {
            Obstacle::Differs => write!(f, "\"{name}\" exists and differs"),
            Obstacle::Directory => write!(f, "cannot replace \"{name}\": it is a directory"),
            Obstacle::NoParent(directory) => write!(f, "cannot write \"{name}\": there is no directory \"{directory}\""),
            Obstacle::NotADirectory(directory) => write!(f, "cannot write \"{name}\": \"{directory}\" is not a directory"),
        }
    }
}

impl std::error::Error for PlaceError {}

/// Reading less than this takes no time that somebody would wonder about.
const MUCH: u64 = 256 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn looked(size: u64, seconds: u64, nanoseconds: u32) -> Looked {
        Looked { is_file: true, size, modified: SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds) }
    }

    #[test]
    fn a_file_is_the_same_by_size_and_time_and_otherwise_its_content_decides() {
        let source = looked(5, 100, 7);
        for (found, expected) in [
            (looked(5, 100, 7), Judgement::Same),
            (looked(5, 100, 0), Judgement::Same),
            (looked(5, 100, 8), Judgement::Compare),
            (looked(5, 99, 0), Judgement::Compare),
            (looked(6, 100, 7), Judgement::Differs),
            (Looked { is_file: false, ..looked(5, 100, 7) }, Judgement::Differs),
        ] {
            assert_eq!(source.judge(&found), expected, "{found:?}");
        }
    }

    #[test]
    fn a_path_here_is_followed_to_the_first_directory_that_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("file"), "").unwrap();
        let shown = |name: &str| path(name).display().to_string();
        assert_eq!(here(&path("new")), Found::Nothing);
        assert_eq!(here(&path("a/b/new")), Found::NoParent(shown("a")));
        assert_eq!(here(&path("file/new")), Found::NotADirectory(shown("file")));
        assert_eq!(here(folder.path()), Found::Directory);
        assert!(matches!(here(&path("file")), Found::File(_)));
        assert_eq!(here("not-there-at-all".as_ref()), Found::Nothing);
    }
}
