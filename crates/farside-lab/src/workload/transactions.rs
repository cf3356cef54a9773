//! Transactions as the locks that they take: TATP and TPC-C under two-phase locking.
//!
//! On the path: drawn before each operation of `bench lock --workload`. A client acquires all locks of a transaction in the
//! order of their numbers, so that nobody waits in a circle; works; and releases them all.
//!
//! # TATP
//! 170 059 subscribers with a lock in each of the four tables: 680 236 locks, the published number. Subscribers are drawn as
//! the benchmark says, by a distribution that is not uniform. That the subscriber of a number is looked up takes no lock: it
//! never changes.
//!
//! | transaction | % | SUBSCRIBER | ACCESS_INFO | SPECIAL_FACILITY | CALL_FORWARDING |
//! |---|---|---|---|---|---|
//! | GET_SUBSCRIBER_DATA | 35 | shared | | | |
//! | GET_NEW_DESTINATION | 10 | | | shared | shared |
//! | GET_ACCESS_DATA | 35 | | shared | | |
//! | UPDATE_SUBSCRIBER_DATA | 2 | exclusive | | exclusive | |
//! | UPDATE_LOCATION | 14 | exclusive | | | |
//! | INSERT_CALL_FORWARDING | 2 | | | shared | exclusive |
//! | DELETE_CALL_FORWARDING | 2 | | | | exclusive |
//!
//! 80.7 % of the requests are shared; published are 80.6 %.
//!
//! # TPC-C
//! A warehouse has 121 locks: one of its own; one in each district for the district, its orders, its new orders, its history and
//! its order lines; 30 for customers and 30 for stock, among which they are spread; and 10 for items. 500 warehouses, 100
//! for each of the five machines that the traces were published for, have 60 500. Items never change, so nobody locks them.
//! They stand last in a warehouse, so the last lock that anybody takes is the 60 490th: the published number.
//!
//! | transaction | % | warehouse | district | customer | order | new order | order line | history | stock |
//! |---|---|---|---|---|---|---|---|---|---|
//! | NEW_ORDER | 45 | shared | exclusive | shared | exclusive | exclusive | exclusive | | exclusive, 5 to 15 lines |
//! | PAYMENT | 43 | exclusive | exclusive | exclusive | | | | exclusive | |
//! | ORDER_STATUS | 4 | | | shared | shared | | shared | | |
//! | DELIVERY | 4 | | | exclusive | exclusive | exclusive | exclusive | | |
//! | STOCK_LEVEL | 4 | | shared | | | | shared | | read without a lock |
//!
//! 86.9 % of the requests are exclusive; published are 86.5 %. DELIVERY delivers an order of one district: how many go into
//! one transaction is left to the implementation (clause 2.7). STOCK_LEVEL need not read repeatably (clause 2.8). Of a
//! NEW_ORDER whose stock has more than ten locks the lines behind are left out: 16 locks are the most that a transaction holds.
//! Every transaction draws its warehouse: no client has one of its own.
//!
//! Invariants of a transaction: its requests ascend by lock; each lock is in it once, in the stronger mode that was asked for.

use farside_lock::Mode;
use rand_core::Rng;

use super::published::{
    CUSTOMERS, DISTRICTS, ITEMS, another_warehouse, customer, is_remote_customer, is_remote_line, item, line_count,
    subscriber,
};
use super::zipf::below;

/// The most locks that a transaction holds.
pub const LOCKS_MAX: usize = 16;

/// TATP's subscribers.
const SUBSCRIBERS: u64 = 170_059;
/// Tables, each with a lock for each subscriber.
const TABLES: u64 = 4;

