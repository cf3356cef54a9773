//! The conditions, each of which says what it has found.

use std::collections::BTreeMap;

use super::super::rows::{
    CUSTOMER, CUSTOMERS_OF, DISTRICT, HISTORY, ITEM, LAST_ORDER, NEW_ORDER, OLDEST_NEW_ORDER, ORDER, ORDER_LINE, STOCK,
    WAREHOUSE,
};
use super::{OrderSum, Stocktaking};
use crate::applications::client::{Ledger, Loaded};
use crate::workload::TransactionKind;

/// Tables whose rows no transaction inserts or removes.
const UNCHANGED: [(u8, &str); 8] = [
    (WAREHOUSE, "warehouses"),
    (DISTRICT, "districts"),
    (CUSTOMER, "customers"),
    (STOCK, "rows of stock"),
    (ITEM, "items"),
    (CUSTOMERS_OF, "names"),
    (LAST_ORDER, "last orders"),
    (OLDEST_NEW_ORDER, "oldest new orders"),
];

/// What is wrong.
type Verdict = Result<(), String>;

fn expect(is_so: bool, text: impl FnOnce() -> String) -> Verdict {
    if is_so { Ok(()) } else { Err(text()) }
}

/// What the orders of a district are together.
#[derive(Default)]
struct Orders {
    newest: Option<u64>,
    /// How many lines they say that they have, and how many there are.
    lines: [u64; 2],
    new_orders: u64,
    /// The oldest and the newest of these.
    new_order_range: Option<[u64; 2]>,
}

impl Stocktaking {
    /// All conditions; the first that does not hold.
    pub(super) fn check(&self, loaded: &Loaded, ledger: &Ledger) -> Verdict {
        self.check_counts(loaded, ledger)?;
        self.check_money()?;
        for (place, order) in &self.orders {
            check_order(*place, order)?;
        }
        self.check_districts()?;
        self.check_customers()?;
        expect(self.named == self.count(CUSTOMER), || {
            let customers = self.count(CUSTOMER);
            format!("{} customers have a name, of {customers}", self.named)
        })
    }

    fn count(&self, table: u8) -> u64 {
        of(&self.rows, table)
    }

    fn check_counts(&self, loaded: &Loaded, ledger: &Ledger) -> Verdict {
        for (table, name) in UNCHANGED {
            let (found, before) = (self.count(table), of(loaded, table));
            expect(found == before, || {
                format!("there are {found} {name}, and were {before} at the start")
            })?;
        }
        for (table, name, kind) in [
            (ORDER, "orders", TransactionKind::NewOrder),
            (HISTORY, "payments", TransactionKind::Payment),
        ] {
            let (found, before, made) = (self.count(table), of(loaded, table), ledger.count(kind));
            expect(found == before + made, || {
                format!("there are {found} {name}; there were {before}, and {made} were made")
            })?;
        }
        let delivered = ledger.amount(TransactionKind::Delivery);
        let old = |rows: &Loaded| of(rows, ORDER).cast_signed() - of(rows, NEW_ORDER).cast_signed();
        let (now, before) = (old(&self.rows), old(loaded));
        expect(now == before + delivered, || {
            format!("condition 11: {now} orders are not new; {before} were not, and {delivered} were delivered")
        })?;
        let ordered = self.count(ORDER_LINE).cast_signed() - of(loaded, ORDER_LINE).cast_signed();
        expect(self.stock_orders.cast_signed() == ordered, || {
            format!("stock was ordered {} times, in {ordered} lines", self.stock_orders)
        })
    }

    /// Conditions 1, 8 and 9.
    pub(super) fn check_money(&self) -> Verdict {
        let mut sums: BTreeMap<u64, [i64; 2]> = BTreeMap::new();
        for ([warehouse, district], sum) in &self.districts {
            let [taken, paid] = sums.entry(*warehouse).or_default();
            (*taken, *paid) = (*taken + sum.ytd, *paid + sum.paid);
            expect(sum.ytd == sum.paid, || {
                format!(
                    "condition 9: district {district} of warehouse {warehouse} has taken {}, of payments of {}",
                    sum.ytd, sum.paid
                )
            })?;
        }
        for (warehouse, ytd) in &self.warehouses {
            let [taken, paid] = sums.get(warehouse).copied().unwrap_or_default();
            expect(*ytd == taken, || {
                format!("condition 1: warehouse {warehouse} has taken {ytd}, and its districts {taken}")
            })?;
            expect(*ytd == paid, || {
                format!("condition 8: warehouse {warehouse} has taken {ytd}, of payments of {paid}")
            })?;
        }
        Ok(())
    }

