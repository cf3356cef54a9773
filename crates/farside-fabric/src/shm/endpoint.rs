//! A client that maps the memory: each verb is a few processor instructions.
//!
//! On the path: the lowest call of every operation when the segments are on this machine. Verbs
//! complete at once: no allocation, no suspension; what is left of the fabric is a bounds check, a
//! look at the state word (a line that nobody writes) and a count.

use core::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

use super::error::SegmentError;
use super::registration::Registration;
use super::segment::{Segment, is_closed};
use super::table::Kind;
use crate::addr::{NODE_COUNT_MAX, NodeId, RemoteAddr};
use crate::backend::{Backend, Fence, check_verb};
use crate::batch::Batch;
use crate::buffer::Buffer;
use crate::capabilities::Capabilities;
use crate::clock::Deadline;
use crate::counters::Counters;
use crate::error::{AttachError, FabricError};
use crate::grown::Grown;
use crate::host::HostRandom;
use crate::message::{EndpointId, Message, Received};
use crate::posted::{Posted, Soon};
use crate::region::Region;
use crate::verb::{Slice, Verb, VerbKind};
use crate::view::{Lines, View};

/// The segments that together are the memory. All clients name them in the same order.
#[derive(Clone, Debug)]
pub struct Fabric {
    segments: Vec<Segment>,
}

impl Fabric {
    /// Node i is the i-th segment.
    #[must_use]
    pub fn new(segments: Vec<Segment>) -> Self {
        Self { segments }
    }

    /// The segments, in the order of their nodes.
    #[must_use]
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// A new client. It joins every segment, the first (its home, where its mail arrives) first.
    ///
    /// # Errors
    /// [`SegmentError::TableFull`], [`SegmentError::NodeCount`], [`SegmentError::UsedByNic`].
    pub fn endpoint(&self) -> Result<crate::Endpoint, SegmentError> {
        let count = self.segments.len();
        let Some((first, others)) = self.segments.split_first().filter(|_| count <= NODE_COUNT_MAX.into()) else {
            return Err(SegmentError::NodeCount { count });
        };
        for segment in &self.segments {
            segment.require_mappable()?;
        }
        let home = Registration::claim(first, Kind::Mapped, None)?;
        let others: Result<Vec<_>, _> = others
            .iter()
            .map(|segment| Registration::claim(segment, Kind::Mapped, Some(home.id())))
            .collect();
        let endpoint = Endpoint {
            shared: Rc::new(Shared {
                nodes: Grown::new(self.segments.iter().map(Node::new).collect()),
                capabilities: Region::capabilities(),
                counters: Counters::default(),
                random: HostRandom::new(),
                others: RefCell::new(others?.into_iter().map(Some).collect()),
                home,
            }),
        };
        Ok(endpoint.into())
    }
}

/// One client. Clones are the same client; it leaves the segments with the last of them.
///
/// Not `Send`: one thread, as many clients as there are threads.
#[derive(Clone, Debug)]
pub struct Endpoint {
    shared: Rc<Shared>,
}

#[derive(Debug)]
struct Shared {
    nodes: Grown<Node>,
    capabilities: Capabilities,
    counters: Counters,
    random: HostRandom,
    home: Registration,
    /// Of the nodes from 1 on; `None` of those that are not reached.
    others: RefCell<Vec<Option<Registration>>>,
}

/// What a verb needs of a segment, without a detour.
#[derive(Clone, Debug)]
struct Node {
    region: Region,
    control: Region,
}

impl Node {
    fn new(segment: &Segment) -> Self {
        Self {
            region: segment.region().clone(),
            control: segment.control().clone(),
        }
    }

    /// A node without memory, which every verb misses; its control word is that of another.
    fn absent(&self) -> Self {
        Self {
            region: self.region.without_bytes(),
            control: self.control.clone(),
        }
    }

    /// Executes a verb that has been checked, unless the node is gone.
    #[inline(always)]
    fn execute(&self, verb: &Verb, buffer: &mut [u8]) -> Result<u128, FabricError> {
        if is_closed(&self.control) {
            let node = verb.target().0.node();
            return Err(FabricError::NodeGone { node });
        }
        Ok(self.region.execute(verb, buffer))
    }
}

