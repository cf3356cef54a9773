//! Who may do what: users with passwords and rules, as Redis 7 has them.
//!
//! On the path: a client holds its [`User`], and whether that may do everything; then nothing is looked up. For others, each
//! command is held against the user's rules (`permit`) where it is checked. A change puts another user into the table and
//! leaves a mark on the card of each connection, which looks anew before its next command.
//!
//! [`selector`] has the rules about commands and keys, [`user`] those about the user, [`file`](mod@file) users as lines,
//! [`log`] what was refused.

mod digest;
mod file;
pub(crate) mod log;
pub(crate) mod permit;
pub(crate) mod selector;
pub(crate) mod user;
mod users;

pub(crate) use self::digest::random_hex;
pub(crate) use self::log::Refused;
pub(crate) use self::user::User;
pub use self::users::{AclError, Users};
