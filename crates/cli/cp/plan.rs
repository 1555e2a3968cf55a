//! From arguments to what the library is asked for. Pure: nothing is opened or looked up.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use nicstripe::{BitRate, CopyOptions, DEFAULT_PORT, Family, LinkRequest, Name, RoutePolicy};

use super::{
    arguments::Cp,
    location::{Location, Remote, RemotePath},
};
use crate::failure::Failure;

/// One copy, complete and consistent.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// Name or address of the daemon's machine.
    pub(crate) host: String,
    /// TCP port of the daemon.
    pub(crate) port: u16,
    /// What goes where.
    pub(crate) way: Way,
    /// How it is written.
    pub(crate) options: CopyOptions,
    /// Over what it goes.
    pub(crate) network: Network,
}

/// What goes where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Way {
    /// From here to the daemon.
    Put {
        /// A file here.
        source: PathBuf,
        /// Its name there; `None` keeps its own, in the daemon's root.
        name: Option<Name>,
    },
    /// From the daemon to here.
    Get {
        /// A file there.
        name: Name,
        /// A file or directory here.
        target: PathBuf,
    },
}

/// Over what a copy goes.
#[derive(Debug, Clone)]
pub(crate) struct Network {
    /// The only links to use; empty for all that there are.
    pub(crate) links: Vec<LinkRequest>,
    /// Interfaces to leave out.
    pub(crate) exclude: Vec<String>,
    /// Connections a link, where the user said how many.
    pub(crate) streams: Option<u8>,
    /// When host routes are installed.
    pub(crate) routes: RoutePolicy,
    /// Most that is sent over all links.
    pub(crate) bandwidth: Option<BitRate>,
    /// How long no link may be connected.
    pub(crate) patience: Duration,
    /// The only version of IP to use.
    pub(crate) family: Option<Family>,
}

impl Plan {
    /// Makes the arguments one copy.
    pub(crate) fn of(cp: &Cp) -> Result<Self, Failure> {
        let (remote, way) = match (Location::parse(&cp.source)?, Location::parse(&cp.target)?) {
            (Location::Local(source), Location::Remote(target)) => put(source, target)?,
            (Location::Remote(source), Location::Local(target)) => get(source, target)?,
            (Location::Local(_), Location::Local(_)) => return Err(PlanError::BothLocal.into()),
            (Location::Remote(_), Location::Remote(_)) => return Err(PlanError::BothRemote.into()),
        };
        let port = match (cp.port, remote.port) {
            (Some(option), Some(url)) if option != url => return Err(PlanError::Ports { option, url }.into()),
            (option, url) => option.or(url).unwrap_or(DEFAULT_PORT),
        };
        let options = CopyOptions { replace: cp.force, restart: cp.no_resume, preserve: cp.preserve, verify: cp.verify };
        Ok(Self { host: remote.host, port, way, options, network: Network::of(cp) })
    }
}

impl Network {
    fn of(cp: &Cp) -> Self {
        Self {
            links: cp.link.clone(),
            exclude: cp.exclude_link.clone(),
            streams: cp.streams,
            routes: cp.routes.into(),
            bandwidth: cp.bwlimit.filter(|rate| *rate > BitRate::ZERO),
            patience: cp.timeout,
            family: cp.ip_version.only(),
        }
    }
}

impl Way {
    /// Returns the file's name for people, without folders.
    pub(crate) fn file_name(&self) -> String {
        let bytes = match self {
            Self::Put { source, .. } => source.file_name().map_or(&[][..], OsStr::as_bytes),
            Self::Get { name, .. } => name.file_name(),
        };
        nicstripe::escaped(bytes)
    }
}

fn put(source: PathBuf, target: Remote) -> Result<(Remote, Way), Failure> {
    let name = match &target.path {
        RemotePath::Root => None,
        RemotePath::File(name) => Some(name.clone()),
        RemotePath::Directory(directory) => Some(directory.join(own_name(&source)?).map_err(super::location::LocationError::from)?),
    };
    Ok((target, Way::Put { source, name }))
}

