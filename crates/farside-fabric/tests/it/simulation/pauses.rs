//! Pausing a client: it stands still, and what it set in motion does not.

use super::*;

#[test]
fn a_paused_client_stands_still_and_its_verbs_do_not() {
    for_seeds(|seed| {
        let small = Small::new(SimOptions {
            jitter_ns: 500,
            ..seeded(seed)
        });
        let endpoint = small.endpoint();
        let rounds = Rc::new(Cell::new(0));
        for task in 0..3 {
            let mut op = OpContext::new(endpoint.clone());
            let (addr, rounds) = (small.at(task * 8), Rc::clone(&rounds));
            endpoint.spawn(async move {
                while op.fetch_add(addr, 1).await.is_ok_and(|before| before < 99) {
                    rounds.set(rounds.get() + 1);
                }
            });
        }
        small.sim.run_until(20_000);
        small.sim.pause_client(endpoint.id());
        assert!(small.sim.is_paused(endpoint.id()));
        let before = rounds.get();
        assert!(before > 0 && before < 297, "{before} rounds");
        small.sim.run_until_idle();
        assert_eq!(rounds.get(), before, "nobody was polled");
        let words: u64 = (0..3).map(|task| small.word(task * 8)).sum();
        assert_eq!(words, before + 3, "the verb in flight of each task took effect");
        small.sim.resume_client(endpoint.id());
        small.sim.run_until_idle();
        assert_eq!(rounds.get(), 297);
        assert_eq!(small.sim.operations_in_flight(), 0);
    });
}

#[test]
fn deadlines_pass_and_messages_arrive_during_a_pause() {
    let small = Small::new(seeded(1));
    let (sleeper, other) = (small.endpoint(), small.endpoint());
    let seen = Rc::new(RefCell::new(Vec::new()));
    let (receiver, log, node) = (sleeper.clone(), Rc::clone(&seen), small.node);
    small.sim.partition(small.compute_node, node);
    sleeper.spawn(async move {
        let mut op = OpContext::new(receiver.clone());
        op.set_deadline(receiver.deadline_in(10_000));
        let read = op.read_word(RemoteAddr::new(node, 0)).await.map(drop);
        assert_eq!(read, Err(FabricError::DeadlineExceeded { node }));
        log.borrow_mut().push((receiver.now_ns(), 0));
        let received = receiver.receive(Deadline::NEVER).await.expect("it was sent");
        log.borrow_mut().push((receiver.now_ns(), received.message[0]));
    });
    small.sim.run_until(1_000);
    small.sim.pause_client(sleeper.id());
    small.sim.run_until(20_000);
    let message = Message::from_iter([1]);
    let sent = small.sim.block_on(other.send(sleeper.id(), &message, Deadline::NEVER));
    assert_eq!(sent, Ok(()), "its mailbox takes messages");
    small.sim.run_until(50_000);
    assert!(seen.borrow().is_empty());
    small.sim.resume_client(sleeper.id());
    small.sim.run_until_idle();
    assert_eq!(*seen.borrow(), [(50_000, 0), (50_000, 1)]);
}

#[test]
fn tasks_that_were_woken_during_a_pause_run_in_the_order_of_waking() {
    let small = Small::new(seeded(1));
    let endpoint = small.endpoint();
    let order = Rc::new(RefCell::new(Vec::new()));
    for task in [3_u64, 1, 2] {
        let (sleeper, order) = (endpoint.clone(), Rc::clone(&order));
        endpoint.spawn(async move {
            sleeper.sleep(task * 1_000).await;
            order.borrow_mut().push(task);
        });
    }
    small.sim.run_until(10);
    small.sim.pause_client(endpoint.id());
    // Started during the pause: it waits, too.
    let late = Rc::clone(&order);
    endpoint.spawn(async move { late.borrow_mut().push(0) });
    small.sim.run_until(10_000);
    assert!(order.borrow().is_empty());
    small.sim.resume_client(endpoint.id());
    small.sim.run_until_idle();
    assert_eq!(*order.borrow(), [0, 1, 2, 3]);
}

#[test]
fn a_paused_client_can_crash_and_is_not_resumed() {
    let small = Small::new(SimOptions {
        trace_entries: 2,
        ..seeded(1)
    });
    let endpoint = small.endpoint();
    let kept = Rc::new(());
    let (sleeper, guard) = (endpoint.clone(), Rc::clone(&kept));
    endpoint.spawn(async move {
        sleeper.sleep(1_000).await;
        drop(guard);
        panic!("a crashed client goes on");
    });
    small.sim.run_until(10);
    small.sim.pause_client(endpoint.id());
    let tail = small.sim.trace_tail();
    assert_eq!(tail.last().map(|entry| entry.step), Some(Step::Fault));
    small.sim.run_until(5_000);
    small.sim.crash_client(endpoint.id());
    assert_eq!(Rc::strong_count(&kept), 1, "its tasks were dropped");
    small.sim.resume_client(endpoint.id());
    small.sim.pause_client(endpoint.id());
    assert!(!small.sim.is_paused(endpoint.id()));
    small.sim.run_until_idle();
}

#[test]
fn a_task_that_pauses_its_own_client_runs_up_to_its_next_await() {
    let small = Small::new(seeded(1));
    let endpoint = small.endpoint();
    let steps = Rc::new(Cell::new(0));
    let (sim, own, seen) = (small.sim.clone(), endpoint.clone(), Rc::clone(&steps));
    endpoint.spawn(async move {
        sim.pause_client(own.id());
        seen.set(1);
        own.sleep(10).await;
        seen.set(2);
    });
    small.sim.run_until(1_000);
    assert_eq!(steps.get(), 1);
    small.sim.resume_client(endpoint.id());
    small.sim.run_until_idle();
    assert_eq!(steps.get(), 2);
}