/// TPC-C's warehouses.
const WAREHOUSES: u64 = 500;
const CUSTOMER_LOCKS: u64 = 30;
const STOCK_LOCKS: u64 = 30;
const ITEM_LOCKS: u64 = 10;
/// Locks of a warehouse, and where those of each kind stand in it.
const WAREHOUSE_LOCKS: u64 = ITEMS_AT + ITEM_LOCKS;
const DISTRICTS_AT: u64 = 1;
const ORDERS_AT: u64 = DISTRICTS_AT + DISTRICTS;
const NEW_ORDERS_AT: u64 = ORDERS_AT + DISTRICTS;
const HISTORY_AT: u64 = NEW_ORDERS_AT + DISTRICTS;
const ORDER_LINES_AT: u64 = HISTORY_AT + DISTRICTS;
const CUSTOMERS_AT: u64 = ORDER_LINES_AT + DISTRICTS;
const STOCK_AT: u64 = CUSTOMERS_AT + CUSTOMER_LOCKS;
const ITEMS_AT: u64 = STOCK_AT + STOCK_LOCKS;
const _: () = assert!(WAREHOUSE_LOCKS == 121, "as published");
/// A type of transaction, by its benchmark's name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[expect(missing_docs, reason = "the names are the benchmarks' own")]
pub enum TransactionKind {
    GetSubscriberData,
    GetNewDestination,
    GetAccessData,
    UpdateSubscriberData,
    UpdateLocation,
    InsertCallForwarding,
    DeleteCallForwarding,
    NewOrder,
    Payment,
    OrderStatus,
    Delivery,
    StockLevel,
    Balance,
    DepositChecking,
    TransactSavings,
    Amalgamate,
    WriteCheck,
    SendPayment,
}

impl TransactionKind {
    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::GetSubscriberData => "get_subscriber_data",
            Self::GetNewDestination => "get_new_destination",
            Self::GetAccessData => "get_access_data",
            Self::UpdateSubscriberData => "update_subscriber_data",
            Self::UpdateLocation => "update_location",
            Self::InsertCallForwarding => "insert_call_forwarding",
            Self::DeleteCallForwarding => "delete_call_forwarding",
            Self::NewOrder => "new_order",
            Self::Payment => "payment",
            Self::OrderStatus => "order_status",
            Self::Delivery => "delivery",
            Self::StockLevel => "stock_level",
            Self::Balance => "balance",
            Self::DepositChecking => "deposit_checking",
            Self::TransactSavings => "transact_savings",
            Self::Amalgamate => "amalgamate",
            Self::WriteCheck => "write_check",
            Self::SendPayment => "send_payment",
        }
    }
}

/// A benchmark's transactions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransactionWorkload {
    /// Its name on the command line.
    pub name: &'static str,
    /// A line about it.
    pub about: &'static str,
    /// How many locks there are.
    pub locks: u64,
    /// How long a transaction works when it has its locks.
    pub execution_ns: u64,
    /// Types with their percentages, 100 in sum.
    mix: &'static [(TransactionKind, u64)],
}

/// Every benchmark.
pub const TRANSACTIONS: [TransactionWorkload; 2] = [
    TransactionWorkload {
        name: "tatp",
        about: "the locks of TATP's transactions, under two-phase locking (bench lock)",
        locks: TABLES * SUBSCRIBERS,
        execution_ns: 2800,
        mix: &[
            (TransactionKind::GetSubscriberData, 35),
            (TransactionKind::GetNewDestination, 10),
            (TransactionKind::GetAccessData, 35),
            (TransactionKind::UpdateSubscriberData, 2),
            (TransactionKind::UpdateLocation, 14),
            (TransactionKind::InsertCallForwarding, 2),
            (TransactionKind::DeleteCallForwarding, 2),
        ],
    },
    TransactionWorkload {
        name: "tpc-c",
        about: "the locks of TPC-C's transactions, under two-phase locking (bench lock)",
        // Behind them are the items of the last warehouse only.
        locks: WAREHOUSES * WAREHOUSE_LOCKS - ITEM_LOCKS,
        execution_ns: 7000,
        mix: &[
            (TransactionKind::NewOrder, 45),
            (TransactionKind::Payment, 43),
            (TransactionKind::OrderStatus, 4),
            (TransactionKind::Delivery, 4),
            (TransactionKind::StockLevel, 4),
        ],
    },
];

/// A transaction, as the locks that it takes.
#[derive(Clone, Copy, Debug)]
pub struct Transaction {
    /// Its type.
    pub kind: TransactionKind,
    requests: [(u64, Mode); LOCKS_MAX],
    count: usize,
}

impl Transaction {
    fn new(kind: TransactionKind) -> Self {
        Self {
            kind,
            requests: [(0, Mode::Shared); LOCKS_MAX],
            count: 0,
        }
    }

    /// The locks, in the order in which they are acquired.
    #[must_use]
    pub fn requests(&self) -> &[(u64, Mode)] {
        &self.requests[..self.count]
    }

