//! The world of one run: time, machines, links, faults.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

use farside_fabric::mirror::{
    Contents, Member, MemberId, Note, Output, Peer, Refusal, RoleName, Settings, Start, Status, View,
};
use farside_fabric::region::Region;
use farside_fabric::{EndpointId, MaskedCas, Message, NodeId, RemoteAddr, Slice, Verb};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::client::{Ask, Client, Connection, Pending};
use super::membership::Membership;
use crate::checkers::linearizability;
use crate::history::{Answer, Call, Operation};

const MACHINES: usize = 3;
const THREADS: usize = 3;
const CLIENTS: usize = 3;
const MEMORY_BYTES: u64 = 256 << 10;
/// Words that the history is about, in several of the parts in which memory is copied.
const KEYS: [u64; 4] = [0, 8, 65_536 + 512, 200_000];
const PAIR: [u64; 2] = [65_536 + 1024, 131_072 + 64];
const LEASE_NS: u64 = 1_000_000;
const TICK_NS: u64 = LEASE_NS / 8;
/// How long faults happen, and how long there are none afterwards.
const FAULTS_UNTIL_NS: u64 = 40 * LEASE_NS;
const END_NS: u64 = 80 * LEASE_NS;

/// What a run has come through, so that a test sees that it tested something.
#[derive(Clone, Copy, Default, Debug)]
pub struct Report {
    /// Answers that clients got.
    pub answers: u64,
    /// Views after the first.
    pub views: u64,
    /// Views with another primary than the one before.
    pub takeovers: u64,
    /// Requests that were sent again.
    pub resent: u64,
    /// Copies that began.
    pub copies: u64,
    /// Messages that came.
    pub messages: u64,
    /// Clients that were cut off.
    pub fences: u64,
}

impl Report {
    /// Adds what another run has come through.
    pub fn add(&mut self, other: &Self) {
        self.answers += other.answers;
        self.views += other.views;
        self.takeovers += other.takeovers;
        self.resent += other.resent;
        self.copies += other.copies;
        self.messages += other.messages;
        self.fences += other.fences;
    }
}

#[derive(Clone, Debug)]
enum Event {
    Tick {
        machine: usize,
        run: u64,
    },
    Note {
        from: usize,
        to: usize,
        link: u64,
        note: Box<Note>,
    },
    LinkUp {
        a: usize,
        b: usize,
    },
    LinkDown {
        at: usize,
        from_run: u64,
        link: u64,
        run: u64,
    },
    Propose {
        machine: usize,
        run: u64,
        view: View,
    },
    Decided {
        machine: usize,
        run: u64,
        view: View,
    },
    Start {
        machine: usize,
    },
    Fault,
    Resume {
        machine: usize,
    },
    Heal,
    ClientTurn {
        client: usize,
    },
    ToServer {
        client: usize,
        machine: usize,
        link: u64,
        frame: Frame,
    },
    ToClient {
        client: usize,
        link: u64,
        frame: Reply,
    },
    ClientLost {
        client: usize,
        link: u64,
    },
}

/// From a client to a node.
#[derive(Clone, Debug)]
enum Frame {
    Hello {
        id: Option<EndpointId>,
        group: u64,
        answered: u32,
        taken: u64,
    },
    Request {
        pending: Pending,
        answered: u32,
    },
    Taken {
        taken: u64,
    },
}

/// From a node to a client.
#[derive(Clone, Debug)]
enum Reply {
    Welcome { id: EndpointId, group: u64 },
    Refused { refusal: Refusal },
    Answer { request: u32, bytes: Vec<u8> },
    Letter { from: EndpointId, number: u64 },
}

/// A node's side of a client's connection.
struct Session {
    client: usize,
    link: u64,
    id: EndpointId,
    pushed: u64,
    /// Replies that wait for the log, in order.
    held: VecDeque<(u64, Reply)>,
}

struct Process {
    member: Member,
    run: u64,
    sessions: Vec<Session>,
    stopped_until_ns: u64,
    /// Events that came while it was stopped.
    waiting: Vec<Event>,
}

