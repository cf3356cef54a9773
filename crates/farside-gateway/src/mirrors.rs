//! Mirrored nodes, as their members say that they are.
//!
//! On the path: beside it. Who looks at a gateway or a node has the members asked, each over a connection of its own, and all
//! at once; one that does not answer within half a second is silent. No verb is posted, so a node without a primary can be
//! looked at, and clients do not notice.

use farside_fabric::mirror::{BACKUPS_MAX, RoleName, Standing, View};
use farside_fabric::tcp::{Said, Secret, ask_members, newest_view};
use farside_fabric::{Endpoint, LocalFuture, NodeId, join_all};
use serde::{Deserialize, Serialize};

/// A mirrored node: who is in its group, and how far behind.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct MirrorReport {
    /// The epoch of the newest view that a member knows; 0 if none answers.
    pub epoch: u64,
    /// Where the primary of that view is; empty if none answers.
    pub primary: String,
    /// Whether it answers as such.
    pub has_primary: bool,
    /// The last change that all backups have, as the primary counts.
    pub committed: u64,
    /// The members: the primary first, then by address.
    pub members: Vec<MemberReport>,
}

/// A member of a mirrored node.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct MemberReport {
    /// Its host and port.
    pub address: String,
    /// `primary`, `backup`, `joining` (it copies what it lacks), `standby` (it has everything, and takes the next free place), `idle` (it follows nobody) or `silent` (it does not answer).
    pub role: String,
    /// The epoch of the newest view that it knows; 0 if it knows none, or does not answer.
    pub epoch: u64,
    /// How many changes it is behind the primary.
    pub lag_entries: u64,
    /// How many bytes of memory are still to be copied to it.
    pub lag_bytes: u64,
    /// How many clients it knows.
    pub clients: u64,
}

/// The roles, by their names in reports.
pub const ROLES: [&str; 6] = ["primary", "backup", "joining", STANDBY, "idle", SILENT];
/// The role of whoever has everything, for whom there is no place among the backups.
const STANDBY: &str = "standby";
/// The role of whoever does not answer.
const SILENT: &str = "silent";

fn role(standing: Option<&Standing>) -> &'static str {
    match standing.map(|standing| standing.role) {
        Some(RoleName::Primary) => "primary",
        Some(RoleName::Backup) => "backup",
        Some(RoleName::Joining) => "joining",
        Some(RoleName::Idle) => "idle",
        None => SILENT,
    }
}

impl MirrorReport {
    /// Of a group of which nobody answers.
    #[must_use]
    pub fn silent(names: &[String]) -> Self {
        let members = names.iter().map(|address| MemberReport {
            address: address.clone(),
            role: SILENT.to_owned(),
            ..MemberReport::default()
        });
        Self {
            members: members.collect(),
            ..Self::default()
        }
    }

    /// How many members have this role.
    #[must_use]
    pub fn count(&self, role: &str) -> usize {
        self.members.iter().filter(|member| member.role == role).count()
    }

    /// How many changes the member is behind that is furthest behind, and how many bytes are still to be copied to all.
    #[must_use]
    pub fn lag(&self) -> (u64, u64) {
        let entries = self.members.iter().map(|member| member.lag_entries).max();
        let bytes = self.members.iter().map(|member| member.lag_bytes).sum();
        (entries.unwrap_or(0), bytes)
    }

    /// What these members have said, or not; `None` if none knows a view.
    fn of(said: &Said) -> Option<Self> {
        let newest = newest_view(said)?;
        let address = &newest.primary.address;
        // A primary that was deposed, and does not know it yet, serves nobody.
        let standing = said.get(address).and_then(Option::as_ref);
        let primary = standing.filter(|standing| {
            standing.role == RoleName::Primary
                && (standing.view.as_ref()).is_some_and(|view| view.epoch == newest.epoch)
        });
        let committed = primary.map_or(0, |primary| primary.committed);
        // Whoever was let go, and is switched off, is nobody's concern.
        let members = said
            .iter()
            .filter(|(address, standing)| standing.is_some() || in_view(newest, address));
        let mut members: Vec<MemberReport> = members
            .map(|(address, standing)| {
                let standing = standing.as_ref();
                let (lag_entries, lag_bytes) = primary.map_or((0, 0), |primary| lag(primary, newest, address));
                let view = standing.and_then(|standing| standing.view.as_ref());
                let is_ready = primary.is_some() && (lag_entries, lag_bytes) == (0, 0);
                let role = match role(standing) {
                    "joining" if is_ready && newest.backups.len() == BACKUPS_MAX => STANDBY,
                    role => role,
                };
                MemberReport {
                    address: address.clone(),
                    role: role.to_owned(),
                    epoch: view.map_or(0, |view| view.epoch),
                    lag_entries,
                    lag_bytes,
                    clients: standing.map_or(0, |standing| standing.clients as u64),
                }
            })
            .collect();
        members.sort_by_key(|member| member.address != *address);
        Some(Self {
            epoch: newest.epoch,
            primary: address.clone(),
            has_primary: primary.is_some(),
            committed,
            members,
        })
    }
}

