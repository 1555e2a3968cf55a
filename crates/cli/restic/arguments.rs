//! What may be typed behind `serve restic`.

use std::{ffi::OsString, time::Duration};

use clap::{ArgGroup, Args};
use nicstripe::{BitRate, DEFAULT_PORT, LinkRequest, Name};

use crate::{
    choice::IpVersion,
    cp::{
        Routes,
        location::{Location, Remote, RemotePath},
        parse_link, parse_port,
    },
    failure::Failure,
    quantity::{parse_rate, parse_time},
};

/// Serve restic and rustic a repository that is kept at a machine which runs `nicstripe serve`
///
/// For restic: restic -o rclone.program=nicstripe -r rclone:HOST:PATH. For rustic: the option rclone-command = "nicstripe serve restic
/// --addr localhost:0" of the repository rclone:HOST:PATH. The folder is laid out as restic has it on a disk.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("where").required(true).args(["stdio", "addr"]))]
pub(crate) struct Restic {
    /// The machine, and the folder of the repository beneath the daemon's root
    #[arg(value_name = "HOST:PATH")]
    pub(super) repository: OsString,

    /// Speak HTTP on standard input and output, as restic has it with a program that it starts
    #[arg(long)]
    pub(super) stdio: bool,

    /// Speak HTTP at this address; port 0 takes a free one. Requests have to know RCLONE_USER and RCLONE_PASS, where these are set in the
    /// environment; without them the address has to be one of this machine alone
    #[arg(long, value_name = "ADDR:PORT")]
    pub(super) addr: Option<String>,

    /// Changes nothing: restic passes it, for rclone's sake
    #[arg(long)]
    b2_hard_delete: bool,

    /// TCP port of the daemon [default: 7747]
    #[arg(short = 'P', long, value_parser = parse_port)]
    port: Option<u16>,

    #[command(flatten)]
    pub(super) ip_version: IpVersion,

    /// Use this link, and only those given so; may be repeated [default: every cable that reaches the peer]
    #[arg(long, value_name = "LOCAL[=REMOTE][@RATE]", value_parser = parse_link)]
    pub(super) link: Vec<LinkRequest>,

    /// Leave this interface out; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(super) exclude_link: Vec<String>,

    /// When to install host routes to the peer, which are removed at the end: where a link needs one, always, or never
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub(super) routes: Routes,

    /// Most to send a second, over all links: KiB without a unit, K, M or G for bytes, Mbit or Gbit for bits, 0 for no limit [default: no
    /// limit]
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    bwlimit: Option<BitRate>,

    /// How long to wait for a link to come back when none is left: seconds, or with ms, s, m or h
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = parse_time)]
    pub(super) timeout: Duration,
}

/// Where a repository is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) host: String,
    pub(super) port: u16,
    /// `None` for the daemon's root.
    pub(super) base: Option<Name>,
}

impl Restic {
    /// Finds the daemon and the folder in what was typed.
    pub(super) fn place(&self) -> Result<Place, Failure> {
        let no_host =
            || Failure::Setting { key: "HOST:PATH", why: format!("there is no machine in {:?}, as in nas:backup", self.repository) };
        let Location::Remote(Remote { host, port, path }) = Location::parse(&self.repository)? else { return Err(no_host()) };
        let base = match path {
            RemotePath::Root => None,
            RemotePath::Directory(name) | RemotePath::File(name) => Some(name),
        };
        Ok(Place { host, port: self.port.or(port).unwrap_or(DEFAULT_PORT), base })
    }

    /// The most bits to send a second.
    pub(super) fn bandwidth(&self) -> Option<BitRate> {
        self.bwlimit.filter(|rate| *rate > BitRate::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Typed {
        #[command(flatten)]
        restic: Restic,
    }

    fn place(words: &[&str]) -> Result<Place, String> {
        let typed = Typed::try_parse_from([&["restic"], words].concat()).map_err(|error| error.to_string())?;
        typed.restic.place().map_err(|failure| failure.one_line())
    }

    #[test]
    fn what_restic_types_by_itself_is_understood() {
        let found = place(&["--stdio", "--b2-hard-delete", "nas:backup/laptop"]).unwrap();
        let base = Some(Name::parse(b"backup/laptop").unwrap());
        assert_eq!(found, Place { host: "nas".into(), port: DEFAULT_PORT, base });
        assert_eq!(place(&["--stdio", "-P", "99", "nas:"]).unwrap(), Place { host: "nas".into(), port: 99, base: None });
        assert_eq!(place(&["--addr", "localhost:0", "nicstripe://nas:98/"]).unwrap().port, 98);
    }

    #[test]
    fn a_folder_here_and_no_way_to_be_asked_are_usage_errors() {
        assert!(place(&["--stdio", "backup"]).unwrap_err().contains("there is no machine in \"backup\""));
        assert!(place(&["--stdio", "-"]).is_err());
        assert!(place(&["nas:backup"]).is_err());
        assert!(place(&["--stdio", "--addr", "localhost:0", "nas:backup"]).is_err());
    }
}
