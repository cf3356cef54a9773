//! What a node's memory held before verbs changed it, so that it can be made so again.
//!
//! On the path: none unless it is asked for. Measurements begin with the same memory again and again; what a run of some
//! milliseconds changes is little beside what it takes to lay out a node.
//!
//! Invariant: `words` names every word that was changed since the journal was begun, with what it held directly before, in
//! the order of the changes.

use core::ops::Range;

use crate::primitive::Ordering;
use crate::region::Region;

/// The journal of a node.
#[derive(Default, Debug)]
pub(super) struct Journal {
    is_kept: bool,
    words: Vec<(u64, u64)>,
}

impl Journal {
    /// From now on changes are noted.
    pub(super) fn begin(&mut self) {
        self.is_kept = true;
    }

    /// The bytes are about to be changed.
    #[inline]
    pub(super) fn note(&mut self, region: &Region, part: Range<u64>) {
        if self.is_kept {
            self.keep(region, part);
        }
    }

    fn keep(&mut self, region: &Region, part: Range<u64>) {
        for offset in (part.start / 8 * 8..part.end).step_by(8) {
            self.words.push((offset, region.word(offset).load(Ordering::Relaxed)));
        }
    }

    /// Makes the memory what it was when the journal was begun, and ends it.
    pub(super) fn undo(&mut self, region: &Region) {
        self.is_kept = false;
        for (offset, word) in self.words.drain(..).rev() {
            region.word(offset).store(word, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::sim::{Sim, SimOptions};
    use crate::{NodeId, OpContext, RemoteAddr, Slice};

    #[test]
    fn what_verbs_have_changed_is_undone() {
        const BYTES: u64 = 4096;
        let sim = Sim::new(SimOptions::default());
        let node = sim.add_memory_node(BYTES);
        let region = sim.region(NodeId::new(0));
        let first: Vec<u8> = (0..BYTES).map(|at| at as u8).collect();
        region.write(0, &first);
        let now = || {
            let mut bytes = vec![0; BYTES as usize];
            region.read(0, &mut bytes);
            bytes
        };
        let mut cx = OpContext::new(sim.endpoint(sim.add_compute_node()));
        let at = |offset| RemoteAddr::new(node, offset);
        sim.keep_changes(node);
        sim.block_on(async {
            cx.reserve(300);
            cx.buffer_mut()[..300].fill(7);
            // Several lines, a part of a word, the same words again, and what is left as it was.
            cx.write(Slice::first(300), at(100)).await?;
            cx.write(Slice::first(3), at(1001)).await?;
            cx.write_word(at(104), 1).await?;
            cx.fetch_add(at(104), 5).await?;
            cx.compare_swap(at(2048), 1, 2).await
        })
        .expect("the node is there");
        assert_ne!(now(), first);
        sim.undo_changes(node);
        assert_eq!(now(), first);
    }
}
