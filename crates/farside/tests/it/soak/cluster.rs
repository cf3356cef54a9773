//! A pool of mirrored nodes under an etcd, with a gateway: what is done to them, and how it is undone.
//!
//! On the path: between the driver, which has the clock and the dice, and the groups.

use super::dice::Dice;
use super::etcd::Etcd;
use super::folder::Folder;
use super::gateway::Gateway;
use super::group::{Aim, Blow, Group, LEASE_MS, Place};
use super::plan::Fault;
use super::process::farside;
use super::relay::Firewall;

/// The name of the cluster in etcd.
const NAME: &str = "soak";

pub(crate) struct Cluster {
    firewall: Firewall,
    etcd: Etcd,
    pub(crate) groups: Vec<Group>,
    gateway: Option<Gateway>,
}

/// What is to be undone, to whom.
#[derive(Debug)]
pub(crate) enum Repair {
    Member { group: usize, member: usize, blow: Blow },
    ResumeEtcd,
    StartEtcd,
    StartGateway,
}

impl Cluster {
    /// One or two nodes of two or three members each.
    pub(crate) fn start(folder: &Folder, memory: &str, dice: &mut Dice) -> Self {
        let firewall = Firewall::start();
        let etcd = Etcd::start(folder);
        let mut hosts = 0..;
        let mut group = |node: u64, members: u64| {
            let place = |member| Place {
                host: hosts.next().expect("there is no end"),
                node: node as usize,
                memory: memory.to_owned(),
                segment: folder.file(&format!("node-{node}-{member}.segment")),
                etcd: etcd.address,
                cluster: NAME,
            };
            Group::start((0..members).map(place).collect(), &firewall)
        };
        let groups = (0..1 + dice.roll(2))
            .map(|node| group(node, 2 + dice.roll(2)))
            .collect();
        Self {
            firewall,
            etcd,
            groups,
            gateway: None,
        }
    }

    /// The pool as etcd knows it.
    pub(crate) fn name(&self) -> String {
        format!("etcd:{}/{NAME}", self.etcd.address)
    }

    /// The pool as a list of all members.
    pub(crate) fn list(&self) -> String {
        let names: Vec<String> = self.groups.iter().map(Group::name).collect();
        names.join(",")
    }

    pub(crate) fn start_gateway(&mut self, folder: &Folder, scheme: &str) -> std::net::SocketAddr {
        let gateway = Gateway::start(&self.name(), scheme, folder.file("gateway.stderr"));
        let address = gateway.address;
        self.gateway = Some(gateway);
        address
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.etcd.is_well() && self.groups.iter().all(Group::is_whole)
    }

    /// Whether `farside pool status` says the same.
    pub(crate) fn is_whole_for_a_user(&self) -> bool {
        let output = farside()
            .args(["pool", "status", "--json", "--pool", &self.name()])
            .output()
            .expect("it is built");
        let Ok(status) = serde_json::from_slice::<serde_json::Value>(&output.stdout) else {
            return false;
        };
        let nodes = status["nodes"].as_array().expect("a list");
        let is_whole = |(node, group): (&serde_json::Value, &Group)| {
            let members = node["members"].as_array().expect("it is mirrored");
            let count = |role: &str| members.iter().filter(|member| member["role"] == role).count();
            (count("primary"), count("backup")) == (1, group.members.len() - 1)
        };
        nodes.len() == self.groups.len() && nodes.iter().zip(&self.groups).all(is_whole)
    }

