//! Bits of strings, and integers that consist of some of them: what the commands on bitmaps do, without the protocol.
//!
//! On the path: between a command and the value that it reads or makes. Bit 0 is the highest bit of the first byte, as in
//! Redis; behind the end of a string, all bits are 0.

use core::ops::Range;

/// The most bits that the integer of a [`Field`] has.
pub(crate) const FIELD_BITS_MAX: u32 = 64;
/// So many bytes have every bit of a field.
const WINDOW_BYTES: usize = 9;
const WINDOW_BITS: u32 = 8 * WINDOW_BYTES as u32;

/// The number of bytes of a string that has this bit.
pub(crate) fn bytes_with(bit: u64) -> usize {
    (bit >> 3) as usize + 1
}

/// Whether a bit is set.
pub(crate) fn get(value: &[u8], bit: u64) -> bool {
    let byte = value.get((bit >> 3) as usize).copied().unwrap_or(0);
    byte & (0x80 >> (bit & 7)) != 0
}

/// Sets a bit, or clears it.
///
/// # Panics
/// If the string has no such bit.
pub(crate) fn set(value: &mut [u8], bit: u64, is_on: bool) {
    let byte = &mut value[(bit >> 3) as usize];
    let mask = 0x80 >> (bit & 7);
    if is_on {
        *byte |= mask;
    } else {
        *byte &= !mask;
    }
}

/// How many of these bits are set.
///
/// # Panics
/// If the string does not have all of them.
pub(crate) fn count(value: &[u8], bits: Range<u64>) -> u64 {
    if bits.is_empty() {
        return 0;
    }
    let (first, end) = ((bits.start >> 3) as usize, bits.end.div_ceil(8) as usize);
    let (words, rest) = value[first..end].as_chunks::<8>();
    let ones: u64 = words
        .iter()
        .map(|word| u64::from(u64::from_le_bytes(*word).count_ones()))
        .sum();
    let ones = ones + rest.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>();
    // What stands in the first and the last byte beside the range.
    let before = value[first] & !(0xff >> (bits.start & 7));
    let behind = match bits.end & 7 {
        0 => 0,
        bit => value[end - 1] & (0xff >> bit),
    };
    ones - u64::from(before.count_ones() + behind.count_ones())
}

/// The first of these bits that is set, or the first that is clear.
///
/// # Panics
/// If the string does not have all of them.
pub(crate) fn find(value: &[u8], bits: Range<u64>, is_on: bool) -> Option<u64> {
    if bits.is_empty() {
        return None;
    }
    let filler = if is_on { 0 } else { 0xff };
    let (first, end) = ((bits.start >> 3) as usize, bits.end.div_ceil(8) as usize);
    // The bits that are looked for, as ones; those before the range are left out.
    let head = (value[first] ^ filler) & (0xff >> (bits.start & 7));
    let (byte, wanted) = if head == 0 {
        let byte = first + 1 + leading(&value[first + 1..end], filler);
        (byte, value[..end].get(byte)? ^ filler)
    } else {
        (first, head)
    };
    let found = 8 * byte as u64 + u64::from(wanted.leading_zeros());
    (found < bits.end).then_some(found)
}

/// How many bytes in the beginning are this one.
fn leading(bytes: &[u8], filler: u8) -> usize {
    let (words, _) = bytes.as_chunks::<8>();
    let whole = 8 * words.iter().take_while(|word| **word == [filler; 8]).count();
    whole + bytes[whole..].iter().take_while(|&&byte| byte == filler).count()
}

/// What is done with the bits of several strings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operation {
    And,
    Or,
    Xor,
    /// Of one string.
    Not,
}

/// Strings whose bits are combined, one after the other; the result is as long as the longest of them.
#[derive(Debug)]
pub(crate) struct Combination {
    operation: Operation,
    result: Option<Vec<u8>>,
}

impl Combination {
    pub(crate) fn new(operation: Operation) -> Self {
        Self {
            operation,
            result: None,
        }
    }

