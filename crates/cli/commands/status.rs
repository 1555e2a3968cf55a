//! `nicstripe status`: what the daemon and the copies of a user do.

use std::path::Path;

use clap::Args;
use nicstripe::{
    BitRate, Client, RunningLink, RunningSession, RunningTransfer, TransferDirection, trust::Home,
};
use serde_json::{Value, value::RawValue};
use tokio::{
    io::{AsyncReadExt as _, duplex, empty, sink},
    time::timeout,
};

use crate::{
    connect::{connect_arguments::ConnectArgs, place::Place, setup::Needs},
    failure::{Failure, Fault, exit::Exit},
    output::{
        json::{Object, hinted_outcome, print_document, seconds},
        logging, stdout,
        terminal::Terminal,
    },
    places::{self, SERVICE_HOME},
    process::{presence::ask_all, runtime, signals::Signals},
    text::{
        quantity::{Clock, Limit, Size, Speed},
        shown,
    },
};

/// Show what runs here: the daemon, who is connected to it, and copies, with the rate of each link
///
/// Shows the processes of this user; for root also those of the service. With HOST, it runs there.
#[derive(Debug, Args)]
#[command(mut_arg("timeout", |timeout| timeout.default_value("60s")))]
pub(crate) struct Status {
    /// Machine to ask: USER@HOST for ssh, or one whose daemon may run `nicstripe status --json` for
    /// this machine (exec=)
    #[arg(value_name = "HOST")]
    host: Option<Place>,

    #[command(flatten)]
    connect: ConnectArgs,

    /// Print one JSON document on standard output (docs/schema/status.schema.json)
    #[arg(long)]
    json: bool,
}

impl Status {
    pub(crate) fn run(self, terminal: &Terminal) -> Result<(), Failure> {
        let found = match &self.host {
            Some(host) => self.ask(host, terminal),
            None => of_this_machine(),
        };
        if self.json {
            let document = Object::default()
                .with("schema", SCHEMA)
                .and(hinted_outcome(found.as_ref().err()))
                .with("processes", found.as_deref().unwrap_or_default());
            return print_document(&document).and(found.map(drop));
        }
        let found = found?;
        let lines = found.iter().flat_map(lines);
        lines.into_iter().try_for_each(stdout::line)?;
        if found.is_empty() {
            terminal.say("no daemon and no copy of this user runs");
            let is_here = self.host.is_none() && Path::new(SERVICE_HOME).exists();
            if is_here && !rustix::process::geteuid().is_root() {
                terminal.hint("the service is that of another user: sudo nicstripe status");
            }
        }
        Ok(())
    }

    /// Runs this command at another machine, and returns the processes that it lists.
    fn ask(&self, host: &Place, terminal: &Terminal) -> Result<Vec<Value>, Failure> {
        logging::start(terminal)?;
        let keeper = self.connect.keeper()?;
        runtime::run(async {
            let mut signals = Signals::take()?;
            let needs = Needs::default();
            let connecting = self.connect.connect(host, &needs, keeper);
            let connected = signals.unless_stopped(connecting).await?;
            let asking = timeout(self.connect.timeout(), listed(&connected.client, host));
            let asking = async {
                asking.await.unwrap_or_else(|_| {
                    let limit = Limit(self.connect.timeout());
                    let text = format!("nicstripe status on {host} has not ended within {limit}");
                    Err(Fault::new(Exit::TimedOut, text).into())
                })
            };
            let found = signals.unless_stopped(asking).await;
            connected.close().await;
            found
        })
    }
}

fn of_this_machine() -> Result<Vec<Value>, Failure> {
    let home = places::home()?;
    let mut found = ask_all(&home);
    if rustix::process::geteuid().is_root() && home.state() != Path::new(SERVICE_HOME) {
        found.extend(ask_all(&Home::at(SERVICE_HOME)));
    }
    Ok(found)
}

async fn listed(client: &Client, host: &Place) -> Result<Vec<Value>, Failure> {
    let (printed, printing) = duplex(PIPE);
    let ended = client.exec(["nicstripe", "status", "--json"], empty(), printed, sink());
    let reading = async move {
        let mut document = Vec::new();
        let bounded = printing.take(MOST_BYTES).read_to_end(&mut document).await;
        bounded.map(|_| document)
    };
    let (ended, document) = tokio::join!(ended, reading);
    let malformed = || {
        let text = format!("the answer of {host} is no status of nicstripe");
        Fault::new(Exit::Protocol, text).with_hint("update nicstripe there or here")
    };
    if ended?.code() != 0 {
        return Err(malformed().into());
    }
    let document: Value = document
        .ok()
        .and_then(|document| serde_json::from_slice(&document).ok())
        .ok_or_else(malformed)?;
    match &document["processes"] {
        Value::Array(processes) if document["schema"] == SCHEMA => Ok(processes.clone()),
        _ => Err(malformed().into()),
    }
}

pub(crate) fn of_daemon(root: &str, key: &str, sessions: &[RunningSession]) -> Object {
    Object::default()
        .with("role", "daemon")
        .with("root", root)
        .with("fingerprint", key)
        .list("sessions", sessions, of_session)
}

pub(crate) fn of_copy(command: &str, progress: Option<&RawValue>) -> Object {
    Object::default()
        .with("role", "copy")
        .with("command", command)
        .with("progress", progress)
}

fn of_session(session: &RunningSession) -> Object {
    Object::default()
        .with("peer", &session.peer)
        .with("since_s", seconds(session.since))
        .list("links", &session.links, of_link)
        .list("transfers", &session.transfers, of_transfer)
}

