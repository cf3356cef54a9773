//! Which masked and wide atomics a card executes itself, found out by trying.
//!
//! On the path: once per connection, before the client's first verb. The node lends the client a word of its own; verbs
//! are executed on it and compared with what they must do. First the plain ones, and the others as they are made of
//! compare-and-swaps: a card that fails here cannot be used. Then, where the card takes entries, each kind of atomic
//! in each order of bytes; a kind that passes is *native* from then on.
//!
//! An entry that a card does not know breaks the queue pair. Then the kind is given up, and the trial goes on over a new
//! pair: [`Trial`] says where.

use crate::addr::RemoteAddr;
use crate::capabilities::Capabilities;
use crate::error::FabricError;
use crate::verb::{MaskedAdd, MaskedCas, Verb};

/// In which order of bytes a card takes operands and gives the word back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ByteOrder {
    pub(super) is_operand_swapped: bool,
    pub(super) is_answer_swapped: bool,
}

impl ByteOrder {
    /// Ours before all, then the other way round.
    const ALL: [Self; 4] = [
        Self::new(false, false),
        Self::new(false, true),
        Self::new(true, true),
        Self::new(true, false),
    ];

    const fn new(is_operand_swapped: bool, is_answer_swapped: bool) -> Self {
        Self {
            is_operand_swapped,
            is_answer_swapped,
        }
    }
}

/// Kinds of atomics that plain verbs do not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Masked compare-and-swap of 8 bytes, with which a word is also written.
    Swap,
    /// Masked fetch-and-add of 8 bytes.
    Add,
    /// Masked compare-and-swap of 16 bytes.
    WideSwap,
    /// Masked fetch-and-add of 16 bytes.
    WideAdd,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Swap, Self::Add, Self::WideSwap, Self::WideAdd];

    /// The kind that a verb is of; `None` for those that every card has.
    #[inline]
    fn of(verb: &Verb) -> Option<Self> {
        match verb {
            Verb::MaskedCompareSwap { .. } | Verb::WriteWord { .. } => Some(Self::Swap),
            Verb::MaskedFetchAdd { .. } => Some(Self::Add),
            Verb::WideCompareSwap { .. } => Some(Self::WideSwap),
            Verb::WideFetchAdd { .. } => Some(Self::WideAdd),
            _ => None,
        }
    }

    /// Verbs of the kind whose effects no two orders of bytes share, on the word at `target`.
    fn verbs(self, target: RemoteAddr) -> Vec<Verb> {
        match self {
            Self::Swap => vec![
                Verb::MaskedCompareSwap {
                    target,
                    operands: swap(FIRST as u64, 0xffff_0000_0000_00f0, 0x0f00_0000_00ff_ffff),
                },
                // Fails for one bit.
                Verb::MaskedCompareSwap {
                    target,
                    operands: swap(!0x1, 0x1, u64::MAX),
                },
                Verb::WriteWord {
                    target,
                    value: FIRST as u64,
                },
            ],
            Self::Add => vec![
                // Carries over the bounds of bytes, one of them dropped.
                Verb::MaskedFetchAdd {
                    target,
                    operands: MaskedAdd {
                        add: 0x0101_f0f1_f2f3_f4f5,
                        boundary: 0x0000_0080_0000_8000,
                    },
                },
                Verb::MaskedFetchAdd {
                    target,
                    operands: MaskedAdd::whole(0x00ff),
                },
            ],
            Self::WideSwap => vec![
                Verb::WideCompareSwap {
                    target,
                    operands: swap(FIRST, 0xffff << 112 | 0xf0, 0x0f << 64 | 0xff_ffff),
                },
                Verb::WideCompareSwap {
                    target,
                    operands: swap(!0x1, 0x1, u128::MAX),
                },
                Verb::WideCompareSwap {
                    target,
                    operands: swap(0, 0, u128::MAX),
                },
            ],
            Self::WideAdd => vec![
                // A carry from half to half, and one that is dropped.
                Verb::WideFetchAdd {
                    target,
                    operands: MaskedAdd {
                        add: u128::MAX ^ 0x0f,
                        boundary: 1 << 100,
                    },
                },
                Verb::WideFetchAdd {
                    target,
                    operands: MaskedAdd::whole(0x00ff),
                },
            ],
        }
    }
}

/// A word no two bytes of which are alike.
const FIRST: u128 = 0x0123_4567_89ab_cdef_1032_5476_98ba_dcfe;

/// A swap for another such word.
fn swap<W: From<u64>>(compare: W, compare_mask: W, swap_mask: W) -> MaskedCas<W> {
    MaskedCas {
        compare,
        compare_mask,
        swap: W::from(0x7f6e_5d4c_3b2a_1908),
        swap_mask,
    }
}

