//! SmallBank: a bank whose customers have a savings and a checking account each.
//!
//! From Alomari, Cahill, Fekete and Röhm, *The cost of serializability on platforms that use snapshot isolation*, ICDE 2008; with
//! the sixth transaction, the mix and the amounts of H-Store. Nine of ten transactions are of a customer, or two, among the 4 %
//! that are hot, as in FaSST (OSDI 2016), section 7. Customers are called by their number there and here: the table that says
//! which number a name has never changes.
//!
//! | transaction | % | what it does, of a first and a second customer | refused if |
//! |---|---|---|---|
//! | BALANCE | 15 | reads both accounts | |
//! | DEPOSIT_CHECKING | 15 | puts 1.30 into checking | |
//! | TRANSACT_SAVINGS | 15 | puts 20.20 into savings, or takes it out: either half of the time | savings would be negative |
//! | AMALGAMATE | 15 | moves both accounts to checking of the second | |
//! | WRITE_CHECK | 15 | takes 5.00 out of checking, and 1.00 more if both accounts have less together | |
//! | SEND_PAYMENT | 25 | moves 5.00 from checking to checking of the second | there is less |
//!
//! All keys are known before: each is one `transaction_on`. By these amounts more is taken out than comes in, and AMALGAMATE
//! makes customers poor: the longer a run takes, the more is refused.
//!
//! Audit: every customer has both accounts, and all accounts together hold what they held at the start and what clients
//! say they have brought or taken away.

use farside_kv::Session;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::client::{Application, Audit, Client, Ended, Ledger, Loaded};
use super::row::{Row, Stored, key_of, numbers_of, read, rows, transact};
use crate::error::BenchError;
use crate::workload::transactions::draw_of;
use crate::workload::zipf::below;
use crate::workload::{Scatter, TransactionKind, client_random};

/// How many customers there are unless something else is said.
pub(super) const CUSTOMERS: u64 = 100_000;
/// How many there may be.
pub(super) const CUSTOMERS_RANGE: [u64; 2] = [2, 10_000_000];

const SAVINGS: u8 = 1;
const CHECKING: u8 = 2;

/// What is in an account at the start: from 100.00 to 500.00, in cents.
const OPENING_CENTS: [u64; 2] = [10_000, 50_000];
const DEPOSIT_CENTS: i64 = 130;
const SAVINGS_CENTS: i64 = 2020;
const PAYMENT_CENTS: i64 = 500;
const PENALTY_CENTS: i64 = 100;
/// Of a hundred transactions so many are of hot customers.
const HOT_TRANSACTIONS: u64 = 90;
/// Of a hundred customers so many are hot.
const HOT_CUSTOMERS: u64 = 4;

const MIX: [(TransactionKind, u64); 6] = [
    (TransactionKind::Balance, 15),
    (TransactionKind::DepositChecking, 15),
    (TransactionKind::TransactSavings, 15),
    (TransactionKind::Amalgamate, 15),
    (TransactionKind::WriteCheck, 15),
    (TransactionKind::SendPayment, 25),
];

rows! {
    /// What is in an account.
    Account as "an account" {
        cents: i64,
    }
}

/// A bank of so many customers.
pub(super) struct Smallbank {
    customers: u64,
    seed: u64,
}

impl Smallbank {
    pub(super) fn new(customers: u64, seed: u64) -> Self {
        Self { customers, seed }
    }
}

impl Application for Smallbank {
    type Client = Teller;
    type Audit = Books;

    fn row_count(&self) -> u64 {
        2 * self.customers
    }

    fn rows(&self) -> impl Iterator<Item = Stored> {
        let mut random = client_random(self.seed, u64::MAX - 1);
        let accounts = (0..self.customers).flat_map(|customer| [SAVINGS, CHECKING].map(|table| (table, customer)));
        accounts.map(move |(table, customer)| {
            let [least, most] = OPENING_CENTS;
            let cents = (least + below(&mut random, most - least + 1)).cast_signed();
            (key_of(table, [customer]), Account { cents }.encode())
        })
    }

    fn client(&self, number: u64) -> Teller {
        Teller {
            draws: Draws {
                random: client_random(self.seed, number),
                scatter: Scatter::new(self.customers),
                customers: self.customers,
            },
        }
    }

    fn audit(&self) -> Books {
        Books {
            opened: self.opening_cents(),
            held: 0,
            accounts: Loaded::new(),
        }
    }
}

