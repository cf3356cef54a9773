//! Stepping: a chooser, not time, decides which request is executed next.
//!
//! On the path: while a chooser is set, what a client posts is at its destination at once and waits
//! there. When no task can run, the chooser picks one of the requests at the heads of their queue
//! pairs; it is executed whole (or one line of it, see
//! [`SimOptions::steps_by_line`](super::SimOptions::steps_by_line)), and its client sees the
//! result before the next choice. Ports, units, wires and jitter play no role. Time moves only when no
//! request waits anywhere; then sleeps end and deadlines pass as usual. So the choices are all
//! interleavings that the order of queue pairs allows, and nothing else: see [`explore`](super::explore()).
//!
//! Faults in this mode:
//! - A client that crashes, or whose queue pair breaks, leaves requests behind. Each stays a candidate,
//!   and a second one says that it is lost, with all behind it: no chance is involved.
//! - A request to a node that is gone fails when time passes, as usual; on a cut link it waits.
//! - Delays of links do nothing.
//!
//! Invariant: `waiting` is in the order of arrival, and so holds each queue pair's requests in order.

use super::client::BROKEN;
use super::memory::touch;
use super::operation::{NONE, Operation, Work};
use super::trace::Step;
use super::world::{World, endpoint_id};
use super::{Sim, operation::State};
use crate::addr::{NodeId, RemoteAddr};
use crate::error::FabricError;
use crate::message::EndpointId;
use crate::verb::{Verb, VerbKind};

/// What a request asks for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Request {
    /// A verb at a memory node.
    Verb {
        /// Which one.
        kind: VerbKind,
        /// The first byte that it touches.
        addr: RemoteAddr,
        /// How many bytes it touches.
        bytes: u64,
    },
    /// A message.
    Send {
        /// Who receives it.
        peer: EndpointId,
        /// Its length.
        bytes: u64,
    },
    /// Cutting a client off from a node.
    Fence {
        /// Who is cut off.
        peer: EndpointId,
        /// From which node.
        node: NodeId,
    },
    /// Connecting to a node anew.
    Connect {
        /// The node.
        node: NodeId,
    },
}

/// A step that may be taken next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Candidate {
    /// Who posted it.
    pub client: EndpointId,
    /// What it asks for.
    pub request: Request,
    /// The line that is touched, counted within the request, if its lines are steps of their own.
    pub line: Option<u32>,
    /// Whether the step is that the request, with those behind it on its queue pair, has no (further)
    /// effect: its client has crashed, or its queue pair has broken.
    pub is_lost: bool,
}

/// Picks one of the candidates: its index.
pub type Chooser = Box<dyn FnMut(&[Candidate]) -> usize>;

/// A request at its destination.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    index: u32,
    /// Tells it from another request in the same slot.
    number: u64,
    /// How many lines have been touched.
    touched: u32,
}

/// A candidate, as the world knows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    number: u64,
    is_lost: bool,
    /// Whether the request could be lost when the chooser was asked.
    can_be_lost: bool,
}

/// The state of stepping.
#[derive(Default)]
pub(super) struct Stepping {
    /// `None` while it is being asked.
    chooser: Option<Chooser>,
    waiting: Vec<Waiting>,
    arrived: u64,
}

impl World {
    /// Posts a batch: its requests are where they go to.
    #[cold]
    pub(super) fn post_steps(&mut self, lead: u32) {
        let mut index = lead;
        while index != NONE {
            self.record(Step::Posted, index, self.operations[index].number);
            let next = self.operations[index].batch_next;
            self.arrive_to_wait(index);
            index = next;
        }
    }

    /// A request is at its destination, unless it cannot get there.
    pub(super) fn arrive_to_wait(&mut self, index: u32) {
        let operation = &mut self.operations[index];
        operation.is_received = true;
        let (nic, incarnation) = (operation.nic, operation.incarnation);
        if let Some(node) = self.nics[nic as usize].node {
            let (memory, id) = (&self.nodes[node as usize], NodeId::new(node));
            if incarnation == BROKEN {
                let operation = &mut self.operations[index];
                operation.error = Some(FabricError::NodeGone { node: id });
                operation.is_executed = true;
                return self.complete(index);
            }
            if !memory.is_alive || memory.incarnation != incarnation {
                return self.fail_gone(index, id);
            }
        }
        let path = self.path_of(index);
        if self.paths.delay(path).is_none() {
            return self.paths.hold(path, index, true);
        }
        let Some(stepping) = &mut self.stepping else {
            unreachable!("requests wait only for a chooser")
        };
        stepping.arrived += 1;
        let number = stepping.arrived;
        stepping.waiting.push(Waiting {
            index,
            number,
            touched: 0,
        });
    }

