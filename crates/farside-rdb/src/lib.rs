//! Redis's formats for values outside a server: RDB files, and the payload of DUMP and RESTORE.
//!
//! On the path: `farside export` and `import`, and two commands of the gateway. Nothing here knows of a store.
//!
//! ```text
//! file     "REDIS", version in four digits, then parts that begin with a byte:
//!          0xfa  key and value: what wrote it
//!          0xfe  number of a database; 0xfb, how many keys it has and how many of them expire
//!          0xfc  expiry in ms since 1970, 8 bytes; 0xfd, in seconds, 4 bytes: of the value that follows
//!          0..   type of a value, its key, the value
//!          0xff  the end; then CRC-64 of all before, 8 bytes (0: none)
//!
//! length   00 in the upper two bits: the other six. 01: 14 bits. 0x80: 4 bytes, 0x81: 8 bytes, the highest first. 11: not a
//!          length: 0xc0, 0xc1, 0xc2: a number of 1, 2, 4 bytes, whose decimal digits are the string; 0xc3: LZF, length
//!          compressed and not
//!
//! payload  type, value, version in 2 bytes, CRC-64 of all before
//! ```
//!
//! Streams and values of modules are passed over, and named to whoever reads.

#![forbid(unsafe_code)]

mod compact;
mod error;
mod payload;
mod reader;
mod skip;
mod value;
mod writer;

pub use error::RdbError;
pub use payload::{PayloadError, dump, restore};
pub use reader::{Reader, Record};
pub use writer::Writer;

use crc::{CRC_64_REDIS, Crc, Table};

/// The version that is written: that of Redis 5, which every server since reads.
pub const VERSION: u16 = 9;
/// The newest version that is read: what a value was written as once has never changed.
pub const VERSION_MAX: u16 = 99;

/// The longest string that is read: Redis allows no longer ones.
pub const STRING_BYTES_MAX: u64 = 512 << 20;

static CRC: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_REDIS);

const TYPE_STRING: u8 = 0;

mod opcode {
    pub(crate) const SLOT: u8 = 0xf4;
    pub(crate) const FUNCTION: u8 = 0xf5;
    pub(crate) const FUNCTION_EARLY: u8 = 0xf6;
    pub(crate) const MODULE: u8 = 0xf7;
    pub(crate) const IDLE: u8 = 0xf8;
    pub(crate) const FREQUENCY: u8 = 0xf9;
    pub(crate) const AUX: u8 = 0xfa;
    pub(crate) const SIZES: u8 = 0xfb;
    pub(crate) const EXPIRY_MS: u8 = 0xfc;
    pub(crate) const EXPIRY: u8 = 0xfd;
    pub(crate) const DATABASE: u8 = 0xfe;
    pub(crate) const END: u8 = 0xff;
}
