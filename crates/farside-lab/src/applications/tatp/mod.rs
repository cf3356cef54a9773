//! TATP: the home location register of a telephone network, which knows where subscribers are and where their calls go.
//!
//! From *Telecom Application Transaction Processing Benchmark*, IBM, version 1.0 (2009). Subscribers are drawn by a distribution
//! that is not uniform ([`published::subscriber`]).
//!
//! # Rows
//! | key | how many |
//! |---|---|
//! | SUBSCRIBER, subscriber | one |
//! | SUBSCRIBER_OF, number of 15 digits | one: which subscriber has the number; no transaction changes it |
//! | ACCESS_INFO, subscriber, type | one to four of a subscriber |
//! | SPECIAL_FACILITY, subscriber, type | one to four of a subscriber, 85 % of them active |
//! | CALL_FORWARDING, subscriber, type, hour | up to three of a special facility, from 0, 8 or 16 o'clock on |
//!
//! # Transactions
//! | transaction | % | keys, all known before | refused if |
//! |---|---|---|---|
//! | GET_SUBSCRIBER_DATA | 35 | reads SUBSCRIBER | |
//! | GET_NEW_DESTINATION | 10 | reads SPECIAL_FACILITY, CALL_FORWARDING of hours so far | it is not active, or there is none |
//! | GET_ACCESS_DATA | 35 | reads ACCESS_INFO | it is not there |
//! | UPDATE_SUBSCRIBER_DATA | 2 | writes SUBSCRIBER and SPECIAL_FACILITY | the latter is not there |
//! | UPDATE_LOCATION | 14 | writes SUBSCRIBER; the number is looked up before | |
//! | INSERT_CALL_FORWARDING | 2 | reads SPECIAL_FACILITY, stores CALL_FORWARDING; likewise | no former, or a latter |
//! | DELETE_CALL_FORWARDING | 2 | removes CALL_FORWARDING; likewise | it is not there |
//!
//! Each is one `transaction_on`.
//!
//! # Audit
//! There are as many subscribers, numbers, access infos and special facilities as at the start; and as many call forwardings as
//! there were, and were inserted, less those that were deleted. Every number leads to its subscriber, and whatever a subscriber
//! has is of one that exists; a call forwarding is of a special facility that exists.

mod audit;
mod rows;

use core::slice::from_ref;

use farside_kv::Session;
use rand_xoshiro::Xoshiro256PlusPlus;

use self::audit::Register;
use self::rows::{
    ACCESS_INFO, AccessInfo, CALL_FORWARDING, CallForwarding, HOURS, SPECIAL_FACILITY, SUBSCRIBER, SpecialFacility,
    Subscriber, SubscriberOf, TYPES, key_of_number,
};
use super::client::{Application, Client, Ended};
use super::row::{Row, Stored, find, key_of, read, read_alone, transact};
use crate::error::BenchError;
use crate::workload::published;
use crate::workload::zipf::below;
use crate::workload::{TransactionKind, TransactionWorkload, client_random};

/// How many subscribers there are unless something else is said.
pub(super) const SUBSCRIBERS: u64 = 100_000;
/// How many there may be.
pub(super) const SUBSCRIBERS_RANGE: [u64; 2] = [1, 4_000_000];

/// A register of so many subscribers.
pub(super) struct Tatp {
    subscribers: u64,
    seed: u64,
}

impl Tatp {
    pub(super) fn new(subscribers: u64, seed: u64) -> Self {
        Self { subscribers, seed }
    }
}

impl Application for Tatp {
    type Client = Caller;
    type Audit = Register;

    fn row_count(&self) -> u64 {
        rows::row_count(self.subscribers)
    }

    fn rows(&self) -> impl Iterator<Item = Stored> {
        rows::population(self.subscribers, self.seed)
    }

    fn client(&self, number: u64) -> Caller {
        Caller {
            random: client_random(self.seed, number),
            mix: TransactionWorkload::by_name("tatp").expect("the locks of TATP are measured, too"),
            subscribers: self.subscribers,
        }
    }

    fn audit(&self) -> Register {
        Register::default()
    }
}

/// A client.
pub(super) struct Caller {
    random: Xoshiro256PlusPlus,
    mix: TransactionWorkload,
    subscribers: u64,
}

impl Client for Caller {
    async fn transact(&mut self, session: &mut Session) -> Result<Ended, BenchError> {
        let kind = self.mix.draw_kind(&mut self.random);
        let subscriber = published::subscriber(&mut self.random, self.subscribers);
        let is_done = match kind {
            TransactionKind::GetSubscriberData => get_subscriber_data(session, subscriber).await,
            TransactionKind::GetNewDestination => {
                let (facility, hour) = (self.a_type(), self.an_hour());
                // At which hour of the day the forwarding must still be in force.
                let until = 1 + self.below(24);
                get_new_destination(session, [subscriber, facility], hour, until).await
            }
            TransactionKind::GetAccessData => get_access_data(session, subscriber, self.a_type()).await,
            TransactionKind::UpdateSubscriberData => {
                let (facility, bit, data) = (self.a_type(), self.below(2) as u16, self.below(256) as u8);
                update_subscriber_data(session, [subscriber, facility], bit, data).await
            }
            TransactionKind::UpdateLocation => {
                let place = self.below(1 << 32) as u32;
                update_location(session, subscriber, place).await
            }
            TransactionKind::InsertCallForwarding => {
                let place = [subscriber, self.a_type(), self.an_hour()];
                let forwarding = CallForwarding {
                    end_hour: (place[2] + 1 + self.below(8)) as u8,
                    number: rows::digits(self.below(self.subscribers)),
                };
                insert_call_forwarding(session, place, forwarding).await
            }
            _ => delete_call_forwarding(session, [subscriber, self.a_type(), self.an_hour()]).await,
        }?;
        Ok(Ended::new(kind, is_done))
    }
}

