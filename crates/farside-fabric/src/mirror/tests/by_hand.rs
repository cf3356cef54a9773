//! Groups that an operator looks after: members whose notes arrive at once, unless a link is cut.

use std::collections::BTreeSet;

use super::super::{Contents, Member, MemberId, Output, Peer, RoleName, Settings, Start, View};
use crate::region::Region;

const LEASE_NS: u64 = 1000;

struct World {
    members: Vec<Member>,
    /// Pairs that are connected.
    links: BTreeSet<(usize, usize)>,
    now_ns: u64,
}

impl World {
    /// A primary, and backups that have joined it.
    fn new(members: usize) -> Self {
        let mut world = Self {
            members: Vec::new(),
            links: BTreeSet::new(),
            now_ns: 1,
        };
        for _ in 0..members {
            world.add();
        }
        let first = world.members[0].first_view();
        world.members[0].decided(world.now_ns, first);
        for backup in 1..members {
            world.link(0, backup);
        }
        world.pass(3 * LEASE_NS);
        assert_eq!(world.view(0).backups.len(), members - 1);
        world
    }

    fn add(&mut self) -> usize {
        let number = self.members.len() as u64 + 1;
        let start = Start {
            me: Peer {
                id: MemberId(number),
                segment: number << 8,
                address: format!("host{number}:1"),
            },
            settings: Settings::by_hand(LEASE_NS),
            memory: Region::anonymous(8192).expect("memory"),
            contents: Contents::Blank,
            first_sequence: 1,
        };
        self.members.push(Member::new(start, self.now_ns));
        self.members.len() - 1
    }

    fn link(&mut self, a: usize, b: usize) {
        self.links.extend([(a, b), (b, a)]);
        let [of_a, of_b] = [a, b].map(|member| self.members[member].me().id);
        self.members[a].linked(self.now_ns, of_b);
        self.members[b].linked(self.now_ns, of_a);
        self.deliver();
    }

    fn cut(&mut self, a: usize, b: usize) {
        self.links.retain(|link| *link != (a, b) && *link != (b, a));
        let [of_a, of_b] = [a, b].map(|member| self.members[member].me().id);
        self.members[a].unlinked(of_b);
        self.members[b].unlinked(of_a);
        self.deliver();
    }

    /// Carries out what members ask for until they ask for nothing.
    fn deliver(&mut self) {
        let mut is_quiet = false;
        while !core::mem::replace(&mut is_quiet, true) {
            for from in 0..self.members.len() {
                self.members[from].flush(self.now_ns);
                while let Some(output) = self.members[from].next_output() {
                    is_quiet = false;
                    match output {
                        Output::Tell(to, note) => {
                            let to = to.0 as usize - 1;
                            let sender = self.members[from].me().id;
                            if self.links.contains(&(from, to)) {
                                let told = self.members[to].told(self.now_ns, sender, note);
                                told.expect("it keeps to the protocol");
                            }
                        }
                        Output::Propose(view) => self.members[from].decided(self.now_ns, view),
                        Output::Changed => {}
                    }
                }
            }
        }
    }

    fn pass(&mut self, ns: u64) {
        let until_ns = self.now_ns + ns;
        while self.now_ns < until_ns {
            self.now_ns += LEASE_NS / 8;
            let now_ns = self.now_ns;
            self.members.iter_mut().for_each(|member| member.tick(now_ns));
            self.deliver();
        }
    }

    fn view(&self, member: usize) -> View {
        self.members[member].view().expect("it knows one").clone()
    }

    fn role(&self, member: usize) -> RoleName {
        self.members[member].standing().role
    }
}

#[test]
fn whoever_was_promoted_outranks_a_primary_that_decides_alone() {
    let mut world = World::new(2);
    world.cut(0, 1);
    world.members[1].promote().expect("it has everything");
    world.pass(3 * LEASE_NS);
    assert_eq!(world.role(1), RoleName::Primary);
    // The old primary answers nobody, but lets somebody join, and drops it again when its process is another one.
    for _ in 0..4 {
        let other = world.add();
        world.link(0, other);
        world.pass(3 * LEASE_NS);
        world.cut(0, other);
        let address = world.members[other].me().address.clone();
        let now_ns = world.now_ns;
        world.members[0]
            .remove_backup(now_ns, &address)
            .expect("it is a backup");
        world.deliver();
    }
    assert_eq!((world.role(0), world.view(0).epoch), (RoleName::Primary, 10));
    world.link(0, 1);
    world.pass(3 * LEASE_NS);
    assert_eq!(
        [0, 1].map(|member| world.role(member)),
        [RoleName::Backup, RoleName::Primary]
    );
    let reigns = [0, 1].map(|member| world.view(member).epoch);
    assert!(reigns[0] == reigns[1] && reigns[0] > 1_000_000, "{reigns:?}");
}

#[test]
fn a_backup_that_was_removed_stays_out_until_its_process_is_another() {
    let mut world = World::new(3);
    let address = world.members[1].me().address.clone();
    world.members[0]
        .remove_backup(world.now_ns, &address)
        .expect("it is a backup");
    world.deliver();
    world.pass(5 * LEASE_NS);
    let backups: Vec<_> = world.view(0).backups.iter().map(|backup| backup.id.0).collect();
    assert_eq!(backups, [3]);
    assert_eq!(world.view(1), world.view(0), "it knows that it is out");
    assert!(world.members[1].is_dismissed());
    assert!(world.members[1].promote().is_err());
    // Also over another connection.
    world.cut(0, 1);
    world.link(0, 1);
    world.pass(5 * LEASE_NS);
    assert_eq!(world.view(0).backups.len(), 1);
    let other = world.add();
    world.link(0, other);
    world.pass(5 * LEASE_NS);
    assert_eq!(world.view(0).backups.len(), 2);
}
