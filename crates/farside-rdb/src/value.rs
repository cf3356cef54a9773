//! Values as they stand in a file: lists, sets, sorted sets and hashes, in all forms that servers have written.
//!
//! ```text
//! 1    list         how many, each a string                 10, 14, 18  ziplist, several of them, listpacks or strings
//! 2    set          likewise                                11, 20      intset, listpack
//! 3, 5 sorted set   how many, each a string and a score     12, 17      ziplist, listpack: a member, then its score
//! 4    hash         how many, each two strings              9, 13, 16   zipmap, ziplist, listpack
//!                   with when fields expire                 22 to 25    each with its time, some behind the earliest one
//! ```
//!
//! What is read becomes a packed value (`farside_value`). The plain forms, 1, 2, 5 and 4, are written, which every server since
//! Redis 5 reads; 24 if fields expire, which Redis 7.4 reads.

use farside_value::format::{self, Tag};
use farside_value::packed::{hash, list, set, sorted};
use farside_value::{Digits, Edit, Text, ValueError};

use crate::compact::{self, Compact};
use crate::writer::{put_length, put_string};
use crate::{RdbError, Reader, TYPE_STRING};

const LIST: u8 = 1;
const SET: u8 = 2;
const SORTED_SET: u8 = 5;
const HASH: u8 = 4;
const HASH_EXPIRING: u8 = 24;

/// Elements, one behind the other.
type Strings = Vec<Vec<u8>>;
/// A name, a value, and when the field expires, in milliseconds since 1970 (0: never).
type Field = (Vec<u8>, Vec<u8>, u64);

/// Each as bytes.
fn slices(strings: &Strings) -> Vec<&[u8]> {
    strings.iter().map(Vec::as_slice).collect()
}

impl Reader<'_> {
    /// Reads a value of this type; `None` if it is none of those that there are here, and nothing was read.
    pub(crate) fn value(&mut self, kind: u8) -> Result<Option<(Tag, Vec<u8>)>, RdbError> {
        let (tag, edit) = match kind {
            TYPE_STRING => return Ok(Some((Tag::String, self.string()?))),
            LIST | 10 | 14 | 18 => {
                let elements = self.list(kind)?;
                let pushed = list::push(None, list::End::Tail, &slices(&elements));
                (Tag::List, pushed.map(|(edit, _)| edit))
            }
            SET | 11 | 20 => {
                let members = match kind {
                    SET => self.strings(1)?,
                    11 => self.compact(compact::intset)?,
                    _ => self.compact(compact::listpack)?,
                };
                let added = set::add(None, &slices(&members));
                let added = added.and_then(|(edit, added)| all_new(edit, added, members.len()));
                (Tag::Set, added)
            }
            3 | SORTED_SET | 12 | 17 => {
                let entries = self.entries(kind)?;
                let count = entries.len();
                let entries: Vec<_> = entries.iter().map(|(member, score)| (*score, &member[..])).collect();
                let added = sorted::add(None, &entries, sorted::AddOptions::default());
                let added = added.and_then(|(edit, done)| all_new(edit, done.added, count));
                (Tag::SortedSet, added)
            }
            HASH | 9 | 13 | 16 | 22..=25 => {
                let fields = self.fields(kind)?;
                let fields: Vec<_> = fields
                    .iter()
                    .map(|(name, value, expiry_ms)| (&name[..], &value[..], *expiry_ms))
                    .collect();
                (Tag::Hash, hash::build(&fields))
            }
            _ => return Ok(None),
        };
        match edit {
            Ok(Edit::Put(value)) => Ok(Some((tag, value))),
            Ok(_) => Err(self.damaged("a value without elements")),
            Err(ValueError::Damaged(what)) => Err(self.damaged(what)),
            Err(_) => Err(self.damaged("a score is not a number")),
        }
    }

    /// So many strings for each of the elements whose number comes first.
    fn strings(&mut self, each: u64) -> Result<Strings, RdbError> {
        let count = self.length()?.checked_mul(each);
        let count = count.ok_or_else(|| self.damaged("more elements than there can be"))?;
        (0..count).map(|_| self.string()).collect()
    }

    /// The elements of a string that has all of them.
    fn compact(&mut self, read: Compact) -> Result<Strings, RdbError> {
        let bytes = self.string()?;
        read(&bytes).map_err(|what| self.damaged(what))
    }

    fn list(&mut self, kind: u8) -> Result<Strings, RdbError> {
        match kind {
            LIST => return self.strings(1),
            10 => return self.compact(compact::ziplist),
            _ => {}
        }
        let mut elements = Vec::new();
        for _ in 0..self.length()? {
            match if kind == 14 { 0 } else { self.length()? } {
                0 => elements.append(&mut self.compact(compact::ziplist)?),
                1 => elements.push(self.string()?),
                2 => elements.append(&mut self.compact(compact::listpack)?),
                _ => return Err(self.damaged("a part of a list of an unknown kind")),
            }
        }
        Ok(elements)
    }

    /// Members with their scores.
    fn entries(&mut self, kind: u8) -> Result<Vec<(Vec<u8>, f64)>, RdbError> {
        let packed = match kind {
            3 | SORTED_SET => {
                let mut entries = Vec::new();
                for _ in 0..self.length()? {
                    let member = self.string()?;
                    let score = match kind {
                        3 => self.score_of_text()?,
                        _ => f64::from_le_bytes(self.array()?),
                    };
                    entries.push((member, score));
                }
                return Ok(entries);
            }
            12 => self.compact(compact::ziplist)?,
            _ => self.compact(compact::listpack)?,
        };
        let (pairs, rest) = packed.as_chunks::<2>();
        if !rest.is_empty() {
            return Err(self.damaged("a member without a score"));
        }
        let entry = |[member, score]: &[Vec<u8>; 2]| {
            let score = number(score).ok_or_else(|| self.damaged("a score is not a number"))?;
            Ok((member.clone(), score))
        };
        pairs.iter().map(entry).collect()
    }

    fn score_of_text(&mut self) -> Result<f64, RdbError> {
        Ok(match self.byte()? {
            253 => f64::NAN,
            254 => f64::INFINITY,
            255 => f64::NEG_INFINITY,
            bytes => {
                let text = self.bytes(bytes.into())?;
                number(&text).ok_or_else(|| self.damaged("a score is not a number"))?
            }
        })
    }

    fn fields(&mut self, kind: u8) -> Result<Vec<Field>, RdbError> {
        let earliest_ms = match kind {
            24 | 25 => u64::from_le_bytes(self.array()?),
            _ => 0,
        };
        if matches!(kind, 22 | 24) {
            let mut fields = Vec::new();
            for _ in 0..self.length()? {
                let expiry_ms = match self.length()? {
                    0 => 0,
                    // One more than it is behind the earliest one.
                    behind if kind == 24 => earliest_ms.saturating_add(behind - 1),
                    at_ms => at_ms,
                };
                fields.push((self.string()?, self.string()?, expiry_ms));
            }
            return Ok(fields);
        }
        let strings = match kind {
            HASH => self.strings(2)?,
            9 => self.compact(compact::zipmap)?,
            13 => self.compact(compact::ziplist)?,
            _ => self.compact(compact::listpack)?,
        };
        let each = if matches!(kind, 23 | 25) { 3 } else { 2 };
        if !strings.len().is_multiple_of(each) {
            return Err(self.damaged("a field without a value"));
        }
        let mut fields = Vec::with_capacity(strings.len() / each);
        let mut strings = strings.into_iter();
        while let (Some(name), Some(value)) = (strings.next(), strings.next()) {
            let expiry_ms = match each {
                3 => strings
                    .next()
                    .and_then(|text| core::str::from_utf8(&text).ok()?.parse().ok())
                    .ok_or_else(|| self.damaged("a field expires at no number"))?,
                _ => 0,
            };
            fields.push((name, value, expiry_ms));
        }
        Ok(fields)
    }
}

