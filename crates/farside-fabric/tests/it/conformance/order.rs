//! Posting order: within a batch, across posts, and as others see it.

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use farside_fabric::{Batch, Deadline, OpContext, Slice};

use super::fixture::{Cluster, at, join_all};

pub(crate) async fn verbs_of_a_batch_take_effect_in_order(cluster: Cluster) {
    let mut op = OpContext::new(cluster.endpoint().await);
    for round in 1..50_u64 {
        op.buffer_mut()[..8].copy_from_slice(&(round * 100).to_le_bytes());
        let mut batch = Batch::new();
        batch.write_word(at(0), round);
        let first = batch.read_word(at(0));
        batch.fetch_add(at(0), 10);
        let second = batch.read_word(at(0));
        batch.read(at(0), Slice::new(8, 8));
        batch.write(Slice::first(8), at(0));
        let third = batch.fetch_add(at(0), 1);
        let swapped = batch.compare_swap(at(0), round * 100 + 1, 7);
        let last = batch.read_word(at(0));
        op.post(&mut batch).await.expect("good addresses");
        let results = [first, second, third, swapped, last].map(|position| batch.result(position));
        assert_eq!(results, [round, round + 10, round * 100, round * 100 + 1, 7]);
        assert_eq!(op.buffer()[8..16], (round + 10).to_le_bytes());
    }
}

/// Polls both, always the first one first, until both are done.
async fn both<A: Future<Output = ()>, B: Future<Output = ()>>(first: A, second: B) {
    let (mut first, mut second) = (pin!(first), pin!(second));
    let (mut first_done, mut second_done) = (false, false);
    std::future::poll_fn(|context| {
        first_done = first_done || first.as_mut().poll(context).is_ready();
        second_done = second_done || second.as_mut().poll(context).is_ready();
        if first_done && second_done {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

pub(crate) async fn posts_of_one_endpoint_take_effect_in_posting_order(cluster: Cluster) {
    let endpoint = cluster.endpoint().await;
    for round in 0..50_u64 {
        // Both are in flight at once; each batch writes its mark and must find it again.
        let post = async |mark: u64| {
            let mut buffer = endpoint.buffer(64);
            let mut batch = Batch::new();
            batch.write_word(at(0), mark);
            let seen = batch.fetch_add(at(0), 1);
            endpoint
                .post(&mut batch, &mut buffer, Deadline::NEVER)
                .await
                .expect("good addresses");
            assert_eq!(batch.result(seen), mark, "another post of the endpoint came in between");
        };
        both(post(round * 10), post(round * 10 + 5)).await;
        let mut op = OpContext::new(endpoint.clone());
        assert_eq!(
            op.read_word(at(0)).await,
            Ok(round * 10 + 6),
            "the later post came last"
        );
    }
}

pub(crate) async fn data_is_there_when_its_flag_is(cluster: Cluster) {
    const ROUNDS: u64 = 300;
    let writer = cluster.endpoint().await;
    let reader = cluster.endpoint().await;
    let progress = Rc::new(Cell::new(0));
    let (mut write, mut read) = (OpContext::new(writer.clone()), OpContext::new(reader));
    let finished = progress.clone();
    let write = async move {
        for round in 1..=ROUNDS {
            for word in write.buffer_mut()[..256].chunks_exact_mut(8) {
                word.copy_from_slice(&round.to_le_bytes());
            }
            if round % 2 == 0 {
                let mut batch = Batch::new();
                batch.write(Slice::first(256), at(4096));
                batch.write_word(at(0), round);
                write.post(&mut batch).await.expect("good addresses");
            } else {
                write.write(Slice::first(256), at(4096)).await.expect("a good address");
                write.write_word(at(0), round).await.expect("a good address");
            }
            write.endpoint().sleep(100).await;
        }
        finished.set(ROUNDS);
    };
    let read = async move {
        while progress.get() < ROUNDS {
            let flag = read.read_word(at(0)).await.expect("a good address");
            let data = read.read(at(4096), Slice::first(256)).await.expect("a good address");
            for word in data.chunks_exact(8) {
                let word = u64::from_le_bytes(word.try_into().expect("8 bytes"));
                assert!(word >= flag, "the flag said {flag}, the data is still at {word}");
            }
            read.endpoint().sleep(100).await;
        }
    };
    let tasks: Vec<std::pin::Pin<Box<dyn Future<Output = ()>>>> = vec![Box::pin(write), Box::pin(read)];
    join_all(&writer, tasks).await;
}
