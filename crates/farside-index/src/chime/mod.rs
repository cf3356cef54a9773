//! CHIME: a B+ tree whose leaves are hopscotch hash tables (Luo et al., *CHIME: A Cache-Efficient and High-Performance
//! Hybrid Index on Disaggregated Memory*, SOSP 2024).
//!
//! On the path: what a leaf of [`crate::tree`] looks like. A SEARCH reads the eight entries where its key may be, not the whole
//! leaf. The leaf as arithmetic, without far memory, is in [`hopscotch`].

pub mod hopscotch;
pub(crate) mod hotspot;

pub use self::hotspot::HOTSPOT_BYTES;
use crate::tree::Shape;

/// The published leaf: 64 entries, neighbourhoods of 8 (CHIME, section 5.1).
pub const LEAF: Shape = Shape::hopscotch(64, 8);