    /// How many of the requests are for shared mode.
    #[must_use]
    pub fn shared(&self) -> usize {
        self.requests().iter().filter(|(_, mode)| *mode == Mode::Shared).count()
    }

    /// Adds a lock, where its number says; once, in the stronger mode. Whether there was room.
    fn add(&mut self, lock: u64, mode: Mode) -> bool {
        match self.requests().binary_search_by_key(&lock, |request| request.0) {
            Ok(there) => {
                if mode == Mode::Exclusive {
                    self.requests[there].1 = mode;
                }
            }
            Err(_) if self.count == LOCKS_MAX => return false,
            Err(place) => {
                self.requests.copy_within(place..self.count, place + 1);
                self.requests[place] = (lock, mode);
                self.count += 1;
            }
        }
        true
    }

    /// The same with these locks too, for which there is room.
    fn with<const N: usize>(mut self, requests: [(u64, Mode); N]) -> Self {
        for (lock, mode) in requests {
            let had_room = self.add(lock, mode);
            assert!(had_room, "only lines of orders are many");
        }
        self
    }
}

impl TransactionWorkload {
    /// The workload with this name.
    ///
    /// # Errors
    /// Says which names there are.
    pub fn by_name(name: &str) -> Result<Self, String> {
        let found = TRANSACTIONS.into_iter().find(|workload| workload.name == name);
        found.ok_or_else(|| {
            let names = TRANSACTIONS.map(|workload| workload.name).join(", ");
            format!("`{name}` is not a workload of transactions: choose from {names}")
        })
    }

    /// Draws a transaction.
    pub fn draw(&self, random: &mut impl Rng) -> Transaction {
        let kind = self.draw_kind(random);
        match kind {
            TransactionKind::NewOrder => new_order(random),
            TransactionKind::Payment
            | TransactionKind::OrderStatus
            | TransactionKind::Delivery
            | TransactionKind::StockLevel => in_a_district(kind, random),
            _ => of_a_subscriber(kind, subscriber(random, SUBSCRIBERS)),
        }
    }

    /// Draws the type of a transaction.
    pub(crate) fn draw_kind(&self, random: &mut impl Rng) -> TransactionKind {
        draw_of(self.mix, random)
    }
}

/// Draws a type from a mix whose percentages are 100 in sum.
pub(crate) fn draw_of(mix: &[(TransactionKind, u64)], random: &mut impl Rng) -> TransactionKind {
    let mut percent = below(random, 100);
    for &(kind, share) in mix {
        if percent < share {
            return kind;
        }
        percent -= share;
    }
    unreachable!("the shares are 100 in sum")
}

fn of_a_subscriber(kind: TransactionKind, subscriber: u64) -> Transaction {
    let table = |number| subscriber * TABLES + number;
    let [subscriber, access, facility, forwarding] = [0, 1, 2, 3].map(table);
    let transaction = Transaction::new(kind);
    match kind {
        TransactionKind::GetSubscriberData => transaction.with([(subscriber, Mode::Shared)]),
        TransactionKind::GetNewDestination => transaction.with([(facility, Mode::Shared), (forwarding, Mode::Shared)]),
        TransactionKind::GetAccessData => transaction.with([(access, Mode::Shared)]),
        TransactionKind::UpdateSubscriberData => {
            transaction.with([(subscriber, Mode::Exclusive), (facility, Mode::Exclusive)])
        }
        TransactionKind::UpdateLocation => transaction.with([(subscriber, Mode::Exclusive)]),
        TransactionKind::InsertCallForwarding => {
            transaction.with([(facility, Mode::Shared), (forwarding, Mode::Exclusive)])
        }
        TransactionKind::DeleteCallForwarding => transaction.with([(forwarding, Mode::Exclusive)]),
        _ => unreachable!("the others are of other benchmarks"),
    }
}

/// A district of a warehouse, and its locks.
#[derive(Clone, Copy, Debug)]
struct District {
    warehouse: u64,
    number: u64,
}

impl District {
    fn draw(random: &mut impl Rng) -> Self {
        Self {
            warehouse: below(random, WAREHOUSES),
            number: below(random, DISTRICTS),
        }
    }

    fn in_warehouse(self, place: u64) -> u64 {
        self.warehouse * WAREHOUSE_LOCKS + place
    }

