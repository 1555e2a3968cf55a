//! Copy of a single file: what its target is decides whether the file is sent. A tree copy of the one
//! file, as a dry run, compares the two.

use std::{
    ffi::OsStr,
    fs,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    time::SystemTime,
};

use nicstripe::{
    Client, CopyOptions, EntryOutcome, Event, FailCode, Kind, Name, Report, Stat, TreeOptions,
    TreeReport, Verdict,
};

use super::{copy_kind::CopyKind, plan::Plan, show::Show, watch::watch};
use crate::{
    connect::location::LocationError,
    failure::{Failure, Fault, exit::Exit, hint::NextStep},
    process::signals::Signals,
    text::{invocation::Invocation, shown},
};

/// Single-file copy with its connection, output and signals.
pub(super) struct Single<'a> {
    pub(super) client: &'a Client,
    pub(super) plan: &'a Plan,
    pub(super) show: &'a mut Show,
    pub(super) signals: &'a mut Signals,
}

impl Single<'_> {
    /// Reports what the copy would do, and changes nothing.
    pub(super) async fn run_dry(&mut self) -> Result<Report, Failure> {
        let copy = SingleCopy::find(self.client, self.plan).await?;
        let options = self.plan.options;
        copy.check(options)?;
        // The daemon also reports missing rights of this machine.
        let (verdict, report) = self.judge(&copy).await?;
        if verdict == Verdict::Replace {
            if !options.replace && !replaces_unseen(options) {
                return Err(copy.error(Obstacle::Differs).into());
            }
            if !options.force && copy.found_special() {
                return Err(copy.error(Obstacle::Special).into());
            }
        }
        let outcome = match verdict {
            Verdict::Same => EntryOutcome::Skipped(verdict),
            verdict => EntryOutcome::Copied {
                verdict,
                bytes: copy.source.size,
            },
        };
        self.show.on_event(&Event::Entry {
            name: copy.own_name.clone(),
            outcome,
        });
        Ok(copy.report(report, verdict))
    }

    /// Copies the file, unless the target has the same content.
    ///
    /// Asks to replace nothing at first, so that the daemon completes a file that an interrupted
    /// copy left under its name.
    pub(super) async fn run(&mut self) -> Result<Report, Failure> {
        let options = self.plan.options;
        let first = CopyOptions {
            replace: replaces_unseen(options),
            ..options
        };
        match self.transfer(first).await {
            Err(failure) => self.reconsider(failure).await,
            done => done,
        }
    }

    /// Examines the target of a failed copy. Returns success if an equal file exists, replaces one
    /// that differs, and returns an error that names the obstacle if one is found, otherwise the
    /// original failure.
    async fn reconsider(&mut self, failure: Failure) -> Result<Report, Failure> {
        let code = match &failure {
            Failure::Library(error) => error.fail_code(),
            _ => None,
        };
        let exists = code == Some(FailCode::Exists);
        let may_tell = exists && !replaces_unseen(self.plan.options);
        if !may_tell
            && !matches!(
                code,
                Some(FailCode::NotFound | FailCode::NotADirectory | FailCode::Io)
            )
        {
            return Err(failure);
        }
        let finding = SingleCopy::find(self.client, self.plan);
        let copy = match self.signals.unless_stopped(finding).await {
            Ok(copy) => copy,
            Err(stopped @ Failure::Interrupted { .. }) => return Err(stopped),
            // If the target cannot be examined, the original failure stands.
            Err(_) => return Err(failure),
        };
        copy.check(self.plan.options)?;
        if !exists {
            return Err(failure);
        }
        match self.judge(&copy).await {
            Ok((Verdict::Same, report)) => Ok(copy.report(report, Verdict::Same)),
            Err(stopped @ Failure::Interrupted { .. }) => Err(stopped),
            Ok(_) | Err(_) if self.plan.options.replace => self.transfer(self.plan.options).await,
            Ok(_) => Err(copy.error(Obstacle::Differs).into()),
            Err(_) => Err(failure),
        }
    }

    /// Decides on the target as a tree copy does, except that the contents decide if only the times
    /// differ: without `-p` the target of an earlier copy has the time of that copy. Comparing them
    /// reads the files at both ends and sends nothing.
    async fn judge(&mut self, copy: &SingleCopy) -> Result<(Verdict, Report), Failure> {
        let (is_same, report) = self.compare(copy, false).await?;
        let verdict = match &copy.found {
            Ok(Some(_)) if replaces_unseen(self.plan.options) => Verdict::Replace,
            Ok(Some(_)) if is_same => Verdict::Same,
            Ok(Some(found)) if found.kind == Kind::File && found.size == copy.source.size => {
                if copy.source.size >= MUCH {
                    self.show.tell(format_args!(
                        "\"{}\" exists with another time: comparing contents (-f sends it at once)",
                        copy.shown
                    ));
                }
                match self.compare(copy, true).await? {
                    (true, report) => return Ok((Verdict::Same, report)),
                    (false, _) => Verdict::Replace,
                }
            }
            Ok(Some(_)) => Verdict::Replace,
            Ok(None) | Err(_) => Verdict::Create,
        };
        Ok((verdict, report))
    }

    async fn transfer(&mut self, options: CopyOptions) -> Result<Report, Failure> {
        let kind = self.plan.kind.clone();
        let transfer = kind.start(self.client, options, TreeOptions::default())?;
        watch(transfer, self.show, self.signals).await
    }

    /// Compares source and target by a dry-run copy, and returns true if they are equal. With
    /// `checksum` both ends read the file and compare its BLAKE3, otherwise size and time are
    /// compared.
    async fn compare(
        &mut self,
        copy: &SingleCopy,
        checksum: bool,
    ) -> Result<(bool, Report), Failure> {
        let files = CopyOptions {
            replace: self.plan.options.replace,
            ..CopyOptions::default()
        };
        let options = TreeOptions {
            dry_run: true,
            checksum,
            files,
            ..TreeOptions::default()
        };
        let transfer = copy
            .kind
            .clone()
            .start(self.client, CopyOptions::default(), options)?;
        let report = watch(transfer, self.show, self.signals).await?;
        let is_same = report
            .tree
            .as_ref()
            .is_some_and(|tree| tree.unchanged == 1 && tree.failed == 0);
        Ok((is_same, report))
    }
}

