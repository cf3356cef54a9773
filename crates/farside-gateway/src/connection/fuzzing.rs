//! The way of bytes to commands without a socket or a store, for the fuzz target `resp`.
//!
//! On the path: nowhere. It is compiled only with `--cfg fuzzing`, and does what
//! [`Connection::burst`](super::Connection) does up to the execution of a command.

use super::{collect_gets, starts_gets};
use crate::guard::{Framed, Guard};
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
            if !is_stranger && starts_gets(rest) {
                let (keys, bytes) = collect_gets(&mut guard, rest);
                if !keys.is_empty() {
                    at += bytes;
                    outcome
                        .requests
                        .extend(keys.iter().map(|key| vec![b"GET".to_vec(), key.to_vec()]));
                    continue;
                }
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
                    // The burst of GETs does not keep how the name was written.
                    if arguments.len() == 2 && request.arg_is(0, "GET") {
                        arguments[0] = b"GET".to_vec();
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
