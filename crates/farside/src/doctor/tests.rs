//! What facts mean: no file, no node and no clock.

use std::path::PathBuf;

use farside_fabric::NodeId;
use farside_fabric::message::EndpointId;
use farside_gateway::{MemberReport, MirrorReport};
use farside_pool::client::{ClientEntry, Liveness};
use farside_pool::{Member, Members, NodeState, Phase, Standing, Usage};

use super::finding::{Finding, Report, State};
use super::machine::{MachineFacts, Mount, SegmentFacts, UnitFacts, chosen, mount_of};
use super::pool::{NodeFacts, PoolFacts, Reached, SecretFile, Trouble};
use super::{judge, machine};

const POOL: u64 = 0xfa;

fn entry(liveness: Liveness) -> ClientEntry {
    ClientEntry {
        liveness,
        life: 1,
        endpoint: Some(EndpointId(9)),
        lease: 5,
        published: 1,
        drained: 1,
        parked: 0,
        audited: 0,
        members: 0,
        held: 0,
    }
}

fn node(number: u16, place: &str) -> NodeFacts {
    NodeFacts {
        number: number.into(),
        place: place.to_owned(),
        state: Some(NodeState::Active),
        reached: Ok(Reached {
            identity: Some((POOL, number)),
            usage: Usage {
                bytes: 100 << 20,
                bytes_free: 50 << 20,
                members: Some(Members::default()),
                ..Usage::default()
            },
            bytes: 100 << 20,
        }),
        mirror: None,
    }
}

/// Two nodes and one client, all well.
fn healthy() -> PoolFacts {
    let members = (0..2).map(|number| Member {
        node: NodeId::new(number),
        state: NodeState::Active,
        place: None,
    });
    PoolFacts {
        name: "tcp:a:1,shm:/m".to_owned(),
        secret: None,
        nodes: vec![node(0, "tcp:a:1"), node(1, "shm:/m")],
        standing: Some(Standing {
            pool_id: POOL,
            members: members.collect(),
            clients: vec![(3, entry(Liveness::Live))],
            clients_max: 1024,
            lagging: Vec::new(),
            snapshot: None,
        }),
        still: Vec::new(),
    }
}

fn standing(facts: &mut PoolFacts) -> &mut Standing {
    facts.standing.as_mut().expect("it was read")
}

/// The findings that are not ok.
fn troubles(facts: &PoolFacts) -> Vec<(State, String, String, String)> {
    let findings = judge::pool(facts).into_iter();
    let troubles = findings.filter(|finding| finding.state != State::Ok);
    troubles
        .map(|finding| {
            (
                finding.state,
                finding.about,
                finding.text,
                finding.next.unwrap_or_default(),
            )
        })
        .collect()
}

/// The one finding that is not ok: its state and subject, and its next command; its text has these words.
#[track_caller]
fn only(facts: &PoolFacts, words: &str) -> (State, String, String) {
    let troubles = troubles(facts);
    let [(state, about, text, next)] = &troubles[..] else {
        panic!("one trouble: {troubles:#?}");
    };
    assert!(text.contains(words), "{text}");
    (*state, about.clone(), next.clone())
}

fn found(state: State, about: &str, next: &str) -> (State, String, String) {
    (state, about.to_owned(), next.to_owned())
}

#[test]
fn healthy_pool_is_well() {
    assert_eq!(troubles(&healthy()), []);
    let report = Report::new(judge::pool(&healthy()));
    assert!(report.is_well);
    assert!(report.text().ends_with("\nall is well\n"), "{}", report.text());
}

#[test]
fn node_that_is_away_is_wrong_and_says_what_to_type() {
    for (place, next) in [
        ("tcp:b:2", "farside node --segment PATH --listen b:2"),
        ("tcp:b:2+c:3", "farside node --mirrored --segment PATH --listen b:2"),
        ("shm:/m", "ls -l /m"),
    ] {
        let mut facts = healthy();
        facts.nodes[1].place = place.to_owned();
        facts.nodes[1].reached = Err(Trouble::Away("it did not answer within 5000 ms".to_owned()));
        assert_eq!(only(&facts, "within 5000 ms"), found(State::Wrong, "node 1", next));
    }
}

#[test]
fn nodes_in_another_order_or_of_another_pool_are_wrong() {
    let mut facts = healthy();
    facts.nodes[1].reached.as_mut().expect("it is").identity = Some((POOL, 2));
    assert_eq!(only(&facts, "is node 2 of its pool"), found(State::Wrong, "node 1", ""));
    facts.nodes[1].reached.as_mut().expect("it is").identity = Some((7, 1));
    assert_eq!(
        only(&facts, "pool 0000000000000007"),
        found(State::Wrong, "node 1", "farside pool status --pool shm:/m")
    );
}

