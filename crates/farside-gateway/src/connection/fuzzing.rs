//! The way of bytes to commands without a socket or a store, for the fuzz target `resp`.
//!
//! On the path: nowhere. It is compiled only with `--cfg fuzzing`, and does what
//! [`Connection::burst`](super::Connection) does up to the execution of a command.

use crate::guard::{Framed, Guard};
use crate::lookahead;
use crate::request::{Request, Scratch};

/// What a connection makes of its input.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Outcome {
    /// Every command with its arguments, in order.
    pub requests: Vec<Vec<Vec<u8>>>,
    /// Why the connection would be closed, if it would.
    pub error: Option<String>,
    /// Bytes at the end that are no whole command yet.
    pub bytes_left: usize,
}

/// Hands `input` to a connection in pieces that end at `cuts` (and at the end), and returns the
/// commands it would execute.
#[must_use]
pub fn requests(input: &[u8], cuts: &[usize], is_stranger: bool) -> Outcome {
    let mut outcome = Outcome::default();
    let mut guard = Guard::default();
    let mut scratch = Scratch::default();
    let mut at = 0;
    for end in cuts.iter().copied().chain([input.len()]) {
        let input = &input[..end.min(input.len())];
        while at <= input.len() {
            let rest = &input[at..];
            if !is_stranger && let Some((keys, bytes)) = lookahead::gets(rest) {
                guard.pass();
                at += bytes;
                let gets = keys.iter().map(|key| vec![b"GET".to_vec(), key.to_vec()]);
                outcome.requests.extend(gets);
                continue;
            }
            if !is_stranger && let Some((items, bytes)) = lookahead::sets(rest) {
                guard.pass();
                at += bytes;
                let sets = items
                    .iter()
                    .map(|(key, value)| vec![b"SET".to_vec(), key.to_vec(), value.to_vec()]);
                outcome.requests.extend(sets);
                continue;
            }
            let request = match guard.next(rest, is_stranger) {
                Ok(Framed::Incomplete) => break,
                Ok(Framed::Nothing { bytes }) => {
                    at += bytes;
                    continue;
                }
                Ok(Framed::Array { bytes }) => {
                    at += bytes;
                    Ok(Request::new(&rest[..bytes], guard.places()))
                }
                Ok(Framed::Line { line, bytes }) => {
                    at += bytes;
                    Request::split(&rest[..line], &mut scratch)
                }
                Err(error) => Err(error),
            };
            match request {
                Ok(request) if request.len() > 0 => {
                    let mut arguments: Vec<Vec<u8>> = request.args(0).map(<[u8]>::to_vec).collect();
                    // What is executed together does not keep how the name was written.
                    for (name, count) in [("GET", 2), ("SET", 3)] {
                        if arguments.len() == count && request.arg_is(0, name) {
                            arguments[0] = name.as_bytes().to_vec();
                        }
                    }
                    outcome.requests.push(arguments);
                }
                Ok(_) => {}
                Err(error) => {
                    outcome.error = Some(error.to_string());
                    return outcome;
                }
            }
        }
    }
    outcome.bytes_left = input.len() - at;
    outcome
}
