//! An object store in far memory: objects cut into pages, each object under a reader-writer lock of its own (DecLock, section 6.6).
//!
//! On the path: above the locks and nothing else. A get:
//!  1. acquires the object's lock in shared mode;
//!  2. READs all of its pages, with as few doorbells as they fit into. If the object is longer than its client thought, it READs
//!     the rest;
//!  3. looks at them, compares what they begin with, and their checksums;
//!  4. releases the lock.
//!
//! A set acquires the lock in exclusive mode, WRITEs all pages of the object with a new stamp, and releases it.
//!
//! Who holds a lock with a lease that is over by the end of step 2 may have read what somebody else was writing, and begins anew.
//! Who has written by then has not kept others out: that is an error.
//!
//! How many objects there are, and how large each can become, is settled when the memory is laid out ([`Places`]), since the
//! paper does not say how its clients find objects. Memory of zeros is a store whose objects nobody has set. Any lock of
//! [`LockKind::ALL`](farside_lock::LockKind::ALL) will do; what becomes of an object whose client dies under its lock, the lock
//! decides ([`farside_lock`]).
//!
//! ```
//! use std::sync::Arc;
//!
//! use farside_fabric::shm::{Fabric, Segment};
//! use farside_fabric::{OpContext, host};
//! use farside_lock::{LockKind, LockOptions, Locker, Site};
//! use farside_objects::{Objects, Places};
//!
//! # fn main() -> Result<(), Box<dyn core::error::Error>> {
//! // A thousand objects of up to 10 000 bytes.
//! let (kind, options) = (LockKind::ShiftLock, LockOptions { recovers_alone: true, ..LockOptions::default() });
//! let places = Arc::new(Places::new(kind.entry_bytes(&options), (0..1_000).map(|_| 10_000)));
//! let segment = Segment::anonymous(places.memory_bytes())?;
//!
//! host::on_this_thread(async {
//!     let endpoint = Fabric::new(vec![segment]).endpoint()?;
//!     let locker = Locker::new(kind, &endpoint, &Site::new(options))?;
//!     let mut cx = OpContext::new(endpoint);
//!     let mut objects = Objects::new(places, Some(locker));
//!     objects.set(&mut cx, 7, b"far away").await?;
//!     let mut value = Vec::new();
//!     assert!(objects.get(&mut cx, 7, &mut value).await?);
//!     assert_eq!(value, b"far away");
//!     Ok(())
//! })?
//! # }
//! ```

#![forbid(unsafe_code)]

mod error;
mod objects;
mod places;

pub use error::ObjectError;
pub use objects::{Got, Locking, Objects};
pub use places::Places;
