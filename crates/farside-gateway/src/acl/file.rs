//! Users in a file, one on a line, as Redis has them: `user NAME RULE...`.
//!
//! On the path: at the start, and for ACL LOAD and ACL SAVE. A file is read as a whole or not at all, and written beside the old
//! one, which it replaces at one instant.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use super::selector::is_word;
use super::user::{User, Wrong};
use crate::replace::replace_file;

/// What is wrong with a line, which is counted from 1.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Mistake {
    pub(super) line: usize,
    pub(super) text: String,
}

/// The users in the text of a file. Empty lines, and those that begin with `#`, do not count.
pub(super) fn parse(text: &[u8]) -> Result<BTreeMap<Vec<u8>, User>, Mistake> {
    let mut users = BTreeMap::new();
    for (index, line) in text.split(|&byte| byte == b'\n').enumerate() {
        let mistake = |text: String| Mistake { line: index + 1, text };
        let mut words = (line.trim_ascii().split(|&byte| byte == b' ')).filter(|word| !word.is_empty());
        match words.next() {
            None | Some([b'#', ..]) => continue,
            Some(b"user") => {}
            Some(word) => {
                let word = String::from_utf8_lossy(word);
                return Err(mistake(format!("`{word}`: a line is `user NAME RULE...`")));
            }
        }
        let name = words
            .next()
            .ok_or_else(|| mistake("`user` without a name".to_owned()))?;
        let shown = String::from_utf8_lossy(name);
        if !is_word(name) {
            return Err(mistake(format!("user {shown:?}: a name has no white space")));
        }
        let user = User::new(name)
            .with(words)
            .map_err(|wrong| mistake(format!("user {shown}: {}", told(&wrong))))?;
        if users.insert(name.to_vec(), user).is_some() {
            return Err(mistake(format!("user {shown} stands in the file twice")));
        }
    }
    Ok(users)
}

/// What is wrong with a rule; of one with a password, only that it is one.
fn told(wrong: &Wrong) -> String {
    match wrong {
        Wrong::Rule(rule, error) => match rule.first() {
            Some(sign @ (b'>' | b'<' | b'#' | b'!')) => format!("rule `{}...`: {error}", char::from(*sign)),
            _ => format!("rule `{}`: {error}", String::from_utf8_lossy(rule)),
        },
        Wrong::Unmatched(rule) => format!(
            "rule `{}`: the parenthesis is not closed",
            String::from_utf8_lossy(rule)
        ),
    }
}

/// Gives a file these lines as its content: who reads it, at any time and after any crash, finds the old or the new ones.
pub(super) fn write(path: &Path, lines: impl Iterator<Item = Vec<u8>>) -> io::Result<()> {
    let text: Vec<u8> = lines.flat_map(|line| [line, b"\n".to_vec()].concat()).collect();
    replace_file(path, &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_make_users() {
        let text = b"# who may do what\n\nuser default on nopass ~* +@all\r\n  user  bob  on  >pw (~a +get) \nuser eve";
        let users = parse(text).expect("it is right");
        let names: Vec<&[u8]> = users.keys().map(Vec::as_slice).collect();
        assert_eq!(names, [&b"bob"[..], b"default", b"eve"]);
        assert!(users[&b"default"[..]].may_everything() && users[&b"bob"[..]].lets_in(b"pw"));
        assert_eq!(users[&b"eve"[..]], User::new(b"eve"));
        let again: Vec<u8> = users
            .values()
            .flat_map(|user| [user.text(), b"\n".to_vec()].concat())
            .collect();
        assert_eq!(parse(&again), Ok(users));
    }

    #[test]
    fn a_mistake_is_told_with_its_line_and_without_passwords() {
        for (text, line, told) in [
            ("user a on\nusr b", 2, "`usr`: a line is `user NAME RULE...`"),
            ("user", 1, "`user` without a name"),
            (
                "\n\nuser a on +nosuch",
                3,
                "user a: rule `+nosuch`: Unknown command or category name in ACL",
            ),
            ("user a (+get", 1, "user a: rule `(+get`: the parenthesis is not closed"),
            ("user a\nuser a", 2, "user a stands in the file twice"),
            ("user a\tb", 1, "user \"a\\tb\": a name has no white space"),
            (
                "user a #secret",
                1,
                "user a: rule `#...`: The password hash must be exactly 64 characters and contain only lowercase \
                 hexadecimal characters",
            ),
            (
                "user a <secret",
                1,
                "user a: rule `<...`: The password you are trying to remove from the user does not exist",
            ),
        ] {
            let mistake = Mistake {
                line,
                text: told.to_owned(),
            };
            assert_eq!(parse(text.as_bytes()), Err(mistake), "{text}");
        }
    }
}
