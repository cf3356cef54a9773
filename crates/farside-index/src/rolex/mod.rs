//! ROLEX: a learned index (Li et al., *ROLEX: A Scalable RDMA-oriented Learned Key-Value Store for Disaggregated Memory Systems*,
//! FAST 2023), and CHIME-Learned, which has CHIME's leaves below the same models (CHIME, section 5.3).
//!
//! On the path: how a client remembers the nodes of a [`crate::tree`]. Where others keep the smallest key of each leaf, a client of
//! a learned tree keeps a few straight lines that say where the leaf of a key is, up to an [error](ERROR); it READs all leaves that
//! this leaves, in one round trip.
//!
//! # What is published, and what is here
//! In the publication models and tables of leaves are in far memory, each compute node has a copy, and a leaf that is full
//! gets a *synonym leaf* beside it until the models are trained again. Here far memory has the nodes of a B-link tree, and
//! models are what a client makes of those that it has read:
//! - a leaf that is full is split, and the new leaf is what a synonym leaf is: whoever does not know it yet comes to it from its
//!   neighbour;
//! - a model is out of date if a leaf names another sibling than the model's table does. Then the client reads that
//!   node and trains its model again: of 64 leaves, and nobody has to wait for it;
//! - so nothing has to be done in far memory to train, and nobody can die within it.

use crate::tree::Shape;

/// The published leaf: 16 entries (CHIME, section 5.1).
pub const LEAF: Shape = Shape::unsorted(16).learned();

/// How far a model is wrong at most, in keys (CHIME, section 5.1).
pub const ERROR: usize = 16;