#[test]
fn memory_without_a_pool_is_to_be_looked_at() {
    let mut facts = healthy();
    facts.nodes.truncate(1);
    facts.name = "tcp:a:1".to_owned();
    facts.standing = None;
    let reached = facts.nodes[0].reached.as_mut().expect("it is");
    (reached.identity, reached.usage) = (None, Usage::default());
    assert_eq!(
        only(&facts, "holds no pool yet"),
        found(State::Look, "node 0", "farside gateway --pool tcp:a:1")
    );
}

#[test]
fn secrets_that_are_missing_or_that_others_may_read_are_named() {
    let mut facts = healthy();
    facts.nodes[0].reached = Err(Trouble::Secret("a:1 requires a secret".to_owned()));
    assert_eq!(
        only(&facts, "requires a secret"),
        found(
            State::Wrong,
            "node 0",
            "farside doctor --pool tcp:a:1,shm:/m --secret-file PATH"
        )
    );
    let mut facts = healthy();
    let path = PathBuf::from("/etc/secret");
    let secret = |mode| {
        Some(SecretFile {
            path: path.clone(),
            mode: Some(mode),
        })
    };
    facts.secret = secret(0o100_600);
    assert_eq!(troubles(&facts), []);
    facts.secret = secret(0o100_640);
    assert_eq!(
        only(&facts, "other users"),
        found(State::Look, "secret", "chmod 600 /etc/secret")
    );
}

#[test]
fn growth_and_drains_that_are_not_finished_are_repeated() {
    let mut facts = healthy();
    facts.nodes[1].state = Some(NodeState::Joining);
    assert_eq!(
        only(&facts, "repeat it"),
        found(
            State::Look,
            "node 1",
            "farside pool add-node --pool tcp:a:1,shm:/m shm:/m"
        )
    );
    facts.nodes[1].state = Some(NodeState::Draining);
    assert_eq!(
        only(&facts, "repeat it"),
        found(State::Look, "node 1", "farside pool drain --pool tcp:a:1,shm:/m 1")
    );
    facts.nodes[1].state = Some(NodeState::Removed);
    facts.nodes[1].reached = Err(Trouble::Away("it was removed".to_owned()));
    assert_eq!(troubles(&facts), []);
}

#[test]
fn memory_that_runs_out_is_to_be_looked_at() {
    let mut facts = healthy();
    for node in &mut facts.nodes {
        node.reached.as_mut().expect("it is").usage.bytes_free = 9 << 20;
    }
    assert_eq!(
        only(&facts, "18 MiB of 200 MiB free (9 %)"),
        found(
            State::Look,
            "space",
            "farside pool add-node --pool tcp:a:1,shm:/m --memory SIZE ADDRESS"
        )
    );
}

#[test]
fn clients_that_died_are_told_apart_by_who_can_take_over() {
    let gateway = "farside gateway --pool tcp:a:1,shm:/m";
    let mut facts = healthy();
    facts.still = vec![3];
    assert_eq!(
        only(&facts, "client 3 has not renewed"),
        found(State::Look, "clients", gateway)
    );
    let mut facts = healthy();
    standing(&mut facts).clients.push((4, entry(Liveness::Dead)));
    standing(&mut facts).clients.push((5, entry(Liveness::Dying)));
    let (state, about, next) = only(&facts, "clients 4, 5 have been declared dead");
    assert_eq!((state, &*about), (State::Look, "clients"));
    assert!(
        next.starts_with("farside pool status"),
        "the live one takes over: {next}"
    );
    standing(&mut facts).clients.remove(0);
    assert_eq!(only(&facts, "any gateway"), found(State::Look, "clients", gateway));
}

#[test]
fn clients_that_lag_or_fill_the_table_are_to_be_looked_at() {
    let mut facts = healthy();
    standing(&mut facts).lagging = vec![3];
    assert_eq!(only(&facts, "client 3 has not connected").0, State::Look);
    let mut facts = healthy();
    standing(&mut facts).clients_max = 20;
    standing(&mut facts).clients = (0..19).map(|client| (client, entry(Liveness::Live))).collect();
    assert_eq!(only(&facts, "19 of 20").0, State::Look);
}

