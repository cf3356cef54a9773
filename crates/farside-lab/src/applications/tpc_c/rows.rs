//! TPC-C's tables (clause 1.3.1). Money is in cents, taxes and discounts in hundredths of a percent, dates in milliseconds since
//! the Unix epoch. Texts that nobody reads apart are together.

use crate::applications::row::{Row, rows};

pub(super) const WAREHOUSE: u8 = 1;
pub(super) const DISTRICT: u8 = 2;
pub(super) const CUSTOMER: u8 = 3;
pub(super) const HISTORY: u8 = 4;
pub(super) const ORDER: u8 = 5;
pub(super) const NEW_ORDER: u8 = 6;
pub(super) const ORDER_LINE: u8 = 7;
pub(super) const STOCK: u8 = 8;
pub(super) const ITEM: u8 = 9;
pub(super) const CUSTOMERS_OF: u8 = 10;
pub(super) const LAST_ORDER: u8 = 11;
pub(super) const OLDEST_NEW_ORDER: u8 = 12;

/// Bytes of what is noted about a customer.
pub(super) const CUSTOMER_NOTE_BYTES: usize = 500;
/// Bytes of what stock has for each district.
pub(super) const DISTRICT_NOTE_BYTES: usize = 24;

rows! {
    /// A warehouse.
    Warehouse as "a warehouse" {
        /// Name and address.
        place: [u8; 81],
        tax: u32,
        ytd: i64,
    }

    /// A district of a warehouse.
    District as "a district" {
        place: [u8; 81],
        tax: u32,
        ytd: i64,
        next_order: u32,
    }

    /// A customer of a district.
    Customer as "a customer" {
        first: [u8; 16],
        middle: [u8; 2],
        last: [u8; 16],
        place: [u8; 71],
        phone: [u8; 16],
        since_ms: u64,
        /// Whether payments are noted, because of bad credit.
        is_bad: u8,
        credit_limit: i64,
        discount: u32,
        balance: i64,
        ytd_payment: i64,
        payment_count: u32,
        delivery_count: u32,
        note: [u8; CUSTOMER_NOTE_BYTES],
    }

    /// A payment; the key has the district where it was made.
    History as "a payment" {
        customer_warehouse: u32,
        customer_district: u32,
        customer: u32,
        date_ms: u64,
        amount: i64,
        note: [u8; 24],
    }

    /// An order.
    Order as "an order" {
        customer: u32,
        entry_ms: u64,
        /// 0 if it is not delivered.
        carrier: u8,
        line_count: u8,
        is_local: u8,
    }

    /// A line of an order.
    OrderLine as "a line of an order" {
        item: u32,
        supply_warehouse: u32,
        /// 0 if it is not delivered.
        delivery_ms: u64,
        quantity: u8,
        amount: i64,
        district_note: [u8; DISTRICT_NOTE_BYTES],
    }

    /// What a warehouse has of an item.
    Stock as "stock" {
        quantity: u32,
        /// A text for each district.
        district_notes: [u8; 10 * DISTRICT_NOTE_BYTES],
        ytd: u64,
        order_count: u32,
        remote_count: u32,
        note: [u8; 50],
    }

    /// What can be ordered.
    Item as "an item" {
        image: u32,
        name: [u8; 24],
        price: u32,
        note: [u8; 50],
    }

    /// A customer's newest order.
    LastOrder as "a customer's last order" {
        order: u32,
    }

    /// The oldest order of a district that is not delivered.
    OldestNewOrder as "a district's oldest new order" {
        order: u32,
    }
}

/// The customers of a last name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct CustomersOf {
    /// In the order of their first names.
    pub(super) customers: Vec<u32>,
}

impl Row for CustomersOf {
    const NAME: &'static str = "the customers of a name";

    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.customers.iter().flat_map(|customer| customer.to_le_bytes()));
    }

    fn take(bytes: &mut &[u8]) -> Option<Self> {
        let (words, rest) = bytes.as_chunks();
        *bytes = rest;
        let customers = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
        Some(Self { customers })
    }
}

/// An order that is not delivered: all there is stands in the key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct NewOrder;

impl Row for NewOrder {
    const NAME: &'static str = "a new order";

    fn write(&self, _: &mut Vec<u8>) {}

    fn take(_: &mut &[u8]) -> Option<Self> {
        Some(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn customers_of_a_name_are_read_as_written() {
        let row = CustomersOf {
            customers: vec![7, 1 << 20],
        };
        assert_eq!(CustomersOf::decode(&row.encode()).expect("a row"), row);
        CustomersOf::decode(&[1, 2, 3]).expect_err("not a number of numbers");
        assert_eq!(NewOrder.encode(), b"");
    }
}
