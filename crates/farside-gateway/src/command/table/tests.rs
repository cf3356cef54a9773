//! What holds for the table as a whole.

use super::*;
use crate::request::{Request, Scratch};

#[test]
fn names_are_in_order() {
    assert!(TABLE.is_sorted_by(|one, next| one.name < next.name));
}

#[test]
fn every_command_is_found_in_any_case() {
    for (index, command) in TABLE.iter().enumerate() {
        let upper = command.name.to_uppercase();
        for name in [command.name, upper.as_str()] {
            let (id, found) = find(name.as_bytes()).expect("it is in the table");
            assert_eq!((id as usize, found.name), (index, command.name));
        }
    }
    for name in [
        "",
        "ge",
        "gett",
        "a name that is far longer than any command",
        "\u{0}",
        "get\u{0}",
    ] {
        assert!(find(name.as_bytes()).is_none());
    }
}

#[test]
fn arity_counts_the_name() {
    let takes = |name: &str, count| find(name.as_bytes()).expect("it is in the table").1.takes(count);
    assert!(takes("get", 2) && !takes("get", 1) && !takes("get", 3));
    assert!(takes("del", 2) && takes("del", 200) && !takes("del", 1));
}

#[test]
fn numbers_are_those_of_commands_and_then_those_of_subcommands() {
    let all: Vec<_> = (0..COUNT)
        .map(|number| numbered(number).expect("it has one").full_name())
        .collect();
    assert!(numbered(COUNT).is_none() && numbered(usize::MAX).is_none());
    assert_eq!(all.iter().collect::<std::collections::BTreeSet<_>>().len(), COUNT);
    let mut seen = TABLE.len();
    for (index, command) in TABLE.iter().enumerate() {
        assert_eq!(subcommands(IDS[index]).start, seen);
        assert!(
            command.subcommands.is_sorted_by(|one, next| one.name < next.name),
            "{}",
            command.name
        );
        for subcommand in command.subcommands {
            let name = format!("{}|{}", command.name, subcommand.name);
            assert_eq!((all[seen], subcommand.full_name), (name.as_str(), name.as_str()));
            let upper = subcommand.name.to_uppercase();
            assert_eq!(find_subcommand(IDS[index], upper.as_bytes()), Some(seen));
            seen += 1;
        }
    }
    assert_eq!(
        (seen, find_subcommand(Id::config, b"ge"), find_subcommand(Id::get, b"")),
        (COUNT, None, None)
    );
}

#[test]
fn further_keys_are_treated_like_the_last() {
    for (line, expected) in [
        (
            "bitop or d a b c",
            &[(2, Access::PUT), (3, Access::R), (4, Access::R), (5, Access::R)][..],
        ),
        ("pfmerge d a b", &[(1, Access::MERGE), (2, Access::R), (3, Access::R)]),
        ("mset a 1 b 2", &[(1, Access::PUT), (3, Access::PUT)]),
        ("lcs a b len idx", &[(1, Access::R), (2, Access::R)]),
        ("sintercard 2 a b limit 3", &[(2, Access::R), (3, Access::R)]),
        ("eval script 2 a b c", &[(3, Access::RW), (4, Access::RW)]),
        ("ping", &[]),
    ] {
        let mut scratch = Scratch::default();
        let request = Request::split(line.as_bytes(), &mut scratch).expect("quotes match");
        let (id, _) = find(request.arg(0)).expect("it is in the table");
        let keys = numbered(id as usize).expect("it has one").keys(&request);
        assert_eq!(keys.collect::<Vec<_>>(), expected, "{line}");
    }
}

#[test]
fn write_commands_name_their_keys() {
    for command in TABLE {
        let is_whole = command.name.starts_with("flush");
        let writes = command.flags.contains(&"write");
        assert_eq!(writes && command.keys == NO_KEYS, is_whole, "{}", command.name);
    }
}
