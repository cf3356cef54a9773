//! What is in TPC-C's tables at the start (clause 4.3.3).

use rand_xoshiro::Xoshiro256PlusPlus;

use super::Cardinality;
use super::name::{key_of_name, last_name};
use super::rows::{
    CUSTOMER, CUSTOMER_NOTE_BYTES, Customer, CustomersOf, DISTRICT, District, HISTORY, History, ITEM, Item, LAST_ORDER,
    LastOrder, NEW_ORDER, NewOrder, OLDEST_NEW_ORDER, ORDER, ORDER_LINE, OldestNewOrder, Order, OrderLine, STOCK,
    Stock, WAREHOUSE, Warehouse,
};
use crate::applications::row::{Row, Stored, key_of};
use crate::workload::client_random;
use crate::workload::published::{self, DISTRICTS};
use crate::workload::zipf::below;

/// How many items, or what a warehouse has of them, are made at a time.
const PART_ITEMS: u64 = 1000;
/// A payment that every customer has made.
const FIRST_PAYMENT: i64 = 1000;
/// A date for what was before.
const BEFORE_MS: u64 = 1;
/// Of a hundred customers so many have bad credit.
const BAD_CREDIT: u64 = 10;
/// Clients have the numbers below in rows of history.
const NO_CLIENT: u64 = u32::MAX as u64;

/// About how many rows there are.
pub(super) fn row_count(cardinality: Cardinality) -> u64 {
    let Cardinality {
        warehouses,
        items,
        customers,
    } = cardinality;
    // For each customer: itself, a payment, an order, its lines, three of ten new orders, the last order; and names.
    let in_district = customers * 143 / 10 + cardinality.names() + 2;
    items + warehouses * (1 + items + DISTRICTS * in_district)
}

/// Some rows.
#[derive(Clone, Copy)]
enum Part {
    /// From this one on.
    Items(u64),
    Warehouse(u64),
    /// Of a warehouse, from this item on.
    Stock(u64, u64),
    District([u64; 2]),
}

/// All rows at the start.
pub(super) fn population(cardinality: Cardinality, seed: u64) -> impl Iterator<Item = Stored> {
    let items = move || (0..cardinality.items).step_by(PART_ITEMS as usize);
    let in_warehouse = move |warehouse| {
        let stock = items().map(move |item| Part::Stock(warehouse, item));
        let districts = (0..DISTRICTS).map(move |district| Part::District([warehouse, district]));
        core::iter::once(Part::Warehouse(warehouse))
            .chain(stock)
            .chain(districts)
    };
    let parts = items().map(Part::Items);
    let parts = parts.chain((0..cardinality.warehouses).flat_map(in_warehouse));
    parts.zip(0..).flat_map(move |(part, number)| {
        // Clients have the numbers from 0 on.
        let mut made = Made {
            cardinality,
            random: client_random(seed, u64::MAX / 2 + number),
            rows: Vec::new(),
        };
        made.make(part);
        made.rows
    })
}

/// The rows of a part.
struct Made {
    cardinality: Cardinality,
    random: Xoshiro256PlusPlus,
    rows: Vec<Stored>,
}

impl Made {
    fn make(&mut self, part: Part) {
        let until = |first: u64| (first + PART_ITEMS).min(self.cardinality.items);
        match part {
            Part::Items(first) => (first..until(first)).for_each(|item| self.item(item)),
            Part::Warehouse(warehouse) => {
                let row = Warehouse {
                    place: self.letters(),
                    tax: self.within([0, 2000]) as u32,
                    ytd: FIRST_PAYMENT * (self.cardinality.customers * DISTRICTS).cast_signed(),
                };
                self.add(key_of(WAREHOUSE, [warehouse]), &row);
            }
            Part::Stock(warehouse, first) => (first..until(first)).for_each(|item| self.stock(warehouse, item)),
            Part::District(district) => {
                self.district(district);
                self.customers(district);
                self.orders(district);
            }
        }
    }

    fn add(&mut self, key: Vec<u8>, row: &impl Row) {
        self.rows.push((key, row.encode()));
    }

    /// From one number to another, both included.
    fn within(&mut self, [least, most]: [u64; 2]) -> u64 {
        least + below(&mut self.random, most - least + 1)
    }

    fn letters<const N: usize>(&mut self) -> [u8; N] {
        [(); N].map(|()| b'a' + below(&mut self.random, 26) as u8)
    }

    fn item(&mut self, item: u64) {
        let row = Item {
            image: self.within([1, 10_000]) as u32,
            name: self.letters(),
            price: self.within([100, 10_000]) as u32,
            note: self.letters(),
        };
        self.add(key_of(ITEM, [item]), &row);
    }

    fn stock(&mut self, warehouse: u64, item: u64) {
        let row = Stock {
            quantity: self.within([10, 100]) as u32,
            district_notes: self.letters(),
            ytd: 0,
            order_count: 0,
            remote_count: 0,
            note: self.letters(),
        };
        self.add(key_of(STOCK, [warehouse, item]), &row);
    }

