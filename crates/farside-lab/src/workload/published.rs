//! What TATP and TPC-C draw, for the locks of their transactions ([`super::transactions`]) and for the transactions themselves.
//!
//! Numbers begin with 0 here, and with 1 in both benchmarks.

use rand_core::Rng;

use super::zipf::below;

/// TPC-C, clause 1.3.1: districts of a warehouse, customers of a district, and items.
pub(crate) const DISTRICTS: u64 = 10;
pub(crate) const CUSTOMERS: u64 = 3000;
pub(crate) const ITEMS: u64 = 100_000;
/// TPC-C, clause 4.3.2.3: how many last names there are.
pub(crate) const LAST_NAMES: u64 = 1000;
/// TPC-C, clause 2.4.1.3: the fewest and the most lines of an order.
pub(crate) const LINES: [u64; 2] = [5, 15];

/// What makes the distribution of subscribers uneven (TATP: `A`), for up to so many.
const SUBSCRIBER_BITS: [(u64, u64); 3] = [(1_000_000, 65_535), (10_000_000, 1_048_575), (u64::MAX, 2_097_151)];
/// The same of customers, items and last names (TPC-C, clauses 2.1.6 and 4.3.2.3).
const CUSTOMER_BITS: u64 = 1023;
const ITEM_BITS: u64 = 8191;
const LAST_NAME_BITS: u64 = 255;
/// TPC-C, clauses 2.4.1.5 and 2.5.1.2: what is of another warehouse, in percent.
const REMOTE_LINES: u64 = 1;
const REMOTE_CUSTOMERS: u64 = 15;

/// TPC-C, clause 2.1.6, and TATP: `NURand` of numbers that begin with `first`, with a constant of 0; less `first`.
fn uneven(random: &mut impl Rng, bits: u64, first: u64, count: u64) -> u64 {
    // Where they begin makes a difference: it says which number has the bits that are set.
    let number = below(random, bits + 1) | (first + below(random, count));
    number % count
}

/// A subscriber of so many.
pub(crate) fn subscriber(random: &mut impl Rng, subscribers: u64) -> u64 {
    let bits = SUBSCRIBER_BITS.iter().find(|(most, _)| subscribers <= *most);
    uneven(random, bits.map_or(0, |&(_, bits)| bits), 1, subscribers)
}

/// A customer of a district that has so many.
pub(crate) fn customer(random: &mut impl Rng, customers: u64) -> u64 {
    uneven(random, CUSTOMER_BITS, 1, customers)
}

/// An item of so many.
pub(crate) fn item(random: &mut impl Rng, items: u64) -> u64 {
    uneven(random, ITEM_BITS, 1, items)
}

/// The number of a last name of so many.
pub(crate) fn last_name(random: &mut impl Rng, names: u64) -> u64 {
    uneven(random, LAST_NAME_BITS, 0, names)
}

/// How many lines an order has.
pub(crate) fn line_count(random: &mut impl Rng) -> u64 {
    let [fewest, most] = LINES;
    fewest + below(random, most - fewest + 1)
}

/// Whether a line of an order comes from another warehouse.
pub(crate) fn is_remote_line(random: &mut impl Rng) -> bool {
    below(random, 100) < REMOTE_LINES
}

/// Whether a customer pays at another warehouse than the own.
pub(crate) fn is_remote_customer(random: &mut impl Rng) -> bool {
    below(random, 100) < REMOTE_CUSTOMERS
}

/// A warehouse other than this one, of at least two.
pub(crate) fn another_warehouse(random: &mut impl Rng, warehouse: u64, warehouses: u64) -> u64 {
    (warehouse + 1 + below(random, warehouses - 1)) % warehouses
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::client_random;

    const DRAWS: u64 = 100_000;

    /// How often each of so many numbers is drawn.
    fn seen(count: u64, mut draw: impl FnMut() -> u64) -> Vec<u64> {
        let mut seen = vec![0; count as usize];
        (0..DRAWS).for_each(|_| seen[draw() as usize] += 1);
        seen
    }

    #[test]
    fn uneven_numbers_are_all_drawn_and_some_far_more_often() {
        let mut random = client_random(1, 0);
        let customers = seen(3000, || customer(&mut random, 3000));
        let names = seen(1000, || last_name(&mut random, 1000));
        let few = seen(30, || customer(&mut random, 30));
        for (what, seen) in [("customers", customers), ("names", names), ("few", few)] {
            let (most, mean) = (seen.iter().max().copied(), DRAWS / seen.len() as u64);
            assert!(most > Some(mean * 3 / 2), "{what}: {most:?} of {mean}");
            // A number whose bits are nearly all unset is drawn a dozen times as seldom as others, and no more seldom.
            let never = seen.iter().filter(|&&count| count == 0).count();
            assert!(never * 5 < seen.len(), "{what}: {never}");
        }
        // Of the bits that are set by chance there are more if there are more subscribers.
        let wide = (0..DRAWS).filter(|_| subscriber(&mut random, 5_000_000) & 0xff_ffff > 4_000_000);
        assert!(wide.count() > 0);
    }

    #[test]
    fn shares_are_those_of_the_specification() {
        let mut random = client_random(1, 0);
        let percent = |count: usize| count as f64 * 100.0 / DRAWS as f64;
        let remote = (0..DRAWS).filter(|_| is_remote_customer(&mut random)).count();
        assert!((percent(remote) - 15.0).abs() < 0.5, "{remote}");
        let remote = (0..DRAWS).filter(|_| is_remote_line(&mut random)).count();
        assert!((percent(remote) - 1.0).abs() < 0.2, "{remote}");
        let lines = seen(16, || line_count(&mut random));
        assert!(lines[..5].iter().all(|&count| count == 0), "{lines:?}");
        assert!(lines[5..].iter().all(|&count| count * 11 > DRAWS * 9 / 10), "{lines:?}");
        let others = seen(3, || another_warehouse(&mut random, 1, 3));
        assert!(others[1] == 0 && others[0].min(others[2]) > DRAWS / 3, "{others:?}");
        assert_eq!(another_warehouse(&mut random, 0, 2), 1);
    }
}