    /// Takes one more string in.
    pub(crate) fn add(&mut self, value: &[u8]) {
        let Some(result) = &mut self.result else {
            let mut first = value.to_vec();
            if self.operation == Operation::Not {
                first.iter_mut().for_each(|byte| *byte = !*byte);
            }
            self.result = Some(first);
            return;
        };
        result.resize(result.len().max(value.len()), 0);
        let (both, rest) = result.split_at_mut(value.len());
        let pairs = both.iter_mut().zip(value);
        match self.operation {
            Operation::And => {
                pairs.for_each(|(byte, other)| *byte &= other);
                rest.fill(0);
            }
            Operation::Or => pairs.for_each(|(byte, other)| *byte |= other),
            Operation::Xor | Operation::Not => pairs.for_each(|(byte, other)| *byte ^= other),
        }
    }

    /// The result; of no strings at all, it is empty.
    pub(crate) fn finish(self) -> Vec<u8> {
        self.result.unwrap_or_default()
    }
}

/// An integer within a string, its highest bit first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Field {
    /// Its first bit.
    pub(crate) bit: u64,
    /// How many bits it has: 1 to 64 with a sign, 1 to 63 without one.
    pub(crate) bits: u32,
    pub(crate) is_signed: bool,
}

/// What is done with a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    Get,
    Set(i64),
    Add(i64),
}

/// What becomes of a number that a field does not hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Overflow {
    /// Its lowest bits stay.
    Wrap,
    /// The nearest number that the field holds is taken.
    Saturate,
    /// The field stays as it is.
    Fail,
}

impl Field {
    /// Its last bit.
    pub(crate) fn last_bit(self) -> u64 {
        self.bit + u64::from(self.bits) - 1
    }

    /// The bytes around it as one number, and by how many bits the field is shifted to the left in it.
    fn window(self, value: &[u8]) -> (u128, u32) {
        let first = (self.bit >> 3) as usize;
        let mut window = [0; 16];
        let there = value.get(first..).unwrap_or_default();
        let count = there.len().min(WINDOW_BYTES);
        window[16 - WINDOW_BYTES..][..count].copy_from_slice(&there[..count]);
        let shift = WINDOW_BITS - (self.bit & 7) as u32 - self.bits;
        (u128::from_be_bytes(window), shift)
    }

    /// Ones in place of its bits, shifted to the right.
    fn mask(self) -> u64 {
        u64::MAX >> (FIELD_BITS_MAX - self.bits)
    }

    /// The least and the greatest number that it holds.
    fn limits(self) -> (i128, i128) {
        match self.is_signed {
            true => (-1 << (self.bits - 1), (1 << (self.bits - 1)) - 1),
            false => (0, self.mask().into()),
        }
    }

    /// Its number in this string.
    pub(crate) fn get(self, value: &[u8]) -> i64 {
        let (window, shift) = self.window(value);
        let spare = FIELD_BITS_MAX - self.bits;
        let high = ((window >> shift) as u64) << spare;
        match self.is_signed {
            true => high as i64 >> spare,
            // It has 63 bits at most.
            false => (high >> spare) as i64,
        }
    }

    /// Puts the lowest bits of a number in its place.
    fn put(self, value: &mut [u8], number: i64) {
        let (window, shift) = self.window(value);
        let mask = u128::from(self.mask());
        let window = window & !(mask << shift) | (number as u128 & mask) << shift;
        let first = (self.bit >> 3) as usize;
        let bytes = &window.to_be_bytes()[16 - WINDOW_BYTES..];
        value[first..]
            .iter_mut()
            .zip(bytes)
            .for_each(|(byte, new)| *byte = *new);
    }

