//! Options that give rights to a peer, shared by `trust add`, `trust allow` and `pair`.

use std::{fs, path::PathBuf};

use clap::Args;
use nicstripe::{
    BitRate,
    trust::{Access, DialTarget, ExecRule, LineError, ListenTarget, PeerOptions},
};

use super::access;
use crate::failure::Failure;

/// Rights as typed: each option is one of the peers file.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Rights of the other machine here")]
pub(crate) struct RightsArgs {
    /// Let it read files, but not write any
    #[arg(long, conflicts_with = "append_only")]
    read_only: bool,

    /// Let it read and create files, but not replace or remove any
    #[arg(long)]
    append_only: bool,

    /// Give it this directory, instead of the daemon's
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,

    /// Limit what the daemon sends to it: bits per second, with K, M, G or T
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    rate: Option<BitRate>,

    /// Let it run no bench with this daemon
    #[arg(long)]
    no_bench: bool,

    /// Let it read no facts about this machine (doctor, bench)
    #[arg(long)]
    no_facts: bool,

    /// Accept set-user-ID and set-group-ID bits, devices and attributes of root from it
    #[arg(long)]
    special_modes: bool,

    /// Let it connect to this service from here (nicstripe dial): HOST:PORT or unix:/PATH; may be
    /// repeated
    #[arg(long, value_name = "TARGET")]
    dial: Vec<DialTarget>,

    /// Let it listen here (nicstripe forward -R): [ADDRESS:]PORT or unix:/PATH; may be repeated
    #[arg(long, value_name = "TARGET")]
    listen: Vec<ListenTarget>,

    /// Let it run this command (nicstripe exec), as one argument: 'borg serve *'; may be repeated
    #[arg(long, value_name = "COMMAND")]
    exec: Vec<ExecRule>,
}

/// Names of all options, for messages.
pub(super) const OPTIONS: &str = "--read-only, --append-only, --root, --rate, --no-bench, --no-facts, --special-modes, --dial, --listen or --exec";

impl RightsArgs {
    /// Returns the rights, checked: the directory exists, and the peers file can hold its path.
    pub(crate) fn given(&self) -> Result<Rights, Failure> {
        let real = |path: &PathBuf| fs::canonicalize(path).map_err(Failure::opening(path));
        let options = PeerOptions {
            root: self.root.as_ref().map(real).transpose()?,
            access: access(self.read_only, self.append_only),
            rate: self.rate,
            no_bench: self.no_bench,
            no_facts: self.no_facts,
            special_modes: self.special_modes,
            dial: unique(&self.dial),
            listen: unique(&self.listen),
            exec: unique(&self.exec),
        };
        let rights = Rights(options);
        if !rights.is_none() {
            rights.0.to_string().parse::<PeerOptions>()?;
        }
        Ok(rights)
    }
}

fn unique<T: Clone + PartialEq>(values: &[T]) -> Vec<T> {
    let mut unique = Vec::new();
    add_to(&mut unique, values);
    unique
}

fn add_to<T: Clone + PartialEq>(known: &mut Vec<T>, values: &[T]) {
    for value in values {
        if !known.contains(value) {
            known.push(value.clone());
        }
    }
}

fn parse_rate(text: &str) -> Result<BitRate, LineError> {
    let wrong = || LineError::Rate {
        text: text.escape_debug().take(48).collect(),
    };
    let is_one = text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let options = is_one.then(|| format!("rate={text}").parse::<PeerOptions>());
    options.ok_or_else(wrong)??.rate.ok_or_else(wrong)
}

/// Rights that a command gives by its own options.
#[derive(Debug, Clone)]
pub(crate) struct Rights(PeerOptions);

impl Rights {
    /// Returns true if no option was given.
    pub(crate) fn is_none(&self) -> bool {
        self.0 == PeerOptions::unrestricted()
    }

    /// Returns the rights of a peer that has no others.
    pub(crate) fn alone(&self) -> PeerOptions {
        self.0.clone()
    }

    /// Returns `had` with these rights added.
    ///
    /// # Errors
    ///
    /// Names of the options of `had` that would be lost or relaxed.
    pub(crate) fn added_to(&self, had: &PeerOptions) -> Result<PeerOptions, Vec<&'static str>> {
        let Self(given) = self;
        let mut granted = had.clone();
        add_to(&mut granted.dial, &given.dial);
        add_to(&mut granted.listen, &given.listen);
        add_to(&mut granted.exec, &given.exec);
        granted.special_modes |= given.special_modes;
        let options = PeerOptions {
            root: given.root.clone().or_else(|| had.root.clone()),
            access: match given.access {
                Access::Full => had.access,
                access => access,
            },
            rate: given.rate.or(had.rate),
            no_bench: had.no_bench || given.no_bench,
            no_facts: had.no_facts || given.no_facts,
            ..granted.clone()
        };
        // A requested change is no loss.
        match granted.loosened_by(&options) {
            loosened if loosened.is_empty() => Ok(options),
            loosened => Err(loosened),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(text: &str) -> PeerOptions {
        match text {
            "" => PeerOptions::unrestricted(),
            text => text.parse().unwrap(),
        }
    }

    #[test]
    fn rights_are_added_and_restrictions_are_not_lost() {
        for (had, given, has) in [
            ("", "exec=id", Ok("exec=id")),
            (
                "append-only,exec=id",
                "exec=\"borg serve *\"",
                Ok("append-only,exec=id,exec=\"borg serve *\""),
            ),
            ("append-only", "read-only", Ok("read-only")),
            ("", "root=/srv,rate=1M", Ok("root=/srv,rate=1000000")),
            ("dial=a:1", "dial=a:1", Ok("dial=a:1")),
            ("read-only", "append-only", Err(vec!["read-only"])),
            (
                "root=/a,rate=1M",
                "root=/b,rate=2M",
                Err(vec!["root", "rate"]),
            ),
        ] {
            let added = Rights(options(given)).added_to(&options(had));
            assert_eq!(added, has.map(options), "{had:?} and {given:?}");
        }
    }
}
