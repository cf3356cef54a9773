//! Clients of an [object store](farside_objects): get and set, under a reader-writer lock for each object.
//!
//! On the path: the program of `bench objects`. What a client does it draws from a workload, or takes from a trace.
//!
//! A client fills an object with the stamp of its set, and looks at every word of what it gets: an object that is of several sets
//! is a *torn* one. Under a lock there is none, or the measurement fails.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use farside_fabric::region::Region;
use farside_fabric::{Endpoint, OpContext};
use farside_lock::declock::header::CAPACITY_MAX;
use farside_lock::declock::local::Policy;
use farside_lock::service::Agent;
use farside_lock::{LockKind, LockOptions, Locker, Site};
use farside_objects::{Objects, Places};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::error::BenchError;
use crate::lock::{LockNode, Noted, check_theta};
use crate::program::{Client, Laid, LockStep, Program, Step};
use crate::stage::Setting;
use crate::workload::{ObjectWorkload, Operation, Request, Scatter, Trace, Zipf, client_random};

/// What clients ask for.
#[derive(Clone, Debug)]
pub enum Requests {
    /// What a workload says, drawn.
    Drawn {
        /// The workload.
        workload: ObjectWorkload,
        /// How many objects there are.
        objects: u64,
        /// How much more popular some are than others.
        theta: f64,
    },
    /// The lines of a trace in turn: client `c` of `n` takes lines `c`, `c + n`, and so on, and begins anew at the end.
    Traced(Arc<Trace>),
}

impl Requests {
    /// The most bytes of each object.
    fn capacities(&self) -> Vec<u32> {
        match self {
            Self::Drawn { workload, objects, .. } => {
                let scatter = Scatter::new(*objects);
                let mut capacities = vec![0; *objects as usize];
                for rank in 0..*objects {
                    capacities[scatter.key(rank) as usize] = workload.bytes(rank);
                }
                capacities
            }
            Self::Traced(trace) => trace.capacities.clone(),
        }
    }

    /// What they are called.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Drawn { workload, .. } => workload.name,
            Self::Traced(trace) => &trace.name,
        }
    }
}

/// What clients do with objects.
#[derive(Clone, Debug)]
pub struct ObjectProgram {
    /// Which lock; none to see what the fabric alone does.
    pub kind: Option<LockKind>,
    /// How it behaves; where its service and roster are is left out.
    pub options: LockOptions,
    /// What clients ask for.
    pub requests: Requests,
    /// How many clients there are.
    pub clients: u64,
    /// Where the objects stand.
    pub places: Arc<Places>,
    /// How many objects were torn when clients got them.
    pub torn: Arc<AtomicU64>,
    /// What the compute nodes have noted of their locks when a run has ended.
    pub noted: Arc<Mutex<Noted>>,
    /// Decides who asks for what.
    pub seed: u64,
}

impl ObjectProgram {
    /// A program for the clients of `setting`. A queue of DecLock has an entry for each compute node (section 6.1), or for each
    /// client if the lock has no local locks.
    ///
    /// # Errors
    /// [`BenchError::Argument`].
    pub fn new(kind: Option<LockKind>, requests: Requests, setting: &Setting) -> Result<Self, BenchError> {
        if let Requests::Drawn { objects, theta, .. } = requests {
            // A page each, at least, and their table at every client.
            const OBJECTS_MAX: u64 = 100_000_000;
            if objects == 0 || objects > OBJECTS_MAX {
                let text = format!("--objects is a number from 1 to {OBJECTS_MAX}");
                return Err(BenchError::Argument(text));
            }
            check_theta(theta)?;
        }
        let waiting = match kind {
            Some(LockKind::DecLock(Policy::Cql)) => setting.clients,
            _ => setting.compute_nodes,
        };
        let options = LockOptions {
            declock_capacity: waiting.next_power_of_two().clamp(2, CAPACITY_MAX),
            ..LockOptions::default()
        };
        let lock_bytes = kind.map_or(0, |kind| kind.entry_bytes(&options));
        let places = Places::new(lock_bytes, requests.capacities().into_iter());
        Ok(Self {
            kind,
            options,
            clients: setting.clients,
            places: Arc::new(places),
            requests,
            torn: Arc::default(),
            noted: Arc::default(),
            seed: setting.seed,
        })
    }

    fn site(&self) -> Site {
        Site::new(LockOptions {
            service: Some(self.places.service()),
            roster: Some(self.places.roster()),
            ..self.options
        })
    }
}

impl Program for ObjectProgram {
    type Node = LockNode;
    type Client = ObjectClient;
    type Known = ();

    fn memory_bytes(&self) -> u64 {
        self.places.memory_bytes()
    }

    fn layout(&self) -> String {
        "free locks, and objects that nobody has set".to_owned()
    }

    async fn prepare(&self, _: Endpoint, _: &Region) -> Result<Laid, BenchError> {
        // All of it is zeros.
        Ok(Laid::default())
    }

    fn has_agent(&self) -> bool {
        self.kind.is_some_and(LockKind::asks_service)
    }

    async fn serve(&self, endpoint: Endpoint) -> Result<(), BenchError> {
        Err(Agent::start(endpoint, &self.site()).await?.serve().await.into())
    }

    fn known(&self, _: &LockNode) {}

    async fn join(&self, _: Endpoint, _: Option<&()>) -> Result<LockNode, BenchError> {
        Ok(LockNode::new(self.site()))
    }

