//! Accounting: every block is free or reachable, exactly once.
//!
//! What it verifies, on a pool that nobody uses: each reachable block lies in a chunk that holds
//! blocks, starts where a block of that chunk's class starts, is reachable once, and is not marked
//! free; in a chunk that nobody owns each block is reachable or marked free; runs are whole; words
//! of the tables are words that clients write.
//!
//! What it does not verify: blocks of chunks that a client owns, and that are neither reachable nor
//! marked free, are only counted. A living client knows what they are; those of a dead one are
//! found by the next client that joins ([`recovery`](crate::recovery)).

use std::collections::BTreeMap;

use farside_fabric::{LocalFuture, OpContext, RemoteAddr};

use crate::client::Liveness;
use crate::error::PoolError;
use crate::heap::{BlockMap, block_to_unit};
use crate::layout::{ChunkState, Geometry};
use crate::pool::read_clients;
use crate::refill::{bits, read_chunk_table, read_free_map};
use crate::size_class::{SizeClass, UNIT_BYTES};

/// What the accounting found.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Account {
    /// Chunks by use: free, holding blocks or runs, fixed memory of an index.
    pub chunks_free: u64,
    /// Chunks with blocks, and chunks of runs.
    pub chunks_used: u64,
    /// Chunks of roots.
    pub chunks_root: u64,
    /// Blocks that are reachable from the index.
    pub blocks_reachable: u64,
    /// Blocks that are marked free.
    pub blocks_free: u64,
    /// Blocks in the hands of living clients.
    pub blocks_held: u64,
    /// Blocks in chunks of dead clients, not yet found again.
    pub blocks_unrecovered: u64,
    /// Bytes of reachable blocks, rounding included.
    pub bytes_reachable: u64,
    /// Clients that are alive.
    pub clients_live: u64,
    /// Clients that are dead and not yet recovered.
    pub clients_dead: u64,
    /// What is wrong, one sentence each, naming node and chunk or address.
    pub faults: Vec<String>,
}

/// Reports at most this many faults; a damaged table would otherwise fill the screen.
const FAULTS_MAX: usize = 100;

impl Account {
    fn fault(&mut self, fault: String) {
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(fault);
        }
    }
}

/// Accounts for every block of the pool. `reachable` are the blocks that the index links.
///
/// # Errors
/// What the fabric reports, or a table that cannot be read.
pub fn account<'f>(
    cx: &'f mut OpContext,
    geometry: &'f [Geometry],
    reachable: &'f [RemoteAddr],
) -> LocalFuture<'f, Result<Account, PoolError>> {
    Box::pin(async move {
        let mut account = Account::default();
        let clients: BTreeMap<u16, Liveness> = read_clients(cx, geometry[0].clients_max)
            .await?
            .into_iter()
            .map(|(index, entry)| (index, entry.liveness))
            .collect();
        account.clients_live = clients.values().filter(|&&state| state == Liveness::Live).count() as u64;
        account.clients_dead = clients.values().filter(|state| state.is_cut_off()).count() as u64;

        let mut by_chunk = BTreeMap::<(usize, u64), Vec<u64>>::new();
        for &block in reachable {
            let node = block.node().index();
            match geometry.get(node).and_then(|geometry| geometry.locate(block)) {
                Some((index, unit)) if block.offset().is_multiple_of(UNIT_BYTES) => {
                    by_chunk.entry((node, index)).or_default().push(unit);
                }
                _ => account.fault(format!("the index links {block}, where no block can be")),
            }
        }
        for (node, geometry) in geometry.iter().enumerate() {
            let table = read_chunk_table(cx, geometry).await?;
            for (index, &state) in (0..).zip(&table) {
                let units = by_chunk.remove(&(node, u64::from(index))).unwrap_or_default();
                let place = format!("{} chunk {index}", geometry.node);
                let (class, run) = match state {
                    ChunkState::Blocks { class, .. }
                        if usize::from(class.0) < SizeClass::count(geometry.chunk_bytes) =>
                    {
                        (class, 1)
                    }
                    ChunkState::Run { count, .. } => {
                        check_run(&mut account, &table, index, count, &place);
                        (SizeClass::RUN, count)
                    }
                    other => {
                        match other {
                            ChunkState::Free => account.chunks_free += 1,
                            ChunkState::Root { .. } => account.chunks_root += 1,
                            _ => account.chunks_used += 1,
                        }
                        if let ChunkState::Blocks { class, .. } = other {
                            account.fault(format!("{place} has class {}, which does not exist", class.0));
                        }
                        if !units.is_empty() {
                            let count = units.len();
                            account.fault(format!("the index links {count} blocks of {place}, which holds none"));
                        }
                        continue;
                    }
                };
                account.chunks_used += 1;
                let free = read_free_map(cx, geometry, index).await?;
                let free = free
                    .iter()
                    .flat_map(|&(at, word)| bits(word).map(move |bit| at * 64 + bit));
                let owner = state.owner().map(|owner| clients.get(&owner.client).copied());
                let chunk = Chunk {
                    geometry,
                    class,
                    run,
                    place: &place,
                };
                chunk.account(&mut account, &units, free.collect(), owner);
            }
        }
        Ok(account)
    })
}

