//! TPC-C: a wholesaler with warehouses, whose customers order, pay, ask and are delivered to.
//!
//! From *TPC Benchmark C, Standard Specification*, revision 5.11 (2010), whose clauses are named below. Numbers begin with 0
//! here.
//!
//! # Rows
//! | key | how many in a warehouse (clause 1.2.1) |
//! |---|---|
//! | WAREHOUSE, warehouse | 1 |
//! | DISTRICT, warehouse, district | 10 |
//! | CUSTOMER, warehouse, district, customer | 30 000 |
//! | HISTORY, warehouse, district, client, number | 30 000 at first: nobody reads them |
//! | ORDER, warehouse, district, order | 30 000 at first |
//! | NEW_ORDER, warehouse, district, order | 9000 at first: those not delivered |
//! | ORDER_LINE, warehouse, district, order, line | ten times as many as orders |
//! | STOCK, warehouse, item | 100 000 |
//! | ITEM, item | 100 000 for all warehouses; they never change |
//!
//! A transaction of the store cannot ask for keys in their order, so what SQL finds by a secondary index or a MIN stands in
//! rows of its own:
//!
//! | key | value |
//! |---|---|
//! | CUSTOMERS_OF, warehouse, district, last name | the customers of this name, by their first names; it never changes |
//! | LAST_ORDER, warehouse, district, customer | the customer's newest order |
//! | OLDEST_NEW_ORDER, warehouse, district | the oldest order that is not delivered; if there is none, the next one |
//!
//! # Transactions
//! | transaction | % | how it runs | module |
//! |---|---|---|---|
//! | NEW_ORDER | 45 | the district's next order is read before, then all keys are known: one `transaction_on` | `new_order` |
//! | PAYMENT | 43 | one `transaction_on`; a last name is looked up before | `payment` |
//! | ORDER_STATUS | 4 | `transaction`: the customer, the last order, its lines | `inquiries` |
//! | DELIVERY | 4 | ten `transaction`s, one for each district, as clause 2.7.2 allows | `delivery` |
//! | STOCK_LEVEL | 4 | no transaction, as clause 2.8.2.3 allows: what is read was committed before it began | `inquiries` |
//!
//! A client has a home warehouse (clause 2.4.1.1), so that with fewer warehouses than clients these are in each other's way.
//!
//! # Audit
//! All twelve conditions of clause 3.3.2; the rows that transactions do not insert are as many as at the start, orders and
//! payments are as many more as clients say; and the rows in place of indexes say what is so.

mod audit;
mod delivery;
mod inquiries;
mod name;
mod new_order;
mod payment;
mod population;
mod rows;

use farside_kv::Session;
use rand_xoshiro::Xoshiro256PlusPlus;

use self::audit::Stocktaking;
use super::client::{Application, Client, Ended};
use super::row::Stored;
use crate::error::BenchError;
use crate::workload::published::{self, CUSTOMERS, DISTRICTS, ITEMS, LAST_NAMES};
use crate::workload::zipf::below;
use crate::workload::{TransactionKind, TransactionWorkload, client_random};

/// How many warehouses there are unless something else is said.
pub(super) const WAREHOUSES: u64 = 2;
/// How many there may be.
pub(super) const WAREHOUSES_RANGE: [u64; 2] = [1, 40];
/// How few items and customers there may be.
const FEWEST: u64 = 10;
/// Clauses 2.5.1.2 and 2.6.1.2: how many of a hundred customers are called by their last name.
const BY_NAME: u64 = 60;

/// How many of everything there are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cardinality {
    pub(super) warehouses: u64,
    pub(super) items: u64,
    /// Of each district; at the start each has made one order.
    pub(super) customers: u64,
}

impl Cardinality {
    /// As the specification says.
    pub(super) fn of(warehouses: u64) -> Self {
        Self {
            warehouses,
            items: ITEMS,
            customers: CUSTOMERS,
        }
    }

    /// Refuses what makes no sense.
    ///
    /// # Errors
    /// [`BenchError::Argument`].
    pub(super) fn check(self) -> Result<(), BenchError> {
        for (option, number, most) in [
            ("--items", self.items, ITEMS),
            ("--customers", self.customers, CUSTOMERS),
        ] {
            if !(FEWEST..=most).contains(&number) {
                return Err(BenchError::Argument(format!("{option} is from {FEWEST} to {most}")));
            }
        }
        Ok(())
    }

    /// How many last names customers have: the first customers of a district have one each.
    fn names(self) -> u64 {
        LAST_NAMES.min(self.customers)
    }

    /// Clause 4.3.3.1: at the start the first seven tenths of the orders are delivered.
    fn delivered(self) -> u64 {
        self.customers * 7 / 10
    }
}

/// A wholesaler.
pub(super) struct TpcC {
    cardinality: Cardinality,
    seed: u64,
}

