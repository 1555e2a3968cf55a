//! Setup of a session with a peer, with a message if the daemon queues it.

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

/// Connects to a daemon. Prints a message on standard error if the daemon queues the session.
pub(crate) async fn connect(builder: ClientBuilder, host: &str) -> Result<Client, Failure> {
    let terminal = Terminal::default();
    connect_telling(builder, host, |event| {
        if let Some(text) = queued(event) {
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
    let (sender, mut events) = mpsc::channel(1);
    let mut connecting = pin!(builder.events(sender).connect(host));
    loop {
        tokio::select! {
            connected = &mut connecting => return Ok(connected?),
            Some(event) = events.recv() => tell(&event),
        }
    }
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
