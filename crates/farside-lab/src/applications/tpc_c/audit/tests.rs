//! Whoever spoils the books is told by each of the conditions.

use super::super::rows::NewOrder;
use super::*;
use crate::applications::client::Ended;
use crate::applications::row::key_of;
use crate::applications::tpc_c::Cardinality;
use crate::applications::tpc_c::population::population;
use crate::workload::TransactionKind;

const CARDINALITY: Cardinality = Cardinality {
    warehouses: 2,
    items: 10,
    customers: 10,
};

type Books = BTreeMap<Vec<u8>, Vec<u8>>;

fn books() -> (Books, Loaded) {
    let books: Books = population(CARDINALITY, 1).collect();
    let mut loaded = Loaded::new();
    books.keys().for_each(|key| *loaded.entry(key[0]).or_default() += 1);
    (books, loaded)
}

fn verified(books: &Books, loaded: &Loaded, ledger: &Ledger) -> Result<Vec<&'static str>, BenchError> {
    let mut audit = Stocktaking::default();
    books.iter().try_for_each(|(key, value)| audit.see(key, value))?;
    audit.verify(loaded, ledger)
}

/// Changes a row.
fn alter<R: Row>(books: &mut Books, key: &[u8], change: impl FnOnce(&mut R)) {
    let value = books.get_mut(key).expect("a row");
    let mut row = R::decode(value).expect("as it was made");
    change(&mut row);
    *value = row.encode();
}

/// Checks that the books are refused with this text once they were spoilt.
fn told(text: &str, spoil: impl FnOnce(&mut Books)) {
    let (mut books, loaded) = books();
    spoil(&mut books);
    let error = verified(&books, &loaded, &Ledger::default())
        .expect_err(text)
        .to_string();
    assert!(error.contains(text), "{error}\nrather than {text}");
}

#[test]
fn books_are_in_order_as_they_are_made() {
    let (books, loaded) = books();
    assert_eq!(
        verified(&books, &loaded, &Ledger::default()).expect("in order").len(),
        4
    );
}

#[test]
fn money_that_is_missing_is_told() {
    let (warehouse, district) = (key_of(WAREHOUSE, [1]), key_of(DISTRICT, [1, 4]));
    told("condition 1: warehouse 1", |books| {
        alter::<Warehouse>(books, &warehouse, |row| row.ytd += 1);
    });
    told("condition 9: district 4 of warehouse 1", |books| {
        alter::<District>(books, &district, |row| row.ytd += 1);
    });
    // Where a payment is somebody else's the sums of districts and warehouses are right.
    let payment = |books: &Books| books.keys().find(|key| key[0] == HISTORY).expect("some").clone();
    told("condition 10", |books| {
        let key = payment(books);
        alter::<History>(books, &key, |row| row.customer = 9 - row.customer);
    });
    told("condition 9", |books| {
        let key = payment(books);
        alter::<History>(books, &key, |row| row.amount -= 1);
    });
    let customer = key_of(CUSTOMER, [0, 3, 7]);
    told("condition 10: the balance is -999", |books| {
        alter::<Customer>(books, &customer, |row| row.balance += 1);
    });
    told("condition 12", |books| {
        alter::<Customer>(books, &customer, |row| row.ytd_payment += 1);
    });
}

/// Seven of ten orders are delivered at the start.
#[test]
fn orders_that_are_torn_are_told() {
    let of = |table: u8, number: u64| key_of(table, [1, 2, number]);
    let line = |number: u64, line: u64| key_of(ORDER_LINE, [1, 2, number, line]);
    told("condition 2: the next order is 11, the newest one Some(9)", |books| {
        alter::<District>(books, &key_of(DISTRICT, [1, 2]), |row| row.next_order += 1);
    });
    told("condition 11: 141 orders are not new; 140", |books| {
        drop(books.remove(&of(NEW_ORDER, 8)));
    });
    // One that is new in place of another, so that there are as many as before.
    let moved = |books: &mut Books, from: u64, to: u64| {
        books.remove(&of(NEW_ORDER, from));
        books.insert(of(NEW_ORDER, to), NewOrder.encode());
        alter::<Order>(books, &of(ORDER, from), |row| row.carrier = 3);
        alter::<Order>(books, &of(ORDER, to), |row| row.carrier = 0);
        let lines = |books: &Books, number: u64| {
            let order = Order::decode(&books[&of(ORDER, number)]).expect("as it was made");
            0..u64::from(order.line_count)
        };
        for number in lines(books, from) {
            alter::<OrderLine>(books, &line(from, number), |row| row.delivery_ms = 5);
        }
        for number in lines(books, to) {
            alter::<OrderLine>(books, &line(to, number), |row| row.delivery_ms = 0);
        }
    };
    told("condition 2: the next order is 10, the newest new order 8", |books| {
        moved(books, 9, 6);
    });
    told("condition 3: there are 3 new orders from 6 to 9", |books| {
        moved(books, 8, 6);
    });
    told("condition 5", |books| {
        alter::<Order>(books, &of(ORDER, 8), |row| row.carrier = 1);
    });
    told("condition 7: 0 lines are delivered", |books| {
        alter::<Order>(books, &of(ORDER, 8), |row| row.carrier = 1);
        alter::<Order>(books, &of(ORDER, 6), |row| row.carrier = 0);
        books.remove(&of(NEW_ORDER, 8));
        books.insert(of(NEW_ORDER, 6), NewOrder.encode());
        alter::<OrderLine>(books, &line(6, 0), |row| row.delivery_ms = 0);
        let order = Order::decode(&books[&of(ORDER, 6)]).expect("as it was made");
        for number in 0..u64::from(order.line_count) {
            alter::<OrderLine>(books, &line(6, number), |row| row.delivery_ms = 0);
        }
    });
    told("condition 7: 1 lines are delivered, not 0", |books| {
        alter::<OrderLine>(books, &line(9, 2), |row| row.delivery_ms = 5);
    });
    told("condition 6: it has", |books| {
        alter::<Order>(books, &of(ORDER, 4), |row| row.line_count += 1);
    });
    told("stock was ordered 0 times, in -1 lines", |books| {
        drop(books.remove(&line(4, 0)));
    });
    told("stock was ordered 1 times, in 0 lines", |books| {
        alter::<Stock>(books, &key_of(STOCK, [0, 3]), |row| row.order_count += 1);
    });
}

