//! Operations on many keys, several of which are in flight at once.
//!
//! On the path: MGET, DEL of several keys, and the GETs and SETs that stand one behind the other in what a connection has read.
//! Over mapped memory the cache misses of a group overlap; elsewhere its round trips do.

use arrayvec::ArrayVec;
use farside_fabric::mutant::is_planted;
use farside_fabric::{LocalFuture, OpContext, RemoteAddr, Slice, join_all};
use farside_index::item::item_bytes;
use farside_index::{Approach, Item, KEYS_AT_ONCE, Likely, Searched, Tag};

use crate::decision::Deletion;
use crate::error::{KvError, Pending};
use crate::session::Session;
use crate::store::Store;
use crate::value;

/// A key, and the value that it gets; `None` if it is removed.
type Wish<'w> = (&'w [u8], Option<&'w [u8]>);

/// Those that go together.
type Group<'w> = ArrayVec<Wish<'w>, KEYS_AT_ONCE>;

/// Who is told what came of each.
type Told<'t> = &'t mut dyn FnMut(Result<bool, KvError>);

impl Session {
    /// The values of many keys, in their order. [`KEYS_AT_ONCE`] of them are read at a time, in as many round trips as
    /// one. They are no snapshot: each key is read by itself.
    pub fn get_many<'k>(&mut self, keys: &'k [&'k [u8]]) -> Values<'_, 'k> {
        Values {
            session: self,
            rest: keys,
            group: &[],
            next: 0,
            is_read: false,
        }
    }

    /// Stores values without expiry. [`KEYS_AT_ONCE`] of them are stored at a time, those of one key in their order;
    /// `stored` is called with each result, in the order of the items. Items fail independently of each other.
    pub async fn put_many(&mut self, items: &[(&[u8], &[u8])], mut stored: impl FnMut(Result<(), KvError>)) {
        for group in items.chunks(KEYS_AT_ONCE) {
            let group: Group<'_> = group.iter().map(|&(key, value)| (key, Some(value))).collect();
            let told: Told<'_> = &mut |changed| stored(changed.map(drop));
            let changed = self.change_some(&group, told);
            if changed < group.len() {
                self.change_rest(&group[changed..], told).await;
            }
        }
    }

    /// Removes keys, in the same way; `deleted` is called with whether each was there.
    pub async fn delete_many(&mut self, keys: &[&[u8]], mut deleted: impl FnMut(Result<bool, KvError>)) {
        for group in keys.chunks(KEYS_AT_ONCE) {
            let group: Group<'_> = group.iter().map(|&key| (key, None)).collect();
            let changed = self.change_some(&group, &mut deleted);
            if changed < group.len() {
                self.change_rest(&group[changed..], &mut deleted).await;
            }
        }
    }

    /// Changes keys in plain calls, up to the first for which something has to be waited for; returns how many.
    fn change_some(&mut self, group: &[Wish<'_>], told: Told<'_>) -> usize {
        self.start();
        if !self.store.endpoint().is_mapped() {
            return 0;
        }
        let keys: ArrayVec<&[u8], KEYS_AT_ONCE> = group.iter().map(|&(key, _)| key).collect();
        let Self { store, cx, many, .. } = self;
        let approaches = store.index().approach_each(cx, &keys, many);
        for (index, &wish) in group.iter().enumerate() {
            match self.change_now(wish, approaches.get(index)) {
                Some(changed) => told(changed),
                // Nobody waits while an epoch is pinned.
                None => return index,
            }
        }
        group.len()
    }

    /// Changes keys of which the first has to wait for something.
    fn change_rest<'w>(&'w mut self, group: &'w [Wish<'w>], told: Told<'w>) -> LocalFuture<'w, ()> {
        Box::pin(async move {
            let mut rest = group;
            while let Some((&first, others)) = rest.split_first() {
                let count = self.store.goes_together(rest);
                if count > 1 {
                    self.change_together(&rest[..count])
                        .await
                        .into_iter()
                        .for_each(&mut *told);
                    rest = &rest[count..];
                } else {
                    told(self.change_apart(first).await);
                    rest = &others[self.change_some(others, told)..];
                }
            }
        })
    }

    /// Changes a key in a plain call, if nothing has to be waited for.
    fn change_now(&mut self, (key, value): Wish<'_>, approach: Option<&Approach>) -> Option<Result<bool, KvError>> {
        if value.is_some_and(|value| self.room_for(key, value.len()).is_some()) {
            return None;
        }
        let likely = value.map(Likely::for_good);
        let mut deletion = Deletion::default();
        let mut decide = |stored: Option<Item<'_>>| match likely {
            Some(likely) => likely.decision(),
            None => deletion.decision(stored.is_some()),
        };
        let Self { store, cx, .. } = self;
        let changed = store.change_now(cx, key, approach, likely, &mut decide)?;
        Some(changed.map(|change| likely.is_some() || deletion.has_removed(change)))
    }

    /// Changes a key by itself, and makes room for it before.
    fn change_apart<'w>(&'w mut self, wish: Wish<'w>) -> Pending<'w, bool> {
        Box::pin(async move {
            self.start();
            if let (key, Some(value)) = wish {
                self.make_room(key, value.len()).await?;
            }
            self.store.change_as_wished(&mut self.cx, wish).await
        })
    }

    /// Changes keys at the same time, each with a context of its own.
    async fn change_together(&mut self, group: &[Wish<'_>]) -> Vec<Result<bool, KvError>> {
        self.start();
        let Self { store, cx, beside, .. } = self;
        let beside = store.contexts(cx, beside, group.len());
        let changes = beside.iter_mut().zip(group);
        let changes = changes.map(|(cx, &wish)| store.change_as_wished(cx, wish));
        let changed = join_all(changes.collect()).await;
        beside.iter_mut().for_each(OpContext::shrink);
        changed
    }
}

