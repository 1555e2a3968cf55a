//! Offer of a sender, and the question whether to write it.

use std::{fs, path::Path};

use nicstripe::invitation::Item;
use rustix::termios::{QueueSelector, isatty, tcflush};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::path_of;
use crate::{
    connect::by_code::{line, totals},
    failure::Failure,
    output::terminal::Terminal,
    process::streams,
    text::shown,
};

/// Offer of a sender, in the order in which it is listed.
pub(super) struct Question<'a> {
    dir: &'a Path,
    /// Items whose name or kind may surprise, then the others.
    items: Vec<&'a Item>,
    /// Number of items that are listed without being asked for.
    listed: usize,
}

impl<'a> Question<'a> {
    pub(super) fn of(offered: &'a [Item], dir: &'a Path) -> Self {
        let (mut items, plain): (Vec<&Item>, Vec<&Item>) =
            offered.iter().partition(|item| is_remarkable(item, dir));
        let listed = items.len().max(MOST_LISTED).min(offered.len());
        items.extend(plain);
        Self { dir, items, listed }
    }

    /// Lists the items: all that are remarkable, and of the others as many as fit on a screen.
    pub(super) fn list(&self, terminal: &Terminal) {
        self.say(&self.items[..self.listed], terminal);
        let hidden: Vec<Item> = self.hidden().iter().map(|item| (*item).clone()).collect();
        if !hidden.is_empty() {
            let (count, what) = (hidden.len(), totals(&hidden));
            terminal.say(format_args!("  and {count} more names: {what}"));
        }
    }

    /// Asks until the answer is yes or no. The end of standard input means no, and so does every
    /// other answer but `l`, which lists the rest.
    pub(super) async fn ask(&self, terminal: &Terminal) -> Result<bool, Failure> {
        // Text typed before the list was shown is no answer to it.
        if isatty(rustix::stdio::stdin()) {
            let _ = tcflush(rustix::stdio::stdin(), QueueSelector::IFlush);
        }
        let input = streams::input(LINE).map_err(Failure::Output)?;
        let mut lines = BufReader::new(input).lines();
        loop {
            let choices = match self.hidden().is_empty() {
                true => "[y/N]",
                false => "[y/N], l lists all",
            };
            terminal.say(format_args!("write to {}? {choices}", shown(self.dir)));
            let line = lines.next_line().await.map_err(Failure::Output)?;
            match line.as_deref().map(str::trim) {
                Some("y" | "Y" | "yes" | "Yes") => return Ok(true),
                Some("l" | "L") => self.say(&self.items, terminal),
                _ => return Ok(false),
            }
        }
    }

    fn hidden(&self) -> &[&Item] {
        &self.items[self.listed..]
    }

    fn say(&self, items: &[&Item], terminal: &Terminal) {
        for item in items {
            terminal.say(format_args!("{}{}", line(item), remark(item, self.dir)));
        }
    }
}

/// Returns true for an item that is always listed: a hidden name, one that exists, a link, and a
/// directory, whose contents are not listed.
fn is_remarkable(item: &Item, dir: &Path) -> bool {
    item.name.starts_with(b".") || item.is_link || item.is_dir || exists(item, dir)
}

/// Returns true if an item cannot be received: its name is taken, and not by a directory to which
/// files can be added.
pub(super) fn is_taken(item: &Item, dir: &Path) -> bool {
    let found = fs::symlink_metadata(path_of(item, dir));
    found.is_ok_and(|found| !(item.is_dir && found.is_dir()))
}

fn exists(item: &Item, dir: &Path) -> bool {
    fs::symlink_metadata(path_of(item, dir)).is_ok()
}

fn remark(item: &Item, dir: &Path) -> &'static str {
    match (exists(item, dir), is_taken(item, dir)) {
        (true, true) => "  (exists, and will not be replaced)",
        (true, false) => "  (exists: files are added to it)",
        _ if item.name.starts_with(b".") => "  (hidden)",
        _ => "",
    }
}

/// Buffer size of a pipe for the answer, in bytes.
const LINE: usize = 4096;

/// Number of items that fit on a screen.
const MOST_LISTED: usize = 20;
