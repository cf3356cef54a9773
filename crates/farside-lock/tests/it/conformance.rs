//! One suite that every lock must pass: the contract at `src/lib.rs`, line by line, over the
//! simulated fabric (many seeds), over mapped memory (threads, and processes), over TCP, and over RDMA where
//! there is a device.
//!
//! A lock joins with one `conformance!` line at the end of this file, and says there what it costs. A lock
//! with a queue is there with other capacities as well: one that is never full, and one that often is.

mod cost;
mod deaths;
mod exclusion;
mod order;
mod place;
mod processes;
mod recovery;
mod service;
mod sharing;
mod timeout;

/// The whole suite for one lock. `acquire` and `release` are what each costs when nobody is in the
/// way: READs, WRITEs, atomics, SENDs; `shared` is the same for a reader, if it is not the same.
macro_rules! conformance {
    ($name:ident$(: $lock:literal)?, acquire: $acquire:expr, release: $release:expr) => {
        conformance!($name$(: $lock)?, acquire: $acquire, release: $release, shared: [$acquire, $release]);
    };
    ($name:ident, acquire: $acquire:expr, release: $release:expr, shared: $shared:expr) => {
        conformance!($name: &stringify!($name).replace('_', "-"), acquire: $acquire, release: $release, shared: $shared);
    };
    ($name:ident: $lock:expr, acquire: $acquire:expr, release: $release:expr, shared: $shared:expr) => {
        conformance!($name: $lock, capacity: 16, acquire: $acquire, release: $release, shared: $shared);
    };
    ($name:ident: $lock:expr, capacity: $capacity:expr, acquire: $acquire:expr, release: $release:expr, shared: $shared:expr) => {
        mod $name {
            use farside_lock::LockKind;

            use crate::conformance::service::Subject;

            fn subject() -> Subject {
                Subject {
                    kind: LockKind::by_name($lock).expect("a registered lock"),
                    declock_capacity: $capacity,
                }
            }

            #[test]
            fn simulated_clients_exclude_each_other() {
                crate::conformance::exclusion::simulated(subject());
            }

            #[test]
            fn plain_atomics_are_enough_or_the_lock_says_so() {
                crate::conformance::exclusion::plain_atomics(subject());
            }

            #[test]
            fn first_come_is_first_served_if_the_lock_says_so() {
                crate::conformance::order::first_come_first_served(subject());
            }

            #[test]
            fn the_lock_survives_clients_that_die_at_any_verb() {
                crate::conformance::recovery::clients_die_at_every_verb(subject());
            }

            #[test]
            fn the_lock_survives_the_death_of_its_agent() {
                crate::conformance::recovery::the_agent_dies_at_every_verb(subject());
            }

            #[test]
            fn slow_clients_find_out_that_their_lease_is_over() {
                crate::conformance::recovery::slow_clients_find_out(subject());
            }

            #[test]
            fn readers_do_not_starve_if_the_lock_is_ordered() {
                crate::conformance::order::readers_do_not_starve(subject());
            }

            #[test]
            fn processes_exclude_each_other() {
                crate::conformance::processes::parent(subject());
            }

            #[test]
            fn a_simulated_deadline_is_kept() {
                crate::conformance::timeout::simulated(subject());
            }

            #[test]
            fn a_swap_that_outlived_its_deadline_is_recognised() {
                crate::conformance::timeout::late_grant(subject());
            }

            #[test]
            fn cost_without_contention_is_exact() {
                crate::conformance::cost::uncontended(subject(), farside_lock::Mode::Exclusive, [$acquire, $release]);
            }

            #[test]
            fn cost_of_a_reader_without_contention_is_exact() {
                crate::conformance::cost::uncontended(subject(), farside_lock::Mode::Shared, $shared);
            }

            #[test]
            fn readers_are_inside_together_and_without_writers() {
                crate::conformance::sharing::modes(subject());
            }

            #[test]
            fn simulated_writers_exclude_readers() {
                crate::conformance::sharing::simulated(subject());
            }

            crate::conformance::real!([cfg(test)] on_mapped_memory, crate::conformance::place::Mapped);
            crate::conformance::real!([cfg(test)] over_tcp, crate::conformance::place::Served);
            crate::conformance::real!([ignore = "needs an RDMA device: cargo xtask vm-tests"] over_rdma, crate::conformance::place::Reached);
        }
    };
}

