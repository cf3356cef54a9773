//! Holds written by hand, and schedules of a correct lock, right and spoilt.
//!
//! On the path: tests only.

use proptest::prelude::*;

use super::*;

const FIFO: Promise = Promise::Fifo { slack_ns: 0 };

fn hold(client: u32, asked_ns: u64, granted_ns: u64, ended_ns: u64) -> Hold {
    Hold {
        client,
        lock: 1,
        is_shared: false,
        asked_ns,
        granted_ns: Some(granted_ns),
        ended_ns: Some(ended_ns),
    }
}

fn shared(hold: Hold) -> Hold {
    Hold {
        is_shared: true,
        ..hold
    }
}

fn waiting(client: u32, asked_ns: u64) -> Hold {
    Hold {
        granted_ns: None,
        ended_ns: None,
        ..hold(client, asked_ns, 0, 0)
    }
}

fn reason(holds: &[Hold], promise: Promise) -> Reason {
    check(holds, promise).expect_err("the lock broke its promise").reason
}

#[test]
fn overlapping_exclusive_holds_are_caught() {
    let holds = [hold(0, 0, 1, 10), hold(1, 2, 9, 20)];
    let violation = check(&holds, Promise::None).expect_err("from 9 to 10 both hold it");
    assert_eq!((violation.reason, &violation.holds[..]), (Reason::Overlap, &holds[..]));
    assert_eq!(violation.to_string().lines().count(), 4);
}

#[test]
fn holds_that_touch_do_not_overlap() {
    assert!(check(&[hold(0, 0, 1, 10), hold(1, 2, 10, 20)], FIFO).is_ok());
    // Nothing can be done in no time.
    assert!(check(&[hold(0, 0, 1, 10), hold(1, 2, 5, 5)], Promise::None).is_ok());
}

#[test]
fn a_long_hold_overlaps_all_that_follow() {
    let long = hold(0, 0, 1, 100);
    assert_eq!(
        reason(&[long, shared(hold(1, 0, 50, 60))], Promise::None),
        Reason::Overlap
    );
    assert_eq!(
        reason(
            &[shared(long), shared(hold(1, 0, 5, 6)), hold(2, 0, 50, 60)],
            Promise::None
        ),
        Reason::Overlap
    );
    let endless = Hold { ended_ns: None, ..long };
    assert_eq!(
        reason(&[endless, hold(1, 0, 5000, 5001)], Promise::None),
        Reason::Overlap
    );
}

#[test]
fn readers_share_and_are_counted() {
    let readers = [
        shared(hold(0, 0, 1, 10)),
        shared(hold(1, 0, 5, 15)),
        shared(hold(2, 0, 9, 12)),
    ];
    assert_eq!(check(&readers, FIFO).expect("readers share").shared_holders_max, 3);
    let in_turn = [shared(hold(0, 0, 1, 10)), shared(hold(1, 0, 10, 15))];
    assert_eq!(check(&in_turn, FIFO).expect("readers share").shared_holders_max, 1);
}

#[test]
fn locks_are_independent() {
    let other = Hold {
        lock: 2,
        ..hold(1, 2, 5, 20)
    };
    let statistics = check(&[hold(0, 0, 1, 10), other], FIFO).expect("two locks");
    assert_eq!((statistics.locks, statistics.granted), (2, 2));
}

#[test]
fn grant_to_one_who_gave_up_is_caught() {
    assert_eq!(reason(&[hold(0, 0, 10, 9)], Promise::None), Reason::GrantedAfterEnd);
    assert_eq!(reason(&[hold(0, 5, 4, 9)], Promise::None), Reason::GrantedBeforeAsked);
    let gave_up = Hold {
        granted_ns: None,
        ..hold(0, 0, 0, 9)
    };
    assert_eq!(check(&[gave_up], FIFO).expect("it may give up").given_up, 1);
}

#[test]
fn fifo_forbids_overtaking_beyond_the_slack() {
    let holds = [hold(0, 0, 20, 30), hold(1, 5, 10, 15)];
    assert_eq!(
        reason(&holds, Promise::Fifo { slack_ns: 4 }),
        Reason::Overtaken { count: 1, allowed: 0 }
    );
    let statistics = check(&holds, Promise::Fifo { slack_ns: 5 }).expect("within the slack");
    assert_eq!(statistics.overtaken_max, 1);
    assert!(check(&holds, Promise::None).is_ok());
}

