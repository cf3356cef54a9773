//! Patterns as Redis has them: `*`, `?`, `[abc]`, `[a-c]`, `[^a]`, and `\` before a byte that means itself.
//!
//! On the path: KEYS and SCAN hold every key against one, CONFIG GET the names of settings.
//!
//! What is odd is odd as in Redis: a class that is not closed ends with the pattern, a range may stand
//! the wrong way round, `[]` matches nothing and `[^]` any byte.

/// Whether upper and lower case of ASCII are the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Case {
    /// They differ.
    Exact,
    /// They are the same.
    Ignored,
}

impl Case {
    fn fold(self, byte: u8) -> u8 {
        match self {
            Self::Exact => byte,
            Self::Ignored => byte.to_ascii_lowercase(),
        }
    }
}

/// Whether a pattern matches the whole of a text. Takes no longer than their lengths multiplied.
pub(crate) fn matches(pattern: &[u8], text: &[u8], case: Case) -> bool {
    let (mut pattern, mut at) = (pattern, 0);
    // What follows the last star, and where to try it next. An earlier star need not be tried again:
    // whatever it could take in, the last one can.
    let mut retry: Option<(&[u8], usize)> = None;
    loop {
        let rest = match (pattern, text.get(at)) {
            ([b'*', rest @ ..], _) => {
                (pattern, retry) = (rest, Some((rest, at)));
                continue;
            }
            ([], None) => return true,
            // More bytes are wanted than there are; from a later place there would be even fewer.
            (_, None) => return false,
            (_, Some(&byte)) => after_byte(pattern, case.fold(byte), case),
        };
        match (rest, retry) {
            (Some(rest), _) => (pattern, at) = (rest, at + 1),
            (None, Some((after_star, from))) => {
                (pattern, at) = (after_star, from + 1);
                retry = Some((after_star, from + 1));
            }
            (None, None) => return false,
        }
    }
}

/// What every text that a pattern matches begins with: its bytes up to the first piece that is not one byte.
pub(crate) fn prefix(pattern: &[u8]) -> Vec<u8> {
    let (mut prefix, mut pattern) = (Vec::new(), pattern);
    loop {
        pattern = match pattern {
            [] | [b'*' | b'?' | b'[', ..] => return prefix,
            [b'\\', literal, rest @ ..] | [literal, rest @ ..] => {
                prefix.push(*literal);
                rest
            }
        };
    }
}

/// What is left of a pattern when its first piece has matched this byte, which is folded.
fn after_byte(pattern: &[u8], byte: u8, case: Case) -> Option<&[u8]> {
    match pattern {
        [b'?', rest @ ..] => Some(rest),
        [b'[', class @ ..] => after_class(class, byte, case),
        [b'\\', literal, rest @ ..] | [literal, rest @ ..] => (case.fold(*literal) == byte).then_some(rest),
        [] => None,
    }
}