fn of_link(link: &RunningLink) -> Object {
    Object::of(&link.link)
        .and(Object::of(&link.state))
        .with("received_bps", link.received.0)
        .with("sent_bps", link.sent.0)
}

fn of_transfer(transfer: &RunningTransfer) -> Object {
    Object::default()
        .with("name", &transfer.name)
        .with(
            "direction",
            match transfer.direction {
                TransferDirection::Receive => "receive",
                TransferDirection::Send => "send",
            },
        )
        .with("since_s", seconds(transfer.since))
        .with("bytes", transfer.bytes)
        .with("size_bytes", transfer.size)
}

/// Returns the lines of a process. Another version may have sent other fields.
fn lines(process: &Value) -> Vec<String> {
    let pid = &process["pid"];
    if process["role"] == "daemon" {
        let sessions = list(process, "sessions");
        let count = match sessions.len() {
            0 => "nobody is connected".to_owned(),
            1 => "1 session".to_owned(),
            count => format!("{count} sessions"),
        };
        let root = text(process, "root");
        let mut lines = vec![format!("daemon (process {pid}) serves {root}: {count}")];
        lines.extend(sessions.iter().flat_map(session_lines));
        return lines;
    }
    let mut lines = vec![format!(
        "copy (process {pid}): {}",
        text(process, "command")
    )];
    let progress = &process["progress"];
    if progress.is_object() {
        lines.push(format!("  {}", moved(progress, "goodput_bps")));
        lines.extend(
            list(progress, "links")
                .iter()
                .map(|link| link_line(link, &["goodput_bps"])),
        );
    }
    lines
}

fn session_lines(session: &Value) -> Vec<String> {
    let since = std::time::Duration::try_from_secs_f64(session["since_s"].as_f64().unwrap_or(0.0));
    let mut lines = vec![format!(
        "  {} for {}",
        text(session, "peer"),
        Clock(since.unwrap_or_default())
    )];
    let links = list(session, "links").iter();
    lines.extend(links.map(|link| link_line(link, &["received_bps", "sent_bps"])));
    for transfer in list(session, "transfers") {
        let verb = match transfer["direction"] == "receive" {
            true => "receives",
            false => "sends",
        };
        lines.push(format!(
            "    {verb} {}  {}",
            text(transfer, "name"),
            moved(transfer, "")
        ));
    }
    lines
}

/// Returns the bytes of a transfer, its size if known, and its rate if there is such a field.
fn moved(progress: &Value, rate: &str) -> String {
    let bytes = progress["bytes"].as_u64().unwrap_or(0);
    let mut line = Size(bytes).to_string();
    if let Some(size) = progress["size_bytes"].as_u64() {
        line.push_str(&format!(" of {}", Size(size)));
    }
    if let Some(bps) = progress[rate].as_u64() {
        line.push_str(&format!("  {}", Speed(BitRate(bps))));
    }
    line
}

fn link_line(link: &Value, rates: &[&str]) -> String {
    let mut line = format!("    {}", text(link, "interface"));
    if let Some(remote) = link["remote"].as_str() {
        line.push_str(&format!(" ↔ {}", shown(remote)));
    }
    line.push_str(&format!("  {}", text(link, "state")));
    for rate in rates {
        let bps = link[*rate].as_u64().filter(|bps| *bps > 0);
        let word = match *rate {
            "received_bps" => " in",
            "sent_bps" => " out",
            _ => "",
        };
        line.extend(bps.map(|bps| format!("  {}{word}", Speed(BitRate(bps)))));
    }
    line
}

fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field].as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value, field: &str) -> String {
    shown(value[field].as_str().unwrap_or("?"))
}

const SCHEMA: &str = "nicstripe-status/1";

/// Maximum size of another machine's answer.
const MOST_BYTES: u64 = 4 << 20;

/// Buffer size of a pipe in bytes.
const PIPE: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_daemon_and_a_copy_are_shown_with_their_links() {
        let daemon = json!({
            "role": "daemon", "pid": 7, "root": "/srv/in", "fingerprint": "A",
            "sessions": [{
                "peer": "laptop", "since_s": 65.2,
                "links": [{ "interface": "eth1", "remote": "10.0.1.1", "state": "up", "received_bps": 940_000_000, "sent_bps": 0 }],
                "transfers": [{ "name": "big.img", "direction": "receive", "bytes": 1 << 30, "size_bytes": 4_u64 << 30 }]
            }]
        });
        assert_eq!(
            lines(&daemon),
            [
                "daemon (process 7) serves /srv/in: 1 session",
                "  laptop for 1:05",
                "    eth1 ↔ 10.0.1.1  up  117.5 MB/s in",
                "    receives big.img  1.00 GiB of 4.00 GiB",
            ]
        );
        let copy = json!({
            "role": "copy", "pid": 8, "command": "nicstripe cp a nas:",
            "progress": { "bytes": 10, "goodput_bps": 8_000_000, "links": [{ "interface": "eth2", "state": "down" }] }
        });
        assert_eq!(
            lines(&copy),
            [
                "copy (process 8): nicstripe cp a nas:",
                "  10 B  1.0 MB/s",
                "    eth2  down",
            ]
        );
        // Whatever another version answers.
        for odd in [
            json!(null),
            json!([]),
            json!({ "role": "daemon", "sessions": 3 }),
        ] {
            lines(&odd);
        }
    }
}