#[test]
fn gate_that_a_dead_exporter_has_closed_is_wrong() {
    let mut facts = healthy();
    standing(&mut facts).snapshot = Some((Phase::Closed, 3, 1));
    assert_eq!(troubles(&facts), [], "the exporter lives");
    // Another client has its place since.
    standing(&mut facts).snapshot = Some((Phase::Closed, 3, 0));
    assert_eq!(
        only(&facts, "changes wait"),
        found(State::Wrong, "export", "farside gateway --pool tcp:a:1,shm:/m")
    );
    standing(&mut facts).snapshot = Some((Phase::Active, 8, 1));
    assert_eq!(only(&facts, "blocks wait").0, State::Look);
}

fn group(has_primary: bool, members: &[(&str, &str, u64, u64)]) -> PoolFacts {
    let mut facts = healthy();
    facts.secret = Some(SecretFile {
        path: "/s".into(),
        mode: None,
    });
    let members = members
        .iter()
        .map(|&(address, role, lag_entries, lag_bytes)| MemberReport {
            address: address.to_owned(),
            role: role.to_owned(),
            lag_entries,
            lag_bytes,
            ..MemberReport::default()
        });
    facts.nodes[0].mirror = Some(MirrorReport {
        epoch: 4,
        primary: "a:1".to_owned(),
        has_primary,
        committed: 10,
        members: members.collect(),
    });
    facts
}

#[test]
fn groups_that_lack_a_member_say_who_goes_and_who_comes() {
    let well = group(true, &[("a:1", "primary", 0, 0), ("b:2", "backup", 1, 0)]);
    assert_eq!(troubles(&well), []);
    for (has_primary, members, words, state, next) in [
        (
            true,
            &[("a:1", "primary", 0, 0), ("b:2", "silent", 9, 0)][..],
            "b:2 of epoch 4 does not answer",
            State::Wrong,
            "farside pool remove-backup --pool tcp:a:1+b:2 --secret-file /s b:2 --silent-are-off",
        ),
        (
            true,
            &[("a:1", "primary", 0, 0), ("b:2", "joining", 9, 1 << 20)],
            "b:2 catches up with primary a:1: 1 MiB to copy",
            State::Look,
            "farside pool status --pool tcp:a:1+b:2 --secret-file /s",
        ),
        (
            true,
            &[("a:1", "primary", 0, 0), ("b:2", "idle", 0, 0)],
            "b:2 answers and follows nobody",
            State::Look,
            "farside pool add-backup --pool tcp:a:1+b:2 --secret-file /s b:2",
        ),
        (
            true,
            &[("a:1", "primary", 0, 0)],
            "no backup",
            State::Look,
            "farside node --backup-of a:1 --segment PATH --memory SIZE --listen HOST:PORT",
        ),
        (
            false,
            &[("a:1", "silent", 0, 0), ("b:2", "backup", 0, 0)],
            "backup b:2 has all",
            State::Wrong,
            "farside pool promote --pool tcp:a:1+b:2 --secret-file /s b:2",
        ),
        (
            false,
            &[("a:1", "silent", 0, 0), ("b:2", "idle", 0, 0)],
            "no backup answers",
            State::Wrong,
            "farside node --mirrored --segment PATH --listen a:1",
        ),
    ] {
        let facts = group(has_primary, members);
        assert_eq!(only(&facts, words), found(state, "mirror 0", next));
    }
}

#[test]
fn groups_of_a_cluster_are_left_to_etcd() {
    for (has_primary, members, words, state, next) in [
        (
            true,
            &[("a:1", "primary", 0, 0), ("b:2", "silent", 9, 0)][..],
            "goes on without it",
            State::Look,
            "farside pool status --pool etcd:e:1/main --secret-file /s",
        ),
        (
            false,
            &[("a:1", "silent", 0, 0), ("b:2", "backup", 0, 0)],
            "b:2 takes over",
            State::Wrong,
            "farside pool status --pool etcd:e:1/main --secret-file /s",
        ),
        (
            true,
            &[("a:1", "primary", 0, 0)],
            "no backup",
            State::Look,
            "farside node --cluster etcd:e:1/main --node 0 --segment PATH --memory SIZE --listen HOST:PORT",
        ),
        (
            false,
            &[("a:1", "silent", 0, 0)],
            "no backup answers",
            State::Wrong,
            "farside node --cluster etcd:e:1/main --node 0 --segment PATH --listen a:1",
        ),
    ] {
        let mut facts = group(has_primary, members);
        facts.name = "etcd:e:1/main".to_owned();
        assert_eq!(only(&facts, words), found(state, "mirror 0", next));
    }
}

