//! Whether a node may be a member of its group, and who makes the group.
//!
//! Joining replaces what is in a segment, and making a group begins a life in which other segments count nothing. So before a
//! member acts on a view, its segment's [`Lineage`] is compared with it:
//!
//! | etcd has | the segment is | |
//! |---|---|---|
//! | no view | new, or of no group | it makes the group, unless it is a standby |
//! | no view | of a group | refused: etcd has lost its data |
//! | a view | new, or of the same group | it is a member, unless it knows a later epoch: then etcd's data are old |
//! | a view | of another group, or with data of its own | refused: joining would replace what it holds |

use std::path::PathBuf;

use farside_fabric::host::{HostClock, HostRandom};
use farside_fabric::mirror::{Peer, View};
use farside_fabric::tcp::Membership;
use tokio::sync::mpsc;

use crate::client::{Client, EtcdError};
use crate::keys::{Stored, view_key};
use crate::lineage::Lineage;
use crate::membership::{Asker, Backoff};
use crate::name::ClusterName;
use crate::wire::{self, Entry, Swap};

/// Who wants to be a member.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Of which cluster.
    pub cluster: ClusterName,
    /// Of which node of its pool.
    pub node: u16,
    /// This run of the process, its segment and address.
    pub member: Peer,
    /// Wait for a group, never make one.
    pub is_standby: bool,
    /// The segment has just been made.
    pub is_new: bool,
    /// The segment's file, for messages.
    pub segment: PathBuf,
    /// The file that says of which group the segment is.
    pub lineage: PathBuf,
    /// The newest view that an earlier process over the segment knew.
    pub known: Option<View>,
}

/// The node may not be a member.
#[derive(Debug, thiserror::Error)]
pub enum EnterError {
    /// The file that says of which group the segment is.
    #[error("{path}: {source}")]
    Lineage {
        /// Where it is.
        path: String,
        /// What the system says, or what is wrong with it.
        source: std::io::Error,
    },
    /// The segment is of another node or cluster.
    #[error(
        "{segment} belongs to node {node} of cluster `{cluster}`: say --cluster and --node as before, or take another segment"
    )]
    OtherNode {
        /// The file.
        segment: String,
        /// Whose it is.
        cluster: String,
        /// Which node of it.
        node: u16,
    },
    /// The group that the segment is of is not in etcd.
    #[error(
        "etcd at {etcd} knows no view of node {node} of cluster `{cluster}`, of which {segment} is a member: if etcd has lost its data, \
         choose the member that is to go on (the highest epoch in its .view file), remove its .view and .cluster files and start it first"
    )]
    Lost {
        /// Who was asked.
        etcd: String,
        /// Of which cluster.
        cluster: String,
        /// Which node of it.
        node: u16,
        /// The file.
        segment: String,
    },
    /// There is a group that the segment is not of.
    #[error(
        "{segment} holds data of its own, which joining node {node} of cluster `{cluster}` would replace: if nobody needs them, \
         remove the file (and its .view and .cluster files) and say --memory"
    )]
    Foreign {
        /// The file.
        segment: String,
        /// Of which cluster.
        cluster: String,
        /// Which node of it.
        node: u16,
    },
    /// The segment has seen what etcd does not know.
    #[error(
        "etcd at {etcd} says that epoch {found} is in force, and {segment} has been in epoch {known}: etcd's data are from a backup, or of \
         another etcd; restore the newest"
    )]
    Outdated {
        /// Who was asked.
        etcd: String,
        /// The file.
        segment: String,
        /// What etcd says.
        found: u64,
        /// What the segment knows.
        known: u64,
    },
    /// The segment was in a group that an operator looked after.
    #[error(
        "{segment} was mirrored by hand, with other members: if it is the one that is to go on, remove its .view file and start it first"
    )]
    ByHand {
        /// The file.
        segment: String,
    },
    /// The view in etcd was not written by a node.
    #[error("{key} in etcd at {etcd} is no view of a Farside node: another program has written it, or a later release")]
    View {
        /// Who was asked.
        etcd: String,
        /// Which key.
        key: String,
    },
}

/// Waits until etcd answers, makes the group if there is none, and returns the two ends of the membership: one for the node's server,
/// one to be run beside it.
///
/// # Errors
/// [`EnterError`], if the node must not be a member.
pub async fn enter(candidate: Candidate) -> Result<(Membership, Asker), EnterError> {
    let lineage = candidate.begin()?;
    let client = Client::new(candidate.cluster.endpoints.clone());
    let mut backoff = Backoff::default();
    let found = loop {
        match candidate.look_or_make(&client, lineage.as_ref()).await {
            Ok(found) => break found?,
            Err(error) => {
                if backoff.is_first() {
                    tracing::warn!("{error}: waiting for it");
                }
                HostClock.sleep(backoff.next_ns()).await;
            }
        }
    };
    let (proposals, proposed) = mpsc::unbounded_channel();
    let (deciding, decisions) = mpsc::unbounded_channel();
    let membership = Membership {
        member: candidate.member.id,
        proposals,
        decisions,
    };
    let asker = Asker::new(candidate, client, found, proposed, deciding);
    Ok((membership, asker))
}

