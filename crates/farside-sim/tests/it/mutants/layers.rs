//! A client that dies while it makes a layer of an ordered index, and what an export shows of that.

use farside_fabric::sim::{CrashPoint, Sim, SimOptions};
use farside_kv::{IndexKind, Item, KvError, Store};
use farside_sync::Scheme;

use super::snapshot::config;

/// Two keys that a tree cannot tell apart: the second makes a layer.
const KEYS: [&[u8]; 2] = [b"eight by 1", b"eight by 2"];

/// The maker of a layer dies after one of its next verbs. The other key changes, and an export shows it once, as it is.
pub(super) fn exported(seed: u64) -> Result<(), String> {
    let sim = Sim::new(SimOptions {
        seed,
        ..SimOptions::default()
    });
    let _ = sim.add_memory_node(16 << 20);
    let config = config(IndexKind::Chime, Scheme::Farside);
    let [maker, other] = [(); 2].map(|()| sim.endpoint(sim.add_compute_node()));
    let open = |endpoint| {
        sim.block_on(Store::open(endpoint, config))
            .map_err(|error| error.to_string())
    };
    let (of_maker, store) = (open(maker.clone())?, open(other)?);
    let mut session = of_maker.session();
    sim.block_on(store.session().put(KEYS[0], b"old"))
        .map_err(|error| error.to_string())?;
    let verb = sim.verbs_posted(maker.id()) + 1 + seed % 64;
    sim.crash_client_at(maker.id(), CrashPoint { verb, lines: None });
    maker.spawn(async move {
        let _ = session.put(KEYS[1], b"new").await;
    });
    // Ends: its ticks are verbs as well.
    while !sim.is_crashed(maker.id()) {
        sim.run_until(sim.now_ns() + 100_000);
    }
    let shown = sim.block_on(async move {
        store.session().put(KEYS[0], b"newer").await?;
        let (mut export, mut shown) = (store.export().await?, Vec::new());
        let show = &mut |item: Item<'_>| {
            if item.key == KEYS[0] {
                shown.push(item.value.to_vec());
            }
        };
        while export.next(show).await? {}
        export.end().await?;
        Ok::<_, KvError>(shown)
    });
    let shown = shown.map_err(|error| error.to_string())?;
    match shown == [b"newer"] {
        true => Ok(()),
        false => Err(format!("a key that was changed is shown as {shown:?}")),
    }
}
