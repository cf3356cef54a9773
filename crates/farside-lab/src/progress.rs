//! Bars on a terminal for whoever waits, one below the other; nothing in a pipe.

use core::fmt;
use core::time::Duration;
use std::io::Write;
use std::sync::LazyLock;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

/// All bars that are drawn: runs that go on side by side have one each.
static BARS: LazyLock<MultiProgress> = LazyLock::new(MultiProgress::new);

/// How far a long run has come. Draws on standard error, and only if that is a terminal.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar of `steps` steps.
    #[must_use]
    pub fn new(steps: u64, label: impl Into<String>) -> Self {
        // indicatif hides the bar itself where standard error is no terminal.
        let bar = BARS.add(ProgressBar::new(steps).with_message(label.into()));
        if let Ok(style) = ProgressStyle::with_template("{msg} [{bar:40}] {percent}% {elapsed}") {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.enable_steady_tick(Duration::from_millis(250));
        Self { bar }
    }

    /// No bar at all.
    #[must_use]
    pub fn hidden() -> Self {
        Self {
            bar: ProgressBar::hidden(),
        }
    }

    /// What is being done now.
    pub fn label(&self, label: impl Into<String>) {
        self.bar.set_message(label.into());
    }

    /// Sets how many steps are done.
    pub fn set(&self, step: u64) {
        self.bar.set_position(step);
    }
}

/// Prints a line on standard output, above the bars; a closed pipe is the reader's choice.
pub fn say(line: fmt::Arguments<'_>) {
    BARS.suspend(|| {
        let _ = writeln!(std::io::stdout(), "{line}");
    });
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
