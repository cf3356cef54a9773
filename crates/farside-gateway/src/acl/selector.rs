//! A selector: which commands, on which keys. A user has one, and may have more of them.
//!
//! On the path: a user who may not do everything has each command held against these.
//!
//! Which commands are allowed is a set of numbers, and beside it the rules that made it, so that they can be told in their
//! order; a rule that says the contrary of an earlier one about the same thing takes its place.

use crate::command::category::{self, Access};
use crate::command::table::{COUNT, Id, Numbered, find, find_subcommand, numbered, subcommands};

const WORDS: usize = COUNT.div_ceil(64);

/// A set of commands and subcommands, by their numbers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Numbers([u64; WORDS]);

impl Numbers {
    fn contains(&self, number: usize) -> bool {
        self.0[number / 64] >> (number % 64) & 1 == 1
    }

    fn set(&mut self, number: usize, is_in: bool) {
        let bit = 1 << (number % 64);
        match is_in {
            true => self.0[number / 64] |= bit,
            false => self.0[number / 64] &= !bit,
        }
    }

    fn all() -> Self {
        let mut all = Self::default();
        (0..COUNT).for_each(|number| all.set(number, true));
        all
    }
}

/// Why a rule is none; in the words of Redis.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum RuleError {
    #[error("Syntax error")]
    Syntax,
    #[error("Unknown command or category name in ACL")]
    Unknown,
    #[error("Allowing first-arg of a subcommand is not supported")]
    TooDeep,
    #[error(
        "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any effect. Try \
         'resetkeys' to start with an empty list of patterns"
    )]
    AllKeys,
    #[error(
        "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any effect. Try \
         'resetchannels' to start with an empty list of channels"
    )]
    AllChannels,
    #[error("The password you are trying to remove from the user does not exist")]
    NoPassword,
    #[error("The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters")]
    Hash,
}

/// Keys that may be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct KeyPattern {
    pub(crate) pattern: Vec<u8>,
    pub(crate) access: Access,
}

/// Which keys, or channels.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Patterns<T> {
    All,
    Some(Vec<T>),
}

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Selector {
    commands: Numbers,
    /// Whether commands are allowed that no rule speaks of.
    is_open: bool,
    /// What was said about commands since then, in order, without sign and in lower case.
    rules: Vec<(bool, String)>,
    /// First arguments with which a command is allowed that is not allowed otherwise.
    first_arguments: Vec<(usize, Vec<u8>)>,
    pub(crate) keys: Patterns<KeyPattern>,
    /// Accepted and told, for rules that were written for Redis: there are no channels.
    channels: Patterns<Vec<u8>>,
}

impl Default for Selector {
    /// Nothing is allowed.
    fn default() -> Self {
        Self {
            commands: Numbers::default(),
            is_open: false,
            rules: Vec::new(),
            first_arguments: Vec::new(),
            keys: Patterns::Some(Vec::new()),
            channels: Patterns::Some(Vec::new()),
        }
    }
}

impl Selector {
    /// Everything is allowed.
    pub(crate) fn all() -> Self {
        Self {
            commands: Numbers::all(),
            is_open: true,
            keys: Patterns::All,
            channels: Patterns::All,
            ..Self::default()
        }
    }

    /// Whether every command is allowed, on every key.
    pub(crate) fn is_all(&self) -> bool {
        self.commands == Numbers::all() && self.keys == Patterns::All
    }

    /// Whether the command with this number is allowed, with this first argument.
    pub(crate) fn allows(&self, number: usize, first: &[u8]) -> bool {
        let is_it = |(allowed, argument): &(usize, Vec<u8>)| *allowed == number && argument.eq_ignore_ascii_case(first);
        self.commands.contains(number) || self.first_arguments.iter().any(is_it)
    }

