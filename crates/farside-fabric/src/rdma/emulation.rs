//! Verbs that cards do not have, made of compare-and-swaps.
//!
//! On the path: a link executes one of these at a time and posts nothing behind it until it is done, so that verbs keep
//! their order.
//!
//!  1. guess the word and swap it for what the verb makes of it;
//!  2. the answer is the word that was there: if it was the guess, the verb is done;
//!  3. else it is the next guess, unless the verb leaves such a word alone: then it is done as well.
//!
//! Each step is atomic at the card, so the whole is, at its last step. A further step means that another client has
//! changed the word in between.
//!
//! A WRITE of a word is among them: a card may let a plain WRITE fall between the reading and the writing half of an
//! atomic, whose second half would undo it.

use crate::verb::Verb;

/// What the verb makes of a word; `None` if it leaves it alone, and for verbs that cards have.
fn change(verb: &Verb, word: u64) -> Option<u64> {
    match verb {
        Verb::MaskedCompareSwap { operands, .. } => operands.apply(word),
        Verb::MaskedFetchAdd { operands, .. } => Some(operands.apply(word)),
        Verb::WriteWord { value, .. } => Some(*value),
        _ => None,
    }
}

/// A verb under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Emulation {
    verb: Verb,
    /// The word that was guessed, and what it is swapped for.
    pub(super) compare: u64,
    pub(super) swap: u64,
}

/// What an answer means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// The verb is done, and returns this.
    Done(u64),
    /// Another guess.
    Again(Emulation),
}

impl Emulation {
    /// The first step of a verb that cards do not have; `None` if they have it.
    pub(super) fn of(verb: &Verb) -> Option<Self> {
        let guess = match verb {
            // Whoever compares most of the word knows most of it.
            Verb::MaskedCompareSwap { operands, .. } => operands.compare,
            Verb::MaskedFetchAdd { .. } | Verb::WriteWord { .. } => 0,
            _ => return None,
        };
        Self::guess(*verb, guess)
    }

    fn guess(verb: Verb, compare: u64) -> Option<Self> {
        let swap = change(&verb, compare)?;
        Some(Self { verb, compare, swap })
    }

    /// What follows from the word that was there.
    pub(super) fn step(self, word: u64) -> Step {
        let returned = match self.verb {
            Verb::WriteWord { .. } => 0,
            _ => word,
        };
        if word == self.compare {
            return Step::Done(returned);
        }
        Self::guess(self.verb, word).map_or(Step::Done(returned), Step::Again)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::RemoteAddr;
    use crate::verb::{MaskedAdd, MaskedCas};
    use proptest::prelude::*;

    /// Runs a verb on a word that others change before each of the first steps.
    fn run(verb: Verb, word: &mut u64, interference: &[u64]) -> (u64, usize) {
        let mut emulation = Emulation::of(&verb).expect("cards do not have it");
        let mut others = interference.iter();
        for steps in 1.. {
            if let Some(other) = others.next() {
                *word = *other;
            }
            let seen = *word;
            if seen == emulation.compare {
                *word = emulation.swap;
            }
            match emulation.step(seen) {
                Step::Done(returned) => return (returned, steps),
                Step::Again(next) => emulation = next,
            }
        }
        unreachable!("it ends when the others do")
    }

    proptest! {
        #[test]
        fn a_verb_is_one_step_on_the_last_word(word: u64, others in proptest::collection::vec(any::<u64>(), 0..4),
            numbers: [u64; 4]) {
            let target = RemoteAddr::NULL;
            let [compare, compare_mask, swap, swap_mask] = numbers;
            let cas = MaskedCas { compare, compare_mask, swap, swap_mask };
            let add = MaskedAdd { add: compare, boundary: swap };
            let verbs = [
                Verb::MaskedCompareSwap { target, operands: cas },
                Verb::MaskedFetchAdd { target, operands: add },
                Verb::WriteWord { target, value: swap },
            ];
            for verb in verbs {
                let mut memory = word;
                let (returned, steps) = run(verb, &mut memory, &others);
                prop_assert!(steps <= others.len() + 2, "one guess, and one for each change");
                // The word that the last step found: it is returned, and changed as the verb says.
                let found = others.get(steps - 1).or(others.last()).copied().unwrap_or(word);
                let expected = change(&verb, found).unwrap_or(found);
                prop_assert_eq!(memory, expected);
                let is_write = matches!(verb, Verb::WriteWord { .. });
                prop_assert_eq!(returned, if is_write { 0 } else { found });
            }
        }
    }

    #[test]
    fn a_swap_that_knows_the_word_takes_one_step() {
        let verb = Verb::MaskedCompareSwap {
            target: RemoteAddr::NULL,
            operands: MaskedCas::whole(5, 6),
        };
        let mut word = 5;
        assert_eq!(run(verb, &mut word, &[]), (5, 1));
        assert_eq!(word, 6);
    }

    #[test]
    fn what_cards_have_is_left_to_them() {
        let target = RemoteAddr::NULL;
        assert_eq!(Emulation::of(&Verb::FetchAdd { target, add: 1 }), None);
        assert_eq!(Emulation::of(&Verb::ReadWord { source: target }), None);
    }
}