impl Smallbank {
    /// What all accounts hold together at the start.
    fn opening_cents(&self) -> i64 {
        let accounts = self
            .rows()
            .map(|(_, value)| Account::decode(&value).expect("as it was made"));
        accounts.map(|account| account.cents).sum()
    }
}

/// What a client draws.
struct Draws {
    random: Xoshiro256PlusPlus,
    scatter: Scatter,
    customers: u64,
}

impl Draws {
    /// Two customers, not the same, both hot or both any.
    fn customers(&mut self) -> [u64; 2] {
        let is_hot = below(&mut self.random, 100) < HOT_TRANSACTIONS;
        let among = match is_hot {
            true => (self.customers * HOT_CUSTOMERS / 100).max(2),
            false => self.customers,
        };
        let first = below(&mut self.random, among);
        let second = (first + 1 + below(&mut self.random, among - 1)) % among;
        // Neighbours would stand together in an ordered index.
        [first, second].map(|rank| self.scatter.key(rank))
    }
}

/// A client.
pub(super) struct Teller {
    draws: Draws,
}

/// What becomes of accounts: `None` if the transaction is refused, otherwise what each holds afterwards, if something else.
type After = Option<Vec<i64>>;

impl Teller {
    /// Reads accounts and stores what they hold afterwards; whether it was done, and what came in from outside.
    async fn change(
        session: &mut Session,
        keys: &[Vec<u8>],
        after: impl Fn(&[i64]) -> After,
    ) -> Result<Option<i64>, BenchError> {
        transact(session, keys, |transaction| {
            let mut before = Vec::with_capacity(keys.len());
            for key in keys {
                before.push(read::<Account>(transaction, key)?.cents);
            }
            let Some(after) = after(&before) else {
                return Ok(None);
            };
            for ((key, &cents), before) in keys.iter().zip(&after).zip(&before) {
                if cents != *before {
                    transaction.put(key, &Account { cents }.encode())?;
                }
            }
            Ok(Some(after.iter().sum::<i64>() - before.iter().sum::<i64>()))
        })
        .await
    }
}

/// What TRANSACT_SAVINGS makes of an account.
fn transacted(savings: i64, cents: i64) -> After {
    (savings + cents >= 0).then(|| vec![savings + cents])
}

/// What WRITE_CHECK makes of savings and checking.
fn checked(savings: i64, checking: i64) -> After {
    let penalty = if savings + checking < PAYMENT_CENTS {
        PENALTY_CENTS
    } else {
        0
    };
    Some(vec![savings, checking - PAYMENT_CENTS - penalty])
}

/// What SEND_PAYMENT makes of checking of both.
fn paid(first: i64, second: i64) -> After {
    (first >= PAYMENT_CENTS).then(|| vec![first - PAYMENT_CENTS, second + PAYMENT_CENTS])
}

impl Client for Teller {
    async fn transact(&mut self, session: &mut Session) -> Result<Ended, BenchError> {
        let kind = draw_of(&MIX, &mut self.draws.random);
        let [first, second] = self.draws.customers();
        let (savings, checking) = (key_of(SAVINGS, [first]), key_of(CHECKING, [first]));
        let other = key_of(CHECKING, [second]);
        let changed = match kind {
            TransactionKind::Balance => Self::change(session, &[savings, checking], |held| Some(held.to_vec())).await,
            TransactionKind::DepositChecking => {
                Self::change(session, &[checking], |held| Some(vec![held[0] + DEPOSIT_CENTS])).await
            }
            TransactionKind::TransactSavings => {
                let is_deposit = below(&mut self.draws.random, 2) == 0;
                let cents = if is_deposit { SAVINGS_CENTS } else { -SAVINGS_CENTS };
                Self::change(session, &[savings], |held| transacted(held[0], cents)).await
            }
            TransactionKind::Amalgamate => {
                let keys = [savings, checking, other];
                Self::change(session, &keys, |held| Some(vec![0, 0, held.iter().sum()])).await
            }
            TransactionKind::WriteCheck => {
                Self::change(session, &[savings, checking], |held| checked(held[0], held[1])).await
            }
            _ => Self::change(session, &[checking, other], |held| paid(held[0], held[1])).await,
        }?;
        Ok(Ended {
            amount: changed.unwrap_or(0),
            ..Ended::new(kind, changed.is_some())
        })
    }
}