    /// Carries a rule out; one that is wrong changes nothing.
    pub(crate) fn apply(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        let is = |word: &str| rule.eq_ignore_ascii_case(word.as_bytes());
        match rule {
            [] => {}
            _ if is("allkeys") || rule == b"~*" => self.keys = Patterns::All,
            _ if is("resetkeys") => self.keys = Patterns::Some(Vec::new()),
            _ if is("allchannels") || rule == b"&*" => self.channels = Patterns::All,
            _ if is("resetchannels") => self.channels = Patterns::Some(Vec::new()),
            _ if is("allcommands") || is("+@all") => {
                (self.commands, self.is_open) = (Numbers::all(), true);
                self.rules.clear();
                self.first_arguments.clear();
            }
            _ if is("nocommands") || is("-@all") => {
                (self.commands, self.is_open) = (Numbers::default(), false);
                self.rules.clear();
                self.first_arguments.clear();
            }
            [b'~', pattern @ ..] => self.add_key(pattern, Access::RW)?,
            [b'%', rest @ ..] => {
                let (access, pattern) = access(rest)?;
                self.add_key(pattern, access)?;
            }
            [b'&', pattern @ ..] => self.add_channel(pattern)?,
            [sign @ (b'+' | b'-'), b'@', name @ ..] => {
                let category = category::find(name).ok_or(RuleError::Unknown)?;
                self.change_category(category, *sign == b'+');
                self.note(*sign == b'+', &rule[1..]);
            }
            [sign @ (b'+' | b'-'), name @ ..] => {
                self.change_command(name, *sign == b'+')?;
                self.note(*sign == b'+', name);
            }
            _ => return Err(RuleError::Syntax),
        }
        Ok(())
    }

    fn add_key(&mut self, pattern: &[u8], access: Access) -> Result<(), RuleError> {
        let Patterns::Some(patterns) = &mut self.keys else {
            return Err(RuleError::AllKeys);
        };
        require_plain(pattern)?;
        if pattern == b"*" && access == Access::RW {
            self.keys = Patterns::All;
        } else if let Some(known) = patterns.iter_mut().find(|known| known.pattern == pattern) {
            known.access = known.access.with(access);
        } else {
            patterns.push(KeyPattern {
                pattern: pattern.to_vec(),
                access,
            });
        }
        Ok(())
    }

    fn add_channel(&mut self, pattern: &[u8]) -> Result<(), RuleError> {
        let Patterns::Some(patterns) = &mut self.channels else {
            return Err(RuleError::AllChannels);
        };
        require_plain(pattern)?;
        if !patterns.iter().any(|known| known == pattern) {
            patterns.push(pattern.to_vec());
        }
        Ok(())
    }

    fn change_category(&mut self, category: u32, is_allowed: bool) {
        for number in 0..COUNT {
            if numbered(number).is_some_and(|numbered| numbered.categories() & category != 0) {
                self.change(number, is_allowed);
            }
        }
    }

    fn change(&mut self, number: usize, is_allowed: bool) {
        self.commands.set(number, is_allowed);
        // Allowed or not: it does not depend on an argument any more.
        self.first_arguments.retain(|(command, _)| *command != number);
    }

    fn change_command(&mut self, name: &[u8], is_allowed: bool) -> Result<(), RuleError> {
        let mut parts = name.splitn(3, |&byte| byte == b'|');
        let command = parts.next().unwrap_or_default();
        let (sub, rest) = (parts.next(), parts.next());
        let (id, _) = find(command).ok_or(RuleError::Unknown)?;
        let Some(sub) = sub else {
            self.change(id as usize, is_allowed);
            subcommands(id).for_each(|number| self.change(number, is_allowed));
            return Ok(());
        };
        if sub.is_empty() {
            return Err(RuleError::Syntax);
        }
        let number = find_subcommand(id, sub);
        match (number, rest) {
            (Some(number), None) => self.change(number, is_allowed),
            (Some(_), Some(_)) if is_allowed => return Err(RuleError::TooDeep),
            (None, None) if is_allowed && subcommands(id).is_empty() => self.add_first_argument(id, sub),
            _ => return Err(RuleError::Unknown),
        }
        Ok(())
    }