impl TpcC {
    pub(super) fn new(cardinality: Cardinality, seed: u64) -> Self {
        Self { cardinality, seed }
    }
}

impl Application for TpcC {
    type Client = Clerk;
    type Audit = Stocktaking;

    fn row_count(&self) -> u64 {
        population::row_count(self.cardinality)
    }

    fn rows(&self) -> impl Iterator<Item = Stored> {
        population::population(self.cardinality, self.seed)
    }

    fn client(&self, number: u64) -> Clerk {
        Clerk {
            draws: Draws {
                random: client_random(self.seed, number),
                cardinality: self.cardinality,
                home: number % self.cardinality.warehouses,
            },
            mix: TransactionWorkload::by_name("tpc-c").expect("the locks of TPC-C are measured, too"),
            number,
            payments: 0,
        }
    }

    fn audit(&self) -> Stocktaking {
        Stocktaking::default()
    }
}

/// What a client draws.
struct Draws {
    random: Xoshiro256PlusPlus,
    cardinality: Cardinality,
    /// Its warehouse.
    home: u64,
}

/// How a customer is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Called {
    ByNumber(u64),
    /// By the number of the last name.
    ByName(u64),
}

impl Draws {
    fn below(&mut self, bound: u64) -> u64 {
        below(&mut self.random, bound)
    }

    /// From one number to another, both included.
    fn within(&mut self, [least, most]: [u64; 2]) -> u64 {
        least + self.below(most - least + 1)
    }

    /// A district of the home warehouse.
    fn district(&mut self) -> [u64; 2] {
        [self.home, self.below(DISTRICTS)]
    }

    fn customer(&mut self) -> u64 {
        published::customer(&mut self.random, self.cardinality.customers)
    }

    fn called(&mut self) -> Called {
        if self.below(100) < BY_NAME {
            Called::ByName(published::last_name(&mut self.random, self.cardinality.names()))
        } else {
            Called::ByNumber(self.customer())
        }
    }

    /// Another warehouse, or the home if there is none.
    fn another_warehouse(&mut self) -> u64 {
        match self.cardinality.warehouses {
            1 => self.home,
            warehouses => published::another_warehouse(&mut self.random, self.home, warehouses),
        }
    }
}

/// A client.
pub(super) struct Clerk {
    draws: Draws,
    mix: TransactionWorkload,
    /// Which client it is, and how many payments it has taken: so its rows of history have keys of their own.
    number: u64,
    payments: u64,
}

impl Client for Clerk {
    async fn transact(&mut self, session: &mut Session) -> Result<Ended, BenchError> {
        let kind = self.mix.draw_kind(&mut self.draws.random);
        match kind {
            TransactionKind::NewOrder => {
                let order = new_order::Order::draw(&mut self.draws);
                Box::pin(order.place(session)).await
            }
            TransactionKind::Payment => {
                self.payments += 1;
                let payment = payment::Payment::draw(&mut self.draws, [self.number, self.payments]);
                payment.make(session).await?;
                Ok(Ended::new(kind, true))
            }
            TransactionKind::OrderStatus => {
                let (district, called) = (self.draws.district(), self.draws.called());
                Box::pin(inquiries::order_status(session, district, called)).await?;
                Ok(Ended::new(kind, true))
            }
            TransactionKind::Delivery => {
                // Clause 2.7.1.2.
                let carrier = self.draws.within([1, 10]) as u8;
                let delivered = Box::pin(delivery::deliver(session, self.draws.home, carrier)).await?;
                Ok(Ended {
                    amount: delivered,
                    ..Ended::new(kind, delivered > 0)
                })
            }
            _ => {
                // Clause 2.8.1.2.
                let threshold = self.draws.within([10, 20]);
                let district = self.draws.district();
                Box::pin(inquiries::stock_level(session, district, threshold)).await?;
                Ok(Ended::new(kind, true))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_have_a_home_and_draw_what_there_is() {
        let cardinality = Cardinality {
            warehouses: 3,
            items: 20,
            customers: 10,
        };
        let mut draws = TpcC::new(cardinality, 1).client(5).draws;
        let mut named = 0_u64;
        for _ in 0..10_000 {
            let [warehouse, district] = draws.district();
            assert!(warehouse == 2 && district < DISTRICTS);
            assert!(draws.another_warehouse() < 2);
            match draws.called() {
                Called::ByName(name) => {
                    named += 1;
                    assert!(name < 10);
                }
                Called::ByNumber(customer) => assert!(customer < 10),
            }
        }
        assert!((5_800..6_200).contains(&named), "{named}");
        draws.cardinality.warehouses = 1;
        assert_eq!(draws.another_warehouse(), 2, "there is no other");
        cardinality.check().expect("few, but enough");
        let refused = Cardinality {
            items: 9,
            ..cardinality
        }
        .check()
        .expect_err("too few");
        assert_eq!(refused.to_string(), "--items is from 10 to 100000");
    }
}