fn get(source: Remote, target: PathBuf) -> Result<(Remote, Way), Failure> {
    match &source.path {
        RemotePath::File(name) => {
            let way = Way::Get { name: name.clone(), target };
            Ok((source, way))
        }
        RemotePath::Root => Err(PlanError::RemoteDirectory { text: format!("{}:", source.host) }.into()),
        RemotePath::Directory(name) => Err(PlanError::RemoteDirectory { text: format!("{}:{name}/", source.host) }.into()),
    }
}

fn own_name(path: &Path) -> Result<&[u8], PlanError> {
    path.file_name().map(OsStr::as_bytes).ok_or_else(|| PlanError::NoName { path: path.to_owned() })
}

/// Why arguments do not make a copy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PlanError {
    /// Neither end is remote.
    #[error("neither source nor target is remote: expected one of them as HOST:PATH")]
    BothLocal,
    /// Both ends are.
    #[error("source and target are both remote: expected one of them on this machine")]
    BothRemote,
    /// The port is given twice.
    #[error("-P says port {option} and the URL says {url}: expected one of them")]
    Ports {
        /// By `-P`.
        option: u16,
        /// In the URL.
        url: u16,
    },
    /// A source such as `..`.
    #[error("{path:?} has no file name to keep")]
    NoName {
        /// The source.
        path: PathBuf,
    },
    /// A directory at the daemon as a source.
    #[error("\"{text}\" is a directory: trees are not supported yet, only single files")]
    RemoteDirectory {
        /// The source.
        text: String,
    },
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::{args::Args, args::Command};

    fn plan(words: &[&str]) -> Result<Plan, Failure> {
        let words = ["nicstripe", "cp"].iter().chain(words);
        let Command::Cp(cp) = Args::try_parse_from(words).unwrap().command else { panic!("not cp") };
        Plan::of(&cp)
    }

    fn name(text: &str) -> Name {
        Name::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_file_keeps_its_name_in_a_directory_of_the_daemon() {
        let put = |target: &str| match plan(&["dir/a.bin", target]).unwrap().way {
            Way::Put { name, .. } => name,
            way => panic!("{way:?}"),
        };
        assert_eq!(put("nas:"), None);
        assert_eq!(put("nas:/"), None);
        assert_eq!(put("nas:x/"), Some(name("x/a.bin")));
        assert_eq!(put("nas:/x/y"), Some(name("x/y")));
    }

    #[test]
    fn a_file_comes_from_the_daemon_by_its_name() {
        let way = plan(&["nas:/x/a.bin", "."]).unwrap().way;
        assert_eq!(way.file_name(), "a.bin");
        assert_eq!(way, Way::Get { name: name("x/a.bin"), target: ".".into() });
    }

    #[test]
    fn arguments_that_make_no_copy_are_refused_with_the_reason() {
        for (words, said) in [
            (&["a", "b"][..], "neither source nor target is remote"),
            (&["nas:a", "nas:b"], "both remote"),
            (&["nas:", "."], "\"nas:\" is a directory"),
            (&["nas:x/", "."], "\"nas:x/\" is a directory"),
            (&["..", "nas:x/"], "no file name"),
            (&["-P", "1", "a", "nicstripe://nas:2/"], "-P says port 1 and the URL says 2"),
        ] {
            let error = plan(words).unwrap_err().to_string();
            assert!(error.contains(said), "{words:?}: {error}");
        }
    }

    #[test]
    fn the_port_comes_from_the_option_the_url_or_the_default() {
        let port = |words: &[&str]| plan(words).unwrap().port;
        assert_eq!(port(&["a", "nas:"]), 7747);
        assert_eq!(port(&["-P", "99", "a", "nas:"]), 99);
        assert_eq!(port(&["a", "nicstripe://nas:99/"]), 99);
    }

    #[test]
    fn a_limit_of_zero_is_none() {
        let limit = |rate: &str| plan(&["--bwlimit", rate, "a", "nas:"]).unwrap().network.bandwidth;
        assert_eq!(limit("0"), None);
        assert_eq!(limit("1Mbit"), Some(BitRate::from_mbit(1)));
    }
}
