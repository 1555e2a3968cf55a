//! Writes an object to a daemon in the same process, and reads it back.

use nicstripe::{
    CancellationToken, Client, CopyOptions, Daemon, Name,
    storage::MemoryStorage,
    trust::{Identity, Peers, PublicLine},
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (here, there) = (Identity::generate()?, Identity::generate()?);
    let trusting = |identity: &Identity, name| -> Result<Peers, Box<dyn std::error::Error>> {
        let mut peers = Peers::default();
        peers.add(&PublicLine::new(identity.public_key(), name), Some(name))?;
        Ok(peers)
    };
    let daemon = Daemon::builder()
        .identity(there.clone())
        .peers(trusting(&here, "program")?)
        .storage(MemoryStorage::new())
        .listen(vec!["127.0.0.1:0".parse()?])
        .bind()
        .await?;
    let port = daemon.addresses()[0].address.port();
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(daemon.run(shutdown.clone()));

    let client = Client::builder()
        .identity(here)
        .peers(trusting(&there, "daemon")?)
        .port(port)
        .connect("127.0.0.1")
        .await?;
    let name = Name::parse(b"object")?;
    client.write(&name, "bytes", CopyOptions::default()).await?;
    assert_eq!(client.read(&name, None).await?, b"bytes");
    client.close().await;
    shutdown.cancel();
    running.await??;
    println!("written and read back");
    Ok(())
}
