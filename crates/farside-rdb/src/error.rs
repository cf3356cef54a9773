//! What can be wrong with an RDB file.

use crate::VERSION_MAX;

/// A file cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RdbError {
    /// What holds the file failed.
    #[error("cannot read: {0}")]
    Read(#[from] std::io::Error),
    /// It does not begin like one.
    #[error("not an RDB file: it does not begin with REDIS and a version")]
    Foreign,
    /// It was written by a later server.
    #[error("the file has RDB version {version}, versions up to {VERSION_MAX} are read")]
    Version {
        /// What it has.
        version: u16,
    },
    /// It ends before its end.
    #[error("the file is cut off after {bytes} bytes")]
    CutOff {
        /// How long it is.
        bytes: u64,
    },
    /// It was changed, or damaged.
    #[error("the checksum of the file is {found:016x}, its contents have {computed:016x}: it is damaged")]
    Checksum {
        /// What it says.
        found: u64,
        /// What is right.
        computed: u64,
    },
    /// A part of it makes no sense.
    #[error("damaged at byte {at}: {what}")]
    Damaged {
        /// Where.
        at: u64,
        /// What is wrong.
        what: &'static str,
    },
}
