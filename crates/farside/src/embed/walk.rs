//! How far a walk over all keys has come, or one over the keys of a range.
//!
//! On the path: between an iterator and the session that reads its next page. Where the index is in the order of keys, a walk goes
//! on with a key, so nothing but the walk has to remember it; elsewhere with a cursor.

use core::ops::{Bound, RangeBounds};

use farside_kv::{IndexKind, KeyValue, KvError, Session, prefix_end};

/// How many items of a range are read together.
const ITEMS_AT_ONCE: usize = 64;

/// The position of a walk over the items of a store. It borrows nothing: any session of the store can continue it
/// ([`next_items`](crate::blocking::Session::next_items)).
#[derive(Debug)]
pub struct Walk {
    place: Place,
    /// The key before which it ends.
    to: Option<Vec<u8>>,
}

#[derive(Debug)]
enum Place {
    Cursor(u64),
    Key(Vec<u8>),
    End,
}

impl Walk {
    /// Over all items; `index` is the index of the store.
    #[must_use]
    pub fn all(index: IndexKind) -> Self {
        let place = match index.is_ordered() {
            true => Place::Key(Vec::new()),
            false => Place::Cursor(0),
        };
        Self { place, to: None }
    }

    /// Over a range, in order. A range whose end is before its start is empty.
    pub fn over<K: AsRef<[u8]>>(keys: &impl RangeBounds<K>) -> Self {
        let from = match keys.start_bound() {
            Bound::Included(key) => key.as_ref().to_vec(),
            Bound::Excluded(key) => behind(key.as_ref()),
            Bound::Unbounded => Vec::new(),
        };
        let to = match keys.end_bound() {
            Bound::Included(key) => Some(behind(key.as_ref())),
            Bound::Excluded(key) => Some(key.as_ref().to_vec()),
            Bound::Unbounded => None,
        };
        Self {
            place: Place::Key(from),
            to,
        }
    }

    /// Whether there is nothing left.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.place, Place::End)
    }

    /// The next page, which may be empty.
    ///
    /// # Errors
    /// What the store reports; the next call tries again, unless the index has no order.
    pub(crate) async fn next_items(&mut self, session: &mut Session) -> Result<Vec<KeyValue>, KvError> {
        let read = match &self.place {
            Place::Cursor(cursor) => session.scan(*cursor).await.map(at_cursor),
            Place::Key(from) => {
                let read = session.range(from, self.to.as_deref(), ITEMS_AT_ONCE).await;
                read.map(at_key)
            }
            Place::End => Ok((Vec::new(), Place::End)),
        };
        self.advance(read)
    }

    /// The same without the values.
    pub(crate) async fn next_keys(&mut self, session: &mut Session) -> Result<Vec<Vec<u8>>, KvError> {
        let read = match &self.place {
            Place::Cursor(cursor) => session.scan_keys(*cursor).await.map(at_cursor),
            Place::Key(from) => {
                let read = session.range_keys(from, self.to.as_deref(), ITEMS_AT_ONCE).await;
                read.map(at_key)
            }
            Place::End => Ok((Vec::new(), Place::End)),
        };
        self.advance(read)
    }

    fn advance<T>(&mut self, read: Result<(Vec<T>, Place), KvError>) -> Result<Vec<T>, KvError> {
        match read {
            Ok((page, place)) => {
                self.place = place;
                Ok(page)
            }
            Err(error) => {
                if error.is_unordered() {
                    self.place = Place::End;
                }
                Err(error)
            }
        }
    }
}

fn at_cursor<T>((page, next): (Vec<T>, u64)) -> (Vec<T>, Place) {
    (page, if next == 0 { Place::End } else { Place::Cursor(next) })
}

fn at_key<T>((page, next): (Vec<T>, Option<Vec<u8>>)) -> (Vec<T>, Place) {
    (page, next.map_or(Place::End, Place::Key))
}

/// The first key behind this one.
fn behind(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// The range of all keys that begin with `prefix`, for `range` and `range_keys` of a session.
///
/// ```
/// use farside::{IndexKind, Options, blocking::Store, with_prefix};
///
/// let store = Store::open(Options::anonymous(64 << 20).index(IndexKind::Chime))?;
/// let mut session = store.session()?;
/// for key in ["user:2", "user:10", "visit:1", "use"] {
///     session.put(key.as_bytes(), b"")?;
/// }
/// let users: Result<Vec<_>, _> = session.range_keys(with_prefix(b"user:")).collect();
/// assert_eq!(users?, [b"user:10".to_vec(), b"user:2".to_vec()]);
/// # Ok::<(), farside::Error>(())
/// ```
#[must_use]
pub fn with_prefix(prefix: &[u8]) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let end = prefix_end(prefix).map_or(Bound::Unbounded, Bound::Excluded);
    (Bound::Included(prefix.to_vec()), end)
}
