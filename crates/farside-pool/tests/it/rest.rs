//! A client that rests while another one stands in for it, over the simulated fabric.
//!
//! The embedding sees to it that nobody stands in while the client does something; here the test does,
//! which pauses the client as soon as it is at rest.

use farside_fabric::Endpoint;
use farside_fabric::sim::{Sim, SimOptions};
use farside_fabric::{NodeId, OpContext, RemoteAddr, Slice};
use farside_pool::client::entry_addr;
use farside_pool::{FormatOptions, Pool, PoolError, PoolOptions, Purpose, Rest, open, open_or_format};

const TICK_NS: u64 = 20_000;
const LEASE_NS: u64 = 2_000_000;
const BLOCK_BYTES: u32 = 64;
/// The word that leads to the block in use: behind everything that the pool knows of.
const ROOT_BYTES: u64 = 64;

const OPTIONS: PoolOptions = PoolOptions {
    tick_ns: TICK_NS,
    lease_ns: LEASE_NS,
};

/// A client of the pool with the address of the word that they share.
struct Member {
    pool: Pool,
    cx: OpContext,
    root: RemoteAddr,
}

impl Member {
    async fn join(endpoint: Endpoint) -> Self {
        let mut cx = OpContext::new(endpoint);
        let format = FormatOptions {
            chunk_bytes: Some(64 << 10),
            ..FormatOptions::default()
        };
        open_or_format(&mut cx, format).await.expect("there is memory");
        let geometry = open(&mut cx).await.expect("it is formatted");
        let root = farside_pool::make_root(&mut cx, &geometry[0], 0, ROOT_BYTES).await;
        let root = root.expect("there is memory").addr;
        let pool = Pool::join(&mut cx, geometry, OPTIONS).await.expect("there is room");
        Self { pool, cx, root }
    }

    /// Links a new block and retires the one before.
    async fn replace(&mut self, fill: u8) {
        let pin = self.pool.pin();
        let block = self.pool.allocate(u64::from(BLOCK_BYTES));
        let Some(block) = block else {
            drop(pin);
            let restocked = self.pool.restock(BLOCK_BYTES.into(), 1, Purpose::Overwrite).await;
            restocked.expect("what was retired is reclaimed");
            return;
        };
        self.cx.buffer_mut()[..BLOCK_BYTES as usize].fill(fill);
        self.cx
            .write(Slice::first(BLOCK_BYTES), block)
            .await
            .expect("the node is there");
        let before = self.cx.read_word(self.root).await.expect("the node is there");
        let swapped = self.cx.compare_swap(self.root, before, block.to_bits()).await;
        assert_eq!(swapped, Ok(before), "nobody else links anything");
        if let Some(old) = RemoteAddr::from_bits(before).filter(|old| !old.is_null()) {
            self.pool.retire(old, Some(BLOCK_BYTES.into()));
        }
    }

    /// Reads the block in use, slowly. The simulated fabric panics where a block is read that was reclaimed.
    async fn read(&mut self, pause_ns: u64) {
        let _pin = self.pool.pin();
        let word = self.cx.read_word(self.root).await.expect("the node is there");
        let Some(block) = RemoteAddr::from_bits(word).filter(|block| !block.is_null()) else {
            return;
        };
        self.cx.endpoint().sleep(pause_ns).await;
        let bytes = self.cx.read(block, Slice::first(BLOCK_BYTES)).await;
        let bytes = bytes.expect("the node is there");
        assert!(bytes.iter().all(|&byte| byte == bytes[0]), "{block}: {bytes:?}");
        self.cx.rely_on(Slice::first(BLOCK_BYTES));
    }
}

fn sim(seed: u64) -> Sim {
    let sim = Sim::new(SimOptions {
        seed,
        jitter_ns: 40 * (seed % 50),
        ..SimOptions::default()
    });
    let _: NodeId = sim.add_memory_node(8 << 20);
    sim
}

/// Runs until the client is at rest, and stops it there.
fn put_to_rest(sim: &Sim, member: &Member) {
    // Ends: a tick takes some round trips, and the next one comes later than that.
    while !member.pool.is_at_rest() {
        sim.run_until(sim.now_ns() + 100);
    }
    sim.pause_client(member.cx.endpoint().id());
}

