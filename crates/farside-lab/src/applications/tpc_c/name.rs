//! Last names: three syllables, one for each digit of a number (clause 4.3.2.3).

use crate::error::BenchError;

use super::Called;
use super::rows::{CUSTOMERS_OF, CustomersOf};
use crate::applications::row::{key_of, read_alone};
use farside_kv::Session;

/// Bytes of a name, with blanks behind it.
pub(super) const NAME_BYTES: usize = 16;

const SYLLABLES: [&str; 10] = [
    "BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING",
];

/// The last name with this number, of three digits.
pub(super) fn last_name(number: u64) -> [u8; NAME_BYTES] {
    let digits = [number / 100, number / 10, number].map(|digit| SYLLABLES[(digit % 10) as usize]);
    let mut name = [b' '; NAME_BYTES];
    let text = digits.concat();
    name[..text.len()].copy_from_slice(text.as_bytes());
    name
}

/// The key of the customers of a name.
pub(super) fn key_of_name([warehouse, district]: [u64; 2], name: &[u8; NAME_BYTES]) -> Vec<u8> {
    let mut key = key_of(CUSTOMERS_OF, [warehouse, district]);
    key.extend(name);
    key
}

/// The number of a customer of a district: of those with a name the one in the middle, by first name (clauses 2.5.2.2 and
/// 2.6.2.2).
///
/// # Errors
/// Those of the store.
pub(super) async fn number_of(session: &mut Session, district: [u64; 2], called: Called) -> Result<u64, BenchError> {
    let number = match called {
        Called::ByNumber(number) => return Ok(number),
        Called::ByName(number) => number,
    };
    let row: CustomersOf = read_alone(session, &key_of_name(district, &last_name(number))).await?;
    let middle = row.customers.len().saturating_sub(1) / 2;
    let customer = row.customers.get(middle).copied();
    customer.map(u64::from).ok_or_else(|| {
        let name = String::from_utf8_lossy(&last_name(number)).trim_end().to_owned();
        BenchError::Unsound(format!("TPC-C: no customer of district {district:?} is called {name}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_specification() {
        assert_eq!(&last_name(371), b"PRICALLYOUGHT   ");
        assert_eq!(&last_name(40), b"BARPRESBAR      ");
        assert_eq!(&last_name(777), b"CALLYCALLYCALLY ");
    }
}
