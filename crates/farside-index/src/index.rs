//! Every index behind one name: which one a pool has is decided once, each operation asks for it once.
//!
//! On the path: between a session and the index.

use std::borrow::Cow;
use std::sync::Arc;

use farside_fabric::{Batch, Endpoint, LocalFuture, NodeId, OpContext, RemoteAddr, Soon, at_once};
use farside_pool::{Geometry, Pool, root};
use farside_sync::{Combined, SyncOptions};
use farside_value::format::Tag;

use crate::blocks::Blocks;
use crate::descriptor::Marking;
use crate::error::IndexError;
use crate::item::Item;
use crate::local::{Local, Shared};
use crate::operation::{Change, Decide, Decision, Found, Likely, Sampled, Searched, SearchedKeys, Wanted};
use crate::ordered::{self, Cursors, LeafOptions, Ordered};
use crate::pointer_array::{self, Addressing, PointerArray};
use crate::race::{self, Approach, Approaches, Race, RaceOptions};
use crate::smart::{self, Smart};
use crate::transaction::Located;
use crate::tree::{self, Budget, TreeKind};

/// The indexes, chosen by name when a pool is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IndexKind {
    /// A fixed array of data pointers.
    PointerArray,
    /// Extendible hashing.
    Race,
    /// A tree in the order of keys, with hashed leaves.
    Chime,
    /// A tree in the order of keys, with unsorted leaves.
    Sherman,
    /// A tree in the order of keys, with unsorted leaves that several clients change at the same time.
    Marlin,
    /// A radix tree.
    Smart,
    /// A tree in the order of keys, whose leaves are found by models.
    Rolex,
    /// The same with hashed leaves.
    ChimeLearned,
}

impl IndexKind {
    /// Every index with its name on the command line and one line about it.
    pub const ALL: [(Self, &'static str, &'static str); 8] = [
        (
            Self::Race,
            "race",
            "RACE: extendible hashing, two choices, grows while clients work",
        ),
        (
            Self::PointerArray,
            "pointer-array",
            "a fixed array of data pointers, addressed by the hash of the key or by the key itself",
        ),
        (
            Self::Chime,
            "chime",
            "CHIME: a B+ tree with hashed leaves, keys in order; updates replace data pointers and lock nothing",
        ),
        (
            Self::Sherman,
            "sherman",
            "Sherman: a B+ tree with unsorted leaves, keys in order; updates replace data pointers and lock nothing",
        ),
        (
            Self::Marlin,
            "marlin",
            "Marlin: a B+ tree whose leaves several clients change at the same time, keys in order; only splits and merges lock leaves",
        ),
        (
            Self::Smart,
            "smart",
            "SMART: an adaptive radix tree, keys in order; no operation takes a lock",
        ),
        (
            Self::Rolex,
            "rolex",
            "ROLEX: small leaves found by models, keys in order; updates replace data pointers and lock nothing",
        ),
        (
            Self::ChimeLearned,
            "chime-learned",
            "CHIME's hashed leaves found by models, keys in order; updates replace data pointers and lock nothing",
        ),
    ];

    /// The index with this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .find(|(_, known, _)| *known == name)
            .map(|&(kind, ..)| kind)
    }

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        let (_, name, _) = Self::ALL
            .iter()
            .find(|(kind, ..)| *kind == self)
            .expect("all are listed");
        name
    }

    /// The B+ tree that it is, if it is one.
    #[must_use]
    pub fn tree(self) -> Option<TreeKind> {
        match self {
            Self::PointerArray | Self::Race | Self::Smart => None,
            Self::Chime => Some(TreeKind::Chime),
            Self::Sherman => Some(TreeKind::Sherman),
            Self::Marlin => Some(TreeKind::Marlin),
            Self::Rolex => Some(TreeKind::Rolex),
            Self::ChimeLearned => Some(TreeKind::ChimeLearned),
        }
    }

    /// Whether its keys are in order, so that ranges can be read.
    #[must_use]
    pub fn is_ordered(self) -> bool {
        !matches!(self, Self::PointerArray | Self::Race)
    }

    fn of_tree(tree: TreeKind) -> Self {
        let found = Self::ALL.iter().find(|(kind, ..)| kind.tree() == Some(tree));
        let &(kind, ..) = found.expect("all are listed");
        kind
    }

    /// Which index a pool has; `None` if nobody has made one.
    ///
    /// # Errors
    /// What the fabric reports.
    pub fn of_pool<'f>(cx: &'f mut OpContext) -> LocalFuture<'f, Result<Option<Self>, IndexError>> {
        Box::pin(async move {
            for (kind, number) in [(Self::Race, race::ROOT), (Self::PointerArray, pointer_array::ROOT)] {
                if root(cx, NodeId::new(0), number).await?.is_some() {
                    return Ok(Some(kind));
                }
            }
            if smart::is_in_pool(cx).await? {
                return Ok(Some(Self::Smart));
            }
            Ok(tree::kind_of_pool(cx).await?.map(Self::of_tree))
        })
    }
}

