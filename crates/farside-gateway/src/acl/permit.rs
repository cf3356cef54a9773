//! Whether a user may give a command, with these keys.
//!
//! On the path: where a command is checked, for every client that may not do everything; for a transaction again at EXEC.

use super::selector::{Patterns, Selector};
use super::user::User;
use crate::command::category::Access;
use crate::command::table::{Id, Numbered, numbered};
use crate::glob::{self, Case};
use crate::request::Request;

/// What is not allowed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Denial {
    /// The command or subcommand with this name.
    Command(&'static str),
    /// What it does to this key.
    Key(Vec<u8>),
}

impl Denial {
    /// In the words of Redis; a key is named only if `is_verbose`.
    pub(crate) fn text(&self, user: &User, is_verbose: bool) -> String {
        let name = String::from_utf8_lossy(&user.name);
        match self {
            Self::Command(command) => format!("User {name} has no permissions to run the '{command}' command"),
            Self::Key(key) if is_verbose => {
                let key = String::from_utf8_lossy(key);
                format!("User {name} has no permissions to access the '{key}' key")
            }
            Self::Key(_) => "No permissions to access a key".to_owned(),
        }
    }
}

/// Whether a user may give the command with this id and this number.
pub(crate) fn permit(user: &User, id: Id, number: usize, request: &Request<'_>) -> Result<(), Denial> {
    let what = numbered(number).expect("it was found in the table");
    // The denial that is told is that of the selector which came furthest.
    let mut furthest: Option<(usize, Denial)> = None;
    for selector in user.selectors() {
        match permit_by(selector, id, number, what, request) {
            Ok(()) => return Ok(()),
            Err(denial) => {
                if furthest.as_ref().is_none_or(|(progress, _)| *progress < denial.0) {
                    furthest = Some(denial);
                }
            }
        }
    }
    let (_, denial) = furthest.expect("there is at least one selector");
    Err(denial)
}

/// Whether a selector allows it; if not, how far it came: 0 for the command, and the place of the key.
fn permit_by(
    selector: &Selector,
    id: Id,
    number: usize,
    what: Numbered,
    request: &Request<'_>,
) -> Result<(), (usize, Denial)> {
    // As in Redis: whoever may nothing else may still come and go.
    if !what.flags().contains(&"no_auth") && !selector.allows(number, request.arg(1)) {
        return Err((0, Denial::Command(what.full_name())));
    }
    let Patterns::Some(patterns) = &selector.keys else {
        return Ok(());
    };
    let check = |place: usize, access: Access| {
        let key = request.arg(place);
        let mut allowing = patterns.iter().filter(|known| known.access.allows(access));
        match allowing.any(|known| glob::matches(&known.pattern, key, Case::Exact)) {
            true => Ok(()),
            false => Err((place, Denial::Key(key.to_vec()))),
        }
    };
    match id {
        Id::farside if reads_values(what, request) => {
            let mut whole = patterns.iter().filter(|known| known.access.allows(Access::R));
            match whole.any(|known| known.pattern == b"*") {
                true => Ok(()),
                false => Err((2, Denial::Key(request.arg(2).to_vec()))),
            }
        }
        _ => keys(id, what, request).try_for_each(|(place, access)| check(place, access)),
    }
}

/// Which arguments of a request are keys, and what is done to each, where that depends on other arguments.
pub(crate) fn keys(id: Id, what: Numbered, request: &Request<'_>) -> impl Iterator<Item = (usize, Access)> + use<> {
    let otherwise = match id {
        // With GET, it also tells the value that was there.
        Id::set if (3..request.len()).any(|index| request.arg_is(index, "get")) => Some(Access::RW),
        Id::bitfield if only_gets(request) => Some(Access::R),
        _ => None,
    };
    (what.keys(request)).map(move |(place, access)| (place, otherwise.unwrap_or(access)))
}

/// Whether it is a BITFIELD that changes nothing. As in Redis, one that is written wrongly does.
fn only_gets(request: &Request<'_>) -> bool {
    let mut index = 2;
    while index < request.len() {
        index += match request.len() - index {
            3.. if request.arg_is(index, "get") => 3,
            2.. if request.arg_is(index, "overflow") => 2,
            _ => return false,
        };
    }
    true
}

/// Whether it is FARSIDE RANGE with VALUES, which names no key and tells the values of many.
fn reads_values(what: Numbered, request: &Request<'_>) -> bool {
    what.full_name() == "farside|range" && (4..request.len()).any(|index| request.arg_is(index, "values"))
}

/// What becomes of a command with its arguments; `None` if there is none with this name.
#[cfg(test)]
pub(crate) fn judge(user: &User, request: &Request<'_>) -> Option<Result<(), Denial>> {
    let (id, _) = crate::command::table::find(request.arg(0))?;
    let number = crate::command::table::number(id, request)?;
    Some(permit(user, id, number, request))
}