impl Shared {
    /// The segments that this client has joined, by node.
    fn joined(&self) -> Vec<(NodeId, Segment)> {
        let others = self.others.borrow();
        let all = core::iter::once(Some(&self.home)).chain(others.iter().map(Option::as_ref));
        all.enumerate()
            .filter_map(|(index, joined)| Some((NodeId::new(index as u16), joined?.segment().clone())))
            .collect()
    }

    /// The registration at a node from 1 on, with room for it.
    fn set_other(&self, node: NodeId, joined: Option<Registration>) {
        let mut others = self.others.borrow_mut();
        if others.len() < node.index() {
            others.resize_with(node.index(), || None);
        }
        others[node.index() - 1] = joined;
    }

    #[inline]
    fn node(&self, node: NodeId) -> Result<&Node, FabricError> {
        self.nodes.get(node.index()).ok_or(FabricError::NodeUnknown { node })
    }

    /// What can be known before posting.
    #[inline]
    fn check(&self, verb: &Verb) -> Result<&Node, FabricError> {
        let node = self.node(verb.target().0.node())?;
        check_verb(verb, node.region.bytes(), self.capabilities)?;
        Ok(node)
    }

    #[inline]
    fn count(&self, verb: &Verb) {
        self.counters.count(verb.kind(), verb.target().1);
    }

    /// Always inlined: which verb it is, is known wherever it is called, and nine of ten arms vanish.
    #[inline(always)]
    fn execute(&self, verb: &Verb, buffer: &mut [u8]) -> Result<u128, FabricError> {
        let node = self.check(verb)?;
        self.counters.count_doorbell();
        self.count(verb);
        node.execute(verb, buffer)
    }
}

impl Endpoint {
    /// Executes a verb. Always inlined, as its callers know which verb it is.
    #[inline(always)]
    pub(crate) fn execute_now(&self, verb: &Verb, buffer: &mut Buffer) -> Result<u128, FabricError> {
        self.shared.execute(verb, buffer)
    }

    /// See [`crate::Endpoint::write_both_now`].
    pub(crate) fn write_both_now(&self, [first, second]: [&[u8]; 2], target: RemoteAddr) -> Result<(), FabricError> {
        let source = Slice::first((first.len() + second.len()) as u32);
        let verb = Verb::Write { source, target };
        let node = self.shared.check(&verb)?;
        self.shared.counters.count_doorbell();
        self.shared.count(&verb);
        if is_closed(&node.control) {
            return Err(FabricError::NodeGone { node: target.node() });
        }
        node.region.write_both(target.offset(), [first, second]);
        Ok(())
    }

    /// See [`crate::Endpoint::read_now`].
    pub(crate) fn read_now(&self, source: RemoteAddr, target: &mut [u8]) -> Result<(), FabricError> {
        let verb = Verb::Read {
            source,
            target: Slice::first(target.len() as u32),
        };
        let node = self.shared.check(&verb)?;
        self.shared.counters.count_doorbell();
        self.shared.count(&verb);
        if is_closed(&node.control) {
            return Err(FabricError::NodeGone { node: source.node() });
        }
        node.region.read(source.offset(), target);
        Ok(())
    }

    /// See [`crate::Endpoint::lines`].
    #[inline]
    pub(crate) fn lines(&self, addr: RemoteAddr, bytes: u64) -> Option<Lines<'_>> {
        let node = self.shared.nodes.get(addr.node().index())?;
        if is_closed(&node.control) {
            return None;
        }
        node.region.lines(addr.offset(), bytes, &self.shared.counters)
    }

    /// Executes a batch. Asks for all lines before it touches the first: the cache misses overlap.
    pub(crate) fn post_now(&self, batch: &mut Batch, buffer: &mut Buffer) -> Result<u128, FabricError> {
        for verb in batch.verbs() {
            let node = self.shared.check(verb)?;
            let (addr, bytes) = verb.target();
            node.region.prefetch(addr.offset(), bytes as u32);
        }
        self.shared.counters.count_doorbell();
        for index in 0..batch.verbs().len() {
            let verb = &batch.verbs()[index];
            self.shared.count(verb);
            let node = self.shared.node(verb.target().0.node())?;
            let result = node.execute(verb, buffer)?;
            batch.set_result(index, result);
        }
        Ok(0)
    }
}

