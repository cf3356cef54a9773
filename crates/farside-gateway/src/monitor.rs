//! MONITOR: every command of every client, as lines for those who watch.
//!
//! On the path: `execute` asks whether anybody watches, one relaxed load; only then is a line made. A
//! watcher has a queue of [`QUEUE_BYTES_MAX`] bytes here, which its own connection empties. Who does
//! not read is not fed for ever: when a line does not fit, the watcher is cut off.
//!
//! Passwords are never shown: see [`Request::visible_arg`].

use std::fmt::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::live::lock;
use crate::request::Request;
use crate::roster::Card;

/// How many bytes of lines wait for one watcher at most.
const QUEUE_BYTES_MAX: usize = 8 << 20;

/// Everybody who watches.
#[derive(Default, Debug)]
pub(crate) struct Monitors {
    count: AtomicUsize,
    queues: Mutex<Vec<Queue>>,
}

#[derive(Debug)]
struct Queue {
    card: Arc<Card>,
    lines: Vec<u8>,
}

impl Monitors {
    /// Whether anybody watches.
    #[inline]
    pub(crate) fn are_there(&self) -> bool {
        // Relaxed: a command that begins while a watcher joins may be shown or not.
        self.count.load(Ordering::Relaxed) > 0
    }

    /// From now on the client with this card gets every command.
    pub(crate) fn join(&self, card: &Arc<Card>) {
        let mut queues = lock(&self.queues);
        if !card.is_monitor.swap(true, Ordering::Relaxed) {
            queues.push(Queue {
                card: Arc::clone(card),
                lines: Vec::new(),
            });
        }
        self.count.store(queues.len(), Ordering::Relaxed);
    }

    /// It gets no more; nothing happens if it did not watch.
    pub(crate) fn leave(&self, card: &Card) {
        if card.is_monitor.swap(false, Ordering::Relaxed) {
            let mut queues = lock(&self.queues);
            queues.retain(|queue| queue.card.id != card.id);
            self.count.store(queues.len(), Ordering::Relaxed);
        }
    }

    /// Queues a line for everybody, and calls them.
    pub(crate) fn show(&self, line: &str) {
        let mut queues = lock(&self.queues);
        for queue in queues.iter_mut() {
            if queue.lines.len() + line.len() > QUEUE_BYTES_MAX {
                if !queue.card.is_killed() {
                    tracing::warn!("a monitor at {} reads too slowly and is cut off", queue.card.address);
                    queue.card.kill();
                }
                continue;
            }
            let was_empty = queue.lines.is_empty();
            queue.lines.extend_from_slice(line.as_bytes());
            if was_empty {
                queue.card.call();
            }
        }
    }

    /// What waits for this client.
    pub(crate) fn take(&self, card: &Card) -> Vec<u8> {
        let mut queues = lock(&self.queues);
        let queue = queues.iter_mut().find(|queue| queue.card.id == card.id);
        queue.map_or_else(Vec::new, |queue| core::mem::take(&mut queue.lines))
    }
}

/// The line for a command: when, where from, and its arguments in quotes. With the frame of a simple string.
pub(crate) fn line(request: &Request<'_>, address: &str, now_ms: u64) -> String {
    let mut line = format!("+{}.{:03}000 [0 {address}]", now_ms / 1000, now_ms % 1000);
    for index in 0..request.len() {
        line.push_str(" \"");
        for &byte in request.visible_arg(index) {
            match byte {
                b'\\' | b'"' => line.extend(['\\', char::from(byte)]),
                b'\n' => line.push_str("\\n"),
                b'\r' => line.push_str("\\r"),
                b'\t' => line.push_str("\\t"),
                7 => line.push_str("\\a"),
                8 => line.push_str("\\b"),
                b' '..=b'~' => line.push(char::from(byte)),
                _ => drop(write!(line, "\\x{byte:02x}")),
            }
        }
        line.push('"');
    }
    line.push_str("\r\n");
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Scratch;
    use crate::roster::{Ends, Roster};

    fn card(roster: &Roster, id: u64) -> Arc<Card> {
        let ends = Ends {
            address: "peer".to_owned(),
            local_address: "here".to_owned(),
            descriptor: 7,
        };
        roster.enter(id, ends, 0)
    }

    fn shown(command: &str) -> String {
        let mut scratch = Scratch::default();
        let request = Request::split(command.as_bytes(), &mut scratch).expect("closed quotes");
        line(&request, "1.2.3.4:5", 12_034)
    }

    #[test]
    fn arguments_are_quoted() {
        assert_eq!(
            shown(r#"SET "a\"\\ b" "\r\n\t\a\b\x00\xff""#),
            "+12.034000 [0 1.2.3.4:5] \"SET\" \"a\\\"\\\\ b\" \"\\r\\n\\t\\a\\b\\x00\\xff\"\r\n"
        );
    }

    #[test]
    fn passwords_are_not_shown() {
        for command in [
            "AUTH secret",
            "auth default secret",
            "HELLO 3 AUTH default secret SETNAME x",
        ] {
            let line = shown(command);
            assert!(!line.contains("secret") && line.contains("(redacted)"), "{line}");
        }
        assert!(shown("HELLO 3 SETNAME secret").contains("secret"), "no password");
        assert!(shown("SET AUTH secret").contains("secret"), "no password either");
    }

    #[test]
    fn who_does_not_read_is_cut_off_and_the_others_go_on() {
        let (roster, monitors) = (Roster::default(), Monitors::default());
        let (slow, quick) = (card(&roster, 1), card(&roster, 2));
        monitors.join(&slow);
        monitors.join(&quick);
        let line = "x".repeat(1 << 20);
        for _ in 0..20 {
            monitors.show(&line);
            assert_eq!(monitors.take(&quick).len(), 1 << 20);
        }
        assert!(slow.is_killed() && !quick.is_killed());
        assert!(monitors.take(&slow).len() <= QUEUE_BYTES_MAX);
        monitors.leave(&slow);
        assert!(monitors.are_there());
        monitors.leave(&quick);
        assert!(!monitors.are_there());
    }
}
