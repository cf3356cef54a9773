//! `farside export` and `farside import`: all items of a store, to a file in Redis's format and back.
//!
//! On the path: a client of the pool like any other, one thread of which talks to the memory; another one reads or writes the
//! file, so that a slow disk or network does not keep this client from renewing its lease. In between are a few pieces.

mod export;
mod import;
mod place;
mod schedule;
mod state;

pub(crate) use export::{ExportArgs, run as export};
pub(crate) use import::{ImportArgs, run as import};

use farside_kv::KvError;

use farside_cli::Failure;

/// How many bytes of a file go through the threads together.
const PIECE_BYTES: usize = 1 << 20;
/// How many pieces wait.
const PIECES_MAX: usize = 4;
/// How often progress is shown.
const SHOWN_EVERY_NS: u64 = 500_000_000;

/// An error of the store: it says what to do, or that it failed under way.
fn failure(error: KvError) -> Failure {
    match error.is_out_of_memory() || error.is_cut_off() || error.is_snapshot_ended() {
        true => Failure::runtime(error),
        false => Failure::usage(error),
    }
}

/// A key for a message: its bytes as text, cut where it is long.
fn show_key(key: &[u8]) -> String {
    const BYTES_MAX: usize = 64;
    let text = key[..key.len().min(BYTES_MAX)].escape_ascii().to_string();
    match key.len() {
        0..=BYTES_MAX => format!("`{text}`"),
        _ => format!("`{text}...`"),
    }
}

/// Shows on a terminal how far it is, once in a while.
struct Progress {
    verb: &'static str,
    is_shown: bool,
    begun_ns: u64,
    next_ns: u64,
}

impl Progress {
    fn new(verb: &'static str, now_ns: u64) -> Self {
        use std::io::IsTerminal;
        Self {
            verb,
            is_shown: std::io::stderr().is_terminal(),
            begun_ns: now_ns,
            next_ns: now_ns + SHOWN_EVERY_NS,
        }
    }

    fn seconds(&self, now_ns: u64) -> f64 {
        ((now_ns - self.begun_ns) as f64 / 1e9).max(1e-9)
    }

    fn show(&mut self, now_ns: u64, items: u64, bytes: u64) {
        if !self.is_shown || now_ns < self.next_ns {
            return;
        }
        self.next_ns = now_ns + SHOWN_EVERY_NS;
        let rate = items as f64 / self.seconds(now_ns);
        eprint!(
            "\r{} {items} keys, {}, {rate:.0}/s ",
            self.verb,
            farside_cli::scalar::show_size(bytes)
        );
    }

    /// Makes room for other text.
    fn clear(&self) {
        if self.is_shown {
            eprint!("\r\x1b[K");
        }
    }
}
