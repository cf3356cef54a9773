//! The trees over mapped memory and over TCP: clients on threads of their own, which the machine stops wherever it likes.
//!
//! What it verifies: the operations of all clients can be put into an order that explains every answer, a scan sees each key
//! that is there throughout once and in order, and the tree is sound at the end. What it does not verify: deaths.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use farside_fabric::shm::{self, Segment};
use farside_fabric::tcp::{self, ConnectOptions, NodeLocation, Server, ServerOptions};
use farside_fabric::{Endpoint, OpContext};
use farside_index::{Budget, Shape, Tree, TreeOptions, chime, rolex, sherman};
use farside_lock::backoff::give_way;
use farside_pool::{FormatOptions, Pool, PoolOptions, open_or_format};

use crate::forest::history::{Answer, Call, Event, History};

const CLIENTS: u64 = 4;
const OPERATIONS: u64 = 300;
const KEYS: u64 = 40;
/// Keys that nobody deletes, between the others.
const STEADY_KEYS: u64 = 20;

fn key_of(number: u64) -> u64 {
    number << 40
}

fn steady_key(number: u64) -> u64 {
    key_of(number * KEYS / STEADY_KEYS) + 1
}

/// Tells what came before what, across threads.
static CLOCK: AtomicU64 = AtomicU64::new(1);

fn now() -> u64 {
    CLOCK.fetch_add(1, Ordering::SeqCst)
}

fn on_this_thread<T>(body: impl Future<Output = T>) -> T {
    farside_fabric::host::on_this_thread(body).expect("an event loop")
}

async fn open(endpoint: &Endpoint, shape: Shape) -> Tree {
    let mut cx = OpContext::new(endpoint.clone());
    let geometry = open_or_format(&mut cx, FormatOptions::default()).await.expect("a pool");
    let pool = Pool::join(&mut cx, geometry, PoolOptions::default())
        .await
        .expect("a client");
    let budget = Budget {
        cache_bytes: 1 << 20,
        hotspot_bytes: 1000,
    };
    let options = TreeOptions { shape, budget };
    Tree::create(&mut cx, pool, options).await.expect("a tree")
}

async fn leave(tree: Tree) {
    while tree.is_restructuring() {
        give_way().await;
    }
    let pool = tree.pool().clone();
    drop(tree);
    pool.leave().await.expect("leave");
}

/// What one client does; returns what it was answered.
async fn work(endpoint: Endpoint, shape: Shape, client: u64) -> Vec<(u64, Event)> {
    let tree = open(&endpoint, shape).await;
    let mut cx = OpContext::new(endpoint.clone());
    let mut events = Vec::new();
    for round in 0..OPERATIONS {
        // So that the client's housekeeping gets its turn.
        give_way().await;
        if round.is_multiple_of(16) {
            let mut seen = Vec::new();
            let scanned = tree
                .scan(&mut cx, 0_u64, usize::MAX, &mut |key, _| seen.push(key as u64))
                .await;
            assert_eq!(scanned, Ok(None));
            assert!(seen.is_sorted_by(|a, b| a < b), "in order, and no key twice");
            let steady = (0..STEADY_KEYS).map(steady_key);
            assert!(
                steady.into_iter().all(|key| seen.binary_search(&key).is_ok()),
                "no key is missed"
            );
            continue;
        }
        let (key, value) = (key_of(endpoint.random_below(KEYS)), client << 32 | round);
        let call = match endpoint.random_below(8) {
            0..3 => Call::Search,
            3 => Call::Insert(value),
            4 => Call::Update(value),
            5 => Call::Put(value),
            _ => Call::Delete,
        };
        let start = now();
        let answer = match call {
            Call::Put(value) => Answer::Changed(tree.put(&mut cx, key, value).await.expect("a put")),
            Call::Insert(value) => Answer::Is(tree.insert(&mut cx, key, value).await.expect("an insert")),
            Call::Update(value) => Answer::Is(tree.update(&mut cx, key, value).await.expect("an update")),
            Call::Delete => Answer::Is(tree.delete(&mut cx, key).await.expect("a delete")),
            Call::Search => Answer::Read(tree.search(&mut cx, key).await.expect("a search")),
        };
        let (end, answer) = (now(), Some(answer));
        events.push((
            key,
            Event {
                call,
                start,
                end,
                answer,
            },
        ));
    }
    leave(tree).await;
    events
}

/// Lets clients loose on a tree; `connect` makes an endpoint on the thread that uses it.
fn let_loose(shape: Shape, connect: impl AsyncFn() -> Endpoint + Sync) {
    on_this_thread(async {
        let endpoint = connect().await;
        let tree = open(&endpoint, shape).await;
        let mut cx = OpContext::new(endpoint);
        for number in 0..STEADY_KEYS {
            tree.put(&mut cx, steady_key(number), number).await.expect("a put");
        }
        leave(tree).await;
    });
    let mut history = History::default();
    thread::scope(|scope| {
        let connect = &connect;
        let start = |client| scope.spawn(move || on_this_thread(async { work(connect().await, shape, client).await }));
        let clients: Vec<_> = (0..CLIENTS).map(start).collect();
        for client in clients {
            for (key, event) in client.join().expect("a client") {
                history.push(key, event);
            }
        }
    });
    on_this_thread(async {
        let endpoint = connect().await;
        let tree = open(&endpoint, shape).await;
        let mut cx = OpContext::new(endpoint);
        let census = tree.check(&mut cx).await.expect("a census");
        assert_eq!(census.faults, [""; 0]);
        assert_eq!((census.half_split, census.half_merged, census.unsettled), (0, 0, 0));
        let unexplained = history.unexplained(&census.narrow_items());
        assert!(unexplained.is_none(), "no order explains {unexplained:#?}");
        leave(tree).await;
    });
}

const SHAPES: [Shape; 6] = [
    Shape::hopscotch(8, 4),
    Shape::unsorted(6),
    chime::LEAF,
    sherman::LEAF,
    Shape::hopscotch(8, 4).learned(),
    rolex::LEAF,
];

#[test]
fn threads_over_mapped_memory_see_one_tree() {
    for round in 0..4 {
        for shape in SHAPES {
            println!("round {round}: {shape:?}");
            let segment = Segment::anonymous(16 << 20).expect("memory");
            let fabric = || shm::Fabric::new(vec![segment.clone()]);
            let_loose(shape, async || fabric().endpoint().expect("an endpoint"));
        }
    }
}

#[test]
fn clients_of_a_node_see_one_tree() {
    for shape in SHAPES {
        println!("{shape:?}");
        let segment = Segment::anonymous(16 << 20).expect("memory");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound").to_string();
        let server = Server::new(segment, ServerOptions::default());
        let handle = server.handle();
        let serving = thread::spawn(move || server.run(listener));
        let_loose(shape, async || {
            let node = vec![NodeLocation::Remote(address.clone())];
            tcp::connect(node, ConnectOptions::default())
                .await
                .expect("the node is there")
        });
        handle.stop();
        serving.join().expect("a server").expect("it could listen");
    }
}