/// The audit.
pub(super) struct Books {
    opened: i64,
    held: i64,
    accounts: Loaded,
}

impl Audit for Books {
    fn see(&mut self, key: &[u8], value: &[u8]) -> Result<(), BenchError> {
        let [_customer] = numbers_of(key)?;
        *self.accounts.entry(key[0]).or_default() += 1;
        self.held += Account::decode(value)?.cents;
        Ok(())
    }

    fn verify(self, loaded: &Loaded, ledger: &Ledger) -> Result<Vec<&'static str>, BenchError> {
        if self.accounts != *loaded {
            return Err(BenchError::Unsound(format!(
                "SmallBank: there are accounts {:?} by table, and were {loaded:?} at the start",
                self.accounts
            )));
        }
        let came: i64 = MIX.iter().map(|&(kind, _)| ledger.amount(kind)).sum();
        if self.held != self.opened + came {
            return Err(BenchError::Unsound(format!(
                "SmallBank: all accounts together hold {} cents; they held {} at the start, and {came} came in since",
                self.held, self.opened
            )));
        }
        // Of those that move money inside of the bank none comes in.
        for kind in [
            TransactionKind::Balance,
            TransactionKind::Amalgamate,
            TransactionKind::SendPayment,
        ] {
            let made = ledger.amount(kind);
            if made != 0 {
                let text = format!("SmallBank: {} has made {made} cents", kind.name());
                return Err(BenchError::Unsound(text));
            }
        }
        Ok(vec![
            "every customer has both accounts",
            "all accounts together hold what they held at the start and what clients have brought or taken away",
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transactions_do_what_the_specification_says() {
        assert_eq!(transacted(2020, -2020), Some(vec![0]));
        assert_eq!(transacted(2019, -2020), None);
        assert_eq!(transacted(-2021, 2020), None);
        assert_eq!(checked(400, 100), Some(vec![400, -400]));
        assert_eq!(checked(400, 99), Some(vec![400, -501]));
        assert_eq!(paid(500, -3), Some(vec![0, 497]));
        assert_eq!(paid(499, 0), None);
    }

    #[test]
    fn hot_customers_are_in_nine_of_ten_transactions() {
        const DRAWS: u64 = 100_000;
        for (customers, hot, percent) in [(1000, 40, 90.4), (2, 2, 100.0)] {
            let mut draws = Smallbank::new(customers, 1).client(3).draws;
            let hot: Vec<u64> = (0..hot).map(|rank| draws.scatter.key(rank)).collect();
            let mut hits = 0_u64;
            for _ in 0..DRAWS {
                let [first, second] = draws.customers();
                assert!(first != second && first.max(second) < customers, "{first} {second}");
                hits += u64::from(hot.contains(&first));
            }
            let found = hits as f64 * 100.0 / DRAWS as f64;
            assert!((found - percent).abs() < 0.5, "{found} % of {customers} customers");
        }
        assert_eq!(MIX.iter().map(|(_, share)| share).sum::<u64>(), 100);
    }

    #[test]
    fn money_that_is_missing_and_accounts_that_are_too_are_told() {
        let bank = Smallbank::new(3, 1);
        let rows: Vec<Stored> = bank.rows().collect();
        let loaded = Loaded::from([(SAVINGS, 3), (CHECKING, 3)]);
        let verified = |rows: &[Stored], ledger: &Ledger| {
            let mut audit = bank.audit();
            rows.iter().try_for_each(|(key, value)| audit.see(key, value))?;
            audit.verify(&loaded, ledger)
        };
        let mut ledger = Ledger::default();
        verified(&rows, &ledger).expect("as it was made");
        let error = verified(&rows[1..], &ledger).expect_err("one is missing").to_string();
        assert!(error.contains("there are accounts"), "{error}");
        let mut deposit = Ended::new(TransactionKind::DepositChecking, true);
        deposit.amount = 130;
        ledger.note(&deposit);
        let error = verified(&rows, &ledger).expect_err("130 are missing").to_string();
        assert!(error.contains("130 came in since"), "{error}");
        let mut payment = Ended::new(TransactionKind::SendPayment, true);
        payment.amount = -130;
        ledger.note(&payment);
        let error = verified(&rows, &ledger).expect_err("payments keep the sum").to_string();
        assert!(error.contains("send_payment has made"), "{error}");
    }
}
