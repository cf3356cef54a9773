//! A mirrored node: its members, what is done to them, and whether the group is whole.
//!
//! On the path: the cluster chooses a group and a fault. A mirrored node promises to survive one fault after another, as long as a
//! member with everything is left; so what the members say of themselves decides when the next one may come. A thread asks them all
//! the time, as `farside pool status` does.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use farside_fabric::host::{HostClock, on_this_thread};
use farside_fabric::mirror::{RoleName, View};
use farside_fabric::shm::Segment;
use farside_fabric::tcp::{Said, ask_members, newest_view};
use rustix::process::Signal;

use super::process::{Process, farside, free_port};
use super::relay::{Firewall, Host};

/// The members' lease: short, so that many faults fit. For longer than this and an eighth nobody takes over.
pub(crate) const LEASE_MS: u64 = 300;
/// Bytes that are compared at once.
const COMPARED_BYTES: usize = 1 << 20;

/// A member: a segment and addresses that stay, and the process that serves them now.
pub(crate) struct Member {
    host: Host,
    arguments: Vec<String>,
    memory: String,
    segment: PathBuf,
    /// Where others reach it.
    address: String,
    process: Option<Process>,
    is_stopped: bool,
    is_cut_off: bool,
}

/// What a new member is told.
pub(crate) struct Place<'p> {
    pub(crate) host: Host,
    /// The number of its node in the pool.
    pub(crate) node: usize,
    pub(crate) memory: String,
    pub(crate) segment: PathBuf,
    pub(crate) etcd: SocketAddr,
    /// The name of the cluster in etcd.
    pub(crate) cluster: &'p str,
}

impl Member {
    fn start(place: Place<'_>, firewall: &Firewall) -> Self {
        let listen = free_port();
        let address = firewall.relay_to(place.host, listen).to_string();
        let etcd = firewall.relay_of(place.host, place.etcd);
        let arguments = [
            "node",
            "--cluster",
            &format!("etcd:{etcd}/{}", place.cluster),
            "--node",
            &place.node.to_string(),
            "--listen",
            &listen.to_string(),
            "--advertise",
            &address,
            "--lease",
            &LEASE_MS.to_string(),
        ]
        .map(str::to_owned);
        let mut member = Self {
            host: place.host,
            arguments: arguments.into(),
            memory: place.memory,
            segment: place.segment,
            address,
            process: None,
            is_stopped: false,
            is_cut_off: false,
        };
        member.launch(firewall);
        member
    }

    /// Starts its process, which may wait for etcd before it serves anything.
    fn launch(&mut self, firewall: &Firewall) {
        let mut command = farside();
        command.args(&self.arguments).arg("--segment").arg(&self.segment);
        if !self.segment.exists() {
            command.args(["--memory", &self.memory]);
        }
        // What a failed run leaves behind should say what the member went through.
        command.env("RUST_LOG", "info").stdout(std::process::Stdio::null());
        let process = Process::start(&mut command, &self.segment.with_extension("stderr"));
        firewall.belongs(process.number(), self.host);
        self.process = Some(process);
    }

    /// Whether nothing has been done to it that was not undone.
    fn is_well(&self) -> bool {
        self.process.is_some() && !self.is_stopped && !self.is_cut_off
    }

    fn process(&mut self) -> &mut Process {
        self.process.as_mut().expect("it is up")
    }
}

/// What is done to a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Blow {
    Kill,
    Stop,
    CutOff,
}

/// Whom a fault is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Aim {
    Primary,
    Backup,
}

/// What the members said, all asked after this instant.
struct Look {
    began_ns: u64,
    said: Said,
}

type Latest = Arc<Mutex<Option<Look>>>;

pub(crate) struct Group {
    pub(crate) members: Vec<Member>,
    latest: Latest,
    /// When something was last done to a member, or undone.
    touched_ns: u64,
    /// Whether the next fault may come while a member is brought up to date.
    pub(crate) may_interrupt: bool,
}

impl Group {
    pub(crate) fn start(places: Vec<Place<'_>>, firewall: &Firewall) -> Self {
        let members: Vec<Member> = places.into_iter().map(|place| Member::start(place, firewall)).collect();
        let latest = Latest::default();
        let addresses = members.iter().map(|member| member.address.clone()).collect();
        let watched = latest.clone();
        std::thread::spawn(move || watch(addresses, &watched));
        Self {
            members,
            latest,
            touched_ns: HostClock.now_ns(),
            may_interrupt: false,
        }
    }

    /// The node as a pool names it.
    pub(crate) fn name(&self) -> String {
        let addresses: Vec<&str> = self.members.iter().map(|member| member.address.as_str()).collect();
        format!("tcp:{}", addresses.join("+"))
    }

    /// What the members have said since anything was done to one of them; `None` until they have.
    fn with_look<T>(&self, read: impl FnOnce(&Said, &View) -> T) -> Option<T> {
        let latest = self.latest.lock().expect("nobody panics while it is held");
        let look = latest.as_ref().filter(|look| look.began_ns > self.touched_ns)?;
        Some(read(&look.said, newest_view(&look.said)?))
    }

    fn has_role(said: &Said, view: &View, member: &Member, roles: &[RoleName]) -> bool {
        let standing = said.get(&member.address).and_then(Option::as_ref);
        standing.is_some_and(|standing| {
            let epoch = standing.view.as_ref().map_or(0, |view| view.epoch);
            epoch == view.epoch && roles.contains(&standing.role)
        })
    }

