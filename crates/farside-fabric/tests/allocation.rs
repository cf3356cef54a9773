//! A verb that completes at once allocates nothing: counted, not believed.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use farside_fabric::shm::{Fabric, Segment};
use farside_fabric::{Batch, MaskedAdd, MaskedCas, NodeId, OpContext, RemoteAddr, Slice};

/// The output of a future that completes at once.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("a verb on shared memory completes at once"),
    }
}

#[test]
fn shm_verbs_allocate_nothing() {
    let segment = Segment::anonymous(1 << 20).expect("a megabyte of memory");
    let endpoint = Fabric::new(vec![segment]).endpoint().expect("the table has room");
    let mut op = OpContext::new(endpoint);
    let at = |offset| RemoteAddr::new(NodeId::new(0), offset);
    let mut batch = Batch::new();
    let counted = allocation_counter::measure(|| {
        now(async {
            for _ in 0..100 {
                op.write(Slice::first(1000), at(0)).await?;
                op.read(at(3), Slice::new(8, 500)).await?;
                op.write_word(at(8), 1).await?;
                op.read_word(at(8)).await?;
                op.compare_swap(at(8), 1, 2).await?;
                op.fetch_add(at(8), 1).await?;
                op.masked_compare_swap(at(8), MaskedCas::whole(0, 0)).await?;
                op.masked_fetch_add(at(8), MaskedAdd::whole(1)).await?;
                op.wide_compare_swap(at(16), MaskedCas::whole(0, 0)).await?;
                op.wide_fetch_add(at(16), MaskedAdd::whole(1)).await?;
                batch.clear();
                batch.read(at(64), Slice::first(64));
                batch.fetch_add(at(8), 1);
                op.post(&mut batch).await?;
                // An error is no excuse.
                assert!(op.read_word(at(1)).await.is_err());
            }
            Ok::<(), farside_fabric::FabricError>(())
        })
        .expect("good addresses");
    });
    assert_eq!(counted.count_total, 0);
    let boxed = allocation_counter::measure(|| drop(std::hint::black_box(Box::new(1_u64))));
    assert_eq!(boxed.count_total, 1, "the counter counts");
}
