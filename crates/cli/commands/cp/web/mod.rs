//! Copies of files from web servers, without nicstripe there.
//!
//! - [`arguments`]: options for web servers as typed; [`error`]: contradictions
//! - [`run`]: the fetch, and its target at a daemon
//!
//! This module finds out which files are copied, and to where.

pub(in crate::commands::cp) mod arguments;
pub(super) mod error;
pub(super) mod run;

use std::{
    ffi::OsString,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use nicstripe::{CopyOptions, Name};
use nicstripe_web::{Account, FetchOptions, S3Place, WebUrl};

use self::error::mixed;
use super::{arguments::Cp, lists::listed_names};
use crate::{
    commands::web::over_interfaces,
    connect::{
        arguments::Routes,
        location::{Location, LocationError, Remote, RemotePath, is_web_url, path_of},
    },
    failure::{Failure, usage},
    text::{first_true, invocation::url_without_secrets, shown},
};

/// Copies of files from web servers, one after the other.
#[derive(Debug)]
pub(super) struct WebCopy {
    files: Vec<WebFile>,
    target: To,
    /// True if the files keep their names in the target.
    is_directory: bool,
    options: FetchOptions,
}

#[derive(Debug)]
pub(super) struct WebFile {
    url: WebUrl,
    /// Name below the target directory; the components of a list, or the last one of the URL.
    name: Option<Name>,
    /// Source as printed.
    shown: String,
}

/// Target as typed.
#[derive(Debug)]
enum To {
    Local(PathBuf),
    Output,
    Daemon(Remote),
}

impl WebCopy {
    /// Returns the copy if the sources are at web servers; `None` for other copies.
    ///
    /// # Errors
    ///
    /// The URLs, the target or an option make no copy from web servers.
    pub(super) fn of(cp: &Cp) -> Result<Option<Self>, Failure> {
        if is_web_url(cp.target()) {
            let target = shown(url_without_secrets(cp.target()));
            let text = format!("cannot copy to {target}: a web server takes no files");
            return Err(usage(text).into());
        }
        let sources = cp.sources();
        let count = sources.iter().filter(|source| is_web_url(source)).count();
        if count == 0 {
            return match cp.web.first_option() {
                Some(option) => Err(usage(format!(
                    "{option} is for files at web servers: expected SRC as https://HOST/PATH"
                ))
                .into()),
                None => Ok(None),
            };
        }
        if count < sources.len() {
            return Err(mixed().into());
        }
        if let Some(option) = cp
            .first_option_without_parts()
            .or_else(|| cp.links.beyond_interfaces())
        {
            return Err(usage(format!(
                "{option} cannot be used with a file at a web server"
            ))
            .into());
        }
        let files = files(cp, sources)?;
        let options = options(cp, &files)?;
        Self::to_target(cp, files, options).map(Some)
    }

    pub(super) fn of_objects(
        cp: &Cp,
        account: &Account,
        places: &[S3Place],
    ) -> Result<Self, Failure> {
        let file = |place: &S3Place| {
            let last = place.key().rsplit('/').next().unwrap_or_default();
            let name = Name::parse(last.as_bytes()).map_err(LocationError::from)?;
            Ok(WebFile {
                url: account.url(place)?,
                name: Some(name),
                shown: place.to_string(),
            })
        };
        let files = places
            .iter()
            .map(file)
            .collect::<Result<Vec<_>, Failure>>()?;
        let mut options = options(cp, &files)?;
        options.account = Some(account.clone());
        options.preserve = cp.preserve;
        Self::to_target(cp, files, options)
    }

    fn to_target(cp: &Cp, files: Vec<WebFile>, options: FetchOptions) -> Result<Self, Failure> {
        let target = to(cp)?;
        let is_several = files.len() > 1 || cp.tree.files_from.is_some();
        let is_directory = target.is_directory();
        if is_several && !is_directory && !matches!(target, To::Output | To::Daemon(_)) {
            let text = "several files need a directory: expected DST with a slash at its end, or one that exists";
            return Err(usage(text).into());
        }
        Ok(Self {
            options,
            is_directory: is_directory || is_several && !matches!(target, To::Output),
            files,
            target,
        })
    }
}

fn to(cp: &Cp) -> Result<To, Failure> {
    let target = Location::parse(cp.target())?;
    let of_daemon = [
        (cp.links.port.is_some(), "-P"),
        (cp.session.routes != Routes::Auto, "--routes"),
    ];
    match (target, first_true(of_daemon)) {
        (Location::Remote(remote), _) => Ok(To::Daemon(remote)),
        (_, Some(option)) => Err(usage(format!(
            "{option} is for a daemon: expected DST as HOST:PATH"
        ))
        .into()),
        (Location::Local(path), None) => Ok(To::Local(path)),
        (Location::Pipe, None) => Ok(To::Output),
    }
}

impl To {
    /// Returns true if the target is known to be a directory.
    fn is_directory(&self) -> bool {
        match self {
            Self::Local(path) => path.is_dir() || path.as_os_str().as_bytes().ends_with(b"/"),
            Self::Output => false,
            Self::Daemon(remote) => !matches!(remote.path, RemotePath::File(_)),
        }
    }
}

/// Returns the files of the URLs, or those of a list below the only URL.
fn files(cp: &Cp, sources: &[OsString]) -> Result<Vec<WebFile>, Failure> {
    let url = |source: &OsString| -> Result<WebUrl, Failure> {
        let text =
            "a URL has only ASCII characters: expected others as % and two hexadecimal digits";
        Ok(source.to_str().ok_or_else(|| usage(text))?.parse()?)
    };
    let Some(list) = &cp.tree.files_from else {
        let file = |source| {
            let url = url(source)?;
            let name = url.file_name().map(|name| Name::parse(&name));
            Ok(WebFile {
                name: name.transpose().map_err(LocationError::from)?,
                shown: url.to_string(),
                url,
            })
        };
        return sources.iter().map(file).collect();
    };
    let [folder] = sources else {
        return Err(usage("--files-from is for a single URL").into());
    };
    let folder = url(folder)?;
    let names = listed_names(list, cp.tree.from0)?.names;
    if names.is_empty() {
        return Err(usage("--files-from lists no file").into());
    }
    let file = |name: Name| {
        let url = folder.below(name.components());
        WebFile {
            shown: url.to_string(),
            url,
            name: Some(name),
        }
    };
    Ok(names.into_iter().map(file).collect())
}

pub(super) fn options(cp: &Cp, files: &[WebFile]) -> Result<FetchOptions, Failure> {
    let mut options = over_interfaces(&cp.links);
    options.streams = cp.streams.map(usize::from);
    options.headers = cp.web.headers()?;
    options.cookies = cp.web.read_cookies()?;
    options.netrc = cp.web.netrc()?;
    options.expected = cp.web.expected();
    options.mirrors = cp.web.mirrors()?;
    options.unless_same = !cp.force;
    options.copy = CopyOptions {
        replace: !cp.no_replace,
        force: cp.force,
        restart: cp.no_resume,
        parents: cp.mkpath || cp.tree.files_from.is_some(),
        ..CopyOptions::default()
    };
    options.patience = cp.session.timeout;
    if files.len() > 1 {
        let of_one = [
            (options.expected.is_some(), "--digest or --sha256"),
            (!options.mirrors.is_empty(), "--mirror"),
        ];
        if let Some(option) = first_true(of_one) {
            return Err(usage(format!("{option} is for a single URL")).into());
        }
    }
    Ok(options)
}

fn inside(directory: &Path, name: &Name) -> PathBuf {
    directory.join(path_of(name.components()))
}
