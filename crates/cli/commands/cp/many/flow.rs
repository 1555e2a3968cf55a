//! Items under way from receiver to receiver.

use std::{sync::Arc, time::Instant};

use futures_util::future::join_all;
use indicatif::{ProgressBar, ProgressStyle};
use nicstripe::chain::{Chain, Change, Fault, Feed, Need, Order};
use tokio::task::JoinSet;

use super::{
    super::arguments::OutputArgs,
    files::{Files, Item},
    receiver::{Receiver, Trouble},
};
use crate::output::terminal::Terminal;

/// Copy of large files to receivers that feed each other.
#[derive(Debug)]
pub(super) struct Flow {
    receivers: Arc<Vec<Receiver>>,
    files: Arc<Files>,
    chain: Chain,
    /// Whether each receiver needed each file at the beginning.
    needs: Arc<Vec<Vec<Need>>>,
    /// Number of items of each receiver and file that are missing.
    missing: Vec<Vec<usize>>,
    gone: Vec<bool>,
    bars: Vec<ProgressBar>,
    terminal: Terminal,
    sent: Sent,
}

/// What the chain has carried.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sent {
    /// Bytes that left this machine.
    pub(super) from_here: u64,
    /// Bytes of the files that any receiver needed.
    pub(super) whole: u64,
    pub(super) receivers: usize,
}

impl Flow {
    pub(super) async fn new(
        receivers: Vec<Receiver>,
        files: Files,
        terminal: &Terminal,
        wishes: OutputArgs,
    ) -> Self {
        let of_one = async |receiver: &Receiver| {
            let mut of_it = Vec::new();
            for some in files.files.chunks(ASKED_AT_ONCE) {
                of_it.extend(join_all(some.iter().map(|file| receiver.need(file))).await);
            }
            of_it
        };
        let needs: Vec<Vec<Need>> = join_all(receivers.iter().map(of_one)).await;
        let sizes = files.items.iter().map(Item::len).collect();
        let of_items = receivers.iter().zip(&needs).map(|(receiver, needs)| {
            let needs = files.items.iter().map(|item| needs[item.file]);
            (needs.collect(), receiver.expected)
        });
        let chain = Chain::new(sizes, of_items.collect());
        let count = |needs: &Vec<Need>| {
            let mut missing = vec![0; files.files.len()];
            for item in &files.items {
                missing[item.file] += usize::from(needs[item.file] == Need::Missing);
            }
            missing
        };
        let missing: Vec<Vec<usize>> = needs.iter().map(count).collect();
        let is_needed = |file: usize| missing.iter().any(|missing| missing[file] > 0);
        let whole = files.files.iter().enumerate();
        let whole = whole.filter(|(file, _)| is_needed(*file));
        let sent = Sent {
            whole: whole.map(|(_, file)| file.version.size).sum(),
            receivers: receivers.len(),
            ..Sent::default()
        };
        let bars = match wishes.draws_bars(terminal) && sent.whole > 0 {
            true => bars(&receivers, &files, &needs, terminal),
            false => Vec::new(),
        };
        Self {
            gone: vec![false; receivers.len()],
            receivers: Arc::new(receivers),
            files: Arc::new(files),
            needs: Arc::new(needs),
            terminal: terminal.clone(),
            chain,
            missing,
            bars,
            sent,
        }
    }

    /// Carries all items, then gives the files their names.
    pub(super) async fn run(mut self) -> Sent {
        let mut tasks = JoinSet::new();
        loop {
            while let Some(order) = self.chain.next_order() {
                tasks.spawn(self.carry(order));
            }
            self.tell();
            if self.chain.has_ended() {
                break;
            }
            let Some(carried) = tasks.join_next().await else {
                break;
            };
            if let Ok((order, result)) = carried {
                self.on_carried(order, result);
            }
        }
        tasks.abort_all();
        self.name_files().await;
        self.sent
    }

    fn carry(&self, order: Order) -> impl Future<Output = (Order, Result<(), Trouble>)> + use<> {
        let (receivers, files, needs) = (
            self.receivers.clone(),
            self.files.clone(),
            self.needs.clone(),
        );
        async move {
            let item = &files.items[order.item];
            let (file, receiver) = (&files.files[item.file], &receivers[order.receiver]);
            let result = match order.feed {
                Feed::Source => receiver.put(file, item).await,
                Feed::Receiver(feed) => {
                    let had_it = needs[feed][item.file] == Need::There;
                    receiver.fetch(file, item, (&receivers[feed], had_it)).await
                }
            };
            (order, result)
        }
    }

