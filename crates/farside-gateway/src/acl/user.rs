//! A user: a name, passwords and selectors, made of rules and told as rules.
//!
//! On the path: a client holds one, which never changes; who changes a user makes another.
//!
//! Invariant: the rules that [`User::text`] tells make the same user again.

use super::digest::Digest;
use super::selector::{RuleError, Selector, joined};

/// The name of the user that a connection has before it gives another.
pub(crate) const DEFAULT: &[u8] = b"default";

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct User {
    pub(crate) name: Vec<u8>,
    /// Whether one may become this user. Whoever is already is not asked.
    is_on: bool,
    /// Whether any password will do.
    needs_no_password: bool,
    passwords: Vec<Digest>,
    /// Accepted and told, for rules that were written for Redis: nothing here takes values in Redis's own format.
    trusts_payloads: bool,
    root: Selector,
    /// Each allows what it allows, whatever the others say.
    selectors: Vec<Selector>,
}

/// A rule that is none, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Wrong {
    /// This one, for this reason.
    Rule(Vec<u8>, RuleError),
    /// What begins there is not closed.
    Unmatched(Vec<u8>),
}

impl User {
    /// One that may do nothing and that nobody can become, as Redis makes new ones.
    pub(crate) fn new(name: &[u8]) -> Self {
        Self {
            name: name.to_vec(),
            is_on: false,
            needs_no_password: false,
            passwords: Vec::new(),
            trusts_payloads: false,
            root: Selector::default(),
            selectors: Vec::new(),
        }
    }

    /// The user `default` of a gateway to which nobody has said anything about users: it may do everything, with this
    /// password if there is one.
    pub(crate) fn with_everything(password: Option<&[u8]>) -> Self {
        Self {
            is_on: true,
            needs_no_password: password.is_none(),
            passwords: password.map(Digest::of).into_iter().collect(),
            root: Selector::all(),
            ..Self::new(DEFAULT)
        }
    }

    /// Whether every command is allowed, on every key.
    pub(crate) fn may_everything(&self) -> bool {
        self.selectors().any(Selector::is_all)
    }

    /// Whether one becomes this user without a password.
    pub(crate) fn is_open(&self) -> bool {
        self.is_on && self.needs_no_password
    }

    /// Whether no password is asked of it, be it on or off.
    pub(crate) fn needs_no_password(&self) -> bool {
        self.needs_no_password
    }

    /// Whether who offers this password becomes this user.
    pub(crate) fn lets_in(&self, password: &[u8]) -> bool {
        if !self.is_on {
            return false;
        }
        let offered = Digest::of(password);
        // All are compared, however many fit.
        let fitting = self.passwords.iter().filter(|known| known.matches(offered));
        fitting.count() > 0 || self.needs_no_password
    }

    pub(crate) fn selectors(&self) -> impl Iterator<Item = &Selector> {
        core::iter::once(&self.root).chain(&self.selectors)
    }

