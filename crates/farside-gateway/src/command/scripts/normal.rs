//! The normal form of a script: two scripts with the same one do the same.
//!
//! On the path: a script that arrives is brought to it and compared with the known ones. Comments, white
//! space and semicolons go, strings get double quotes and lower case (in a known script every string is
//! a word of a command, whose case does not matter), and one space stands between two tokens.

/// The normal form; `None` if the text is no Lua that a known script could be written in.
pub(super) fn form(script: &[u8]) -> Option<String> {
    let mut form = String::new();
    let mut rest = script;
    while let &[first, ref tail @ ..] = rest {
        let token_bytes = match first {
            b' ' | b'\t' | b'\r' | b'\n' | b';' => {
                rest = tail;
                continue;
            }
            b'-' if tail.starts_with(b"-") => {
                rest = after_comment(&tail[1..])?;
                continue;
            }
            b'\'' | b'"' => string_bytes(rest)?,
            b'=' | b'~' | b'<' | b'>' if tail.starts_with(b"=") => 2,
            b'.' if tail.starts_with(b".") => 2,
            _ if is_name(first) => rest.iter().take_while(|&&byte| is_name(byte)).count(),
            b'!'..=b'~' => 1,
            _ => return None,
        };
        let (token, others) = rest.split_at(token_bytes);
        if !form.is_empty() {
            form.push(' ');
        }
        match (first, str::from_utf8(token).ok()?) {
            (b'\'' | b'"', token) => {
                form.push('"');
                form.push_str(&token[1..token.len() - 1].to_ascii_lowercase());
                form.push('"');
            }
            (_, token) => form.push_str(token),
        }
        rest = others;
    }
    Some(form)
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// How long the string is that begins here, its quotes included. Known scripts escape nothing and need no other quote.
fn string_bytes(text: &[u8]) -> Option<usize> {
    let end = text[1..].iter().position(|byte| *byte == text[0])?;
    let inner = &text[1..=end];
    (!inner.iter().any(|byte| matches!(byte, b'\\' | b'\n' | b'"' | b'\''))).then_some(end + 2)
}

/// What follows the comment whose dashes have been read.
fn after_comment(text: &[u8]) -> Option<&[u8]> {
    if let Some(long) = text.strip_prefix(b"[[") {
        let end = long.windows(2).position(|pair| pair == b"]]")?;
        return Some(&long[end + 2..]);
    }
    if text.starts_with(b"[=") {
        return None;
    }
    let end = text.iter().position(|&byte| byte == b'\n').unwrap_or(text.len());
    Some(&text[end..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn writing_does_not_matter() {
        let forms = [
            "if redis.call('GET', KEYS[1])==ARGV[1] then return 1 else return 0 end",
            "  -- why\n\tif redis.call(\"get\",KEYS[ 1 ]) == ARGV[1]\r\nthen return 1; else return 0 end -- done",
            "--[[ a\nlong one ]] if redis . call ( \"Get\" , KEYS[1] ) == ARGV[1] then return 1 else return 0; end;",
        ]
        .map(|script| form(script.as_bytes()).expect("Lua"));
        assert_eq!(forms[0], forms[1]);
        assert_eq!(forms[0], forms[2]);
        assert_eq!(
            forms[0],
            "if redis . call ( \"get\" , KEYS [ 1 ] ) == ARGV [ 1 ] then return 1 else return 0 end"
        );
    }

    #[test]
    fn meaning_does() {
        let one = form(b"return KEYS[1] == ARGV[1]");
        for script in [
            "return keys[1] == ARGV[1]",
            "return KEYS[1] ~= ARGV[1]",
            "return KEYS[1] = = ARGV[1]",
            "return KEYS[1] == ARGV[1] x",
            "return KEYS[11] == ARGV[1]",
            "return KEYS['1'] == ARGV[1]",
            "return KEYS[1] == ARGV[1] --[[ ]] x",
            "-- return KEYS[1] == ARGV[1]",
        ] {
            assert_ne!(form(script.as_bytes()), one, "{script}");
        }
    }

    #[test]
    fn what_no_known_script_needs_has_no_form() {
        for script in ["'a", "\"a\\\"b\"", "'a\"b'", "--[[ a", "--[==[ a ]==]", "\u{e4}", "\0"] {
            assert_eq!(form(script.as_bytes()), None, "{script}");
        }
    }

    proptest! {
        #[test]
        fn a_form_is_its_own_form(script in "[a-zA-Z0-9_ ;=~<>.,()\\[\\]\"'#+\n-]{0,60}") {
            if let Some(once) = form(script.as_bytes()) {
                // Two dashes that stood apart would become a comment only if they came together again.
                prop_assert_eq!(form(once.as_bytes()), Some(once));
            }
        }

        #[test]
        fn any_bytes_are_read(script in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = form(&script);
        }
    }
}
