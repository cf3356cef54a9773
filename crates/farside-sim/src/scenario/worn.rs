//! Memory as it is after years of use: what is counted in it is about to overflow.

use farside_fabric::sim::Sim;
use farside_fabric::{NodeId, OpContext, RemoteAddr};
use farside_pool::client::{self, Liveness};
use farside_pool::layout::EPOCH_AT;
use farside_pool::{FormatOptions, open_or_format};

/// The epoch of a worn pool: slots that rest know the last eight bits of one.
const EPOCH: u64 = (1 << 32) - 4;
/// How often each place for a client was used.
const LIFE: u16 = u16::MAX - 1;

/// Formats a pool that was used for so long.
pub(super) fn format_pool(sim: &Sim, format: FormatOptions) {
    let mut cx = OpContext::new(sim.endpoint(sim.add_compute_node()));
    let geometry = sim.block_on(async move { open_or_format(&mut cx, format).await });
    let geometry = geometry.expect("nothing is disturbed yet");
    set_word(sim, RemoteAddr::new(NodeId::new(0), EPOCH_AT), EPOCH);
    for client in 0..geometry[0].clients_max as u16 {
        let state = client::state_word(Liveness::Free, LIFE);
        set_word(sim, client::entry_addr(client), state);
    }
}

/// Writes a word, without a verb.
pub(super) fn set_word(sim: &Sim, at: RemoteAddr, word: u64) {
    let region = sim.region(at.node());
    region
        .word(at.offset())
        .store(word, core::sync::atomic::Ordering::SeqCst);
}