/// Condition 4 follows from 6, and 8 from 1 and 9: nothing breaks them alone, so they are asked without those.
#[test]
fn conditions_that_follow_from_others_are_told_too() {
    let mut audit = Stocktaking::default();
    audit.districts.insert([0, 0], DistrictSum::default());
    audit.orders.insert(
        [0, 0, 0],
        OrderSum {
            lines: 3,
            ..OrderSum::default()
        },
    );
    audit.districts.values_mut().for_each(|sum| sum.next_order = 1);
    let error = audit.check_districts().expect_err("no order says that it has lines");
    assert!(
        error.contains("condition 4: orders have 0 lines, and there are 3"),
        "{error}"
    );
    let mut audit = Stocktaking::default();
    audit.warehouses.insert(0, 5);
    let error = audit.check_money().expect_err("it has no districts");
    assert!(
        error.contains("condition 1: warehouse 0 has taken 5, and its districts 0"),
        "{error}"
    );
}

#[test]
fn rows_too_many_or_too_few_are_told() {
    for (table, text) in [
        (WAREHOUSE, "there are 1 warehouses, and were 2"),
        (DISTRICT, "there are 19 districts, and were 20"),
        (CUSTOMER, "there are 199 customers, and were 200"),
        (STOCK, "there are 19 rows of stock, and were 20"),
        (ITEM, "there are 9 items, and were 10"),
        (CUSTOMERS_OF, "there are 199 names, and were 200"),
        (LAST_ORDER, "there are 199 last orders, and were 200"),
        (OLDEST_NEW_ORDER, "there are 19 oldest new orders, and were 20"),
        (ORDER, "there are 199 orders; there were 200, and 0 were made"),
        (HISTORY, "there are 199 payments; there were 200, and 0 were made"),
    ] {
        told(text, |books| {
            let key = books.keys().find(|key| key[0] == table).expect("some").clone();
            books.remove(&key);
        });
    }
    told("which no table has", |books| drop(books.insert(vec![99], Vec::new())));
}

#[test]
fn rows_in_place_of_indexes_are_looked_at() {
    told("the oldest new order is 7, and noted is Some(8)", |books| {
        alter::<OldestNewOrder>(books, &key_of(OLDEST_NEW_ORDER, [0, 0]), |row| row.order += 1);
    });
    told("the last order is", |books| {
        alter::<LastOrder>(books, &key_of(LAST_ORDER, [0, 0, 1]), |row| row.order += 1);
    });
    told("customers have a name, of 200", |books| {
        let key = books.keys().find(|key| key[0] == CUSTOMERS_OF).expect("some").clone();
        alter::<CustomersOf>(books, &key, |row| row.customers.truncate(0));
    });
}

#[test]
fn what_clients_say_is_looked_for() {
    let (books, loaded) = books();
    for (kind, amount, text) in [
        (
            TransactionKind::NewOrder,
            0,
            "there are 200 orders; there were 200, and 1 were made",
        ),
        (
            TransactionKind::Payment,
            0,
            "there are 200 payments; there were 200, and 1 were made",
        ),
        (
            TransactionKind::Delivery,
            3,
            "condition 11: 140 orders are not new; 140 were not, and 3 were delivered",
        ),
    ] {
        let mut ledger = Ledger::default();
        ledger.note(&Ended {
            amount,
            ..Ended::new(kind, true)
        });
        let error = verified(&books, &loaded, &ledger).expect_err(text).to_string();
        assert!(error.contains(text), "{error}");
    }
}
