//! Arguments of `serve s3`.

use std::{ffi::OsString, path::PathBuf};

use clap::{ArgGroup, Args};

use crate::connect::connect_arguments::ConnectArgs;

/// Serve the files of a machine that runs `nicstripe serve` to programs that speak S3
///
/// Buckets are the directories directly below PATH, objects the files below them. Requires the keys
/// AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY from the environment, or else generates keys for this
/// run. Prints the variables that AWS programs read on standard output, the keys only if it generated
/// them.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("where").required(true).args(["addr", "unix"]))]
pub(crate) struct S3 {
    /// Machine, and the folder of the buckets below the daemon's root
    #[arg(value_name = "HOST:[PATH]")]
    pub(super) base: OsString,

    /// Listen for HTTP at this address; port 0 picks a free one
    #[arg(long, value_name = "ADDR:PORT")]
    pub(super) addr: Option<String>,

    /// Listen for HTTP on a Unix socket of this name, which only this user and root can open
    #[arg(long, value_name = "SOCKET")]
    pub(super) unix: Option<PathBuf>,

    #[command(flatten)]
    pub(super) connect: ConnectArgs,
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use nicstripe::Name;

    use super::{super::super::gateway, *};

    #[derive(Debug, Parser)]
    struct Typed {
        #[command(flatten)]
        s3: S3,
    }

    fn base(words: &[&str]) -> Result<Option<Name>, String> {
        let Typed { s3 } =
            Typed::try_parse_from([&["s3"], words].concat()).map_err(|error| error.to_string())?;
        let remote = gateway::address(&s3.base, "nas:lake");
        let remote = remote.map_err(|failure| failure.one_line())?;
        Ok(remote.path.name().cloned())
    }

    #[test]
    fn a_folder_of_a_machine_is_served_at_one_place() {
        let found = base(&["--addr", "localhost:0", "nas:lake"]).unwrap();
        assert_eq!(found, Some(Name::parse(b"lake").unwrap()));
        assert_eq!(base(&["--unix", "/run/s3", "nas:"]).unwrap(), None);
        assert!(
            base(&["--addr", "localhost:0", "lake"])
                .unwrap_err()
                .contains("no host in \"lake\"")
        );
        assert!(base(&["nas:lake"]).is_err());
        assert!(base(&["--addr", "localhost:0", "--unix", "x", "nas:lake"]).is_err());
    }
}
