//! Random commands of a type, and how their replies are compared: elements may stand in no order that means something, or be
//! drawn by chance.

use super::differential::{Author, Pair, Reply, Words, setting, shown};
use crate::soak::dice::Dice;

/// How much of two replies has to be the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Likeness {
    /// All of it.
    Equal,
    /// All but the digits of doubles.
    Doubles,
    /// All but the order; so many elements belong together.
    AnyOrder(usize),
    /// The same of the second element of two: that of a scan.
    Scan(usize),
    /// Their form: how many elements of which kind they have.
    Form,
}

/// The elements in an order of their own.
fn sorted(reply: &Reply, together: usize) -> Vec<&[Reply]> {
    let mut chunks: Vec<_> = reply.elements().chunks(together).collect();
    chunks.sort_by(|one, other| one.partial_cmp(other).expect("bytes"));
    chunks
}

fn form(reply: &Reply) -> Reply {
    match reply {
        Reply::Bulk(_) => Reply::Bulk(Vec::new()),
        Reply::Several(kind, elements) => Reply::Several(*kind, elements.iter().map(form).collect()),
        line => line.clone(),
    }
}

fn kind(reply: &Reply) -> Option<(u8, usize)> {
    match reply {
        Reply::Several(kind, elements) => Some((*kind, elements.len())),
        _ => None,
    }
}

impl Likeness {
    fn holds(self, ours: &Reply, theirs: &Reply) -> bool {
        match self {
            Self::Equal => ours == theirs,
            Self::Doubles => ours.is_like(theirs),
            Self::AnyOrder(together) if kind(theirs).is_some() => {
                kind(ours) == kind(theirs) && sorted(ours, together) == sorted(theirs, together)
            }
            Self::Scan(together) if kind(theirs).is_some() => match (ours.elements(), theirs.elements()) {
                ([cursor, ours], [other, theirs]) => cursor == other && Self::AnyOrder(together).holds(ours, theirs),
                _ => false,
            },
            Self::AnyOrder(_) | Self::Scan(_) => ours == theirs,
            Self::Form => form(ours) == form(theirs),
        }
    }
}

impl Pair {
    /// Sends a command to both, and returns both replies, which are alike.
    pub(crate) fn compare_as(&mut self, words: &Words, likeness: Likeness) -> (Reply, Reply) {
        let (found, expected) = self.ask(words);
        let (ours, theirs) = (Reply::parse(&found), Reply::parse(&expected));
        if !likeness.holds(&ours, &theirs) {
            let (found, expected) = (found.escape_ascii(), expected.escape_ascii());
            panic!("{}: {found} instead of {expected}", shown(words));
        }
        (ours, theirs)
    }
}

/// What is known of the commands of a type.
pub(crate) trait Type {
    /// Makes a command. Within MULTI, replies that follow from chance are not compared but for their form.
    fn write(author: &mut Author, is_in_multi: bool) -> Words;
    /// How the replies of a command are alike.
    fn likeness(_words: &Words) -> Likeness {
        Likeness::Equal
    }
    /// Sends what has to be there at first.
    fn begin(_pair: &mut Pair) {}
    /// Compares what is there in the end.
    fn end(_pair: &mut Pair) {}
    /// Sends one that is by itself.
    fn compare(pair: &mut Pair, words: &Words) {
        pair.compare_as(words, Self::likeness(words));
    }
}

/// Sends random commands of a type, by themselves and within MULTI.
pub(crate) fn compare_all<T: Type>(seed: u64, count: u64, hello: &str) {
    let mut pair = Pair::start(hello);
    let seed = setting("FARSIDE_DIFFERENTIAL_SEED", seed);
    let mut author = Author { dice: Dice::new(seed) };
    let count = setting("FARSIDE_DIFFERENTIAL", count);
    T::begin(&mut pair);
    for _ in 0..count {
        if !author.chance(5) {
            let words = T::write(&mut author, false);
            T::compare(&mut pair, &words);
            continue;
        }
        pair.compare_line("MULTI");
        let mut queued = Vec::new();
        for _ in 0..author.dice.roll(6) {
            let words = T::write(&mut author, true);
            if pair.compare_as(&words, Likeness::Equal).0 == Reply::Line(b'+', b"QUEUED".to_vec()) {
                queued.push(words);
            }
        }
        let (found, expected) = pair.ask(&vec![b"EXEC".to_vec()]);
        let (ours, theirs) = (Reply::parse(&found), Reply::parse(&expected));
        assert_eq!(kind(&ours), kind(&theirs), "{}", found.escape_ascii());
        if kind(&ours).is_none() {
            assert_eq!(ours, theirs);
        }
        for ((ours, theirs), words) in ours.elements().iter().zip(theirs.elements()).zip(&queued) {
            let is_like = T::likeness(words).holds(ours, theirs);
            assert!(is_like, "{} within MULTI: {ours:?} instead of {theirs:?}", shown(words));
        }
    }
    T::end(&mut pair);
    // Otherwise they would say little of what a command does.
    let refused = pair.refused;
    assert!(refused * 3 < count, "{refused} of {count} commands were refused");
}