/// How large an index is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexOptions {
    /// How many slots a new pointer array gets.
    pub slots: u64,
    /// How a new RACE table is made.
    pub race: RaceOptions,
    /// What the leaves of a new tree look like.
    pub leaf: LeafOptions,
    /// What this client may remember of an index in the order of keys.
    pub budget: Budget,
}

/// An index as one client sees it.
#[derive(Clone, Debug)]
pub enum Index {
    /// See [`PointerArray`], addressed by hash.
    PointerArray(PointerArray),
    /// See [`Race`].
    Race(Race),
    /// See [`Ordered`].
    Ordered(Ordered),
    /// See [`Smart`].
    Smart(Smart),
}

/// The state of a SEARCH of several keys; kept by the caller, so that it costs no allocation.
#[derive(Default, Debug)]
pub struct SearchMany {
    array: pointer_array::search_many::Steps,
    race: race::search_many::Steps,
    /// Of those whose steps have none of their own.
    batch: Batch,
    ordered: ordered::search_many::Steps,
    smart: smart::search_many::Steps,
    results: SearchedKeys,
}

impl SearchMany {
    /// What came of the `index`-th key of the last search.
    ///
    /// # Panics
    /// If there were not so many keys, or the search was cut short.
    #[inline]
    #[must_use]
    pub fn result(&self, index: usize) -> Searched {
        self.results[index]
    }
}