    fn add_first_argument(&mut self, id: Id, argument: &[u8]) {
        let allowed = (id as usize, argument.to_ascii_lowercase());
        // In the order of the rules that are told.
        self.first_arguments.retain(|known| *known != allowed);
        self.first_arguments.push(allowed);
    }

    /// Remembers a rule about commands, in place of what it makes void.
    fn note(&mut self, is_allowed: bool, rule: &[u8]) {
        let rule = String::from_utf8_lossy(rule).to_lowercase();
        let is_void = |earlier: &str| {
            let rest = earlier.strip_prefix(rule.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('|'))
        };
        self.rules.retain(|(_, earlier)| !is_void(earlier));
        self.rules.push((is_allowed, rule));
    }

    /// The rules about commands, as Redis tells them.
    pub(crate) fn commands_text(&self) -> String {
        let mut text = if self.is_open { "+@all" } else { "-@all" }.to_owned();
        for (is_allowed, rule) in &self.rules {
            text.push_str(if *is_allowed { " +" } else { " -" });
            text.push_str(rule);
        }
        text
    }

    /// The rules about keys, likewise.
    pub(crate) fn keys_text(&self) -> Vec<u8> {
        match &self.keys {
            Patterns::All => b"~*".to_vec(),
            Patterns::Some(patterns) => joined(patterns.iter().map(|known| {
                let start: &[u8] = match known.access {
                    Access::R => b"%R~",
                    Access::W => b"%W~",
                    _ => b"~",
                };
                [start, &known.pattern].concat()
            })),
        }
    }

    /// The rules about channels, likewise.
    pub(crate) fn channels_text(&self) -> Vec<u8> {
        match &self.channels {
            Patterns::All => b"&*".to_vec(),
            Patterns::Some(patterns) => joined(patterns.iter().map(|pattern| [b"&", pattern.as_slice()].concat())),
        }
    }

    /// All rules, such that they make this selector out of one that allows nothing.
    pub(crate) fn text(&self) -> Vec<u8> {
        let mut parts = vec![self.keys_text()];
        if self.channels != Patterns::All {
            parts.push(b"resetchannels".to_vec());
        }
        parts.extend([self.channels_text(), self.commands_text().into_bytes()]);
        joined(parts.into_iter().filter(|part| !part.is_empty()))
    }
}

/// What stands between `%` and `~`, and the pattern behind it.
fn access(rule: &[u8]) -> Result<(Access, &[u8]), RuleError> {
    let mut access = Access::ANY;
    for (index, byte) in rule.iter().enumerate() {
        let more = match byte {
            b'R' | b'r' => Access::R,
            b'W' | b'w' => Access::W,
            b'~' if access != Access::ANY => return Ok((access, &rule[index + 1..])),
            _ => return Err(RuleError::Syntax),
        };
        if access.allows(more) {
            return Err(RuleError::Syntax);
        }
        access = access.with(more);
    }
    Err(RuleError::Syntax)
}

/// Whether something can stand in a line of words.
fn require_plain(pattern: &[u8]) -> Result<(), RuleError> {
    match is_word(pattern) {
        true => Ok(()),
        false => Err(RuleError::Syntax),
    }
}

/// Whether a text has neither white space nor a zero byte.
pub(crate) fn is_word(text: &[u8]) -> bool {
    // Also what Rust does not call white space, and C does: the vertical tab.
    !text
        .iter()
        .any(|byte| byte.is_ascii_whitespace() || matches!(byte, 0 | 11))
}

/// All of them with a space between each two.
pub(crate) fn joined(parts: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    parts.into_iter().collect::<Vec<_>>().join(&b' ')
}

/// The full names of what is in a category.
pub(crate) fn members(category: u32) -> impl Iterator<Item = &'static str> + Clone {
    let all = (0..COUNT).filter_map(numbered);
    all.filter(move |numbered| numbered.categories() & category != 0)
        .map(Numbered::full_name)
}