/// What the suite asks of a lock over a real fabric; the attribute goes to each test.
macro_rules! real {
    ($attribute:tt $name:ident, $place:ty) => {
        mod $name {
            use crate::conformance::place::Place as _;
            use crate::conformance::service::Subject;

            /// The lock, if the place has the atomics that it needs; else it says so.
            fn subject() -> Option<Subject> {
                let subject = super::subject();
                if <$place>::has_atomics_for(subject.kind) {
                    return Some(subject);
                }
                crate::conformance::exclusion::refused::<$place>(subject);
                None
            }

            #[test]
            # $attribute
            fn threads_exclude_each_other() {
                if let Some(subject) = subject() {
                    crate::conformance::exclusion::threads::<$place>(subject);
                }
            }

            #[test]
            # $attribute
            fn writers_exclude_readers() {
                if let Some(subject) = subject() {
                    crate::conformance::sharing::threads::<$place>(subject);
                }
            }

            #[test]
            # $attribute
            fn readers_are_inside_together() {
                if let Some(subject) = subject() {
                    crate::conformance::sharing::real_readers_are_inside_together::<$place>(subject);
                }
            }

            #[test]
            # $attribute
            fn a_deadline_is_kept() {
                if let Some(subject) = subject() {
                    crate::conformance::timeout::real::<$place>(subject);
                }
            }

            #[test]
            # $attribute
            fn first_come_is_first_served_if_the_lock_says_so() {
                if let Some(subject) = subject() {
                    crate::conformance::order::real_first_come_first_served::<$place>(subject);
                }
            }

            #[test]
            # $attribute
            fn the_lock_survives_clients_that_die() {
                if let Some(subject) = subject() {
                    crate::conformance::deaths::clients_die::<$place>(subject);
                }
            }

            #[test]
            # $attribute
            fn who_stands_still_is_told() {
                if let Some(subject) = subject() {
                    crate::conformance::deaths::who_stands_still_is_told::<$place>(subject);
                }
            }
        }
    };
}
pub(crate) use real;

#[test]
fn every_name_leads_to_its_lock() {
    for (kind, name) in farside_lock::LockKind::named() {
        assert_eq!(farside_lock::LockKind::by_name(name), Some(kind));
        assert_eq!(kind.name(), name);
    }
    let by_name = farside_lock::LockKind::by_name;
    assert_eq!(by_name("declock-ts-tf"), by_name("declock"));
    assert_eq!(by_name("declock-ts"), None);
}

#[test]
fn every_lock_is_in_the_suite() {
    let registered: Vec<&str> = farside_lock::LockKind::named().map(|(_, name)| name).collect();
    assert_eq!(
        registered,
        [
            "cas",
            "cas-backoff",
            "mcs",
            "dslr",
            "dslr-plus",
            "drtm",
            "rma-rw",
            "rpc",
            "declock",
            "shiftlock",
            "cas-rw",
            "dslr-polling",
            "declock-cql",
            "declock-ts-pf",
            "declock-remote-prefer",
            "declock-local-prefer",
            "declock-local-bound",
            "shiftlock-mutex",
            "shiftlock-polling",
            "rma-rw-polling"
        ],
        "a new lock needs a line at the end of this file"
    );
}

#[test]
fn every_entry_has_its_bytes() {
    use farside_lock::{LockKind, LockOptions};
    let options = LockOptions::default();
    for (kind, name) in LockKind::named() {
        let expected = match name {
            "rma-rw" | "rma-rw-polling" => 16,
            shiftlock if shiftlock.starts_with("shiftlock") => 16,
            declock if declock.starts_with("declock") => 8 + 8 * options.declock_capacity,
            _ => 8,
        };
        assert_eq!(kind.entry_bytes(&options), expected, "{name}");
    }
}

