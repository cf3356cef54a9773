//! Keys and values: where in etcd the view of a group is, and who is there, and how they are written.

use farside_fabric::mirror::{MemberId, Peer, View};
use serde::{Deserialize, Serialize};

use crate::name::ClusterName;

/// What begins the keys of all nodes of a cluster.
pub(crate) fn of_cluster(cluster: &ClusterName) -> String {
    format!("/farside/{}/nodes/", cluster.name)
}

/// Where the view of a node is.
pub(crate) fn view_key(cluster: &ClusterName, node: u16) -> String {
    format!("{}{node}/view", of_cluster(cluster))
}

/// Where a member says that it is there.
pub(crate) fn member_key(cluster: &ClusterName, node: u16, segment: u64) -> String {
    format!("{}{node}/members/{segment:016x}", of_cluster(cluster))
}

/// What a key of a cluster is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Subject {
    View(u16),
    Member(u16),
}

/// Of a key that begins like [`of_cluster`].
pub(crate) fn subject(cluster: &ClusterName, key: &str) -> Option<Subject> {
    let (node, rest) = key.strip_prefix(&of_cluster(cluster))?.split_once('/')?;
    let node = node.parse().ok()?;
    match rest.split_once('/') {
        None if rest == "view" => Some(Subject::View(node)),
        Some(("members", _)) => Some(Subject::Member(node)),
        _ => None,
    }
}

/// A view and whose it is, as etcd has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Stored {
    pub(crate) view: View,
    /// Drawn when the group was made: tells its views from those of another that has the same name.
    pub(crate) group: u64,
}

#[derive(Serialize, Deserialize)]
struct StoredJson {
    epoch: u64,
    group: String,
    primary: PeerJson,
    backups: Vec<PeerJson>,
}

#[derive(Serialize, Deserialize)]
struct PeerJson {
    address: String,
    segment: String,
    process: String,
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

impl PeerJson {
    fn of(peer: &Peer) -> Self {
        Self {
            address: peer.address.clone(),
            segment: format!("{:016x}", peer.segment),
            process: peer.id.to_string(),
        }
    }

    fn read(self) -> Option<Peer> {
        Some(Peer {
            id: MemberId(hex(&self.process)?),
            segment: hex(&self.segment)?,
            address: self.address,
        })
    }
}

impl Stored {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let json = StoredJson {
            epoch: self.view.epoch,
            group: format!("{:016x}", self.group),
            primary: PeerJson::of(&self.view.primary),
            backups: self.view.backups.iter().map(PeerJson::of).collect(),
        };
        serde_json::to_vec(&json).expect("text and numbers")
    }

    /// `None` if it was not written here.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let json: StoredJson = serde_json::from_slice(bytes).ok()?;
        let backups = json.backups.into_iter().map(PeerJson::read);
        Some(Self {
            group: hex(&json.group)?,
            view: View {
                epoch: json.epoch,
                primary: json.primary.read()?,
                backups: backups.collect::<Option<_>>()?,
            },
        })
    }
}

/// What a member is in the view that it has heard of last.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RoleOfView {
    /// It leads.
    Primary,
    /// It has all that is acknowledged.
    Backup,
    /// It is not in the view.
    Standby,
}

impl RoleOfView {
    /// Of the member over a segment.
    pub(crate) fn of(view: Option<&View>, segment: u64) -> Self {
        match view {
            Some(view) if view.primary.segment == segment => Self::Primary,
            Some(view) if view.backups.iter().any(|backup| backup.segment == segment) => Self::Backup,
            _ => Self::Standby,
        }
    }
}

/// What a member says of itself while it is there.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Registration {
    /// `host:port`, for clients and members.
    pub address: String,
    /// What it is in the view.
    pub role: RoleOfView,
    /// The release that it runs.
    pub version: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(id: u64) -> Peer {
        Peer {
            id: MemberId(id),
            segment: u64::MAX - id,
            address: format!("host{id}:7380"),
        }
    }

    #[test]
    fn a_view_is_read_as_it_was_written() {
        for backups in 0..3 {
            let view = View {
                epoch: 7,
                primary: peer(1),
                backups: (0..backups).map(|number| peer(number + 2)).collect(),
            };
            let stored = Stored { view, group: 0xabc };
            assert_eq!(Stored::decode(&stored.encode()), Some(stored));
        }
    }

    #[test]
    fn what_is_no_view_is_none() {
        for text in [
            "",
            "{}",
            r#"{"epoch":1,"group":"x","primary":{"address":"a:1","segment":"1","process":"1"},"backups":[]}"#,
        ] {
            assert_eq!(Stored::decode(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn keys_say_what_they_are_about() {
        let cluster: ClusterName = "etcd:a:1/main".parse().expect("a name");
        assert_eq!(view_key(&cluster, 3), "/farside/main/nodes/3/view");
        assert_eq!(subject(&cluster, "/farside/main/nodes/3/view"), Some(Subject::View(3)));
        assert_eq!(subject(&cluster, &member_key(&cluster, 4, 5)), Some(Subject::Member(4)));
        for key in [
            "/farside/other/nodes/3/view",
            "/farside/main/nodes/x/view",
            "/farside/main/nodes/3/views",
        ] {
            assert_eq!(subject(&cluster, key), None, "{key}");
        }
    }

    #[test]
    fn the_role_goes_by_the_segment() {
        let view = View {
            epoch: 1,
            primary: peer(1),
            backups: vec![peer(2)],
        };
        let role = |segment| RoleOfView::of(Some(&view), segment);
        assert_eq!(role(peer(1).segment), RoleOfView::Primary);
        assert_eq!(role(peer(2).segment), RoleOfView::Backup);
        assert_eq!(role(peer(3).segment), RoleOfView::Standby);
        assert_eq!(RoleOfView::of(None, 1), RoleOfView::Standby);
    }
}