    /// Whether there is a step to choose. Requests that a crash point dropped are none.
    pub(super) fn has_choices(&mut self) -> bool {
        loop {
            let Some(stepping) = &mut self.stepping else {
                return false;
            };
            let operations = &self.operations;
            let dropped = |waiting: &Waiting| operations[waiting.index].is_dropped;
            match stepping.waiting.iter().position(dropped) {
                Some(at) => {
                    let waiting = stepping.waiting.remove(at);
                    self.lose(waiting.index);
                }
                None => return !stepping.waiting.is_empty(),
            }
        }
    }

    /// The chooser, what it may choose from, and the same for [`World::execute_step`].
    pub(super) fn choices(&mut self) -> (Chooser, Vec<Candidate>, Vec<Choice>) {
        let stepping = self.stepping.as_mut().expect("the caller has looked");
        let chooser = stepping.chooser.take();
        let chooser = chooser.expect("a chooser does not run the simulation that asks it");
        let stepping = self.stepping.as_ref().expect("it is still there");
        let (mut candidates, mut choices) = (Vec::new(), Vec::new());
        for (at, waiting) in stepping.waiting.iter().enumerate() {
            let pair = self.operations[waiting.index].pair;
            let is_behind = |before: &Waiting| self.operations[before.index].pair == pair;
            if stepping.waiting[..at].iter().any(is_behind) {
                continue;
            }
            let candidate = self.candidate(waiting);
            let can_be_lost = self.can_be_lost(&self.operations[waiting.index]);
            for is_lost in [false, true].into_iter().filter(|&is_lost| !is_lost || can_be_lost) {
                candidates.push(Candidate { is_lost, ..candidate });
                choices.push(Choice {
                    number: waiting.number,
                    is_lost,
                    can_be_lost,
                });
            }
        }
        (chooser, candidates, choices)
    }

    fn candidate(&self, waiting: &Waiting) -> Candidate {
        let operation = &self.operations[waiting.index];
        let node = || {
            let node = self.nics[operation.nic as usize].node;
            NodeId::new(node.expect("this goes to a memory node"))
        };
        let mut line = None;
        let request = match &operation.work {
            Work::Verb(verb) => {
                let (addr, bytes) = verb.target();
                line = self.steps_by_line(verb).then_some(waiting.touched);
                let kind = verb.kind();
                Request::Verb { kind, addr, bytes }
            }
            Work::Send { peer, message } => Request::Send {
                peer: endpoint_id(*peer),
                bytes: message.len() as u64,
            },
            Work::Fence { peer } => Request::Fence {
                peer: endpoint_id(*peer),
                node: node(),
            },
            Work::Connect => Request::Connect { node: node() },
            Work::Receive | Work::Sleep => unreachable!("waiting is no request"),
        };
        Candidate {
            client: endpoint_id(operation.client),
            request,
            line,
            is_lost: false,
        }
    }

    fn waiting_at(&self, at: usize) -> u32 {
        let stepping = self
            .stepping
            .as_ref()
            .expect("steps are taken while there is a chooser");
        stepping.waiting[at].index
    }

    fn steps_by_line(&self, verb: &Verb) -> bool {
        self.options.steps_by_line && !self.is_one_piece(verb)
    }

    fn can_be_lost(&self, operation: &Operation) -> bool {
        let is_broken = self.pairs[operation.pair as usize].incarnation != operation.incarnation;
        let is_connecting = matches!(operation.work, Work::Connect);
        self.clients[operation.client as usize].is_crashed || (is_broken && !is_connecting)
    }

    /// Puts the chooser back after it was asked; returns it if it is not wanted any more.
    pub(super) fn give_back(&mut self, chooser: Chooser) -> Option<Chooser> {
        match &mut self.stepping {
            Some(stepping) if stepping.chooser.is_none() => {
                stepping.chooser = Some(chooser);
                None
            }
            _ => Some(chooser),
        }
    }

