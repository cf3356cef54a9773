//! Several endpoints on the same words. Where verbs complete at once the tasks here never meet;
//! such a backend runs its own tests with several threads beside these.

use std::cell::Cell;
use std::rc::Rc;

use farside_fabric::{Batch, Endpoint, MaskedAdd, OpContext, Slice};

use super::fixture::{Cluster, at, join_all};

const CLIENTS: u64 = 6;
const ROUNDS: u64 = 100;

/// As many clients, each in a task of its own, running `body` with its number.
async fn clients(cluster: &Cluster, body: impl AsyncFn(OpContext, u64) + Clone + 'static) -> OpContext {
    let mut tasks = Vec::new();
    for number in 0..CLIENTS {
        let op = OpContext::new(cluster.endpoint().await);
        let body = body.clone();
        tasks.push(async move { body(op, number).await });
    }
    let endpoint = cluster.endpoint().await;
    join_all(&endpoint, tasks).await;
    OpContext::new(endpoint)
}

pub(crate) async fn fetch_adds_all_count(cluster: Cluster) {
    let mut op = clients(&cluster, async |mut op, _| {
        for round in 0..ROUNDS {
            if round % 2 == 0 {
                op.fetch_add(at(0), 1).await.expect("a good address");
            } else {
                let mut batch = Batch::new();
                batch.fetch_add(at(0), 1);
                batch.fetch_add(at(8), 3);
                op.post(&mut batch).await.expect("good addresses");
            }
        }
    })
    .await;
    assert_eq!(op.read_word(at(0)).await, Ok(CLIENTS * ROUNDS));
    assert_eq!(op.read_word(at(8)).await, Ok(CLIENTS * ROUNDS / 2 * 3));
}

pub(crate) async fn masked_adds_of_neighbouring_fields_all_count(cluster: Cluster) {
    if !cluster.endpoint().await.capabilities().masked_atomics {
        return;
    }
    // Eight fields of eight bits, which all overflow more than once.
    let boundary = 0x8080_8080_8080_8080;
    let mut op = clients(&cluster, async move |mut op, number| {
        for _ in 0..ROUNDS {
            let operands = MaskedAdd {
                add: 7 << (number * 8),
                boundary,
            };
            op.masked_fetch_add(at(0), operands).await.expect("a good address");
        }
    })
    .await;
    let expected = (0..CLIENTS).fold(0, |word, number| word | (ROUNDS * 7 % 256) << (number * 8));
    assert_eq!(op.read_word(at(0)).await, Ok(expected));
}

pub(crate) async fn wide_adds_all_count(cluster: Cluster) {
    if !cluster.endpoint().await.capabilities().wide_atomics {
        return;
    }
    let mut op = clients(&cluster, async |mut op, _| {
        for _ in 0..ROUNDS {
            let operands = MaskedAdd::whole(u128::from(u64::MAX));
            op.wide_fetch_add(at(16), operands).await.expect("a good address");
        }
    })
    .await;
    let bytes = op.read(at(16), Slice::first(16)).await.expect("a good address");
    let sum = u128::from_le_bytes(bytes.try_into().expect("16 bytes"));
    assert_eq!(sum, u128::from(CLIENTS * ROUNDS) * u128::from(u64::MAX));
}

pub(crate) async fn compare_swap_has_one_winner(cluster: Cluster) {
    // Each increments by compare-and-swap, beside fetch-and-adds of the upper half.
    let mut op = clients(&cluster, async |mut op, _| {
        for _ in 0..ROUNDS / 2 {
            let mut seen = op.read_word(at(0)).await.expect("a good address");
            loop {
                let old = op.compare_swap(at(0), seen, seen + 1).await.expect("a good address");
                if old == seen {
                    break;
                }
                seen = old;
            }
            op.fetch_add(at(0), 1 << 32).await.expect("a good address");
        }
    })
    .await;
    let each = CLIENTS * (ROUNDS / 2);
    assert_eq!(op.read_word(at(0)).await, Ok(each << 32 | each));
}

pub(crate) async fn words_never_tear(cluster: Cluster) {
    let whole = [0, u64::MAX, 0x0123_4567_89ab_cdef];
    let writer = cluster.endpoint().await;
    let is_done = Rc::new(Cell::new(false));
    let mut tasks: Vec<std::pin::Pin<Box<dyn Future<Output = ()>>>> = Vec::new();
    for _ in 0..3 {
        let mut op = OpContext::new(cluster.endpoint().await);
        let is_done = is_done.clone();
        tasks.push(Box::pin(async move {
            while !is_done.get() {
                let word = op.read_word(at(512)).await.expect("a good address");
                assert!(whole.contains(&word), "{word:x} was never written");
                // Words within a longer READ, at an odd offset before them.
                let bytes = op.read(at(501), Slice::first(40)).await.expect("a good address");
                for word in [&bytes[11..19], &bytes[19..27]] {
                    let word = u64::from_le_bytes(word.try_into().expect("8 bytes"));
                    assert!(whole.contains(&word), "{word:x} was never written");
                }
                pause(op.endpoint()).await;
            }
        }));
    }
    let mut op = OpContext::new(writer.clone());
    tasks.push(Box::pin(async move {
        for round in 0..200 {
            let word = whole[round % whole.len()];
            op.buffer_mut()[..8].copy_from_slice(&word.to_le_bytes());
            op.buffer_mut()[8..16].copy_from_slice(&word.to_le_bytes());
            op.write(Slice::first(16), at(512)).await.expect("a good address");
            op.write_word(at(512), whole[(round + 1) % whole.len()])
                .await
                .expect("a good address");
            pause(op.endpoint()).await;
        }
        is_done.set(true);
    }));
    join_all(&writer, tasks).await;
}

async fn pause(endpoint: &Endpoint) {
    endpoint.sleep(100).await;
}
