//! Terminal on which progress bars are drawn.

use std::{
    io::{self, Write as _},
    sync::atomic::{AtomicBool, Ordering},
};

use console::Term;
use indicatif::TermLike;

/// Standard error as a terminal. Between two drawings the cursor stays in the last line.
///
/// A cursor behind the last column would move to the next line when the terminal echoes `^C`, and the
/// next drawing would begin one line too low.
#[derive(Debug)]
pub(super) struct Screen(Term);

impl Screen {
    pub(super) fn new() -> Self {
        Self(Term::buffered_stderr())
    }
}

/// True while the cursor may be in a line of a progress bar.
static IS_DRAWN: AtomicBool = AtomicBool::new(false);

/// Moves the cursor below the progress bars, if there are any.
pub(crate) fn leave() {
    if IS_DRAWN.swap(false, Ordering::Relaxed) {
        let _ = writeln!(io::stderr());
    }
}

/// Records that the progress bars were cleared.
pub(super) fn clear() {
    IS_DRAWN.store(false, Ordering::Relaxed);
}

impl TermLike for Screen {
    fn width(&self) -> u16 {
        self.0.size().1
    }

    fn height(&self) -> u16 {
        self.0.size().0
    }

    fn move_cursor_up(&self, lines: usize) -> io::Result<()> {
        self.0.move_cursor_up(lines)
    }

    fn move_cursor_down(&self, lines: usize) -> io::Result<()> {
        self.0.move_cursor_down(lines)
    }

    fn move_cursor_right(&self, columns: usize) -> io::Result<()> {
        self.0.move_cursor_right(columns)
    }

    fn move_cursor_left(&self, columns: usize) -> io::Result<()> {
        self.0.move_cursor_left(columns)
    }

    fn write_line(&self, line: &str) -> io::Result<()> {
        self.0.write_line(line)
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        self.0.write_str(text)
    }

    fn clear_line(&self) -> io::Result<()> {
        self.0.clear_line()
    }

    fn flush(&self) -> io::Result<()> {
        IS_DRAWN.store(true, Ordering::Relaxed);
        self.0.write_str("\r")?;
        self.0.flush()
    }
}