    /// Takes a step, unless the chooser itself has seen to it that the request waits no more.
    pub(super) fn execute_step(&mut self, choice: Choice) {
        let Some(stepping) = &mut self.stepping else { return };
        let is_chosen = |waiting: &Waiting| waiting.number == choice.number;
        let Some(at) = stepping.waiting.iter().position(is_chosen) else {
            return;
        };
        if choice.is_lost {
            return self.lose_steps(at);
        }
        if self.can_be_lost(&self.operations[self.waiting_at(at)]) != choice.can_be_lost {
            return; // The chooser has injected a fault, and is asked again.
        }
        let Some(stepping) = &mut self.stepping else { return };
        let Waiting { index, touched, .. } = stepping.waiting[at];
        if touched == 0 && !self.begin_step(index) {
            return self.end_step(at, index);
        }
        let operation = &self.operations[index];
        if let (Some(node), true) = (self.nics[operation.nic as usize].node, touched != 0)
            && self.nodes[node as usize].fenced.contains(&operation.client)
        {
            let node = NodeId::new(node);
            self.operations[index].error = Some(FabricError::Fenced { node });
            self.operations[index].is_executed = true;
        }
        let operation = &mut self.operations[index];
        if operation.is_executed {
            // Refused: its client was cut off.
            self.end_step(at, index);
            return self.answer(index);
        }
        match operation.work {
            Work::Verb(verb) => {
                if self.step_lines(index, &verb, touched) {
                    let stepping = self.stepping.as_mut().expect("it is still there");
                    stepping.waiting[at].touched += 1;
                    return;
                }
            }
            Work::Send { .. } => {
                self.end_step(at, index);
                self.record(Step::Executed, index, 0);
                return self.deliver(index);
            }
            Work::Fence { peer } => {
                let node = self.nics[operation.nic as usize].node;
                self.cut_off(peer, node.expect("fences go to memory nodes"));
            }
            Work::Connect => {}
            Work::Receive | Work::Sleep => unreachable!("waiting is no request"),
        }
        self.operations[index].is_executed = true;
        self.end_step(at, index);
        self.after_effect(index);
        self.answer(index);
    }

    /// The node takes a request up; returns false if it came to nothing.
    fn begin_step(&mut self, index: u32) -> bool {
        self.operations[index].queued_at = self.now;
        if !self.accept(index) {
            return false;
        }
        let operation = &self.operations[index];
        if operation.is_executed {
            return true;
        }
        let (nic, work) = (operation.nic as usize, &operation.work);
        let kind = match work {
            Work::Verb(verb) => verb.kind(),
            _ => VerbKind::Send,
        };
        if let Work::Verb(verb) = *work
            && !kind.is_atomic()
        {
            self.meet_steps(index, &verb);
        }
        self.nics[nic].statistics.verbs.count(kind);
        true
    }

    /// A READ or WRITE meets those of which some lines, but not all, have been touched.
    fn meet_steps(&mut self, index: u32, verb: &Verb) {
        let (addr, bytes) = verb.target();
        if verb.kind() == VerbKind::Read {
            self.check_known(index, addr);
        }
        let stepping = self
            .stepping
            .as_ref()
            .expect("steps are taken while there is a chooser");
        let begun: Vec<u32> = stepping
            .waiting
            .iter()
            .filter(|waiting| waiting.touched != 0 && waiting.index != index)
            .map(|waiting| waiting.index)
            .collect();
        for other in begun {
            let Work::Verb(begun) = self.operations[other].work else {
                unreachable!("only verbs have lines")
            };
            let (start, length) = begun.target();
            if start.node() != addr.node() {
                continue;
            }
            match (verb, begun) {
                (Verb::Read { .. }, Verb::Write { .. }) => {
                    self.mark_torn(index, start.offset(), start.offset() + length);
                }
                (Verb::Write { .. }, Verb::Read { .. }) if self.may_tear(verb) => {
                    self.mark_torn(other, addr.offset(), addr.offset() + bytes);
                }
                _ => {}
            }
        }
    }