/// The number whose decimal digits these are.
fn number(text: &[u8]) -> Option<f64> {
    core::str::from_utf8(text).ok()?.parse().ok()
}

/// What was made, if no element stood there twice.
fn all_new(edit: Edit, added: u32, count: usize) -> Result<Edit, ValueError> {
    match added as usize == count {
        true => Ok(edit),
        false => Err(ValueError::Damaged("an element stands there twice")),
    }
}

/// What a packed value is called, and how it is written.
fn kind_of(tag: Tag, value: &[u8]) -> Result<u8, ValueError> {
    Ok(match tag {
        Tag::String => TYPE_STRING,
        Tag::List => LIST,
        Tag::Set => SET,
        Tag::SortedSet => SORTED_SET,
        Tag::Hash if hash::earliest_expiry(Some(value))? > 0 => HASH_EXPIRING,
        Tag::Hash => HASH,
        _ => return Err(ValueError::Damaged("a type that has no form in a file")),
    })
}

/// Appends a type, what stands between it and the value, and the value.
pub(crate) fn put_value(
    out: &mut Vec<u8>,
    (tag, value): (Tag, &[u8]),
    between: impl FnOnce(&mut Vec<u8>),
) -> Result<(), ValueError> {
    let kind = kind_of(tag, value)?;
    out.push(kind);
    between(out);
    if kind == TYPE_STRING {
        put_string(out, value);
        return Ok(());
    }
    let packed = Some(value);
    let mut digits = Digits::new();
    if kind == HASH_EXPIRING {
        let earliest_ms = hash::earliest_expiry(packed)?;
        out.extend_from_slice(&earliest_ms.to_le_bytes());
        put_length(out, format::count(packed)?.into());
        return hash::each_with_expiry(packed, &mut |name, value, expiry_ms| {
            put_length(out, if expiry_ms == 0 { 0 } else { expiry_ms - earliest_ms + 1 });
            put_string(out, name);
            put_string(out, value.bytes(&mut digits));
        });
    }
    put_length(out, format::count(packed)?.into());
    let mut put = |text: Text<'_>| put_string(out, text.bytes(&mut digits));
    match tag {
        Tag::List => list::range(packed, 0, -1)?.into_iter().for_each(put),
        Tag::Set => set::each(packed, &mut put)?,
        Tag::SortedSet => sorted::each(packed, &mut |member, score| {
            put_string(out, member.bytes(&mut digits));
            out.extend_from_slice(&score.to_le_bytes());
        })?,
        _ => hash::each_with_expiry(packed, &mut |name, value, _| {
            put_string(out, name);
            put_string(out, value.bytes(&mut digits));
        })?,
    }
    Ok(())
}
