//! Whether the wholesaler's books are in order: the conditions of clause 3.3.2, and those of rows that stand for indexes.
//!
//! | condition | what must be so |
//! |---|---|
//! | 1 | a warehouse has taken as much as its districts together |
//! | 2 | the order before a district's next one is its newest, and its newest new order, if it has one |
//! | 3 | the new orders of a district follow one another |
//! | 4 | a district has as many lines as its orders say together |
//! | 5 | an order has a carrier, unless there is a new order of it |
//! | 6 | an order has as many lines as it says |
//! | 7 | a line has a date of delivery, if its order has a carrier |
//! | 8, 9 | a warehouse, and a district, has taken as much as its payments are together |
//! | 10 | a customer's balance is what was delivered, less what was paid |
//! | 11 | as many orders have no new order as were delivered at the start and since, over all districts together; there it is written for the start alone |
//! | 12 | balance and payments of a customer together are what was delivered |

mod conditions;

use std::collections::BTreeMap;

use super::rows::{
    CUSTOMER, CUSTOMERS_OF, Customer, CustomersOf, DISTRICT, District, HISTORY, History, ITEM, Item, LAST_ORDER,
    LastOrder, NEW_ORDER, OLDEST_NEW_ORDER, ORDER, ORDER_LINE, OldestNewOrder, Order, OrderLine, STOCK, Stock,
    WAREHOUSE, Warehouse,
};
use crate::applications::client::{Audit, Ledger, Loaded};
use crate::applications::row::{Row, numbers_of};
use crate::error::BenchError;

/// The audit, with what it has seen so far.
#[derive(Default)]
pub(in crate::applications) struct Stocktaking {
    rows: Loaded,
    /// What each warehouse says that it has taken.
    warehouses: BTreeMap<u64, i64>,
    districts: BTreeMap<[u64; 2], DistrictSum>,
    customers: BTreeMap<[u64; 3], CustomerSum>,
    orders: BTreeMap<[u64; 3], OrderSum>,
    /// How many customers rows of names have, in all.
    named: u64,
    /// How many lines were taken out of stock, as stock says.
    stock_orders: u64,
}

/// A district, and its payments.
#[derive(Default)]
struct DistrictSum {
    ytd: i64,
    next_order: u64,
    /// What was paid there.
    paid: i64,
    oldest_new_order: Option<u64>,
}

/// A customer, and the payments.
#[derive(Default)]
struct CustomerSum {
    balance: i64,
    ytd_payment: i64,
    paid: i64,
    last_order: Option<u64>,
}

/// An order, and its lines.
#[derive(Default)]
struct OrderSum {
    /// If the order itself was seen.
    order: Option<Order>,
    is_new: bool,
    lines: u64,
    lines_delivered: u64,
    /// What the lines that are delivered cost.
    delivered: i64,
}

impl Audit for Stocktaking {
    fn see(&mut self, key: &[u8], value: &[u8]) -> Result<(), BenchError> {
        let table = key.first().copied().unwrap_or(0);
        *self.rows.entry(table).or_default() += 1;
        match table {
            WAREHOUSE => {
                let [warehouse] = numbers_of(key)?;
                self.warehouses.insert(warehouse, Warehouse::decode(value)?.ytd);
            }
            DISTRICT => {
                let (row, district) = (District::decode(value)?, self.district(numbers_of(key)?));
                (district.ytd, district.next_order) = (row.ytd, u64::from(row.next_order));
            }
            CUSTOMER => {
                let (row, customer) = (Customer::decode(value)?, self.customer(numbers_of(key)?));
                (customer.balance, customer.ytd_payment) = (row.balance, row.ytd_payment);
            }
            HISTORY => {
                let ([warehouse, district, _, _], row) = (numbers_of(key)?, History::decode(value)?);
                self.district([warehouse, district]).paid += row.amount;
                let customer = [row.customer_warehouse, row.customer_district, row.customer];
                self.customer(customer.map(u64::from)).paid += row.amount;
            }
            ORDER => self.order(numbers_of(key)?).order = Some(Order::decode(value)?),
            NEW_ORDER => self.order(numbers_of(key)?).is_new = true,
            ORDER_LINE => {
                let ([warehouse, district, number, _], row) = (numbers_of(key)?, OrderLine::decode(value)?);
                let order = self.order([warehouse, district, number]);
                order.lines += 1;
                if row.delivery_ms != 0 {
                    order.lines_delivered += 1;
                    order.delivered += row.amount;
                }
            }
            STOCK => {
                let [_warehouse, _item] = numbers_of(key)?;
                self.stock_orders += u64::from(Stock::decode(value)?.order_count);
            }
            ITEM => {
                let [_item] = numbers_of(key)?;
                Item::decode(value)?;
            }
            CUSTOMERS_OF => self.named += CustomersOf::decode(value)?.customers.len() as u64,
            LAST_ORDER => {
                let last = u64::from(LastOrder::decode(value)?.order);
                self.customer(numbers_of(key)?).last_order = Some(last);
            }
            OLDEST_NEW_ORDER => {
                let oldest = u64::from(OldestNewOrder::decode(value)?.order);
                self.district(numbers_of(key)?).oldest_new_order = Some(oldest);
            }
            _ => {
                let text = format!("TPC-C: there is a row under the key {key:02x?}, which no table has");
                return Err(BenchError::Unsound(text));
            }
        }
        Ok(())
    }

    fn verify(self, loaded: &Loaded, ledger: &Ledger) -> Result<Vec<&'static str>, BenchError> {
        self.check(loaded, ledger)
            .map_err(|text| BenchError::Unsound(format!("TPC-C: {text}")))?;
        Ok(vec![
            "conditions 1 to 10 and 12 of clause 3.3.2, and 11 over all districts, with what was delivered since",
            "as many orders and payments as were loaded and clients have made, and as many of everything else as were loaded",
            "stock has counted every line that was ordered",
            "rows in place of indexes: every customer has a name, last orders and oldest new orders are those",
        ])
    }
}

impl Stocktaking {
    fn district(&mut self, district: [u64; 2]) -> &mut DistrictSum {
        self.districts.entry(district).or_default()
    }

    fn customer(&mut self, customer: [u64; 3]) -> &mut CustomerSum {
        self.customers.entry(customer).or_default()
    }

    fn order(&mut self, order: [u64; 3]) -> &mut OrderSum {
        self.orders.entry(order).or_default()
    }
}

#[cfg(test)]
mod tests;