    /// Executes a verb, or its next line; returns whether there are lines left.
    fn step_lines(&mut self, index: u32, verb: &Verb, touched: u32) -> bool {
        if self.is_one_piece(verb) {
            self.end_verb(index);
            return false;
        }
        let by_line = self.steps_by_line(verb);
        let (addr, bytes) = verb.target();
        let tear = self.options.tear_bytes;
        let (low, high) = (addr.offset(), addr.offset() + bytes);
        let pieces = ((high - 1) / tear - low / tear + 1) as u32;
        // Its client may crash at one of its lines.
        let pieces = pieces.min(self.operations[index].line_limit);
        let end = if by_line { pieces.min(touched + 1) } else { pieces };
        if touched < end {
            let at = |piece: u32| (low / tear + u64::from(piece)) * tear;
            let part = low.max(at(touched))..high.min(at(end));
            let lead = self.operations[index].lead;
            let memory = self.operations[lead].memory.bytes_mut();
            touch(&mut self.nodes[addr.node().index()], verb, memory, part);
            self.record(Step::Touched, index, u64::from(end));
        }
        end < pieces
    }

    fn end_step(&mut self, at: usize, index: u32) {
        let stepping = self
            .stepping
            .as_mut()
            .expect("steps are taken while there is a chooser");
        let ended = stepping.waiting.remove(at);
        debug_assert!(ended.index == index, "nothing was removed meanwhile");
    }

    /// The client sees the result, unless its link is cut.
    pub(super) fn answer(&mut self, index: u32) {
        let path = self.path_of(index);
        if self.paths.delay(path).is_none() {
            return self.paths.hold(path, index, false);
        }
        self.operations[index].is_received = true;
        self.complete(index);
    }

    /// A request and those behind it on its queue pair take no (further) effect.
    fn lose_steps(&mut self, at: usize) {
        let Some(stepping) = &mut self.stepping else { return };
        let pair = self.operations[stepping.waiting[at].index].pair;
        let operations = &self.operations;
        let lost: Vec<u32> = stepping
            .waiting
            .extract_if(at.., |waiting| {
                let operation = &operations[waiting.index];
                operation.pair == pair && !matches!(operation.work, Work::Connect)
            })
            .map(|waiting| waiting.index)
            .collect();
        for index in lost {
            let Operation { client, is_fatal, .. } = self.operations[index];
            self.operations[index].is_dropped = true;
            self.lose(index);
            if is_fatal {
                // The verb at which it was to crash will have no effect to crash after.
                self.crash_client_now(client);
            }
        }
    }

    /// A node is gone, and with it what waits there.
    pub(super) fn drain_steps(&mut self, nic: u16, node: NodeId) {
        let Some(stepping) = &mut self.stepping else { return };
        let operations = &self.operations;
        let drained: Vec<u32> = stepping
            .waiting
            .extract_if(.., |waiting| operations[waiting.index].nic == nic)
            .map(|waiting| waiting.index)
            .collect();
        for index in drained {
            let lead = self.operations[index].lead;
            if self.operations[index].is_dropped || self.operations[lead].state == State::Lost {
                self.lose(index);
            } else {
                self.fail_gone(index, node);
            }
        }
    }

    fn set_chooser(&mut self, chooser: Option<Chooser>) -> Option<Chooser> {
        if chooser.is_some() {
            return core::mem::replace(&mut self.stepping.get_or_insert_default().chooser, chooser);
        }
        // What waits is executed now, in order; from then on time decides.
        while self.has_choices() {
            let stepping = self.stepping.as_ref().expect("something waits there");
            let first = stepping.waiting[0];
            self.execute_step(Choice {
                number: first.number,
                is_lost: false,
                can_be_lost: self.can_be_lost(&self.operations[first.index]),
            });
        }
        self.stepping.take().and_then(|stepping| stepping.chooser)
    }
}

impl Sim {
    /// From now on `chooser` decides what happens next: see the module. With `None` time does again;
    /// requests that wait are executed before that, in order. What was posted before a chooser is set
    /// goes its way by time, after all requests that wait: set it before anything is posted.
    ///
    /// The chooser may call the simulation, also to inject faults, but may not run it. If the request
    /// that it picks was concerned by its fault, it is asked again. (A chooser that holds a [`Sim`] keeps
    /// the simulation alive: take it out at the end.)
    ///
    /// # Panics
    /// The run, if the chooser picks what is not there.
    pub fn set_chooser(&self, chooser: Option<Chooser>) {
        let before = self.shared.world().set_chooser(chooser);
        drop(before);
    }
}
