//! TATP's tables, and what is in them at the start (specification, chapter 2).

use rand_xoshiro::Xoshiro256PlusPlus;

use crate::applications::row::{Row, Stored, key_of, rows};
use crate::workload::client_random;
use crate::workload::zipf::below;

pub(super) const SUBSCRIBER: u8 = 1;
pub(super) const SUBSCRIBER_OF: u8 = 2;
pub(super) const ACCESS_INFO: u8 = 3;
pub(super) const SPECIAL_FACILITY: u8 = 4;
pub(super) const CALL_FORWARDING: u8 = 5;

/// How many types of access info and of special facility there are, from 1 on.
pub(super) const TYPES: u64 = 4;
/// At which hours call forwardings begin.
pub(super) const HOURS: [u64; 3] = [0, 8, 16];
/// How many of a hundred special facilities are active.
const ACTIVE: u64 = 85;

rows! {
    /// A telephone.
    Subscriber as "a subscriber" {
        number: [u8; 15],
        /// Ten columns of one bit.
        bits: u16,
        /// Ten columns of a hexadecimal digit.
        digits: [u8; 10],
        /// Ten columns of a byte.
        octets: [u8; 10],
        msc_location: u32,
        vlr_location: u32,
    }

    /// Which subscriber has a number.
    SubscriberOf as "a subscriber's number" {
        subscriber: u32,
    }

    /// How a subscriber may use the network.
    AccessInfo as "an access info" {
        data1: u8,
        data2: u8,
        data3: [u8; 3],
        data4: [u8; 5],
    }

    /// A service that a subscriber has.
    SpecialFacility as "a special facility" {
        is_active: u8,
        error_control: u8,
        data_a: u8,
        data_b: [u8; 5],
    }

    /// Where calls go from one hour on, until another.
    CallForwarding as "a call forwarding" {
        end_hour: u8,
        number: [u8; 15],
    }
}

/// A number as telephones have it: 15 digits.
pub(super) fn digits(number: u64) -> [u8; 15] {
    let mut rest = number;
    let mut digits = [b'0'; 15];
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    digits
}

/// The key under which it stands which subscriber has the number of this one.
pub(super) fn key_of_number(subscriber: u64) -> Vec<u8> {
    let mut key = vec![SUBSCRIBER_OF];
    key.extend(digits(subscriber));
    key
}

/// About how many rows there are: two and a half types of each kind, and half as many call forwardings again as special
/// facilities.
pub(super) fn row_count(subscribers: u64) -> u64 {
    subscribers * 43 / 4
}

/// All rows at the start.
pub(super) fn population(subscribers: u64, seed: u64) -> impl Iterator<Item = Stored> {
    let mut random = client_random(seed, u64::MAX - 1);
    (0..subscribers).flat_map(move |subscriber| rows_of(&mut random, subscriber))
}

fn rows_of(random: &mut Xoshiro256PlusPlus, subscriber: u64) -> Vec<Stored> {
    let row = Subscriber {
        number: digits(subscriber),
        bits: below(random, 1 << 10) as u16,
        digits: [(); 10].map(|()| below(random, 16) as u8),
        octets: [(); 10].map(|()| below(random, 256) as u8),
        msc_location: below(random, 1 << 32) as u32,
        vlr_location: below(random, 1 << 32) as u32,
    };
    let of_number = SubscriberOf {
        subscriber: subscriber as u32,
    };
    let mut rows = vec![
        (key_of(SUBSCRIBER, [subscriber]), row.encode()),
        (key_of_number(subscriber), of_number.encode()),
    ];
    for kind in some_types(random) {
        let info = AccessInfo {
            data1: below(random, 256) as u8,
            data2: below(random, 256) as u8,
            data3: letters(random),
            data4: letters(random),
        };
        rows.push((key_of(ACCESS_INFO, [subscriber, kind]), info.encode()));
    }
    for kind in some_types(random) {
        let facility = SpecialFacility {
            is_active: u8::from(below(random, 100) < ACTIVE),
            error_control: below(random, 256) as u8,
            data_a: below(random, 256) as u8,
            data_b: letters(random),
        };
        rows.push((key_of(SPECIAL_FACILITY, [subscriber, kind]), facility.encode()));
        let count = below(random, HOURS.len() as u64 + 1);
        for hour in some_of(random, HOURS, count) {
            let forwarding = CallForwarding {
                end_hour: (hour + 1 + below(random, 8)) as u8,
                number: digits(below(random, 1_000_000)),
            };
            rows.push((key_of(CALL_FORWARDING, [subscriber, kind, hour]), forwarding.encode()));
        }
    }
    rows
}

/// One to four of the types, not the same.
fn some_types(random: &mut Xoshiro256PlusPlus) -> impl Iterator<Item = u64> + use<> {
    let count = 1 + below(random, TYPES);
    some_of(random, [1, 2, 3, 4], count)
}

/// So many of some numbers, by chance.
fn some_of<const N: usize>(
    random: &mut Xoshiro256PlusPlus,
    mut numbers: [u64; N],
    count: u64,
) -> impl Iterator<Item = u64> + use<N> {
    for place in 0..N {
        numbers.swap(place, place + below(random, (N - place) as u64) as usize);
    }
    numbers.into_iter().take(count as usize)
}

fn letters<const N: usize>(random: &mut Xoshiro256PlusPlus) -> [u8; N] {
    [(); N].map(|()| b'A' + below(random, 26) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_rows_as_the_specification_says() {
        const SUBSCRIBERS: u64 = 10_000;
        let mut tables = [0_u64; 6];
        for (key, _) in population(SUBSCRIBERS, 1) {
            tables[usize::from(key[0])] += 1;
        }
        assert_eq!(tables[..3], [0, SUBSCRIBERS, SUBSCRIBERS]);
        for (table, each) in [(ACCESS_INFO, 2.5), (SPECIAL_FACILITY, 2.5), (CALL_FORWARDING, 3.75)] {
            let found = tables[usize::from(table)] as f64 / SUBSCRIBERS as f64;
            assert!((found - each).abs() < 0.1, "{found} in table {table}");
        }
        let all = tables.iter().sum::<u64>() as f64 / row_count(SUBSCRIBERS) as f64;
        assert!((all - 1.0).abs() < 0.02, "{all}");
        assert_eq!(&digits(10_203), b"000000000010203");
    }
}