fn check_run(account: &mut Account, table: &[ChunkState], first: u32, count: u16, place: &str) {
    for back in 1..count {
        let tail = table.get(first as usize + usize::from(back));
        if !matches!(tail, Some(ChunkState::RunTail { back: found, .. }) if *found == back) {
            account.fault(format!(
                "{place} starts a run of {count} chunks, but number {back} is {tail:?}"
            ));
            return;
        }
    }
}

struct Chunk<'a> {
    geometry: &'a Geometry,
    class: SizeClass,
    /// How many chunks the run that starts here has.
    run: u16,
    place: &'a str,
}

impl Chunk<'_> {
    /// Adds one chunk to the account. `owner` is `None` if nobody owns it, else the owner's state.
    fn account(&self, account: &mut Account, reachable: &[u64], free: Vec<u64>, owner: Option<Option<Liveness>>) {
        let blocks = self.geometry.blocks_per_chunk(self.class);
        let mut seen = BlockMap::new(blocks);
        for (units, is_free) in [(reachable, false), (&free, true)] {
            for &unit in units {
                let what = if is_free { "marked free" } else { "linked by the index" };
                let Some(block) = self.block_at(unit, blocks) else {
                    account.fault(format!(
                        "{}: unit {unit} is {what}, but no block starts there",
                        self.place
                    ));
                    continue;
                };
                if !seen.insert(block) {
                    let also = if is_free {
                        "and used or free already"
                    } else {
                        "a second time"
                    };
                    account.fault(format!("{}: block {block} is {what} {also}", self.place));
                }
            }
        }
        account.blocks_reachable += reachable.len() as u64;
        account.blocks_free += free.len() as u64;
        let block_bytes = match self.class {
            SizeClass::RUN => u64::from(self.run) * self.geometry.chunk_bytes,
            class => class.bytes(),
        };
        account.bytes_reachable += reachable.len() as u64 * block_bytes;
        let rest = blocks - u64::from(seen.count());
        match owner {
            None if rest > 0 => {
                account.fault(format!(
                    "{}: {rest} blocks are lost: neither linked nor free",
                    self.place
                ));
            }
            None => {}
            Some(Some(Liveness::Live)) => account.blocks_held += rest,
            Some(Some(Liveness::Dying | Liveness::Dead)) => account.blocks_unrecovered += rest,
            Some(Some(Liveness::Free) | None) => {
                account.fault(format!("{}: its owner is not in the client table", self.place));
            }
        }
    }

    fn block_at(&self, unit: u64, blocks: u64) -> Option<u64> {
        let block = match self.class {
            SizeClass::RUN => unit,
            class => unit / (class.bytes() / UNIT_BYTES),
        };
        (block < blocks && block_to_unit(self.class, block) == unit).then_some(block)
    }
}
