//! Daemon as an object store, without local files: the program writes an object as a stream, lists
//! objects, reads a range, and removes the object.
//!
//! ```text
//! cargo run --example objects -- HOST [PORT]
//! ```
//!
//! Uses the key and the trusted peers of the `nicstripe` command; `HOST` runs `nicstripe serve`.

use std::{error::Error, io::SeekFrom};

use nicstripe::{
    Client, CopyOptions, DEFAULT_PORT, Name,
    trust::{Home, Identity, Peers},
};
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let host = arguments.next().ok_or("usage: objects HOST [PORT]")?;
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
    let (dir, name) = (Name::parse(b"example")?, Name::parse(b"example/numbers")?);

    // The name does not exist before `finish`. Dropping the writer leaves nothing.
    let options = CopyOptions {
        replace: true,
        parents: true,
        ..CopyOptions::default()
    };
    let mut writer = client.create(&name, options);
    for number in 0..1_000_000 {
        writer
            .write_all(format!("{number:>9}\n").as_bytes())
            .await?;
    }
    let report = writer.finish().await?;
    println!("{} bytes are durable", report.size);

    for entry in client.list(Some(&dir)).await? {
        println!("{:>12} {}", entry.stat.size, entry.name);
    }

    let mut reader = client.open(&name).await?;
    reader.seek(SeekFrom::Start(10 * 123_456)).await?;
    let mut line = [0; 10];
    reader.read_exact(&mut line).await?;
    println!("line 123456: {}", String::from_utf8_lossy(&line).trim());

    // Reads the range in one call, without a reader.
    assert_eq!(client.read(&name, Some(1_234_560..1_234_570)).await?, line);

    client.remove(&name).await?;
    match client.stat(&name).await {
        Err(error) if error.is_not_found() => println!("removed"),
        other => println!("unexpected: {other:?}"),
    }
    client.close().await;
    Ok(())
}
