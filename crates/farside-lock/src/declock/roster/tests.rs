//! Places of the roster, taken and given up.

use super::*;
use crate::testing::{Machine, ROSTER, Stage};

fn desk(machine: &Machine) -> Place {
    Place {
        endpoint: machine.endpoint.id(),
        seat: 3,
    }
}

/// Whichever place is the last, it is found; nobody has place 0, since no name is 0.
#[test]
fn the_last_free_place_is_found_wherever_it_is() {
    let stage = Stage::new();
    let machine = stage.machine();
    let mut cx = machine.cx();
    let other = Listed(0).with_endpoint(77).with_turn(1);
    let mut bytes = [0; ROSTER_BYTES as usize];
    bytes
        .chunks_exact_mut(8)
        .for_each(|word| word.copy_from_slice(&other.0.to_le_bytes()));
    let region = stage.sim.region(ROSTER.node());
    region.write(ROSTER.offset(), &bytes);
    for free in 1..PLACES {
        let roster = Roster::new(ROSTER);
        stage.set_word(ROSTER.plus(8 * free), 0);
        let start = machine.costs();
        let member = stage
            .sim
            .block_on(roster.join(&mut cx, desk(&machine)))
            .expect("one is free");
        assert_eq!(machine.cost_since(&start), [1, 0, 1, 0]);
        assert_eq!((member.place(), member.turn()), (free, 1));
        assert_eq!(roster.known(member), Some(desk(&machine)));
        stage.set_word(ROSTER.plus(8 * free), other.0);
    }
    stage.set_word(ROSTER, 0);
    let roster = Roster::new(ROSTER);
    let full = stage.sim.block_on(roster.join(&mut cx, desk(&machine)));
    assert_eq!(full, Err(LockError::RosterFull { roster: ROSTER }));
}

/// A place counts its turns, so that a name of before is nobody's.
#[test]
fn a_name_of_before_is_nobodys() {
    let stage = Stage::new();
    let machine = stage.machine();
    let mut cx = machine.cx();
    let at = |member: Member| ROSTER.plus(8 * member.place());
    let mut names = Vec::new();
    for turn in 1..=65 {
        let roster = Roster::new(ROSTER);
        let member = stage
            .sim
            .block_on(roster.join(&mut cx, desk(&machine)))
            .expect("there is room");
        assert_eq!(member.turn(), turn % 64);
        let everybody = stage
            .sim
            .block_on(roster.everybody(&mut cx))
            .expect("the node is there");
        assert_eq!(everybody, [(member, desk(&machine))]);
        let other = Roster::new(ROSTER);
        let find = |member| stage.sim.block_on(other.look_up(&machine.endpoint, member));
        assert_eq!(find(member), Ok(Some(desk(&machine))));
        assert_eq!(other.known(member), Some(desk(&machine)));
        if let Some(&before) = names.last() {
            assert_eq!(find(before), Ok(None));
            // Its place is not given up in the name of another turn.
            stage
                .sim
                .block_on(roster.strike(&machine.endpoint, before))
                .expect("the node is there");
            assert_eq!(Listed(stage.word(at(member))).endpoint(), machine.endpoint.id().0);
        }
        names.push(member);
        stage
            .sim
            .block_on(roster.strike(&machine.endpoint, member))
            .expect("the node is there");
        assert_eq!(stage.word(at(member)), Listed(0).with_turn(turn % 64).0);
        assert_eq!(roster.known(member), None);
        assert_eq!(find(member), Ok(None));
    }
    assert_eq!(names[0], names[64], "64 turns later");
}

#[test]
fn a_warning_is_seen_and_is_final() {
    let stage = Stage::new();
    let machine = stage.machine();
    let mut cx = machine.cx();
    let roster = Roster::new(ROSTER);
    let member = stage
        .sim
        .block_on(roster.join(&mut cx, desk(&machine)))
        .expect("there is room");
    let is_safe = || {
        let safe = roster.is_safe(&machine.endpoint, member, Deadline::NEVER);
        stage.sim.block_on(safe).expect("the node is there")
    };
    let warn = || {
        let start = machine.costs();
        let warned = stage
            .sim
            .block_on(roster.warn(&machine.endpoint, member))
            .expect("the node is there");
        (warned, machine.cost_since(&start))
    };
    assert!(is_safe());
    assert_eq!(warn(), (true, [1, 0, 1, 0]));
    assert!(!is_safe());
    assert_eq!(warn(), (true, [1, 0, 0, 0]), "warned already");
    let at = ROSTER.plus(8 * member.place());
    // Who maps the memory is cut off only when it is dead, and not warned.
    let mapped = Listed(stage.word(at)).with_warned(0).with_mapped(1);
    stage.set_word(at, mapped.0);
    assert_eq!(warn(), (false, [1, 0, 0, 0]));
    assert_eq!(stage.word(at), mapped.0);
    stage
        .sim
        .block_on(roster.strike(&machine.endpoint, member))
        .expect("the node is there");
    assert_eq!(warn(), (false, [1, 0, 0, 0]), "it is gone");
    assert!(!is_safe());
}
