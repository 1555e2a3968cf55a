//! Arguments of `serve restic`.

use std::ffi::OsString;

use clap::{ArgGroup, Args};

use crate::connect::connect_arguments::ConnectArgs;

/// Serve restic and rustic a repository on a machine that runs `nicstripe serve`
///
/// For restic: restic -o rclone.program=nicstripe -r rclone:HOST:PATH. For rustic: the option
/// rclone-command = "nicstripe serve restic --addr localhost:0" of the repository rclone:HOST:PATH.
/// The folder has the layout of a local restic repository.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("where").required(true).args(["stdio", "addr"]))]
pub(crate) struct Restic {
    /// Machine, and the repository's folder below the daemon's root
    #[arg(value_name = "HOST:PATH")]
    pub(super) repository: OsString,

    /// Speak HTTP on standard input and output, as restic expects of a program it starts
    #[arg(long)]
    pub(super) stdio: bool,

    /// Listen for HTTP at this address; port 0 picks a free one. Requires RCLONE_USER and
    /// RCLONE_PASS from the environment, or else a password generated for this run and printed on
    /// standard output
    #[arg(long, value_name = "ADDR:PORT")]
    pub(super) addr: Option<String>,

    /// Accept requests without a password; only on a loopback address, open to all local users
    #[arg(long, conflicts_with = "stdio")]
    pub(super) no_password: bool,

    /// No effect; accepted because restic passes it to rclone
    #[arg(long)]
    b2_hard_delete: bool,

    #[command(flatten)]
    pub(super) connect: ConnectArgs,
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use nicstripe::{DEFAULT_PORT, Name};

    use super::{super::super::gateway, *};

    #[derive(Debug, Parser)]
    struct Typed {
        #[command(flatten)]
        restic: Restic,
    }

    /// Returns host, port and directory that the arguments name.
    fn address(words: &[&str]) -> Result<(String, u16, Option<Name>), String> {
        let Typed { restic } = Typed::try_parse_from([&["restic"], words].concat())
            .map_err(|error| error.to_string())?;
        let remote = gateway::address(&restic.repository, "nas:backup");
        let remote = remote.map_err(|failure| failure.one_line())?;
        let port = restic.connect.port(remote.place.port);
        Ok((
            remote.place.host.to_string(),
            port,
            remote.path.name().cloned(),
        ))
    }

    #[test]
    fn what_restic_types_by_itself_is_understood() {
        let found = address(&["--stdio", "--b2-hard-delete", "nas:backup/laptop"]).unwrap();
        let base = Some(Name::parse(b"backup/laptop").unwrap());
        assert_eq!(found, ("nas".into(), DEFAULT_PORT, base));
        let found = address(&["--stdio", "-P", "99", "nas:"]).unwrap();
        assert_eq!(found, ("nas".into(), 99, None));
        let found = address(&["--addr", "localhost:0", "nicstripe://nas:98/"]).unwrap();
        assert_eq!(found.1, 98);
    }

    #[test]
    fn a_folder_here_and_no_way_to_be_asked_are_usage_errors() {
        assert!(
            address(&["--stdio", "backup"])
                .unwrap_err()
                .contains("no host in \"backup\"")
        );
        assert!(address(&["--stdio", "-"]).is_err());
        assert!(address(&["nas:backup"]).is_err());
        assert!(address(&["--stdio", "--no-password", "nas:backup"]).is_err());
        assert!(address(&["--stdio", "--addr", "localhost:0", "nas:backup"]).is_err());
    }
}