    fn begin(&self, node: &LockNode) {
        node.begin();
    }

    fn note(&self, node: &LockNode) {
        node.note(&self.noted);
    }

    fn client(&self, node: &LockNode, _: &Endpoint, number: u64) -> ObjectClient {
        let source = match &self.requests {
            Requests::Drawn {
                workload,
                objects,
                theta,
            } => Source::Drawn {
                workload: *workload,
                random: client_random(self.seed, number),
                zipf: Zipf::new(*objects, *theta),
                scatter: Scatter::new(*objects),
            },
            Requests::Traced(trace) => Source::Traced {
                trace: Arc::clone(trace),
                next: number,
                step: self.clients,
            },
        };
        ObjectClient {
            program: self.clone(),
            site: node.site().clone(),
            objects: None,
            source,
        }
    }

    async fn leave(&self, _: LockNode) -> Result<(), BenchError> {
        Ok(())
    }
}

/// Where the requests of one client come from.
#[derive(Debug)]
enum Source {
    Drawn {
        workload: ObjectWorkload,
        random: Xoshiro256PlusPlus,
        zipf: Zipf,
        scatter: Scatter,
    },
    Traced {
        trace: Arc<Trace>,
        next: u64,
        step: u64,
    },
}

impl Source {
    /// The next request, and whether it is for the most popular object.
    fn next(&mut self) -> (Request, bool) {
        match self {
            Self::Drawn {
                workload,
                random,
                zipf,
                scatter,
            } => {
                let rank = zipf.rank(random);
                let request = Request {
                    object: scatter.key(rank) as u32,
                    bytes: workload.bytes(rank),
                    is_set: !workload.is_get(random),
                };
                (request, rank == 0)
            }
            Self::Traced { trace, next, step } => {
                let request = trace.requests[(*next % trace.requests.len() as u64) as usize];
                *next += *step;
                (request, request.object == trace.hottest)
            }
        }
    }
}

/// One of the clients.
#[derive(Debug)]
pub struct ObjectClient {
    program: ObjectProgram,
    site: Site,
    /// Made with the first step, which can fail.
    objects: Option<Objects>,
    source: Source,
}

impl ObjectClient {
    fn store(&self, endpoint: &Endpoint) -> Result<Objects, BenchError> {
        let locker = self.program.kind.map(|kind| Locker::new(kind, endpoint, &self.site));
        let places = Arc::clone(&self.program.places);
        Ok(Objects::new(places, locker.transpose()?))
    }
}

/// Whether these bytes are those of a stamp, again and again.
fn is_of(stamp: u64, bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<8>();
    let stamp = stamp.to_le_bytes();
    words.iter().all(|word| *word == stamp) && *rest == stamp[..rest.len()]
}

/// Makes them so.
fn fill(stamp: u64, bytes: &mut [u8]) {
    let (words, rest) = bytes.as_chunks_mut::<8>();
    let stamp = stamp.to_le_bytes();
    words.fill(stamp);
    rest.copy_from_slice(&stamp[..rest.len()]);
}

impl Client for ObjectClient {
    async fn step(&mut self, cx: &mut OpContext) -> Result<Option<Step>, BenchError> {
        if self.objects.is_none() {
            self.objects = Some(self.store(cx.endpoint())?);
        }
        let objects = self.objects.as_mut().expect("it was just made");
        let (request, is_hottest) = self.source.next();
        let object = u64::from(request.object);
        let (lock, operation) = if request.is_set {
            let lock = objects.set_with(cx, object, request.bytes, &mut fill).await?;
            (lock, Operation::Update)
        } else {
            let mut is_whole = true;
            let mut look = |stamp: u64, bytes: &[u8]| is_whole &= is_of(stamp, bytes);
            let got = objects.get_with(cx, object, request.bytes, &mut look).await?;
            if got.stamp.is_none() || !is_whole {
                self.program.torn.fetch_add(1, Ordering::Relaxed);
            }
            (got.lock, Operation::Search)
        };
        Ok(Some(Step {
            lock: Some(LockStep {
                granted_ns: lock.granted_ns,
                release_ns: lock.release_ns,
                acquire: lock.acquire,
                is_hottest,
            }),
            operation: Some(operation),
            ..Step::default()
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_half_written_page_is_noticed() {
        for length in [0, 1, 7, 8, 100, 4080] {
            let mut bytes = vec![0; length];
            assert!(is_of(0, &bytes), "nobody has set it");
            fill(0x0102_0304_0506_0708, &mut bytes);
            assert!(is_of(0x0102_0304_0506_0708, &bytes), "{length}");
            if let Some(last) = bytes.last_mut() {
                *last ^= 1;
                assert!(!is_of(0x0102_0304_0506_0708, &bytes), "{length}");
            }
        }
    }

    #[test]
    fn clients_take_the_lines_of_a_trace_in_turn() {
        let request = |object| Request {
            object,
            bytes: 8,
            is_set: false,
        };
        let trace = Arc::new(Trace {
            name: "five".to_owned(),
            requests: (0..5).map(request).collect(),
            capacities: vec![8; 5],
            hottest: 3,
        });
        let taken = |client| {
            let mut source = Source::Traced {
                trace: Arc::clone(&trace),
                next: client,
                step: 2,
            };
            (0..4).map(|_| source.next().0.object).collect::<Vec<_>>()
        };
        assert_eq!(taken(0), [0, 2, 4, 1]);
        assert_eq!(taken(1), [1, 3, 0, 2]);
    }
}