fn in_view(view: &View, address: &str) -> bool {
    view.peers().any(|peer| peer.address == address)
}

/// How far behind the primary a member is, in changes and in bytes to be copied.
fn lag(primary: &Standing, view: &View, address: &str) -> (u64, u64) {
    let mut followers = primary.followers.iter();
    match followers.find(|(peer, ..)| peer.address == address) {
        Some(&(_, entries, bytes)) => (entries, bytes),
        // A backup that has no connection to the primary: the primary waits for it with all that is not committed.
        None if address != view.primary.address && in_view(view, address) => {
            (primary.last.saturating_sub(primary.committed), 0)
        }
        None => (0, 0),
    }
}

/// Asks the members with these addresses and whomever they name, each up to `attempts` times. `None` if none of them is a member that
/// knows its group.
pub async fn ask(
    names: impl Iterator<Item = String>,
    secret: Option<&Secret>,
    attempts: usize,
) -> Option<MirrorReport> {
    MirrorReport::of(&ask_members(names, secret, attempts).await)
}

/// Asks the members of each node that is mirrored, as this endpoint knows them.
pub(crate) async fn ask_all(endpoint: &Endpoint, secret: Option<&Secret>) -> Vec<Option<MirrorReport>> {
    let Some(remote) = endpoint.remote() else {
        return Vec::new();
    };
    let nodes = (0..endpoint.node_count()).map(|node| {
        let names = remote.members(NodeId::new(node as u16));
        let asked: LocalFuture<'_, Option<MirrorReport>> = Box::pin(async move {
            if names.is_empty() {
                return None;
            }
            let report = ask(names.iter().cloned(), secret, 1).await;
            Some(report.unwrap_or_else(|| MirrorReport::silent(&names)))
        });
        asked
    });
    join_all(nodes.collect()).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use farside_fabric::mirror::{MemberId, Peer};

    fn peer(number: u64) -> Peer {
        Peer {
            id: MemberId(number),
            segment: number,
            address: format!("m:{number}"),
        }
    }

    fn view(epoch: u64, primary: u64, backups: &[u64]) -> View {
        View {
            epoch,
            primary: peer(primary),
            backups: backups.iter().map(|&number| peer(number)).collect(),
        }
    }

    fn standing(role: RoleName, view: &View) -> Standing {
        Standing {
            role,
            view: Some(view.clone()),
            last: 50,
            committed: 40,
            followers: Vec::new(),
            clients: 3,
        }
    }

    fn report(said: &[(u64, Option<Standing>)]) -> Option<MirrorReport> {
        let said = said
            .iter()
            .map(|(number, standing)| (format!("m:{number}"), standing.clone()));
        MirrorReport::of(&said.collect())
    }

    #[test]
    fn lag_of_each_member_is_what_the_primary_says() {
        let view = view(3, 2, &[1]);
        let mut primary = standing(RoleName::Primary, &view);
        primary.followers = vec![(peer(1), 4, 0), (peer(3), 7, 4096)];
        let told = report(&[
            (1, Some(standing(RoleName::Backup, &view))),
            (2, Some(primary)),
            (3, Some(standing(RoleName::Joining, &view))),
        ])
        .expect("they know a view");
        let lines = told.members.iter().map(|member| {
            let MemberReport { address, role, .. } = member;
            (&**address, &**role, member.lag_entries, member.lag_bytes)
        });
        assert_eq!(
            lines.collect::<Vec<_>>(),
            [
                ("m:2", "primary", 0, 0),
                ("m:1", "backup", 4, 0),
                ("m:3", "joining", 7, 4096)
            ]
        );
        assert!(told.has_primary);
        assert_eq!((told.epoch, told.committed, told.lag()), (3, 40, (7, 4096)));
    }

    #[test]
    fn backup_that_is_silent_is_as_far_behind_as_the_primary_waits_for_it() {
        let view = view(2, 1, &[2]);
        let told = report(&[(1, Some(standing(RoleName::Primary, &view))), (2, None)]).expect("one knows a view");
        assert_eq!(
            (told.members[1].role.as_str(), told.members[1].lag_entries),
            ("silent", 10)
        );
    }

    #[test]
    fn primary_of_an_older_view_is_none() {
        let (old, new) = (view(2, 1, &[2]), view(3, 2, &[]));
        let told = report(&[(1, Some(standing(RoleName::Primary, &old))), (2, None)]).expect("one knows a view");
        assert!(told.has_primary, "nobody says that it is not");
        let told = report(&[
            (1, Some(standing(RoleName::Primary, &old))),
            (2, Some(standing(RoleName::Backup, &new))),
        ])
        .expect("they know views");
        assert!(!told.has_primary, "{told:?}");
        assert_eq!((told.epoch, &*told.primary), (3, "m:2"));
    }

    #[test]
    fn whoever_was_let_go_and_is_off_is_not_a_member() {
        let view = view(4, 1, &[]);
        let told = report(&[(1, Some(standing(RoleName::Primary, &view))), (2, None)]).expect("one knows a view");
        assert_eq!(told.members.len(), 1);
        assert_eq!(report(&[(1, None), (2, None)]), None);
    }
}