/// Which atomics beyond the plain ones a card executes itself; found out when a client connects.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct NativeAtomics {
    /// Masked compare-and-swap of 8 bytes, and with it the WRITE of a word that atomics share. Made of compare-and-swaps
    /// where it is not native.
    pub masked_swap: bool,
    /// Masked fetch-and-add of 8 bytes. Made of compare-and-swaps, or masked ones, where it is not native.
    pub masked_add: bool,
    /// Compare-and-swap and fetch-and-add of 16 bytes. There are none where they are not native.
    pub wide: bool,
}

/// Which kinds a card executes itself, and how.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Native([Option<ByteOrder>; Kind::ALL.len()]);

impl Native {
    /// How the card takes this verb; `None` if it does not, or has it anyway.
    #[inline]
    pub(super) fn order(&self, verb: &Verb) -> Option<ByteOrder> {
        Kind::of(verb).and_then(|kind| self.0[kind as usize])
    }

    /// The same, for reports.
    pub(crate) fn atomics(&self) -> NativeAtomics {
        let has = |kind: Kind| self.0[kind as usize].is_some();
        NativeAtomics {
            masked_swap: has(Kind::Swap),
            masked_add: has(Kind::Add),
            wide: has(Kind::WideSwap) && has(Kind::WideAdd),
        }
    }

    /// What can be done with these: masked atomics of 8 bytes are made of compare-and-swaps if need be, nothing makes one
    /// of 16 bytes.
    pub(crate) fn capabilities(&self) -> Capabilities {
        Capabilities {
            masked_atomics: true,
            wide_atomics: self.atomics().wide,
        }
    }

    fn with(mut self, kind: Kind, order: ByteOrder) -> Self {
        self.0[kind as usize] = Some(order);
        self
    }
}

/// A word at a node that verbs can be tried on.
pub(crate) trait Scratch {
    /// Where it is: 16 bytes.
    const ADDR: RemoteAddr;

    /// Executes what the card has as it has it.
    fn suppose(&self, native: Native);

    /// Executes a verb, and returns the word that it returns.
    async fn execute(&self, verb: Verb) -> Result<u128, FabricError>;
}

/// What has been tried, and what came of it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Trial {
    native: Native,
    /// How many of `Kind::ALL`, and of the orders of the next, have been tried.
    kinds: usize,
    orders: usize,
}

/// What a card is good for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// Everything works with these.
    Works(Native),
    /// It does not even what every card must.
    Unusable,
}

impl Trial {
    /// Tries whatever has not been tried: the usual verbs, and entries if the card takes them.
    ///
    /// # Errors
    /// The queue pair is broken, or does not answer. Over a new one the trial goes on behind what broke it; a trial that is
    /// what it was before would break that one too.
    pub(crate) async fn run<S: Scratch>(&mut self, scratch: &S, takes_entries: bool) -> Result<Verdict, FabricError> {
        scratch.suppose(Native::default());
        for kind in [Kind::Swap, Kind::Add] {
            if !passes(scratch, kind).await? {
                return Ok(Verdict::Unusable);
            }
        }
        while takes_entries && !self.is_over() {
            let (kind, order) = (Kind::ALL[self.kinds], ByteOrder::ALL[self.orders]);
            let supposed = self.native.with(kind, order);
            scratch.suppose(supposed);
            // If it breaks the pair, no order will do.
            let orders = self.orders;
            self.next_kind();
            if passes(scratch, kind).await? {
                self.native = supposed;
            } else if orders + 1 < ByteOrder::ALL.len() {
                (self.kinds, self.orders) = (kind as usize, orders + 1);
            }
        }
        Ok(Verdict::Works(self.native))
    }

    fn next_kind(&mut self) {
        (self.kinds, self.orders) = (self.kinds + 1, 0);
    }

    /// Whether all kinds have been tried.
    fn is_over(&self) -> bool {
        self.kinds == Kind::ALL.len()
    }
}

/// Whether verbs of the kind do what they must.
async fn passes<S: Scratch>(scratch: &S, kind: Kind) -> Result<bool, FabricError> {
    // Without the verbs that are on trial.
    for (half, addr) in [(FIRST as u64, S::ADDR), ((FIRST >> 64) as u64, S::ADDR.plus(8))] {
        let mut compare = 0;
        loop {
            let found = scratch
                .execute(Verb::CompareSwap {
                    target: addr,
                    compare,
                    swap: half,
                })
                .await?;
            if found == u128::from(compare) {
                break;
            }
            compare = found as u64;
        }
    }
    let mut expected = FIRST;
    for verb in kind.verbs(S::ADDR) {
        let returned = scratch.execute(verb).await?;
        let (before, after) = model(&verb, expected);
        let low = scratch.execute(Verb::ReadWord { source: S::ADDR }).await?;
        let high = scratch
            .execute(Verb::ReadWord {
                source: S::ADDR.plus(8),
            })
            .await?;
        if (returned, high << 64 | low) != (before, after) {
            return Ok(false);
        }
        expected = after;
    }
    Ok(true)
}

