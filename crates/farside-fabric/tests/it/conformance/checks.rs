//! What is refused before it is posted.

use farside_fabric::addr::NODE_BYTES_MAX;
use farside_fabric::{Batch, Deadline, FabricError, MaskedAdd, MaskedCas, NodeId, OpContext, RemoteAddr, Slice, Verb};

use super::fixture::{Cluster, NODE_BYTES, at};

/// Every verb that needs an aligned address.
fn aligned_verbs(target: RemoteAddr) -> Vec<(u64, Verb)> {
    let swap = MaskedCas::whole(0, 1);
    let add = MaskedAdd::whole(1);
    vec![
        (8, Verb::ReadWord { source: target }),
        (8, Verb::WriteWord { target, value: 1 }),
        (
            8,
            Verb::CompareSwap {
                target,
                compare: 0,
                swap: 1,
            },
        ),
        (8, Verb::FetchAdd { target, add: 1 }),
        (8, Verb::MaskedCompareSwap { target, operands: swap }),
        (8, Verb::MaskedFetchAdd { target, operands: add }),
        (
            16,
            Verb::WideCompareSwap {
                target,
                operands: MaskedCas::whole(0, 1),
            },
        ),
        (
            16,
            Verb::WideFetchAdd {
                target,
                operands: MaskedAdd::whole(1),
            },
        ),
    ]
}

/// Every verb there is.
fn all_verbs(target: RemoteAddr, bytes: u32) -> Vec<Verb> {
    let slice = Slice::first(bytes);
    let plain = [
        Verb::Read {
            source: target,
            target: slice,
        },
        Verb::Write { source: slice, target },
    ];
    let aligned = aligned_verbs(target).into_iter().map(|(_, verb)| verb);
    plain.into_iter().chain(aligned).collect()
}

pub(crate) async fn unknown_nodes_are_refused(cluster: Cluster) {
    let endpoint = cluster.endpoint().await;
    let mut buffer = endpoint.buffer(64);
    for node in [2, 7, 4095].map(NodeId::new) {
        assert_eq!(endpoint.node_bytes(node), Err(FabricError::NodeUnknown { node }));
        assert!(!endpoint.prefetch(RemoteAddr::new(node, 0), 8));
        for verb in all_verbs(RemoteAddr::new(node, 64), 8) {
            let result = endpoint.execute(verb, &mut buffer, Deadline::NEVER).await;
            assert_eq!(result, Err(FabricError::NodeUnknown { node }), "{verb:?}");
        }
    }
}

pub(crate) async fn the_last_byte_is_inside_and_the_next_is_not(cluster: Cluster) {
    let endpoint = cluster.endpoint().await;
    let mut buffer = endpoint.buffer(4096);
    let has = endpoint.capabilities();
    let mut execute = async |verb| endpoint.execute(verb, &mut buffer, Deadline::NEVER).await;
    let target = at(NODE_BYTES - 1);
    execute(Verb::Write {
        source: Slice::first(1),
        target,
    })
    .await
    .expect("the last byte is inside");
    execute(Verb::Read {
        source: at(NODE_BYTES),
        target: Slice::first(0),
    })
    .await
    .expect("nothing is inside");
    let last_word = at(NODE_BYTES - 8);
    execute(Verb::ReadWord { source: last_word })
        .await
        .expect("the last word is inside");
    if has.wide_atomics {
        let operands = MaskedAdd::whole(1);
        let target = at(NODE_BYTES - 16);
        execute(Verb::WideFetchAdd { target, operands })
            .await
            .expect("the last 16 bytes are inside");
    }
    let outside = [
        (NODE_BYTES - 1, 2),
        (NODE_BYTES - 100, 101),
        (NODE_BYTES, 1),
        (0, NODE_BYTES as u32 + 1),
        (NODE_BYTES_MAX - 1, 1),
        (NODE_BYTES_MAX - 1, u32::MAX),
        (NODE_BYTES_MAX - 16, u32::MAX),
    ];
    for (offset, bytes) in outside {
        let addr = at(offset);
        for verb in &all_verbs(addr, bytes)[..2] {
            let refused = FabricError::OutOfBounds {
                addr,
                bytes: bytes.into(),
                node_bytes: NODE_BYTES,
            };
            assert_eq!(execute(*verb).await, Err(refused), "{verb:?}");
        }
    }
    for offset in [NODE_BYTES, NODE_BYTES + 64, NODE_BYTES_MAX - 64] {
        for verb in all_verbs(at(offset), 8) {
            let result = execute(verb).await;
            assert!(
                matches!(result, Err(FabricError::OutOfBounds { .. })),
                "{verb:?}: {result:?}"
            );
        }
    }
}

pub(crate) async fn misaligned_words_are_refused(cluster: Cluster) {
    let endpoint = cluster.endpoint().await;
    let mut buffer = endpoint.buffer(64);
    for offset in (1..8).chain(9..16).chain([24, 40]) {
        for (alignment, verb) in aligned_verbs(at(1024 + offset)) {
            if offset % alignment == 0 {
                continue;
            }
            let addr = at(1024 + offset);
            let result = endpoint.execute(verb, &mut buffer, Deadline::NEVER).await;
            assert_eq!(result, Err(FabricError::Misaligned { addr, alignment }), "{verb:?}");
        }
    }
    let mut op = OpContext::new(endpoint);
    let around = op.read(at(1024), Slice::first(128)).await.expect("inside the node");
    assert_eq!(around, [0; 128], "nothing was written");
}

pub(crate) async fn a_bad_verb_anywhere_keeps_the_batch_from_being_posted(cluster: Cluster) {
    let mut op = OpContext::new(cluster.endpoint().await);
    let bad = [
        Verb::ReadWord { source: at(4) },
        Verb::ReadWord { source: at(NODE_BYTES) },
        Verb::ReadWord {
            source: RemoteAddr::new(NodeId::new(9), 0),
        },
    ];
    for bad in bad {
        for position in 0..16 {
            let before = op.endpoint().counters().snapshot();
            let mut batch = Batch::new();
            for index in 0..16 {
                let target = at(index * 8);
                batch.push(if index == position {
                    bad
                } else {
                    Verb::WriteWord { target, value: 1 }
                });
            }
            let error = op.post(&mut batch).await.expect_err("one verb is bad");
            let is_named = matches!(
                error,
                FabricError::Misaligned { .. } | FabricError::OutOfBounds { .. } | FabricError::NodeUnknown { .. }
            );
            assert!(is_named, "{error}");
            assert_eq!(op.endpoint().counters().snapshot(), before, "nothing was posted");
        }
    }
    let memory = op.read(at(0), Slice::first(128)).await.expect("inside the node");
    assert_eq!(memory, [0; 128], "no verb of a refused batch took effect");
}

pub(crate) async fn missing_capabilities_are_refused(cluster: Cluster) {
    let endpoint = cluster.endpoint().await;
    let mut buffer = endpoint.buffer(64);
    let has = endpoint.capabilities();
    for (_, verb) in aligned_verbs(at(64)) {
        let is_there = match verb {
            Verb::MaskedCompareSwap { .. } | Verb::MaskedFetchAdd { .. } => has.masked_atomics,
            Verb::WideCompareSwap { .. } | Verb::WideFetchAdd { .. } => has.wide_atomics,
            _ => true,
        };
        let result = endpoint.execute(verb, &mut buffer, Deadline::NEVER).await;
        if is_there {
            result.expect("the capability is there");
        } else {
            assert!(
                matches!(result, Err(FabricError::Unsupported { .. })),
                "{verb:?}: {result:?}"
            );
        }
    }
}
