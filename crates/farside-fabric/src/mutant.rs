//! Bugs that are planted on purpose, so that the test harness can show that it notices them.
//!
//! On the path: nowhere. [`is_planted`] is a constant `false` unless the feature `mutants` is on, which
//! only tests turn on; elsewhere the compiler drops the wrong branch. With the feature
//! one bug at a time is switched on, per thread, by its name. A bug stands beside the line that it
//! breaks, so that nobody changes the line without seeing what must not happen to it. What each one
//! breaks, and who has to notice, is listed in `farside-sim/tests/it/mutants.rs`.

#[cfg(feature = "mutants")]
mod planted {
    use core::cell::Cell;

    thread_local! {
        static PLANTED: Cell<Option<&'static str>> = const { Cell::new(None) };
        static REACHED: Cell<u64> = const { Cell::new(0) };
    }

    /// Switches one bug on for this thread, or none.
    pub fn plant(name: Option<&'static str>) {
        PLANTED.set(name);
        REACHED.set(0);
    }

    /// How often the code that is wrong now has been reached since [`plant`].
    #[must_use]
    pub fn reached() -> u64 {
        REACHED.get()
    }

    /// Whether the bug of this name is switched on.
    #[must_use]
    pub fn is_planted(name: &str) -> bool {
        let is_planted = PLANTED.get() == Some(name);
        REACHED.set(REACHED.get() + u64::from(is_planted));
        is_planted
    }
}

#[cfg(feature = "mutants")]
pub use planted::{is_planted, plant, reached};

/// Whether the bug of this name is switched on: never, in this build.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
#[must_use]
pub const fn is_planted(name: &str) -> bool {
    let _ = name;
    false
}