impl Endpoint {
    fn attach_now(&self, node: NodeId, place: &str) -> Result<(), AttachError> {
        if self.is_attached(node) {
            return Ok(());
        }
        let wrong = |reason: &dyn ToString| AttachError::new(node, place, reason.to_string());
        let Some(path) = place.split(',').find_map(|place| place.trim().strip_prefix("shm:")) else {
            return Err(wrong(
                &"this client maps its memory, and can use another segment of this machine: name it shm:PATH",
            ));
        };
        let join = |path: &Path| {
            let segment = Segment::open(path)?;
            segment.require_mappable()?;
            let joined = Registration::claim(&segment, Kind::Mapped, Some(self.shared.home.id()))?;
            Ok::<_, SegmentError>((segment, joined))
        };
        let (segment, joined) = join(Path::new(path)).map_err(|error| wrong(&error))?;
        self.shared.set_other(node, Some(joined));
        self.shared.nodes.change(|nodes| {
            let absent = nodes[0].absent();
            nodes.resize(nodes.len().max(node.index() + 1), absent);
            nodes[node.index()] = Node::new(&segment);
        });
        Ok(())
    }
}

impl Backend for Endpoint {
    fn node_count(&self) -> usize {
        self.shared.nodes.len()
    }

    fn attach<'c>(&'c self, node: NodeId, place: &'c str) -> Soon<'c, Result<(), AttachError>> {
        Soon::done(self.attach_now(node, place))
    }

    fn detach(&self, node: NodeId) {
        if self.is_attached(node) {
            self.shared.set_other(node, None);
            self.shared
                .nodes
                .change(|nodes| nodes[node.index()] = nodes[0].absent());
        }
    }

    fn is_attached(&self, node: NodeId) -> bool {
        self.shared
            .nodes
            .get(node.index())
            .is_some_and(|node| node.region.bytes() > 0)
    }

    fn node_bytes(&self, node: NodeId) -> Result<u64, FabricError> {
        Ok(self.shared.node(node)?.region.bytes())
    }

    #[inline]
    fn capabilities(&self) -> Capabilities {
        self.shared.capabilities
    }

    fn execute<'c>(&'c self, verb: &Verb, buffer: &'c mut Buffer, _: Deadline) -> Posted<'c> {
        Posted::done(self.execute_now(verb, buffer))
    }

    fn post<'c>(&'c self, batch: &'c mut Batch, buffer: &'c mut Buffer, _: Deadline) -> Posted<'c> {
        Posted::done(self.post_now(batch, buffer))
    }

    #[inline]
    fn prefetch(&self, addr: RemoteAddr, bytes: u32) -> bool {
        match self.shared.node(addr.node()) {
            Ok(node) => {
                node.region.prefetch(addr.offset(), bytes);
                true
            }
            Err(_) => false,
        }
    }

    #[inline]
    fn view(&self, addr: RemoteAddr, bytes: u32) -> Option<View<'_>> {
        let node = self.shared.nodes.get(addr.node().index())?;
        if is_closed(&node.control) {
            return None;
        }
        let view = node.region.view(addr.offset(), bytes.into())?;
        self.shared.counters.count_doorbell();
        self.shared.counters.count(VerbKind::Read, bytes.into());
        Some(view)
    }

    fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    fn id(&self) -> EndpointId {
        self.shared.home.id()
    }

    fn send<'c>(&'c self, peer: EndpointId, message: &'c Message, _: Deadline) -> Soon<'c, Result<(), FabricError>> {
        self.shared.counters.count_doorbell();
        self.shared.counters.count(VerbKind::Send, message.len() as u64);
        Soon::done(self.shared.home.send(peer, message))
    }

    fn receive(&self, deadline: Deadline) -> Soon<'_, Result<Received, FabricError>> {
        // Nothing is taken before it is polled: a future that is dropped loses no message.
        Soon::later(self.shared.home.receive(deadline))
    }

    fn try_receive(&self) -> Result<Option<Received>, FabricError> {
        Ok(self.shared.home.try_receive())
    }

    fn fence(&self, peer: EndpointId, deadline: Deadline) -> Soon<'_, Result<Fence, FabricError>> {
        Soon::later(async move {
            for (node, segment) in self.shared.joined() {
                if segment.fence(node, peer, deadline).await? == Fence::StillRunning {
                    return Ok(Fence::StillRunning);
                }
            }
            Ok(Fence::CutOff)
        })
    }

    fn random(&self) -> u64 {
        self.shared.random.random()
    }
}
