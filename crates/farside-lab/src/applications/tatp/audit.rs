//! Whether the register is in order; see the module above.

use std::collections::BTreeSet;

use super::rows::{
    ACCESS_INFO, AccessInfo, CALL_FORWARDING, CallForwarding, SPECIAL_FACILITY, SUBSCRIBER, SUBSCRIBER_OF,
    SpecialFacility, Subscriber, SubscriberOf, digits, key_of_number,
};
use crate::applications::client::{Audit, Ledger, Loaded};
use crate::applications::row::{Row, numbers_of};
use crate::error::BenchError;
use crate::workload::TransactionKind;

/// The audit.
#[derive(Default)]
pub(in crate::applications) struct Register {
    rows: Loaded,
    subscribers: BTreeSet<u64>,
    /// Subscribers of whom there is something, and those that numbers lead to.
    named: BTreeSet<u64>,
    facilities: BTreeSet<[u64; 2]>,
    /// Special facilities that have a call forwarding.
    forwarding: BTreeSet<[u64; 2]>,
}

fn refuse<T>(text: String) -> Result<T, BenchError> {
    Err(BenchError::Unsound(format!("TATP: {text}")))
}

impl Audit for Register {
    fn see(&mut self, key: &[u8], value: &[u8]) -> Result<(), BenchError> {
        let table = key.first().copied().unwrap_or(0);
        *self.rows.entry(table).or_default() += 1;
        match table {
            SUBSCRIBER => {
                let [subscriber] = numbers_of(key)?;
                if Subscriber::decode(value)?.number != digits(subscriber) {
                    return refuse(format!("subscriber {subscriber} has the number of another one"));
                }
                self.subscribers.insert(subscriber);
            }
            SUBSCRIBER_OF => {
                let subscriber = u64::from(SubscriberOf::decode(value)?.subscriber);
                if key != key_of_number(subscriber) {
                    return refuse(format!("a number that is not its own leads to subscriber {subscriber}"));
                }
                self.named.insert(subscriber);
            }
            ACCESS_INFO => {
                let [subscriber, _kind] = numbers_of(key)?;
                AccessInfo::decode(value)?;
                self.named.insert(subscriber);
            }
            SPECIAL_FACILITY => {
                let facility @ [subscriber, _kind] = numbers_of(key)?;
                SpecialFacility::decode(value)?;
                self.named.insert(subscriber);
                self.facilities.insert(facility);
            }
            CALL_FORWARDING => {
                let [subscriber, kind, _hour] = numbers_of(key)?;
                CallForwarding::decode(value)?;
                self.forwarding.insert([subscriber, kind]);
            }
            _ => return refuse(format!("there is a row under the key {key:02x?}, which no table has")),
        }
        Ok(())
    }

    fn verify(self, loaded: &Loaded, ledger: &Ledger) -> Result<Vec<&'static str>, BenchError> {
        let of = |rows: &Loaded, table| rows.get(&table).copied().unwrap_or(0);
        let unchanged = [
            (SUBSCRIBER, "subscribers"),
            (SUBSCRIBER_OF, "numbers"),
            (ACCESS_INFO, "access infos"),
            (SPECIAL_FACILITY, "special facilities"),
        ];
        for (table, name) in unchanged {
            let (found, before) = (of(&self.rows, table), of(loaded, table));
            if found != before {
                return refuse(format!("there are {found} {name}, and were {before} at the start"));
            }
        }
        let inserts = ledger.count(TransactionKind::InsertCallForwarding);
        let deletes = ledger.count(TransactionKind::DeleteCallForwarding);
        let (found, before) = (of(&self.rows, CALL_FORWARDING), of(loaded, CALL_FORWARDING));
        if found + deletes != before + inserts {
            return refuse(format!(
                "there are {found} call forwardings; there were {before}, {inserts} were inserted and {deletes} deleted"
            ));
        }
        if let Some(nobody) = self.named.difference(&self.subscribers).next() {
            return refuse(format!("there is something of subscriber {nobody}, who does not exist"));
        }
        if let Some([subscriber, kind]) = self.forwarding.difference(&self.facilities).next() {
            return refuse(format!(
                "calls of subscriber {subscriber} are forwarded without the special facility {kind}"
            ));
        }
        Ok(vec![
            "as many subscribers, numbers, access infos and special facilities as were loaded",
            "as many call forwardings as were loaded and inserted, less those deleted",
            "every number leads to its subscriber, and every row is of one that exists",
            "every call forwarding is of a special facility that exists",
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::applications::client::Ended;
    use crate::applications::row::{Stored, key_of};
    use crate::applications::tatp::rows::population;

    fn verified(rows: &[Stored], loaded: &Loaded, ledger: &Ledger) -> Result<Vec<&'static str>, BenchError> {
        let mut audit = Register::default();
        rows.iter().try_for_each(|(key, value)| audit.see(key, value))?;
        audit.verify(loaded, ledger)
    }

    /// Whoever spoils a register is told by each of its conditions.
    #[test]
    fn each_condition_can_fail() {
        let rows: Vec<Stored> = population(20, 1).collect();
        let mut loaded = Loaded::new();
        rows.iter().for_each(|(key, _)| *loaded.entry(key[0]).or_default() += 1);
        let nothing = Ledger::default();
        assert_eq!(verified(&rows, &loaded, &nothing).expect("as it was made").len(), 4);

        let without = |table: u8| {
            let mut rows = rows.clone();
            let place = rows.iter().position(|(key, _)| key[0] == table);
            rows.swap_remove(place.expect("there are some"));
            rows
        };
        let told = |rows: &[Stored], ledger: &Ledger, text: &str| {
            let error = verified(rows, &loaded, ledger).expect_err(text).to_string();
            assert!(error.contains(text), "{error}");
        };
        told(&without(SUBSCRIBER), &nothing, "there are 19 subscribers, and were 20");
        told(&without(SUBSCRIBER_OF), &nothing, "there are 19 numbers");
        told(&without(ACCESS_INFO), &nothing, "access infos, and were");
        told(&without(SPECIAL_FACILITY), &nothing, "special facilities, and were");
        told(&without(CALL_FORWARDING), &nothing, "call forwardings; there were");
        let mut ledger = Ledger::default();
        ledger.note(&Ended::new(TransactionKind::InsertCallForwarding, true));
        told(&rows, &ledger, "1 were inserted and 0 deleted");

        // One row of the table in place of another one.
        let replaced = |table: u8, key: Vec<u8>| {
            let mut rows = without(table);
            let value = rows.iter().find(|(key, _)| key[0] == table).expect("others").1.clone();
            rows.push((key, value));
            rows
        };
        let access = replaced(ACCESS_INFO, key_of(ACCESS_INFO, [99, 1]));
        told(&access, &nothing, "subscriber 99, who does not exist");
        let forwarding = replaced(CALL_FORWARDING, key_of(CALL_FORWARDING, [1, 9, 0]));
        told(&forwarding, &nothing, "without the special facility 9");
        let number = replaced(SUBSCRIBER_OF, key_of_number(77));
        told(&number, &nothing, "a number that is not its own");
        let subscriber = replaced(SUBSCRIBER, key_of(SUBSCRIBER, [78]));
        told(&subscriber, &nothing, "the number of another one");
        told(&[(vec![9], Vec::new())], &nothing, "which no table has");
    }
}
