//! Rate of one file, or of objects one after another, by the blocking library: the base line of its
//! bindings (`bindings/python/examples/rate.py`, `bindings/c/examples/rate.c`).
//!
//! ```text
//! cargo run --release --example rate -- HOST put|get|put-objects|get-objects [MIB [PORT]]
//! ```
//!
//! Prints MB/s of MIB MiB (2048) of random data, from the first byte until it is durable, or read. Uses
//! the key and the trusted peers of the `nicstripe` command; `HOST` runs `nicstripe serve`.

use std::{
    error::Error,
    io::{Read as _, Write as _},
    time::Instant,
};

use nicstripe::{
    CopyOptions, DEFAULT_PORT, Name,
    blocking::Client,
    trust::{Home, Identity, Peers},
};

/// Bytes of a write or a read.
const PIECE: usize = 1 << 20;
/// Bytes of an object.
const OBJECT: u64 = 2 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(host), Some(what)) = (arguments.next(), arguments.next()) else {
        return Err("usage: rate HOST put|get|put-objects|get-objects [MIB [PORT]]".into());
    };
    let mib = arguments.next().map_or(Ok(2048), |text| text.parse())?;
    let port = arguments
        .next()
        .map_or(Ok(DEFAULT_PORT), |port| port.parse())?;
    let size: u64 = mib << 20;
    let home = Home::from_env()?;
    let builder = nicstripe::Client::builder()
        .identity(Identity::load_or_create(home.identity_file())?)
        .peers(Peers::load(home.peers_file())?)
        .port(port);
    let client = Client::connect(builder, &host)?;
    let (name, options) = (Name::parse(b"rate")?, replacing());
    let mut data = vec![0; OBJECT as usize];
    getrandom(&mut data)?;
    let objects = 0..size / OBJECT;
    let object = |number: u64| Name::parse(format!("objects/{number}").as_bytes());
    let begun = Instant::now();
    match what.as_str() {
        "put" => {
            let mut target = client.create(&name, options);
            for _ in 0..size / PIECE as u64 {
                target.write_all(&data[..PIECE])?;
            }
            target.finish()?;
        }
        "get" => {
            let mut source = client.open(&name)?;
            while source.read(&mut data[..PIECE])? > 0 {}
        }
        "put-objects" => objects.into_iter().try_for_each(|number| {
            client.write(&object(number)?, &data, options)?;
            Ok::<_, nicstripe::Error>(())
        })?,
        "get-objects" => objects.into_iter().try_for_each(|number| {
            client.read(&object(number)?, None)?;
            Ok::<_, nicstripe::Error>(())
        })?,
        other => {
            return Err(format!("{other:?}: expected put, get, put-objects or get-objects").into());
        }
    }
    println!("{:.1}", size as f64 / begun.elapsed().as_secs_f64() / 1e6);
    client.close();
    Ok(())
}

fn replacing() -> CopyOptions {
    CopyOptions {
        replace: true,
        parents: true,
        ..CopyOptions::default()
    }
}

/// Fills memory with data that cannot be compressed.
fn getrandom(into: &mut [u8]) -> std::io::Result<()> {
    std::fs::File::open("/dev/urandom")?.read_exact(into)
}
