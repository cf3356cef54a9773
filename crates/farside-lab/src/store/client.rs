//! A client of an index: draws an operation and a key, and does it.

use std::borrow::Cow;

use farside_fabric::OpContext;
use farside_index::{Change, Decision, Index, Item, Likely, Tag, Wanted};

use super::{KEY_BYTES_MIN, StoreProgram, key_start};
use crate::error::BenchError;
use crate::program::{Client, Step};
use crate::workload::{Keys, Operation, Popularity, Population};

/// One of the clients.
#[derive(Debug)]
pub struct StoreClient {
    index: Index,
    keys: Keys,
    key: Vec<u8>,
    value: Vec<u8>,
    population: Population,
    keys_max: u64,
}

impl StoreClient {
    /// Client `number` of a program.
    pub(super) fn new(program: &StoreProgram, index: Index, number: u64) -> Self {
        Self {
            index,
            keys: Keys::new(&program.population, number),
            key: vec![0; program.key_bytes],
            value: vec![number as u8; program.value_bytes],
            population: program.population.clone(),
            keys_max: program.slots(),
        }
    }

    fn set_key(&mut self, number: u64) {
        self.key[..KEY_BYTES_MIN].copy_from_slice(&key_start(self.index.kind(), &self.population, number));
    }

    fn choose_key(&mut self) {
        let number = self.keys.known();
        self.set_key(number);
    }

    /// A key that nobody has used; `None` if there are no slots left.
    fn choose_new_key(&mut self) -> Option<()> {
        let number = self.keys.unused();
        self.set_key(number);
        (number < self.keys_max).then_some(())
    }

    /// Stores the value; it is known before the key was looked for.
    async fn put(&mut self, cx: &mut OpContext) -> Result<Change, BenchError> {
        let (value, expiry_ms) = (&self.value[..], 0);
        let likely = Likely {
            value,
            expiry_ms,
            regardless: true,
        };
        let mut decide = |_: Option<Item<'_>>| Decision::Put {
            value: Cow::Borrowed(value),
            expiry_ms,
            tag: Tag::String,
            regardless: true,
        };
        Ok(self.index.change(cx, &self.key, Some(likely), &mut decide).await?)
    }

    /// Stores a value that depends on the one before: its first byte counts.
    async fn read_modify_write(&mut self, cx: &mut OpContext) -> Result<Change, BenchError> {
        let mut decide = |stored: Option<Item<'_>>| {
            let mut value = self.value.clone();
            if let (Some(first), Some(before)) = (value.first_mut(), stored.and_then(|item| item.value.first())) {
                *first = before.wrapping_add(1);
            }
            Decision::Put {
                value: Cow::Owned(value),
                expiry_ms: 0,
                tag: Tag::String,
                regardless: false,
            }
        };
        Ok(self.index.change(cx, &self.key, None, &mut decide).await?)
    }

    /// Reads items from a key on.
    async fn scan(&mut self, cx: &mut OpContext) -> Result<(), BenchError> {
        let wanted = self.keys.scan_items();
        if self.index.kind().is_ordered() {
            let count = wanted as usize;
            self.index
                .range(cx, &self.key, count, (Wanted::Items, &mut |_| {}))
                .await?;
            return Ok(());
        }
        let (mut seen, mut cursor) = (0, self.index.cursor_at(&self.key));
        while seen < wanted {
            let before = seen;
            cursor = self.index.scan(cx, cursor, (Wanted::Items, &mut |_| seen += 1)).await?;
            // A page of a pointer array without any key is behind the last one: keys number its slots.
            if cursor == 0 || seen == before {
                break;
            }
        }
        Ok(())
    }

    /// Replaces the value of a key; whether it was there.
    async fn update(&mut self, cx: &mut OpContext) -> Result<bool, BenchError> {
        Ok(self.index.update(cx, &self.key, &self.value).await?)
    }
}

impl Client for StoreClient {
    async fn step(&mut self, cx: &mut OpContext) -> Result<Option<Step>, BenchError> {
        let operation = self.keys.operation();
        let is_there = match operation {
            Operation::Insert => {
                let Some(()) = self.choose_new_key() else {
                    return self.no_slots_left();
                };
                self.put(cx).await?;
                true
            }
            Operation::Search => {
                self.choose_key();
                let is_there = self.index.search(cx, &self.key).await?.is_some();
                is_there || self.population.workload.popularity == Popularity::Latest
            }
            Operation::Update => {
                self.choose_key();
                self.update(cx).await?
            }
            Operation::Scan => {
                self.choose_key();
                self.scan(cx).await?;
                true
            }
            Operation::ReadModifyWrite => {
                self.choose_key();
                self.read_modify_write(cx).await? == Change::Updated
            }
        };
        // Nothing is ever deleted.
        assert!(is_there, "key {:?} was lost", self.key);
        Ok(Some(Step {
            operation: Some(operation),
            ..Step::default()
        }))
    }
}

impl StoreClient {
    fn no_slots_left(&self) -> Result<Option<Step>, BenchError> {
        if self.population.is_finite() {
            return Ok(None);
        }
        let text = format!(
            "all {} keys there is room for are used: a shorter --duration or more --items",
            self.keys_max
        );
        Err(BenchError::Argument(text))
    }
}
