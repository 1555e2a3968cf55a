//! Environment of the demo: two hosts in network namespaces, or two sets of loopback addresses.

use std::{
    ffi::OsString,
    fmt, io,
    net::{Ipv4Addr, TcpListener},
    process::Command,
};

use nicstripe::{BitRate, DEFAULT_PORT, chain};
use nicstripe_lab::{Host, Lab, LinkCounters, LinkSpec, gain_access};

use super::failed;
use crate::failure::Fault;

/// Separation of the demo's two hosts: by network namespaces if this machine allows them.
#[derive(Debug)]
pub(super) enum Isolation {
    Lab,
    /// Loopback addresses stand in for hosts and cables.
    Loopback {
        /// Reason why network namespaces cannot be used.
        why: String,
    },
}

impl Isolation {
    /// Detects the isolation that this machine allows, and enters a user namespace if needed. Must
    /// be called while the process has one thread.
    pub(super) fn find() -> Self {
        match gain_access() {
            Ok(()) => Self::Lab,
            Err(error) => Self::Loopback { why: chain(&error) },
        }
    }
}

/// Describes the hosts and cables of the demo to the user.
impl fmt::Display for Isolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lab => f.write_str(
                "Two hosts inside this machine, joined by virtual gigabit Ethernet cables:\n\
                 117.7 MB/s of file data each. A copy is encrypted, verified and on disk when it\n\
                 ends; its time is that of the whole command.",
            ),
            Self::Loopback { why } => write!(
                f,
                "No network namespaces: {why}.\n\
                 Pairs of loopback addresses stand in for cables, without a rate limit: the\n\
                 rates are those of this machine, not of a cable. The full demo needs root or\n\
                 user namespaces."
            ),
        }
    }
}

/// The two hosts of the demo and their cables.
#[derive(Debug)]
pub(super) enum Stage {
    Lab(Lab),
    Loopback { cables: u8, port: u16 },
}

impl Stage {
    pub(super) fn build(ground: &Isolation, cables: usize) -> Result<Self, Fault> {
        match ground {
            Isolation::Lab => {
                let links = vec![LinkSpec::gigabit(); cables];
                let lab = Lab::builder().links(links).build();
                Ok(Self::Lab(lab.map_err(failed(NO_LAB))?))
            }
            Isolation::Loopback { .. } => {
                let cables = u8::try_from(cables).unwrap_or(u8::MAX);
                let port = free_port(bind)?;
                Ok(Self::Loopback { cables, port })
            }
        }
    }

    pub(super) fn cables(&self) -> usize {
        match self {
            Self::Lab(lab) => lab.links().len(),
            Self::Loopback { cables, .. } => usize::from(*cables),
        }
    }

    pub(super) fn nicstripe(&self, host: Host) -> io::Result<Command> {
        let program = std::env::current_exe()?;
        Ok(match self {
            Self::Lab(lab) => lab.command(host, program),
            Self::Loopback { .. } => Command::new(program),
        })
    }

    /// Returns the daemon's address, to which `cp` connects first.
    pub(super) fn daemon_address(&self) -> Ipv4Addr {
        match self {
            Self::Lab(lab) => lab.address(Host::B, 0),
            Self::Loopback { .. } => loopback(Host::B, 0),
        }
    }

    pub(super) fn serve_options(&self) -> Vec<OsString> {
        match self {
            Self::Lab(_) => Vec::new(),
            Self::Loopback { cables, port } => {
                let address = |cable| format!("{}:{port}", loopback(Host::B, cable));
                let option = |cable| ["--listen".into(), address(cable).into()];
                (0..*cables).flat_map(option).collect()
            }
        }
    }

    /// Returns the link options for `cp`. In network namespaces it needs none, as it finds the
    /// interfaces itself.
    pub(super) fn cp_options(&self) -> Vec<OsString> {
        match self {
            Self::Lab(_) => Vec::new(),
            Self::Loopback { cables, port } => {
                let link = |cable| {
                    let [near, far] = [Host::A, Host::B].map(|host| loopback(host, cable));
                    format!("--link={near}={far}").into()
                };
                let port = format!("--port={port}").into();
                (0..*cables).map(link).chain([port]).collect()
            }
        }
    }

    /// Returns the total capacity of the cables; `None` on loopback, which has no limit.
    pub(super) fn expected(&self) -> Option<BitRate> {
        let Self::Lab(lab) = self else {
            return None;
        };
        let rates = lab.links().into_iter().map(|spec| spec.goodput());
        rates
            .map(|rate| rate.map(|rate| BitRate(rate.bits_per_second())))
            .sum()
    }

    /// Returns the kernel's byte counters by cable name; `None` on loopback, which has no interface
    /// per cable.
    pub(super) fn counters(&self) -> Result<Option<Vec<(String, LinkCounters)>>, Fault> {
        let Self::Lab(lab) = self else {
            return Ok(None);
        };
        let counters = lab.counters().map_err(failed(NO_LAB))?;
        let counters = counters.into_iter().enumerate();
        let named = counters.map(|(link, counters)| (lab.interface(link), counters));
        Ok(Some(named.collect()))
    }
}

/// Returns the address that stands in for one end of a cable: 127.0.0.2 and up for host A,
/// 127.0.1.2 and up for host B.
fn loopback(host: Host, cable: u8) -> Ipv4Addr {
    let third = match host {
        Host::A => 0,
        Host::B => 1,
    };
    Ipv4Addr::new(127, 0, third, cable + 2)
}

/// Returns a free TCP port for the daemon, tested with `bind`: the default port, otherwise any.
fn free_port(bind: impl Fn(u16) -> io::Result<u16>) -> Result<u16, Fault> {
    let port = bind(DEFAULT_PORT).or_else(|_| bind(0));
    port.map_err(failed("no free port for the demo's daemon"))
}

const NO_LAB: &str = "cannot create the demo's hosts and cables";

/// Binds a port of host B for a moment, and returns its number.
fn bind(port: u16) -> io::Result<u16> {
    let listener = TcpListener::bind((loopback(Host::B, 0), port))?;
    Ok(listener.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_cables_are_pairs_of_their_own() {
        let stage = Stage::Loopback {
            cables: 2,
            port: 99,
        };
        assert_eq!(
            stage.serve_options(),
            ["--listen", "127.0.1.2:99", "--listen", "127.0.1.3:99"]
        );
        assert_eq!(
            stage.cp_options(),
            [
                "--link=127.0.0.2=127.0.1.2",
                "--link=127.0.0.3=127.0.1.3",
                "--port=99"
            ]
        );
        assert_eq!(stage.expected(), None);
    }

    #[test]
    fn a_missing_port_is_reported_as_one() {
        let used = |_| Err(io::ErrorKind::AddrInUse.into());
        let error = free_port(used).unwrap_err();
        assert_eq!(error.to_string(), "no free port for the demo's daemon");
        let any = |port| match port {
            0 => Ok(40_000),
            _ => used(port),
        };
        assert_eq!(free_port(any).unwrap(), 40_000);
    }

    #[test]
    fn it_is_said_when_nothing_is_shaped() {
        let ground = Isolation::Loopback {
            why: "because".into(),
        };
        let said = ground.to_string();
        assert!(
            said.contains(": because.") && said.contains("without a rate limit"),
            "{said}"
        );
    }
}
