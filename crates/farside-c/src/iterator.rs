//! Iterators over the items of a store. One holds a walk and a page of items, and no session: whichever thread asks for more
//! uses its own.

use core::mem::MaybeUninit;
use core::ops::Bound;
use std::sync::Arc;
use std::vec;

use farside::KeyValue;
use farside::blocking::Walk;

use crate::border::{In, Slice, given};
use crate::fault::{Fault, Status, answer};
use crate::store::OpenStore;
use crate::threads::Opened;

/// An iterator over items. One thread at a time may use it.
pub struct ItemIterator {
    opened: Arc<Opened>,
    walk: Walk,
    page: vec::IntoIter<KeyValue>,
    /// What the program looks at.
    item: KeyValue,
}

impl ItemIterator {
    fn new(store: &OpenStore, walk: Walk) -> *mut Self {
        Box::into_raw(Box::new(Self {
            opened: Arc::clone(&store.opened),
            walk,
            page: Vec::new().into_iter(),
            item: KeyValue::default(),
        }))
    }

    fn advance(&mut self) -> Result<(), Fault> {
        loop {
            if let Some(item) = self.page.next() {
                self.item = item;
                return Ok(());
            }
            if self.walk.is_over() {
                return Err(Fault::new(Status::NotFound, c"there is no further item"));
            }
            let walk = &mut self.walk;
            self.page = self.opened.with(|session| session.next_items(walk))?.into_iter();
        }
    }
}

/// An iterator over all items, in the order of keys if the index has one. It is no snapshot: an item that is there throughout
/// is seen once, another one at most once.
#[unsafe(no_mangle)]
pub extern "C" fn farside_scan(
    store: Option<&OpenStore>,
    iterator: Option<&mut MaybeUninit<*mut ItemIterator>>,
) -> Status {
    answer(|| {
        let (store, iterator) = (given(store, "store")?, given(iterator, "iterator")?);
        iterator.write(ItemIterator::new(store, Walk::all(store.opened.index)));
        Ok(())
    })
}

/// An iterator over the items from one key on until before another, in order; NULL means without a bound. The first item is
/// an error (FARSIDE_INVALID_ARGUMENT) if the index has no order.
#[unsafe(no_mangle)]
pub extern "C" fn farside_scan_range(
    store: Option<&OpenStore>,
    from: In,
    from_length: usize,
    to: In,
    to_length: usize,
    iterator: Option<&mut MaybeUninit<*mut ItemIterator>>,
) -> Status {
    answer(|| {
        let (store, iterator) = (given(store, "store")?, given(iterator, "iterator")?);
        let (from, to_key) = (from.bytes(from_length, "from")?, to.bytes(to_length, "to")?);
        let end = if to.is_null() {
            Bound::Unbounded
        } else {
            Bound::Excluded(to_key)
        };
        iterator.write(ItemIterator::new(
            store,
            Walk::over::<&[u8]>(&(Bound::Included(from), end)),
        ));
        Ok(())
    })
}

/// The next item, FARSIDE_NOT_FOUND at the end. It stays where it is until the next call with this iterator. After another
/// error the next call tries again.
#[unsafe(no_mangle)]
pub extern "C" fn farside_iterator_next(
    iterator: Option<&mut ItemIterator>,
    key: Option<&mut MaybeUninit<Slice>>,
    value: Option<&mut MaybeUninit<Slice>>,
) -> Status {
    answer(|| {
        let iterator = given(iterator, "iterator")?;
        let (key, value) = (given(key, "key")?, given(value, "value")?);
        iterator.opened.era.check()?;
        iterator.advance()?;
        key.write(Slice::of(&iterator.item.0));
        value.write(Slice::of(&iterator.item.1));
        Ok(())
    })
}

/// Ends an iterator, at any point. NULL is fine.
#[unsafe(no_mangle)]
pub extern "C" fn farside_iterator_free(iterator: Option<Box<ItemIterator>>) -> Status {
    answer(|| match iterator {
        Some(iterator) => iterator.opened.era.drop_in(iterator),
        None => Ok(()),
    })
}
