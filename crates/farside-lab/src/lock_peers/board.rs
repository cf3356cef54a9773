//! Where the lock is, and what those who are measured tell each other in memory: each word on a line of its own.

use core::sync::atomic::{AtomicU64, Ordering};
use std::path::{Path, PathBuf};

use farside_fabric::shm::{Segment, SegmentOptions};
use farside_fabric::{NodeId, RemoteAddr};
use farside_lock::backoff::give_way;
use farside_lock::declock::roster::ROSTER_BYTES;
use farside_lock::service::BLOCK_BYTES;
use farside_lock::{LockOptions, Site};

use crate::error::BenchError;

/// How many take part at most.
pub(super) const MEMBERS_MAX: u64 = 4;

const LOCK_AT: u64 = 64;
const SERVICE_AT: u64 = 1024;
const ROSTER_AT: u64 = (SERVICE_AT + BLOCK_BYTES).next_multiple_of(64);
const BOARD_AT: u64 = (ROSTER_AT + ROSTER_BYTES).next_multiple_of(64);
const BYTES: u64 = 1 << 20;
const LINE_BYTES: u64 = 64;

/// The lock that is measured.
pub(super) const LOCK: RemoteAddr = at(LOCK_AT);

const fn at(offset: u64) -> RemoteAddr {
    RemoteAddr::new(NodeId::new(0), offset)
}

/// A compute node of whoever takes part.
pub(super) fn site() -> Site {
    Site::new(LockOptions {
        service: Some(at(SERVICE_AT)),
        roster: Some(at(ROSTER_AT)),
        ..LockOptions::default()
    })
}

/// A word that all see.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Word {
    /// How many are ready to begin.
    Ready,
    /// How often the lock was granted.
    Granted,
    /// When it was released last.
    ReleasedNs,
    /// How often this member has asked for it.
    Asked(u64),
}

/// The memory of a contender.
#[derive(Clone, Debug)]
pub(super) struct Board {
    segment: Segment,
}

impl Board {
    fn file(folder: &Path) -> PathBuf {
        folder.join("segment")
    }

    pub(super) fn create(folder: &Path) -> Result<Self, BenchError> {
        let segment = Segment::create(Self::file(folder), SegmentOptions::with_memory(BYTES))?;
        Ok(Self { segment })
    }

    pub(super) fn open(folder: &Path) -> Result<Self, BenchError> {
        let segment = Segment::open(Self::file(folder))?;
        Ok(Self { segment })
    }

    pub(super) fn segment(&self) -> &Segment {
        &self.segment
    }

    pub(super) fn word(&self, word: Word) -> &AtomicU64 {
        let line = match word {
            Word::Ready => 0,
            Word::Granted => 1,
            Word::ReleasedNs => 2,
            Word::Asked(member) => 3 + member,
        };
        self.segment.region().word(BOARD_AT + LINE_BYTES * line)
    }

    /// Begins a test.
    pub(super) fn clear(&self) {
        let asked = (0..MEMBERS_MAX).map(Word::Asked);
        for word in [Word::Ready, Word::Granted, Word::ReleasedNs].into_iter().chain(asked) {
            self.word(word).store(0, Ordering::SeqCst);
        }
    }

    /// Looks at a word until it is large enough. Whoever is to make it so may need this core, or an answer from the
    /// tasks of this thread.
    pub(super) async fn await_at_least(&self, word: Word, least: u64) {
        const LOOKS_PER_TURN: u32 = 64;
        let word = self.word(word);
        let mut looks = 0_u32;
        while word.load(Ordering::Acquire) < least {
            looks += 1;
            if looks.is_multiple_of(LOOKS_PER_TURN) {
                give_way().await;
                std::thread::yield_now();
            } else {
                core::hint::spin_loop();
            }
        }
    }
}