#[test]
fn readers_may_pass_readers_but_no_writer() {
    let readers = [shared(hold(0, 0, 20, 30)), shared(hold(1, 5, 10, 15))];
    assert!(check(&readers, FIFO).is_ok());
    let reader_passes = [hold(0, 0, 20, 30), shared(hold(1, 5, 10, 15))];
    assert_eq!(reason(&reader_passes, FIFO), Reason::Overtaken { count: 1, allowed: 0 });
    let writer_passes = [shared(hold(0, 0, 20, 30)), hold(1, 5, 10, 15)];
    assert_eq!(reason(&writer_passes, FIFO), Reason::Overtaken { count: 1, allowed: 0 });
}

#[test]
fn who_still_waits_is_overtaken_and_who_gave_up_is_not() {
    let grants = [hold(1, 5, 10, 15), hold(2, 6, 15, 20)];
    let waits = [&grants[..], &[waiting(0, 0)]].concat();
    assert_eq!(reason(&waits, FIFO), Reason::Overtaken { count: 2, allowed: 0 });
    let gave_up = Hold {
        ended_ns: Some(30),
        ..waiting(0, 0)
    };
    assert!(check(&[&grants[..], &[gave_up]].concat(), FIFO).is_ok());
}

#[test]
fn overtaking_is_bounded_per_waiting_client() {
    let holds = [
        hold(0, 0, 40, 50),
        hold(1, 1, 10, 20),
        hold(2, 2, 20, 30),
        hold(1, 25, 30, 40),
        hold(3, 41, 50, 60),
    ];
    assert_eq!(
        reason(&holds, Promise::BoundedOvertaking { overtakers: 2 }),
        Reason::Overtaken { count: 3, allowed: 2 }
    );
    let statistics = check(&holds, Promise::BoundedOvertaking { overtakers: 3 }).expect("three are allowed");
    assert_eq!(statistics.overtaken_max, 3);
}

#[test]
fn waiting_for_a_free_lock_is_no_progress() {
    let stuck = |holds: &[Hold]| check_progress(holds, 1000, 100).err().map(|violation| violation.reason);
    assert_eq!(stuck(&[waiting(0, 500)]), Some(Reason::Stuck { free_ns: 500 }));
    assert_eq!(stuck(&[waiting(0, 950)]), None, "not for long enough");
    assert_eq!(
        stuck(&[hold(1, 0, 0, 600), waiting(0, 500)]),
        Some(Reason::Stuck { free_ns: 600 })
    );
    assert_eq!(
        stuck(&[hold(1, 0, 0, 950), waiting(0, 500)]),
        None,
        "free for too short a time"
    );
    let endless = Hold {
        ended_ns: None,
        ..hold(1, 0, 0, 0)
    };
    assert_eq!(stuck(&[endless, waiting(0, 500)]), None, "held all the time");
    let after = Hold {
        ended_ns: None,
        ..hold(2, 0, 600, 0)
    };
    assert_eq!(
        stuck(&[hold(1, 0, 0, 600), after, waiting(0, 500)]),
        Some(Reason::Stuck { free_ns: 600 })
    );
    let readers = [
        shared(hold(1, 0, 0, 600)),
        shared(Hold {
            ended_ns: None,
            ..hold(2, 0, 550, 0)
        }),
    ];
    assert_eq!(
        stuck(&[readers[0], readers[1], waiting(0, 500)]),
        None,
        "one reader holds it while the other goes"
    );
    assert_eq!(check_progress(&[waiting(0, 5)], 10, 100), Ok(()));
}

/// What one client asks for: when, how long it holds, in which mode.
type Request = (u64, u64, bool);