/// Returns the path that the file of a get gets.
pub(super) fn path_of_get(name: &Name, target: &Path) -> PathBuf {
    match target.as_os_str().as_bytes().ends_with(b"/") || target.is_dir() {
        true => target.join(OsStr::from_bytes(name.file_name())),
        false => target.to_owned(),
    }
}

/// Returns the name that the file of a put gets, and what has it now. Fails if something is in the way.
pub(super) async fn name_of_put(
    client: &Client,
    plan: &Plan,
) -> Result<(Name, Option<Stat>), Failure> {
    let copy = SingleCopy::find(client, plan).await?;
    copy.check(plan.options)?;
    if copy.found_special() {
        return Err(copy.error(Obstacle::Special).into());
    }
    let found = copy.found.ok().flatten();
    match copy.kind {
        CopyKind::PutTree {
            name: Some(name), ..
        } => Ok((name, found)),
        _ => Err(LocationError::Empty.into()),
    }
}

/// Returns true if an existing target is replaced without a look at it.
fn replaces_unseen(options: CopyOptions) -> bool {
    options.force || options.delta || options.in_place
}

/// Source and target of a single-file copy, and the state of the target.
struct SingleCopy {
    /// Equivalent tree copy of the one file, with the full name of the target.
    kind: CopyKind,
    source: Stat,
    found: Found,
    own_name: Name,
    /// Target path or name as printed in messages.
    shown: String,
    /// Host of the daemon, if the target is remote.
    host: Option<String>,
}

/// Metadata of a target other than a directory, `None` if there is nothing, or an obstacle.
type Found = Result<Option<Stat>, Obstacle>;

impl SingleCopy {
    async fn find(client: &Client, plan: &Plan) -> Result<Self, Failure> {
        match &plan.kind {
            CopyKind::Put { source, name } => {
                Self::of_put(client, plan, source, name.as_ref()).await
            }
            CopyKind::Get { name, target } => Self::of_get(client, name, target).await,
            _ => Err(LocationError::Empty.into()),
        }
    }

    async fn of_put(
        client: &Client,
        plan: &Plan,
        source: &Path,
        name: Option<&Name>,
    ) -> Result<Self, Failure> {
        let open = Failure::opening(source);
        let own_name = Name::new([source.file_name().unwrap_or_default().as_bytes()])?;
        let looked = stat_of(&fs::metadata(source).map_err(open)?);
        let (name, found) = match name {
            None => (own_name.clone(), at_daemon(client, &own_name).await?),
            Some(name) => match at_daemon(client, name).await? {
                Err(Obstacle::Directory) => {
                    let inside = name.join(own_name.file_name())?;
                    let found = at_daemon(client, &inside).await?;
                    (inside, found)
                }
                found => (name.clone(), found),
            },
        };
        let shown = name.to_string();
        // A symbolic link named as the source is followed.
        let kind = CopyKind::PutTree {
            sources: vec![fs::canonicalize(source).map_err(open)?],
            name: Some(name),
            as_name: true,
        };
        Ok(Self {
            kind,
            source: looked,
            found,
            own_name,
            shown,
            host: Some(plan.place.host.to_string()),
        })
    }

    async fn of_get(client: &Client, name: &Name, target: &Path) -> Result<Self, Failure> {
        let source = client.stat(name).await?;
        let own_name = Name::new([name.file_name()])?;
        let target = path_of_get(name, target);
        let found = existing_at(&target);
        let shown = shown(&target);
        Ok(Self {
            kind: CopyKind::GetTree {
                sources: vec![(Some(name.clone()), false)],
                target,
                as_name: true,
            },
            source,
            found,
            own_name,
            shown,
            host: None,
        })
    }

