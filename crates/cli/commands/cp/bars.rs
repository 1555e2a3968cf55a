//! Progress bars of a copy: one for the total and one per link.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use nicstripe::{LinkProgress, LinkState};

use super::view::{View, files, label, percent};
use crate::{
    output::terminal::Terminal,
    text::{
        link_text::trouble,
        quantity::{Clock, Size, Speed},
    },
};

/// Progress bars of one copy. They appear [`PATIENCE`] after its start, and the last state stays on
/// the screen.
#[derive(Debug)]
pub(crate) struct Bars {
    terminal: Terminal,
    name: String,
    started_at: Instant,
    shown: bool,
    layout: &'static Layout,
    total: ProgressBar,
    links: Vec<ProgressBar>,
}

impl Bars {
    /// Creates the progress bars of a copy, labelled with the name of its source.
    pub(crate) fn new(terminal: &Terminal, name: String) -> Self {
        let total = terminal
            .bars
            .add(ProgressBar::no_length().with_style(style(WIDE.total)));
        Self {
            terminal: terminal.clone(),
            name,
            started_at: Instant::now(),
            shown: false,
            layout: &WIDE,
            total,
            links: Vec::new(),
        }
    }

    /// Draws the state of the copy. Must be called after every event and several times a second.
    pub(crate) fn draw(&mut self, view: &View) {
        let Some(progress) = &view.progress else {
            return;
        };
        if !self.shown {
            if self.started_at.elapsed() < PATIENCE {
                return;
            }
            self.shown = true;
            self.terminal.show_bars();
        }
        self.fit();
        let size = (!progress.open).then_some(progress.size);
        set_length(&self.total, size);
        self.total.set_position(progress.bytes);
        let name = files(progress).unwrap_or_else(|| self.name.clone());
        self.total.set_prefix(shortened(&name, self.layout.name));
        self.total
            .set_message(total_message(view, self.layout.is_narrow));
        let cables = view.cables();
        for (index, cable) in cables.iter().enumerate() {
            let name = label(&cable.link, cables.iter().map(|cable| &cable.link));
            self.draw_link(index, &name, cable, size);
        }
        for bar in self.links.drain(cables.len()..) {
            bar.finish_and_clear();
            self.terminal.bars.remove(&bar);
        }
    }

    /// Freezes the bars in their last state. Later output appears below them.
    pub(crate) fn finish(&self) {
        if self.shown {
            self.links
                .iter()
                .chain([&self.total])
                .for_each(ProgressBar::abandon);
        }
        if self.shown {
            self.terminal.leave_bars();
        }
    }

    /// Switches to a layout without bars if the terminal has fewer than [`LEAST_COLUMNS`] columns,
    /// since a wrapped line cannot be redrawn.
    fn fit(&mut self) {
        let columns = self.terminal.columns();
        let layout = match columns.is_some_and(|columns| columns < LEAST_COLUMNS) {
            true => &NARROW,
            false => &WIDE,
        };
        if std::mem::replace(&mut self.layout, layout).is_narrow != layout.is_narrow {
            self.total.set_style(style(layout.total));
            self.links
                .iter()
                .for_each(|link| link.set_style(style(layout.link)));
        }
    }

    fn draw_link(&mut self, index: usize, label: &str, link: &LinkProgress, size: Option<u64>) {
        if index == self.links.len() {
            let bar = ProgressBar::no_length().with_style(style(self.layout.link));
            self.links.push(self.terminal.bars.add(bar));
        }
        let bar = &self.links[index];
        set_length(bar, size);
        bar.set_position(link.bytes);
        bar.set_prefix(shortened(label, self.layout.name));
        bar.set_message(link_message(link, self.layout.is_narrow));
    }
}

/// Sets the total of a bar in bytes. A bar without a total stays empty.
fn set_length(bar: &ProgressBar, size: Option<u64>) {
    match size {
        Some(size) => bar.set_length(size),
        None => bar.unset_length(),
    }
}

fn total_message(view: &View, is_narrow: bool) -> String {
    let Some(progress) = &view.progress else {
        return String::new();
    };
    let rest = match (view.done, view.waiting, view.time_left()) {
        (Some(elapsed), ..) => format!(
            "{:>10}  in {:.1} s",
            Speed(progress.rate),
            elapsed.as_secs_f64()
        ),
        (None, Some(since), _) => format!("no link for {}", Clock(since)),
        (None, None, Some(left)) => format!("{:>10}  ETA {}", Speed(progress.rate), Clock(left)),
        (None, None, None) if progress.open && progress.size > 0 => {
            format!("{:>10}  ≥{}", Speed(progress.rate), Size(progress.size))
        }
        (None, None, None) if progress.open => format!("{:>10}", Speed(progress.rate)),
        (None, None, None) => String::new(),
    };
    let percent =
        percent(progress).map_or_else(|| "     ".to_owned(), |percent| format!("{percent:>3} %"));
    match is_narrow {
        true => format!("{percent} {}", rest.trim_start()),
        false => format!("{percent}  {:>9}  {rest}", Size(progress.bytes)),
    }
}

