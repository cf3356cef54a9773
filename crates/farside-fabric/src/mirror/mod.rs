//! Mirrored nodes: a primary and its backups, below the verbs.
//!
//! On the path: a node that is mirrored executes what its clients send through its [`Member`], and lets an answer go
//! when the member says so. The daemon (`tcp`) and the simulator (`farside-sim`) run the same member: it has no clock,
//! no socket and no task of its own; whoever drives it passes in what happened and carries out its [`Output`]s.
//!
//! # The protocol
//!
//! A group is the members of one [`View`]: a primary and up to two backups, with an epoch. Which view follows a view is
//! decided outside, by a membership service that takes exactly one view per epoch (etcd, or an operator for a pair
//! without etcd). Members only [propose](Output::Propose).
//!
//! - *Log.* The primary executes verbs in the order in which they come and appends one entry to its log for each request
//!   that changes something: the bytes that changed, and the answer. Entries have consecutive numbers. Backups apply
//!   them in this order, so that a backup always is a prefix of the primary.
//! - *Commit.* An entry is committed when all backups of the view have applied it. No answer leaves the primary before
//!   all that it may have seen is committed; so an answer is never contradicted by a backup that takes over.
//! - *Reads.* READs are not logged. The primary may answer while each backup grants it the time: a backup that wants to
//!   take over first stops granting and waits until its last grant has run out. Clocks need not agree, only run
//!   nearly alike ([`Settings::patience_ns`]).
//! - *Exactly once.* Entries hold the answers, and members keep those a client may not have read yet. A client
//!   that comes to a new primary sends again what was not answered: what was executed is answered from there, the rest
//!   is executed. Messages are numbered in the same way.
//! - *Catching up.* A member that joins is sent all memory in stream order between the entries; the clients' state comes last. One
//!   that was away for a moment says how far it came, and is sent the rest of the log, if its entries are a prefix of
//!   the primary's, which the ends of the epochs decide.
//! - *Starting anew.* A process that is started again is another member, and is copied like any other. Only if nobody of the view is
//!   left may it go on with the memory that its predecessor left in the segment, if the view names this segment: then all that was acknowledged is there.
//!   The group begins a new life, in which no client of the former is known. A segment is copied over only once no view names it.
//! - *Who counts.* Before a primary proposes a view with one backup more it waits for that one's acknowledgements as for
//!   the others'; one that it proposes to leave out is waited for until the view is decided.
//!
//! # Invariants
//! - a view has one primary, and no two views have the same epoch (the membership's promise);
//! - a member that is in a view as backup has applied all entries whose answers have left a primary, in all views before;
//! - a member follows the primary of the newest view it knows, and refuses notes of an older epoch;
//! - between the grant of a backup and the end of its time that backup is not primary.
//!
//! What is not kept: a READ and a later mutation of one client that are both under way when the primary changes may be executed in the other
//! order, unless they are of one batch. No operation posts a mutation beside a READ whose result it needs.

mod clients;
mod entry;
mod follower;
mod history;
mod log;
mod member;
mod note;
mod primary;
mod view;

pub use history::Position;
pub use member::{Contents, Executed, Member, Output, Refusal, RoleName, Settings, Standing, Start, Status};
pub use note::{Note, NoteError};
pub use view::{BACKUPS_MAX, MemberId, Peer, View};

/// A view's bytes, as a node sends them.
pub(crate) fn decode_view(bytes: &[u8]) -> Result<View, NoteError> {
    let mut reader = note::Reader::new(bytes);
    let view = reader.view()?;
    reader.end()?;
    Ok(view)
}

#[cfg(test)]
mod tests;
