//! Bugs that are planted on purpose, so that the test harness can show that it notices them; and the places where they stand.
//!
//! On the path: nowhere. [`is_planted`] is a constant `false` unless the feature `mutants` is on, which
//! only tests turn on; elsewhere the compiler drops the wrong branch. With the feature
//! one bug at a time is switched on, per thread, by its name. A bug stands beside the line that it
//! breaks, so that nobody changes the line without seeing what must not happen to it. What each one
//! breaks, and who has to notice, is listed in `farside-sim/tests/it/mutants.rs`.
//!
//! So the bugs mark the places where a protocol can go wrong. A harness counts who comes past them ([`begin_noting`],
//! [`passed`]), and lets faults strike there ([`Places`]).

/// Some of the places, chosen by their names, and when.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Places {
    /// How their names begin.
    pub part: String,
    /// Decides which of these.
    pub salt: u64,
    /// One of so many.
    pub one_in: u64,
    /// The how manieth time that somebody comes past one of them counts.
    pub passes: u64,
}

#[cfg(feature = "mutants")]
mod planted {
    use core::cell::{Cell, RefCell};

    use super::Places;

    thread_local! {
        static PLANTED: Cell<Option<&'static str>> = const { Cell::new(None) };
        static REACHED: Cell<u64> = const { Cell::new(0) };
        static NOTES: RefCell<Notes> = RefCell::default();
        static IS_NOTED: Cell<bool> = const { Cell::new(false) };
        /// How many aims have been met and not been asked for.
        static MET: Cell<usize> = const { Cell::new(0) };
    }

    /// There are about 120 places, and the compiler may keep a name in several copies.
    const TABLE: usize = 1024;

    /// Who came past, by the address of the name.
    #[derive(Default)]
    struct Notes {
        passed: Vec<Option<Passed>>,
        aims: Vec<(usize, Places)>,
        met: Vec<usize>,
    }

    #[derive(Clone, Copy)]
    struct Passed {
        name: &'static str,
        mix: u64,
        times: u64,
    }

    impl Notes {
        fn pass(&mut self, name: &'static str) {
            let at = name.as_ptr() as usize;
            let mut slot = (at >> 3) % TABLE;
            // Ends: there are fewer names than slots.
            let passed = loop {
                match &self.passed[slot] {
                    Some(passed) if core::ptr::eq(passed.name, name) => break self.passed[slot].as_mut(),
                    Some(_) => slot = (slot + 1) % TABLE,
                    None => {
                        let mix = name.bytes().fold(0, |mix, byte| mixed(mix ^ u64::from(byte)));
                        let new = Passed { name, mix, times: 0 };
                        break Some(self.passed[slot].insert(new));
                    }
                }
            };
            let Some(passed) = passed else { return };
            passed.times += 1;
            let mix = passed.mix;
            let met = &mut self.met;
            self.aims.retain_mut(|(aim, places)| {
                if !name.starts_with(&places.part) || !mixed(mix ^ places.salt).is_multiple_of(places.one_in) {
                    return true;
                }
                places.passes = places.passes.saturating_sub(1);
                if places.passes == 0 {
                    met.push(*aim);
                }
                places.passes > 0
            });
            MET.set(met.len());
        }
    }

    fn mixed(word: u64) -> u64 {
        let word = word.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word ^ word >> 29
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
    pub fn is_planted(name: &'static str) -> bool {
        if IS_NOTED.get() {
            NOTES.with_borrow_mut(|notes| notes.pass(name));
        }
        let is_planted = PLANTED.get() == Some(name);
        REACHED.set(REACHED.get() + u64::from(is_planted));
        is_planted
    }

    /// From now on this thread notes which places it comes past.
    pub fn begin_noting() {
        NOTES.with_borrow_mut(|notes| {
            notes.passed.clear();
            notes.passed.resize(TABLE, None);
            notes.aims.clear();
            notes.met.clear();
        });
        MET.set(0);
        IS_NOTED.set(true);
    }

    /// Ends the noting: the places that were passed, and how often.
    #[must_use]
    pub fn passed() -> Vec<(&'static str, u64)> {
        IS_NOTED.set(false);
        MET.set(0);
        NOTES.with_borrow(|notes| {
            let passed = notes.passed.iter().flatten();
            passed.map(|passed| (passed.name, passed.times)).collect()
        })
    }

    /// Waits for somebody to come past some places.
    pub(crate) fn aim(number: usize, places: Places) {
        NOTES.with_borrow_mut(|notes| notes.aims.push((number, places)));
    }

    /// Aims at nothing any more.
    pub(crate) fn forget_aims() {
        NOTES.with_borrow_mut(|notes| {
            notes.aims.clear();
            notes.met.clear();
        });
        MET.set(0);
    }

    /// Whether an aim has been met.
    #[inline]
    pub(crate) fn is_met() -> bool {
        MET.get() > 0
    }

    /// The aims that have been met since the last time.
    pub(crate) fn met() -> Vec<usize> {
        MET.set(0);
        NOTES.with_borrow_mut(|notes| core::mem::take(&mut notes.met))
    }
}

/// No bug is planted in this build, and no place is noted.
#[cfg(not(feature = "mutants"))]
mod planted {
    /// Whether the bug of this name is switched on: never, in this build.
    #[inline(always)]
    #[must_use]
    pub const fn is_planted(name: &'static str) -> bool {
        let _ = name;
        false
    }

    /// Notes nothing in this build.
    pub const fn begin_noting() {}

    /// Nothing, in this build.
    #[must_use]
    pub const fn passed() -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    #[cfg(feature = "sim")]
    pub(crate) fn aim(_: usize, _: super::Places) {}
    #[cfg(feature = "sim")]
    pub(crate) const fn forget_aims() {}
    #[cfg(feature = "sim")]
    #[inline(always)]
    pub(crate) const fn is_met() -> bool {
        false
    }
    #[cfg(feature = "sim")]
    pub(crate) const fn met() -> Vec<usize> {
        Vec::new()
    }
}

#[cfg(feature = "sim")]
pub(crate) use planted::{aim, forget_aims, is_met, met};
pub use planted::{begin_noting, is_planted, passed};
#[cfg(feature = "mutants")]
pub use planted::{plant, reached};
