//! A client dies at each verb of merges in a tree whose entries are claimed one by one, and another one, which remembers leaves as they
//! were before they were split, inserts a key: it stays, whatever becomes of the merge.

use std::borrow::Cow;

use farside_fabric::sim::{CrashPoint, Sim, SimOptions};
use farside_fabric::{Endpoint, OpContext};
use farside_index::operation::{Change, Decision};
use farside_index::{Budget, IndexError, Item, LeafOptions, Ordered, Tag, TreeKind, check};
use farside_sync::Scheme;

use super::client::{LEASE_NS, POOL, join, recover_with};

/// How many keys there are when the second client looks.
pub(crate) const KEYS: u64 = 8;
/// How many come between two of them: enough to split a leaf that is full, and not twice.
const WITHIN: u64 = 1;
const STEP: u64 = 16;
const SPAN: usize = 4;

/// One of the first keys, or one in the gap behind it.
fn key_of(number: u64, place: u64) -> [u8; 8] {
    ((number << 16) + place * STEP).to_be_bytes()
}

fn patient(endpoint: &Endpoint) -> OpContext {
    let mut cx = OpContext::new(endpoint.clone());
    cx.set_deadline(endpoint.deadline_in(30 * LEASE_NS));
    cx
}

#[derive(Clone)]
struct Client {
    endpoint: Endpoint,
    index: Ordered,
}

impl Client {
    async fn open(endpoint: Endpoint) -> Self {
        let pool = join(&endpoint, POOL).await;
        let leaf = LeafOptions {
            span: SPAN,
            neighbourhood: SPAN,
        };
        let made = (TreeKind::Marlin, leaf);
        let mut cx = OpContext::new(endpoint.clone());
        let index = Ordered::create(&mut cx, pool, Scheme::Optimistic.into(), made, Budget::default()).await;
        let index = index.expect("an index");
        let (walked, own) = (index.clone(), endpoint.clone());
        endpoint.spawn(async move {
            let walk = async |cx: &mut OpContext, visit: &mut dyn FnMut(_)| Ok(walked.walk(cx, visit).await?);
            recover_with(own, walked.pool(), walk).await;
        });
        Self { endpoint, index }
    }

    async fn change(&self, key: [u8; 8], decision: Decision<'static>) -> Result<Change, IndexError> {
        let mut decide = |_: Option<Item<'_>>| decision.clone();
        let change = self
            .index
            .change(&mut patient(&self.endpoint), &key, None, &mut decide)
            .await;
        while self.index.is_restructuring() {
            self.endpoint.sleep(1_000).await;
        }
        change
    }

    async fn put(&self, key: [u8; 8]) -> Result<Change, IndexError> {
        let put = Decision::Put {
            value: Cow::Borrowed(b"value"),
            expiry_ms: 0,
            tag: Tag::String,
            regardless: false,
        };
        self.change(key, put).await
    }

    async fn delete(&self, key: [u8; 8]) -> Result<Change, IndexError> {
        self.change(key, Decision::Delete { regardless: false }).await
    }

    async fn has(&self, key: [u8; 8]) -> Result<bool, IndexError> {
        let found = self.index.search(&mut patient(&self.endpoint), &key).await?;
        Ok(found.is_some())
    }
}

/// An index of which leaves were split that another client remembers whole.
struct Scene {
    sim: Sim,
    dying: Client,
    /// Remembers the leaves before that.
    warm: Client,
    /// Remembers nothing.
    cold: Client,
}

impl Scene {
    /// The keys of a gap come when the second client has looked.
    fn new(nodes: usize, gap: u64) -> Self {
        let sim = Sim::new(SimOptions::default());
        for _ in 0..nodes {
            let _ = sim.add_memory_node(8 << 20);
        }
        let open = || sim.block_on(Client::open(sim.endpoint(sim.add_compute_node())));
        let [dying, warm, cold] = [open(), open(), open()];
        for number in 0..KEYS {
            sim.block_on(dying.put(key_of(number * 5 % KEYS, 0))).expect("room");
        }
        for number in 0..KEYS {
            sim.block_on(warm.has(key_of(number, 0))).expect("no fault");
        }
        for place in 1..=WITHIN {
            sim.block_on(dying.put(key_of(gap, place))).expect("room");
        }
        Self { sim, dying, warm, cold }
    }
}

/// The first client deletes the keys of a gap and those around it, until the two leaves are one again, as the second client remembers
/// them.
async fn delete_all(client: &Client, gap: u64) {
    let within = (1..=WITHIN).map(|place| key_of(gap, place));
    let first = gap - gap % SPAN as u64;
    let mut around: Vec<u64> = (first..first + SPAN as u64).collect();
    around.sort_by_key(|number| number.abs_diff(gap));
    for key in within.chain(around.into_iter().map(|number| key_of(number, 0))) {
        if client.delete(key).await.is_err() {
            return;
        }
    }
}

/// Lets the first client die at each of its verbs while it deletes the keys of a gap and around it; returns how many lives that were.
///
/// # Errors
/// What is not as it has to be, and when.
pub(crate) fn interrupt(nodes: usize, gap: u64) -> Result<u64, String> {
    let scene = Scene::new(nodes, gap);
    let posted = || scene.sim.verbs_posted(scene.dying.endpoint.id());
    let first = posted() + 1;
    scene.sim.block_on(delete_all(&scene.dying, gap));
    let mut lives = 0;
    for verb in first..posted() {
        for number in gap - gap % SPAN as u64..=gap {
            // Behind a key that there was.
            let mut key = key_of(number, WITHIN);
            key[7] += STEP as u8 / 2;
            let lived = live(nodes, (gap, verb), key);
            lived.map_err(|text| format!("{nodes} nodes, gap {gap}, verb {verb}, behind {number}: {text}"))?;
            lives += 1;
        }
    }
    Ok(lives)
}

fn live(nodes: usize, (gap, verb): (u64, u64), key: [u8; 8]) -> Result<(), String> {
    let Scene { sim, dying, warm, cold } = Scene::new(nodes, gap);
    let id = dying.endpoint.id();
    sim.crash_client_at(id, CrashPoint { verb, lines: None });
    dying
        .endpoint
        .clone()
        .spawn(async move { delete_all(&dying, gap).await });
    while !sim.is_crashed(id) {
        sim.run_until(sim.now_ns() + 1_000);
    }
    let error = |error: IndexError| format!("{error}");
    let change = sim.block_on(warm.put(key)).map_err(error)?;
    if change != Change::Inserted {
        return Err(format!("it was not there, and is {change:?}"));
    }
    for client in [&cold, &warm] {
        if !sim.block_on(client.has(key)).map_err(error)? {
            return Err("it is not there afterwards".to_owned());
        }
    }
    sim.block_on(cold.index.walk(&mut patient(&cold.endpoint), &mut |_| {}))
        .map_err(error)?;
    if !sim.block_on(warm.has(key)).map_err(error)? {
        return Err("it is not there when all was settled".to_owned());
    }
    let geometry = cold.index.pool().geometry().to_vec();
    let census = sim.block_on(check::take(&mut patient(&cold.endpoint), &geometry));
    let census = census.map_err(|error| error.to_string())?;
    match census.faults.is_empty() {
        true => Ok(()),
        false => Err(format!("{:?}", census.faults)),
    }
}