/// A view in etcd, and the revision at which it was written.
pub(crate) type Found = (Stored, u64);

impl Candidate {
    fn segment_text(&self) -> String {
        self.segment.display().to_string()
    }

    fn lineage_error(&self, source: std::io::Error) -> EnterError {
        EnterError::Lineage {
            path: self.lineage.display().to_string(),
            source,
        }
    }

    /// What is known of the segment; a new one is noted.
    fn begin(&self) -> Result<Option<Lineage>, EnterError> {
        if self.is_new {
            let lineage = Lineage::new(&self.cluster, self.node, None);
            lineage
                .write(&self.lineage)
                .map_err(|error| self.lineage_error(error))?;
            return Ok(Some(lineage));
        }
        let lineage = Lineage::read(&self.lineage).map_err(|error| self.lineage_error(error))?;
        match lineage {
            Some(Lineage { cluster, node, .. }) if cluster != self.cluster.name || node != self.node => {
                Err(EnterError::OtherNode {
                    segment: self.segment_text(),
                    cluster,
                    node,
                })
            }
            lineage => Ok(lineage),
        }
    }

    fn view_key(&self) -> String {
        view_key(&self.cluster, self.node)
    }

    async fn look_or_make(
        &self,
        client: &Client,
        lineage: Option<&Lineage>,
    ) -> Result<Result<Option<Found>, EnterError>, EtcdError> {
        let key = self.view_key();
        let range = client.ask("/v3/kv/range", &wire::range(&key), wire::read_range).await?;
        let mut entry = range.entries.into_iter().next();
        if entry.is_none() && self.is_standby {
            return Ok(Ok(None));
        }
        if entry.is_none() {
            let first = match self.first(lineage) {
                Ok(first) => first,
                Err(error) => return Ok(Err(error)),
            };
            let swap = wire::swap(&key, 0, &first.encode());
            match client.ask("/v3/kv/txn", &swap, wire::read_swap).await? {
                Swap::Done(revision) => {
                    tracing::info!(cluster = %self.cluster, node = self.node, "made the group");
                    // If it is not noted, the view still names the segment.
                    return Ok(self.note(first.group).map(|()| Some((first, revision))));
                }
                // Somebody else was faster, or this one was, and the answer is lost.
                Swap::Lost(there) => entry = there,
            }
        }
        Ok(match entry {
            Some(entry) => self.check(&entry, lineage).map(Some),
            None => Ok(None),
        })
    }

    /// The first view of a group that this member makes.
    fn first(&self, lineage: Option<&Lineage>) -> Result<Stored, EnterError> {
        if lineage.is_some_and(|lineage| lineage.group.is_some()) {
            return Err(EnterError::Lost {
                etcd: self.cluster.etcd(),
                cluster: self.cluster.name.clone(),
                node: self.node,
                segment: self.segment_text(),
            });
        }
        let known = self.known.as_ref().filter(|_| !self.is_new);
        let was_alone = |view: &View| view.backups.is_empty() && view.primary.segment == self.member.segment;
        if known.is_some_and(|view| !was_alone(view)) {
            return Err(EnterError::ByHand {
                segment: self.segment_text(),
            });
        }
        let view = View {
            epoch: known.map_or(1, |view| view.epoch + 1),
            primary: self.member.clone(),
            backups: Vec::new(),
        };
        let group = HostRandom::new().random();
        Ok(Stored { view, group })
    }

    /// Whether the member may act on a view that it finds, which is noted then.
    pub(crate) fn check(&self, entry: &Entry, lineage: Option<&Lineage>) -> Result<Found, EnterError> {
        let stored = Stored::decode(&entry.value).ok_or_else(|| EnterError::View {
            etcd: self.cluster.etcd(),
            key: entry.key.clone(),
        })?;
        let is_named = stored.view.peers().any(|peer| peer.segment == self.member.segment);
        let is_ours = match lineage {
            Some(Lineage { group: Some(group), .. }) => *group == stored.group,
            Some(_) => true,
            None => is_named,
        };
        if !is_ours {
            return Err(EnterError::Foreign {
                segment: self.segment_text(),
                cluster: self.cluster.name.clone(),
                node: self.node,
            });
        }
        let known = self
            .known
            .as_ref()
            .filter(|_| !self.is_new)
            .map_or(0, |view| view.epoch);
        if known > stored.view.epoch {
            return Err(EnterError::Outdated {
                etcd: self.cluster.etcd(),
                segment: self.segment_text(),
                found: stored.view.epoch,
                known,
            });
        }
        self.note(stored.group)?;
        Ok((stored, entry.revision))
    }