    /// Its lock among those of one kind.
    fn lock(self, kind_at: u64) -> u64 {
        self.in_warehouse(kind_at + self.number)
    }

    fn customer(self, random: &mut impl Rng) -> u64 {
        let in_district = CUSTOMER_LOCKS / DISTRICTS;
        let customer = customer(random, CUSTOMERS) % in_district;
        self.in_warehouse(CUSTOMERS_AT + self.number * in_district + customer)
    }
}

fn new_order(random: &mut impl Rng) -> Transaction {
    let home = District::draw(random);
    let mut transaction = Transaction::new(TransactionKind::NewOrder).with([
        (home.in_warehouse(0), Mode::Shared),
        (home.lock(DISTRICTS_AT), Mode::Exclusive),
        (home.customer(random), Mode::Shared),
        (home.lock(ORDERS_AT), Mode::Exclusive),
        (home.lock(NEW_ORDERS_AT), Mode::Exclusive),
        (home.lock(ORDER_LINES_AT), Mode::Exclusive),
    ]);
    for _ in 0..line_count(random) {
        let item = item(random, ITEMS);
        let warehouse = if is_remote_line(random) {
            another_warehouse(random, home.warehouse, WAREHOUSES)
        } else {
            home.warehouse
        };
        let supply = District { warehouse, ..home };
        if !transaction.add(supply.in_warehouse(STOCK_AT + item % STOCK_LOCKS), Mode::Exclusive) {
            break;
        }
    }
    transaction
}