    /// Does something with it. Returns the number that is got, that was there before one is set, or that is the sum;
    /// nothing if it failed.
    ///
    /// # Panics
    /// If it is changed, and the string has not all of its bits.
    pub(crate) fn apply(self, value: &mut [u8], action: Action, overflow: Overflow) -> Option<i64> {
        let old = self.get(value);
        let (least, most) = self.limits();
        let (number, is_above) = match action {
            Action::Get => return Some(old),
            Action::Add(more) => {
                let sum = i128::from(old) + i128::from(more);
                (sum, sum > most)
            }
            Action::Set(number) if self.is_signed => {
                let number = i128::from(number);
                // Redis takes a number that is so far below for one above, since the difference overflows.
                let is_far_below = self.bits < FIELD_BITS_MAX && most - number > i128::from(i64::MAX);
                (number, number > most || is_far_below)
            }
            // A negative number is a very large one.
            Action::Set(number) => ((number as u64).into(), number as u64 > most as u64),
        };
        let fits = (least..=most).contains(&number);
        let new = match overflow {
            Overflow::Fail if !fits => return None,
            Overflow::Saturate if is_above => most,
            Overflow::Saturate if !fits => least,
            _ => number,
        };
        self.put(value, new as i64);
        match action {
            Action::Add(_) => Some(self.get(value)),
            Action::Get | Action::Set(_) => Some(old),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The bits of a string, one by one.
    fn spread(value: &[u8]) -> Vec<bool> {
        let bits = value
            .iter()
            .flat_map(|byte| (0..8).map(move |bit| byte >> (7 - bit) & 1 == 1));
        bits.collect()
    }

    fn gather(bits: &[bool]) -> Vec<u8> {
        let bytes = bits.chunks(8);
        bytes
            .map(|byte| byte.iter().fold(0, |all, &bit| all << 1 | u8::from(bit)))
            .collect()
    }

    fn string() -> impl Strategy<Value = Vec<u8>> {
        // Long runs of the same bits, too.
        let byte = prop_oneof![Just(0), Just(0xff), any::<u8>()];
        let run = (byte, 1..20_usize).prop_map(|(byte, count)| vec![byte; count]);
        proptest::collection::vec(run, 0..6).prop_map(|runs| runs.concat())
    }

    fn field() -> impl Strategy<Value = Field> {
        (0..200_u64, 1..=64_u32, any::<bool>()).prop_map(|(bit, bits, is_signed)| Field {
            bit,
            bits: if is_signed { bits } else { bits.min(63) },
            is_signed,
        })
    }

    #[test]
    fn overflow_is_treated_as_in_redis() {
        let (i8, u8) = ((8, true), (8, false));
        for ((bits, is_signed), before, action, overflow, answer, after) in [
            (i8, 127, Action::Add(1), Overflow::Wrap, Some(-128), -128),
            (i8, 127, Action::Add(1), Overflow::Saturate, Some(127), 127),
            (i8, 127, Action::Add(1), Overflow::Fail, None, 127),
            (i8, -128, Action::Add(-1), Overflow::Wrap, Some(127), 127),
            (i8, -128, Action::Add(-1), Overflow::Saturate, Some(-128), -128),
            (i8, 1, Action::Set(-129), Overflow::Saturate, Some(1), -128),
            (i8, 1, Action::Set(i64::MIN), Overflow::Saturate, Some(1), 127),
            (i8, 1, Action::Set(i64::MIN), Overflow::Wrap, Some(1), 0),
            (i8, 1, Action::Add(i64::MIN), Overflow::Saturate, Some(-128), -128),
            (u8, 255, Action::Add(1), Overflow::Wrap, Some(0), 0),
            (u8, 255, Action::Add(1), Overflow::Saturate, Some(255), 255),
            (u8, 1, Action::Add(-2), Overflow::Wrap, Some(255), 255),
            (u8, 1, Action::Add(-2), Overflow::Saturate, Some(0), 0),
            (u8, 1, Action::Set(-1), Overflow::Saturate, Some(1), 255),
            (u8, 1, Action::Set(-1), Overflow::Fail, None, 1),
        ] {
            let field = Field {
                bit: 3,
                bits,
                is_signed,
            };
            let mut value = [0xff; 3];
            field.put(&mut value, before);
            let found = field.apply(&mut value, action, overflow);
            assert_eq!(
                (found, field.get(&value)),
                (answer, after),
                "{before} {action:?} {overflow:?}"
            );
            // Nothing beside it has changed.
            assert_eq!((value[0] >> 5, value[1] & 0x1f, value[2]), (7, 0x1f, 0xff));
        }
    }

    #[test]
    fn no_strings_make_none() {
        assert!(Combination::new(Operation::And).finish().is_empty());
    }

    proptest! {
        #[test]
        fn bits_are_counted_and_found(value in string(), one in 0..1000_u64, other in 0..1000_u64, is_on: bool) {
            let bits = spread(&value);
            let all = bits.len() as u64;
            let range = one.min(all)..other.min(all);
            let within: Vec<u64> = range.clone().filter(|&bit| bits[bit as usize]).collect();
            prop_assert_eq!(count(&value, range.clone()), within.len() as u64);
            let first = range.clone().find(|&bit| bits[bit as usize] == is_on);
            prop_assert_eq!(find(&value, range, is_on), first);
        }

        #[test]
        fn one_bit_changes(value in string(), bit in 0..1000_u64, is_on: bool) {
            let mut bits = spread(&value);
            let mut changed = value.clone();
            prop_assert_eq!(get(&value, bit), bits.get(bit as usize).copied().unwrap_or(false));
            changed.resize(changed.len().max(bytes_with(bit)), 0);
            bits.resize(8 * changed.len(), false);
            set(&mut changed, bit, is_on);
            bits[bit as usize] = is_on;
            prop_assert_eq!(changed, gather(&bits));
        }

        #[test]
        fn strings_are_combined_bit_by_bit(values in proptest::collection::vec(string(), 1..5)) {
            let longest = values.iter().map(Vec::len).max().unwrap_or(0);
            let spreads: Vec<Vec<bool>> = values
                .iter()
                .map(|value| {
                    let mut bits = spread(value);
                    bits.resize(8 * longest, false);
                    bits
                })
                .collect();
            for operation in [Operation::And, Operation::Or, Operation::Xor] {
                let mut combination = Combination::new(operation);
                values.iter().for_each(|value| combination.add(value));
                let bits: Vec<bool> = (0..8 * longest)
                    .map(|bit| {
                        let ones = spreads.iter().filter(|spread| spread[bit]).count();
                        match operation {
                            Operation::And => ones == spreads.len(),
                            Operation::Or => ones > 0,
                            Operation::Xor | Operation::Not => ones % 2 == 1,
                        }
                    })
                    .collect();
                prop_assert_eq!(combination.finish(), gather(&bits), "{:?}", operation);
            }
            let mut not = Combination::new(Operation::Not);
            not.add(&values[0]);
            let inverted: Vec<u8> = values[0].iter().map(|byte| !byte).collect();
            prop_assert_eq!(not.finish(), inverted);
        }

        #[test]
        fn a_field_is_its_bits(value in string(), field in field(), number: i64) {
            let bits = spread(&value);
            let expected = (field.bit..=field.last_bit()).fold(0_i128, |all, bit| {
                all << 1 | i128::from(bits.get(bit as usize).copied().unwrap_or(false))
            });
            let (_, most) = field.limits();
            // A number above the greatest one has a sign.
            let expected = if expected > most { expected - (1 << field.bits) } else { expected };
            prop_assert_eq!(i128::from(field.get(&value)), expected);

            let mut changed = value.clone();
            changed.resize(changed.len().max(bytes_with(field.last_bit())), 0);
            let before = spread(&changed);
            prop_assert_eq!(
                field.apply(&mut changed, Action::Set(number), Overflow::Wrap).map(i128::from),
                Some(expected)
            );
            let after = spread(&changed);
            for (bit, (before, after)) in before.into_iter().zip(after).enumerate() {
                let bit = bit as u64;
                let expected = match (field.bit..=field.last_bit()).contains(&bit) {
                    true => number >> (field.last_bit() - bit) & 1 == 1,
                    false => before,
                };
                prop_assert_eq!(after, expected, "bit {}", bit);
            }
        }

        #[test]
        fn sums_stay_within_limits(field in field(), start: i64, more: i64) {
            let mut value = vec![0; bytes_with(field.last_bit())];
            field.put(&mut value, start);
            let old = field.get(&value);
            let (least, most) = field.limits();
            let sum = i128::from(old) + i128::from(more);
            let fits = (least..=most).contains(&sum);

            let mut kept = value.clone();
            let answer = field.apply(&mut kept, Action::Add(more), Overflow::Fail).map(i128::from);
            prop_assert_eq!(answer, fits.then_some(sum));
            prop_assert_eq!(i128::from(field.get(&kept)), if fits { sum } else { old.into() });

            let mut clamped = value.clone();
            let answer = field.apply(&mut clamped, Action::Add(more), Overflow::Saturate).map(i128::from);
            prop_assert_eq!(answer, Some(sum.clamp(least, most)));

            let answer = field.apply(&mut value, Action::Add(more), Overflow::Wrap).map(i128::from);
            prop_assert_eq!(answer.map(|answer| (answer - sum).rem_euclid(1 << field.bits)), Some(0));
        }
    }
}
