//! Marlin: a B+ tree whose leaves are changed by several clients at a time (An et al., *Marlin: A Concurrent and Write-Optimized
//! B+-tree Index on Disaggregated Memory*, ICPP 2023).
//!
//! On the path: what a leaf of [`crate::tree`] looks like, and who may change what of it. Values are data pointers. INSERT, UPDATE and
//! DELETE of one leaf go on at the same time, each by a compare-and-swap of a word of its entry; a change of structure excludes them.
//!
//! # What is published, and what is here
//! In the publication a *ternary lock* in the leaf counts who is inside: each INSERT, UPDATE and DELETE adds one with a
//! fetch-and-add and takes it away in the end, and a change of structure subtracts so much that the others stay away. A
//! client that dies inside leaves its count for ever, and all of them meet at one word. Here each *entry* has the three states: it is
//! vacant or taken, claimed by one client, or closed.
//! - An UPDATE replaces the pointer and nothing else; a change of structure freezes it (`tree::slot`).
//! - An INSERT claims a vacant entry, with its own name, and looks whether the leaf is about to be written, the key is
//!   there, or somebody claims another entry for it. A DELETE swaps the pointer to nothing, then the entry is vacant.
//! - A change of structure locks the leaf against others of its kind, then closes each vacant entry and freezes each taken
//!   one, and waits for claims.
//!
//! So an UPDATE needs no verb for a lock, an INSERT three round trips instead of four, and whoever waits for a claim knows
//! for whom: a claim of a client that is gone is void.

use crate::tree::Shape;

/// The published leaf: 64 entries (CHIME, section 5.1).
pub const LEAF: Shape = Shape::unsorted(64).with_claims();
