//! Puts every mutant into the sources at once, each behind a switch that a variable of the environment turns.
//!
//! `a + b` becomes `(if on(7) { a - b } else { a + b })`. So a crate with thousands of mutants is built once, and one mutant
//! costs what the tests that reach it cost; a build for each would take half a minute each.

use std::fmt::Write as _;
use std::ops::Range;

use super::find::{How, Mutant};

/// The switch, which is put into the fabric, which everything sees. It also notes what is reached.
pub(super) const SWITCH: &str = r#"
pub mod generated {
    use std::io::Write as _;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    const NOT_KNOWN: u32 = u32::MAX;
    const NOTING: u32 = u32::MAX - 1;
    const NONE: u32 = u32::MAX - 2;

    static ON: AtomicU32 = AtomicU32::new(NOT_KNOWN);
    static REACHED: [AtomicBool; 1 << 16] = [const { AtomicBool::new(false) }; 1 << 16];

    #[inline]
    #[must_use]
    pub fn on(mutant: u32) -> bool {
        let on = ON.load(Ordering::Relaxed);
        on == mutant || on > NONE && note(mutant, on)
    }

    #[cold]
    fn note(mutant: u32, on: u32) -> bool {
        if on == NOT_KNOWN {
            let number = std::env::var("FARSIDE_GENERATED").ok().and_then(|number| number.parse().ok());
            let notes = std::env::var_os("FARSIDE_REACHED").is_some();
            let on = number.unwrap_or(if notes { NOTING } else { NONE });
            ON.store(on, Ordering::Relaxed);
            return self::on(mutant);
        }
        if !REACHED[mutant as usize].swap(true, Ordering::Relaxed)
            && let Some(path) = std::env::var_os("FARSIDE_REACHED")
            && let Ok(mut file) = std::fs::OpenOptions::new().append(true).create(true).open(path)
        {
            let _ = file.write_all(&mutant.to_le_bytes());
        }
        false
    }
}
"#;

/// A source file with its mutants.
pub(super) struct Planted {
    pub(super) text: String,
    /// What the mutants have become: their numbers, and the bytes of the new text that are theirs alone, and all around.
    pub(super) places: Vec<Place>,
}

pub(super) struct Place {
    pub(super) mutant: u32,
    pub(super) own: Range<usize>,
    pub(super) around: Range<usize>,
}

/// Plants these mutants, each with its number; `switch` is the path of the function that says which one is on.
pub(super) fn plant(text: &str, mutants: &[(u32, &Mutant)], switch: &str) -> Planted {
    // What is put where: at a place first what ends there, the innermost first, then what begins, the outermost first.
    enum Piece {
        Begin(usize),
        End(usize),
    }
    // Those that replace the same expression share a chain of branches.
    let mut groups: Vec<Vec<(u32, &Mutant)>> = Vec::new();
    for &(number, mutant) in mutants {
        match groups.last_mut() {
            Some(group) if group[0].1.at == mutant.at => group.push((number, mutant)),
            _ => groups.push(vec![(number, mutant)]),
        }
    }
    let mut pieces = Vec::new();
    for (index, group) in groups.iter().enumerate() {
        let Range { start, end } = group[0].1.at;
        let length = (end - start) as i64;
        match group[0].1.how {
            How::Return(_) => pieces.push(((start, 1, i64::MIN, 0), Piece::Begin(index))),
            _ => {
                pieces.push(((start, 1, -length, index as i64), Piece::Begin(index)));
                pieces.push(((end, 0, length, -(index as i64)), Piece::End(index)));
            }
        }
    }
    pieces.sort_by_key(|(key, _)| *key);

    let mut planted = Planted {
        text: String::with_capacity(text.len() * 2),
        places: Vec::new(),
    };
    let mut done = 0;
    let mut begins = vec![0; groups.len()];
    for ((at, ..), piece) in pieces {
        planted.text.push_str(&text[done..at]);
        done = at;
        match piece {
            Piece::Begin(index) => {
                begins[index] = planted.text.len();
                begin(&mut planted, &groups[index], switch);
            }
            Piece::End(index) => {
                planted.text.push_str(match groups[index][0].1.how {
                    How::Replace(_) => " })",
                    _ => " }",
                });
                let around = begins[index]..planted.text.len();
                for place in &mut planted.places {
                    if groups[index].iter().any(|(number, _)| *number == place.mutant) {
                        place.around = around.clone();
                    }
                }
            }
        }
    }
    planted.text.push_str(&text[done..]);
    planted
}

fn begin(planted: &mut Planted, group: &[(u32, &Mutant)], switch: &str) {
    let is_replaced = matches!(group[0].1.how, How::Replace(_));
    if is_replaced {
        planted.text.push('(');
    }
    for (number, mutant) in group {
        let start = planted.text.len();
        let text = &mut planted.text;
        let written = match &mutant.how {
            How::Replace(other) => write!(text, "if {switch}({number}) {{ {other} }} else "),
            How::LeaveOut => write!(text, "if !{switch}({number}) {{ "),
            How::Return(value) => write!(text, " if {switch}({number}) {{ return {value}; }} "),
        };
        written.expect("a string takes everything");
        let own = start..planted.text.len();
        planted.places.push(Place {
            mutant: *number,
            around: own.clone(),
            own,
        });
    }
    if is_replaced {
        planted.text.push_str("{ ");
    }
}

#[cfg(test)]
mod tests {
    use super::super::find;
    use super::*;

    fn planted(text: &str) -> Planted {
        let mutants = find::mutants(text).expect("Rust");
        let numbered: Vec<_> = (0..).zip(&mutants).collect();
        plant(text, &numbered, "on")
    }

    #[test]
    fn each_mutant_has_a_branch_and_the_text_stays_in_the_last() {
        let text = "fn f() -> T { g(a + b * c); h }";
        assert_eq!(
            planted(text).text,
            "fn f() -> T { if !on(0) { g((if on(1) { a - b * c } else { a + (if on(2) { b / c } else { b * c }) })); } h }"
        );
        let text = "fn f() -> bool {!x}";
        assert_eq!(
            planted(text).text,
            "fn f() -> bool { if on(0) { return true; }  if on(1) { return false; } (if on(2) { x } else { !x })}"
        );
    }

    #[test]
    fn what_was_planted_is_found_again_by_its_place() {
        let text = "fn f() { x += 1; if a.is_some() { g(b <= c && d) } }";
        let planted = planted(text);
        syn::parse_file(&planted.text).expect("still Rust");
        assert_eq!(planted.places.len(), 7);
        for place in &planted.places {
            let own = &planted.text[place.own.clone()];
            assert!(own.contains(&format!("on({})", place.mutant)), "{own}");
            assert!(place.around.start <= place.own.start && place.own.end <= place.around.end);
        }
    }
}