/// The same for a class, whose bracket has been read.
fn after_class(class: &[u8], byte: u8, case: Case) -> Option<&[u8]> {
    let (is_negated, mut class) = match class {
        [b'^', class @ ..] => (true, class),
        _ => (false, class),
    };
    let mut is_member = false;
    let rest = loop {
        class = match class {
            [b']', rest @ ..] => break rest,
            [] => break class,
            [b'\\', literal, rest @ ..] => {
                is_member |= case.fold(*literal) == byte;
                rest
            }
            &[one, b'-', other, ref rest @ ..] => {
                let range = case.fold(one.min(other))..=case.fold(one.max(other));
                is_member |= range.contains(&byte);
                rest
            }
            [literal, rest @ ..] => {
                is_member |= case.fold(*literal) == byte;
                rest
            }
        };
    };
    (is_member != is_negated).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn check(case: Case, table: &[(&str, &str, bool)]) {
        for &(pattern, text, expected) in table {
            let is_match = matches(pattern.as_bytes(), text.as_bytes(), case);
            assert_eq!(is_match, expected, "{pattern} {text}");
        }
    }

    #[test]
    fn a_pattern_begins_with_its_literal_bytes() {
        for (pattern, expected) in [
            ("", ""),
            ("*", ""),
            ("user:*", "user:"),
            ("user:?x", "user:"),
            ("user:[ab]", "user:"),
            ("user:1", "user:1"),
            ("a\\*b*", "a*b"),
            ("a\\", "a\\"),
            ("]x", "]x"),
        ] {
            assert_eq!(prefix(pattern.as_bytes()), expected.as_bytes(), "{pattern}");
        }
    }

    #[test]
    fn patterns_match_as_in_redis() {
        check(
            Case::Exact,
            &[
                ("save", "save", true),
                ("SAVE", "save", false),
                ("sav", "save", false),
                ("save?", "save", false),
                ("", "save", false),
                ("", "", true),
                ("*", "", true),
                ("?", "", false),
                ("s*e", "save", true),
                ("s**e", "save", true),
                ("*a*", "save", true),
                ("*x*", "save", false),
                ("a*", "save", false),
                ("*ab", "aab", true),
                ("*a?c*d", "xabcxacd", true),
                ("h[ae]llo", "hallo", true),
                ("h[ae]llo", "hillo", false),
                ("h[^e]llo", "hallo", true),
                ("h[^e]llo", "hello", false),
                ("h[a-c]llo", "hbllo", true),
                ("h[c-a]llo", "hbllo", true),
                ("h[a-c]llo", "hdllo", false),
                ("[a-]", "a", true),
                ("[]", "a", false),
                ("[^]", "a", true),
                ("[\\]]", "]", true),
                ("[\\^a]", "^", true),
                ("[a^]", "^", true),
                ("[\\", "\\", true),
                ("[abc", "b", true),
                ("[abc", "d", false),
                ("\\*", "*", true),
                ("\\*", "a", false),
                ("\\?x", "?x", true),
                ("a\\", "a\\", true),
                ("\\a", "a", true),
            ],
        );
    }

    #[test]
    fn case_is_ignored_if_wanted() {
        check(
            Case::Ignored,
            &[
                ("S?VE", "save", true),
                ("save", "SAVE", true),
                ("[A-C]", "b", true),
                ("[a-c]", "B", true),
                ("\\A", "a", true),
                ("[^A]", "a", false),
            ],
        );
    }

    /// As plain as can be: every star tries all it could take in.
    fn matches_plainly(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern, text) {
            ([], _) => text.is_empty(),
            ([b'*', rest @ ..], _) => (0..=text.len()).any(|taken| matches_plainly(rest, &text[taken..])),
            (_, []) => false,
            (_, [byte, others @ ..]) => {
                after_byte(pattern, *byte, Case::Exact).is_some_and(|rest| matches_plainly(rest, others))
            }
        }
    }

    proptest! {
        #[test]
        fn stars_take_in_what_they_must(pattern in "[ab*?\\[\\]^\\\\-]{0,8}", text in "[ab\\]\\\\-]{0,8}") {
            let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
            prop_assert_eq!(matches(pattern, text, Case::Exact), matches_plainly(pattern, text));
            prop_assert!(!matches_plainly(pattern, text) || text.starts_with(&prefix(pattern)));
        }

        #[test]
        fn escaped_bytes_match_themselves_alone(text in vec(any::<u8>(), 0..20), other in vec(any::<u8>(), 0..20)) {
            let pattern: Vec<u8> = text.iter().flat_map(|&byte| [b'\\', byte]).collect();
            prop_assert!(matches(&pattern, &text, Case::Exact));
            prop_assert_eq!(matches(&pattern, &other, Case::Exact), text == other);
        }

        #[test]
        fn a_class_and_its_negation_divide_all_bytes(members in vec(any::<u8>(), 1..10), byte: u8) {
            let class: Vec<u8> = members.iter().flat_map(|&byte| [b'\\', byte]).collect();
            let is_in = matches(&[b"[", &class[..], b"]"].concat(), &[byte], Case::Exact);
            let is_out = matches(&[b"[^", &class[..], b"]"].concat(), &[byte], Case::Exact);
            prop_assert_eq!(is_in, members.contains(&byte));
            prop_assert_eq!(is_out, !is_in);
        }

        #[test]
        fn any_bytes_are_a_pattern(pattern in vec(any::<u8>(), 0..40), text in vec(any::<u8>(), 0..40)) {
            let is_match = matches(&pattern, &text, Case::Exact);
            prop_assert!(!is_match || matches(&pattern, &text, Case::Ignored) || text.iter().any(u8::is_ascii_uppercase)
                || pattern.iter().any(u8::is_ascii_uppercase));
        }
    }
}
