//! What is measured: a program that clients run, whatever fabric they are on.
//!
//! On the path: a stage prepares the memory node, lets each compute node join, and makes the clients;
//! the driver then calls [`Client::step`] again and again.

use farside_fabric::region::Region;
use farside_fabric::{CounterSnapshot, Endpoint, OpContext};

use crate::error::BenchError;
use crate::workload::{Operation, TransactionKind};

/// What was seen of the memory while it was made ready.
#[derive(Clone, Copy, Default, Debug)]
pub struct Laid {
    /// How often the index has split a subtable.
    pub splits: u64,
    /// Entries and slots of the first that was split.
    pub first_split: Option<(u64, u64)>,
}

/// A program for many clients on one memory node.
pub trait Program: Clone + Send + Sync + 'static {
    /// What the clients of a compute node share.
    type Node: 'static;
    /// One client.
    type Client: Client + 'static;
    /// What a compute node remembers of the memory.
    type Known: 'static;

    /// Bytes that the memory node needs.
    fn memory_bytes(&self) -> u64;

    /// Names what [`Program::prepare`] makes of blank memory: programs with the same name make the same, so that one
    /// run can begin with what another has made.
    fn layout(&self) -> String;

    /// Makes blank memory ready, before anybody else comes. `region` is that memory itself, for what
    /// would take too long by verbs.
    ///
    /// # Errors
    /// See [`BenchError`]; likewise below.
    async fn prepare(&self, endpoint: Endpoint, region: &Region) -> Result<Laid, BenchError>;

    /// Whether memory nodes need the memory of their NICs.
    fn uses_chip(&self) -> bool {
        false
    }

    /// Whether somebody has to work beside the memory node.
    fn has_agent(&self) -> bool {
        false
    }

    /// Works beside the memory node, until it is dropped.
    async fn serve(&self, endpoint: Endpoint) -> Result<(), BenchError> {
        drop(endpoint);
        Ok(())
    }

    /// Names what a compute node learns of the memory as it joins, if that is anything: programs that begin with the same memory
    /// and have this name in common learn the same.
    fn lesson(&self) -> Option<String> {
        None
    }

    /// What a compute node has learned that has just joined.
    fn known(&self, node: &Self::Node) -> Self::Known;

    /// Lets a compute node join. Its clients take steps through endpoints of their own, or through
    /// this one. It need not learn what is `known`.
    async fn join(&self, endpoint: Endpoint, known: Option<&Self::Known>) -> Result<Self::Node, BenchError>;

    /// Makes client `number`, counted over all compute nodes.
    fn client(&self, node: &Self::Node, endpoint: &Endpoint, number: u64) -> Self::Client;

    /// The time that counts begins, in a simulation.
    fn begin(&self, node: &Self::Node) {
        let _ = node;
    }

    /// Looks at what a compute node knows, when its clients have ended.
    fn note(&self, node: &Self::Node) {
        let _ = node;
    }

    /// Lets a compute node leave.
    async fn leave(&self, node: Self::Node) -> Result<(), BenchError>;

    /// Other keys than before are popular from now on.
    fn move_hot_set(&self) {}

    /// Whether the program ends by itself, rather than with the time it is given.
    fn is_finite(&self) -> bool {
        false
    }

    /// Bytes of the memory node in use, if the program knows.
    fn memory_used(&self, region: &Region) -> Option<u64> {
        let _ = region;
        None
    }
}

/// A measured client.
pub trait Client {
    /// Does one operation; `None` if there is nothing left to do.
    ///
    /// # Errors
    /// See [`BenchError`].
    async fn step(&mut self, cx: &mut OpContext) -> Result<Option<Step>, BenchError>;
}

/// What one operation on a lock did, or on all locks of a transaction.
#[derive(Clone, Copy, Default, Debug)]
pub struct LockStep {
    /// When the lock was granted, or the last of them, on the endpoint's clock.
    pub granted_ns: u64,
    /// When the client began to give it back.
    pub release_ns: u64,
    /// What the endpoint posted until the lock was granted; of use only if the client has it for itself.
    pub acquire: CounterSnapshot,
    /// Whether it was the most popular of all locks.
    pub is_hottest: bool,
}

/// What one transaction did.
#[derive(Clone, Copy, Debug)]
pub struct TransactionStep {
    /// Its type.
    pub kind: TransactionKind,
    /// When it was begun, the first time.
    pub begun_ns: u64,
    /// How many locks it asked for in shared mode.
    pub shared: u64,
    /// How many locks it asked for in exclusive mode.
    pub exclusive: u64,
    /// Whether it held all of its locks until it had worked; if not, it is done again.
    pub is_committed: bool,
}

/// What one operation did, apart from the time it took.
#[derive(Clone, Copy, Default, Debug)]
pub struct Step {
    /// If the operation is one on a lock.
    pub lock: Option<LockStep>,
    /// What it was, if the operation is one on a key.
    pub operation: Option<Operation>,
    /// If the operation is a transaction.
    pub transaction: Option<TransactionStep>,
}