struct Machine {
    process: Option<Process>,
    memory: Region,
    segment: u64,
    is_blank: bool,
    /// The newest view that a process over this segment knew, as it has written down.
    record: Option<View>,
    /// Its clock runs so many thousandths faster, and began so much earlier.
    drift: i64,
    offset_ns: u64,
    is_starting: bool,
}

impl Machine {
    fn clock(&self, now_ns: u64) -> u64 {
        let skewed = now_ns as i64 + now_ns as i64 * self.drift / 1000;
        skewed as u64 + self.offset_ns
    }
}

struct World {
    now_ns: u64,
    order: u64,
    events: BinaryHeap<Reverse<(u64, u64)>>,
    bodies: BTreeMap<u64, Event>,
    dice: Xoshiro256PlusPlus,
    machines: Vec<Machine>,
    /// Connections between machines, by pair: the connection's number, and the runs that it connects.
    links: BTreeMap<(usize, usize), (u64, u64, u64)>,
    /// When the last thing sent on a connection arrives: they keep the order. By connection and direction.
    arrivals: BTreeMap<(u64, usize), u64>,
    cut: BTreeSet<(usize, usize)>,
    /// Machines that reach no other machine and no membership, and of clients only the one that reads.
    isolated: BTreeSet<usize>,
    slow: BTreeMap<(usize, usize), u64>,
    next_link: u64,
    next_run: u64,
    membership: Membership,
    clients: Vec<Client>,
    history: Vec<Operation>,
    fenced: BTreeMap<EndpointId, u64>,
    /// Acknowledged messages, per sender and receiver: how many.
    delivered: BTreeMap<(EndpointId, EndpointId), u64>,
    next_value: u64,
    report: Report,
    failure: Option<String>,
    ends: bool,
}

/// Runs the world of a seed.
///
/// # Errors
/// What has gone wrong.
pub fn run(seed: u64) -> Result<Report, String> {
    let mut world = World::new(seed);
    world.begin();
    while world.failure.is_none()
        && let Some(Reverse((at_ns, order))) = world.events.pop()
        && at_ns <= END_NS
    {
        world.now_ns = at_ns;
        let event = world.bodies.remove(&order).expect("each event has a body");
        world.happen(event);
    }
    world.judge()
}

