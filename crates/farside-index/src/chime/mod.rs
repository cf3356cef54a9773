//! CHIME: a B+ tree whose leaves are hopscotch hash tables (Luo et al., *CHIME: A Cache-Efficient and High-Performance
//! Hybrid Index on Disaggregated Memory*).
//!
//! The leaf as arithmetic, without far memory: who may be where ([`hopscotch`]).

pub mod hopscotch;
