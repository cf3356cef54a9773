//! What users were refused, the last refusals: what ACL LOG shows.
//!
//! On the path: a refusal leaves an entry, or counts one that is like it and not old.

use std::collections::VecDeque;

/// Entries that are kept if nobody says how many.
pub(crate) const ENTRIES_MAX: usize = 128;
/// Refusals that are alike count as one entry if no more time lies between them.
const ALIKE_MS: u64 = 60_000;

/// Why something was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reason {
    Command,
    Key,
    Auth,
}

impl Reason {
    pub(crate) const ALL: [Self; 3] = [Self::Command, Self::Key, Self::Auth];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Key => "key",
            Self::Auth => "auth",
        }
    }
}

/// What was refused, to whom.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Refused {
    pub(crate) reason: Reason,
    /// Whether between MULTI and EXEC, or by EXEC.
    pub(crate) is_in_multi: bool,
    /// The name of the command, the key, or what was to log in.
    pub(crate) object: Vec<u8>,
    pub(crate) user: Vec<u8>,
}

/// One refusal, or several that are alike.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) id: u64,
    pub(crate) refused: Refused,
    pub(crate) count: u64,
    pub(crate) created_ms: u64,
    pub(crate) updated_ms: u64,
    /// The last one's line of CLIENT LIST.
    pub(crate) client: String,
}

/// The last refusals, the newest first.
#[derive(Debug)]
pub(crate) struct Log {
    entries: VecDeque<Entry>,
    next_id: u64,
    entries_max: usize,
    counts: [u64; Reason::ALL.len()],
}

impl Default for Log {
    fn default() -> Self {
        Self {
            entries: VecDeque::new(),
            next_id: 0,
            entries_max: ENTRIES_MAX,
            counts: [0; Reason::ALL.len()],
        }
    }
}

impl Log {
    /// Adds a refusal, to an entry that is like it if there is one.
    pub(crate) fn note(&mut self, refused: Refused, client: String, now_ms: u64) {
        self.counts[refused.reason as usize] += 1;
        let is_alike = |entry: &Entry| entry.refused == refused && now_ms.saturating_sub(entry.updated_ms) <= ALIKE_MS;
        let known = self.entries.iter().position(is_alike);
        let mut entry = known.and_then(|index| self.entries.remove(index)).unwrap_or_else(|| {
            let id = self.next_id;
            self.next_id += 1;
            Entry {
                id,
                refused,
                count: 0,
                created_ms: now_ms,
                updated_ms: now_ms,
                client: String::new(),
            }
        });
        entry.count += 1;
        (entry.updated_ms, entry.client) = (now_ms, client);
        self.entries.push_front(entry);
        self.entries.truncate(self.entries_max);
    }

    pub(crate) fn entries(&self) -> impl ExactSizeIterator<Item = &Entry> {
        self.entries.iter()
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }

    pub(crate) fn entries_max(&self) -> usize {
        self.entries_max
    }

    /// Keeps so many entries from now on.
    pub(crate) fn set_entries_max(&mut self, count: usize) {
        self.entries_max = count;
        self.entries.truncate(count);
    }

    /// How much was ever refused for each reason.
    pub(crate) fn counts(&self) -> [u64; Reason::ALL.len()] {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(object: &str) -> Refused {
        Refused {
            reason: Reason::Key,
            is_in_multi: false,
            object: object.as_bytes().to_vec(),
            user: b"alice".to_vec(),
        }
    }

    #[test]
    fn what_is_alike_is_one_entry_for_a_minute() {
        let mut log = Log::default();
        log.note(refused("a"), "first".to_owned(), 1_000);
        log.note(refused("b"), "second".to_owned(), 2_000);
        log.note(refused("a"), "third".to_owned(), 61_000);
        let shown = |log: &Log| {
            let entry = |entry: &Entry| {
                (
                    entry.id,
                    entry.count,
                    entry.created_ms,
                    entry.updated_ms,
                    entry.client.clone(),
                )
            };
            log.entries().map(entry).collect::<Vec<_>>()
        };
        let expected = [
            (0, 2, 1_000, 61_000, "third".to_owned()),
            (1, 1, 2_000, 2_000, "second".to_owned()),
        ];
        assert_eq!(shown(&log), expected);
        // Later, or for another reason, it is another entry.
        log.note(refused("a"), String::new(), 122_000);
        let in_multi = Refused {
            is_in_multi: true,
            ..refused("a")
        };
        log.note(in_multi, String::new(), 122_000);
        assert_eq!(log.entries().map(|entry| entry.id).collect::<Vec<_>>(), [3, 2, 0, 1]);
        assert_eq!(log.counts(), [0, 5, 0]);
    }

    #[test]
    fn so_many_entries_are_kept() {
        let mut log = Log::default();
        (0..300).for_each(|number| log.note(refused(&number.to_string()), String::new(), 0));
        assert_eq!(log.entries().len(), ENTRIES_MAX);
        log.set_entries_max(2);
        assert_eq!(log.entries().map(|entry| entry.id).collect::<Vec<_>>(), [299, 298]);
        log.set_entries_max(0);
        log.note(refused("x"), String::new(), 0);
        assert_eq!((log.entries().len(), log.counts()), (0, [0, 301, 0]));
    }
}
