//! Setup of a session with a peer, with a message if it has to wait.

use std::pin::pin;

use nicstripe::{
    Client, ClientBuilder, Event,
    trust::{AddressBook, Identity, Peers},
};
use tokio::sync::mpsc;

use crate::{failure::Failure, output::terminal::Terminal, places, text::shown};

/// Returns a client builder with the private key, the trusted peers and the address book of this
/// machine.
pub(crate) fn client() -> Result<ClientBuilder, Failure> {
    let home = places::home()?;
    Ok(Client::builder()
        .identity(Identity::load_or_create(&home.identity_file())?)
        .peers(Peers::load(&home.peers_file())?)
        .address_book(AddressBook::at(home.addresses_file())))
}

/// Connects to a daemon. Prints a message on standard error if the daemon does not answer, or queues
/// the session.
pub(crate) async fn connect(builder: ClientBuilder, host: &str) -> Result<Client, Failure> {
    let terminal = Terminal::default();
    connect_telling(builder, host, |event| {
        if let Some(text) = queued(event).or_else(|| unreachable(event, "^C ends")) {
            terminal.say(text);
        }
    })
    .await
}

/// Connects to a daemon, and passes the events of the connection setup to `tell`.
pub(crate) async fn connect_telling(
    builder: ClientBuilder,
    host: &str,
    mut tell: impl FnMut(&Event),
) -> Result<Client, Failure> {
    let (sender, mut events) = mpsc::channel(EVENTS);
    let mut connecting = pin!(builder.events(sender).connect(host));
    let client = loop {
        tokio::select! {
            connected = &mut connecting => break connected?,
            Some(event) = events.recv() => tell(&event),
        }
    };
    tokio::spawn(tell_of_session(events));
    Ok(client)
}

/// Prints on standard error what requests and tunnels of a session wait for. Transfers have events
/// of their own.
async fn tell_of_session(mut events: mpsc::Receiver<Event>) {
    let terminal = Terminal::default();
    while let Some(event) = events.recv().await {
        let text = stalled(&event).or_else(|| unreachable(&event, "^C ends"));
        text.into_iter().for_each(|text| terminal.say(text));
    }
}

/// Capacity of the channel for events of a session. Two are sent at once, ten times a second.
const EVENTS: usize = 16;

/// Returns the message for a daemon that cannot be reached, with the effect of ^C once data has
/// moved; `None` for other events.
pub(crate) fn unreachable(event: &Event, on_interrupt: &str) -> Option<String> {
    let Event::Unreachable {
        host,
        interfaces,
        patience,
        ..
    } = event
    else {
        return None;
    };
    let names: Vec<String> = interfaces.iter().map(shown).collect();
    let on = if names.is_empty() {
        String::new()
    } else {
        format!(" on {}", names.join(", "))
    };
    let host = shown(host);
    let Some(patience) = patience else {
        return Some(format!("{host} does not answer{on}; still trying, ^C ends"));
    };
    let limit = match patience.as_secs() {
        seconds if seconds >= 60 && seconds % 60 == 0 => format!("{} min", seconds / 60),
        seconds => format!("{seconds} s"),
    };
    Some(format!(
        "{host} is unreachable{on}; trying for {limit}, {on_interrupt}"
    ))
}

/// Returns the message for a peer that makes no progress; `None` for other events.
pub(crate) fn stalled(event: &Event) -> Option<String> {
    let Event::Stalled { since, awaited } = event else {
        return None;
    };
    let waited = since.as_secs();
    Some(format!(
        "no progress for {waited} s, waiting for the daemon to {awaited}"
    ))
}

/// Returns the message for a session that the daemon queued; `None` for other events.
pub(crate) fn queued(event: &Event) -> Option<String> {
    let Event::Queued { host, most, .. } = event else {
        return None;
    };
    let host = shown(host);
    Some(match most {
        Some(1) => format!("waiting for {host}: limit of 1 session reached"),
        Some(most) => format!("waiting for {host}: limit of {most} sessions reached"),
        None => format!("waiting for {host}: connection limit reached"),
    })
}
