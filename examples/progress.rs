//! Progress display of a copy: one bar for the file, one bar per link, and link events above the
//! bars.
//!
//! ```text
//! cargo run --example progress -- FILE HOST [PORT [LINK…]]
//! ```
//!
//! The program draws the bars from [`nicstripe::Transfer::progress`], a cheap snapshot, as often as
//! it chooses. Events report changes in between. A program that does not read the events loses only
//! progress events and delays nothing.

use std::{collections::HashMap, error::Error, path::PathBuf, time::Duration};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use nicstripe::{
    Client, CopyOptions, DEFAULT_PORT, Event, LinkName, Progress,
    trust::{Home, Identity, Peers},
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(file), Some(host)) = (arguments.next().map(PathBuf::from), arguments.next()) else {
        return Err("usage: progress FILE HOST [PORT [LINK…]]".into());
    };
    let port = arguments
        .next()
        .map_or(Ok(DEFAULT_PORT), |port| port.parse())?;
    let named = arguments
        .map(|link| link.parse())
        .collect::<Result<Vec<_>, _>>()?;
    let home = Home::from_env()?;
    let client = Client::builder()
        .identity(Identity::load_or_create(home.identity_file())?)
        .peers(Peers::load(home.peers_file())?)
        .port(port)
        .links(named)
        .connect(&host)
        .await?;

    let bars = Bars::new()?;
    // Keyed by the link's addresses, because links appear while the copy runs.
    let mut links = HashMap::new();
    let mut tick = tokio::time::interval(Duration::from_millis(100));
    let mut transfer = client.put(
        &file,
        None,
        CopyOptions {
            replace: true,
            ..CopyOptions::default()
        },
    );
    loop {
        tokio::select! {
            _ = tick.tick() => bars.draw(&transfer.progress(), &mut links),
            event = transfer.next_event() => match event {
                Some(Event::Link { link, state }) => bars.say(&format!("{}: {state:?}", link.interface)),
                Some(Event::Waiting { since }) => bars.say(&format!("no connection for {since:?}")),
                Some(_) => {}
                None => break,
            },
        }
    }
    let report = transfer.finish().await?;
    bars.all.clear()?;
    println!("{} bytes at {}", report.size, report.goodput());
    for link in &report.links {
        println!(
            "{}: {} bytes at {}",
            link.link.interface, link.bytes, link.goodput
        );
    }
    client.close().await;
    Ok(())
}

/// Progress bars of a copy. Drawn only on a terminal.
struct Bars {
    all: MultiProgress,
    file: ProgressBar,
    style: ProgressStyle,
}

impl Bars {
    fn new() -> Result<Self, Box<dyn Error>> {
        let style = ProgressStyle::with_template("{prefix:>12} {wide_bar} {bytes:>10} {msg:>14}")?;
        let all = MultiProgress::new();
        let file = all.add(
            ProgressBar::no_length()
                .with_style(style.clone())
                .with_prefix("all links"),
        );
        Ok(Self { all, file, style })
    }

    fn draw(&self, progress: &Progress, links: &mut HashMap<LinkName, ProgressBar>) {
        self.file.set_length(progress.size);
        self.file.set_position(progress.bytes);
        self.file.set_message(progress.rate.to_string());
        for link in &progress.links {
            let bar = links.entry(link.link.clone()).or_insert_with(|| {
                let bar = ProgressBar::no_length()
                    .with_style(self.style.clone())
                    .with_prefix(link.link.interface.clone());
                self.all.add(bar)
            });
            bar.set_length(progress.size);
            bar.set_position(link.bytes);
            bar.set_message(link.rate.to_string());
        }
    }

    /// Prints a line above the progress bars, or on standard error if they are hidden.
    fn say(&self, line: &str) {
        if self.all.println(line).is_err() || self.all.is_hidden() {
            eprintln!("{line}");
        }
    }
}
