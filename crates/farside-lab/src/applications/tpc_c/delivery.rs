//! DELIVERY (clause 2.7): the oldest order of each district that is not delivered goes to its customer.
//!
//! Which order it is, whose, and how many lines it has is read on the way: the keys become known one after the other. Each
//! district has a transaction of its own, and one without such an order is passed over (clauses 2.7.2 and 2.7.4.2).

use farside_kv::{Interactive, Session};

use super::rows::{
    CUSTOMER, Customer, NEW_ORDER, NewOrder, OLDEST_NEW_ORDER, ORDER, ORDER_LINE, OldestNewOrder, Order, OrderLine,
};
use crate::applications::row::{Row, find_next, key_of, read_next};
use crate::error::BenchError;
use crate::workload::published::DISTRICTS;

/// Delivers an order of each district of a warehouse; how many there were.
///
/// # Errors
/// Those of the store; [`BenchError::Unsound`] if a row is missing.
pub(super) async fn deliver(session: &mut Session, warehouse: u64, carrier: u8) -> Result<i64, BenchError> {
    let mut delivered = 0;
    let delivery_ms = session.store().endpoint().unix_ms();
    for district in 0..DISTRICTS {
        let is_delivered = session.transaction(async |transaction| {
            deliver_one(transaction, [warehouse, district], (carrier, delivery_ms)).await
        });
        delivered += i64::from(is_delivered.await?);
    }
    Ok(delivered)
}

/// Delivers the oldest order of a district; whether there was one.
async fn deliver_one(
    transaction: &mut Interactive<'_>,
    district @ [warehouse, number]: [u64; 2],
    (carrier, delivery_ms): (u8, u64),
) -> Result<bool, BenchError> {
    let oldest_key = key_of(OLDEST_NEW_ORDER, district);
    let mut oldest: OldestNewOrder = read_next(transaction, &oldest_key).await?;
    let order = u64::from(oldest.order);
    let new_key = key_of(NEW_ORDER, [warehouse, number, order]);
    if find_next::<NewOrder>(transaction, &new_key).await?.is_none() {
        return Ok(false);
    }
    transaction.delete(&new_key).await?;
    oldest.order += 1;
    transaction.put(&oldest_key, &oldest.encode()).await?;

    let order_key = key_of(ORDER, [warehouse, number, order]);
    let mut row: Order = read_next(transaction, &order_key).await?;
    row.carrier = carrier;
    transaction.put(&order_key, &row.encode()).await?;

    let mut amount = 0;
    for line in 0..u64::from(row.line_count) {
        let line_key = key_of(ORDER_LINE, [warehouse, number, order, line]);
        let mut line: OrderLine = read_next(transaction, &line_key).await?;
        line.delivery_ms = delivery_ms;
        amount += line.amount;
        transaction.put(&line_key, &line.encode()).await?;
    }

    let customer_key = key_of(CUSTOMER, [warehouse, number, u64::from(row.customer)]);
    let mut customer: Customer = read_next(transaction, &customer_key).await?;
    customer.balance += amount;
    customer.delivery_count += 1;
    transaction.put(&customer_key, &customer.encode()).await?;
    Ok(true)
}
