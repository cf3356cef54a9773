//! Sherman: a B+ tree whose leaves are written entry by entry (Wang et al., *Sherman: A Write-Optimized Distributed B+Tree
//! Index on Disaggregated Memory*, SIGMOD 2022).
//!
//! On the path: what a leaf of [`crate::tree`] looks like. Keys stand in a leaf in no order, so a SEARCH reads all of it; a
//! change writes one entry and gives the lock back in the same round trip. Where the published leaf has two versions at
//! both ends of an entry, which do not suffice, here each entry has a check (CHIME, section 5.1, repairs it with versions in
//! each cache line).

use crate::tree::Shape;

/// The published leaf: 64 entries (CHIME, section 5.1).
pub const LEAF: Shape = Shape::unsorted(64);
