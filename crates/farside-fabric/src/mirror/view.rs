//! Who is primary and who is backup.

use core::fmt;

use crate::host::HostRandom;

/// How many backups a primary has at most.
pub const BACKUPS_MAX: usize = 2;

/// How far apart the epochs of primaries are that no membership numbers: more views than one of them decides alone.
const VIEWS_PER_REIGN: u64 = 1_000_000;

/// One run of a node's process. A process that is started anew is another member: what it knew is gone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MemberId(pub u64);

impl MemberId {
    /// Of a process that starts now. Never 0, which a group's life is not called by.
    #[must_use]
    pub fn draw() -> Self {
        Self(HostRandom::new().random() | 1)
    }
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A member and where it listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Which run of a process.
    pub id: MemberId,
    /// Which memory: the same in all runs of a process over one segment.
    pub segment: u64,
    /// `host:port`, for clients and members.
    pub address: String,
}

/// Who serves a group, from one decision of the membership to the next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct View {
    /// Counts the views of the group, from 1.
    pub epoch: u64,
    /// Executes verbs.
    pub primary: Peer,
    /// Have all that is acknowledged.
    pub backups: Vec<Peer>,
}

impl View {
    /// Whether the member is in the view.
    #[must_use]
    pub fn includes(&self, member: MemberId) -> bool {
        self.primary.id == member || self.has_backup(member)
    }

    /// Whether the member is a backup of the view.
    #[must_use]
    pub fn has_backup(&self, member: MemberId) -> bool {
        self.backups.iter().any(|backup| backup.id == member)
    }

    /// The primary and the backups.
    pub fn peers(&self) -> impl Iterator<Item = &Peer> {
        core::iter::once(&self.primary).chain(&self.backups)
    }

    /// The next view, with one backup more.
    #[must_use]
    pub fn with_backup(&self, backup: Peer) -> Self {
        let mut next = self.next();
        next.backups.push(backup);
        next
    }

    /// The next view, without a backup.
    #[must_use]
    pub fn without_backup(&self, backup: MemberId) -> Self {
        let mut next = self.next();
        next.backups.retain(|peer| peer.id != backup);
        next
    }

    /// The next view, with another primary and no backups.
    #[must_use]
    pub fn led_by(&self, primary: Peer) -> Self {
        Self {
            epoch: self.epoch + 1,
            primary,
            backups: Vec::new(),
        }
    }

    /// The same without a membership that numbers views: a primary that is cut off goes on numbering its own, and none of
    /// these must come to the number of a view that somebody else leads.
    #[must_use]
    pub fn taken_over_by(&self, primary: Peer) -> Self {
        Self {
            epoch: (self.epoch / VIEWS_PER_REIGN + 1) * VIEWS_PER_REIGN,
            ..self.led_by(primary)
        }
    }

    fn next(&self) -> Self {
        Self {
            epoch: self.epoch + 1,
            ..self.clone()
        }
    }
}

impl fmt::Display for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epoch {}, primary {}", self.epoch, self.primary.address)?;
        for backup in &self.backups {
            write!(f, ", backup {}", backup.address)?;
        }
        Ok(())
    }
}
