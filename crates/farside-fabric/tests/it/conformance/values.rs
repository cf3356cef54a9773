//! What each verb does to the memory and returns.

use farside_fabric::{Batch, MaskedAdd, MaskedCas, NodeId, OpContext, RemoteAddr, Slice, VerbKind};

use super::fixture::{Cluster, HERE, NODE_BYTES, THERE, at, numbers};

pub(crate) async fn bytes_survive_every_size_and_alignment(cluster: Cluster) {
    let mut op = OpContext::new(cluster.endpoint().await);
    let mut model = vec![0_u8; 256];
    let mut random = numbers(1);
    for bytes in (0..=41).chain([63, 64, 65, 128]) {
        for remote in 0..9 {
            for local in [0_u32, 1, 3, 8] {
                let data: Vec<u8> = random.by_ref().map(|number| number as u8).take(bytes).collect();
                let slice = Slice::new(local, bytes as u32);
                op.buffer_mut()[slice.range()].copy_from_slice(&data);
                op.write(slice, at(64 + remote)).await.expect("inside the node");
                model[64 + remote as usize..][..bytes].copy_from_slice(&data);

                op.buffer_mut()[slice.range()].fill(0);
                let read = op.read(at(64 + remote), slice).await.expect("inside the node");
                assert_eq!(read, data, "{bytes} bytes at {remote}");
                let around = op.read(at(0), Slice::new(512, 256)).await.expect("inside the node");
                assert_eq!(around, model, "{bytes} bytes at {remote}: the neighbours");
            }
        }
    }
}

pub(crate) async fn large_transfers_survive(cluster: Cluster) {
    let mut op = OpContext::new(cluster.endpoint().await);
    let bytes = 300_001;
    op.reserve(2 * bytes);
    let data: Vec<u8> = numbers(2).map(|number| number as u8).take(bytes).collect();
    op.buffer_mut()[..bytes].copy_from_slice(&data);
    op.write(Slice::first(bytes as u32), at(12_345))
        .await
        .expect("inside the node");
    let read = op.read(at(12_345), Slice::new(bytes as u32, bytes as u32)).await;
    assert_eq!(read.expect("inside the node"), data);
}

pub(crate) async fn a_view_is_what_a_read_brings(cluster: Cluster) {
    let endpoint = cluster.endpoint().await;
    let mut op = OpContext::new(endpoint.clone());
    let data: Vec<u8> = numbers(6).map(|number| number as u8).take(128).collect();
    op.buffer_mut()[..128].copy_from_slice(&data);
    op.write(Slice::first(128), at(64)).await.expect("inside the node");
    let is_mapped = endpoint.prefetch(at(64), 8);
    assert_eq!(op.approach(at(64), 8), is_mapped);
    for bytes in [0, 8, 24, 64, 72] {
        op.buffer_mut()[256..512].fill(0xee);
        let before = endpoint.counters().snapshot();
        assert_eq!(op.load(at(72), Slice::new(300, bytes)), is_mapped, "{bytes} bytes");
        let counted = endpoint.counters().snapshot().since(&before);
        let reads = u64::from(is_mapped);
        assert_eq!((counted.verbs.of(VerbKind::Read), counted.doorbells), (reads, reads));
        assert_eq!(counted.bytes_read, reads * u64::from(bytes));
        let loaded = if is_mapped { bytes as usize } else { 0 };
        assert_eq!(op.buffer()[300..300 + loaded], data[8..8 + loaded]);
        assert!(op.buffer()[300 + loaded..512].iter().all(|&byte| byte == 0xee));
    }
    if let Some(view) = endpoint.view(at(64), 64) {
        let words = view.line().map(u64::to_le_bytes);
        assert_eq!(words.as_flattened(), &data[..64]);
    }
    // A READ would say what is wrong; a READ of such bytes may be right.
    for (offset, bytes) in [(68, 8), (64, 12), (NODE_BYTES, 8), (NODE_BYTES - 8, 16)] {
        assert!(endpoint.view(at(offset), bytes).is_none(), "{bytes} bytes at {offset}");
    }
    assert!(endpoint.view(RemoteAddr::new(NodeId::new(7), 0), 8).is_none());
}

