//! Counters, clock and chance.

use farside_fabric::{Batch, EndpointId, FabricError, MaskedAdd, MaskedCas, Message, OpContext, Slice, VerbKind};

use super::fixture::{Cluster, at, soon};

pub(crate) async fn counters_are_exact(cluster: Cluster) {
    let endpoint = cluster.endpoint().await;
    let has = endpoint.capabilities();
    let mut op = OpContext::new(endpoint.clone());
    let before = endpoint.counters().snapshot();
    op.read(at(0), Slice::first(100)).await.expect("a good address");
    op.read_word(at(0)).await.expect("a good address");
    op.write(Slice::first(33), at(0)).await.expect("a good address");
    op.write_word(at(64), 0).await.expect("a good address");
    op.compare_swap(at(64), 1, 2).await.expect("a good address");
    op.fetch_add(at(64), 1).await.expect("a good address");
    let mut batch = Batch::new();
    batch.read(at(0), Slice::first(1000));
    batch.write_word(at(64), 1);
    batch.fetch_add(at(64), 1);
    op.post(&mut batch).await.expect("good addresses");
    let hello = Message::try_from(&b"hello"[..]).expect("short");
    endpoint
        .send(endpoint.id(), &hello, soon(&endpoint))
        .await
        .expect("it is there");
    endpoint.receive(soon(&endpoint)).await.expect("it was sent");
    let counted = endpoint.counters().snapshot().since(&before);
    let of = |kind| counted.verbs.of(kind);
    assert_eq!((of(VerbKind::Read), of(VerbKind::Write)), (3, 3));
    assert_eq!(
        (of(VerbKind::CompareSwap), of(VerbKind::FetchAdd), of(VerbKind::Send)),
        (1, 2, 1)
    );
    assert_eq!(counted.verbs.total(), 10);
    assert_eq!(counted.verbs.atomics(), 3);
    assert_eq!(counted.bytes_read, 100 + 8 + 1000 + 3 * 8);
    assert_eq!(counted.bytes_written, 33 + 8 + 8 + 3 * 8 + 5);
    assert_eq!(counted.doorbells, 6 + 1 + 1, "six verbs, a batch, a message");

    // A clone is the same client, another endpoint is not.
    let other = cluster.endpoint().await;
    let others = other.counters().snapshot();
    let before = endpoint.counters().snapshot();
    let mut clone = OpContext::new(endpoint.clone());
    if has.masked_atomics {
        clone
            .masked_compare_swap(at(64), MaskedCas::whole(0, 0))
            .await
            .expect("a good address");
        clone
            .masked_fetch_add(at(64), MaskedAdd::whole(0))
            .await
            .expect("a good address");
    }
    if has.wide_atomics {
        clone
            .wide_compare_swap(at(64), MaskedCas::whole(0, 0))
            .await
            .expect("a good address");
        clone
            .wide_fetch_add(at(64), MaskedAdd::whole(0))
            .await
            .expect("a good address");
    }
    // Refused before posting, so not counted.
    let refused = clone.read_word(at(1)).await;
    assert!(matches!(refused, Err(FabricError::Misaligned { .. })));
    let counted = endpoint.counters().snapshot().since(&before);
    let each = u64::from(has.masked_atomics) + u64::from(has.wide_atomics);
    assert_eq!(counted.verbs.of(VerbKind::MaskedCompareSwap), each);
    assert_eq!(counted.verbs.of(VerbKind::MaskedFetchAdd), each);
    assert_eq!(
        (counted.verbs.total(), counted.verbs.atomics(), counted.doorbells),
        (2 * each, 2 * each, 2 * each)
    );
    let bytes = 2 * (u64::from(has.masked_atomics) * 8 + u64::from(has.wide_atomics) * 16);
    assert_eq!((counted.bytes_read, counted.bytes_written), (bytes, bytes));
    assert_eq!(other.counters().snapshot(), others);
    assert_ne!(other.id(), EndpointId(0));
}

pub(crate) async fn clocks_do_not_go_back_and_sleep_long_enough(cluster: Cluster) {
    let endpoint = cluster.endpoint().await;
    let mut last_ns = endpoint.now_ns();
    for wait_ns in [0, 1, 500, 20_000, 1_500_000] {
        endpoint.sleep(wait_ns).await;
        let now_ns = endpoint.now_ns();
        assert!(now_ns >= last_ns + wait_ns);
        last_ns = now_ns;
    }
    // 2020-01-01, and not nanoseconds or seconds.
    let unix_ms = endpoint.unix_ms();
    assert!((1_577_836_800_000..4_000_000_000_000).contains(&unix_ms), "{unix_ms}");
}

pub(crate) async fn random_numbers_differ(cluster: Cluster) {
    let (one, two) = (cluster.endpoint().await, cluster.endpoint().await);
    let mut seen: Vec<u64> = (0..100).flat_map(|_| [one.random(), two.random()]).collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 200, "neither repeats itself nor the other");
    assert_eq!(one.random_below(0), 0);
    assert!((0..100).all(|_| one.random_below(3) < 3));
}
