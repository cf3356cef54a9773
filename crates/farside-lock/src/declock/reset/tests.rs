//! Resets, message by message.

use super::*;
use crate::LockOptions;
use crate::declock::testing::client;
use crate::testing::{LEASE_NS, LOCK, Machine, Stage};

/// A machine that is in the roster.
fn listed_with(stage: &Stage, options: LockOptions) -> (Machine, Client, Member) {
    let machine = stage.machine_with(options);
    let client = client(&machine);
    let member = stage.sim.block_on(client.enlist()).expect("there is room");
    (machine, client, member)
}

fn listed(stage: &Stage) -> (Machine, Client, Member) {
    listed_with(stage, Stage::options())
}

/// Lets a client reset the lock.
fn reset(machine: &Machine, client: &Client) -> crate::testing::Watched<Result<bool, LockError>> {
    let (task, local) = (client.clone(), client.node.local(LOCK));
    machine.spawn(async move { task.reset(&local, 0).await })
}

/// The whole queue is blank afterwards, and nothing else; everybody is asked once, and answers once.
#[test]
fn a_reset_writes_the_entry_and_asks_everybody_once() {
    let stage = Stage::new();
    let others: Vec<_> = (0..3).map(|_| listed(&stage)).collect();
    let (machine, client, _) = listed(&stage);
    let header = Header::FREE.with_head(5).with_size(3).with_writers(2);
    stage.set_word(LOCK, header.0);
    let end = QUEUE_AT + client.node.queue_bytes();
    (QUEUE_AT..end + 8)
        .step_by(8)
        .for_each(|at| stage.set_word(LOCK.plus(at), u64::MAX));
    let starts: Vec<_> = others.iter().map(|(other, ..)| other.costs()).collect();
    let start = machine.costs();
    let done = reset(&machine, &client);
    stage.run_for(LEASE_NS / 4);
    assert_eq!(done.take(), Some(Ok(true)));
    assert_eq!(stage.word(LOCK), header.after_reset().0);
    let queue = (QUEUE_AT..end).step_by(8).map(|at| stage.word(LOCK.plus(at)));
    assert_eq!(queue.collect::<Vec<_>>(), vec![0; client.node.capacity() as usize]);
    assert_eq!(stage.word(LOCK.plus(end)), u64::MAX);
    // The header, and the roster; queue and header; the mark; the others.
    assert_eq!(machine.cost_since(&start), [2, 2, 1, 3]);
    for ((other, ..), start) in others.iter().zip(&starts) {
        assert_eq!(other.cost_since(start), [0, 0, 0, 1]);
    }
}

#[test]
fn who_comes_late_resets_nothing() {
    let stage = Stage::new();
    let (machine, client, member) = listed(&stage);
    let marked = Header::FREE.with_size(1).with_reset_id(u64::from(member.0) + 1);
    stage.set_word(LOCK, marked.0);
    let start = machine.costs();
    let local = client.node.local(LOCK);
    assert_eq!(stage.sim.block_on(client.reset(&local, 0)), Ok(false));
    assert_eq!(stage.word(LOCK), marked.0);
    assert_eq!(machine.cost_since(&start), [1, 0, 0, 0]);
    client.start_reset(&local, 0);
    assert!(local.is_resetting.get());
    stage.run_for(LEASE_NS / 4);
    assert!(!local.is_resetting.get());
    assert_eq!(machine.site.resets().count, 0, "it was not us");
}

/// A holder that takes its time says so, and is waited for; alone or beside others.
#[test]
fn a_holder_that_answers_is_not_cut_off() {
    for holders in [1, 2] {
        let stage = Stage::new();
        let held: Vec<_> = (0..holders).map(|_| listed(&stage)).collect();
        let (machine, client, _) = listed(&stage);
        for (_, holder, _) in &held {
            holder.node.local(LOCK).begin();
        }
        let done = reset(&machine, &client);
        stage.run_for(10 * LEASE_NS);
        assert!(done.take().is_none(), "{holders} hold it");
        for (machine, holder, _) in &held {
            assert!(!stage.sim.is_fenced(machine.endpoint.id()), "{holders} hold it");
            let told = holder.node.local(LOCK).end();
            assert_eq!(told.len(), 1);
            for asked in told {
                let answer = holder.answer(LOCK, asked, LetterKind::Done);
                stage.sim.block_on(answer).expect("somebody waits for it");
            }
        }
        stage.run_for(LEASE_NS / 4);
        assert_eq!(done.take(), Some(Ok(true)), "{holders} held it");
    }
}

