//! `nicstripe forward`: ports and socket files of one machine that are forwarded to services of the
//! other.

mod from_here;
mod from_peer;
mod spec;

use std::time::Duration;

use clap::{ArgGroup, Args};
use tokio::task::JoinSet;

use self::{from_here::FromHere, from_peer::FromPeer, spec::Spec};
use crate::{
    connect::{
        connect_arguments::ConnectArgs,
        place::Place,
        setup::{Connected, Needs},
    },
    failure::Failure,
    output::{logging, terminal::Terminal},
    process::{runtime, signals::Signals},
};

/// Forward ports and socket files to services of another machine, over every cable
///
/// -L: for each connection to PORT here, the daemon on PEER connects to HOST:HOSTPORT; its peers file
/// must grant this machine exactly dial=HOST:HOSTPORT. -R: the daemon listens on PORT, which needs
/// listen=[BIND:]PORT, and each connection to it is carried to HOST:HOSTPORT here. For a socket file,
/// a path stands in place of [BIND:]PORT, and unix:/PATH in place of HOST:HOSTPORT. Runs until
/// interrupted.
#[derive(Debug, Args)]
#[command(
    group(ArgGroup::new("forwards").args(["local", "remote"]).required(true).multiple(true)),
    mut_arg("timeout", |timeout| timeout.default_value("60s").help(
        "Reset the connections after this time without any link; the next one connects anew: seconds, \
         or with ms, s, m or h",
    ))
)]
pub(crate) struct Forward {
    /// Listen on PORT (0: any free one) here, at 127.0.0.1 or the address BIND, for HOST:HOSTPORT
    /// there; may be repeated. Put IPv6 addresses in brackets
    #[arg(short = 'L', value_name = "[BIND:]PORT:HOST:HOSTPORT", value_parser = Spec::local)]
    local: Vec<Spec>,

    /// Listen on PORT there, for HOST:HOSTPORT here; may be repeated
    #[arg(short = 'R', value_name = "[BIND:]PORT:HOST:HOSTPORT", value_parser = Spec::remote)]
    remote: Vec<Spec>,

    /// Machine that runs `nicstripe serve`, by name or address; or USER@HOST for ssh
    #[arg(value_name = "PEER")]
    peer: Place,

    #[command(flatten)]
    connect: ConnectArgs,
}

impl Forward {
    pub(crate) fn run(self, terminal: &Terminal) -> Result<(), Failure> {
        logging::start(terminal)?;
        let keeper = self.connect.keeper()?;
        runtime::run(async {
            let mut signals = Signals::take()?;
            let needs = self.needs();
            let connecting = self.connect.connect(&self.peer, &needs, keeper);
            let connected = signals.unless_stopped(connecting).await?;
            let opening = self.open(&connected, terminal);
            let opened = signals.unless_stopped(opening).await;
            let mut forwards = match opened {
                Ok(forwards) => forwards,
                Err(failure) => {
                    signals.finish(connected.close()).await;
                    return Err(failure);
                }
            };
            let stop = signals.stop().await;
            // Removes the socket files.
            forwards.shutdown().await;
            signals.finish(connected.close()).await;
            Err(Failure::Stopped(stop))
        })
    }

    fn needs(&self) -> Needs<'_> {
        Needs {
            dial: self.local.iter().map(|spec| spec.to.clone()).collect(),
            listen: self.remote.iter().map(|spec| spec.from.clone()).collect(),
            ..Needs::default()
        }
    }

    /// Listens everywhere, and then serves each forward in a task.
    async fn open(
        &self,
        connected: &Connected,
        terminal: &Terminal,
    ) -> Result<JoinSet<()>, Failure> {
        let (client, peer) = (&connected.client, &self.peer);
        let here = self.local.iter().map(FromHere::open);
        let here = here.collect::<Result<Vec<_>, _>>()?;
        let mut there = Vec::new();
        for spec in &self.remote {
            there.push(FromPeer::open(spec, client).await?);
        }
        let mut forwards = JoinSet::new();
        for forward in here {
            terminal.say(format_args!("forwarding {}", forward.shown(peer)));
            forwards.spawn(forward.serve(client.clone(), terminal.clone()));
        }
        for forward in there {
            terminal.say(format_args!("forwarding {}", forward.shown(peer)));
            forwards.spawn(forward.serve(client.clone(), peer.clone(), terminal.clone()));
        }
        Ok(forwards)
    }
}

/// Pause after a failed accept, such as for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use crate::args::Args;

    #[test]
    fn without_a_link_tunnels_wait_60_seconds_and_copies_10_minutes() {
        let mut commands = Args::command();
        commands.build();
        for (name, default) in [("dial", "60s"), ("forward", "60s"), ("cp", "10m")] {
            let command = commands.find_subcommand(name).unwrap();
            let mut options = command.get_arguments();
            let timeout = options.find(|option| option.get_id() == "timeout").unwrap();
            assert_eq!(timeout.get_default_values(), [default], "{name}");
        }
    }
}
