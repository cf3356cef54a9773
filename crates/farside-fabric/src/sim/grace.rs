//! The grace period held to its word: no block is handed out again while an operation goes on that began before the block
//! was unlinked.
//!
//! On the path: tests only, with the feature `mutants`. Pins and unlinked blocks of all clients are noted in the order in
//! which they happen, which is one order, since a simulation has one thread. A client that was cut off, or has lost its way, has
//! no say.

use std::collections::BTreeMap;

use super::world::{World, endpoint_id};
use crate::addr::RemoteAddr;

/// What is noted.
#[derive(Default, Debug)]
pub(super) struct Grace {
    /// How many notes there were.
    notes: u64,
    /// By client and note: how many operations that began with it go on, and when that was.
    held: BTreeMap<(u32, u64), (u32, u64)>,
    unlinked: BTreeMap<RemoteAddr, Unlinked>,
}

/// A block that nothing leads to any more, and that is not free yet.
#[derive(Clone, Copy, Debug)]
struct Unlinked {
    /// The note that it was unlinked with.
    note: u64,
    at_ns: u64,
    /// Whose it is since then; whoever looks for what the dead have lost does not know whose.
    owner: Option<u32>,
}

impl Grace {
    /// The next note.
    pub(super) fn note(&mut self) -> u64 {
        self.notes += 1;
        self.notes
    }

    /// What addresses stood for is lost, and whoever holds some has lost its way there.
    pub(super) fn begin_anew(&mut self) {
        self.held.clear();
        self.unlinked.clear();
    }

    /// What a client has unlinked is not its own any more.
    pub(super) fn give_up(&mut self, client: u32) {
        for unlinked in self.unlinked.values_mut() {
            unlinked.owner = unlinked.owner.filter(|&owner| owner != client);
        }
    }

    /// An operation of a client begins; returns its note.
    pub(super) fn hold(&mut self, client: u32, now: u64) -> u64 {
        let since = self.note();
        self.held.insert((client, since), (1, now));
        since
    }

    /// One more operation that may hold what one does that began with this note.
    pub(super) fn hold_since(&mut self, client: u32, since: u64) {
        if let Some((count, _)) = self.held.get_mut(&(client, since)) {
            *count += 1;
        }
    }

    /// An operation has ended.
    pub(super) fn let_go(&mut self, client: u32, since: u64) {
        if let Some((count, _)) = self.held.get_mut(&(client, since)) {
            *count -= 1;
            if *count == 0 {
                self.held.remove(&(client, since));
            }
        }
    }
}

impl World {
    /// A block is unlinked by now, says a client. If that is known already, the first time counts, unless it was used
    /// meanwhile (`is_new`).
    pub(super) fn unlink(&mut self, client: u32, block: RemoteAddr, is_new: bool) {
        if self.is_cut_off(client, block) {
            return;
        }
        let unlinked = Unlinked {
            note: self.grace.note(),
            at_ns: self.now,
            owner: is_new.then_some(client),
        };
        if is_new {
            self.grace.unlinked.insert(block, unlinked);
        } else {
            self.grace.unlinked.entry(block).or_insert(unlinked);
        }
    }

    /// A block may be handed out again from now on, says a client.
    ///
    /// # Panics
    /// If an operation that began before it was unlinked goes on, or another client has unlinked it and not freed it yet; but
    /// for those that were cut off.
    pub(super) fn end_grace(&mut self, client: u32, block: RemoteAddr) {
        if self.is_cut_off(client, block) {
            return;
        }
        let Some(Unlinked { note, at_ns, owner }) = self.grace.unlinked.remove(&block) else {
            return;
        };
        let (now, seed, user) = (self.now, self.options.seed, endpoint_id(client));
        if let Some(owner) = owner.filter(|&owner| owner != client && !self.is_cut_off(owner, block)) {
            let owner = endpoint_id(owner);
            panic!(
                "at {now} ns {user} uses {block} again, which {owner} unlinked at {at_ns} ns and still has (seed {seed})"
            );
        }
        let mut held = self.grace.held.iter().filter(|&(&(_, since), _)| since < note);
        if let Some((&(holder, _), &(_, began_ns))) = held.find(|&(&(holder, _), _)| !self.is_cut_off(holder, block)) {
            let holder = endpoint_id(holder);
            panic!(
                "at {now} ns {user} uses {block} again, which was unlinked at {at_ns} ns, while an operation of {holder} \
                 goes on that began at {began_ns} ns (seed {seed})"
            );
        }
    }

    /// Whether no operation goes on that began before this note, of a client that was not cut off and has its way to the first
    /// node.
    pub(super) fn is_past(&self, mark: u64) -> bool {
        let mut held = self.grace.held.keys().filter(|&&(_, since)| since < mark);
        held.all(|&(client, _)| self.is_cut_off(client, RemoteAddr::NULL))
    }

    /// Whether a client was cut off, or has lost its way to the node of this block.
    fn is_cut_off(&self, client: u32, block: RemoteAddr) -> bool {
        let node = &self.nodes[block.node().index()];
        let pair = self.clients[client as usize].queue_pairs.get(block.node().index());
        let is_connected = pair.is_some_and(|&pair| self.pairs[pair as usize].incarnation == node.incarnation);
        !is_connected || self.nodes.iter().any(|node| node.fenced.contains(&client))
    }
}
