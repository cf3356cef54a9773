//! Accounts: what each is called, how a balance is written, what a transfer makes of two of them, and whether money was
//! lost or made.

use crate::error::BenchError;

/// What is in every account at the start.
pub(super) const OPENING_BALANCE: u64 = 10_000;
/// The most that is moved at a time.
pub(super) const AMOUNT_MAX: u64 = 100;
/// How many accounts a key has digits for.
pub(super) const ACCOUNTS_MAX: u64 = 100_000_000;

/// Two accounts, not the same, with the one that pays first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pair(pub(super) [u64; 2]);

impl Pair {
    /// Their keys.
    pub(super) fn keys(self) -> [String; 2] {
        self.0.map(key_of)
    }

    /// Numbers of the locks of both, each once, in the order in which everybody takes them. `locks` is how many there are;
    /// accounts share them if it is less than there are accounts.
    pub(super) fn locks(self, locks: u64) -> Vec<u64> {
        let mut numbers = self.0.map(|account| account % locks).to_vec();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }
}

/// The name of a lock.
pub(super) fn lock_name(number: u64) -> String {
    format!("lock:{number:08}")
}

/// The key of an account: eight digits.
pub(super) fn key_of(account: u64) -> String {
    format!("{account:08}")
}

/// A balance as it is stored: decimal digits.
pub(super) fn text_of(balance: u64) -> String {
    balance.to_string()
}

/// Reads a stored balance.
///
/// # Errors
/// [`BenchError::Unsound`] if there is none, since no account is ever closed.
pub(super) fn balance_of(stored: Option<&[u8]>) -> Result<u64, BenchError> {
    let balance = stored.and_then(|text| str::from_utf8(text).ok()?.parse().ok());
    balance.ok_or_else(|| {
        let text = stored.map_or("nothing".into(), String::from_utf8_lossy);
        BenchError::Unsound(format!("an account holds {text}, which is not a balance"))
    })
}

/// What two accounts hold after the first has paid an amount to the second; `None` if it has not got so much.
pub(super) fn after_transfer(balances: [u64; 2], amount: u64) -> Option<[u64; 2]> {
    let left = balances[0].checked_sub(amount)?;
    Some([left, balances[1] + amount])
}

/// Refuses a bank whose accounts hold another sum than they did at the start.
///
/// # Errors
/// [`BenchError::Unsound`].
pub(super) fn check_sum(contender: &str, accounts: u64, sum: u64) -> Result<(), BenchError> {
    let expected = accounts * OPENING_BALANCE;
    if sum == expected {
        return Ok(());
    }
    Err(BenchError::Unsound(format!(
        "{contender}: all accounts together hold {sum} after the run, and held {expected} before it"
    )))
}

/// Refuses what a transaction has seen if it has seen the whole bank, and not all of the money.
///
/// # Errors
/// [`BenchError::Unsound`].
pub(super) fn check_seen(accounts: u64, balances: [u64; 2]) -> Result<(), BenchError> {
    if accounts == 2 && balances[0] + balances[1] != 2 * OPENING_BALANCE {
        return Err(BenchError::Unsound(format!(
            "a transaction has seen {balances:?}, which both accounts never held at the same time"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_takes_the_locks_of_two_accounts_in_the_same_order_and_each_once() {
        let locks = |one, other, locks| Pair([one, other]).locks(locks);
        assert_eq!(locks(9, 2, 100), [2, 9]);
        assert_eq!(locks(2, 9, 100), locks(9, 2, 100));
        // Here 12 has the lock of 2.
        assert_eq!(locks(12, 9, 10), locks(9, 2, 10));
        assert_eq!(locks(12, 2, 10), [2]);
    }

    #[test]
    fn a_transfer_keeps_the_sum_and_leaves_no_debt() {
        assert_eq!(after_transfer([30, 5], 30), Some([0, 35]));
        assert_eq!(after_transfer([29, 5], 30), None);
        assert_eq!(balance_of(Some(text_of(29).as_bytes())).expect("a balance"), 29);
        for wrong in [None, Some(&b"-1"[..]), Some(b"")] {
            let error = balance_of(wrong).expect_err("no balance");
            assert!(matches!(error, BenchError::Unsound(_)), "{error}");
        }
    }

    #[test]
    fn a_sum_that_has_changed_is_told() {
        check_sum("watch", 3, 30_000).expect("nothing is missing");
        let error = check_sum("watch", 3, 29_970).expect_err("30 are missing").to_string();
        assert!(
            error.contains("watch") && error.contains("29970") && error.contains("30000"),
            "{error}"
        );
        check_seen(2, [1, 19_999]).expect("all that there is");
        check_seen(2, [1, 9_999]).expect_err("half of it");
        check_seen(3, [1, 9_999]).expect("the third may have the rest");
    }
}