#[test]
fn capacities_that_no_queue_has_are_refused() {
    use farside_fabric::sim::{Sim, SimOptions};
    use farside_lock::{LockError, LockKind, Locker};
    let sim = Sim::new(SimOptions::default());
    let endpoint = sim.endpoint(sim.add_compute_node());
    for (capacity, is_one) in [
        (0, false),
        (1, false),
        (2, true),
        (17, false),
        (1024, true),
        (2048, false),
    ] {
        let kind = LockKind::by_name("declock").expect("a registered lock");
        let subject = service::Subject {
            kind,
            declock_capacity: capacity,
        };
        let refused = Locker::new(kind, &endpoint, &subject.site()).err();
        assert_eq!(refused, (!is_one).then_some(LockError::Capacity { capacity }));
        assert_eq!(kind.entry_bytes(&subject.options()), 8 + 8 * capacity);
    }
    let refused = LockError::Capacity { capacity: 17 }.to_string();
    assert_eq!(
        refused,
        "`LockOptions::declock_capacity` is a power of two from 2 to 1024, not 17"
    );
}

conformance!(cas, acquire: [0, 0, 1, 0], release: [0, 1, 0, 0]);
conformance!(cas_backoff, acquire: [0, 0, 1, 0], release: [0, 1, 0, 0]);
conformance!(cas_rw, acquire: [0, 0, 1, 0], release: [0, 0, 1, 0], shared: [[0, 0, 1, 0], [0, 0, 1, 0]]);
conformance!(mcs, acquire: [0, 0, 1, 0], release: [0, 0, 1, 0]);
conformance!(dslr, acquire: [0, 0, 1, 0], release: [0, 0, 1, 0]);
conformance!(dslr_plus, acquire: [0, 0, 1, 0], release: [0, 0, 1, 0]);
conformance!(dslr_polling, acquire: [0, 0, 1, 0], release: [0, 0, 1, 0]);
conformance!(drtm, acquire: [0, 0, 1, 0], release: [0, 1, 0, 0], shared: [[0, 0, 1, 0], [0, 0, 0, 0]]);
conformance!(rma_rw, acquire: [0, 0, 2, 0], release: [0, 0, 2, 0], shared: [[0, 0, 1, 0], [0, 0, 1, 0]]);
conformance!(rma_rw_polling: "rma-rw-polling", acquire: [2, 0, 2, 0], release: [1, 0, 2, 0], shared: [[0, 0, 1, 0], [0, 0, 1, 0]]);
conformance!(rpc, acquire: [0, 0, 0, 1], release: [0, 0, 0, 1]);
conformance!(shiftlock, acquire: [0, 0, 1, 0], release: [0, 0, 1, 0]);
conformance!(shiftlock_mutex: "shiftlock-mutex", acquire: [0, 0, 1, 0], release: [0, 0, 1, 0]);
conformance!(shiftlock_polling: "shiftlock-polling", acquire: [0, 0, 1, 0], release: [0, 0, 1, 0]);
conformance!(declock, acquire: [0, 0, 1, 0], release: [1, 0, 1, 0]);
conformance!(declock_cql: "declock-cql", acquire: [0, 0, 1, 0], release: [1, 0, 1, 0]);
conformance!(declock_ts_pf: "declock-ts-pf", acquire: [0, 0, 1, 0], release: [1, 0, 1, 0]);
conformance!(declock_remote_prefer: "declock-remote-prefer", acquire: [0, 0, 1, 0], release: [1, 0, 1, 0]);
conformance!(declock_local_prefer: "declock-local-prefer", acquire: [0, 0, 1, 0], release: [1, 0, 1, 0]);
conformance!(declock_local_bound: "declock-local-bound", acquire: [0, 0, 1, 0], release: [1, 0, 1, 0]);
conformance!(declock_wide: "declock-cql", capacity: 32, acquire: [0, 0, 1, 0], release: [1, 0, 1, 0], shared: [[0, 0, 1, 0], [1, 0, 1, 0]]);
conformance!(declock_narrow: "declock", capacity: 4, acquire: [0, 0, 1, 0], release: [1, 0, 1, 0], shared: [[0, 0, 1, 0], [1, 0, 1, 0]]);
