//! NEW_ORDER (clause 2.4): a customer orders five to fifteen items.
//!
//! Keys of the rows that are inserted have the number of the order, which the district says. It is read before, by itself; the
//! transaction looks whether it is still the next one, and if not begins again with the one that is. Whoever was quicker has
//! placed an order, so somebody always gets on.
//!
//! What an item costs never changes, so that it is read before, too. One order of a hundred has an item that there is not in its
//! last line (clause 2.4.1.4): the transaction does what it does for the lines before, and takes it all back.

use core::mem::size_of;

use farside_kv::{Session, Transaction};

use super::Draws;
use super::rows::{
    CUSTOMER, Customer, DISTRICT, DISTRICT_NOTE_BYTES, District, ITEM, Item, LAST_ORDER, LastOrder, NEW_ORDER,
    NewOrder, ORDER, ORDER_LINE, Order as OrderRow, OrderLine, STOCK, Stock, WAREHOUSE, Warehouse,
};
use crate::applications::client::Ended;
use crate::applications::row::{Row, find_alone, key_of, read, read_alone, transact};
use crate::error::BenchError;
use crate::workload::TransactionKind;
use crate::workload::published;

/// Stock that is below this after an order is filled up by so much (clause 2.4.2.2).
const STOCK_LOW: u32 = 10;
const STOCK_REFILL: u32 = 91;
/// Of so many orders one has an item that there is not.
const MISTAKES: u64 = 100;
/// What taxes and discounts are parts of.
const WHOLE: i64 = 10_000;

/// A line of an order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Line {
    item: u64,
    supply_warehouse: u64,
    quantity: u8,
}

/// An order as a customer makes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Order {
    district: [u64; 2],
    customer: u64,
    lines: Vec<Line>,
}

/// What an attempt has come to.
enum Attempt {
    /// Placed; what it costs, in cents.
    Placed(i64),
    /// There is no such item.
    Mistaken,
    /// The next order has another number, which is this.
    Late(u32),
}

impl Order {
    /// Draws an order (clause 2.4.1).
    pub(super) fn draw(draws: &mut Draws) -> Self {
        let district = draws.district();
        let customer = draws.customer();
        let mut lines: Vec<Line> = (0..published::line_count(&mut draws.random))
            .map(|_| {
                let item = published::item(&mut draws.random, draws.cardinality.items);
                let is_remote = published::is_remote_line(&mut draws.random);
                Line {
                    item,
                    supply_warehouse: if is_remote {
                        draws.another_warehouse()
                    } else {
                        draws.home
                    },
                    quantity: draws.within([1, 10]) as u8,
                }
            })
            .collect();
        if draws.below(MISTAKES) == 0
            && let Some(last) = lines.last_mut()
        {
            last.item = draws.cardinality.items;
        }
        Self {
            district,
            customer,
            lines,
        }
    }

    /// Makes the transaction.
    ///
    /// # Errors
    /// Those of the store; [`BenchError::Unsound`] if a row is missing.
    pub(super) async fn place(&self, session: &mut Session) -> Result<Ended, BenchError> {
        let items: Vec<_> = self.lines.iter().map(|line| key_of(ITEM, [line.item])).collect();
        let items: Vec<Option<Item>> = find_alone(session, &items).await?;
        let entry_ms = session.store().endpoint().unix_ms();
        let district: District = read_alone(session, &key_of(DISTRICT, self.district)).await?;
        let (mut number, mut retries) = (district.next_order, 0);
        // Ends: whoever has moved the number on has placed an order.
        loop {
            let keys = Keys::new(self, number);
            let attempt = transact(session, &keys.all, |transaction| {
                self.attempt(transaction, &keys, (number, entry_ms), &items)
            });
            let is_placed = match attempt.await? {
                Attempt::Placed(cents) => cents > 0,
                Attempt::Mistaken => false,
                Attempt::Late(next) => {
                    (number, retries) = (next, retries + 1);
                    continue;
                }
            };
            return Ok(Ended {
                retries,
                ..Ended::new(TransactionKind::NewOrder, is_placed)
            });
        }
    }

    fn attempt(
        &self,
        transaction: &mut Transaction,
        keys: &Keys,
        (number, entry_ms): (u32, u64),
        items: &[Option<Item>],
    ) -> Result<Attempt, BenchError> {
        let [warehouse_key, district_key, customer_key, last_key, order_key, new_key] = keys.of_order();
        let mut district: District = read(transaction, district_key)?;
        if district.next_order != number {
            return Ok(Attempt::Late(district.next_order));
        }
        let warehouse: Warehouse = read(transaction, warehouse_key)?;
        let customer: Customer = read(transaction, customer_key)?;
        district.next_order += 1;
        transaction.put(district_key, &district.encode())?;
        let is_local = self.lines.iter().all(|line| line.supply_warehouse == self.district[0]);
        let order = OrderRow {
            customer: self.customer as u32,
            entry_ms,
            carrier: 0,
            line_count: self.lines.len() as u8,
            is_local: u8::from(is_local),
        };
        transaction.put(order_key, &order.encode())?;
        transaction.put(new_key, &NewOrder.encode())?;
        transaction.put(last_key, &LastOrder { order: number }.encode())?;
        let mut cents = 0;
        for ((line, item), [stock_key, line_key]) in self.lines.iter().zip(items).zip(keys.of_lines()) {
            let Some(item) = item else {
                transaction.give_up();
                return Ok(Attempt::Mistaken);
            };
            // An item may be in an order twice: then this is what the line before has left.
            let mut stock: Stock = read(transaction, stock_key)?;
            take(&mut stock, line.quantity, line.supply_warehouse != self.district[0]);
            transaction.put(stock_key, &stock.encode())?;
            let row = OrderLine {
                item: line.item as u32,
                supply_warehouse: line.supply_warehouse as u32,
                delivery_ms: 0,
                quantity: line.quantity,
                amount: i64::from(line.quantity) * i64::from(item.price),
                district_note: note_of(&stock, self.district[1]),
            };
            cents += row.amount;
            transaction.put(line_key, &row.encode())?;
        }
        let tax = WHOLE + i64::from(warehouse.tax) + i64::from(district.tax);
        Ok(Attempt::Placed(
            cents * (WHOLE - i64::from(customer.discount)) * tax / (WHOLE * WHOLE),
        ))
    }
}