/// A first-come-first-served lock: neighbours in the queue that share are granted together.
fn schedule(requests: &[Request], endless_last: bool) -> Vec<Hold> {
    let mut requests = requests.to_vec();
    requests.sort_unstable();
    let mut holds: Vec<Hold> = Vec::new();
    for (index, &(asked_ns, takes_ns, is_shared)) in requests.iter().enumerate() {
        let rivals = holds.iter().filter(|earlier| !(is_shared && earlier.is_shared));
        let free_ns = rivals.filter_map(|earlier| earlier.ended_ns).max().unwrap_or(0);
        // Not before those who asked earlier.
        let turn_ns = holds.last().and_then(|earlier| earlier.granted_ns).unwrap_or(0);
        let granted_ns = asked_ns.max(free_ns).max(turn_ns);
        let is_endless = endless_last && index + 1 == requests.len();
        let ended_ns = (!is_endless).then_some(granted_ns + takes_ns);
        holds.push(Hold {
            client: index as u32,
            lock: 1,
            is_shared,
            asked_ns,
            granted_ns: Some(granted_ns),
            ended_ns,
        });
    }
    holds
}

/// The definition, pair by pair.
fn overtaken_counts(holds: &[Hold], slack_ns: u64) -> u64 {
    let overtakes = |one: &Hold, other: &Hold| {
        let conflicts = !one.is_shared || !other.is_shared;
        conflicts && one.asked_ns > other.asked_ns + slack_ns && one.granted_ns < other.granted_ns
    };
    let counts = holds
        .iter()
        .map(|hold| holds.iter().filter(|other| overtakes(other, hold)).count());
    counts.max().unwrap_or(0) as u64
}

fn requests() -> impl Strategy<Value = Vec<Request>> {
    proptest::collection::vec((0_u64..200, 1_u64..20, any::<bool>()), 1..60)
}

proptest! {
    #[test]
    fn a_correct_lock_is_accepted(requests in requests(), endless_last: bool) {
        let holds = schedule(&requests, endless_last);
        let outcome = check(&holds, FIFO);
        prop_assert!(outcome.is_ok(), "{}", outcome.expect_err("just seen"));
        prop_assert_eq!(check_progress(&holds, 10_000, 0), Ok(()));
    }

    #[test]
    fn a_grant_inside_the_hold_of_another_is_caught(
        requests in requests(),
        chosen: prop::sample::Index,
        into: prop::sample::Index,
    ) {
        let mut holds = schedule(&requests, false);
        let (moved, host) = (chosen.index(holds.len()), into.index(holds.len()));
        prop_assume!(moved != host && conflict(&holds[moved], &holds[host]));
        // Asked early enough, so that nothing else is wrong with it.
        let granted_ns = holds[host].granted_ns;
        holds[moved].asked_ns = holds[moved].asked_ns.min(granted_ns.expect("all are granted"));
        holds[moved].granted_ns = granted_ns;
        holds[moved].ended_ns = granted_ns.map(|granted_ns| granted_ns + 1);
        let violation = check(&holds, Promise::None).expect_err("two hold it");
        prop_assert_eq!(violation.reason, Reason::Overlap);
        prop_assert!(conflict(&violation.holds[0], &violation.holds[1]));
        let (Some(first), Some(second)) = (held(&violation.holds[0]), held(&violation.holds[1])) else {
            return Err(TestCaseError::fail("an empty hold overlaps nothing"));
        };
        prop_assert!(first.0 < second.1 && second.0 < first.1);
    }

    #[test]
    fn order_is_judged_as_pair_by_pair(
        requests in requests(),
        earlier in proptest::collection::vec(0_u64..60, 60),
        slack_ns in 0_u64..40,
    ) {
        let mut holds = schedule(&requests, false);
        // As if some had asked earlier than the lock knew.
        for (hold, earlier_ns) in holds.iter_mut().zip(earlier) {
            hold.asked_ns = hold.asked_ns.saturating_sub(earlier_ns);
        }
        let expected = overtaken_counts(&holds, 0);
        let statistics = check(&holds, Promise::None).expect("only the order is wrong");
        prop_assert_eq!(statistics.overtaken_max, expected);
        let bounded = |overtakers: u64| check(&holds, Promise::BoundedOvertaking { overtakers }).is_ok();
        prop_assert!(bounded(expected));
        prop_assert!(expected == 0 || !bounded(expected - 1));
        prop_assert_eq!(check(&holds, Promise::Fifo { slack_ns }).is_ok(), overtaken_counts(&holds, slack_ns) == 0);
    }
}