    fn district(&mut self, [warehouse, district]: [u64; 2]) {
        let Cardinality { customers, .. } = self.cardinality;
        let row = District {
            place: self.letters(),
            tax: self.within([0, 2000]) as u32,
            ytd: FIRST_PAYMENT * customers.cast_signed(),
            next_order: customers as u32,
        };
        self.add(key_of(DISTRICT, [warehouse, district]), &row);
        let oldest = OldestNewOrder {
            order: self.cardinality.delivered() as u32,
        };
        self.add(key_of(OLDEST_NEW_ORDER, [warehouse, district]), &oldest);
    }

    fn customers(&mut self, [warehouse, district]: [u64; 2]) {
        let names = self.cardinality.names();
        let mut named: Vec<Vec<([u8; 16], u32)>> = vec![Vec::new(); names as usize];
        for customer in 0..self.cardinality.customers {
            let name = match customer < names {
                true => customer,
                false => published::last_name(&mut self.random, names),
            };
            let row = Customer {
                first: self.letters(),
                middle: *b"OE",
                last: last_name(name),
                place: self.letters(),
                phone: self.letters(),
                since_ms: BEFORE_MS,
                is_bad: u8::from(below(&mut self.random, 100) < BAD_CREDIT),
                credit_limit: 5_000_000,
                discount: self.within([0, 5000]) as u32,
                balance: -FIRST_PAYMENT,
                ytd_payment: FIRST_PAYMENT,
                payment_count: 1,
                delivery_count: 0,
                note: [b'-'; CUSTOMER_NOTE_BYTES],
            };
            named[name as usize].push((row.first, customer as u32));
            self.add(key_of(CUSTOMER, [warehouse, district, customer]), &row);
            let payment = History {
                customer_warehouse: warehouse as u32,
                customer_district: district as u32,
                customer: customer as u32,
                date_ms: BEFORE_MS,
                amount: FIRST_PAYMENT,
                note: self.letters(),
            };
            self.add(key_of(HISTORY, [warehouse, district, NO_CLIENT, customer]), &payment);
        }
        for (name, mut customers) in (0..).zip(named) {
            customers.sort_unstable();
            let row = CustomersOf {
                customers: customers.into_iter().map(|(_, customer)| customer).collect(),
            };
            self.add(key_of_name([warehouse, district], &last_name(name)), &row);
        }
    }

    /// One of each customer, in an order by chance.
    fn orders(&mut self, [warehouse, district]: [u64; 2]) {
        let mut customers: Vec<u32> = (0..self.cardinality.customers as u32).collect();
        for place in (1..customers.len()).rev() {
            customers.swap(place, below(&mut self.random, place as u64 + 1) as usize);
        }
        for (order, customer) in (0..).zip(customers) {
            let is_delivered = order < self.cardinality.delivered();
            let line_count = published::line_count(&mut self.random);
            let row = Order {
                customer,
                entry_ms: BEFORE_MS,
                carrier: if is_delivered { self.within([1, 10]) as u8 } else { 0 },
                line_count: line_count as u8,
                is_local: 1,
            };
            self.add(key_of(ORDER, [warehouse, district, order]), &row);
            if !is_delivered {
                self.add(key_of(NEW_ORDER, [warehouse, district, order]), &NewOrder);
            }
            let last = LastOrder { order: order as u32 };
            self.add(key_of(LAST_ORDER, [warehouse, district, u64::from(customer)]), &last);
            for line in 0..line_count {
                let row = OrderLine {
                    item: below(&mut self.random, self.cardinality.items) as u32,
                    supply_warehouse: warehouse as u32,
                    delivery_ms: if is_delivered { BEFORE_MS } else { 0 },
                    quantity: 5,
                    amount: match is_delivered {
                        true => 0,
                        false => self.within([1, 999_999]).cast_signed(),
                    },
                    district_note: self.letters(),
                };
                self.add(key_of(ORDER_LINE, [warehouse, district, order, line]), &row);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn there_are_as_many_rows_as_the_specification_says() {
        let cardinality = Cardinality {
            warehouses: 2,
            items: 2500,
            customers: 100,
        };
        let (mut tables, mut keys) = (BTreeMap::new(), BTreeSet::new());
        for (key, _) in population(cardinality, 1) {
            *tables.entry(key[0]).or_insert(0_u64) += 1;
            assert!(keys.insert(key), "every key is there once");
        }
        let lines = tables.remove(&ORDER_LINE).expect("there are some");
        assert!((19_500..20_500).contains(&lines), "{lines}");
        let expected = [
            (WAREHOUSE, 2),
            (DISTRICT, 20),
            (CUSTOMER, 2000),
            (HISTORY, 2000),
            (ORDER, 2000),
            (NEW_ORDER, 600),
            (STOCK, 5000),
            (ITEM, 2500),
            (super::super::rows::CUSTOMERS_OF, 2000),
            (LAST_ORDER, 2000),
            (OLDEST_NEW_ORDER, 20),
        ];
        assert_eq!(tables, BTreeMap::from(expected));
        let share = keys.len() as f64 / row_count(cardinality) as f64;
        assert!((share - 1.0).abs() < 0.03, "{share}");
    }
}
