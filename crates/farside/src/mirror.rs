//! Mirrored nodes on the command line: what a node is told.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use farside_cli::{Failure, chain};
use farside_etcd::{Asker, Candidate, ClusterName};
use farside_fabric::host::on_this_thread;
use farside_fabric::mirror::{Contents, MemberId, Peer, Settings};
use farside_fabric::tcp::{Membership, MirrorOptions, read_view_record};
use farside_node::Node;

use crate::signal::Stop;

#[derive(Debug, Args)]
pub(crate) struct MirrorArgs {
    /// Mirror this node: it begins as the primary of a group, and nodes that are started with --backup-of join it
    #[arg(long)]
    mirrored: bool,
    /// Be a backup of the mirrored node at this address; all of the segment is replaced by what that node has
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "mirrored")]
    backup_of: Option<String>,
    /// Wait to be made a backup, by `farside pool add-backup` or `replace`; with --cluster: join, but never make a group
    #[arg(long, conflicts_with_all = ["mirrored", "backup_of"])]
    standby: bool,
    /// Let etcd decide who is primary and backup: be a member of a node of this cluster, or make it
    #[arg(long, value_name = "etcd:HOST:PORT/NAME", conflicts_with_all = ["mirrored", "backup_of"])]
    cluster: Option<ClusterName>,
    /// Which memory node of the cluster's pool this is a member of
    #[arg(long, value_name = "N", default_value = "0", value_parser = clap::value_parser!(u16).range(0..512))]
    node: u16,
    /// Where clients and other nodes of the group reach this one [default: --listen]
    #[arg(long, value_name = "HOST:PORT")]
    advertise: Option<String>,
    // Below, a busy machine is taken for a dead one.
    /// For how long a backup promises not to take over, in milliseconds; the same for all nodes of a group
    #[arg(long, value_name = "MS", default_value = "1000", value_parser = clap::value_parser!(u64).range(50..=60_000))]
    lease: u64,
}

impl MirrorArgs {
    /// Whether the node is mirrored. Refuses what does not go together.
    pub(crate) fn check(&self, has_device: bool, listen: SocketAddr) -> Result<bool, Failure> {
        let is_mirrored = self.mirrored || self.standby || self.backup_of.is_some() || self.cluster.is_some();
        if self.node != 0 && self.cluster.is_none() {
            return Err(Failure::usage(
                "--node says which node of a cluster this is a member of: give --cluster too",
            ));
        }
        if !is_mirrored {
            if self.advertise.is_some() {
                return Err(Failure::usage(
                    "--advertise is for mirrored nodes: give --cluster, --mirrored, --backup-of or --standby too",
                ));
            }
            return Ok(false);
        }
        if has_device {
            return Err(Failure::usage(
                "--rdma and mirroring exclude each other: the node does not see what a network card writes; leave one of them out",
            ));
        }
        if listen.ip().is_unspecified() && self.advertise.is_none() {
            return Err(Failure::usage(format!(
                "--listen {listen} is no address at which others reach this node: say which is, with --advertise HOST:PORT"
            )));
        }
        for (option, address) in [("--advertise", &self.advertise), ("--backup-of", &self.backup_of)] {
            if let Some(address) = address
                && !is_host_and_port(address)
            {
                return Err(Failure::usage(format!(
                    "{option} {address}: not HOST:PORT, such as 10.0.0.5:7380"
                )));
            }
        }
        Ok(true)
    }

    /// What the node's server is told, and what has to run beside it. `None` if the node is asked to stop while it waits for etcd.
    pub(crate) fn options(
        &self,
        node: &Node,
        listener: &TcpListener,
        stop: &Stop,
    ) -> Result<Option<(MirrorOptions, Option<Asker>)>, Failure> {
        let address = match &self.advertise {
            Some(address) => address.clone(),
            None => listener.local_addr().map_err(Failure::runtime)?.to_string(),
        };
        let record = beside(node.segment().path(), ".view");
        let contents = if node.is_new() {
            Contents::Blank
        } else {
            Contents::Inherited
        };
        let lease_ns = Duration::from_millis(self.lease).as_nanos() as u64;
        let (membership, asker) = match &self.cluster {
            None => (None, None),
            Some(cluster) => match enter(self.candidate(cluster, node, &address, &record)?, stop)? {
                Some((membership, asker)) => (Some(membership), Some(asker)),
                None => return Ok(None),
            },
        };
        let settings = match membership {
            Some(_) => Settings::automatic(lease_ns),
            None => Settings::by_hand(lease_ns),
        };
        let options = MirrorOptions {
            settings,
            address,
            backup_of: self.backup_of.clone(),
            is_standby: self.standby,
            contents,
            membership,
            record: Some(record),
        };
        Ok(Some((options, asker)))
    }

    fn candidate(
        &self,
        cluster: &ClusterName,
        node: &Node,
        address: &str,
        record: &Path,
    ) -> Result<Candidate, Failure> {
        let segment = node.segment();
        let known = match node.is_new() {
            true => None,
            false => read_view_record(record).map_err(Failure::usage)?,
        };
        Ok(Candidate {
            cluster: cluster.clone(),
            node: self.node,
            member: Peer {
                id: MemberId::draw(),
                // As the server names it.
                segment: segment.segment_id() as u64,
                address: address.to_owned(),
            },
            is_standby: self.standby,
            is_new: node.is_new(),
            segment: segment.path().to_path_buf(),
            lineage: beside(segment.path(), ".cluster"),
            known,
        })
    }

    /// What to do next.
    pub(crate) fn describe(&self, address: SocketAddr) -> String {
        match &self.backup_of {
            Some(primary) => {
                format!("backup of {primary}: farside pool status --pool tcp:{primary} shows how far it is")
            }
            None if let Some(cluster) = &self.cluster => format!(
                "member of node {} of cluster {}: farside gateway --pool {cluster}   who is there: farside pool status --pool {cluster}",
                self.node,
                cluster.name()
            ),
            None if self.standby => format!("make it a backup: farside pool add-backup --pool tcp:PRIMARY {address}"),
            None => format!(
                "connect: farside gateway --pool tcp:{address}   add a backup: farside node --backup-of {address} --segment PATH --memory SIZE --listen HOST:PORT"
            ),
        }
    }
}

/// Enters the group, unless the node is asked to stop first.
fn enter(candidate: Candidate, stop: &Stop) -> Result<Option<(Membership, Asker)>, Failure> {
    let entered = on_this_thread(async {
        tokio::select! {
            entered = farside_etcd::enter(candidate) => entered.map(Some),
            () = stop.clone().asked() => Ok(None),
        }
    });
    let entered = entered.map_err(Failure::runtime)?;
    entered.map_err(|error| Failure::usage(chain(&error)))
}

/// The file beside a segment whose name ends like this.
fn beside(segment: &Path, end: &str) -> PathBuf {
    let mut path = segment.as_os_str().to_owned();
    path.push(end);
    path.into()
}

fn is_host_and_port(address: &str) -> bool {
    let parts = address.rsplit_once(':');
    parts.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}
