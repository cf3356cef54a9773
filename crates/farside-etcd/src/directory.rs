//! Where the nodes of a cluster are: what tools and gateways look up when they begin.

use std::collections::BTreeMap;

use farside_fabric::mirror::View;

use crate::client::{Client, EtcdError};
use crate::keys::{Registration, Stored, Subject, of_cluster, subject};
use crate::name::ClusterName;
use crate::wire;

/// What etcd knows of a cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cluster {
    /// In the order of their numbers, from 0 on.
    pub nodes: Vec<Node>,
}

/// One node of a pool: a group of members.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// The view in force.
    pub view: View,
    /// Who is there, in the view or not.
    pub members: Vec<Registration>,
}

/// There is no such cluster, or not all of it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FindError {
    /// etcd cannot be asked.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// etcd knows nothing of that name.
    #[error("etcd at {etcd} knows no cluster `{name}`: start its nodes with farside node --cluster etcd:{etcd}/{name}")]
    Absent {
        /// Who was asked.
        etcd: String,
        /// What for.
        name: String,
    },
    /// A number is left out.
    #[error(
        "node {node} of cluster `{name}` has no primary yet, and {highest} has: start node {node} too, with --node {node}"
    )]
    Gap {
        /// What was asked for.
        name: String,
        /// Which node there is not.
        node: u16,
        /// The highest there is.
        highest: u16,
    },
    /// A value was not written by a node.
    #[error("{key} in etcd at {etcd} is no view of a Farside node: another program has written it, or a later release")]
    View {
        /// Who was asked.
        etcd: String,
        /// Which key.
        key: String,
    },
}

/// Looks a cluster up.
///
/// # Errors
/// [`FindError`].
pub async fn find(cluster: &ClusterName) -> Result<Cluster, FindError> {
    let client = Client::new(cluster.endpoints.clone());
    let range = client
        .ask("/v3/kv/range", &wire::prefix(&of_cluster(cluster)), wire::read_range)
        .await?;
    gather(cluster, &range.entries)
}

fn gather(cluster: &ClusterName, entries: &[wire::Entry]) -> Result<Cluster, FindError> {
    let mut views = BTreeMap::new();
    let mut members: BTreeMap<u16, Vec<Registration>> = BTreeMap::new();
    for entry in entries {
        match subject(cluster, &entry.key) {
            Some(Subject::View(node)) => {
                let stored = Stored::decode(&entry.value).ok_or_else(|| FindError::View {
                    etcd: cluster.etcd(),
                    key: entry.key.clone(),
                })?;
                views.insert(node, stored.view);
            }
            Some(Subject::Member(node)) => {
                // One that a later release has written otherwise is only shown; it is left out.
                members
                    .entry(node)
                    .or_default()
                    .extend(serde_json::from_slice::<Registration>(&entry.value));
            }
            None => {}
        }
    }
    let Some(&highest) = views.keys().next_back() else {
        return Err(FindError::Absent {
            etcd: cluster.etcd(),
            name: cluster.name.clone(),
        });
    };
    let node = |node| -> Result<Node, FindError> {
        let view = views.remove(&node).ok_or_else(|| FindError::Gap {
            name: cluster.name.clone(),
            node,
            highest,
        })?;
        let members = members.remove(&node).unwrap_or_default();
        Ok(Node { view, members })
    };
    Ok(Cluster {
        nodes: (0..=highest).map(node).collect::<Result<_, _>>()?,
    })
}

impl Cluster {
    /// The nodes as `--pool` names them: `tcp:A+B,tcp:C`.
    #[must_use]
    pub fn pool(&self) -> String {
        let nodes = self.nodes.iter().map(|node| {
            let members: Vec<_> = node.view.peers().map(|peer| &*peer.address).collect();
            format!("tcp:{}", members.join("+"))
        });
        nodes.collect::<Vec<_>>().join(",")
    }
}

#[cfg(test)]
mod tests {
    use farside_fabric::mirror::{MemberId, Peer};

    use super::*;
    use crate::keys::{RoleOfView, member_key, view_key};

    fn cluster() -> ClusterName {
        "etcd:a:1/main".parse().expect("a name")
    }

    fn entry(key: String, value: Vec<u8>) -> wire::Entry {
        wire::Entry {
            key,
            value,
            revision: 1,
        }
    }

    fn view(node: u16, members: u64) -> wire::Entry {
        let peer = |id| Peer {
            id: MemberId(id),
            segment: id,
            address: format!("n{node}m{id}:1"),
        };
        let view = View {
            epoch: 1,
            primary: peer(0),
            backups: (1..members).map(peer).collect(),
        };
        entry(view_key(&cluster(), node), Stored { view, group: 1 }.encode())
    }

    #[test]
    fn a_pool_is_all_nodes_with_all_members() {
        let waits = Registration {
            address: "s:1".to_owned(),
            role: RoleOfView::Standby,
            version: "0".to_owned(),
        };
        let json = serde_json::to_vec(&waits).expect("text");
        let entries = [view(1, 1), view(0, 2), entry(member_key(&cluster(), 1, 9), json)];
        let found = gather(&cluster(), &entries).expect("two nodes");
        assert_eq!(found.pool(), "tcp:n0m0:1+n0m1:1,tcp:n1m0:1");
        assert_eq!(found.nodes[1].members, [waits]);
    }

    #[test]
    fn what_is_missing_is_named() {
        let none = gather(&cluster(), &[]).expect_err("nothing").to_string();
        assert!(
            none.contains("knows no cluster `main`") && none.contains("--cluster etcd:a:1/main"),
            "{none}"
        );
        let gap = gather(&cluster(), &[view(0, 1), view(2, 1)])
            .expect_err("no node 1")
            .to_string();
        assert!(gap.contains("--node 1"), "{gap}");
        let strange = gather(&cluster(), &[entry(view_key(&cluster(), 0), b"x".to_vec())]).expect_err("no view");
        assert!(strange.to_string().contains("/farside/main/nodes/0/view"), "{strange}");
    }
}
