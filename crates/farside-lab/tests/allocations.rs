//! A GET over mapped memory allocates nothing on the heap.

use farside_fabric::shm::{Fabric, Segment};
use farside_kv::{Store, StoreConfig};

#[test]
fn a_get_allocates_nothing() {
    let run = farside_fabric::host::on_this_thread(async {
        let segment = Segment::anonymous(64 << 20).expect("memory");
        let endpoint = Fabric::new(vec![segment]).endpoint().expect("an endpoint");
        let config = StoreConfig {
            // So many that no two of these keys share a slot, or hardly any.
            slots: Some(1 << 20),
            ..StoreConfig::default()
        };
        let store = Store::open(endpoint, config).await.expect("a store");
        let mut session = store.session();
        for number in 0..100_u64 {
            session.put(&number.to_le_bytes(), b"12345678").await.expect("room");
        }
        let mut context = core::task::Context::from_waker(core::task::Waker::noop());
        let counted = allocation_counter::measure(|| {
            for number in 0..100_u64 {
                let key = number.to_le_bytes();
                let mut get = core::pin::pin!(session.get(&key));
                match get.as_mut().poll(&mut context) {
                    core::task::Poll::Ready(value) => assert_eq!(value, Ok(Some(&b"12345678"[..]))),
                    core::task::Poll::Pending => panic!("verbs over mapped memory complete at once"),
                }
            }
        });
        assert_eq!(counted.count_total, 0);
        let numbers: Vec<[u8; 8]> = (0..64_u64).map(u64::to_le_bytes).collect();
        let keys: Vec<&[u8]> = numbers.iter().map(<[u8; 8]>::as_slice).collect();
        let counted = allocation_counter::measure(|| {
            let mut values = session.get_many(&keys);
            for _ in &keys {
                let mut next = core::pin::pin!(values.next());
                match next.as_mut().poll(&mut context) {
                    core::task::Poll::Ready(value) => assert_eq!(value, Ok(Some(&b"12345678"[..]))),
                    core::task::Poll::Pending => panic!("verbs over mapped memory complete at once"),
                }
            }
        });
        assert_eq!(counted.count_total, 0);
        let boxed = allocation_counter::measure(|| drop(core::hint::black_box(Box::new([0_u8; 100]))));
        assert_eq!(boxed.count_total, 1, "the counter counts");
    });
    run.expect("an event loop");
}
