//! Copy that is interrupted halfway and then resumed, in the same process or in the next process
//! that copies the same file.
//!
//! ```text
//! cargo run --example resume -- FILE HOST [PORT]
//! ```
//!
//! The received part is durable at the daemon, next to the final name. A new copy sends only the
//! missing part, even after a crash of either machine. The client stores no state for the resume.

use std::{error::Error, path::PathBuf, time::Duration};

use nicstripe::{
    BitRate, Client, CopyOptions, DEFAULT_PORT,
    trust::{Home, Identity, Peers},
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(file), Some(host)) = (arguments.next().map(PathBuf::from), arguments.next()) else {
        return Err("usage: resume FILE HOST [PORT]".into());
    };
    let port = arguments
        .next()
        .map_or(Ok(DEFAULT_PORT), |port| port.parse())?;
    let home = Home::from_env()?;
    let builder = Client::builder()
        .identity(Identity::load_or_create(home.identity_file())?)
        .peers(Peers::load(home.peers_file())?)
        .port(port);

    // As slow as a disk, so that the copy can be interrupted halfway.
    let client = builder
        .clone()
        .bandwidth(Some(BitRate(400_000_000)))
        .connect(&host)
        .await?;
    let transfer = client.put(&file, None, CopyOptions::default());
    while transfer.progress().bytes == 0 || transfer.progress().bytes < transfer.progress().size / 3
    {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // Dropping the transfer would cancel it as well. `finish` also waits until the received part is
    // durable.
    transfer.cancel();
    match transfer.finish().await {
        Err(error) if error.is_resumable() => println!("interrupted: {error}"),
        Err(error) => return Err(error.into()),
        Ok(_) => println!("complete before the interruption"),
    }
    client.close().await;

    let client = builder.connect(&host).await?;
    let report = client
        .put(
            &file,
            None,
            CopyOptions {
                replace: true,
                ..CopyOptions::default()
            },
        )
        .finish()
        .await?;
    println!(
        "resumed at {} of {} bytes",
        report.resumed_bytes, report.size
    );
    client.close().await;
    Ok(())
}
