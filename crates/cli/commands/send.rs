//! `nicstripe send`: one copy to a machine that runs `nicstripe receive`.

use std::{
    ffi::{OsStr, OsString},
    fs,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use clap::Args;
use nicstripe::invitation::Purpose;

use super::cp::{Cp, OutputArgs};
use crate::{
    connect::{
        arguments::SessionArgs,
        by_code::{Offering, item},
        invitation::Meeting,
    },
    failure::{Failure, usage},
    output::terminal::Terminal,
};

/// Send files and directories to a machine that runs `nicstripe receive`, by the code that it shows
///
/// Nothing is set up before, and nothing is left after. Both machines make keys for this copy only.
/// Modes, times and symbolic links are kept. An interrupted copy resumes: run both commands again,
/// with the new code.
#[derive(Debug, Args)]
#[command(override_usage = "nicstripe send [OPTIONS] FILE... CODE")]
pub(crate) struct Send {
    /// Files and directories, and the code that `nicstripe receive` shows on the other machine
    #[arg(value_name = "FILE... CODE", required = true)]
    words: Vec<OsString>,

    /// Name or address of the other machine, if no cable joins both
    #[arg(long, value_name = "HOST[:PORT]")]
    host: Option<String>,

    /// Compress data that becomes smaller by it
    #[arg(short = 'z', long)]
    compress: bool,

    /// Look for the other machine on this interface only; may be repeated [default: every one that
    /// is up]
    #[arg(long, value_name = "NAME")]
    interface: Vec<String>,

    #[command(flatten)]
    session: SessionArgs,

    #[command(flatten)]
    output: OutputArgs,
}

impl Send {
    pub(crate) fn run(self, terminal: &Terminal) -> Result<(), Failure> {
        let (code, files) = match self.words.split_last() {
            Some((code, files)) if !files.is_empty() => (code, files),
            _ => return Err(usage(NO_CODE).into()),
        };
        let code = code.to_string_lossy().into_owned();
        let words: Vec<String> = self.host.iter().cloned().chain([code]).collect();
        let meeting = Meeting::parse(&words)?;
        let sources = files.iter().map(|file| source(file));
        let sources = sources.collect::<Result<Vec<_>, _>>()?;
        let items = sources.iter().map(|source| item(source));
        let items = items.collect::<Result<_, _>>()?;
        let options = meeting.to_join(Purpose::OneCopy, None, &self.interface);
        let target = OsString::from("receiver:");
        let paths = sources.iter().map(|source| typed(source));
        let paths = paths.chain([target]).collect();
        let offering = Offering {
            meeting,
            options,
            items,
        };
        Cp::sending(paths, offering, self.compress, self.session, self.output).run(terminal)
    }
}

/// Returns the path of a source with its own name: `dir` for `dir/`, and the real path for `.`.
fn source(file: &OsStr) -> Result<PathBuf, Failure> {
    if file == "-" {
        return Err(usage(PIPE).into());
    }
    let path: PathBuf = Path::new(file).components().collect();
    if path.file_name().is_some() {
        return Ok(path);
    }
    let real = fs::canonicalize(&path).map_err(Failure::opening(&path))?;
    match real.file_name() {
        Some(_) => Ok(real),
        None => Err(usage(NAMELESS).into()),
    }
}

/// Returns a path as an argument of `cp` that is local whatever it contains.
fn typed(path: &Path) -> OsString {
    match path.as_os_str().as_bytes().contains(&b':') && path.is_relative() {
        true => Path::new(".").join(path).into(),
        false => path.into(),
    }
}

const NO_CODE: &str = "expected files and, as the last word, the code that `nicstripe receive` shows on the other machine";
const PIPE: &str = "standard input has no name to offer: expected files and directories";
const NAMELESS: &str = "/ has no name to offer: expected directories in it";