impl World {
    fn new(seed: u64) -> Self {
        let mut dice = Xoshiro256PlusPlus::seed_from_u64(seed);
        let machines = (0..MACHINES)
            .map(|_| Machine {
                process: None,
                memory: Region::anonymous(MEMORY_BYTES).expect("memory"),
                segment: dice.next_u64(),
                is_blank: true,
                record: None,
                drift: (dice.next_u64() % 101) as i64 - 50,
                offset_ns: dice.next_u64() % (100 * LEASE_NS),
                is_starting: false,
            })
            .collect();
        Self {
            now_ns: 0,
            order: 0,
            events: BinaryHeap::new(),
            bodies: BTreeMap::new(),
            dice,
            machines,
            links: BTreeMap::new(),
            arrivals: BTreeMap::new(),
            cut: BTreeSet::new(),
            isolated: BTreeSet::new(),
            slow: BTreeMap::new(),
            next_link: 1,
            next_run: 1,
            membership: Membership::default(),
            clients: (0..CLIENTS).map(|name| Client::new(name, THREADS)).collect(),
            history: Vec::new(),
            fenced: BTreeMap::new(),
            delivered: BTreeMap::new(),
            next_value: 1,
            report: Report::default(),
            failure: None,
            ends: false,
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.dice.next_u64() % bound
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    fn at(&mut self, delay_ns: u64, event: Event) {
        self.order += 1;
        self.events.push(Reverse((self.now_ns + delay_ns, self.order)));
        self.bodies.insert(self.order, event);
    }

    fn fail(&mut self, what: String) {
        self.failure.get_or_insert(format!("at {} ns: {what}", self.now_ns));
    }

    fn begin(&mut self) {
        for machine in 0..MACHINES {
            self.start(machine);
        }
        let first = self.member(0).first_view();
        self.membership.propose(&first);
        self.tell_all(&first);
        for client in 0..CLIENTS {
            let delay_ns = self.below(TICK_NS);
            self.at(delay_ns, Event::ClientTurn { client });
        }
        let delay_ns = self.below(2 * LEASE_NS);
        self.at(delay_ns, Event::Fault);
        self.at(FAULTS_UNTIL_NS, Event::Heal);
    }

    fn member(&mut self, machine: usize) -> &mut Member {
        &mut self.machines[machine].process.as_mut().expect("it runs").member
    }

    /// Starts a process on a machine, if there is none.
    fn start(&mut self, machine: usize) {
        self.machines[machine].is_starting = false;
        if self.machines[machine].process.is_some() {
            return;
        }
        let run = self.next_run;
        self.next_run += 1;
        let now_ns = self.machines[machine].clock(self.now_ns);
        let place = &mut self.machines[machine];
        let contents = if place.is_blank {
            Contents::Blank
        } else {
            Contents::Inherited
        };
        place.is_blank = false;
        let start = Start {
            me: Peer {
                id: MemberId(run),
                segment: place.segment,
                address: format!("machine{machine}"),
            },
            settings: Settings::automatic(LEASE_NS),
            memory: place.memory.clone(),
            contents,
            first_sequence: run << 20,
        };
        let mut member = Member::new(start, now_ns);
        if let Some(view) = place.record.clone() {
            member.decided(now_ns, view);
        }
        place.process = Some(Process {
            member,
            run,
            sessions: Vec::new(),
            stopped_until_ns: 0,
            waiting: Vec::new(),
        });
        let delay_ns = self.below(TICK_NS);
        self.at(delay_ns, Event::Tick { machine, run });
        if let Some(view) = self.membership.newest().cloned() {
            let delay_ns = self.below(LEASE_NS / 2);
            self.at(delay_ns, Event::Decided { machine, run, view });
        }
        for other in 0..MACHINES {
            if other != machine {
                let delay_ns = self.below(TICK_NS);
                let (a, b) = (machine.min(other), machine.max(other));
                self.at(delay_ns, Event::LinkUp { a, b });
            }
        }
    }

    fn kill(&mut self, machine: usize, loses_memory: bool) {
        let Some(process) = self.machines[machine].process.take() else {
            return;
        };
        for session in &process.sessions {
            let (client, link) = (session.client, session.link);
            let delay_ns = self.below(TICK_NS);
            self.at(delay_ns, Event::ClientLost { client, link });
        }
        for other in 0..MACHINES {
            self.break_link(machine, other);
        }
        if loses_memory {
            let segment = self.dice.next_u64();
            let place = &mut self.machines[machine];
            place.memory = Region::anonymous(MEMORY_BYTES).expect("memory");
            place.segment = segment;
            place.is_blank = true;
            place.record = None;
        }
        self.machines[machine].is_starting = true;
        let delay_ns = self.below(6 * LEASE_NS);
        self.at(delay_ns, Event::Start { machine });
    }

    fn break_link(&mut self, a: usize, b: usize) {
        let pair = (a.min(b), a.max(b));
        let Some((link, run_a, run_b)) = self.links.remove(&pair) else {
            return;
        };
        for (at, run, from_run) in [(pair.0, run_a, run_b), (pair.1, run_b, run_a)] {
            // One side may notice later than the other.
            let delay_ns = self.below(LEASE_NS / 2);
            self.at(
                delay_ns,
                Event::LinkDown {
                    at,
                    from_run,
                    link,
                    run,
                },
            );
        }
        let delay_ns = LEASE_NS / 2 + self.below(LEASE_NS);
        self.at(delay_ns, Event::LinkUp { a: pair.0, b: pair.1 });
    }

    fn link_up(&mut self, a: usize, b: usize) {
        if self.links.contains_key(&(a, b)) {
            return;
        }
        let runs = (
            self.machines[a].process.as_ref().map(|process| process.run),
            self.machines[b].process.as_ref().map(|process| process.run),
        );
        let (Some(run_a), Some(run_b)) = runs else { return };
        if self.is_cut(a, b) {
            self.at(LEASE_NS / 4, Event::LinkUp { a, b });
            return;
        }
        let link = self.next_link;
        self.next_link += 1;
        self.links.insert((a, b), (link, run_a, run_b));
        for (at, to) in [(a, run_b), (b, run_a)] {
            let now_ns = self.machines[at].clock(self.now_ns);
            self.member(at).linked(now_ns, MemberId(to));
            self.carry_out(at);
        }
    }

    fn is_cut(&self, a: usize, b: usize) -> bool {
        let pair = (a.min(b), a.max(b));
        self.cut.contains(&pair) || self.isolated.contains(&a) || self.isolated.contains(&b)
    }

    fn latency(&mut self, a: usize, b: usize) -> u64 {
        let base = self.slow.get(&(a.min(b), a.max(b))).copied().unwrap_or(LEASE_NS / 200);
        base / 2 + self.below(base + 1)
    }

    /// When something sent now on a connection arrives.
    fn arrival(&mut self, link: u64, to: usize, latency_ns: u64) -> u64 {
        let earliest = self.arrivals.get(&(link, to)).copied().unwrap_or(0);
        let at_ns = (self.now_ns + latency_ns).max(earliest + 1);
        self.arrivals.insert((link, to), at_ns);
        at_ns - self.now_ns
    }

    /// Does what a member has asked for, and lets answers go.
    fn carry_out(&mut self, machine: usize) {
        while let Some(process) = &mut self.machines[machine].process
            && let Some(output) = process.member.next_output()
        {
            let run = process.run;
            match output {
                Output::Tell(to, note) => self.send_note(machine, run, to, note),
                Output::Propose(view) => {
                    // Some get lost.
                    if !self.one_in(20) {
                        let delay_ns = self.below(LEASE_NS / 10);
                        self.at(delay_ns, Event::Propose { machine, run, view });
                    }
                }
                Output::Changed => {
                    self.machines[machine].record = self.member(machine).view().cloned();
                    if !self.member(machine).is_primary() {
                        self.send_away(machine);
                    }
                }
            }
        }
        self.let_go(machine);
    }

    fn send_note(&mut self, machine: usize, run: u64, to: MemberId, note: Note) {
        let target = (0..MACHINES).find(|&other| {
            let pair = (machine.min(other), machine.max(other));
            self.links
                .get(&pair)
                .is_some_and(|&(_, a, b)| (a == run && b == to.0) || (b == run && a == to.0))
        });
        let Some(target) = target else { return };
        let pair = (machine.min(target), machine.max(target));
        if self.is_cut(machine, target) {
            // A connection that loses something breaks.
            self.break_link(machine, target);
            return;
        }
        if matches!(note, Note::CopyBegins { .. }) {
            self.report.copies += 1;
        }
        let (link, ..) = self.links[&pair];
        let latency_ns = self.latency(machine, target);
        let delay_ns = self.arrival(link, target, latency_ns);
        let mut bytes = Vec::new();
        note.encode(&mut bytes);
        match Note::decode(&bytes) {
            Ok(decoded) if decoded == note => {}
            other => self.fail(format!("a note changed on its way: {other:?}")),
        }
        let event = Event::Note {
            from: machine,
            to: target,
            link,
            note: Box::new(note),
        };
        self.at(delay_ns, event);
    }

    /// Ends all connections of clients.
    fn send_away(&mut self, machine: usize) {
        let Some(process) = &mut self.machines[machine].process else {
            return;
        };
        for session in core::mem::take(&mut process.sessions) {
            let (client, link) = (session.client, session.link);
            let delay_ns = self.below(TICK_NS / 4);
            self.at(delay_ns, Event::ClientLost { client, link });
        }
    }

    /// Lets answers and messages leave that may.
    fn let_go(&mut self, machine: usize) {
        let now_ns = self.machines[machine].clock(self.now_ns);
        let mut leaving = Vec::new();
        {
            let Some(process) = &mut self.machines[machine].process else {
                return;
            };
            process.member.flush(now_ns);
            let released = process.member.released(now_ns);
            for session in &mut process.sessions {
                while let Some(released) = released
                    && let Some((hold, _)) = session.held.front()
                    && *hold <= released
                {
                    let (_, reply) = session.held.pop_front().expect("looked at");
                    leaving.push((session.client, session.link, reply));
                }
                while session.held.is_empty()
                    && let Some((from, message)) = process.member.letter(now_ns, session.id, session.pushed)
                {
                    session.pushed += 1;
                    let number = u64::from_le_bytes(message[..8].try_into().expect("a number"));
                    leaving.push((session.client, session.link, Reply::Letter { from, number }));
                }
            }
        }
        for (client, link, frame) in leaving {
            let latency_ns = LEASE_NS / 400 + self.below(LEASE_NS / 200);
            let delay_ns = self.arrival(link, MACHINES, latency_ns);
            self.at(delay_ns, Event::ToClient { client, link, frame });
        }
        // What flushing has made.
        while let Some(process) = &mut self.machines[machine].process
            && let Some(output) = process.member.next_output()
        {
            let run = process.run;
            if let Output::Tell(to, note) = output {
                self.send_note(machine, run, to, note);
            }
        }
    }

    fn tell_all(&mut self, view: &View) {
        for machine in 0..MACHINES {
            if let Some(process) = &self.machines[machine].process {
                let run = process.run;
                let delay_ns = if self.one_in(4) {
                    self.below(3 * LEASE_NS)
                } else {
                    self.below(LEASE_NS / 10)
                };
                let view = view.clone();
                self.at(delay_ns, Event::Decided { machine, run, view });
            }
        }
    }

    /// Whether an event is for a process that is stopped; then it waits.
    fn waits(&mut self, event: &Event) -> bool {
        let machine = match *event {
            Event::Tick { machine, .. }
            | Event::Decided { machine, .. }
            | Event::ToServer { machine, .. }
            | Event::Note { to: machine, .. }
            | Event::LinkDown { at: machine, .. } => machine,
            _ => return false,
        };
        match &mut self.machines[machine].process {
            Some(process) if process.stopped_until_ns != 0 => {
                process.waiting.push(event.clone());
                true
            }
            _ => false,
        }
    }

    fn runs(&self, machine: usize, run: u64) -> bool {
        self.machines[machine]
            .process
            .as_ref()
            .is_some_and(|process| process.run == run)
    }

    fn happen(&mut self, event: Event) {
        if self.waits(&event) {
            return;
        }
        match event {
            Event::Tick { machine, run } => {
                if self.runs(machine, run) {
                    let now_ns = self.machines[machine].clock(self.now_ns);
                    self.member(machine).tick(now_ns);
                    self.carry_out(machine);
                    self.at(TICK_NS, Event::Tick { machine, run });
                }
            }
            Event::Note { from, to, link, note } => {
                let pair = (from.min(to), from.max(to));
                let Some(&(current, a, b)) = self.links.get(&pair) else {
                    return;
                };
                if current != link {
                    return;
                }
                let sender = if from < to { a } else { b };
                let now_ns = self.machines[to].clock(self.now_ns);
                if let Err(error) = self.member(to).told(now_ns, MemberId(sender), *note) {
                    self.fail(format!("a member refused a note: {error}"));
                }
                self.carry_out(to);
            }
            Event::LinkUp { a, b } => self.link_up(a, b),
            Event::LinkDown {
                at,
                from_run,
                run,
                link,
            } => {
                let _ = link;
                if self.runs(at, run)
                    && !self
                        .links
                        .values()
                        .any(|&(_, a, b)| (a, b) == (run, from_run) || (a, b) == (from_run, run))
                {
                    self.member(at).unlinked(MemberId(from_run));
                    self.carry_out(at);
                }
            }
            Event::Propose { machine, run, view } => {
                if self.membership.down_until_ns > self.now_ns || self.isolated.contains(&machine) {
                    return;
                }
                let before = self.membership.newest().cloned();
                let newest = self.membership.propose(&view).clone();
                if before.as_ref() != Some(&newest) {
                    self.report.views += 1;
                    let takes_over = before.is_some_and(|before| before.primary != newest.primary);
                    self.report.takeovers += u64::from(takes_over);
                    self.tell_all(&newest);
                }
                let delay_ns = self.below(LEASE_NS / 10);
                self.at(
                    delay_ns,
                    Event::Decided {
                        machine,
                        run,
                        view: newest,
                    },
                );
            }
            Event::Decided { machine, run, view } => {
                if self.isolated.contains(&machine) {
                    // It asks again when it can.
                    self.at(LEASE_NS, Event::Decided { machine, run, view });
                } else if self.runs(machine, run) {
                    let now_ns = self.machines[machine].clock(self.now_ns);
                    self.member(machine).decided(now_ns, view);
                    self.carry_out(machine);
                }
            }
            Event::Start { machine } => self.start(machine),
            Event::Fault => self.fault(),
            Event::Resume { machine } => self.wake(machine),
            Event::Heal => {
                self.ends = true;
                self.cut.clear();
                self.isolated.clear();
                self.slow.clear();
                self.membership.down_until_ns = 0;
            }
            Event::ClientTurn { client } => self.client_turn(client),
            Event::ToServer {
                client,
                machine,
                link,
                frame,
            } => self.serve(client, machine, link, frame),
            Event::ToClient { client, link, frame } => self.client_hears(client, link, frame),
            Event::ClientLost { client, link } => self.client_lost(client, link),
        }
    }

    fn wake(&mut self, machine: usize) {
        let Some(process) = &mut self.machines[machine].process else {
            return;
        };
        if process.stopped_until_ns > self.now_ns {
            return;
        }
        process.stopped_until_ns = 0;
        for event in core::mem::take(&mut process.waiting) {
            self.happen(event);
        }
    }

    fn fault(&mut self) {
        if self.ends {
            return;
        }
        let machine = self.below(MACHINES as u64) as usize;
        let other = (machine + 1 + self.below(MACHINES as u64 - 1) as usize) % MACHINES;
        let pair = (machine.min(other), machine.max(other));
        let primary = (0..MACHINES).find(|&at| {
            self.machines[at]
                .process
                .as_ref()
                .is_some_and(|process| process.member.is_primary())
        });
        match self.below(18) {
            0 | 1 => self.kill(machine, false),
            2 => self.kill(primary.unwrap_or(machine), false),
            3 => {
                // Memory may be lost only while the group has it elsewhere.
                let view = self.membership.newest();
                let named =
                    view.is_some_and(|view| view.peers().any(|peer| peer.segment == self.machines[machine].segment));
                let others = (0..MACHINES).filter(|&at| {
                    at != machine
                        && !self.machines[at].is_starting
                        && view.is_some_and(|view| view.peers().any(|peer| peer.segment == self.machines[at].segment))
                });
                // A view on its way may make this machine the only one.
                let proposes = self
                    .bodies
                    .values()
                    .any(|event| matches!(event, Event::Propose { machine: from, .. } if *from == machine));
                if !proposes && (!named || others.count() > 0) {
                    self.kill(machine, true);
                }
            }
            4 => {
                self.cut.insert(pair);
                self.break_link(machine, other);
            }
            5 => {
                self.cut.remove(&pair);
            }
            6 => {
                let slow = LEASE_NS / 50 + self.below(LEASE_NS);
                self.slow.insert(pair, slow);
            }
            7 => {
                self.slow.remove(&pair);
            }
            8 => {
                let stopped = self.below(4 * LEASE_NS);
                let machine = if self.one_in(2) {
                    primary.unwrap_or(machine)
                } else {
                    machine
                };
                if let Some(process) = &mut self.machines[machine].process {
                    process.stopped_until_ns = self.now_ns + stopped;
                    self.at(stopped, Event::Resume { machine });
                }
            }
            9 => self.membership.down_until_ns = self.now_ns + self.below(2 * LEASE_NS),
            10 => {
                let client = self.below(self.clients.len() as u64) as usize;
                self.crash_client(client);
            }
            11 => self.break_link(machine, other),
            12 | 13 => {
                // The others learn of it only from silence.
                self.isolated.insert(primary.unwrap_or(machine));
            }
            14 | 15 => {
                // An operator wants another primary. What is no backup refuses.
                if let Some(process) = &mut self.machines[machine].process {
                    let _ = process.member.promote();
                }
            }
            _ => self.isolated.clear(),
        }
        let delay_ns = self.below(3 * LEASE_NS);
        self.at(delay_ns, Event::Fault);
    }
}

mod service;
mod verdict;