impl Store {
    /// How many of the first can be changed at the same time, over a network: as many as there is room for. What comes for a key
    /// that is changed already waits until that is done: who sent both knows which was the last. So do deletes that lock the
    /// same, which would only wait for one another. Below two, the first goes by itself.
    fn goes_together(&self, group: &[Wish<'_>]) -> usize {
        if self.endpoint().is_mapped() {
            return 1;
        }
        let (mut locked, mut bytes) = (ArrayVec::<RemoteAddr, KEYS_AT_ONCE>::new(), 0);
        for (number, &(key, value)) in group.iter().enumerate() {
            let lock = value.is_none().then(|| self.index().locked_by(key)).flatten();
            let is_met = group[..number].iter().any(|&(other, _)| other == key);
            let is_locked = lock.is_some_and(|lock| locked.contains(&lock));
            if is_locked || (is_met && !is_planted("kv: two changes of a key in flight")) {
                return number;
            }
            bytes += value.map_or(0, |value| item_bytes(key.len(), value.len()));
            if !self.has_room(bytes as u64) {
                return number;
            }
            locked.extend(lock);
        }
        group.len()
    }

    /// Changes a key, without a question whether there is room; returns whether it was stored, or was there and is removed.
    fn change_as_wished<'w>(&'w self, cx: &'w mut OpContext, (key, value): Wish<'w>) -> Pending<'w, bool> {
        Box::pin(async move {
            let likely = value.map(Likely::for_good);
            let mut deletion = Deletion::default();
            let mut decide = |stored: Option<Item<'_>>| match likely {
                Some(likely) => likely.decision(),
                None => deletion.decision(stored.is_some()),
            };
            let change = self.change_later(cx, key, likely, &mut decide).await?;
            Ok(likely.is_some() || deletion.has_removed(change))
        })
    }

    /// Contexts for so many operations at once that belong to the one of `cx`.
    pub(crate) fn contexts<'c>(
        &self,
        cx: &OpContext,
        contexts: &'c mut Vec<OpContext>,
        count: usize,
    ) -> &'c mut [OpContext] {
        while contexts.len() < count {
            contexts.push(OpContext::new(self.endpoint().clone()));
        }
        let contexts = &mut contexts[..count];
        contexts.iter_mut().for_each(|own| own.set_deadline(cx.deadline()));
        contexts
    }
}

/// The values of many keys, one after the other; see [`Session::get_many`].
#[derive(Debug)]
pub struct Values<'s, 'k> {
    session: &'s mut Session,
    /// Keys that have not been looked for.
    rest: &'k [&'k [u8]],
    /// Keys that are looked for together.
    group: &'k [&'k [u8]],
    /// Which of them comes next.
    next: usize,
    /// Whether they were read; if the fabric failed, each is tried by itself.
    is_read: bool,
}

impl Values<'_, '_> {
    /// The value of the next key, `None` if it is not there; in a buffer of the session until the next call.
    ///
    /// # Errors
    /// See [`KvError`]: also if the value is no string. The keys after this one can still be read.
    ///
    /// # Panics
    /// If all keys have been read.
    #[inline]
    pub async fn next(&mut self) -> Result<Option<&[u8]>, KvError> {
        if self.next == self.group.len() {
            self.read_group().await;
        }
        match self.next_read() {
            Some(value) => Ok(value.map(|value| &self.session.cx.buffer()[value.range()])),
            None => {
                self.next += 1;
                self.read_apart(self.group[self.next - 1]).await
            }
        }
    }

    /// The same in a plain call, if it was read with one before it.
    #[inline]
    pub fn next_now(&mut self) -> Option<Option<&[u8]>> {
        let value = self.next_read()?;
        Some(value.map(|value| &self.session.cx.buffer()[value.range()]))
    }

    /// The value of the next key in the buffer; `None` if it is not there, or has to be read by itself.
    #[inline]
    fn next_read(&mut self) -> Option<Option<Slice>> {
        let key = self.group.get(self.next).filter(|_| self.is_read)?;
        let value = match self.session.many.result(self.next) {
            Searched::Absent => None,
            Searched::Found(found) => {
                let found = match is_planted("kv: a group that shows what has expired") {
                    true => Some(found),
                    false => self.session.store.unless_expired(Some(found)),
                };
                if found.is_some() {
                    self.session.store.note_use(key);
                }
                match found {
                    // Who reads it by itself says what is wrong.
                    Some(found) if found.tag != Tag::String => return None,
                    found => found.map(|found| found.value),
                }
            }
            Searched::Apart => return None,
        };
        self.next += 1;
        Some(value)
    }

    async fn read_group(&mut self) {
        (self.group, self.rest) = self.rest.split_at(self.rest.len().min(KEYS_AT_ONCE));
        assert!(!self.group.is_empty(), "asked for more values than there are keys");
        self.next = 0;
        self.session.start();
        let Session { store, cx, many, .. } = &mut *self.session;
        self.is_read = store.index().search_many(cx, self.group, many).await.is_ok();
    }

    async fn read_apart(&mut self, key: &[u8]) -> Result<Option<&[u8]>, KvError> {
        let Session { store, cx, apart, .. } = &mut *self.session;
        let deadline = cx.deadline();
        let cx = apart.get_or_insert_with(|| OpContext::new(store.endpoint.clone()));
        cx.shrink();
        cx.set_deadline(deadline);
        let found = store.unless_expired(store.index().search(cx, key).await?);
        if found.is_some() {
            store.note_use(key);
        }
        found
            .map(|found| value::bytes(found, Tag::String, cx.buffer()))
            .transpose()
    }
}