/// Lets the client go on, its tasks last: they may still believe in the old epoch.
fn wake_up(sim: &Sim, member: &Member) -> Result<(), PoolError> {
    let resumed = sim.block_on(member.pool.resume());
    sim.resume_client(member.cx.endpoint().id());
    resumed
}

#[test]
fn memory_is_reclaimed_while_a_client_rests_and_is_there_when_it_comes_back() {
    for seed in 0..30 {
        let sim = sim(seed);
        let compute_node = sim.add_compute_node();
        let [mut resting, mut writer, mut keeper] =
            [(); 3].map(|()| sim.block_on(Member::join(sim.endpoint(compute_node))));
        let owner = resting.pool.owner();
        for round in 0..6_u8 {
            // An operation of its own, with the writer at work beside it.
            let pause_ns = resting.cx.endpoint().random_below(4 * TICK_NS);
            sim.block_on(async {
                let replace = async {
                    for fill in 0..20 {
                        writer.replace(fill).await;
                    }
                };
                tokio::join!(resting.read(pause_ns), replace);
            });
            put_to_rest(&sim, &resting);
            // Far longer than a lease: the stand-in keeps it, and the epoch moves on.
            for step in 0..200 {
                let rest = sim.block_on(keeper.pool.stand_in_for(owner));
                assert_eq!(rest, Ok(Rest::Renewed), "seed {seed}, round {round}");
                sim.block_on(writer.replace(step));
                sim.run_until(sim.now_ns() + TICK_NS);
            }
            assert!(
                writer.pool.limbo_count() < 40,
                "seed {seed}: {} blocks wait",
                writer.pool.limbo_count()
            );
            let lease_at = entry_addr(owner.client).plus(16);
            let kept = sim.block_on(keeper.cx.read_word(lease_at)).expect("the node is there");
            wake_up(&sim, &resting).expect("its lease was kept");
            let renewed = sim.block_on(keeper.cx.read_word(lease_at)).expect("the node is there");
            assert!(renewed > kept, "seed {seed}, round {round}: {renewed} after {kept}");
        }
    }
}

#[test]
fn without_a_stand_in_the_epoch_waits_and_the_lease_runs_out() {
    let sim = sim(1);
    let compute_node = sim.add_compute_node();
    let [resting, mut writer] = [(); 2].map(|()| sim.block_on(Member::join(sim.endpoint(compute_node))));
    put_to_rest(&sim, &resting);
    for fill in 0..50 {
        sim.block_on(writer.replace(fill));
        sim.run_until(sim.now_ns() + TICK_NS);
    }
    assert!(writer.pool.limbo_count() > 40, "nothing can be reclaimed");
    sim.run_until(sim.now_ns() + 4 * LEASE_NS);
    let resumed = wake_up(&sim, &resting);
    assert!(
        matches!(resumed, Err(PoolError::LeaseLost | PoolError::Fabric(_))),
        "{resumed:?}"
    );
}

#[test]
fn a_resting_client_that_others_wait_for_is_given_up() {
    for seed in 0..10 {
        let sim = sim(seed);
        let compute_node = sim.add_compute_node();
        let [resting, mut writer, keeper, dying] =
            [(); 4].map(|()| sim.block_on(Member::join(sim.endpoint(compute_node))));
        let owner = resting.pool.owner();
        for fill in 0..10 {
            sim.block_on(writer.replace(fill));
        }
        put_to_rest(&sim, &resting);
        sim.crash_client(dying.cx.endpoint().id());
        let mut rest = Ok(Rest::Renewed);
        // Until the death is noticed: a lease.
        while rest == Ok(Rest::Renewed) {
            sim.run_until(sim.now_ns() + TICK_NS);
            rest = sim.block_on(keeper.pool.stand_in_for(owner));
        }
        assert_eq!(rest, Ok(Rest::IsWanted), "seed {seed}");
        sim.block_on(keeper.pool.give_up(owner)).expect("the node is there");
        assert_eq!(sim.block_on(keeper.pool.stand_in_for(owner)), Ok(Rest::IsOver));
        // The others finish the search for what both held, and memory is reclaimed again.
        for step in 0..400_u32 {
            sim.block_on(writer.replace(step as u8));
            sim.run_until(sim.now_ns() + TICK_NS);
        }
        assert!(
            writer.pool.limbo_count() < 40,
            "seed {seed}: {} blocks wait",
            writer.pool.limbo_count()
        );
        assert_eq!(wake_up(&sim, &resting), Err(PoolError::LeaseLost));
    }
}
