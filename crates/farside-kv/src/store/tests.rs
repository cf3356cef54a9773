//! What a store has in common with others, and how it closes.

use std::cell::Cell;

use farside_fabric::sim::{Sim, SimOptions};

use super::*;

const MEMORY_BYTES: u64 = 8 << 20;

fn open(sim: &Sim) -> Store {
    let endpoint = sim.endpoint(sim.add_compute_node());
    let opened = sim.block_on(Store::open(endpoint, StoreConfig::default()));
    opened.expect("a store")
}

fn world() -> Sim {
    let sim = Sim::new(SimOptions::default());
    let _ = sim.add_memory_node(MEMORY_BYTES);
    sim
}

#[test]
fn a_store_waits_for_what_goes_on_in_the_background() {
    let sim = world();
    let store = open(&sim);
    let background = Rc::clone(&store.background);
    let turn = background.begin().expect("it is open");
    let is_closed = Rc::new(Cell::new(false));
    let said = Rc::clone(&is_closed);
    store.endpoint().clone().spawn(async move {
        store.close().await.expect("the node is there");
        said.set(true);
    });
    sim.run_until(sim.now_ns() + 100 * RESTRUCTURING_POLL_NS);
    assert!(!is_closed.get());
    assert!(background.begin().is_none(), "nothing begins any more");
    drop(turn);
    sim.run_until(sim.now_ns() + 1_000_000_000);
    assert!(is_closed.get());
}

#[test]
fn stores_of_one_process_share_what_they_are_given() {
    let sim = world();
    let (mark, quota) = (ExpiryMark::default(), Arc::<Quota>::default());
    let stores = [(); 2].map(|()| {
        let store = open(&sim).with_expiry_mark(mark.clone());
        store.with_quota(Arc::clone(&quota))
    });
    assert!(stores.iter().all(|store| store.expiry_mark.is(&mark)));
    assert!(stores.iter().all(|store| Arc::ptr_eq(store.quota(), &quota)));
    assert!(!open(&sim).expiry_mark.is(&mark));
}
