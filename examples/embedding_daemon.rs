//! Daemon embedded in a program: files in memory, a socket and keys of the program, no disk access
//! and no routes.
//!
//! ```text
//! cargo run --example embedding_daemon
//! ```
//!
//! The program also runs a client, which acts as another machine. The client puts a file and
//! fetches it again. The daemon rejects a put when the storage is full.

use std::{error::Error, net::TcpListener};

use nicstripe::{
    CancellationToken, Client, CopyOptions, Daemon, FailCode, Name,
    storage::{MemoryStorage, Storage},
    trust::{Identity, Peers, PublicLine},
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Each of the two machines has a key and trusts the other's key. The program decides where to
    // store them.
    let (ours, theirs) = (Identity::generate()?, Identity::generate()?);

    // The program may pass any socket: one with any port, an inherited one, or one bound to a
    // device.
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    let files = MemoryStorage::with_limit(16 << 20);
    let daemon = Daemon::builder()
        .identity(ours.clone())
        .peers(trusting(&theirs, "client")?)
        .storage(files.clone())
        .listeners(vec![listener])
        .bind()
        .await?;
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(daemon.run(shutdown.clone()));

    let client = Client::builder()
        .identity(theirs)
        .peers(trusting(&ours, "daemon")?)
        .port(port)
        .connect("127.0.0.1")
        .await?;
    let name = Name::parse(b"greeting")?;
    let text = "hello from memory".repeat(1000);
    let report = client
        .put_pipe(
            std::io::Cursor::new(text.clone()),
            name.clone(),
            CopyOptions::default(),
        )
        .finish()
        .await?;
    println!(
        "put {} bytes, {} installed routes",
        report.size, report.routes_installed
    );

    // The program can access the client's files, and the client can access the program's files.
    assert_eq!(files.contents(&name).as_deref(), Some(text.as_bytes()));
    files.rename(&name, &Name::parse(b"greeting, taken in")?, false)?;
    files.insert(&Name::parse(b"answer")?, b"42")?;

    let folder = tempfile::tempdir()?;
    let fetched = folder.path().join("answer");
    client
        .get(Name::parse(b"answer")?, &fetched, CopyOptions::default())
        .finish()
        .await?;
    println!("got {:?}", std::fs::read_to_string(&fetched)?);

    // A full storage is reported as an error and leaves no partial file.
    let endless = client
        .put_pipe(
            std::io::repeat(0),
            Name::parse(b"endless")?,
            CopyOptions::default(),
        )
        .finish()
        .await;
    match endless {
        Err(error) if error.fail_code() == Some(FailCode::NoSpace) => println!("refused: {error}"),
        other => return Err(format!("an endless file was not rejected: {other:?}").into()),
    }
    client.close().await;
    shutdown.cancel();
    running.await??;
    let names = files.list(None, None, 10)?.entries;
    println!(
        "left: {}",
        names
            .iter()
            .map(|(name, _)| String::from_utf8_lossy(name))
            .collect::<Vec<_>>()
            .join("; ")
    );
    Ok(())
}

/// Returns a list of trusted peers that contains one key.
fn trusting(identity: &Identity, name: &str) -> Result<Peers, Box<dyn Error>> {
    let mut peers = Peers::default();
    peers.add(&PublicLine::new(identity.public_key(), name), Some(name))?;
    Ok(peers)
}
