//! `nicstripe forward`: local ports that are forwarded to TCP services of the peer.

use std::{
    net::{IpAddr, SocketAddr},
    str::FromStr,
    time::Duration,
};

use clap::Args;
use nicstripe::{Client, trust::DialTarget};
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    task::JoinSet,
};

use crate::{
    connect::{arguments::ConnectArgs, place::Place, setup::Needs},
    failure::Failure,
    output::{logging, terminal::Terminal},
    process::{runtime, signals::Signals},
};

/// Forward local ports to TCP services of a machine, over every cable
///
/// For each connection to PORT here, the daemon on PEER connects to HOST:HOSTPORT; its peers file
/// must grant this machine exactly dial=HOST:HOSTPORT. Runs until interrupted.
#[derive(Debug, Args)]
#[command(mut_arg("timeout", |timeout| timeout.default_value("60s").help(
    "Reset the connections after this time without any link; the next one connects anew: seconds, \
     or with ms, s, m or h",
)))]
pub(crate) struct Forward {
    /// Listen on PORT (0: any free one) at 127.0.0.1 or the address BIND, for HOST:HOSTPORT there;
    /// may be repeated. Put IPv6 addresses in brackets
    #[arg(short = 'L', value_name = "[BIND:]PORT:HOST:HOSTPORT", required = true)]
    forwards: Vec<Spec>,

    /// Machine that runs `nicstripe serve`, by name or address; or USER@HOST for ssh
    #[arg(value_name = "PEER")]
    peer: Place,

    #[command(flatten)]
    connect: ConnectArgs,
}

/// Local address and port, and the service at the peer that they are forwarded to.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Spec {
    bind: IpAddr,
    port: u16,
    target: DialTarget,
}

impl FromStr for Spec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "not a forward: {text:?}, expected [BIND:]PORT:HOST:HOSTPORT, as in 8080:localhost:80 or [::1]:5432:db:5432"
            )
        };
        let (bind, port, host, host_port) = match split(text)[..] {
            [port, host, host_port] => ("127.0.0.1", port, host, host_port),
            [bind, port, host, host_port] => (bind, port, host, host_port),
            _ => return Err(wrong()),
        };
        let bind = if bind == "localhost" {
            "127.0.0.1"
        } else {
            bind.trim_start_matches('[').trim_end_matches(']')
        };
        let bind = bind.parse().map_err(|_| {
            format!(
                "not an address to listen on: {bind:?}, expected one of this machine, or localhost"
            )
        })?;
        let target = format!("{host}:{host_port}").parse().map_err(|_| wrong())?;
        Ok(Self {
            bind,
            port: port.parse().map_err(|_| wrong())?,
            target,
        })
    }
}

/// Splits a text at the colons that are not within brackets.
fn split(text: &str) -> Vec<&str> {
    let mut depth = 0_i32;
    let is_between = |c: char| {
        depth += i32::from(c == '[') - i32::from(c == ']');
        c == ':' && depth == 0
    };
    text.split(is_between).collect()
}

impl Forward {
    pub(crate) fn run(self, terminal: &Terminal) -> Result<(), Failure> {
        logging::start(terminal)?;
        let keeper = self.connect.keeper()?;
        runtime::run(async {
            let mut signals = Signals::take()?;
            let needs = Needs {
                dial: self
                    .forwards
                    .iter()
                    .map(|spec| spec.target.clone())
                    .collect(),
                ..Needs::default()
            };
            let connecting = self.connect.connect(&self.peer, &needs, keeper);
            let connected = signals.unless_stopped(connecting).await?;
            let mut listeners = JoinSet::new();
            for spec in &self.forwards {
                let listener = listen(spec)?;
                let port = listener
                    .local_addr()
                    .map_or(spec.port, |address| address.port());
                terminal.say(format_args!(
                    "forwarding {}:{port} to {} at {}",
                    spec.bind, spec.target, self.peer
                ));
                listeners.spawn(serve(
                    listener,
                    connected.client.clone(),
                    spec.target.clone(),
                    terminal.clone(),
                ));
            }
            let stop = signals.stop().await;
            listeners.shutdown().await;
            signals.finish(connected.close()).await;
            Err(Failure::Stopped(stop))
        })
    }
}

fn listen(spec: &Spec) -> Result<TcpListener, Failure> {
    let address = SocketAddr::from((spec.bind, spec.port));
    let listen = || {
        let socket = if address.is_ipv4() {
            TcpSocket::new_v4()
        } else {
            TcpSocket::new_v6()
        }?;
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    listen().map_err(|source| Failure::Listen {
        address: address.to_string(),
        source,
    })
}

/// Accepts connections and forwards each in a task. Dropping the future ends them all.
async fn serve(listener: TcpListener, client: Client, target: DialTarget, terminal: Terminal) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((tcp, _)) => {
                connections.spawn(carry(tcp, client.clone(), target.clone(), terminal.clone()));
            }
            // Most likely too many files are open; some will be closed.
            Err(error) => {
                tracing::debug!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn carry(tcp: TcpStream, client: Client, target: DialTarget, terminal: Terminal) {
    // Interactive traffic must not wait for more data (Nagle).
    let _ = tcp.set_nodelay(true);
    match client.dial(target.as_str()).await {
        Ok(tunnel) => {
            if let Err(error) = tunnel.join(tcp).await {
                tracing::debug!(%error, "connection reset");
            }
        }
        Err(error) => {
            terminal.warning(&nicstripe::chain(&error));
            // The client sees a reset instead of a service that closed at once.
            let _ = tcp.set_zero_linger();
        }
    }
}

/// Backlog of a listening socket, equal to the maximum connections of a session. With the default
/// of 128, the kernel resets connections of a larger burst on a busy machine.
const BACKLOG: u32 = 4096;

/// Pause after a failed accept, such as for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
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

    #[test]
    fn forwards_are_read_as_ssh_reads_them() {
        let spec = |text: &str| {
            text.parse::<Spec>()
                .map(|spec| (spec.bind.to_string(), spec.port, spec.target.to_string()))
        };
        let is = |bind: &str, port, target: &str| Ok((bind.to_owned(), port, target.to_owned()));
        assert_eq!(
            spec("8080:localhost:80"),
            is("127.0.0.1", 8080, "localhost:80")
        );
        assert_eq!(spec("0.0.0.0:8080:web:80"), is("0.0.0.0", 8080, "web:80"));
        assert_eq!(
            spec("localhost:8080:web:80"),
            is("127.0.0.1", 8080, "web:80")
        );
        assert_eq!(
            spec("[::1]:5432:[fe80::1]:5432"),
            is("::1", 5432, "[fe80::1]:5432")
        );
        for wrong in [
            "",
            "80",
            "80:web",
            "a:web:80",
            "80:web:0",
            "80:web:x",
            "80::80",
            "x:80:web:80",
            "1:2:3:4:5",
        ] {
            assert!(spec(wrong).is_err(), "{wrong}");
        }
    }
}
