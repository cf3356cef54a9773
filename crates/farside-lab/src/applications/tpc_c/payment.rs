//! PAYMENT (clause 2.5): a customer pays, at the own district or, 15 of 100, at one of another warehouse.

use farside_kv::Session;

use super::name::number_of;
use super::rows::{
    CUSTOMER, CUSTOMER_NOTE_BYTES, Customer, DISTRICT, District, HISTORY, History, WAREHOUSE, Warehouse,
};
use super::{Called, Draws};
use crate::applications::row::{Row, key_of, read, transact};
use crate::error::BenchError;
use crate::workload::published::{self, DISTRICTS};

/// Clause 2.5.1.3: what is paid, in cents.
const AMOUNTS: [u64; 2] = [100, 500_000];

/// A payment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Payment {
    /// Where it is made.
    district: [u64; 2],
    /// Where the customer belongs.
    customer_district: [u64; 2],
    called: Called,
    amount: i64,
    /// What tells it apart from all others of its district.
    number: [u64; 2],
}

impl Payment {
    /// Draws a payment (clause 2.5.1); `number` tells it apart from all others.
    pub(super) fn draw(draws: &mut Draws, number: [u64; 2]) -> Self {
        let district = draws.district();
        let is_remote = published::is_remote_customer(&mut draws.random) && draws.cardinality.warehouses > 1;
        let customer_district = match is_remote {
            true => [draws.another_warehouse(), draws.below(DISTRICTS)],
            false => district,
        };
        Self {
            district,
            customer_district,
            called: draws.called(),
            amount: draws.within(AMOUNTS).cast_signed(),
            number,
        }
    }

    /// Makes the transaction.
    ///
    /// # Errors
    /// Those of the store; [`BenchError::Unsound`] if a row is missing.
    pub(super) async fn make(&self, session: &mut Session) -> Result<(), BenchError> {
        let number = number_of(session, self.customer_district, self.called).await?;
        let date_ms = session.store().endpoint().unix_ms();
        let [warehouse, district] = self.district;
        let [customer_warehouse, customer_district] = self.customer_district;
        let keys = [
            key_of(WAREHOUSE, [warehouse]),
            key_of(DISTRICT, [warehouse, district]),
            key_of(CUSTOMER, [customer_warehouse, customer_district, number]),
            key_of(HISTORY, [warehouse, district, self.number[0], self.number[1]]),
        ];
        let history = History {
            customer_warehouse: customer_warehouse as u32,
            customer_district: customer_district as u32,
            customer: number as u32,
            date_ms,
            amount: self.amount,
            note: [b' '; 24],
        };
        transact(session, &keys, |transaction| {
            let mut warehouse: Warehouse = read(transaction, &keys[0])?;
            let mut district: District = read(transaction, &keys[1])?;
            let mut customer: Customer = read(transaction, &keys[2])?;
            warehouse.ytd += self.amount;
            district.ytd += self.amount;
            self.charge(&mut customer, number);
            transaction.put(&keys[0], &warehouse.encode())?;
            transaction.put(&keys[1], &district.encode())?;
            transaction.put(&keys[2], &customer.encode())?;
            Ok(transaction.put(&keys[3], &history.encode())?)
        })
        .await
    }

    /// Notes the payment with its customer.
    fn charge(&self, customer: &mut Customer, number: u64) {
        customer.balance -= self.amount;
        customer.ytd_payment += self.amount;
        customer.payment_count += 1;
        if customer.is_bad != 0 {
            // Clause 2.5.2.2: before what was noted, of which as much stays as there is room for.
            let ([warehouse, district], [at, there]) = (self.customer_district, self.district);
            let text = format!("{number} {district} {warehouse} {there} {at} {} | ", self.amount);
            let kept = CUSTOMER_NOTE_BYTES - text.len();
            customer.note.copy_within(..kept, text.len());
            customer.note[..text.len()].copy_from_slice(text.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::applications::client::Application;
    use crate::applications::tpc_c::population::population;
    use crate::applications::tpc_c::{Cardinality, TpcC};

    const CARDINALITY: Cardinality = Cardinality {
        warehouses: 2,
        items: 10,
        customers: 10,
    };

    #[test]
    fn bad_credit_is_noted_before_what_was() {
        let customer = population(CARDINALITY, 1).find(|(key, _)| key[0] == CUSTOMER);
        let mut customer = Customer::decode(&customer.expect("there are some").1).expect("as it was made");
        let payment = Payment {
            district: [0, 3],
            customer_district: [1, 2],
            called: Called::ByNumber(7),
            amount: 4200,
            number: [0, 1],
        };
        customer.is_bad = 1;
        payment.charge(&mut customer, 7);
        payment.charge(&mut customer, 8);
        assert!(
            customer.note.starts_with(b"8 2 1 3 0 4200 | 7 2 1 3 0 4200 | ---"),
            "{:?}",
            customer.note
        );
        assert_eq!((customer.balance, customer.ytd_payment), (-9400, 9400));
        assert_eq!(customer.payment_count, 3);
        (customer.is_bad, customer.note) = (0, [0; CUSTOMER_NOTE_BYTES]);
        payment.charge(&mut customer, 9);
        assert_eq!(customer.note, [0; CUSTOMER_NOTE_BYTES]);
    }

    #[test]
    fn some_customers_pay_elsewhere() {
        const DRAWS: u64 = 20_000;
        for (warehouses, percent) in [(2, 15.0), (1, 0.0)] {
            let cardinality = Cardinality {
                warehouses,
                ..CARDINALITY
            };
            let mut draws = TpcC::new(cardinality, 1).client(0).draws;
            let remote = (0..DRAWS).filter(|&number| {
                let payment = Payment::draw(&mut draws, [0, number]);
                assert!((100..=500_000).contains(&payment.amount));
                payment.customer_district[0] != payment.district[0]
            });
            let found = remote.count() as f64 * 100.0 / DRAWS as f64;
            assert!((found - percent).abs() < 1.0, "{found} % of {warehouses} warehouses");
        }
    }
}