    /// Whether all members are well, know the same view and are in it with everything.
    pub(crate) fn is_whole(&self) -> bool {
        let is_whole = self.with_look(|said, view| {
            let has_everything = |member: &Member| Self::has_role(said, view, member, WHOLE);
            let leads = |member: &&Member| Self::has_role(said, view, member, &[RoleName::Primary]);
            self.members.iter().all(has_everything) && self.members.iter().filter(leads).count() == 1
        });
        is_whole == Some(true) && self.members.iter().all(Member::is_well)
    }

    /// Somebody on whom a fault may come now: all others are well, or a copy is under way that it may interrupt and somebody else
    /// has everything.
    pub(crate) fn targets(&self, aim: Aim) -> Vec<usize> {
        if self.is_whole() {
            return self.with_roles(match aim {
                Aim::Primary => &[RoleName::Primary],
                Aim::Backup => &[RoleName::Backup],
            });
        }
        if !self.may_interrupt || self.with_roles(&[RoleName::Joining]).is_empty() {
            return Vec::new();
        }
        let whole = self.with_roles(WHOLE);
        let targets = self.with_roles(match aim {
            Aim::Primary => &[RoleName::Primary],
            Aim::Backup => &[RoleName::Backup, RoleName::Joining],
        });
        let is_survived = |target: &usize| whole.iter().any(|survivor| survivor != target);
        targets.into_iter().filter(is_survived).collect()
    }

    /// The members that are well and say that they have one of these roles in the newest view.
    fn with_roles(&self, roles: &[RoleName]) -> Vec<usize> {
        let found = self.with_look(|said, view| {
            let has = |index: &usize| {
                let member = &self.members[*index];
                member.is_well() && Self::has_role(said, view, member, roles)
            };
            (0..self.members.len()).filter(has).collect()
        });
        found.unwrap_or_default()
    }

    pub(crate) fn strike(&mut self, index: usize, blow: Blow, firewall: &Firewall) {
        let member = &mut self.members[index];
        match blow {
            Blow::Kill => {
                firewall.has_ended(member.process().number());
                member.process().kill();
                member.process = None;
            }
            Blow::Stop => {
                member.process().stop();
                member.is_stopped = true;
            }
            Blow::CutOff => {
                firewall.cut_off(member.host);
                member.is_cut_off = true;
            }
        }
        self.touched_ns = HostClock.now_ns();
    }

    pub(crate) fn undo(&mut self, index: usize, blow: Blow, firewall: &Firewall) {
        let member = &mut self.members[index];
        match blow {
            Blow::Kill => member.launch(firewall),
            Blow::Stop => {
                member.process().signal(Signal::CONT);
                member.is_stopped = false;
            }
            Blow::CutOff => {
                firewall.let_through(member.host);
                member.is_cut_off = false;
            }
        }
        self.touched_ns = HostClock.now_ns();
    }

    pub(crate) fn expect_running(&mut self) {
        let processes = self.members.iter_mut().filter_map(|member| member.process.as_mut());
        processes.for_each(Process::expect_running);
    }

    /// What the members said last, for whoever waits in vain.
    pub(crate) fn text(&self) -> String {
        let latest = self.latest.lock().expect("nobody panics while it is held");
        latest
            .as_ref()
            .map_or_else(|| "nothing".to_owned(), |look| format!("{:#?}", look.said))
    }

    /// Stops all members, who must end well, and returns their segments. They hold the same.
    pub(crate) fn terminate(self) -> Vec<PathBuf> {
        let mut segments = Vec::new();
        for mut member in self.members {
            member.process().signal(Signal::TERM);
            member.process().expect_end();
            segments.push(member.segment);
        }
        for other in &segments[1..] {
            expect_same(&segments[0], other);
        }
        segments
    }
}

/// The roles of whoever has everything.
const WHOLE: &[RoleName] = &[RoleName::Primary, RoleName::Backup];

/// Asks the members until nobody wants to know any more.
fn watch(addresses: Vec<String>, latest: &Latest) {
    while Arc::strong_count(latest) > 1 {
        let began_ns = HostClock.now_ns();
        let asked = async {
            let said = ask_members(addresses.iter().cloned(), None, 1).await;
            HostClock.sleep(20_000_000).await;
            said
        };
        let said = on_this_thread(asked).expect("the system has room for a loop");
        *latest.lock().expect("nobody panics while it is held") = Some(Look { began_ns, said });
    }
}

/// What a primary has acknowledged, every backup has; when nothing is under way they have the same, byte by byte.
fn expect_same(one: &Path, other: &Path) {
    let [one_opened, other_opened] = [one, other].map(|path| Segment::open(path).expect("it was left in order"));
    let bytes = one_opened.memory_bytes();
    assert_eq!(bytes, other_opened.memory_bytes(), "members are of one size");
    let mut read = [vec![0; COMPARED_BYTES], vec![0; COMPARED_BYTES]];
    for at in (0..bytes).step_by(COMPARED_BYTES) {
        let length = COMPARED_BYTES.min((bytes - at) as usize);
        for (segment, read) in [&one_opened, &other_opened].into_iter().zip(&mut read) {
            segment.region().read(at, &mut read[..length]);
        }
        if read[0][..length] != read[1][..length] {
            let differs = (0..length).find(|&index| read[0][index] != read[1][index]);
            panic!(
                "{} and {} differ from byte {} of the memory on",
                one.display(),
                other.display(),
                at + differs.unwrap_or(0) as u64
            );
        }
    }
}
