//! The words of the field, out of `docs/glossary.md`: those that a figure uses are explained beside it.
//!
//! An entry of that file is an item of a list, `- **term** (SHORT), `code`: meaning. [source]`; *other* names stand in the
//! text. A text uses a term if it has the term, its short form or its plural as a word of its own.

/// The document.
const DOCUMENT: &str = include_str!("../../../../../docs/glossary.md");

/// A word and its meaning.
#[derive(Debug)]
pub(super) struct Term {
    /// The word itself, and what else it is called.
    pub(super) names: Vec<String>,
    /// What it means.
    pub(super) meaning: String,
}

/// Every term.
pub(super) struct Glossary {
    terms: Vec<Term>,
}

impl Term {
    /// The word, with its other names in parentheses.
    pub(super) fn title(&self) -> String {
        match self.names.split_first() {
            Some((name, others)) if !others.is_empty() => format!("{name} ({})", others.join(", ")),
            Some((name, _)) => name.clone(),
            None => String::new(),
        }
    }
}

impl Glossary {
    pub(super) fn of_the_project() -> Self {
        Self { terms: parse(DOCUMENT) }
    }

    pub(super) fn terms(&self) -> &[Term] {
        &self.terms
    }

    /// The terms that one of these texts uses.
    pub(super) fn used_in(&self, texts: &[&str]) -> Vec<&Term> {
        let is_used = |term: &&Term| {
            term.names
                .iter()
                .any(|name| texts.iter().any(|text| has_word(text, name)))
        };
        self.terms.iter().filter(is_used).collect()
    }
}

fn parse(document: &str) -> Vec<Term> {
    let mut items: Vec<String> = Vec::new();
    let mut is_inside = false;
    for line in document.lines() {
        if let Some(rest) = line.strip_prefix("- ") {
            items.push(rest.to_owned());
            is_inside = true;
        } else if let (true, Some(item), Some(rest)) = (is_inside, items.last_mut(), line.strip_prefix("  ")) {
            item.push(' ');
            item.push_str(rest.trim());
        } else {
            is_inside = false;
        }
    }
    items.iter().filter_map(|item| term(item)).collect()
}

fn term(item: &str) -> Option<Term> {
    let (head, meaning) = item.split_once(": ")?;
    let head = head.replace(['`', '*'], "");
    let names = head.split([',', '(', ')']).map(|name| name.trim().to_owned());
    Some(Term {
        names: names.filter(|name| !name.is_empty()).collect(),
        meaning: without_source(meaning).replace(['`', '*'], ""),
    })
}

/// Without the source in brackets at the end: the page has no list of sources.
fn without_source(meaning: &str) -> &str {
    match meaning.rsplit_once(" [") {
        Some((before, source)) if source.ends_with(']') => before,
        _ => meaning,
    }
}

/// Whether a text has this word, or its plural, as a word of its own. A word in capitals is an abbreviation and no other
/// word; else the case of its letters is free.
fn has_word(text: &str, word: &str) -> bool {
    let is_abbreviation = !word.chars().any(char::is_lowercase);
    let (text, word) = if is_abbreviation {
        (text.to_owned(), word.to_owned())
    } else {
        (text.to_lowercase(), word.to_lowercase())
    };
    text.match_indices(&word).any(|(start, _)| {
        let before = text[..start].chars().next_back();
        let mut after = text[start + word.len()..].chars().peekable();
        if after.peek() == Some(&'s') {
            after.next();
        }
        !before.is_some_and(char::is_alphanumeric) && !after.next().is_some_and(char::is_alphanumeric)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{by_id, list};

    #[test]
    fn entries_become_terms() {
        let document = "# Words\n\n- **compare-and-swap**, `compare_swap` (CAS): replaces a word\n  if it *can*. [IBTA]\n\
                        \nOther text: no entry.\n  Nor this.\n- **seat**: a place.\n";
        let terms = parse(document);
        assert_eq!(terms.len(), 2);
        assert_eq!(terms[0].title(), "compare-and-swap (compare_swap, CAS)");
        assert_eq!(terms[0].meaning, "replaces a word if it can.");
        assert_eq!(terms[1].meaning, "a place.");
    }

    #[test]
    fn words_are_found_as_words() {
        for (text, word) in [
            ("2 READs", "READ"),
            ("Leases end", "lease"),
            ("a (CAS)", "CAS"),
            ("P99, us", "P99"),
        ] {
            assert!(has_word(text, word), "{word} in {text}");
        }
        for (text, word) in [
            ("who reads", "READ"),
            ("released", "lease"),
            ("CASE", "CAS"),
            ("blocks", "lock"),
        ] {
            assert!(!has_word(text, word), "{word} in {text}");
        }
    }

    #[test]
    fn every_figure_has_words_that_are_explained() {
        let glossary = Glossary::of_the_project();
        assert!(glossary.terms().len() > 50);
        for (id, _) in list() {
            let figure = by_id(id).expect("a figure");
            assert!(!glossary.used_in(&[&figure.setup]).is_empty(), "{id}");
        }
    }
}
