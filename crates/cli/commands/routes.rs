//! `nicstripe routes`: lists and removes host routes that nicstripe installed, and restores MTUs
//! that it changed.

use std::io;

use clap::{Args, Subcommand};
use nicstripe::routes::{self, ChangedMtu, HostRoute, MtuError, RouteError};
use rustix::net::{AddressFamily, SocketType, netdevice::index_to_name, socket};

use crate::{
    failure::{CommandError, Failure},
    output::{stdout, terminal::Terminal},
    places,
};

/// List or remove host routes installed by nicstripe; other routes are never changed
#[derive(Debug, Args)]
pub(crate) struct RoutesArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Print the routes, one per line: destination, interface, and the processes that use it
    List,
    /// Remove routes of ended processes, restore changed MTUs, and print both; every start of
    /// nicstripe does the same
    Clean,
}

impl RoutesArgs {
    pub(crate) fn run(self, terminal: &Terminal) -> Result<(), Failure> {
        let state_dir = places::routes_dir(&places::home()?);
        match self.action {
            Action::List => {
                let found = routes::list(&state_dir)?;
                found.iter().try_for_each(|(route, owners)| {
                    stdout::line(described(route, owners.as_deref()))
                })?;
                let mtus = routes::list_mtus(&state_dir)?;
                mtus.iter()
                    .try_for_each(|changed| stdout::line(described_mtu(changed)))?;
                if found.is_empty() && mtus.is_empty() {
                    terminal.say("no routes installed by nicstripe");
                }
            }
            Action::Clean => {
                // A failed line must not keep the MTUs from being restored.
                let (removed, restored) =
                    (routes::clean(&state_dir)?, routes::clean_mtus(&state_dir)?);
                removed.iter().try_for_each(|route| {
                    stdout::line(format_args!("removed {}", destination(route)))
                })?;
                restored.iter().try_for_each(|changed| {
                    stdout::line(format_args!(
                        "restored MTU {} of {}, which was {}",
                        changed.was, changed.name, changed.now
                    ))
                })?;
                if removed.is_empty() && restored.is_empty() {
                    terminal.say("nothing to remove");
                }
            }
        }
        Ok(())
    }
}

impl CommandError for RouteError {}

impl CommandError for MtuError {}

fn described(route: &HostRoute, owners: Option<&[u32]>) -> String {
    let state = match owners {
        None => "owner visible to root only".to_owned(),
        Some(owners) => use_of(owners),
    };
    format!("{}  {state}", destination(route))
}

fn described_mtu(changed: &ChangedMtu) -> String {
    let ChangedMtu { name, now, was, .. } = changed;
    let state = use_of(changed.owner.as_slice());
    format!("{name} has MTU {now}, to be restored to {was}  {state}")
}

fn use_of(owners: &[u32]) -> String {
    if owners.is_empty() {
        return "stale, its process has ended".to_owned();
    }
    let owners: Vec<String> = owners.iter().map(u32::to_string).collect();
    format!("in use by process {}", owners.join(", "))
}

fn destination(route: &HostRoute) -> String {
    let bits = if route.destination.is_ipv4() { 32 } else { 128 };
    format!(
        "{}/{bits} dev {}",
        route.destination,
        interface_name(route.interface.0).unwrap_or_else(|_| route.interface.to_string())
    )
}

fn interface_name(index: u32) -> io::Result<String> {
    let any = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    Ok(index_to_name(any, index)?)
}
