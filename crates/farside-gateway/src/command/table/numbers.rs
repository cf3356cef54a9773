//! Numbers of commands and subcommands.
//!
//! Those of the commands come first. By their number, users are allowed them, and CLIENT LIST shows them.

use super::{Command, Id, Subcommand, TABLE, takes};
use crate::command::category::Access;
use crate::command::key_spec::KeySpec;
use crate::request::Request;

/// How many commands and subcommands there are.
pub(crate) const COUNT: usize = FIRST_SUBCOMMAND[TABLE.len()] as usize;

/// The number of the first subcommand of each command; behind the last command, that of all.
const FIRST_SUBCOMMAND: [u16; TABLE.len() + 1] = {
    let mut first = [TABLE.len() as u16; TABLE.len() + 1];
    let mut index = 0;
    while index < TABLE.len() {
        first[index + 1] = first[index] + TABLE[index].subcommands.len() as u16;
        index += 1;
    }
    first
};

/// What has a number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Numbered {
    Command(&'static Command),
    Subcommand(&'static Subcommand),
}

impl Numbered {
    /// With the command's name in front of a subcommand's.
    pub(crate) fn full_name(self) -> &'static str {
        match self {
            Self::Command(command) => command.name,
            Self::Subcommand(subcommand) => subcommand.full_name,
        }
    }

    pub(crate) fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Command(command) => command.flags,
            Self::Subcommand(subcommand) => subcommand.flags,
        }
    }

    pub(crate) fn categories(self) -> u32 {
        match self {
            Self::Command(command) => command.categories,
            Self::Subcommand(subcommand) => subcommand.categories,
        }
    }

    /// Whether so many arguments, the command's name included, are right.
    pub(crate) fn takes(self, count: usize) -> bool {
        match self {
            Self::Command(command) => command.takes(count),
            Self::Subcommand(subcommand) => takes(subcommand.arity, count),
        }
    }

    pub(crate) fn key_spec(self) -> KeySpec {
        match self {
            Self::Command(command) => command.keys,
            Self::Subcommand(subcommand) => subcommand.keys,
        }
    }

    /// Which arguments of a request are keys, and what is done to each.
    pub(crate) fn keys(self, request: &Request<'_>) -> impl Iterator<Item = (usize, Access)> + use<> {
        let access = match self {
            Self::Command(command) => command.access,
            Self::Subcommand(subcommand) => subcommand.access,
        };
        let to_others = access.last().copied().unwrap_or(Access::ANY);
        let access = access.iter().copied().chain(core::iter::repeat(to_others));
        self.key_spec().places(request).zip(access)
    }
}

/// What has this number; nothing has one that is too large.
pub(crate) fn numbered(number: usize) -> Option<Numbered> {
    if let Some(command) = TABLE.get(number) {
        return Some(Numbered::Command(command));
    }
    let command = FIRST_SUBCOMMAND
        .partition_point(|&first| usize::from(first) <= number)
        .checked_sub(1)?;
    let subcommand = TABLE
        .get(command)?
        .subcommands
        .get(number - usize::from(FIRST_SUBCOMMAND[command]))?;
    Some(Numbered::Subcommand(subcommand))
}

/// The numbers of the subcommands of a command.
pub(crate) fn subcommands(id: Id) -> core::ops::Range<usize> {
    let index = id as usize;
    usize::from(FIRST_SUBCOMMAND[index])..usize::from(FIRST_SUBCOMMAND[index + 1])
}

/// The number of a subcommand, its name in any case.
pub(crate) fn find_subcommand(id: Id, name: &[u8]) -> Option<usize> {
    let mut subcommands = TABLE[id as usize].subcommands.iter();
    let index = subcommands.position(|subcommand| subcommand.name.as_bytes().eq_ignore_ascii_case(name))?;
    Some(usize::from(FIRST_SUBCOMMAND[id as usize]) + index)
}

/// The number of what a request asks for: of the subcommand, if it names one.
pub(crate) fn number(id: Id, request: &Request<'_>) -> Option<usize> {
    match TABLE[id as usize].subcommands.is_empty() || request.len() < 2 {
        true => Some(id as usize),
        false => find_subcommand(id, request.arg(1)),
    }
}