    /// Returns an error if the target can be neither created nor replaced.
    fn check(&self, options: CopyOptions) -> Result<(), Fault> {
        match &self.found {
            Err(Obstacle::NoParent(_)) if options.parents => Ok(()),
            Err(obstacle) => Err(self.error(obstacle.clone())),
            Ok(_) => Ok(()),
        }
    }

    /// Returns true if the target exists and is neither a regular file nor a directory.
    fn found_special(&self) -> bool {
        matches!(&self.found, Ok(Some(found)) if found.kind != Kind::File)
    }

    /// Returns the error of a target that cannot be created or replaced.
    fn error(&self, obstacle: Obstacle) -> Fault {
        let name = &self.shown;
        let (text, step) = match &obstacle {
            Obstacle::Differs => (
                format!("\"{name}\" exists and differs"),
                Some(NextStep::Replace),
            ),
            Obstacle::Special => (
                format!("cannot replace \"{name}\": it is not a regular file"),
                Some(NextStep::Replace),
            ),
            Obstacle::Directory => (
                format!("cannot replace \"{name}\": it is a directory"),
                None,
            ),
            Obstacle::NoParent(directory) => (
                format!("cannot write \"{name}\": no directory \"{directory}\""),
                Some(NextStep::Create),
            ),
            Obstacle::NotADirectory(directory) => (
                format!("cannot write \"{name}\": \"{directory}\" is not a directory"),
                None,
            ),
        };
        let at = self.host.as_ref().map(|host| format!("{host}: "));
        let hint = step.map(|step| step.text(&Invocation::of_this_process()));
        Fault::new(Exit::Files, at.unwrap_or_default() + &text).hinted(hint)
    }

    /// Completes the report of a copy that ended without a transfer.
    fn report(&self, mut report: Report, verdict: Verdict) -> Report {
        let tree = report.tree.insert(TreeReport::default());
        match verdict {
            Verdict::Same => tree.unchanged = 1,
            _ => (tree.files, tree.bytes) = (1, self.source.size),
        }
        report
    }
}

/// Returns what the daemon would of a file here.
fn stat_of(metadata: &fs::Metadata) -> Stat {
    let kind = if metadata.is_file() {
        Kind::File
    } else {
        Kind::Other
    };
    let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
    Stat::new(kind, metadata.len(), modified)
}

async fn at_daemon(client: &Client, name: &Name) -> Result<Found, Failure> {
    let error = match client.stat(name).await {
        Ok(stat) if stat.kind == Kind::Dir => return Ok(Err(Obstacle::Directory)),
        Ok(stat) => return Ok(Ok(Some(stat))),
        Err(error) => error,
    };
    for count in 1..name.components().len() {
        let parent = Name::new(name.components().take(count))?;
        match client.stat(&parent).await {
            Ok(stat) if stat.kind == Kind::File => {
                return Ok(Err(Obstacle::NotADirectory(parent.to_string())));
            }
            Ok(_) => {}
            Err(error) if error.is_not_found() => {
                return Ok(Err(Obstacle::NoParent(parent.to_string())));
            }
            Err(error) => return Err(error.into()),
        }
    }
    if error.is_not_found() {
        Ok(Ok(None))
    } else {
        Err(error.into())
    }
}

fn existing_at(path: &Path) -> Found {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => return Err(Obstacle::Directory),
        Ok(metadata) => return Ok(Some(stat_of(&metadata))),
        Err(_) => {}
    }
    let mut parents: Vec<&Path> = path
        .ancestors()
        .skip(1)
        .filter(|parent| !parent.as_os_str().is_empty())
        .collect();
    parents.reverse();
    match parents.into_iter().find(|parent| !parent.is_dir()) {
        None => Ok(None),
        Some(parent) if fs::symlink_metadata(parent).is_ok() => {
            Err(Obstacle::NotADirectory(shown(parent)))
        }
        Some(parent) => Err(Obstacle::NoParent(shown(parent))),
    }
}

/// Reason why the target of a single-file copy cannot be created or replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Obstacle {
    /// A different file exists, and must not be replaced.
    Differs,
    /// A link, device, FIFO or socket exists.
    Special,
    Directory,
    /// A parent directory of the target is missing. Contains its path.
    NoParent(String),
    /// A parent of the target is not a directory. Contains its path.
    NotADirectory(String),
}

/// File size in bytes from which a message announces the comparison of two files. Smaller files are
/// compared without one.
const MUCH: u64 = 256 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_here_is_followed_to_the_first_directory_that_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("file"), "").unwrap();
        let shown = |name: &str| path(name).display().to_string();
        assert_eq!(existing_at(&path("new")), Ok(None));
        let other = Err::<Option<Stat>, _>;
        assert_eq!(
            existing_at(&path("a/b/new")),
            other(Obstacle::NoParent(shown("a")))
        );
        assert_eq!(
            existing_at(&path("file/new")),
            other(Obstacle::NotADirectory(shown("file")))
        );
        assert_eq!(existing_at(folder.path()), other(Obstacle::Directory));
        assert!(matches!(existing_at(&path("file")), Ok(Some(_))));
        assert_eq!(existing_at("not-there-at-all".as_ref()), Ok(None));
    }
}