fn link_message(link: &LinkProgress, is_narrow: bool) -> String {
    let state = match &link.state {
        LinkState::Up => format!("{:>10}", Speed(link.rate)),
        LinkState::Connecting => "connecting".to_owned(),
        state => trouble(state).unwrap_or_default(),
    };
    match is_narrow {
        true => format!("{:>9} {}", Size(link.bytes), state.trim_start()),
        false => format!("       {:>9}  {state}", Size(link.bytes)),
    }
}

/// Truncates a name to `width` columns. Keeps its end, which distinguishes files of one kind.
fn shortened(name: &str, width: usize) -> String {
    let count = name.chars().count();
    match count <= width {
        true => name.to_owned(),
        false => format!(
            "…{}",
            name.chars().skip(count + 1 - width).collect::<String>()
        ),
    }
}

fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template)
        .expect("the templates below are well-formed, as a test shows");
    style.progress_chars("━╸─")
}

/// Templates of the progress bars, for a range of terminal widths.
#[derive(Debug)]
struct Layout {
    is_narrow: bool,
    total: &'static str,
    link: &'static str,
    /// Width of the source or link name before each bar, in columns.
    name: usize,
}

/// Layout with bars. The message leaves 20 columns for the bar on a terminal of 80.
const WIDE: Layout = Layout {
    is_narrow: false,
    total: "{prefix:16!} {wide_bar:.green/white.dim} {msg:42!}",
    link: "{prefix:>16!} {wide_bar:.cyan/white.dim} {msg:42!}",
    name: 16,
};

/// Layout without bars, for terminals of 40 columns and more.
const NARROW: Layout = Layout {
    is_narrow: true,
    total: "{prefix:10!} {msg:28!}",
    link: "{prefix:>10!} {msg:28!}",
    name: 10,
};

/// Minimum columns of a terminal for the layout with bars.
const LEAST_COLUMNS: u16 = 66;

/// Delay before the bars appear. On a shorter copy they would only flicker (as in jj).
const PATIENCE: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use nicstripe::{BitRate, Progress};
    use nicstripe_testkit::with;

    use super::*;
    use crate::commands::cp::view::tests::link;

    #[test]
    fn the_templates_are_well_formed() {
        style(WIDE.total);
        style(WIDE.link);
        style(NARROW.total);
        style(NARROW.link);
    }

    #[test]
    fn lines_of_a_narrow_terminal_have_what_matters_first() {
        let progress =
            with!(Progress::default(), bytes: 1 << 20, size: 4 << 20, rate: BitRate::from_mbit(8));
        assert_eq!(
            total_message(
                &View {
                    progress: Some(progress),
                    ..View::default()
                },
                true
            ),
            " 25 % 1.0 MB/s  ETA 0:03"
        );
        let up = with!(LinkProgress::new(link("eth1")), bytes: 1024, rate: BitRate::from_mbit(8), state: LinkState::Up);
        assert_eq!(link_message(&up, true), "  1.0 KiB 1.0 MB/s");
    }

    #[test]
    fn a_tree_that_is_still_walked_has_no_percentage_and_no_end() {
        let progress = with!(Progress::default(), bytes: 1 << 20, size: 4 << 20, open: true, rate: BitRate::from_mbit(8));
        let message = |progress: &Progress| {
            total_message(
                &View {
                    progress: Some(progress.clone()),
                    ..View::default()
                },
                false,
            )
        };
        assert_eq!(message(&progress), "         1.0 MiB    1.0 MB/s  ≥4.0 MiB");
        assert_eq!(
            message(&with!(progress.clone(), size: 0)),
            "         1.0 MiB    1.0 MB/s"
        );
        assert_eq!(
            message(&with!(progress, open: false)),
            " 25 %    1.0 MiB    1.0 MB/s  ETA 0:03"
        );
    }

    #[test]
    fn long_names_keep_their_end() {
        assert_eq!(shortened("sixteen-chars.gz", WIDE.name), "sixteen-chars.gz");
        assert_eq!(
            shortened("backup-2024-11-20.tar", WIDE.name),
            "…-2024-11-20.tar"
        );
        assert_eq!(
            shortened("backup-2024-11-20.tar", WIDE.name)
                .chars()
                .count(),
            WIDE.name
        );
    }

    #[test]
    fn a_link_without_a_connection_says_why() {
        let state = LinkState::Down("no carrier".into());
        let link =
            with!(LinkProgress::new(link("eth1")), bytes: 1024, rate: BitRate::ZERO, state: state);
        assert_eq!(
            link_message(&link, false).trim(),
            "1.0 KiB  down: no carrier"
        );
    }
}