/// A lease is two halves in which everybody is asked again; after four of them without a word it is over.
#[test]
fn a_member_that_is_silent_for_two_leases_is_cut_off() {
    for notice_ns in [0, LEASE_NS] {
        let stage = Stage::new();
        let (silent, _, member) = listed(&stage);
        let options = LockOptions {
            declock_notice_ns: notice_ns,
            ..Stage::options()
        };
        let (machine, client, me) = listed_with(&stage, options);
        stage.sim.pause_client(silent.endpoint.id());
        let start = machine.costs();
        let done = reset(&machine, &client);
        stage.run_for(2 * LEASE_NS);
        let word = || stage.word(crate::testing::ROSTER.plus(8 * (u64::from(member.0) & 1023)));
        let is_warned = || word() >> 45 & 1 == 1;
        assert!(!stage.sim.is_fenced(silent.endpoint.id()));
        assert!(!is_warned());
        // Once per half lease.
        assert_eq!(machine.cost_since(&start)[3], 4);
        stage.run_for(50_000);
        if notice_ns > 0 {
            assert!(is_warned() && !stage.sim.is_fenced(silent.endpoint.id()));
            assert!(done.take().is_none());
            stage.run_for(notice_ns - 100_000);
            assert!(!stage.sim.is_fenced(silent.endpoint.id()), "it has time to find out");
            stage.run_for(100_000);
        }
        assert!(stage.sim.is_fenced(silent.endpoint.id()));
        assert!(!stage.sim.is_fenced(machine.endpoint.id()));
        assert_eq!(done.take(), Some(Ok(true)));
        let mut cx = machine.cx();
        let left = stage.sim.block_on(client.roster().everybody(&mut cx));
        let left: Vec<Member> = left
            .expect("the node is there")
            .into_iter()
            .map(|(member, _)| member)
            .collect();
        assert_eq!(left, [me]);
    }
}

#[test]
fn whoever_is_gone_is_cut_off_at_once() {
    let stage = Stage::new();
    let (gone, ..) = listed(&stage);
    let (machine, client, _) = listed(&stage);
    stage.sim.crash_client(gone.endpoint.id());
    // So that a lease ago is no time before the world began.
    stage.run_for(3 * LEASE_NS);
    let done = reset(&machine, &client);
    stage.run_for(LEASE_NS);
    assert_eq!(done.take(), Some(Ok(true)));
    assert!(stage.sim.is_fenced(gone.endpoint.id()));
}

/// Only a second reset of the same lock by the same node waits for the first.
#[test]
fn a_node_resets_a_lock_once_at_a_time() {
    let stage = Stage::new();
    let (machine, client, _) = listed(&stage);
    let local = client.node.local(LOCK);
    let start = machine.costs();
    client.start_reset(&local, 0);
    client.start_reset(&local, 0);
    stage.run_for(LEASE_NS / 4);
    assert_eq!(machine.cost_since(&start), [2, 2, 1, 0]);
    assert_eq!(machine.site.resets().count, 1);
    assert!(machine.site.resets().spent_ns > 0);
}

#[test]
fn why_a_reset_fails_is_kept_for_who_waits() {
    let stage = Stage::new();
    let (_machine, client, _) = listed(&stage);
    let local = client.node.local(LOCK);
    stage.sim.crash_node(crate::testing::NODE);
    client.start_reset(&local, 0);
    stage.run_for(10 * LEASE_NS);
    assert!(!local.is_resetting.get());
    assert!(local.reset_failure.take().is_some());
    assert_eq!(client.node.resets().count, 0);
}
