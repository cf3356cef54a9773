//! ORDER_STATUS (clause 2.6) and STOCK_LEVEL (clause 2.8), which change nothing.

use std::collections::BTreeSet;

use farside_kv::{Interactive, Session};

use super::Called;
use super::name::number_of;
use super::rows::{
    CUSTOMER, Customer, DISTRICT, District, LAST_ORDER, LastOrder, ORDER, ORDER_LINE, Order, OrderLine, STOCK, Stock,
};
use crate::applications::row::{key_of, read_all_alone, read_alone, read_next};
use crate::error::BenchError;

/// Clause 2.8.2.2: of how many orders of a district the items are looked at.
const ORDERS: u32 = 20;

/// What a customer has ordered last: in a transaction, as of one instant.
///
/// # Errors
/// Those of the store; [`BenchError::Unsound`] if a row is missing, or the order is somebody else's.
pub(super) async fn order_status(
    session: &mut Session,
    district: [u64; 2],
    called: Called,
) -> Result<Vec<OrderLine>, BenchError> {
    let number = number_of(session, district, called).await?;
    session
        .transaction(async |transaction| last_order(transaction, district, number).await)
        .await
}

async fn last_order(
    transaction: &mut Interactive<'_>,
    [warehouse, district]: [u64; 2],
    number: u64,
) -> Result<Vec<OrderLine>, BenchError> {
    let of_customer = |table| key_of(table, [warehouse, district, number]);
    read_next::<Customer>(transaction, &of_customer(CUSTOMER)).await?;
    let last: LastOrder = read_next(transaction, &of_customer(LAST_ORDER)).await?;
    let order_number = u64::from(last.order);
    let order: Order = read_next(transaction, &key_of(ORDER, [warehouse, district, order_number])).await?;
    if u64::from(order.customer) != number {
        return Err(BenchError::Unsound(format!(
            "TPC-C: the last order of customer {number} is of customer {}",
            order.customer
        )));
    }
    let mut lines = Vec::with_capacity(usize::from(order.line_count));
    for line in 0..u64::from(order.line_count) {
        let key = key_of(ORDER_LINE, [warehouse, district, order_number, line]);
        lines.push(read_next(transaction, &key).await?);
    }
    Ok(lines)
}

/// Of how many items of a district's last orders there is less in stock: outside of a transaction, since each row need only have
/// been committed before this began. Orders are never removed, so all that the district has numbered are there.
///
/// # Errors
/// Those of the store; [`BenchError::Unsound`] if a row is missing.
pub(super) async fn stock_level(
    session: &mut Session,
    [warehouse, district]: [u64; 2],
    threshold: u64,
) -> Result<usize, BenchError> {
    let row: District = read_alone(session, &key_of(DISTRICT, [warehouse, district])).await?;
    let numbers = row.next_order.saturating_sub(ORDERS)..row.next_order;
    let numbers: Vec<u64> = numbers.map(u64::from).collect();
    let orders = numbers
        .iter()
        .map(|&number| key_of(ORDER, [warehouse, district, number]));
    let orders: Vec<Order> = read_all_alone(session, &orders.collect::<Vec<_>>()).await?;
    let lines = numbers.iter().zip(&orders).flat_map(|(&number, order)| {
        let lines = 0..u64::from(order.line_count);
        lines.map(move |line| key_of(ORDER_LINE, [warehouse, district, number, line]))
    });
    let lines: Vec<OrderLine> = read_all_alone(session, &lines.collect::<Vec<_>>()).await?;
    let items: BTreeSet<u64> = lines.iter().map(|line| u64::from(line.item)).collect();
    let stock = items.into_iter().map(|item| key_of(STOCK, [warehouse, item]));
    let stock: Vec<Stock> = read_all_alone(session, &stock.collect::<Vec<_>>()).await?;
    let low = stock.iter().filter(|stock| u64::from(stock.quantity) < threshold);
    Ok(low.count())
}
