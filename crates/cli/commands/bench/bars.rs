//! Progress bars of a bench: one for the total and one per loaded link. A full bar is the
//! theoretical rate.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::live::{Live, Row};
use crate::output::terminal::Terminal;

#[derive(Debug)]
pub(crate) struct Bars {
    terminal: Terminal,
    bars: Vec<ProgressBar>,
}

impl Bars {
    /// Creates the progress bars, which appear when the first load starts.
    pub(crate) fn new(terminal: &Terminal) -> Self {
        Self {
            terminal: terminal.clone(),
            bars: Vec::new(),
        }
    }

    pub(crate) fn draw(&mut self, live: &Live) {
        let rows = live.rows();
        // The total exists before any link does.
        match (&self.bars[..], rows.len()) {
            ([], 0 | 1) => return,
            ([], _) => self.terminal.show_bars(),
            _ => {}
        }
        for (index, row) in rows.iter().enumerate() {
            self.draw_row(index, row);
        }
        for bar in self.bars.drain(rows.len().min(self.bars.len())..) {
            bar.finish_and_clear();
            self.terminal.bars.remove(&bar);
        }
    }

    /// Removes the progress bars, since the table printed next has their values.
    pub(crate) fn finish(&mut self) {
        self.bars.drain(..).for_each(|bar| bar.finish_and_clear());
        self.terminal.clear_bars();
        self.terminal
            .bars
            .set_draw_target(ProgressDrawTarget::hidden());
    }

    fn draw_row(&mut self, index: usize, row: &Row) {
        if index == self.bars.len() {
            let template = if index == 0 { TOTAL } else { LINK };
            let bar = ProgressBar::new(FULL).with_style(style(template));
            self.bars.push(self.terminal.bars.add(bar));
        }
        let bar = &self.bars[index];
        bar.set_position((row.part * FULL as f64) as u64);
        bar.set_prefix(row.name.clone());
        bar.set_message(row.text.clone());
    }
}

fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template)
        .expect("the templates below are well-formed, as a test shows");
    style.progress_chars("━╸─")
}

/// Layout of the bars; `┃` marks the theoretical rate. Prefix and message leave 17 columns for the
/// bar on a terminal of 80.
const TOTAL: &str = "{prefix:14!} {wide_bar:.green/white.dim}┃ {msg:46!}";
const LINK: &str = "{prefix:>14!} {wide_bar:.cyan/white.dim}┃ {msg:46!}";

/// Length of a full bar in steps, more than a terminal has columns.
const FULL: u64 = 1000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::bench::{live::tests::events, tests::samples};

    #[test]
    fn the_templates_are_well_formed_and_every_event_can_be_drawn() {
        let terminal = Terminal::default();
        let (mut bars, mut live) = (Bars::new(&terminal), Live::default());
        for event in events(&samples::swept()) {
            live.apply(&event);
            bars.draw(&live);
            let rows = live.rows().len();
            assert!(bars.bars.len() == rows || (bars.bars.is_empty() && rows == 1));
        }
        bars.finish();
        assert!(bars.bars.is_empty());
    }

    #[test]
    fn numbers_fit_beside_the_bar() {
        let mut live = Live::default();
        for event in events(&samples::jumbo()) {
            live.apply(&event);
            assert!(
                live.rows().iter().all(|row| row.text.chars().count() <= 46),
                "{:?}",
                live.rows()
            );
        }
    }
}