fn in_a_district(kind: TransactionKind, random: &mut impl Rng) -> Transaction {
    let home = District::draw(random);
    let transaction = Transaction::new(kind);
    match kind {
        TransactionKind::Payment => {
            let of_customer = if is_remote_customer(random) {
                District {
                    warehouse: another_warehouse(random, home.warehouse, WAREHOUSES),
                    number: below(random, DISTRICTS),
                }
            } else {
                home
            };
            transaction.with([
                (home.in_warehouse(0), Mode::Exclusive),
                (home.lock(DISTRICTS_AT), Mode::Exclusive),
                (of_customer.customer(random), Mode::Exclusive),
                (home.lock(HISTORY_AT), Mode::Exclusive),
            ])
        }
        TransactionKind::OrderStatus => transaction.with([
            (home.customer(random), Mode::Shared),
            (home.lock(ORDERS_AT), Mode::Shared),
            (home.lock(ORDER_LINES_AT), Mode::Shared),
        ]),
        TransactionKind::Delivery => transaction.with([
            (home.lock(NEW_ORDERS_AT), Mode::Exclusive),
            (home.lock(ORDERS_AT), Mode::Exclusive),
            (home.lock(ORDER_LINES_AT), Mode::Exclusive),
            (home.customer(random), Mode::Exclusive),
        ]),
        TransactionKind::StockLevel => transaction.with([
            (home.lock(DISTRICTS_AT), Mode::Shared),
            (home.lock(ORDER_LINES_AT), Mode::Shared),
        ]),
        _ => unreachable!("the others have their own rules"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::client_random;
    use std::collections::BTreeMap;

    const DRAWS: usize = 200_000;

    fn drawn(name: &str) -> Vec<Transaction> {
        let workload = TransactionWorkload::by_name(name).expect("a workload");
        let mut random = client_random(7, 0);
        (0..DRAWS).map(|_| workload.draw(&mut random)).collect()
    }

    /// The share of requests in shared mode, in percent.
    fn shared_percent(transactions: &[Transaction]) -> f64 {
        let shared: usize = transactions.iter().map(Transaction::shared).sum();
        let all: usize = transactions
            .iter()
            .map(|transaction| transaction.requests().len())
            .sum();
        100.0 * shared as f64 / all as f64
    }

    #[test]
    fn locks_are_as_many_as_published() {
        let locks = TRANSACTIONS.map(|workload| (workload.name, workload.locks, workload.execution_ns));
        assert_eq!(locks, [("tatp", 680_236, 2800), ("tpc-c", 60_490, 7000)]);
        for workload in TRANSACTIONS {
            let requests = drawn(workload.name);
            let requests = requests.iter().flat_map(|transaction| transaction.requests());
            let last = requests.map(|request| request.0).max().expect("there are some");
            assert!(last < workload.locks, "{}: lock {last}", workload.name);
            // Nearly all are taken sooner or later: none of a table or of a warehouse is missing.
            assert!(last + 200 > workload.locks, "{}: lock {last}", workload.name);
        }
    }

    #[test]
    fn the_share_of_shared_requests_is_the_published_one() {
        let tatp = shared_percent(&drawn("tatp"));
        assert!((tatp - 80.6).abs() < 1.0, "{tatp} % of TATP's are shared");
        let tpc_c = 100.0 - shared_percent(&drawn("tpc-c"));
        assert!((tpc_c - 86.5).abs() < 1.0, "{tpc_c} % of TPC-C's are exclusive");
    }

    #[test]
    fn requests_ascend_and_are_few() {
        for workload in TRANSACTIONS {
            let transactions = drawn(workload.name);
            let sorted = |transaction: &Transaction| transaction.requests().is_sorted_by(|a, b| a.0 < b.0);
            assert!(transactions.iter().all(sorted), "{}", workload.name);
            let counts = transactions.iter().map(|transaction| transaction.requests().len());
            let most = if workload.name == "tatp" { 2 } else { LOCKS_MAX };
            assert_eq!(counts.clone().max(), Some(most));
            assert!(counts.min() >= Some(1));
        }
    }

    #[test]
    fn types_are_mixed_as_the_benchmarks_say() {
        for workload in TRANSACTIONS {
            assert_eq!(workload.mix.iter().map(|(_, share)| share).sum::<u64>(), 100);
            let mut seen: BTreeMap<TransactionKind, u64> = BTreeMap::new();
            for transaction in drawn(workload.name) {
                *seen.entry(transaction.kind).or_default() += 1;
            }
            for &(kind, share) in workload.mix {
                let percent = 100.0 * seen[&kind] as f64 / DRAWS as f64;
                assert!(
                    (percent - share as f64).abs() < 0.5,
                    "{}: {percent} of {share} %",
                    kind.name()
                );
            }
            assert_eq!(seen.len(), workload.mix.len());
        }
    }

    #[test]
    fn a_lock_is_in_a_transaction_once_in_the_stronger_mode() {
        for modes in [
            [Mode::Shared, Mode::Exclusive],
            [Mode::Exclusive, Mode::Shared],
            [Mode::Exclusive; 2],
        ] {
            let [first, second] = modes;
            let transaction =
                Transaction::new(TransactionKind::Payment).with([(5, first), (3, Mode::Shared), (5, second)]);
            assert_eq!(transaction.requests(), [(3, Mode::Shared), (5, Mode::Exclusive)]);
        }
        let mut full = Transaction::new(TransactionKind::NewOrder);
        assert!((0..LOCKS_MAX as u64).all(|lock| full.add(lock, Mode::Shared)));
        assert!(full.add(7, Mode::Exclusive), "it is there");
        assert!(!full.add(99, Mode::Exclusive));
        assert_eq!((full.requests().len(), full.shared()), (LOCKS_MAX, LOCKS_MAX - 1));
    }

    /// TATP: some subscribers are drawn far more often than others. Of 16 bits each is set with three quarters, and all of them with
    /// a hundredth, on three subscribers.
    #[test]
    fn a_few_subscribers_are_hot() {
        let mut seen: BTreeMap<u64, u64> = BTreeMap::new();
        for transaction in drawn("tatp") {
            *seen.entry(transaction.requests()[0].0 / TABLES).or_default() += 1;
        }
        let hottest = *seen.values().max().expect("there are some") as f64 / DRAWS as f64;
        assert!((0.002..0.008).contains(&hottest), "{hottest}");
    }

    #[test]
    fn a_client_draws_the_same_transactions_again() {
        for workload in TRANSACTIONS {
            let requests = || -> Vec<_> {
                let drawn = drawn(workload.name).into_iter().take(100);
                drawn.map(|transaction| transaction.requests().to_vec()).collect()
            };
            assert_eq!(requests(), requests());
        }
    }

    #[test]
    fn unknown_workloads_are_refused_with_the_names() {
        let reason = TransactionWorkload::by_name("tpcc").expect_err("it has a dash");
        assert!(reason.contains("tatp, tpc-c"), "{reason}");
    }
}
