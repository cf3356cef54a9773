//! Asking the processor for memory before it is looked at.
//!
//! On the path: where many operations are in flight on one thread, each asks for what it needs next and lets the others run.
//! A hint and no more: what is there afterwards is what was there before.

use crate::region::LINE_BYTES;

/// Asks for the line of an address, which need not be one.
#[inline]
pub(crate) fn line(target: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address has no effect but on the cache.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(target.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = target;
}

/// Asks for the lines of some items of this process's own memory, the first sixteen at most.
#[inline]
pub fn prefetch<T>(items: &[T]) {
    const LINES_MAX: usize = 16;
    let first = items.as_ptr().cast::<u8>();
    let lines = size_of_val(items).div_ceil(LINE_BYTES as usize).min(LINES_MAX);
    for number in 0..lines {
        line(first.wrapping_add(number * LINE_BYTES as usize));
    }
}
