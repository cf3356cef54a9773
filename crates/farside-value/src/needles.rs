//! The strings that a command names, to be found among the elements of a value in one pass over it.

use crate::string::Text;

/// The strings of a command's arguments. One that stands there twice is known by its first place.
pub(crate) struct Needles<'a> {
    texts: Vec<Text<'a>>,
    /// Places of different strings, by string.
    sorted: Vec<u32>,
    /// For each place, the first one with the same string.
    firsts: Vec<u32>,
}

impl<'a> Needles<'a> {
    /// Strings that are compared with elements.
    pub(crate) fn new(strings: &[&'a [u8]]) -> Self {
        Self::of(strings.iter().map(|string| Text::new(string)).collect())
    }

    /// Names of fields: bytes that are not taken for integers.
    pub(crate) fn fields(fields: &[&'a [u8]]) -> Self {
        Self::of(fields.iter().map(|field| Text::Bytes(field)).collect())
    }

    pub(crate) fn of(texts: Vec<Text<'a>>) -> Self {
        let count = u32::try_from(texts.len()).expect("a command has fewer arguments");
        let mut sorted: Vec<u32> = (0..count).collect();
        let text = |place: u32| &texts[place as usize];
        sorted.sort_by(|&one, &other| text(one).quick_cmp(text(other)));
        let mut firsts = vec![0; texts.len()];
        // The sort is stable, so the first place of a string stands first.
        sorted.dedup_by(|next, first| {
            let is_same = text(*next) == text(*first);
            firsts[*next as usize] = *first;
            is_same
        });
        for &first in &sorted {
            firsts[first as usize] = first;
        }
        Self { texts, sorted, firsts }
    }

    pub(crate) fn len(&self) -> usize {
        self.texts.len()
    }

    /// How many different ones there are.
    pub(crate) fn different(&self) -> usize {
        self.sorted.len()
    }

    pub(crate) fn text(&self, place: usize) -> Text<'a> {
        self.texts[place]
    }

    /// The first place of the string at `place`.
    pub(crate) fn first(&self, place: usize) -> usize {
        self.firsts[place] as usize
    }

    /// The first place with this string.
    pub(crate) fn find(&self, text: &Text<'_>) -> Option<usize> {
        if let [place] = self.sorted[..] {
            // The usual case, in which lengths decide most of the time.
            return (self.texts[place as usize] == *text).then_some(place as usize);
        }
        let found = self
            .sorted
            .binary_search_by(|&place| self.texts[place as usize].quick_cmp(text));
        found.ok().map(|index| self.sorted[index] as usize)
    }

    /// For each first place, the last one with the same string.
    pub(crate) fn lasts(&self) -> Vec<usize> {
        let mut lasts = vec![0; self.len()];
        for place in 0..self.len() {
            lasts[self.first(place)] = place;
        }
        lasts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_string_is_found_at_its_first_place(names in prop::collection::vec("[a-c0-2]{0,2}", 0..12), other in "[a-d0-3]{0,2}") {
            let strings: Vec<_> = names.iter().map(String::as_bytes).collect();
            let needles = Needles::new(&strings);
            let lasts = needles.lasts();
            for (place, name) in names.iter().enumerate() {
                let first = names.iter().position(|other| other == name).expect("it is there");
                prop_assert_eq!(needles.first(place), first);
                prop_assert_eq!(needles.find(&Text::new(name.as_bytes())), Some(first));
                prop_assert_eq!(Some(lasts[first]), names.iter().rposition(|other| other == name));
            }
            let found = needles.find(&Text::new(other.as_bytes()));
            prop_assert_eq!(found, names.iter().position(|name| *name == other));
            let different: std::collections::BTreeSet<_> = names.iter().collect();
            prop_assert_eq!(needles.different(), different.len());
        }
    }
}
