//! Transactions: they read and change keys, and all changes are made at one instant, or none.

use core::mem::MaybeUninit;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ThreadId};

use farside::blocking::{Begun, Interactive};

use crate::border::{In, Out, given};
use crate::fault::{Fault, Status, answer};
use crate::store::{OpenStore, answer_with, found};
use crate::threads::Opened;

/// A transaction. It belongs to the thread that began it.
pub struct ThreadTransaction {
    opened: Arc<Opened>,
    thread: ThreadId,
    /// From its first operation to its end.
    begun: Mutex<Option<Begun>>,
}

impl ThreadTransaction {
    fn check(&self) -> Result<(), Fault> {
        self.opened.era.check()?;
        if thread::current().id() != self.thread {
            let text = c"the transaction belongs to the thread that has begun it, and this is another one";
            return Err(Fault::new(Status::InvalidArgument, text));
        }
        Ok(())
    }

    /// Carries out an operation of the transaction.
    fn with<T>(&self, operation: impl FnOnce(&mut Interactive<'_>) -> Result<T, farside::Error>) -> Result<T, Fault> {
        self.check()?;
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        self.opened.with(|session| {
            let begun = match &mut *begun {
                Some(begun) => begun,
                none => none.insert(session.begin()?),
            };
            operation(&mut session.within(begun))
        })
    }

    /// Makes the changes. Whoever tries again in vain goes on with what was begun, which knows for how long that has been so.
    fn commit(&self) -> Result<(), Fault> {
        self.check()?;
        let mut place = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(mut begun) = place.take() else { return Ok(()) };
        if self.opened.with(|session| session.conclude(&mut begun, true))? {
            return Ok(());
        }
        *place = Some(begun);
        let text = c"others were quicker with a key that the transaction has read: nothing was changed, try it again";
        Err(Fault::new(Status::Conflict, text))
    }
}

/// Begins a transaction. What it reads and changes nobody waits for; farside_transaction_commit() makes the changes if
/// everything that it has read is still so.
#[unsafe(no_mangle)]
pub extern "C" fn farside_transaction_begin(
    store: Option<&OpenStore>,
    transaction: Option<&mut MaybeUninit<*mut ThreadTransaction>>,
) -> Status {
    answer(|| {
        let (store, transaction) = (given(store, "store")?, given(transaction, "transaction")?);
        store.opened.era.check()?;
        transaction.write(Box::into_raw(Box::new(ThreadTransaction {
            opened: Arc::clone(&store.opened),
            thread: thread::current().id(),
            begun: Mutex::new(None),
        })));
        Ok(())
    })
}

/// Like farside_get(), and sees what the transaction has changed.
#[unsafe(no_mangle)]
pub extern "C" fn farside_transaction_get(
    transaction: Option<&ThreadTransaction>,
    key: In,
    key_length: usize,
    mut buffer: Out,
    capacity: usize,
    length: Option<&mut MaybeUninit<usize>>,
) -> Status {
    answer(|| {
        let (key, length) = (key.bytes(key_length, "key")?, given(length, "length")?);
        let found = given(transaction, "transaction")?.with(|within| {
            let value = within.get(key)?;
            Ok(value.map(|value| answer_with(value, &mut buffer, capacity, length)))
        });
        found?.ok_or(Fault::NO_KEY)?
    })
}

/// Like farside_set(), when the transaction is committed.
#[unsafe(no_mangle)]
pub extern "C" fn farside_transaction_set(
    transaction: Option<&ThreadTransaction>,
    key: In,
    key_length: usize,
    value: In,
    value_length: usize,
) -> Status {
    answer(|| {
        let (key, value) = (key.bytes(key_length, "key")?, value.bytes(value_length, "value")?);
        given(transaction, "transaction")?.with(|within| within.put(key, value))
    })
}

/// Like farside_delete(), when the transaction is committed.
#[unsafe(no_mangle)]
pub extern "C" fn farside_transaction_delete(
    transaction: Option<&ThreadTransaction>,
    key: In,
    key_length: usize,
) -> Status {
    answer(|| {
        let key = key.bytes(key_length, "key")?;
        found(given(transaction, "transaction")?.with(|within| within.delete(key))?)
    })
}

/// Makes the changes, all of them at one instant, at which everything that the transaction has read is still so.
/// FARSIDE_CONFLICT if it is not: nothing was changed, and the transaction can be tried again, from its first read on.
/// FARSIDE_TIMEOUT if that has been so for too long. Whatever it answers, the handle is a transaction that has read and
/// changed nothing afterwards.
#[unsafe(no_mangle)]
pub extern "C" fn farside_transaction_commit(transaction: Option<&ThreadTransaction>) -> Status {
    answer(|| given(transaction, "transaction")?.commit())
}

/// Forgets what the transaction has read and was to change.
#[unsafe(no_mangle)]
pub extern "C" fn farside_transaction_rollback(transaction: Option<&ThreadTransaction>) -> Status {
    answer(|| {
        let transaction = given(transaction, "transaction")?;
        transaction.check()?;
        *transaction.begun.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Ok(())
    })
}

/// Ends a transaction; what was not committed is not done. NULL is fine, and so is another thread.
#[unsafe(no_mangle)]
pub extern "C" fn farside_transaction_free(transaction: Option<Box<ThreadTransaction>>) -> Status {
    answer(|| match transaction {
        Some(transaction) => transaction.opened.era.drop_in(transaction),
        None => Ok(()),
    })
}