    /// This user with these rules carried out, all or none of them.
    pub(crate) fn with<'r>(&self, rules: impl IntoIterator<Item = &'r [u8]>) -> Result<Self, Wrong> {
        let mut user = self.clone();
        for rule in merged(rules)? {
            user.apply(&rule).map_err(|error| Wrong::Rule(rule, error))?;
        }
        Ok(user)
    }

    fn apply(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        let is = |word: &str| rule.eq_ignore_ascii_case(word.as_bytes());
        match rule {
            _ if is("on") => self.is_on = true,
            _ if is("off") => self.is_on = false,
            _ if is("nopass") => {
                self.needs_no_password = true;
                self.passwords.clear();
            }
            _ if is("resetpass") => {
                self.needs_no_password = false;
                self.passwords.clear();
            }
            _ if is("skip-sanitize-payload") => self.trusts_payloads = true,
            _ if is("sanitize-payload") => self.trusts_payloads = false,
            _ if is("clearselectors") => self.selectors.clear(),
            _ if is("reset") => *self = Self::new(&self.name),
            [b'>', password @ ..] => self.add_password(Digest::of(password)),
            [b'#', digits @ ..] => self.add_password(Digest::from_hex(digits).ok_or(RuleError::Hash)?),
            [b'<', password @ ..] => self.remove_password(Digest::of(password))?,
            [b'!', digits @ ..] => self.remove_password(Digest::from_hex(digits).ok_or(RuleError::Hash)?)?,
            [b'(', rules @ .., b')'] => {
                let mut selector = Selector::default();
                for rule in rules.split(|&byte| byte == b' ') {
                    selector.apply(rule)?;
                }
                self.selectors.push(selector);
            }
            _ => self.root.apply(rule)?,
        }
        Ok(())
    }

    fn add_password(&mut self, password: Digest) {
        self.needs_no_password = false;
        if !self.passwords.contains(&password) {
            self.passwords.push(password);
        }
    }

    fn remove_password(&mut self, password: Digest) -> Result<(), RuleError> {
        let place = self.passwords.iter().position(|&known| known == password);
        self.passwords.remove(place.ok_or(RuleError::NoPassword)?);
        Ok(())
    }

    /// What is neither a password nor a selector, as ACL GETUSER tells it.
    pub(crate) fn flags(&self) -> impl Iterator<Item = &'static str> + Clone {
        let all = [
            (true, if self.is_on { "on" } else { "off" }),
            (self.needs_no_password, "nopass"),
            (self.trusts_payloads, "skip-sanitize-payload"),
            (!self.trusts_payloads, "sanitize-payload"),
        ];
        all.into_iter().filter_map(|(is_so, name)| is_so.then_some(name))
    }

    /// The SHA-256 of each password, in hexadecimal digits.
    pub(crate) fn passwords(&self) -> impl ExactSizeIterator<Item = String> {
        self.passwords.iter().map(|password| password.to_hex())
    }

    /// The root selector, and the others.
    pub(crate) fn root(&self) -> (&Selector, &[Selector]) {
        (&self.root, &self.selectors)
    }

    /// A line of an ACL file, without its end.
    pub(crate) fn text(&self) -> Vec<u8> {
        let mut parts = vec![b"user".to_vec(), self.name.clone()];
        parts.extend(self.flags().map(|flag| flag.as_bytes().to_vec()));
        parts.extend(self.passwords().map(|digits| format!("#{digits}").into_bytes()));
        parts.push(self.root.text());
        parts.extend((self.selectors.iter()).map(|selector| [b"(", selector.text().as_slice(), b")"].concat()));
        joined(parts)
    }
}