pub(crate) async fn words_are_little_endian_bytes(cluster: Cluster) {
    let mut op = OpContext::new(cluster.endpoint().await);
    op.write_word(at(24), 0x0102_0304_0506_0708)
        .await
        .expect("a good address");
    let bytes = op.read(at(24), Slice::first(8)).await.expect("a good address");
    assert_eq!(bytes, [8, 7, 6, 5, 4, 3, 2, 1]);
    op.buffer_mut()[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    op.write(Slice::first(4), at(28)).await.expect("a good address");
    assert_eq!(
        op.read_word(at(24)).await.expect("a good address"),
        0xffff_ffff_0506_0708
    );
}

pub(crate) async fn compare_swap_swaps_on_equality_only(cluster: Cluster) {
    let mut op = OpContext::new(cluster.endpoint().await);
    assert_eq!(op.compare_swap(at(8), 0, 5).await, Ok(0));
    assert_eq!(
        op.compare_swap(at(8), 0, 6).await,
        Ok(5),
        "the word before, not what was compared"
    );
    assert_eq!(op.read_word(at(8)).await, Ok(5));
    assert_eq!(op.compare_swap(at(8), 5, u64::MAX).await, Ok(5));
    assert_eq!(op.read_word(at(8)).await, Ok(u64::MAX));
    assert_eq!((op.read_word(at(0)).await, op.read_word(at(16)).await), (Ok(0), Ok(0)));
}

pub(crate) async fn fetch_add_returns_the_word_before_and_wraps(cluster: Cluster) {
    let mut op = OpContext::new(cluster.endpoint().await);
    assert_eq!(op.fetch_add(at(16), u64::MAX).await, Ok(0));
    assert_eq!(op.fetch_add(at(16), 3).await, Ok(u64::MAX));
    assert_eq!(op.fetch_add(at(16), 0).await, Ok(2));
    assert_eq!((op.read_word(at(8)).await, op.read_word(at(24)).await), (Ok(0), Ok(0)));
}

pub(crate) async fn masked_compare_swap_looks_at_masked_bits_only(cluster: Cluster) {
    let endpoint = cluster.endpoint().await;
    if !endpoint.capabilities().masked_atomics {
        return;
    }
    let mut op = OpContext::new(endpoint);
    let mut random = numbers(3);
    for round in 0..200 {
        let [word, compare_mask, swap, swap_mask, noise] = std::array::from_fn(|_| random.next().expect("endless"));
        // In every other round the compared bits are right; the others are noise in any case.
        let compare = (word & compare_mask) | (noise & !compare_mask);
        let is_match = round % 2 == 0;
        let compare = if is_match {
            compare
        } else {
            compare ^ (compare_mask & compare_mask.wrapping_neg())
        };
        let operands = MaskedCas {
            compare,
            compare_mask,
            swap,
            swap_mask,
        };
        op.write_word(at(40), word).await.expect("a good address");
        assert_eq!(op.masked_compare_swap(at(40), operands).await, Ok(word));
        let expected = if is_match {
            (word & !swap_mask) | (swap & swap_mask)
        } else {
            word
        };
        assert_eq!(op.read_word(at(40)).await, Ok(expected), "{operands:x?}");
    }
    let always = MaskedCas {
        compare: 1,
        compare_mask: 0,
        swap: 7,
        swap_mask: !0,
    };
    op.masked_compare_swap(at(40), always).await.expect("a good address");
    assert_eq!(op.read_word(at(40)).await, Ok(7), "an empty mask compares nothing");
}

/// The definition in words: bit by bit, the carry dropped after each boundary.
fn add_by_fields(word: u128, add: u128, boundary: u128, bits: u32) -> u128 {
    let (mut sum, mut carry) = (0, 0);
    for bit in 0..bits {
        let total = (word >> bit & 1) + (add >> bit & 1) + carry;
        sum |= (total & 1) << bit;
        carry = if boundary >> bit & 1 == 1 { 0 } else { total >> 1 };
    }
    sum
}

pub(crate) async fn masked_fetch_add_suppresses_carries_at_boundaries(cluster: Cluster) {
    let endpoint = cluster.endpoint().await;
    if !endpoint.capabilities().masked_atomics {
        return;
    }
    let mut op = OpContext::new(endpoint);
    let mut random = numbers(4);
    for _ in 0..200 {
        let [word, add, one, two] = std::array::from_fn(|_| random.next().expect("endless"));
        let operands = MaskedAdd {
            add,
            boundary: one & two,
        };
        op.write_word(at(48), word).await.expect("a good address");
        assert_eq!(op.masked_fetch_add(at(48), operands).await, Ok(word));
        let expected = add_by_fields(word.into(), add.into(), operands.boundary.into(), 64) as u64;
        assert_eq!(op.read_word(at(48)).await, Ok(expected), "{operands:x?} to {word:x}");
    }
    // Two 32-bit fields: the lower one overflows and the upper one does not notice.
    op.write_word(at(48), 0x0000_0001_ffff_ffff)
        .await
        .expect("a good address");
    let halves = MaskedAdd {
        add: 1,
        boundary: 1 << 31,
    };
    op.masked_fetch_add(at(48), halves).await.expect("a good address");
    assert_eq!(op.read_word(at(48)).await, Ok(0x0000_0001_0000_0000));
}

/// Reads 16 bytes.
async fn wide(op: &mut OpContext, offset: u64) -> u128 {
    let bytes = op.read(at(offset), Slice::first(16)).await.expect("a good address");
    u128::from_le_bytes(bytes.try_into().expect("16 bytes"))
}

pub(crate) async fn wide_compare_swap_is_one_word(cluster: Cluster) {
    let endpoint = cluster.endpoint().await;
    if !endpoint.capabilities().wide_atomics {
        return;
    }
    let mut op = OpContext::new(endpoint);
    let (low, high) = (0x1111_2222_3333_4444_u128, 0x5555_6666_7777_8888_u128 << 64);
    let first = MaskedCas::whole(0, high | low);
    assert_eq!(op.wide_compare_swap(at(32), first).await, Ok(0));
    assert_eq!(op.read_word(at(32)).await, Ok(low as u64), "the lower half comes first");
    assert_eq!(op.wide_compare_swap(at(32), first).await, Ok(high | low));
    assert_eq!(wide(&mut op, 32).await, high | low);
    // Compares the upper half, swaps the lower.
    let halves = MaskedCas {
        compare: high,
        compare_mask: !0 << 64,
        swap: !0,
        swap_mask: u128::from(u64::MAX),
    };
    assert_eq!(op.wide_compare_swap(at(32), halves).await, Ok(high | low));
    assert_eq!(wide(&mut op, 32).await, high | u128::from(u64::MAX));
    assert_eq!((op.read_word(at(24)).await, op.read_word(at(48)).await), (Ok(0), Ok(0)));
}

pub(crate) async fn wide_fetch_add_is_one_word(cluster: Cluster) {
    let endpoint = cluster.endpoint().await;
    if !endpoint.capabilities().wide_atomics {
        return;
    }
    let mut op = OpContext::new(endpoint);
    let low_max = u128::from(u64::MAX);
    assert_eq!(op.wide_fetch_add(at(64), MaskedAdd::whole(low_max)).await, Ok(0));
    assert_eq!(op.wide_fetch_add(at(64), MaskedAdd::whole(1)).await, Ok(low_max));
    assert_eq!(wide(&mut op, 64).await, 1 << 64, "the carry reaches the upper half");
    let cut = MaskedAdd {
        add: low_max + 2,
        boundary: 1 << 63,
    };
    op.wide_fetch_add(at(64), MaskedAdd::whole(low_max))
        .await
        .expect("a good address");
    op.wide_fetch_add(at(64), cut).await.expect("a good address");
    let expected = add_by_fields((1 << 64) + low_max, cut.add, cut.boundary, 128);
    assert_eq!(wide(&mut op, 64).await, expected, "the carry stops at the boundary");
    let mut random = numbers(5);
    for _ in 0..100 {
        let [word, add, one, two] = std::array::from_fn(|_| {
            random
                .by_ref()
                .take(2)
                .fold(0_u128, |sum, part| sum << 64 | u128::from(part))
        });
        let operands = MaskedAdd {
            add,
            boundary: one & two,
        };
        op.buffer_mut()[..16].copy_from_slice(&word.to_le_bytes());
        op.write(Slice::first(16), at(64)).await.expect("a good address");
        assert_eq!(op.wide_fetch_add(at(64), operands).await, Ok(word));
        assert_eq!(
            wide(&mut op, 64).await,
            add_by_fields(word, add, operands.boundary, 128),
            "{operands:x?}"
        );
    }
}

pub(crate) async fn a_batch_returns_each_result(cluster: Cluster) {
    let mut op = OpContext::new(cluster.endpoint().await);
    op.write_word(at(0), 10).await.expect("a good address");
    op.buffer_mut()[100..108].copy_from_slice(&77_u64.to_le_bytes());
    let mut batch = Batch::new();
    let added = batch.fetch_add(at(0), 1);
    let failed = batch.compare_swap(at(0), 10, 99);
    let swapped = batch.compare_swap(at(0), 11, 12);
    let word = batch.read_word(at(0));
    let wrote = batch.write(Slice::new(100, 8), at(8));
    let read = batch.read(at(0), Slice::new(200, 16));
    op.post(&mut batch).await.expect("good addresses");
    let results = [added, failed, swapped, word, wrote, read].map(|position| batch.result(position));
    assert_eq!(results, [10, 11, 11, 12, 0, 0]);
    assert_eq!(op.buffer()[200..208], 12_u64.to_le_bytes());
    assert_eq!(op.buffer()[208..216], 77_u64.to_le_bytes());

    // As many as fit, then the same batch again for something else.
    batch.clear();
    let positions: Vec<_> = (0..16).map(|_| batch.fetch_add(at(512), 1)).collect();
    op.post(&mut batch).await.expect("good addresses");
    let seen: Vec<_> = positions.into_iter().map(|position| batch.result(position)).collect();
    assert_eq!(seen, (0..16).collect::<Vec<u64>>());
    op.post(&mut Batch::new()).await.expect("an empty batch does nothing");
}

pub(crate) async fn nodes_are_separate_memories(cluster: Cluster) {
    let endpoint = cluster.endpoint().await;
    assert_eq!(endpoint.node_count(), 2);
    assert_eq!(
        (endpoint.node_bytes(HERE), endpoint.node_bytes(THERE)),
        (Ok(NODE_BYTES), Ok(NODE_BYTES))
    );
    let mut op = OpContext::new(endpoint);
    let there = RemoteAddr::new(THERE, 8);
    let mut batch = Batch::new();
    batch.write_word(at(8), 1);
    batch.write_word(there, 2);
    op.post(&mut batch).await.expect("good addresses");
    // Another client sees the same.
    let mut other = OpContext::new(cluster.endpoint().await);
    assert_eq!(
        (other.read_word(at(8)).await, other.read_word(there).await),
        (Ok(1), Ok(2))
    );
}
