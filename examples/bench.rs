//! Measurement of the links to a daemon from a program: connect, bench, watch, report.
//!
//! ```text
//! cargo run --release --example bench -- HOST [PORT [SECONDS]]
//! ```
//!
//! Uses the key and the trusted peers of the `nicstripe` command; `HOST` runs `nicstripe serve`.

use std::{error::Error, time::Duration};

use nicstripe::{
    BenchEvent, BenchPlan, Client, DEFAULT_PORT,
    bench::Phase,
    trust::{Home, Identity, Peers},
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let Some(host) = arguments.next() else {
        return Err("usage: bench HOST [PORT [SECONDS]]".into());
    };
    let port = arguments
        .next()
        .map_or(Ok(DEFAULT_PORT), |port| port.parse())?;
    let seconds = arguments.next().map_or(Ok(5), |seconds| seconds.parse())?;
    let home = Home::from_env()?;
    let client = Client::builder()
        .identity(Identity::load_or_create(home.identity_file())?)
        .peers(Peers::load(home.peers_file())?)
        .port(port)
        .connect(&host)
        .await?;

    // Loads each link alone, then all links together, three times, in one direction only.
    let phases = vec![Phase::Idle, Phase::Solo, Phase::Together];
    let mut bench = client.bench(BenchPlan {
        phases,
        load: Duration::from_secs(seconds),
        repeats: 3..=3,
        ..BenchPlan::default()
    });
    while let Some(event) = bench.next_event().await {
        match event {
            BenchEvent::Waiting { ahead, wait } => {
                println!("{ahead} queued ahead, for {wait:?} at most");
            }
            BenchEvent::Idle { link, round_trips } => {
                println!("link {link}: RTT {} us", round_trips.p50_us);
            }
            BenchEvent::Sample {
                interval, links, ..
            } => println!(
                "links {links:?}: {:?} bytes in {} us",
                interval.bytes, interval.dt_us
            ),
            BenchEvent::RunDone(run) => {
                println!("{:?} {}: {} bit/s", run.phase, run.repeat, run.total_bps);
            }
            BenchEvent::Note(text) => println!("note: {text}"),
            _ => {}
        }
    }
    let report = bench.finish().await?;
    println!("{}", report.summary.sentence);
    client.close().await;
    Ok(())
}