    /// Conditions 2 to 4, and the oldest new order.
    pub(super) fn check_districts(&self) -> Verdict {
        let mut sums: BTreeMap<[u64; 2], Orders> = BTreeMap::new();
        for ([warehouse, district, number], order) in &self.orders {
            let sum = sums.entry([*warehouse, *district]).or_default();
            // They are in their order.
            sum.newest = Some(*number);
            let claimed = order.order.as_ref().map_or(0, |order| order.line_count);
            sum.lines = [sum.lines[0] + u64::from(claimed), sum.lines[1] + order.lines];
            if order.is_new {
                sum.new_orders += 1;
                let first = sum.new_order_range.map_or(*number, |[first, _]| first);
                sum.new_order_range = Some([first, *number]);
            }
        }
        for (place, district) in &self.districts {
            let usual = Orders::default();
            let sum = sums.get(place).unwrap_or(&usual);
            let named = |text: String| format!("{text}, in district {} of warehouse {}", place[1], place[0]);
            let (next, newest) = (district.next_order, sum.newest);
            expect(next.checked_sub(1) == newest, || {
                named(format!(
                    "condition 2: the next order is {next}, the newest one {newest:?}"
                ))
            })?;
            let mut oldest = next;
            if let Some([first, last]) = sum.new_order_range {
                oldest = first;
                expect(last + 1 == next, || {
                    named(format!(
                        "condition 2: the next order is {next}, the newest new order {last}"
                    ))
                })?;
                expect(last - first + 1 == sum.new_orders, || {
                    let count = sum.new_orders;
                    named(format!(
                        "condition 3: there are {count} new orders from {first} to {last}"
                    ))
                })?;
            }
            let [claimed, lines] = sum.lines;
            expect(claimed == lines, || {
                named(format!(
                    "condition 4: orders have {claimed} lines, and there are {lines}"
                ))
            })?;
            expect(district.oldest_new_order == Some(oldest), || {
                let noted = district.oldest_new_order;
                named(format!("the oldest new order is {oldest}, and noted is {noted:?}"))
            })?;
        }
        Ok(())
    }

    /// Conditions 10 and 12, and the last orders.
    fn check_customers(&self) -> Verdict {
        let mut sums: BTreeMap<[u64; 3], (i64, Option<u64>)> = BTreeMap::new();
        for ([warehouse, district, number], order) in &self.orders {
            if let Some(row) = &order.order {
                let customer = [*warehouse, *district, u64::from(row.customer)];
                let (delivered, last) = sums.entry(customer).or_default();
                (*delivered, *last) = (*delivered + order.delivered, Some(*number));
            }
        }
        for (place, customer) in &self.customers {
            let (delivered, last) = sums.get(place).copied().unwrap_or_default();
            let [warehouse, district, number] = place;
            let named =
                |text: String| format!("{text}, customer {number} of district {district} of warehouse {warehouse}");
            let (balance, paid, ytd) = (customer.balance, customer.paid, customer.ytd_payment);
            expect(balance == delivered - paid, || {
                named(format!(
                    "condition 10: the balance is {balance}, of {delivered} that was delivered and {paid} that was paid"
                ))
            })?;
            expect(balance + ytd == delivered, || {
                named(format!(
                    "condition 12: balance {balance} and payments {ytd} are not {delivered}, which was delivered"
                ))
            })?;
            expect(customer.last_order == last, || {
                let noted = customer.last_order;
                named(format!("the last order is {last:?}, and noted is {noted:?}"))
            })?;
        }
        Ok(())
    }
}

/// Conditions 5 to 7.
fn check_order([warehouse, district, number]: [u64; 3], sum: &OrderSum) -> Verdict {
    let named = |text: String| format!("{text}, order {number} of district {district} of warehouse {warehouse}");
    let (lines, delivered) = (sum.lines, sum.lines_delivered);
    let Some(order) = &sum.order else {
        return Err(named(format!(
            "condition 6: {lines} lines of an order that is not there"
        )));
    };
    expect((order.carrier == 0) == sum.is_new, || {
        named(format!(
            "condition 5: the carrier is {}, the order is new: {}",
            order.carrier, sum.is_new
        ))
    })?;
    expect(u64::from(order.line_count) == lines, || {
        named(format!("condition 6: it has {lines} lines, not {}", order.line_count))
    })?;
    let expected = if order.carrier == 0 { 0 } else { lines };
    expect(delivered == expected, || {
        named(format!("condition 7: {delivered} lines are delivered, not {expected}"))
    })
}

fn of(rows: &Loaded, table: u8) -> u64 {
    rows.get(&table).copied().unwrap_or(0)
}