    /// Notes of which group the segment is.
    fn note(&self, group: u64) -> Result<(), EnterError> {
        let lineage = Lineage::new(&self.cluster, self.node, Some(group));
        lineage.write(&self.lineage).map_err(|error| self.lineage_error(error))
    }

    /// The same for a standby that began when there was no view.
    pub(crate) fn check_first(&self, entry: &Entry) -> Result<Found, EnterError> {
        let lineage = Lineage::read(&self.lineage).map_err(|error| self.lineage_error(error))?;
        self.check(entry, lineage.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use farside_fabric::mirror::MemberId;

    use super::*;

    const SEGMENT: u64 = 5;

    fn peer(segment: u64) -> Peer {
        Peer {
            id: MemberId(segment + 100),
            segment,
            address: format!("host{segment}:7380"),
        }
    }

    fn candidate(folder: &tempfile::TempDir, is_new: bool, known: Option<View>) -> Candidate {
        Candidate {
            cluster: "etcd:a:1/main".parse().expect("a name"),
            node: 0,
            member: peer(SEGMENT),
            is_standby: false,
            is_new,
            segment: folder.path().join("a"),
            lineage: folder.path().join("a.cluster"),
            known,
        }
    }

    fn view(epoch: u64, members: &[u64]) -> View {
        View {
            epoch,
            primary: peer(members[0]),
            backups: members[1..].iter().map(|&segment| peer(segment)).collect(),
        }
    }

    fn entry(epoch: u64, members: &[u64], group: u64) -> Entry {
        let view = view(epoch, members);
        Entry {
            key: "/farside/main/nodes/0/view".to_owned(),
            value: Stored { view, group }.encode(),
            revision: 3,
        }
    }

    fn of(candidate: &Candidate, group: Option<u64>) -> Lineage {
        Lineage::new(&candidate.cluster, candidate.node, group)
    }

    #[test]
    fn who_is_new_or_of_no_group_makes_one_and_whose_group_is_lost_does_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let new = candidate(&folder, true, None);
        let noted = new.begin().expect("there is room");
        assert_eq!(noted, Some(of(&new, None)));
        assert_eq!(new.first(noted.as_ref()).expect("it may").view, view(1, &[SEGMENT]));
        let alone = candidate(&folder, false, Some(view(6, &[SEGMENT])));
        assert_eq!(alone.first(None).expect("it may").view, view(7, &[SEGMENT]));
        let among = candidate(&folder, false, Some(view(6, &[SEGMENT, 2])));
        assert!(matches!(among.first(None), Err(EnterError::ByHand { .. })));
        let lost = of(&new, Some(1));
        assert!(matches!(alone.first(Some(&lost)), Err(EnterError::Lost { .. })));
    }

    #[test]
    fn data_that_are_not_of_the_group_are_not_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let old = candidate(&folder, false, None);
        let check = |lineage: Option<Lineage>, entry: &Entry| old.check(entry, lineage.as_ref());
        assert!(matches!(
            check(None, &entry(1, &[2], 1)),
            Err(EnterError::Foreign { .. })
        ));
        assert!(matches!(
            check(Some(of(&old, Some(9))), &entry(1, &[2], 1)),
            Err(EnterError::Foreign { .. })
        ));
        check(Some(of(&old, Some(1))), &entry(1, &[2], 1)).expect("of the same group");
        check(Some(of(&old, None)), &entry(1, &[2], 1)).expect("of none before");
        check(None, &entry(1, &[2, SEGMENT], 1)).expect("the view names it");
        assert_eq!(
            Lineage::read(&old.lineage).expect("whole"),
            Some(of(&old, Some(1))),
            "it is noted"
        );
    }

    #[test]
    fn an_etcd_that_knows_less_than_the_segment_is_not_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let known = candidate(&folder, false, Some(view(7, &[2, SEGMENT])));
        let lineage = of(&known, Some(1));
        let checked = known.check(&entry(6, &[SEGMENT], 1), Some(&lineage));
        assert!(matches!(checked, Err(EnterError::Outdated { found: 6, known: 7, .. })));
        known
            .check(&entry(7, &[2, SEGMENT], 1), Some(&lineage))
            .expect("the same");
    }

    #[test]
    fn a_segment_of_another_node_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let candidate = candidate(&folder, false, None);
        let other = Lineage {
            node: 1,
            ..of(&candidate, Some(1))
        };
        other.write(&candidate.lineage).expect("there is room");
        let error = candidate.begin().expect_err("of node 1").to_string();
        assert!(error.contains("belongs to node 1 of cluster `main`"), "{error}");
    }
}
