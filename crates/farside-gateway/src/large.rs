//! Large buffers, lent to whoever needs one: what a long value arrives in, and what a long reply stands in.
//!
//! On the path: a connection that waits for its client keeps no more than [`OWN_BYTES_MAX`]. What it needed beyond that goes to
//! the spare buffers of its worker's thread, of which the next one takes what fits. Memory that is given back to the system and
//! taken again for each value would cost more than the value's copy: a fault for each page of it.

use core::cell::RefCell;

/// A larger buffer is given back when nothing is in it.
pub(crate) const OWN_BYTES_MAX: usize = 128 << 10;
/// What the spare buffers of a thread may take together.
const SPARE_BYTES_MAX: usize = 32 << 20;

thread_local! {
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Makes room for `more` bytes behind those of `buffer`. `in_all` says how long it will be when nothing more comes, if that is
/// known: it is only a reason to take a spare buffer, not to ask for memory.
#[inline]
pub(crate) fn reserve(buffer: &mut Vec<u8>, more: usize, in_all: usize) {
    if buffer.capacity() - buffer.len() < more {
        widen(buffer, more, in_all);
    }
}

#[cold]
fn widen(buffer: &mut Vec<u8>, more: usize, in_all: usize) {
    // It grows by half at least, so that little by little costs no more than at once.
    let least = (buffer.len() + more).max(buffer.capacity() + buffer.capacity() / 2);
    if least.max(in_all) <= OWN_BYTES_MAX {
        buffer.reserve(more);
        return;
    }
    if let Some(mut spare) = take(least.max(in_all)) {
        spare.extend_from_slice(buffer);
        *buffer = spare;
    } else {
        // Whole units, so that it fits the next value, which is a little longer.
        let capacity = least.next_multiple_of(OWN_BYTES_MAX);
        buffer.reserve_exact(capacity - buffer.len());
    }
}

/// The smallest spare buffer of at least so many bytes.
fn take(bytes: usize) -> Option<Vec<u8>> {
    SPARE.with_borrow_mut(|spare| {
        let fitting = (0..spare.len()).filter(|&index| spare[index].capacity() >= bytes);
        let index = fitting.min_by_key(|&index| spare[index].capacity())?;
        Some(spare.swap_remove(index))
    })
}

/// Empties a buffer; if it is large, somebody else may have it.
#[inline]
pub(crate) fn clear(buffer: &mut Vec<u8>) {
    buffer.clear();
    if buffer.capacity() > OWN_BYTES_MAX {
        give(core::mem::take(buffer));
    }
}

#[cold]
fn give(buffer: Vec<u8>) {
    SPARE.with_borrow_mut(|spare| {
        let kept: usize = spare.iter().map(Vec::capacity).sum();
        if kept + buffer.capacity() <= SPARE_BYTES_MAX {
            spare.push(buffer);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spare() -> Vec<usize> {
        let mut capacities = SPARE.with_borrow(|spare| spare.iter().map(Vec::capacity).collect::<Vec<_>>());
        capacities.sort_unstable();
        capacities
    }

    fn make(bytes: usize) -> Vec<u8> {
        let mut buffer = Vec::new();
        reserve(&mut buffer, bytes, 0);
        assert!(buffer.capacity() >= bytes);
        buffer
    }

    #[test]
    fn a_small_buffer_stays_where_it_is() {
        let mut buffer = make(OWN_BYTES_MAX);
        buffer.push(1);
        let capacity = buffer.capacity();
        clear(&mut buffer);
        assert_eq!((buffer.len(), buffer.capacity(), spare()), (0, capacity, vec![]));
    }

    #[test]
    fn the_smallest_that_fits_is_lent_with_what_was_there() {
        let [mut large, mut larger] = [3, 5].map(|units| make(units * OWN_BYTES_MAX));
        clear(&mut larger);
        clear(&mut large);
        assert_eq!((large.capacity(), larger.capacity()), (0, 0));
        assert_eq!(spare(), [3, 5].map(|units| units * OWN_BYTES_MAX));
        let mut buffer = vec![7; 100];
        reserve(&mut buffer, 200, 2 * OWN_BYTES_MAX + 1);
        assert_eq!((buffer.len(), buffer.capacity()), (100, 3 * OWN_BYTES_MAX));
        assert_eq!(buffer, [7; 100]);
        let second = make(OWN_BYTES_MAX + 1);
        assert_eq!((second.capacity(), spare()), (5 * OWN_BYTES_MAX, vec![]));
    }

    #[test]
    fn an_announcement_alone_asks_for_no_memory() {
        let mut buffer = vec![7; 100];
        reserve(&mut buffer, 20_000, 60 << 20);
        assert_eq!(buffer.capacity(), OWN_BYTES_MAX);
    }

    #[test]
    fn growing_little_by_little_copies_little() {
        let mut buffer = Vec::new();
        let mut widened = 0;
        while buffer.len() < 8 << 20 {
            let before = buffer.capacity();
            reserve(&mut buffer, 1000, 0);
            buffer.resize(buffer.len() + 1000, 1);
            widened += u32::from(buffer.capacity() != before);
        }
        assert!(widened <= 22, "{widened}");
    }

    #[test]
    fn spare_buffers_have_a_limit_together() {
        let mut buffers: Vec<_> = (0..40).map(|_| make(1 << 20)).collect();
        buffers.iter_mut().for_each(clear);
        assert_eq!(spare(), vec![1 << 20; 32]);
    }
}
