//! Commands that took long, the last ones: what SLOWLOG shows.
//!
//! On the path: a command that is timed and was slow leaves an entry. Entries are bounded in number
//! and in length, as in Redis: 32 arguments of 128 bytes.

use std::collections::VecDeque;

use crate::request::Request;

const ARGUMENTS_MAX: usize = 32;
const ARGUMENT_BYTES_MAX: usize = 128;
/// Entries that are kept if nobody says how many.
pub(crate) const ENTRIES_MAX: usize = 128;

/// One slow command.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) id: u64,
    /// When it ended, in seconds since the Unix epoch.
    pub(crate) unix_s: u64,
    pub(crate) took_us: u64,
    pub(crate) arguments: Vec<Vec<u8>>,
    pub(crate) address: String,
    pub(crate) name: Vec<u8>,
}

/// The last slow commands, the newest first.
#[derive(Debug)]
pub(crate) struct SlowLog {
    entries: VecDeque<Entry>,
    next_id: u64,
    entries_max: usize,
}

impl Default for SlowLog {
    fn default() -> Self {
        Self {
            entries: VecDeque::new(),
            next_id: 0,
            entries_max: ENTRIES_MAX,
        }
    }
}

impl SlowLog {
    /// Adds an entry, under a number of its own.
    pub(crate) fn note(&mut self, mut entry: Entry) {
        entry.id = self.next_id;
        self.next_id += 1;
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
}

/// The arguments of a command, cut to what is kept; passwords are left out.
pub(crate) fn excerpt(request: &Request<'_>) -> Vec<Vec<u8>> {
    let shown = match request.len() {
        count if count > ARGUMENTS_MAX => ARGUMENTS_MAX - 1,
        count => count,
    };
    let mut arguments: Vec<Vec<u8>> = (0..shown)
        .map(|index| {
            let argument = request.visible_arg(index);
            match argument.len().saturating_sub(ARGUMENT_BYTES_MAX) {
                0 => argument.to_vec(),
                more => [
                    &argument[..ARGUMENT_BYTES_MAX],
                    format!("... ({more} more bytes)").as_bytes(),
                ]
                .concat(),
            }
        })
        .collect();
    if shown < request.len() {
        arguments.push(format!("... ({} more arguments)", request.len() - shown).into_bytes());
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Scratch;

    fn entry(took_us: u64) -> Entry {
        Entry {
            id: 0,
            unix_s: 0,
            took_us,
            arguments: Vec::new(),
            address: String::new(),
            name: Vec::new(),
        }
    }

    #[test]
    fn the_newest_entries_are_kept() {
        let mut log = SlowLog::default();
        (0..200).for_each(|took_us| log.note(entry(took_us)));
        assert_eq!(log.entries().len(), ENTRIES_MAX);
        assert_eq!(
            log.entries().next().map(|entry| (entry.id, entry.took_us)),
            Some((199, 199))
        );
        log.set_entries_max(2);
        let ids: Vec<u64> = log.entries().map(|entry| entry.id).collect();
        assert_eq!(ids, [199, 198]);
        log.set_entries_max(0);
        log.note(entry(1));
        assert_eq!(log.entries().len(), 0);
    }

    #[test]
    fn long_commands_are_cut() {
        let mut scratch = Scratch::default();
        let line = format!("MSET {} {}", "x".repeat(200), "y ".repeat(60));
        let request = Request::split(line.as_bytes(), &mut scratch).expect("no quotes");
        let arguments = excerpt(&request);
        assert_eq!(arguments.len(), ARGUMENTS_MAX);
        assert_eq!(
            arguments[1],
            format!("{}... (72 more bytes)", "x".repeat(128)).into_bytes()
        );
        assert_eq!(arguments[31], b"... (31 more arguments)");
    }
}