    fn on_carried(&mut self, order: Order, result: Result<(), Trouble>) {
        let Order {
            receiver,
            item,
            feed,
        } = order;
        match result {
            Ok(()) => {
                let item = &self.files.items[item];
                let len = item.len();
                if feed == Feed::Source {
                    self.sent.from_here += len;
                }
                self.missing[receiver][item.file] -= 1;
                if let Some(bar) = self.bars.get(receiver) {
                    bar.inc(len);
                }
                self.chain.on_done(receiver, order.item, Instant::now());
            }
            Err(Trouble::Fault(fault)) => self.chain.on_failed(order, fault),
            Err(Trouble::Lost) => {
                self.chain.on_failed(order, Fault::Refused);
                self.lose(receiver);
            }
            Err(Trouble::FeedLost) => {
                if let Feed::Receiver(feed) = feed {
                    self.lose(feed);
                }
                self.chain.on_failed(order, Fault::Unreached);
            }
        }
    }

    fn lose(&mut self, receiver: usize) {
        self.gone[receiver] = true;
        self.chain.on_gone(receiver);
    }

    /// Tells the user what has become of the chain.
    fn tell(&mut self) {
        while let Some(change) = self.chain.next_change() {
            let shown = |receiver: usize| &self.receivers[receiver].shown;
            let text = match change {
                Change::Gone { receiver } => {
                    format!("{} is lost; the others go on without it", shown(receiver))
                }
                Change::Wrong { receiver } => format!(
                    "{} gave others bytes that are not those of the source, and gives none any more",
                    shown(receiver)
                ),
                Change::Slow { receiver } => format!(
                    "{} is slower than its cables; those after it go on without it",
                    shown(receiver)
                ),
                Change::Unreached { receiver, feed } => format!(
                    "{} does not get bytes from {}, and goes on from another",
                    shown(receiver),
                    shown(feed)
                ),
            };
            self.terminal.warning(&text);
        }
    }

    /// Gives files of several items that are whole their names, and removes others.
    async fn name_files(&self) {
        let mut tasks = JoinSet::new();
        for (index, missing) in self.missing.iter().enumerate() {
            if self.gone[index] {
                continue;
            }
            for (number, missing) in missing.iter().enumerate() {
                let file = &self.files.files[number];
                let is_made = self.needs[index][number] == Need::Missing && !file.is_one_item();
                if !is_made {
                    continue;
                }
                let (receivers, files, missing) =
                    (self.receivers.clone(), self.files.clone(), *missing);
                tasks.spawn(async move {
                    let (receiver, file) = (&receivers[index], &files.files[number]);
                    let is_named = missing == 0
                        && file.check().is_ok()
                        && receiver.complete(file).await.is_ok();
                    if !is_named {
                        receiver.give_up(file).await;
                    }
                });
            }
        }
        while tasks.join_next().await.is_some() {}
        for (index, receiver) in self.receivers.iter().enumerate() {
            if !self.gone[index] {
                receiver.client.clone().close().await;
            }
        }
    }
}

impl Drop for Flow {
    /// Removes the bars, also if the copy is interrupted.
    fn drop(&mut self) {
        for bar in &self.bars {
            bar.finish_and_clear();
            self.terminal.bars.remove(bar);
        }
        if !self.bars.is_empty() {
            self.terminal.leave_bars();
        }
    }
}

fn bars(
    receivers: &[Receiver],
    files: &Files,
    needs: &[Vec<Need>],
    terminal: &Terminal,
) -> Vec<ProgressBar> {
    let style = ProgressStyle::with_template(BAR).unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = |(receiver, needs): (&Receiver, &Vec<Need>)| {
        let needed = files.files.iter().zip(needs);
        let needed = needed.filter(|(_, need)| **need == Need::Missing);
        let size = needed.map(|(file, _)| file.version.size).sum();
        let bar = ProgressBar::new(size).with_style(style.clone());
        let bar = terminal.bars.add(bar);
        bar.set_prefix(receiver.shown.clone());
        bar
    };
    let bars = receivers.iter().zip(needs).map(bar).collect();
    terminal.show_bars();
    bars
}

/// Number of files about which a target is asked at a time.
const ASKED_AT_ONCE: usize = 32;

const BAR: &str = "{prefix:20!} {bar:30} {percent:>3} % {decimal_bytes_per_sec:>14}";
