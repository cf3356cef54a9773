//! What OBJECT ENCODING says of a packed value: what Redis would say, whatever the value is stored as.
//!
//! Redis keeps small values in a compact form, and never goes back from the other one. So a value that has once been large by
//! these limits has a flag that stays.

use crate::ValueError;
use crate::format::{INTEGERS, LARGE, Packed, Tag};
use crate::packed::{hash, set, sorted};
use crate::string::Text;

/// Up to which size Redis keeps values in their compact form: its settings of these names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// `hash-max-listpack-entries`.
    pub hash_entries: u32,
    /// `hash-max-listpack-value`, in bytes, of fields and values.
    pub hash_bytes: usize,
    /// `set-max-intset-entries`.
    pub set_integers: u32,
    /// `set-max-listpack-entries`.
    pub set_entries: u32,
    /// `set-max-listpack-value`, in bytes.
    pub set_bytes: usize,
    /// `zset-max-listpack-entries`.
    pub sorted_set_entries: u32,
    /// `zset-max-listpack-value`, in bytes.
    pub sorted_set_bytes: usize,
    /// `list-max-listpack-size`, if it is a number of elements.
    pub list_entries: u32,
    /// `list-max-listpack-size`, if it is negative: bytes of all elements, as they are stored here.
    pub list_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            hash_entries: 128,
            hash_bytes: 64,
            set_integers: 512,
            set_entries: 128,
            set_bytes: 64,
            sorted_set_entries: 128,
            sorted_set_bytes: 64,
            list_entries: u32::MAX,
            list_bytes: 8192,
        }
    }
}

/// Sets the flag of a packed value that is large; to be called with every new value. It looks at elements only while there
/// are few.
///
/// # Errors
///
/// [`ValueError::Damaged`].
pub fn note_size(tag: Tag, value: &mut [u8], limits: &Limits) -> Result<(), ValueError> {
    if is_large(tag, value, limits)? {
        value[0] |= LARGE;
    }
    Ok(())
}

fn is_large(tag: Tag, value: &[u8], limits: &Limits) -> Result<bool, ValueError> {
    let packed = Packed::of(Some(value))?;
    if packed.flags & LARGE != 0 {
        return Ok(false);
    }
    let (entries, bytes) = match tag.packed() {
        Tag::Hash => (limits.hash_entries, limits.hash_bytes),
        Tag::Set if packed.flags & INTEGERS != 0 => (limits.set_integers, usize::MAX),
        Tag::Set => (limits.set_entries, limits.set_bytes),
        Tag::SortedSet => (limits.sorted_set_entries, limits.sorted_set_bytes),
        _ => (limits.list_entries, usize::MAX),
    };
    let is_list = tag.packed() == Tag::List && packed.body.len() > limits.list_bytes;
    if packed.count > entries || is_list {
        return Ok(true);
    }
    let mut longest = 0;
    let mut note = |text: Text<'_>| longest = longest.max(text.len());
    if bytes < usize::MAX {
        match tag.packed() {
            Tag::Hash => hash::each(Some(value), 0, &mut |name, text| {
                note(Text::Bytes(name));
                note(text);
            })?,
            Tag::Set => set::each(Some(value), &mut note)?,
            Tag::SortedSet => sorted::each(Some(value), &mut |member, _| note(member))?,
            _ => {}
        }
    }
    Ok(longest > bytes)
}

/// What OBJECT ENCODING says of a packed value that is not a string.
///
/// # Errors
///
/// [`ValueError::Damaged`].
pub fn encoding(tag: Tag, value: &[u8]) -> Result<&'static str, ValueError> {
    let is_large = Packed::of(Some(value))?.flags & LARGE != 0;
    Ok(match (tag.packed(), is_large) {
        (Tag::Stream, _) => "stream",
        (Tag::Set, false) if set::is_of_integers(value)? => "intset",
        (_, false) => "listpack",
        (Tag::List, true) => "quicklist",
        (Tag::SortedSet, true) => "skiplist",
        (_, true) => "hashtable",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Edit;
    use crate::packed::list::{self, End};
    use crate::packed::sorted::AddOptions;

    fn noted(tag: Tag, edit: Edit) -> (Vec<u8>, &'static str) {
        let Edit::Put(mut value) = edit else { panic!("{edit:?}") };
        note_size(tag, &mut value, &Limits::default()).expect("a value");
        let encoding = encoding(tag, &value).expect("a value");
        (value, encoding)
    }

    fn numbers(count: u32) -> Vec<String> {
        (0..count).map(|number| number.to_string()).collect()
    }

    fn slices(texts: &[String]) -> Vec<&[u8]> {
        texts.iter().map(String::as_bytes).collect()
    }

    #[test]
    fn what_has_been_large_stays_so() {
        let long = "x".repeat(65);
        let long = long.as_bytes();
        let (value, encoding) = noted(
            Tag::Hash,
            hash::set(None, &[(&long[1..], &long[1..])], 0).expect("a hash").0,
        );
        assert_eq!(encoding, "listpack");
        for pair in [(long, &b"x"[..]), (b"x", long)] {
            let (value, encoding) = noted(Tag::Hash, hash::set(Some(&value), &[pair], 0).expect("a hash").0);
            assert_eq!(encoding, "hashtable");
            let (edit, _) = hash::remove(Some(&value), &[pair.0], 0).expect("a hash");
            assert_eq!(noted(Tag::Hash, edit).1, "hashtable");
        }
        let names = numbers(129);
        let pairs: Vec<_> = names.iter().map(|name| (name.as_bytes(), &b""[..])).collect();
        assert_eq!(
            noted(Tag::Hash, hash::set(None, &pairs[1..], 0).expect("a hash").0).1,
            "listpack"
        );
        assert_eq!(
            noted(Tag::Hash, hash::set(None, &pairs, 0).expect("a hash").0).1,
            "hashtable"
        );
    }

    #[test]
    fn sets_of_integers_have_their_own_encoding() {
        for (count, other, expected) in [
            (512, None, "intset"),
            (513, None, "hashtable"),
            (127, Some("a"), "listpack"),
            (128, Some("a"), "hashtable"),
        ] {
            let mut members = numbers(count);
            members.extend(other.map(str::to_owned));
            let (edit, _) = set::add(None, &slices(&members)).expect("a set");
            assert_eq!(noted(Tag::Set, edit).1, expected, "{count} {other:?}");
        }
        let (edit, _) = set::add(None, &[&[b'x'; 65]]).expect("a set");
        assert_eq!(noted(Tag::Set, edit).1, "hashtable");
    }

    #[test]
    fn sorted_sets_and_lists_have_limits() {
        let members = numbers(129);
        let entries: Vec<_> = members.iter().map(|member| (1.0, member.as_bytes())).collect();
        for (entries, expected) in [(&entries[1..], "listpack"), (&entries[..], "skiplist")] {
            let (edit, _) = sorted::add(None, entries, AddOptions::default()).expect("a sorted set");
            assert_eq!(noted(Tag::SortedSet, edit).1, expected);
        }
        let long = [(1.0, &[b'x'; 65][..])];
        let (edit, _) = sorted::add(None, &long, AddOptions::default()).expect("a sorted set");
        assert_eq!(noted(Tag::SortedSet, edit).1, "skiplist");
        for (bytes, expected) in [(8189, "listpack"), (8190, "quicklist")] {
            let (edit, _) = list::push(None, End::Tail, &[&vec![b'x'; bytes]]).expect("a list");
            assert_eq!(noted(Tag::List, edit).1, expected);
        }
    }
}
