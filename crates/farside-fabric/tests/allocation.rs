//! A verb that completes at once allocates nothing: counted, not believed.
//!
//! Its own test binary, since it replaces the allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use farside_fabric::shm::{Fabric, Segment};
use farside_fabric::{Batch, MaskedAdd, MaskedCas, NodeId, OpContext, RemoteAddr, Slice};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, counting the requests of each thread.
struct Counting;

// SAFETY: every request is handed on unchanged to the system's allocator, which keeps the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise, handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, handed on.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

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
    let before = ALLOCATIONS.get();
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
    assert_eq!(ALLOCATIONS.get() - before, 0);
    // The counter counts.
    drop(std::hint::black_box(Box::new(1_u64)));
    assert_eq!(ALLOCATIONS.get() - before, 1);
}