impl Index {
    /// Opens the index of a pool, and makes one if there is none: of the kind that is wanted, or RACE.
    ///
    /// # Errors
    /// [`IndexError::OtherIndex`] if the pool has another kind; if it is too small, or the fabric fails.
    pub fn open_or_create<'f>(
        cx: &'f mut OpContext,
        pool: Pool,
        wanted: Option<IndexKind>,
        sync: SyncOptions,
        options: IndexOptions,
    ) -> LocalFuture<'f, Result<Self, IndexError>> {
        Box::pin(async move {
            let there = IndexKind::of_pool(cx).await?;
            if let (Some(there), Some(wanted)) = (there, wanted)
                && there != wanted
            {
                return Err(IndexError::OtherIndex {
                    there: there.name(),
                    wanted: wanted.name(),
                });
            }
            // Made again where a creator has died in the middle.
            let kind = there.or(wanted).unwrap_or(IndexKind::Race);
            if let Some(tree) = kind.tree() {
                return Ordered::create(cx, pool, sync, (tree, options.leaf), options.budget)
                    .await
                    .map(Self::Ordered);
            }
            match kind {
                IndexKind::PointerArray => PointerArray::create(cx, pool, sync, Addressing::Hashed, options.slots)
                    .await
                    .map(Self::PointerArray),
                IndexKind::Smart => Smart::create(cx, pool, sync, options.budget).await.map(Self::Smart),
                _ => Race::create(cx, pool, sync, options.race).await.map(Self::Race),
            }
        })
    }

    /// The same index, with cursors that the other clients of this process have too.
    #[must_use]
    pub fn with_cursors(self, cursors: Arc<Cursors>) -> Self {
        match self {
            Self::Ordered(ordered) => Self::Ordered(ordered.with_cursors(cursors)),
            Self::Smart(smart) => Self::Smart(smart.with_cursors(cursors)),
            other => other,
        }
    }

    /// Which one it is.
    #[must_use]
    pub fn kind(&self) -> IndexKind {
        match self {
            Self::PointerArray(_) => IndexKind::PointerArray,
            Self::Race(_) => IndexKind::Race,
            Self::Ordered(ordered) => IndexKind::of_tree(ordered.kind()),
            Self::Smart(_) => IndexKind::Smart,
        }
    }

    /// The pool from which it allocates.
    #[inline]
    #[must_use]
    pub fn pool(&self) -> &Pool {
        match self {
            Self::PointerArray(array) => array.pool(),
            Self::Race(race) => race.pool(),
            Self::Ordered(ordered) => ordered.pool(),
            Self::Smart(smart) => smart.pool(),
        }
    }

    /// Bytes that this client uses to remember where things are.
    #[must_use]
    pub fn cache_bytes(&self) -> usize {
        match self {
            Self::PointerArray(_) => 0,
            Self::Race(race) => race.cache_bytes(),
            Self::Ordered(ordered) => ordered.cache_bytes(),
            Self::Smart(smart) => smart.cache_bytes(),
        }
    }

    /// What this client knows of the structure, for people: names and numbers.
    #[must_use]
    pub fn outline(&self) -> Vec<(&'static str, u64)> {
        match self {
            Self::PointerArray(array) => vec![("slots", array.slots())],
            Self::Race(race) => vec![("directory entries", race.directory_entries())],
            Self::Ordered(ordered) => vec![("levels", u64::from(ordered.height()) + 1)],
            Self::Smart(smart) => {
                let structure = smart.structure();
                vec![
                    ("nodes made", structure.made),
                    ("nodes grown", structure.grown),
                    ("nodes removed", structure.gone),
                ]
            }
        }
    }

    #[inline]
    pub(crate) fn blocks(&self) -> &Blocks {
        match self {
            Self::PointerArray(array) => array.blocks(),
            Self::Race(race) => race.blocks(),
            Self::Ordered(ordered) => ordered.blocks(),
            Self::Smart(smart) => smart.blocks(),
        }
    }

    #[inline]
    fn local(&self) -> Option<&Local> {
        self.blocks().local.as_deref()
    }

    /// How many operations of this compute node's clients have gone with another one.
    #[must_use]
    pub fn shared(&self) -> Shared {
        self.local().map(Local::shared).unwrap_or_default()
    }

    /// How often writes of this compute node's clients went which way.
    #[must_use]
    pub fn combined(&self) -> Combined {
        self.blocks().sync.combined()
    }

    /// Bytes of what this compute node remembers about contention.
    #[must_use]
    pub fn credit_bytes(&self) -> usize {
        self.blocks().sync.credit_bytes()
    }

    /// SEARCH. The value is left in the context's buffer.
    ///
    /// # Errors
    /// See [`IndexError`]; likewise for all operations below.
    pub fn search<'c>(&'c self, cx: &'c mut OpContext, key: &'c [u8]) -> Soon<'c, Result<Option<Found>, IndexError>> {
        match self.search_now(cx, key) {
            Some(found) => Soon::done(Ok(found)),
            None => Soon::boxed(match self.local() {
                None => self.search_alone(cx, key),
                Some(local) => Box::pin(local.read(cx, key, async |cx| self.search_alone(cx, key).await)),
            }),
        }
    }

    /// SEARCH in a plain call, if nothing has to be waited for: over mapped memory. Otherwise `None`, and where something is
    /// wrong, which [`Index::search`] reports.
    #[inline]
    pub fn search_now(&self, cx: &mut OpContext, key: &[u8]) -> Option<Option<Found>> {
        if !self.works_in_place(cx) {
            return None;
        }
        match self {
            Self::Race(race) => race.search_now(cx, key),
            other => other.search_at_once(cx, key),
        }
    }

    /// SEARCH in a plain call that reads the value to memory of the caller, if it fits: to be copied once. `None` if the key is not there,
    /// and where this cannot be done, as by most indexes, and [`Index::search`] has to find out. Of the answer only how long the value is
    /// says something, and when the item expires.
    pub fn read_now(&self, cx: &mut OpContext, key: &[u8], target: &mut [u8]) -> Option<Found> {
        match self {
            Self::Race(race) if self.works_in_place(cx) => race.read_now(cx, key, target),
            _ => None,
        }
    }

    fn search_at_once(&self, cx: &mut OpContext, key: &[u8]) -> Option<Option<Found>> {
        let searched = match self {
            Self::PointerArray(array) => at_once(array.search(cx, key)),
            Self::Race(race) => at_once(race.search(cx, key)),
            Self::Ordered(ordered) => at_once(ordered.search(cx, key)),
            Self::Smart(smart) => at_once(smart.search(cx, key)),
        };
        searched?.ok()
    }

    /// Begins to approach the memory of a key.
    #[inline]
    #[must_use]
    pub fn approach_key(&self) -> Approach {
        Approach::new(self.pool().pin())
    }

    /// Whether memory is approached in steps.
    #[must_use]
    pub fn approaches_in_steps(&self) -> bool {
        matches!(self, Self::Race(_))
    }

    /// Asks for the memory that the next call with this key looks at, a step at a time; returns whether the step is worth
    /// waiting for, so that in a pipeline [the others may run](OpContext::turn). Only RACE over mapped memory has
    /// steps, and is then searched or changed in one turn.
    #[inline]
    pub fn approach_next(&self, endpoint: &Endpoint, key: &[u8], approach: &mut Approach) -> bool {
        match self {
            Self::Race(race) => race.approach_next(endpoint, key, approach),
            _ => false,
        }
    }

    /// What is there of a key, if it is where the approach led to. The value is left in the context's buffer.
    #[inline]
    pub fn approached(&self, cx: &mut OpContext, key: &[u8], approach: &Approach) -> Option<Found> {
        match self {
            Self::Race(race) => race.approached(cx, key, approach),
            _ => None,
        }
    }

    /// Whether operations complete at once, if nobody is in their way. In a pipeline trees let the others run on their way down.
    #[inline]
    fn works_in_place(&self, cx: &OpContext) -> bool {
        let takes_turns = !matches!(self, Self::Race(_)) && cx.is_pipelined();
        cx.endpoint().is_mapped() && !takes_turns && self.local().is_none()
    }

    /// Each index in a box of its own size.
    fn search_alone<'c>(
        &'c self,
        cx: &'c mut OpContext,
        key: &'c [u8],
    ) -> LocalFuture<'c, Result<Option<Found>, IndexError>> {
        match self {
            Self::PointerArray(array) => Box::pin(array.search(cx, key)),
            Self::Race(race) => Box::pin(race.search(cx, key)),
            Self::Ordered(ordered) => Box::pin(ordered.search(cx, key)),
            Self::Smart(smart) => Box::pin(smart.search(cx, key)),
        }
    }

    /// SEARCH of up to [`KEYS_AT_ONCE`](crate::KEYS_AT_ONCE) keys. The values are left in the context's
    /// buffer. On an error nothing is known about any of the keys.
    ///
    /// # Panics
    /// If there are more keys.
    pub fn search_many<'c>(
        &'c self,
        cx: &'c mut OpContext,
        keys: &'c [&'c [u8]],
        many: &'c mut SearchMany,
    ) -> Soon<'c, Result<(), IndexError>> {
        // Nothing is lost if it has to begin again.
        let completes = cx.endpoint().is_mapped() && !cx.is_pipelined();
        if completes && let Some(searched) = at_once(self.search_many_apart(cx, keys, many)) {
            return Soon::done(searched);
        }
        Soon::later(self.search_many_apart(cx, keys, many))
    }

    async fn search_many_apart(
        &self,
        cx: &mut OpContext,
        keys: &[&[u8]],
        many: &mut SearchMany,
    ) -> Result<(), IndexError> {
        match self {
            Self::PointerArray(array) => {
                let searched = array.search_many(cx, keys, &mut many.array, &mut many.results);
                Ok(searched.await?)
            }
            Self::Race(race) => race.search_many(cx, keys, &mut many.race, &mut many.results).await,
            Self::Ordered(ordered) => {
                let searched = ordered.search_many(cx, keys, (&mut many.batch, &mut many.ordered), &mut many.results);
                searched.await
            }
            Self::Smart(smart) => {
                let searched = smart.search_many(cx, keys, (&mut many.batch, &mut many.smart), &mut many.results);
                searched.await
            }
        }
    }

    /// What is locked while a key comes or goes, as far as this client remembers: whoever changes several keys at once had better
    /// let those that lock the same follow each other. `None` if nothing is, or it is not known.
    #[must_use]
    pub fn locked_by(&self, key: &[u8]) -> Option<RemoteAddr> {
        match self {
            Self::Ordered(ordered) => ordered.locked_leaf(key),
            Self::PointerArray(_) | Self::Race(_) | Self::Smart(_) => None,
        }
    }

    /// Says that up to [`KEYS_AT_ONCE`](crate::KEYS_AT_ONCE) keys will be used next. Over mapped memory their cache misses
    /// overlap then; elsewhere it does nothing. Also returns for each key how far that came, where it helps: a change in a plain
    /// call may go on from there. While they are held their epoch is pinned, so nobody may wait for anything meanwhile.
    ///
    /// # Panics
    /// If there are more keys.
    pub fn approach_each(&self, cx: &mut OpContext, keys: &[&[u8]], many: &mut SearchMany) -> Approaches {
        assert!(keys.len() <= crate::KEYS_AT_ONCE, "too many keys at once");
        match self {
            Self::PointerArray(array) => array.approach(cx, keys, &mut many.array),
            Self::Race(race) if cx.endpoint().is_mapped() => return race.approach_each(cx.endpoint(), keys),
            Self::Race(_) => {}
            Self::Ordered(ordered) => ordered.approach(cx, keys),
            Self::Smart(smart) => smart.approach(cx, keys),
        }
        Approaches::new()
    }

    /// Reads what is stored under a key and changes it as `decide` says, atomically: if another client
    /// changes the key meanwhile, `decide` is asked again with the new state. It must not depend on how
    /// often it is asked. `likely` is what it will probably store.
    ///
    /// On an error nothing was changed unless the fabric failed while publishing.
    pub fn change<'c, 'v: 'c>(
        &'c self,
        cx: &'c mut OpContext,
        key: &'c [u8],
        likely: Option<Likely<'c>>,
        decide: Decide<'c, 'v>,
    ) -> LocalFuture<'c, Result<Change, IndexError>> {
        match (self.local(), likely) {
            (Some(local), Some(likely)) if likely.regardless => {
                let change = async move |cx: &mut OpContext| self.change_alone(cx, key, Some(likely), decide).await;
                Box::pin(local.write(cx, key, change))
            }
            _ => self.change_alone(cx, key, likely, decide),
        }
    }

    /// A change in a plain call, if nothing has to be waited for: over mapped memory nearly always. It goes on from where the
    /// key's memory has been approached to, if it has. Otherwise `None`, and nothing was changed; [`Index::change`] will ask
    /// `decide` again. Nobody may be asked if what is `likely` is to be stored regardless.
    #[inline]
    pub fn change_now<'v>(
        &self,
        cx: &mut OpContext,
        key: &[u8],
        approach: Option<&Approach>,
        likely: Option<Likely<'_>>,
        decide: Decide<'_, 'v>,
    ) -> Option<Result<Change, IndexError>> {
        // A scheme with locks may wait for one, and while a snapshot is taken there is more to do.
        if !self.pool().is_undisturbed() || !self.works_in_place(cx) || self.blocks().sync.scheme().needs_locks() {
            return None;
        }
        match self {
            Self::PointerArray(array) => array.change_now(cx, key, decide),
            Self::Race(race) => race.change_now(cx, key, approach, likely, decide),
            Self::Ordered(ordered) => ordered.change_now(cx, key, decide),
            Self::Smart(smart) => smart.change_now(cx, key, decide),
        }
    }

    fn change_alone<'c, 'v: 'c>(
        &'c self,
        cx: &'c mut OpContext,
        key: &'c [u8],
        likely: Option<Likely<'c>>,
        decide: Decide<'c, 'v>,
    ) -> LocalFuture<'c, Result<Change, IndexError>> {
        match self {
            Self::PointerArray(array) => Box::pin(array.change(cx, key, decide)),
            Self::Race(race) => Box::pin(race.change(cx, key, likely, decide)),
            Self::Ordered(ordered) => Box::pin(ordered.change(cx, key, likely, decide)),
            Self::Smart(smart) => Box::pin(smart.change(cx, key, likely, decide)),
        }
    }

    /// UPDATE: replaces the value of a key, if it is there; returns whether it was. An array whose slots belong to one
    /// key each does not look at the item that is replaced.
    pub fn update<'f>(
        &'f self,
        cx: &'f mut OpContext,
        key: &'f [u8],
        value: &'f [u8],
    ) -> LocalFuture<'f, Result<bool, IndexError>> {
        Box::pin(async move {
            let updated = match self.local() {
                Some(local) => {
                    local
                        .write(cx, key, async |cx| self.update_alone(cx, key, value).await)
                        .await
                }
                None => self.update_alone(cx, key, value).await,
            };
            Ok(updated? == Change::Updated)
        })
    }

    async fn update_alone(&self, cx: &mut OpContext, key: &[u8], value: &[u8]) -> Result<Change, IndexError> {
        if let Self::PointerArray(array) = self
            && array.addressing() == Addressing::Direct
        {
            let is_there = array.update(cx, key, value).await?;
            return Ok(if is_there { Change::Updated } else { Change::Kept });
        }
        let likely = Likely {
            value,
            expiry_ms: 0,
            regardless: true,
        };
        let mut decide = |stored: Option<Item<'_>>| match stored {
            None => Decision::Keep,
            Some(_) => Decision::Put {
                value: Cow::Borrowed(value),
                expiry_ms: 0,
                tag: Tag::String,
                regardless: true,
            },
        };
        self.change_alone(cx, key, Some(likely), &mut decide).await
    }

    /// Visits the items of the next slots from `cursor` on, which is 0 at first, with what is wanted of them. Returns the cursor to
    /// go on with, 0 at the end. A key that is there throughout is visited once.
    pub fn scan<'f>(
        &'f self,
        cx: &'f mut OpContext,
        cursor: u64,
        (wanted, visit): (Wanted, &'f mut dyn FnMut(Item<'_>)),
    ) -> LocalFuture<'f, Result<u64, IndexError>> {
        Box::pin(async move {
            match self {
                Self::PointerArray(array) => array.scan(cx, cursor, visit).await,
                Self::Race(race) => race.scan(cx, cursor, (wanted, visit)).await,
                Self::Ordered(ordered) => ordered.scan(cx, cursor, (wanted, visit)).await,
                Self::Smart(smart) => smart.scan(cx, cursor, (wanted, visit)).await,
            }
        })
    }

    /// Visits up to `count` items from the key `from` on, in the order of their keys, byte by byte, with what is wanted of them.
    /// Returns the key to go on with, `None` at the end. A key that is there throughout is visited once.
    ///
    /// # Errors
    /// [`IndexError::Unordered`] if the keys of the index are in no order.
    pub fn range<'f>(
        &'f self,
        cx: &'f mut OpContext,
        from: &'f [u8],
        count: usize,
        (wanted, visit): (Wanted, &'f mut dyn FnMut(Item<'_>)),
    ) -> LocalFuture<'f, Result<Option<Vec<u8>>, IndexError>> {
        Box::pin(async move {
            match self {
                Self::Ordered(ordered) => ordered.range(cx, from, count, (wanted, visit)).await,
                Self::Smart(smart) => smart.range(cx, from, count, (wanted, visit)).await,
                Self::PointerArray(_) | Self::Race(_) => Err(IndexError::Unordered {
                    index: self.kind().name(),
                }),
            }
        })
    }

    /// The cursor of a scan that starts where a key is, or would be.
    #[must_use]
    pub fn cursor_at(&self, key: &[u8]) -> u64 {
        match self {
            Self::PointerArray(array) => array.cursor_at(key),
            Self::Race(race) => race.cursor_at(key),
            Self::Ordered(ordered) => ordered.cursor_at(key),
            Self::Smart(smart) => smart.cursor_at(key),
        }
    }

    /// The key that a cursor stands for, if keys are in order and it is not one of a random place.
    ///
    /// # Errors
    /// [`IndexError::CursorUnknown`].
    pub fn key_at(&self, cursor: u64) -> Result<Option<Box<[u8]>>, IndexError> {
        match self {
            Self::PointerArray(_) | Self::Race(_) => Ok(None),
            Self::Ordered(ordered) => ordered.key_at(cursor),
            Self::Smart(smart) => smart.key_at(cursor),
        }
    }

    /// A random cursor of a scan: a scan from there to its end sees some of the keys.
    #[must_use]
    pub fn random_cursor(&self, endpoint: &Endpoint) -> u64 {
        match self {
            Self::PointerArray(array) => endpoint.random_below(array.slots()),
            Self::Race(race) => race.random_cursor(endpoint),
            Self::Ordered(ordered) => ordered.random_cursor(endpoint),
            Self::Smart(smart) => smart.random_cursor(endpoint),
        }
    }

    /// Visits up to `count` items of a few slots at `cursor`, which is one of a scan, or random; there may be fewer,
    /// or none. Returns the cursor to go on with, 0 at the end.
    pub fn sample<'f>(
        &'f self,
        cx: &'f mut OpContext,
        cursor: u64,
        count: usize,
        visit: &'f mut dyn FnMut(Sampled<'_>),
    ) -> LocalFuture<'f, Result<u64, IndexError>> {
        Box::pin(async move {
            match self {
                Self::PointerArray(array) => array.sample(cx, cursor, count, visit).await,
                Self::Race(race) => race.sample(cx, cursor, count, visit).await,
                Self::Ordered(ordered) => ordered.sample(cx, cursor, count, visit).await,
                Self::Smart(smart) => smart.sample(cx, cursor, count, visit).await,
            }
        })
    }

    /// Removes a key if what is stored under it is still what a sample has found; returns whether it was removed. A key
    /// that another client changes at the same time stays.
    pub fn remove_sampled<'f>(
        &'f self,
        cx: &'f mut OpContext,
        wanted: Sampled<'f>,
    ) -> LocalFuture<'f, Result<bool, IndexError>> {
        Box::pin(async move {
            match self {
                Self::PointerArray(array) => array.remove_sampled(cx, wanted).await,
                Self::Race(race) => race.remove_sampled(cx, wanted).await,
                Self::Ordered(ordered) => ordered.remove_sampled(cx, wanted).await,
                Self::Smart(smart) => smart.remove_sampled(cx, wanted).await,
            }
        })
    }

    /// Looks for a key for a transaction: see [`Index::commit`]. The caller has pinned the pool.
    pub fn locate<'f>(&'f self, cx: &'f mut OpContext, key: &'f [u8]) -> Soon<'f, Result<Located, IndexError>> {
        // Nothing is lost if it has to begin again, and no future is moved to the heap.
        if let Some(located) = self.locate_now(cx, key, None) {
            return Soon::done(located);
        }
        Soon::boxed(match self {
            Self::PointerArray(array) => Box::pin(array.locate(cx, key)),
            Self::Race(race) => Box::pin(race.locate(cx, key, None)),
            Self::Ordered(ordered) => Box::pin(ordered.locate(cx, key)),
            Self::Smart(smart) => Box::pin(smart.locate(cx, key)),
        })
    }

    /// The same in a plain call, if nothing has to be waited for; it goes on from where the key's memory was approached to.
    pub fn locate_now(
        &self,
        cx: &mut OpContext,
        key: &[u8],
        approach: Option<&Approach>,
    ) -> Option<Result<Located, IndexError>> {
        if !self.works_in_place(cx) {
            return None;
        }
        match self {
            Self::PointerArray(array) => at_once(array.locate(cx, key)),
            Self::Race(race) => at_once(race.locate(cx, key, approach)),
            Self::Ordered(ordered) => at_once(ordered.locate(cx, key)),
            Self::Smart(smart) => at_once(smart.locate(cx, key)),
        }
    }

    pub(crate) fn marking(&self) -> Marking {
        self.blocks().marking
    }

    /// How many keys are stored, expired ones included. Keys that come or go meanwhile may be missed.
    pub fn count<'f>(&'f self, cx: &'f mut OpContext) -> LocalFuture<'f, Result<u64, IndexError>> {
        Box::pin(async move {
            match self {
                Self::PointerArray(array) => array.count(cx).await,
                Self::Race(race) => race.count(cx).await,
                Self::Ordered(ordered) => ordered.count(cx).await,
                Self::Smart(smart) => smart.count(cx).await,
            }
        })
    }

    /// Removes every key that is there when its slot is visited; returns how many. On an error some keys
    /// may be gone.
    pub fn clear<'f>(&'f self, cx: &'f mut OpContext) -> LocalFuture<'f, Result<u64, IndexError>> {
        Box::pin(async move {
            match self {
                Self::PointerArray(array) => array.clear(cx).await,
                Self::Race(race) => race.clear(cx).await,
                Self::Ordered(ordered) => ordered.clear(cx).await,
                Self::Smart(smart) => smart.clear(cx).await,
            }
        })
    }

    /// Calls `visit` with every block that is linked. Pins for a few slots at a time, so that the epoch
    /// can move; items that are linked or unlinked meanwhile may be missed.
    pub fn walk<'f>(
        &'f self,
        cx: &'f mut OpContext,
        visit: &'f mut dyn FnMut(RemoteAddr),
    ) -> LocalFuture<'f, Result<(), IndexError>> {
        Box::pin(async move {
            match self {
                Self::PointerArray(array) => array.walk(cx, visit).await,
                Self::Race(race) => race.walk(cx, visit).await,
                Self::Ordered(ordered) => ordered.walk(cx, visit).await,
                Self::Smart(smart) => smart.walk(cx, visit).await,
            }
        })
    }

    /// Whether a task of this client works on the structure, and has to end before the client leaves.
    #[must_use]
    pub fn is_restructuring(&self) -> bool {
        match self {
            Self::PointerArray(_) => false,
            Self::Race(race) => race.is_splitting(),
            Self::Ordered(ordered) => ordered.is_restructuring(),
            Self::Smart(_) => false,
        }
    }
}

