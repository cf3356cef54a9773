//! How a new backup comes in while clients are served.

use super::super::{Contents, Member, MemberId, Note, Output, Peer, RoleName, Settings, Start};
use crate::addr::{NodeId, RemoteAddr};
use crate::message::EndpointId;
use crate::region::Region;
use crate::verb::Verb;

const LEASE_NS: u64 = 1_000_000;
const MEMORY_BYTES: usize = 8 << 20;
/// How long a note is under way.
const WAY_NS: u64 = 100;
/// What a client asks for: every request changes something.
const COUNT: Verb = Verb::FetchAdd {
    target: RemoteAddr::new(NodeId::new(0), 0),
    add: 1,
};

fn member(number: u64) -> Member {
    let start = Start {
        me: Peer {
            id: MemberId(number),
            segment: number << 8,
            address: format!("host{number}:1"),
        },
        settings: Settings::by_hand(LEASE_NS),
        memory: Region::anonymous(MEMORY_BYTES as u64).expect("memory"),
        contents: Contents::Blank,
        first_sequence: 1,
    };
    Member::new(start, 1)
}

/// A primary whose memory is in use, and a backup that copies it. A client may ask for something at every instant.
struct Newcomer {
    primary: Member,
    backup: Member,
    client: Option<EndpointId>,
    requests: u32,
    now_ns: u64,
    /// When parts of the memory were sent, and when it was said that they had come.
    parts: Vec<(u64, u64)>,
}

impl Newcomer {
    fn new(is_used: bool) -> Self {
        let mut primary = member(1);
        let first = primary.first_view();
        primary.decided(1, first);
        primary.memory().write(0, &vec![7; MEMORY_BYTES]);
        let client = is_used.then(|| primary.admit(None).expect("it is primary").answer);
        let mut copy = Self {
            primary,
            backup: member(2),
            client,
            requests: 0,
            now_ns: 1,
            parts: Vec::new(),
        };
        copy.primary.linked(1, MemberId(2));
        copy.backup.linked(1, MemberId(1));
        copy
    }

    /// Time passes, a request comes, and notes go from one member to the other.
    fn half_step(&mut self, is_from_primary: bool) {
        self.now_ns += WAY_NS;
        self.request();
        self.primary.flush(self.now_ns);
        self.carry(is_from_primary);
    }

    fn step(&mut self) {
        self.half_step(true);
        self.half_step(false);
        if self.now_ns % (LEASE_NS / 8) < 2 * WAY_NS {
            self.primary.tick(self.now_ns);
            self.backup.tick(self.now_ns);
        }
    }

    fn request(&mut self) {
        let Some(client) = self.client else { return };
        self.requests += 1;
        let answer = &mut Vec::new();
        let executed = self
            .primary
            .execute(client, self.requests, self.requests - 1, &[COUNT], &mut [], answer);
        executed.expect("it is primary");
    }

    fn carry(&mut self, is_from_primary: bool) {
        let (from, to) = match is_from_primary {
            true => (&mut self.primary, &mut self.backup),
            false => (&mut self.backup, &mut self.primary),
        };
        let sender = from.me().id;
        let mut outputs = Vec::new();
        while let Some(output) = from.next_output() {
            match output {
                Output::Tell(_, note) => outputs.push(note),
                Output::Propose(view) => from.decided(self.now_ns, view),
                Output::Changed => {}
            }
        }
        if outputs.iter().any(|note| matches!(note, Note::Memory { .. })) {
            self.parts.push((self.now_ns, self.now_ns + WAY_NS));
        }
        for note in outputs {
            to.told(self.now_ns, sender, note).expect("it keeps to the protocol");
        }
    }

    fn run(mut self) -> Vec<(u64, u64)> {
        while self.backup.standing().role != RoleName::Backup {
            assert!(self.now_ns < 10 * LEASE_NS, "it does not become a backup");
            self.step();
        }
        let [theirs, ours] = [&self.primary, &self.backup].map(|member| {
            let mut bytes = vec![0; MEMORY_BYTES];
            member.memory().read(0, &mut bytes);
            bytes
        });
        // The last request may still be under way.
        assert!(theirs[8..] == ours[8..]);
        self.parts
    }
}

#[test]
fn a_copy_rests_while_clients_are_served() {
    let parts = Newcomer::new(true).run();
    assert_eq!(parts.len(), MEMORY_BYTES >> 20, "one window at a time");
    for pair in parts.windows(2) {
        let ((begun_ns, came_ns), (next_ns, _)) = (pair[0], pair[1]);
        assert!(next_ns >= came_ns + 2 * (came_ns - begun_ns), "{parts:?}");
    }
}

#[test]
fn a_copy_that_nobody_disturbs_does_not_rest() {
    let parts = Newcomer::new(false).run();
    for pair in parts.windows(2) {
        assert_eq!(pair[1].0, pair[0].0 + 2 * WAY_NS, "{parts:?}");
    }
}

/// Without that it would be an entry behind whenever the primary looks.
#[test]
fn answers_wait_for_a_backup_that_is_about_to_join_unless_it_falls_silent() {
    let mut copy = Newcomer::new(true);
    let is_awaited = |copy: &Newcomer| copy.primary.standing().committed < copy.primary.last();
    while {
        copy.half_step(true);
        !is_awaited(&copy)
    } {
        assert!(copy.now_ns < 10 * LEASE_NS, "it does not join");
        copy.half_step(false);
        copy.primary.tick(copy.now_ns);
        copy.backup.tick(copy.now_ns);
    }
    assert_eq!(copy.primary.view().expect("its own").backups, []);
    // It says nothing any more.
    let begun_ns = copy.now_ns;
    while is_awaited(&copy) {
        copy.now_ns += LEASE_NS / 8;
        copy.primary.tick(copy.now_ns);
        assert!(
            copy.now_ns < begun_ns + LEASE_NS,
            "clients wait for somebody who is in no view"
        );
    }
    assert_eq!(copy.primary.view().expect("its own").backups, []);
}
