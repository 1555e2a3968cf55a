//! Copy of one file from a program: connect, put, watch, report.
//!
//! ```text
//! cargo run --example put -- FILE HOST [PORT]
//! ```
//!
//! Uses the key and the trusted peers of the `nicstripe` command; `HOST` runs `nicstripe serve`.

use std::{error::Error, path::PathBuf};

use nicstripe::{
    Client, CopyOptions, DEFAULT_PORT, Event,
    trust::{Home, Identity, Peers},
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(file), Some(host)) = (arguments.next().map(PathBuf::from), arguments.next()) else {
        return Err("usage: put FILE HOST [PORT]".into());
    };
    let port = arguments
        .next()
        .map_or(Ok(DEFAULT_PORT), |port| port.parse())?;
    let home = Home::from_env()?;
    let client = Client::builder()
        .identity(Identity::load_or_create(home.identity_file())?)
        .peers(Peers::load(home.peers_file())?)
        .port(port)
        .connect(&host)
        .await?;

    let mut transfer = client.put(&file, None, CopyOptions::default());
    while let Some(event) = transfer.next_event().await {
        match event {
            Event::Progress(progress) => println!(
                "{} of {} bytes at {}",
                progress.bytes, progress.size, progress.rate
            ),
            Event::Link { link, state } => println!("{}: {state:?}", link.interface),
            _ => {}
        }
    }
    // `Ok` means that the whole file is durable at the daemon, under its final name and with this
    // digest.
    let report = transfer.finish().await?;
    let digest = report
        .digest
        .map(|digest| digest.to_string())
        .unwrap_or_default();
    println!(
        "{} bytes, blake3 {digest}, {} over {} links",
        report.size,
        report.goodput(),
        report.links.len()
    );
    client.close().await;
    Ok(())
}