/// Takes what a line orders out of stock.
fn take(stock: &mut Stock, quantity: u8, is_remote: bool) {
    let quantity = u32::from(quantity);
    stock.quantity = match stock.quantity.checked_sub(quantity) {
        Some(left) if left >= STOCK_LOW => left,
        _ => stock.quantity + STOCK_REFILL - quantity,
    };
    stock.ytd += u64::from(quantity);
    stock.order_count += 1;
    stock.remote_count += u32::from(is_remote);
}

/// What stock has for a district.
fn note_of(stock: &Stock, district: u64) -> [u8; DISTRICT_NOTE_BYTES] {
    let (notes, _) = stock.district_notes.as_chunks();
    notes[district as usize]
}

/// The keys of an order with this number.
struct Keys {
    /// The order's, then two of each line.
    all: Vec<Vec<u8>>,
}

impl Keys {
    const OF_ORDER: usize = 6;

    fn new(order: &Order, number: u32) -> Self {
        let ([warehouse, district], number) = (order.district, u64::from(number));
        let mut all = vec![
            key_of(WAREHOUSE, [warehouse]),
            key_of(DISTRICT, [warehouse, district]),
            key_of(CUSTOMER, [warehouse, district, order.customer]),
            key_of(LAST_ORDER, [warehouse, district, order.customer]),
            key_of(ORDER, [warehouse, district, number]),
            key_of(NEW_ORDER, [warehouse, district, number]),
        ];
        for (place, line) in (0..).zip(&order.lines) {
            all.push(key_of(STOCK, [line.supply_warehouse, line.item]));
            all.push(key_of(ORDER_LINE, [warehouse, district, number, place]));
        }
        Self { all }
    }

    fn of_order(&self) -> &[Vec<u8>; Self::OF_ORDER] {
        self.all.first_chunk().expect("as many as were made")
    }

    fn of_lines(&self) -> &[[Vec<u8>; 2]] {
        self.all[Self::OF_ORDER..].as_chunks().0
    }
}

const _: () =
    assert!(size_of::<[u8; 10 * DISTRICT_NOTE_BYTES]>() == published::DISTRICTS as usize * DISTRICT_NOTE_BYTES);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::applications::client::Application;
    use crate::applications::tpc_c::{Cardinality, TpcC};

    #[test]
    fn stock_is_filled_up_before_it_is_low() {
        let mut stock = Stock {
            quantity: 20,
            district_notes: core::array::from_fn(|place| (place / DISTRICT_NOTE_BYTES) as u8),
            ytd: 0,
            order_count: 0,
            remote_count: 0,
            note: [0; 50],
        };
        take(&mut stock, 10, false);
        assert_eq!(stock.quantity, 10);
        take(&mut stock, 1, true);
        assert_eq!((stock.quantity, stock.ytd), (100, 11));
        stock.quantity = 3;
        take(&mut stock, 10, false);
        assert_eq!((stock.quantity, stock.order_count, stock.remote_count), (84, 3, 1));
        assert_eq!(note_of(&stock, 9), [9; DISTRICT_NOTE_BYTES]);
    }

    #[test]
    fn orders_have_lines_and_mistakes_as_the_specification_says() {
        const DRAWS: u64 = 20_000;
        let cardinality = Cardinality {
            warehouses: 2,
            items: 1000,
            customers: 30,
        };
        let mut draws = TpcC::new(cardinality, 1).client(0).draws;
        let (mut mistakes, mut lines, mut remote) = (0_u64, 0_u64, 0_u64);
        for _ in 0..DRAWS {
            let order = Order::draw(&mut draws);
            assert!((5..=15).contains(&order.lines.len()));
            assert!(order.lines.iter().all(|line| (1..=10).contains(&line.quantity)));
            mistakes += u64::from(order.lines.iter().any(|line| line.item == 1000));
            lines += order.lines.len() as u64;
            remote += order.lines.iter().filter(|line| line.supply_warehouse != 0).count() as u64;
        }
        assert!((DRAWS / 125..DRAWS / 80).contains(&mistakes), "{mistakes}");
        assert!((lines / 110..lines / 90).contains(&remote), "{remote} of {lines}");
    }
}
