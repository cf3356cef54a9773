//! A program's machine code: how much there is, from which crates, and how much of it several times.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result};
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SectionFlags, SectionKind, SymbolKind, elf};

/// Crates of the standard library: a function that names none but these is theirs.
const STANDARD: &[&str] = &["alloc", "core", "std"];

/// Functions of one name.
#[derive(Default)]
struct Family {
    bytes: u64,
    largest: u64,
    members: usize,
}

/// What a program consists of.
pub(super) struct Program {
    pub(super) code_bytes: u64,
    pub(super) stripped_bytes: u64,
    families: BTreeMap<String, Family>,
}

impl Program {
    pub(super) fn read(path: &Path) -> Result<Self> {
        let context = || format!("failed to read the program {}", path.display());
        let bytes = std::fs::read(path).with_context(context)?;
        let file = object::File::parse(&*bytes).with_context(context)?;
        let (mut code_bytes, mut stripped_bytes) = (0, 0);
        for section in file.sections() {
            let is_loaded =
                matches!(section.flags(), SectionFlags::Elf { sh_flags } if sh_flags & u64::from(elf::SHF_ALLOC) != 0);
            if is_loaded && section.kind() != SectionKind::UninitializedData {
                stripped_bytes += section.size();
            }
            if section.kind() == SectionKind::Text {
                code_bytes += section.size();
            }
        }
        // Where several names stand for one function, it counts once.
        let mut functions = BTreeMap::new();
        for symbol in file.symbols() {
            if symbol.kind() == SymbolKind::Text && symbol.size() > 0 {
                functions.insert(symbol.address(), (symbol.name().with_context(context)?, symbol.size()));
            }
        }
        Ok(Self {
            code_bytes,
            stripped_bytes,
            families: families(functions.into_values()),
        })
    }

    /// All code over the largest member of each family, in hundredths, rounded up.
    pub(super) fn copies_percent(&self) -> u64 {
        let all: u64 = self.families.values().map(|family| family.bytes).sum();
        let largest: u64 = self.families.values().map(|family| family.largest).sum();
        (all * 100).div_ceil(largest.max(1))
    }

    /// Crates with their bytes and functions, the largest first.
    pub(super) fn crates(&self) -> Vec<(String, u64, usize)> {
        let mut crates = BTreeMap::<&str, (u64, usize)>::new();
        for (name, family) in &self.families {
            let (bytes, members) = crates.entry(crate_of(name)).or_default();
            *bytes += family.bytes;
            *members += family.members;
        }
        let rows = crates.into_iter();
        largest_first(rows.map(|(name, (bytes, members))| (name.to_owned(), bytes, members)))
    }

    /// Families with what they have beyond their largest member, and how many members; the worst first.
    pub(super) fn copies(&self) -> Vec<(String, u64, usize)> {
        let several = self.families.iter().filter(|(_, family)| family.members > 1);
        largest_first(several.map(|(name, family)| (name.clone(), family.bytes - family.largest, family.members)))
    }
}

fn largest_first(rows: impl Iterator<Item = (String, u64, usize)>) -> Vec<(String, u64, usize)> {
    let mut rows: Vec<_> = rows.collect();
    rows.sort_by_key(|(_, bytes, _)| core::cmp::Reverse(*bytes));
    rows
}

fn families<'a>(functions: impl Iterator<Item = (&'a str, u64)>) -> BTreeMap<String, Family> {
    let mut families = BTreeMap::<String, Family>::new();
    for (name, bytes) in functions {
        // Without the hash that tells instances apart.
        let name = format!("{:#}", rustc_demangle::demangle(name));
        let family = families.entry(name).or_default();
        family.bytes += bytes;
        family.largest = family.largest.max(bytes);
        family.members += 1;
    }
    families
}

/// The first crate in a function's name that is not of the standard library; `C` if it is no path.
fn crate_of(name: &str) -> &str {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut first = None;
    for (at, _) in name.match_indices("::") {
        let start = name[..at].rfind(|c| !is_word(c)).map_or(0, |before| before + 1);
        // A path begins here, and goes on elsewhere.
        if name[..start].ends_with("::") || start == at {
            continue;
        }
        let root = &name[start..at];
        if !STANDARD.contains(&root) {
            return root;
        }
        first = Some(root);
    }
    first.map_or("C", |_| "the standard library")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_a_family_differ_by_their_hash_alone() {
        let families = families(
            [
                ("_ZN4core3ptr7replace17h0123456789abcdefE", 30),
                ("_ZN4core3ptr7replace17hfedcba9876543210E", 50),
                ("memcpy", 7),
            ]
            .into_iter(),
        );
        let family = &families["core::ptr::replace"];
        assert_eq!((family.bytes, family.largest, family.members), (80, 50, 2));
        let program = Program {
            code_bytes: 0,
            stripped_bytes: 0,
            families,
        };
        assert_eq!(program.copies_percent(), 153, "87 of 57, rounded up");
        assert_eq!(program.copies(), [("core::ptr::replace".to_owned(), 30, 2)]);
    }

    #[test]
    fn a_function_belongs_to_the_first_crate_that_it_names() {
        for (name, owner) in [
            ("farside_index::race::Race::hash", "farside_index"),
            ("<farside_kv::Store as core::fmt::Debug>::fmt", "farside_kv"),
            ("core::ptr::drop_in_place<farside_pool::Pool>", "farside_pool"),
            (
                "<alloc::vec::Vec<T> as core::ops::drop::Drop>::drop",
                "the standard library",
            ),
            ("memcpy", "C"),
        ] {
            assert_eq!(crate_of(name), owner, "{name}");
        }
    }
}
