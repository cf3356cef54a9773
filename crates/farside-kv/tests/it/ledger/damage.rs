//! Stores with one damaged word: what `fsck` says of each (`ledger/*-damage.tsv`), and that it says
//! anything instead of ending in a panic.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use farside_fabric::OpContext;
use farside_fabric::sim::{Sim, SimOptions};
use farside_fabric::{Endpoint, NodeId};
use farside_index::check;
use farside_kv::{IndexKind, Store};
use farside_pool::{PoolError, account, open};
use farside_sync::Scheme;

use super::{compare, config, key};

/// Few keys, but enough for buckets, subtables, several leaves, and layers.
const KEYS: u32 = 60;
const NODE_BYTES: u64 = 1 << 20;
/// One word in so many is damaged.
const WORDS_APART: usize = 1;

/// What a check says, with its numbers left out.
fn without_numbers(text: &str) -> String {
    let mut out = String::new();
    for word in text.split(' ') {
        let digits = word.trim_start_matches("0x");
        let is_number =
            digits.starts_with(|c: char| c.is_ascii_hexdigit()) && digits.contains(|c: char| c.is_ascii_digit());
        out.push_str(if is_number { "#" } else { word });
        out.push(' ');
    }
    out.trim_end().to_owned()
}

/// What `fsck` says: of the pool, of the structure, of each block.
async fn look(endpoint: &Endpoint) -> Vec<String> {
    let mut cx = OpContext::new(endpoint.clone());
    let looked: Result<Vec<String>, PoolError> = async {
        let geometry = open(&mut cx).await?;
        let census = check::take(&mut cx, &geometry).await?;
        let account = account(&mut cx, &geometry, &census.blocks).await?;
        let mut faults = [census.faults, account.faults].concat();
        // And what a search for lost blocks comes past.
        let mut blocks = 0;
        let walked = farside_index::walk(&mut cx, &geometry, None, &mut |_| blocks += 1).await;
        match walked {
            Ok(()) if blocks == census.blocks.len() => {}
            Ok(()) => faults.push("a walk comes past other blocks than a check".to_owned()),
            Err(error) => faults.push(format!("a walk: {error}")),
        }
        Ok(faults)
    }
    .await;
    match looked {
        Ok(faults) => faults.iter().map(|fault| without_numbers(fault)).collect(),
        Err(error) => vec![format!("error: {}", without_numbers(&error.to_string()))],
    }
}

fn damage(index: IndexKind) -> String {
    let sim = Sim::new(SimOptions::default());
    let node = sim.add_memory_node(NODE_BYTES);
    let endpoint = sim.endpoint(sim.add_compute_node());
    sim.block_on(async {
        let store = Store::open(endpoint.clone(), config(index, Scheme::Farside))
            .await
            .expect("a store");
        let mut session = store.session();
        for number in 0..KEYS {
            session.put(&key(number), &[7; 20]).await.expect("room");
        }
        drop(session);
        store.close().await.expect("it leaves");
    });
    let endpoint = sim.endpoint(sim.add_compute_node());
    assert_eq!(sim.block_on(look(&endpoint)), [""; 0]);
    let whole = sim.block_on(async {
        let mut cx = OpContext::new(endpoint.clone());
        let geometry = open(&mut cx).await.expect("a pool");
        let census = check::take(&mut cx, &geometry).await.expect("a census");
        let (blocks, buckets, slots) = (census.blocks.len(), census.buckets, census.slots);
        let items = (census.items, census.expiring, census.key_bytes, census.value_bytes);
        format!("whole: {blocks} blocks, {buckets} buckets, {slots} slots, {items:?} items\n")
    });
    let region = sim.region(NodeId::new(node.index() as u16));
    let used = (0..NODE_BYTES)
        .step_by(8)
        .filter(|&at| region.word(at).load(Ordering::Relaxed) != 0);
    let used: Vec<u64> = used.collect();
    let mut found: BTreeMap<String, u64> = BTreeMap::new();
    for &at in used.iter().step_by(WORDS_APART) {
        let word = region.word(at);
        let before = word.load(Ordering::Relaxed);
        for damaged in [
            0,
            before ^ 1,
            before ^ 1 << (at / 8 % 64),
            before.swap_bytes(),
            // A count in the upper half.
            before.wrapping_sub(1 << 32),
            before.wrapping_add(1 << 32),
            u64::MAX,
        ] {
            if damaged == before {
                continue;
            }
            word.store(damaged, Ordering::Relaxed);
            let mut said = sim.block_on(look(&endpoint));
            said.sort_unstable();
            said.dedup();
            if said.is_empty() {
                said.push("nothing".to_owned());
            }
            for text in said {
                *found.entry(text).or_default() += 1;
            }
        }
        word.store(before, Ordering::Relaxed);
    }
    assert_eq!(sim.block_on(look(&endpoint)), [""; 0], "a check changes nothing");
    let lines = found.iter().map(|(text, count)| format!("{text}\t{count}\n"));
    core::iter::once(whole).chain(lines).collect()
}

#[test]
fn damage_of_an_array_is_found() {
    let text = damage(IndexKind::PointerArray);
    compare(
        "pointer-array-damage.tsv",
        include_str!("../../../ledger/pointer-array-damage.tsv"),
        &text,
    );
}

#[test]
fn damage_of_a_race_table_is_found() {
    let text = damage(IndexKind::Race);
    compare(
        "race-damage.tsv",
        include_str!("../../../ledger/race-damage.tsv"),
        &text,
    );
}

#[test]
fn damage_of_a_chime_tree_is_found() {
    let text = damage(IndexKind::Chime);
    compare(
        "chime-damage.tsv",
        include_str!("../../../ledger/chime-damage.tsv"),
        &text,
    );
}

#[test]
fn damage_of_a_sherman_tree_is_found() {
    let text = damage(IndexKind::Sherman);
    compare(
        "sherman-damage.tsv",
        include_str!("../../../ledger/sherman-damage.tsv"),
        &text,
    );
}