    /// Does something to somebody. `None` if that is not possible now, else for how long, in milliseconds.
    pub(crate) fn fire(&mut self, fault: Fault, dice: &mut Dice) -> Option<(u64, Repair)> {
        match fault {
            Fault::PrimaryKill => self.strike(Aim::Primary, Blow::Kill, dice),
            Fault::PrimaryStop => self.strike(Aim::Primary, Blow::Stop, dice),
            Fault::PrimaryCut => self.strike(Aim::Primary, Blow::CutOff, dice),
            Fault::BackupKill => self.strike(Aim::Backup, Blow::Kill, dice),
            Fault::BackupStop => self.strike(Aim::Backup, Blow::Stop, dice),
            Fault::BackupCut => self.strike(Aim::Backup, Blow::CutOff, dice),
            Fault::EtcdStop if self.may_miss_etcd() => {
                self.etcd.stop();
                Some((dice.between(300, 2500), Repair::ResumeEtcd))
            }
            Fault::EtcdKill if self.may_miss_etcd() => {
                self.etcd.kill();
                Some((dice.between(0, 1500), Repair::StartEtcd))
            }
            Fault::GatewayKill => {
                let gateway = self.gateway.as_mut().filter(|gateway| gateway.is_serving())?;
                gateway.kill();
                Some((dice.between(0, 300), Repair::StartGateway))
            }
            _ => None,
        }
    }

    /// Whether etcd may go away now: groups that are not whole need it, and bear that it is away once, now and then.
    fn may_miss_etcd(&mut self) -> bool {
        let bears = |group: &Group| group.is_whole() || group.may_interrupt;
        let may = self.etcd.is_well() && self.groups.iter().all(bears);
        if may {
            let waiting = self.groups.iter_mut().filter(|group| !group.is_whole());
            waiting.for_each(|group| group.may_interrupt = false);
        }
        may
    }

    fn strike(&mut self, aim: Aim, blow: Blow, dice: &mut Dice) -> Option<(u64, Repair)> {
        // Without etcd a primary that dies is missed until it is back: now and then that is tried, too.
        let may_be = |group: &Group| self.etcd.is_well() || group.may_interrupt;
        let targets: Vec<(usize, usize)> = (self.groups.iter().enumerate())
            .filter(|(_, group)| may_be(group))
            .flat_map(|(index, group)| group.targets(aim).into_iter().map(move |member| (index, member)))
            .collect();
        if targets.is_empty() {
            return None;
        }
        let (group, member) = targets[dice.roll(targets.len() as u64) as usize];
        let struck = &mut self.groups[group];
        struck.strike(member, blow, &self.firewall);
        struck.may_interrupt = dice.roll(4) == 0;
        // Some come back before anybody has taken their place.
        let after_ms = match blow {
            Blow::Kill => dice.between(0, 800),
            Blow::Stop | Blow::CutOff => dice.between(LEASE_MS / 3, 5 * LEASE_MS),
        };
        Some((after_ms, Repair::Member { group, member, blow }))
    }

    pub(crate) fn repair(&mut self, repair: &Repair) {
        match *repair {
            Repair::Member { group, member, blow } => self.groups[group].undo(member, blow, &self.firewall),
            Repair::ResumeEtcd => self.etcd.resume(),
            Repair::StartEtcd => self.etcd.launch(),
            Repair::StartGateway => {
                if let Some(gateway) = &mut self.gateway {
                    gateway.launch();
                }
            }
        }
    }

    /// Nobody ends but by our hand.
    pub(crate) fn expect_running(&mut self) {
        self.etcd.expect_running();
        self.groups.iter_mut().for_each(Group::expect_running);
        if let Some(gateway) = &mut self.gateway {
            gateway.tend();
        }
    }

    /// What the members said last.
    pub(crate) fn text(&self) -> String {
        let texts: Vec<String> = self.groups.iter().map(Group::text).collect();
        texts.join("\n")
    }

    pub(crate) fn end_gateway(&mut self) {
        if let Some(gateway) = self.gateway.take() {
            gateway.terminate();
        }
    }

    /// Stops all members. Returns the pools of mapped segments that are left: one of primaries and backups in turn for each place.
    pub(crate) fn terminate(self) -> Vec<String> {
        let segments: Vec<Vec<_>> = self.groups.into_iter().map(Group::terminate).collect();
        let most = segments.iter().map(Vec::len).max().unwrap_or(0);
        let pool = |place: usize| {
            let names = segments
                .iter()
                .map(|members| format!("shm:{}", members[place % members.len()].display()));
            names.collect::<Vec<_>>().join(",")
        };
        (0..most).map(pool).collect()
    }
}