#[test]
fn machine_that_is_as_it_should_be_is_well() {
    let facts = MachineFacts {
        processors: 8,
        huge_pages: Some("madvise".to_owned()),
        shared_memory: Some((100, 90)),
        files_max: Some(65_536),
        units: Some(Vec::new()),
        ..MachineFacts::default()
    };
    let report = Report::new(machine::judge(&facts));
    assert!(report.text().ends_with("\nall is well\n"), "{}", report.text());
}

/// What a machine is asked to do.
fn next(facts: &MachineFacts) -> Vec<(State, String)> {
    let findings: Vec<Finding> = machine::judge(facts);
    let asked = findings.into_iter().filter(|finding| finding.state != State::Ok);
    asked
        .map(|finding| (finding.state, finding.next.unwrap_or_default()))
        .collect()
}

#[test]
fn limits_of_a_machine_come_with_the_command_that_raises_them() {
    let facts = MachineFacts {
        processors: 2,
        huge_pages: Some("never".to_owned()),
        shared_memory: Some((1 << 30, 1 << 20)),
        rdma_devices: vec!["mlx5_0".to_owned()],
        locked_max: Some(1 << 16),
        files_max: Some(4096),
        ..MachineFacts::default()
    };
    assert_eq!(
        next(&facts),
        [
            "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",
            "sudo mount -o remount,size=SIZE /dev/shm",
            "ulimit -l unlimited",
            "ulimit -Hn 65536",
        ]
        .map(|command| (State::Look, command.to_owned()))
    );
}

#[test]
fn segment_for_which_there_is_no_memory_is_wrong() {
    let mut facts = MachineFacts {
        processors: 2,
        segments: vec![SegmentFacts {
            path: "/dev/shm/a".into(),
            bytes: 4 << 30,
            bytes_given: 1 << 30,
            bytes_free: 3 << 30,
            mount: Mount {
                place: "/dev/shm".to_owned(),
                kind: "tmpfs".to_owned(),
                options: "rw,huge=advise".to_owned(),
            },
        }],
        ..MachineFacts::default()
    };
    assert_eq!(next(&facts), []);
    facts.segments[0].mount.options = "rw,huge=never".to_owned();
    facts.segments[0].bytes_free -= 1;
    assert_eq!(
        next(&facts),
        [
            (State::Wrong, "sudo mount -o remount,size=SIZE /dev/shm".to_owned()),
            (State::Look, "sudo mount -o remount,huge=advise /dev/shm".to_owned())
        ]
    );
}

#[test]
fn units_should_run_if_they_are_started_with_the_machine() {
    let unit = |is_enabled, is_running| UnitFacts {
        name: "farside.service",
        is_enabled,
        is_running,
    };
    let facts = MachineFacts {
        processors: 2,
        units: Some(vec![
            unit(true, true),
            unit(false, false),
            unit(true, false),
            unit(false, true),
        ]),
        ..MachineFacts::default()
    };
    assert_eq!(
        next(&facts),
        [
            (State::Wrong, "systemctl status farside.service".to_owned()),
            (State::Look, "sudo systemctl enable farside.service".to_owned())
        ]
    );
}

#[test]
fn what_the_kernel_says_is_read() {
    assert_eq!(chosen("always [madvise] never\n"), Some("madvise"));
    assert_eq!(chosen("always madvise"), None);
    let mounts = "/dev/sda1 / ext4 rw 0 0\ntmpfs /dev/shm tmpfs rw,nosuid,huge=advise 0 0\nbroken\n";
    let mount = mount_of("/dev/shm/a".as_ref(), mounts);
    assert_eq!((&*mount.kind, &*mount.options), ("tmpfs", "rw,nosuid,huge=advise"));
    assert_eq!(mount_of("/dev/shmem/a".as_ref(), mounts).place, "/");
    assert_eq!(mount_of("/a".as_ref(), ""), Mount::default());
}

#[test]
fn findings_are_lines_whatever_is_in_them() {
    let report = Report::new(vec![
        Finding::wrong("node 0", "it said:\nno").next("farside node"),
        Finding::look("processors", "1"),
    ]);
    assert!(!report.is_well);
    assert_eq!(
        report.text(),
        "wrong  node 0      it said: no\n                   next: farside node\nlook   processors  1\n1 wrong, 1 to look at\n"
    );
    let json = serde_json::to_string(&report).expect("plain data");
    assert!(
        json.contains(r#""findings":[{"state":"wrong","about":"node 0","text":"it said: no","next":"farside node"},"#),
        "{json}"
    );
}