/// Calls `visit` with every block that the index of a pool links. Pins `pool` for each part; where nobody else is, none is
/// needed.
///
/// # Errors
/// See [`IndexError`].
pub async fn walk(
    cx: &mut OpContext,
    geometry: &[Geometry],
    pool: Option<&Pool>,
    visit: &mut dyn FnMut(RemoteAddr),
) -> Result<(), IndexError> {
    match IndexKind::of_pool(cx).await? {
        None => Ok(()),
        Some(IndexKind::PointerArray) => pointer_array::walk(cx, geometry, pool, visit).await.map(drop),
        Some(
            IndexKind::Chime | IndexKind::Sherman | IndexKind::Marlin | IndexKind::Rolex | IndexKind::ChimeLearned,
        ) => {
            let _pin = pool.map(Pool::pin);
            ordered::walk(cx, visit).await
        }
        Some(IndexKind::Smart) => {
            let _pin = pool.map(Pool::pin);
            smart::walk_blocks(cx, visit).await
        }
        Some(IndexKind::Race) => {
            race::walk::walk(cx, geometry, pool, &mut |visited| {
                visit(visited.addr);
                visited.blocks().for_each(&mut *visit);
            })
            .await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Alone;
    use farside_sync::Scheme;

    /// What waits goes to the heap: allocators have blocks of up to a KiB at hand, and what is larger is copied for long. A
    /// batch has three KiB, so one that is rare is in a box of its own.
    #[test]
    fn futures_of_operations_are_small() {
        let mut alone = Alone::new(32 << 20);
        let cx = &mut alone.cx;
        alone.sim.block_on(async {
            let (pool, sync) = (alone.pool.clone(), Scheme::Farside.into());
            let array = PointerArray::create(cx, pool, sync, Addressing::Direct, 1000)
                .await
                .expect("an array");
            assert!(size_of_val(&array.search(cx, b"key")) <= 1024);
            assert!(size_of_val(&array.update(cx, b"key", b"value")) <= 1024);
            assert!(size_of_val(&array.change(cx, b"key", &mut |_| Decision::Keep)) <= 2048);
        });
    }
}
