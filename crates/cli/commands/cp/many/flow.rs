//! Items under way from receiver to receiver.

use std::{sync::Arc, time::Instant};

use futures_util::future::join_all;
use indicatif::{ProgressBar, ProgressStyle};
use nicstripe::chain::{Chain, Change, Fault, Feed, Need, Order};
use tokio::{sync::RwLock, task::JoinSet};

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
    /// Whether each receiver needs each file. While others get items of a file from it, it does not get
    /// its name.
    needs: Arc<Vec<Vec<RwLock<Need>>>>,
    /// Number of items of each receiver and file that are missing.
    missing: Vec<Vec<usize>>,
    /// Bytes that each receiver needs, and has got.
    whole: Vec<u64>,
    got: Vec<u64>,
    gone: Vec<bool>,
    /// Receivers whose files have their names.
    named: Vec<bool>,
    tasks: JoinSet<(Order, Result<(), Trouble>)>,
    wishes: OutputArgs,
    bars: Vec<ProgressBar>,
    terminal: Terminal,
    sent: Sent,
}

/// Amounts that the chain has carried.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sent {
    /// Bytes that left this machine.
    pub(super) from_here: u64,
    /// Bytes of the files that any receiver needed.
    pub(super) whole: u64,
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
            from_here: 0,
        };
        let size = |needs: &Vec<Need>| {
            let needed = files.files.iter().zip(needs);
            let needed = needed.filter(|(_, need)| **need == Need::Missing);
            needed.map(|(file, _)| file.version.size).sum()
        };
        let count = receivers.len();
        let locked = |needs: Vec<_>| needs.into_iter().map(RwLock::new).collect();
        Self {
            whole: needs.iter().map(size).collect(),
            got: vec![0; count],
            gone: vec![false; count],
            named: vec![false; count],
            needs: Arc::new(needs.into_iter().map(locked).collect()),
            receivers: Arc::new(receivers),
            files: Arc::new(files),
            terminal: terminal.clone(),
            tasks: JoinSet::new(),
            bars: Vec::new(),
            chain,
            missing,
            wishes,
            sent,
        }
    }

    /// Amounts that the chain has carried until now.
    pub(super) fn sent(&self) -> Sent {
        self.sent
    }

    /// Carries items until receivers have all that they will have, and no one waits but for slow ones.
    /// Gives files at them their names. Returns the numbers of their copies in order; none
    /// if all have ended.
    pub(super) async fn run(&mut self) -> Vec<usize> {
        if self.chain.has_ended() && self.unnamed().is_empty() {
            return Vec::new();
        }
        self.show_bars();
        loop {
            while let Some(order) = self.chain.next_order() {
                self.tasks.spawn(self.carry(order));
            }
            self.tell();
            let mut all = 0..self.receivers.len();
            let waits_for =
                |receiver| !self.chain.is_done(receiver) && !self.chain.is_slow(receiver);
            if self.chain.has_ended() || (!all.any(waits_for) && !self.unnamed().is_empty()) {
                break;
            }
            let Some(carried) = self.tasks.join_next().await else {
                break;
            };
            if let Ok((order, result)) = carried {
                self.on_carried(order, result);
            }
        }
        let ended = self.unnamed();
        self.name_files(&ended).await;
        for receiver in &ended {
            self.named[*receiver] = true;
        }
        if self.chain.has_ended() {
            for (receiver, gone) in self.receivers.iter().zip(&self.gone) {
                if !gone {
                    receiver.client.clone().close().await;
                }
            }
        }
        self.clear_bars();
        let copies = ended.iter().map(|receiver| self.receivers[*receiver].copy);
        let mut copies: Vec<usize> = copies.collect();
        copies.sort_unstable();
        copies
    }

    /// Returns the receivers that have all that they will have, and whose files have no names yet.
    fn unnamed(&self) -> Vec<usize> {
        let is_one = |receiver: &usize| {
            self.chain.is_done(*receiver) && !self.gone[*receiver] && !self.named[*receiver]
        };
        (0..self.receivers.len()).filter(is_one).collect()
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
                    let need = needs[feed][item.file].read().await;
                    let had_it = *need == Need::There;
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
                self.got[receiver] += len;
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

    /// Gives files of several items at receivers their names if they are whole, and removes others.
    async fn name_files(&self, ended: &[usize]) {
        let mut tasks = JoinSet::new();
        for index in ended.iter().copied() {
            for (number, missing) in self.missing[index].iter().copied().enumerate() {
                let (receivers, files, needs) = (
                    self.receivers.clone(),
                    self.files.clone(),
                    self.needs.clone(),
                );
                tasks.spawn(async move {
                    let (receiver, file) = (&receivers[index], &files.files[number]);
                    let mut need = needs[index][number].write().await;
                    if *need != Need::Missing || file.is_one_item() {
                        return;
                    }
                    let is_named = missing == 0
                        && file.check().is_ok()
                        && receiver.complete(file).await.is_ok();
                    match is_named {
                        true => *need = Need::There,
                        false => receiver.give_up(file).await,
                    }
                });
            }
        }
        while tasks.join_next().await.is_some() {}
    }

    /// Draws a bar for each receiver, if the user wants any.
    fn show_bars(&mut self) {
        if !self.wishes.draws_bars(&self.terminal) || self.sent.whole == 0 {
            return;
        }
        let style =
            ProgressStyle::with_template(BAR).unwrap_or_else(|_| ProgressStyle::default_bar());
        for (index, receiver) in self.receivers.iter().enumerate() {
            let bar = ProgressBar::new(self.whole[index]).with_style(style.clone());
            let bar = self.terminal.bars.add(bar.with_position(self.got[index]));
            bar.set_prefix(receiver.shown.clone());
            self.bars.push(bar);
        }
        self.terminal.show_bars();
    }

    fn clear_bars(&mut self) {
        if self.bars.is_empty() {
            return;
        }
        for bar in self.bars.drain(..) {
            bar.finish_and_clear();
            self.terminal.bars.remove(&bar);
        }
        self.terminal.leave_bars();
    }
}

impl Drop for Flow {
    /// Removes the bars, also if the copy is interrupted.
    fn drop(&mut self) {
        self.clear_bars();
    }
}

/// Number of files about which a target is asked at a time.
const ASKED_AT_ONCE: usize = 32;

const BAR: &str = "{prefix:20!} {bar:30} {percent:>3} % {decimal_bytes_per_sec:>14}";