/// The rules, with the words of a selector put together again.
fn merged<'r>(rules: impl IntoIterator<Item = &'r [u8]>) -> Result<Vec<Vec<u8>>, Wrong> {
    let mut all = Vec::new();
    let mut open: Option<Vec<u8>> = None;
    for rule in rules {
        let rule = match open.take() {
            Some(selector) => [selector.as_slice(), b" ", rule].concat(),
            None => rule.to_vec(),
        };
        match rule.first() == Some(&b'(') && rule.last() != Some(&b')') {
            true => open = Some(rule),
            false => all.push(rule),
        }
    }
    match open {
        None => Ok(all),
        // Redis names the word that opens it.
        Some(selector) => Err(Wrong::Unmatched(selector)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acl::permit::{Denial, judge};
    use crate::command::table::{COUNT, numbered};
    use crate::request::{Request, Scratch};
    use proptest::prelude::*;

    fn user(rules: &str) -> Result<User, Wrong> {
        User::new(b"alice").with(rules.split(' ').map(str::as_bytes))
    }

    fn text(rules: &str) -> String {
        let user = user(rules).unwrap_or_else(|wrong| panic!("{rules}: {wrong:?}"));
        let text = String::from_utf8(user.text()).expect("plain text");
        text.strip_prefix("user alice ").expect("it begins so").to_owned()
    }

    #[test]
    fn rules_are_told_as_redis_tells_them() {
        let pw = "#30c952fab122c3f9759f02a6d95c3758b246b4fee239957b2d4fee46e26170c4";
        for (rules, expected) in [
            ("", "off sanitize-payload resetchannels -@all"),
            (
                "on nopass allkeys allchannels allcommands",
                "on nopass sanitize-payload ~* &* +@all",
            ),
            ("ON NOPASS ~* &* +@ALL", "on nopass sanitize-payload ~* &* +@all"),
            ("on >pw", &format!("on sanitize-payload {pw} resetchannels -@all")),
            (
                &format!("{pw} >pw nopass"),
                "off nopass sanitize-payload resetchannels -@all",
            ),
            (
                &format!("nopass {pw}"),
                &format!("off sanitize-payload {pw} resetchannels -@all"),
            ),
            (
                &format!(">pw >other <other !{}", &pw[1..]),
                "off sanitize-payload resetchannels -@all",
            ),
            (
                ">pw on skip-sanitize-payload resetpass",
                "on skip-sanitize-payload resetchannels -@all",
            ),
            (
                "~a:* %R~b:* %W~c* &ch &ch %r~d %W~d ~",
                "off sanitize-payload ~a:* %R~b:* %W~c* ~d ~ resetchannels &ch -@all",
            ),
            ("~a %RW~*", "off sanitize-payload ~* resetchannels -@all"),
            (
                "~* resetkeys ~b &* resetchannels",
                "off sanitize-payload ~b resetchannels -@all",
            ),
            (
                "+get +@READ -@dangerous +Config|GET -get",
                "off sanitize-payload resetchannels -@all +@read -@dangerous +config|get -get",
            ),
            (
                "+config|get +config -config|set -config",
                "off sanitize-payload resetchannels -@all -config",
            ),
            (
                "+@all -config +config|get",
                "off sanitize-payload resetchannels +@all -config +config|get",
            ),
            ("+@all -get +@all", "off sanitize-payload resetchannels +@all"),
            (
                "+select|0 +select|0",
                "off sanitize-payload resetchannels -@all +select|0",
            ),
            ("+get nocommands -@all", "off sanitize-payload resetchannels -@all"),
            (
                "(~a +get) ( +set %W~b ) ()",
                "off sanitize-payload resetchannels -@all (~a resetchannels -@all +get) (%W~b resetchannels -@all +set) \
                 (resetchannels -@all)",
            ),
            ("(+get) clearselectors", "off sanitize-payload resetchannels -@all"),
            (
                "on >pw ~* &* +@all (+get) reset",
                "off sanitize-payload resetchannels -@all",
            ),
        ] {
            assert_eq!(text(rules), expected, "{rules}");
        }
    }

    #[test]
    fn what_is_no_rule_is_refused_for_its_reason() {
        let all_digits = "0".repeat(64);
        for (rules, wrong, error) in [
            ("foo", "foo", RuleError::Syntax),
            ("+nosuch", "+nosuch", RuleError::Unknown),
            ("+", "+", RuleError::Unknown),
            ("+@nosuch", "+@nosuch", RuleError::Unknown),
            ("+@", "+@", RuleError::Unknown),
            ("-get|a", "-get|a", RuleError::Unknown),
            ("+config|nosuch", "+config|nosuch", RuleError::Unknown),
            ("-config|get|x", "-config|get|x", RuleError::Unknown),
            ("+config|get|x", "+config|get|x", RuleError::TooDeep),
            ("+get|", "+get|", RuleError::Syntax),
            ("%~a", "%~a", RuleError::Syntax),
            ("%RR~a", "%RR~a", RuleError::Syntax),
            ("%X~a", "%X~a", RuleError::Syntax),
            ("%R", "%R", RuleError::Syntax),
            ("~a\tb", "~a\tb", RuleError::Syntax),
            ("&a\x0bb", "&a\x0bb", RuleError::Syntax),
            ("allkeys ~a", "~a", RuleError::AllKeys),
            ("~* %R~a", "%R~a", RuleError::AllKeys),
            ("&* &a", "&a", RuleError::AllChannels),
            ("#0", "#0", RuleError::Hash),
            ("!0", "!0", RuleError::Hash),
            (
                &format!("!{all_digits}"),
                &format!("!{all_digits}"),
                RuleError::NoPassword,
            ),
            ("<pw", "<pw", RuleError::NoPassword),
            ("(+nosuch)", "(+nosuch)", RuleError::Unknown),
            ("(on)", "(on)", RuleError::Syntax),
            ("((+get))", "((+get))", RuleError::Syntax),
        ] {
            assert_eq!(
                user(rules),
                Err(Wrong::Rule(wrong.as_bytes().to_vec(), error)),
                "{rules}"
            );
        }
        assert_eq!(user("on (+get ~a"), Err(Wrong::Unmatched(b"(+get ~a".to_vec())));
        // All or nothing.
        let before = user("on").expect("it is a rule");
        assert!(before.with([&b"off"[..], b"foo"]).is_err());
        assert!(before.flags().any(|flag| flag == "on"));
    }

    #[test]
    fn passwords_let_in_who_is_on() {
        let known = user("on >pw >other").expect("they are rules");
        assert!(known.lets_in(b"pw") && known.lets_in(b"other") && !known.lets_in(b"no") && !known.lets_in(b""));
        let off = user("off >pw nopass").expect("they are rules");
        assert!(!off.lets_in(b"pw") && !off.is_open() && off.needs_no_password());
        assert!(user("on nopass").expect("they are rules").lets_in(b"anything"));
        assert!(!user("on").expect("they are rules").lets_in(b""));
    }

    /// What becomes of a command.
    fn verdict(user: &User, line: &str) -> Option<Denial> {
        let mut scratch = Scratch::default();
        let request = Request::split(line.as_bytes(), &mut scratch).expect("no quotes");
        judge(user, &request).expect("it is a command").err()
    }

    #[test]
    fn commands_and_keys_are_allowed_as_the_rules_say() {
        let key = |key: &str| Some(Denial::Key(key.as_bytes().to_vec()));
        let command = |name: &'static str| Some(Denial::Command(name));
        for (rules, line, expected) in [
            ("~* +get", "GET a", None),
            ("~* +get", "SET a 1", command("set")),
            ("+get", "GET a", key("a")),
            ("~a* +@all", "MGET a ab b", key("b")),
            ("~a* +@all", "MSET a b ab c", None),
            ("~a* +@all", "MSET a b b c", key("b")),
            ("~* +@read", "SET a 1", command("set")),
            ("~* +@all -@dangerous", "KEYS *", command("keys")),
            ("~* +@all -@dangerous", "CONFIG GET x", command("config|get")),
            ("~* +@all -@dangerous", "CONFIG HELP", None),
            ("~* +@all -config +config|get", "CONFIG SET x y", command("config|set")),
            ("~* +@all -config +config|get", "CONFIG GET x", None),
            ("+client|id -client", "CLIENT ID", command("client|id")),
            ("+client -client|kill", "CLIENT KILL a", command("client|kill")),
            ("+client -client|kill", "client list", None),
            ("+select|0", "SELECT 0", None),
            ("+select|0", "SELECT 1", command("select")),
            ("%R~a +@all", "GET a", None),
            ("%R~a +@all", "SET a 1", key("a")),
            ("%R~a +@all", "INCR a", key("a")),
            ("%W~a +@all", "SET a 1", None),
            ("%W~a +@all", "SET a 1 GET", key("a")),
            ("~a +@all", "SET a 1 EX 10 GET", None),
            ("%W~a +@all", "APPEND a 1", None),
            ("%W~a +@all", "DEL a", None),
            ("%W~a +@all", "GET a", key("a")),
            ("%W~a +@all", "GETDEL a", key("a")),
            // Whether it is there is told to whoever may do anything with it.
            ("%W~a +@all", "EXISTS a", None),
            ("%W~a +@all", "OBJECT ENCODING a", None),
            ("%W~a +@all", "OBJECT ENCODING b", key("b")),
            ("~a +@all", "MEMORY USAGE b", key("b")),
            ("~a +@all", "WATCH a b", key("b")),
            ("%R~a %W~b +@all", "COPY a b", None),
            ("%R~a %W~b +@all", "COPY b a", key("b")),
            ("%R~a %W~b +@all", "RENAME a b", key("a")),
            ("~a %W~b +@all", "RENAME a b", None),
            ("~a %R~b +@all", "RENAME a b", key("b")),
            // One pattern has to allow all that is done to a key.
            ("%R~a* %W~*a +@all", "INCR a", key("a")),
            ("~a +@all", "EVAL x 1 a b", None),
            ("~a +@all", "EVAL x 2 a b", key("b")),
            ("%R~a +@all", "EVALSHA x 1 a", key("a")),
            ("~a +@all", "EVAL x 0 b", None),
            ("~a +@all", "EVAL x 1000 b", None),
            // Names of keys are told to whoever may ask for them, as in Redis; values are not.
            ("+@all", "SCAN 0", None),
            ("+@all", "KEYS *", None),
            ("+@all", "FARSIDE RANGE - +", None),
            ("~a +@all", "FARSIDE RANGE - + VALUES", key("-")),
            ("%W~* +@all", "FARSIDE RANGE - + LIMIT 1 values", key("-")),
            ("%R~* +@all", "FARSIDE RANGE - + VALUES", None),
            ("~* +@all", "FARSIDE RANGE - + VALUES", None),
            // Whoever has nothing may come and go.
            ("", "AUTH a", None),
            ("", "HELLO 3", None),
            ("", "RESET", None),
            ("", "QUIT", None),
            ("", "PING", command("ping")),
            // Each selector is for itself; the error is that of the one that came furthest.
            ("(~a +get) (~b +set)", "GET a", None),
            ("(~a +get) (~b +set)", "GET b", key("b")),
            ("(~a +get) (~b +set)", "SET b 1", None),
            ("(~a +get) (~b +set)", "DEL b", command("del")),
            ("~a +mget (~b +mget)", "MGET a b", key("b")),
            ("~a +mget (~b ~a +mget)", "MGET a b", None),
            ("~a:* +get", "GET a:\u{e9}", None),
        ] {
            let user = user(rules).unwrap_or_else(|wrong| panic!("{rules}: {wrong:?}"));
            assert_eq!(verdict(&user, line), expected, "{rules}: {line}");
        }
    }

    #[test]
    fn whoever_may_do_everything_is_known() {
        for (rules, may_everything) in [
            ("~* +@all", true),
            ("allkeys allcommands off", true),
            ("%RW~* +@all", true),
            ("~* +@all -get +get", true),
            ("(~* +@all)", true),
            ("~* +@all -get", false),
            ("%R~* +@all", false),
            ("~* ", false),
            ("(~* +get) ~a +@all", false),
        ] {
            assert_eq!(
                user(rules).map(|user| user.may_everything()),
                Ok(may_everything),
                "{rules}"
            );
        }
    }

    fn rule() -> impl Strategy<Value = String> {
        let sign = prop_oneof![Just("+"), Just("-")];
        let word = "[!-'*-~]{0,6}";
        let known = (0..COUNT).prop_map(|number| numbered(number).expect("it is one").full_name());
        let category = proptest::sample::select(&crate::command::category::ALL[..]);
        prop_oneof![
            proptest::sample::select(vec![
                "on",
                "off",
                "nopass",
                "resetpass",
                "reset",
                "allkeys",
                "resetkeys",
                "allchannels",
                "resetchannels",
                "allcommands",
                "nocommands",
                "clearselectors",
                "skip-sanitize-payload",
                "sanitize-payload",
                "+select|0",
                "+get|x",
                "+@all",
                "-@all",
            ])
            .prop_map(str::to_owned),
            (sign.clone(), known).prop_map(|(sign, name)| format!("{sign}{name}")),
            (sign, category).prop_map(|(sign, name)| format!("{sign}@{name}")),
            (
                proptest::sample::select(vec!["~", "%R~", "%W~", "%RW~", "&", ">"]),
                word
            )
                .prop_map(|(start, rest)| format!("{start}{rest}")),
        ]
    }

    proptest! {
        #[test]
        fn a_user_is_made_again_of_what_is_told(
            rules in proptest::collection::vec(rule(), 0..12),
            inner in proptest::collection::vec(proptest::collection::vec(rule(), 0..5), 0..3),
        ) {
            let mut user = User::new(b"alice");
            let selectors = inner.iter().map(|rules| format!("({})", rules.join(" ")));
            for rule in rules.iter().cloned().chain(selectors) {
                // What is refused has changed nothing.
                if let Ok(changed) = user.with([rule.as_bytes()]) {
                    user = changed;
                }
            }
            let text = user.text();
            let rest = text.strip_prefix(b"user alice ").expect("it begins so");
            let again = User::new(b"alice").with(rest.split(|&byte| byte == b' '));
            prop_assert_eq!(again, Ok(user), "{}", String::from_utf8_lossy(&text));
        }
    }
}