/// What the verb returns, and what it leaves, in words of 16 bytes.
fn model(verb: &Verb, word: u128) -> (u128, u128) {
    let (high, low) = (word & !u128::from(u64::MAX), word as u64);
    let with_low = |low: u64| high | u128::from(low);
    match verb {
        Verb::WriteWord { value, .. } => (0, with_low(*value)),
        Verb::MaskedCompareSwap { operands, .. } => (low.into(), with_low(operands.apply(low).unwrap_or(low))),
        Verb::MaskedFetchAdd { operands, .. } => (low.into(), with_low(operands.apply(low))),
        Verb::WideCompareSwap { operands, .. } => (word, operands.apply(word).unwrap_or(word)),
        Verb::WideFetchAdd { operands, .. } => (word, operands.apply(word)),
        _ => unreachable!("not tried"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::NodeId;
    use crate::verb::AtomicWord;
    use core::cell::Cell;
    use core::future::Future;
    use core::pin::pin;
    use core::task::{Context, Poll, Waker};

    /// A card that may see words the other way round, and may not know some kinds.
    struct Card {
        word: Cell<u128>,
        supposed: Cell<Native>,
        /// Whether it takes a word's first byte for the highest, and whether it gives words back in the other order.
        is_big_endian: bool,
        is_answer_swapped: bool,
        /// What breaks the queue pair.
        unknown: &'static [Kind],
        is_broken: Cell<bool>,
        pairs: Cell<u32>,
        /// An addition that forgets its boundaries.
        is_add_whole: bool,
    }

    fn good() -> Card {
        Card {
            word: Cell::new(0),
            supposed: Cell::default(),
            is_big_endian: false,
            is_answer_swapped: false,
            unknown: &[],
            is_broken: Cell::new(false),
            pairs: Cell::new(1),
            is_add_whole: false,
        }
    }

    /// Words whose bytes can be turned round.
    trait Turn: AtomicWord {
        fn turned(self, is_turned: bool) -> Self;
    }
    impl Turn for u64 {
        fn turned(self, is_turned: bool) -> Self {
            if is_turned { self.swap_bytes() } else { self }
        }
    }
    impl Turn for u128 {
        fn turned(self, is_turned: bool) -> Self {
            if is_turned { self.swap_bytes() } else { self }
        }
    }

    impl Card {
        /// What an entry does to a word. Returns what the client makes of the answer, and the word.
        fn entry<W: Turn>(&self, word: W, order: ByteOrder, apply: impl FnOnce(W) -> W) -> (W, W) {
            let seen = word.turned(self.is_big_endian);
            let after = apply(seen).turned(self.is_big_endian);
            let is_turned = self.is_answer_swapped ^ order.is_answer_swapped;
            (seen.turned(is_turned), after)
        }

        fn swap_entry<W: Turn>(&self, word: W, order: ByteOrder, operands: MaskedCas<W>) -> (W, W) {
            let sent = MaskedCas {
                compare: operands.compare.turned(order.is_operand_swapped),
                compare_mask: operands.compare_mask.turned(order.is_operand_swapped),
                swap: operands.swap.turned(order.is_operand_swapped),
                swap_mask: operands.swap_mask.turned(order.is_operand_swapped),
            };
            self.entry(word, order, |word| sent.apply(word).unwrap_or(word))
        }

        fn add_entry<W: Turn>(&self, word: W, order: ByteOrder, operands: MaskedAdd<W>) -> (W, W) {
            let mut sent = MaskedAdd {
                add: operands.add.turned(order.is_operand_swapped),
                boundary: operands.boundary.turned(order.is_operand_swapped),
            };
            if self.is_add_whole {
                sent.boundary = W::ZERO;
            }
            self.entry(word, order, |word| sent.apply(word))
        }
    }

    impl Scratch for Card {
        const ADDR: RemoteAddr = RemoteAddr::new(NodeId::new(0), 0);

        fn suppose(&self, native: Native) {
            self.supposed.set(native);
        }

        async fn execute(&self, verb: Verb) -> Result<u128, FabricError> {
            let gone = FabricError::NodeGone { node: NodeId::new(0) };
            if self.is_broken.get() {
                return Err(gone);
            }
            let word = self.word.get();
            let order = self.supposed.get().order(&verb);
            if order.is_some() && Kind::of(&verb).is_some_and(|kind| self.unknown.contains(&kind)) {
                self.is_broken.set(true);
                return Err(gone);
            }
            let (low, high) = (word as u64, (word >> 64) as u64);
            let joined = |low: u64, high: u64| u128::from(high) << 64 | u128::from(low);
            let (returned, after) = match (verb, order) {
                (Verb::ReadWord { source }, _) => (if source.offset() == 0 { low } else { high }.into(), word),
                (Verb::CompareSwap { target, compare, swap }, _) => {
                    let old = if target.offset() == 0 { low } else { high };
                    let new = if old == compare { swap } else { old };
                    let after = if target.offset() == 0 {
                        joined(new, high)
                    } else {
                        joined(low, new)
                    };
                    (old.into(), after)
                }
                (_, None) => model(&verb, word),
                (Verb::WriteWord { value, .. }, Some(order)) => {
                    let (_, after) = self.swap_entry(
                        low,
                        order,
                        MaskedCas {
                            compare: 0,
                            compare_mask: 0,
                            swap: value,
                            swap_mask: u64::MAX,
                        },
                    );
                    (0, joined(after, high))
                }
                (Verb::MaskedCompareSwap { operands, .. }, Some(order)) => {
                    let (old, after) = self.swap_entry(low, order, operands);
                    (old.into(), joined(after, high))
                }
                (Verb::MaskedFetchAdd { operands, .. }, Some(order)) => {
                    let (old, after) = self.add_entry(low, order, operands);
                    (old.into(), joined(after, high))
                }
                (Verb::WideCompareSwap { operands, .. }, Some(order)) => self.swap_entry(word, order, operands),
                (Verb::WideFetchAdd { operands, .. }, Some(order)) => self.add_entry(word, order, operands),
                (verb, _) => unreachable!("{verb:?} is not tried"),
            };
            self.word.set(after);
            Ok(returned)
        }
    }

    fn now<T>(future: impl Future<Output = T>) -> T {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => value,
            Poll::Pending => unreachable!("these cards answer at once"),
        }
    }

    /// Tries the card, over as many queue pairs as it takes.
    fn tried(card: &Card, takes_entries: bool) -> Verdict {
        let mut trial = Trial::default();
        loop {
            match now(trial.run(card, takes_entries)) {
                Ok(verdict) => return verdict,
                Err(_) => {
                    card.is_broken.set(false);
                    card.pairs.set(card.pairs.get() + 1);
                }
            }
        }
    }

    fn all(order: ByteOrder) -> Native {
        Native([Some(order); 4])
    }

    #[test]
    fn a_card_that_sees_words_as_we_do_has_everything() {
        assert_eq!(tried(&good(), true), Verdict::Works(all(ByteOrder::new(false, false))));
        let card = Card {
            is_answer_swapped: true,
            ..good()
        };
        assert_eq!(tried(&card, true), Verdict::Works(all(ByteOrder::new(false, true))));
    }

    #[test]
    fn a_card_that_sees_words_the_other_way_round_can_swap_but_not_add() {
        for is_answer_swapped in [false, true] {
            let card = Card {
                is_big_endian: true,
                is_answer_swapped,
                ..good()
            };
            let order = Some(ByteOrder::new(true, !is_answer_swapped));
            assert_eq!(tried(&card, true), Verdict::Works(Native([order, None, order, None])));
        }
    }

    #[test]
    fn a_card_that_takes_no_entries_is_not_given_any() {
        let card = Card {
            unknown: &Kind::ALL,
            ..good()
        };
        assert_eq!(tried(&card, false), Verdict::Works(Native::default()));
        assert_eq!(card.pairs.get(), 1);
    }

    #[test]
    fn what_breaks_the_queue_pair_is_tried_once() {
        let order = Some(ByteOrder::new(false, false));
        let card = Card {
            unknown: &[Kind::WideSwap, Kind::WideAdd],
            ..good()
        };
        let narrow = Native([order, order, None, None]);
        assert_eq!(tried(&card, true), Verdict::Works(narrow));
        assert_eq!(card.pairs.get(), 3, "one more for each");
        assert!(narrow.atomics().masked_add && !narrow.capabilities().wide_atomics);
        let card = Card {
            unknown: &Kind::ALL,
            ..good()
        };
        assert_eq!(tried(&card, true), Verdict::Works(Native::default()));
        assert_eq!(card.pairs.get(), 5);
    }

    #[test]
    fn a_kind_that_does_something_else_is_not_used() {
        let order = Some(ByteOrder::new(false, false));
        let card = Card {
            is_add_whole: true,
            ..good()
        };
        assert_eq!(tried(&card, true), Verdict::Works(Native([order, None, order, None])));
        assert_eq!(card.pairs.get(), 1);
    }

    #[test]
    fn verbs_in_the_wrong_order_of_bytes_do_something_else() {
        for kind in Kind::ALL {
            for order in ByteOrder::ALL {
                let card = good();
                card.suppose(Native::default().with(kind, order));
                let is_right = order == ByteOrder::new(false, false);
                assert_eq!(now(passes(&card, kind)), Ok(is_right), "{kind:?} {order:?}");
            }
        }
    }
}
