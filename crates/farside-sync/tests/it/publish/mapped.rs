//! Over mapped memory: updates that are one swap in a plain call.

use farside_fabric::OpContext;
use farside_fabric::shm::{Fabric, Segment};
use farside_sync::{Pointer, Scheme, Synchroniser};

use super::{TARGET, pointer, world};

const OTHER: u64 = TARGET.name + 1;

/// A client of new memory.
fn client(scheme: Scheme) -> (Synchroniser, OpContext) {
    let segment = Segment::anonymous(1 << 16).expect("memory");
    let endpoint = Fabric::new(vec![segment]).endpoint().expect("an endpoint");
    let sync = Synchroniser::new(&endpoint, scheme.into()).expect("it has every atomic");
    (sync, OpContext::new(endpoint))
}

#[test]
fn who_has_lost_to_an_update_asks_the_scheme_first() {
    let none = Pointer::from_word(0);
    for (scheme, whatever_is_there, after_a_loss) in [
        (Scheme::Optimistic, true, true),
        (Scheme::Farside, true, false),
        (Scheme::by_name("cider").expect("it is registered"), false, false),
    ] {
        let (sync, mut cx) = client(scheme);
        let mut swap = |old, new, regardless| {
            let swapped = sync.swap_now(&mut cx, TARGET, (old, new), regardless);
            (swapped, cx.retries())
        };
        let asks = || [true, false].map(|regardless| sync.swaps_at_once(TARGET.name, regardless));
        assert_eq!(asks(), [whatever_is_there, true], "{scheme:?}");
        assert_eq!(swap(none, pointer(1, 1), true), (Some(Ok(true)), 0), "{scheme:?}");
        // Another slot's: whoever looks for the key looks again.
        assert_eq!(swap(pointer(1, 2), pointer(2, 2), true), (Some(Ok(false)), 1));
        // It depends on what it has seen.
        assert_eq!(swap(pointer(3, 1), pointer(2, 1), false), (Some(Ok(false)), 2));
        assert_eq!(asks(), [whatever_is_there, true], "{scheme:?}");
        // Another update of the key was quicker.
        assert_eq!(swap(pointer(3, 1), pointer(2, 1), true), (Some(Ok(false)), 3));
        assert_eq!(asks(), [after_a_loss, true], "{scheme:?}");
        assert_eq!(sync.swaps_at_once(OTHER, true), whatever_is_there, "{scheme:?}");
        assert_eq!(swap(pointer(1, 1), pointer(2, 1), true), (Some(Ok(true)), 3));
    }
}

#[test]
fn elsewhere_nothing_is_done_at_once() {
    let sim = world(false);
    let endpoint = sim.endpoint(sim.add_compute_node());
    let sync = Synchroniser::new(&endpoint, Scheme::Optimistic.into()).expect("it needs nothing");
    let pointers = (Pointer::from_word(0), pointer(1, 1));
    assert_eq!(
        sync.swap_now(&mut OpContext::new(endpoint), TARGET, pointers, true),
        None
    );
}