impl Caller {
    fn below(&mut self, bound: u64) -> u64 {
        below(&mut self.random, bound)
    }

    /// One of the four types that access infos and special facilities have.
    fn a_type(&mut self) -> u64 {
        1 + self.below(TYPES)
    }

    /// One of the hours at which call forwardings begin.
    fn an_hour(&mut self) -> u64 {
        HOURS[self.below(HOURS.len() as u64) as usize]
    }
}

async fn get_subscriber_data(session: &mut Session, subscriber: u64) -> Result<bool, BenchError> {
    let key = key_of(SUBSCRIBER, [subscriber]);
    transact(session, from_ref(&key), |transaction| {
        read::<Subscriber>(transaction, &key)?;
        Ok(true)
    })
    .await
}

/// Where a call to somebody goes; whether it goes anywhere.
async fn get_new_destination(
    session: &mut Session,
    facility: [u64; 2],
    hour: u64,
    until: u64,
) -> Result<bool, BenchError> {
    let facility_key = key_of(SPECIAL_FACILITY, facility);
    let hours = HOURS.into_iter().filter(|&begin| begin <= hour);
    let forwardings = hours.map(|begin| key_of(CALL_FORWARDING, [facility[0], facility[1], begin]));
    let keys: Vec<_> = core::iter::once(facility_key).chain(forwardings).collect();
    transact(session, &keys, |transaction| {
        let facility: Option<SpecialFacility> = find(transaction, &keys[0])?;
        if facility.is_none_or(|facility| facility.is_active == 0) {
            return Ok(false);
        }
        let mut is_found = false;
        for key in &keys[1..] {
            let forwarding: Option<CallForwarding> = find(transaction, key)?;
            is_found |= forwarding.is_some_and(|forwarding| u64::from(forwarding.end_hour) > until);
        }
        Ok(is_found)
    })
    .await
}

async fn get_access_data(session: &mut Session, subscriber: u64, kind: u64) -> Result<bool, BenchError> {
    let key = key_of(ACCESS_INFO, [subscriber, kind]);
    transact(session, from_ref(&key), |transaction| {
        Ok(find::<AccessInfo>(transaction, &key)?.is_some())
    })
    .await
}

async fn update_subscriber_data(
    session: &mut Session,
    facility: [u64; 2],
    bit: u16,
    data: u8,
) -> Result<bool, BenchError> {
    let keys = [key_of(SUBSCRIBER, [facility[0]]), key_of(SPECIAL_FACILITY, facility)];
    transact(session, &keys, |transaction| {
        let mut subscriber: Subscriber = read(transaction, &keys[0])?;
        let Some(mut facility) = find::<SpecialFacility>(transaction, &keys[1])? else {
            return Ok(false);
        };
        subscriber.bits = subscriber.bits & !1 | bit;
        facility.data_a = data;
        transaction.put(&keys[0], &subscriber.encode())?;
        transaction.put(&keys[1], &facility.encode())?;
        Ok(true)
    })
    .await
}

/// The subscriber with the number of this one.
async fn look_up(session: &mut Session, subscriber: u64) -> Result<u64, BenchError> {
    let row: SubscriberOf = read_alone(session, &key_of_number(subscriber)).await?;
    Ok(u64::from(row.subscriber))
}

async fn update_location(session: &mut Session, subscriber: u64, place: u32) -> Result<bool, BenchError> {
    let key = key_of(SUBSCRIBER, [look_up(session, subscriber).await?]);
    transact(session, from_ref(&key), |transaction| {
        let mut subscriber: Subscriber = read(transaction, &key)?;
        subscriber.vlr_location = place;
        transaction.put(&key, &subscriber.encode())?;
        Ok(true)
    })
    .await
}

async fn insert_call_forwarding(
    session: &mut Session,
    [subscriber, facility, hour]: [u64; 3],
    forwarding: CallForwarding,
) -> Result<bool, BenchError> {
    let subscriber = look_up(session, subscriber).await?;
    let keys = [
        key_of(SPECIAL_FACILITY, [subscriber, facility]),
        key_of(CALL_FORWARDING, [subscriber, facility, hour]),
    ];
    transact(session, &keys, |transaction| {
        let is_there = find::<SpecialFacility>(transaction, &keys[0])?.is_some();
        if !is_there || find::<CallForwarding>(transaction, &keys[1])?.is_some() {
            return Ok(false);
        }
        transaction.put(&keys[1], &forwarding.encode())?;
        Ok(true)
    })
    .await
}

async fn delete_call_forwarding(
    session: &mut Session,
    [subscriber, facility, hour]: [u64; 3],
) -> Result<bool, BenchError> {
    let key = key_of(CALL_FORWARDING, [look_up(session, subscriber).await?, facility, hour]);
    transact(session, from_ref(&key), |transaction| Ok(transaction.delete(&key)?)).await
}
