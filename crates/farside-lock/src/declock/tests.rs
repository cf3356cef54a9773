//! What remains of a DecLock when nobody uses it any more.

use std::rc::Rc;

use super::*;
use crate::testing::{LOCK, Stage};

/// A compute node knows when none of its clients uses a lock any more, with every policy.
#[test]
fn a_lock_that_nobody_uses_is_idle() {
    for policy in [
        Policy::Cql,
        Policy::TimestampTaskFair,
        Policy::TimestampPhaseFair,
        Policy::RemotePrefer,
        Policy::LocalPrefer,
        Policy::LocalBound,
    ] {
        for mode in [Mode::Shared, Mode::Exclusive] {
            let stage = Stage::new();
            let machines = [stage.machine(), stage.machine()].map(Rc::new);
            let done = machines.each_ref().map(|machine| {
                let tasks = (0..3).map(|_| {
                    let machine = Rc::clone(machine);
                    let node = machine.site.declock().clone();
                    let inbox = machine.site.inbox(machine.endpoint.id());
                    let lock = DecLock::new(node, inbox, policy).expect("there is a roster");
                    Rc::clone(&machine).spawn(async move {
                        let mut cx = machine.cx();
                        let grant = lock.acquire(&mut cx, LOCK, mode).await.expect("the node is there");
                        assert!(machine.site.declock().known(LOCK).is_some());
                        machine.endpoint.sleep(5_000).await;
                        lock.release(&mut cx, grant).await.expect("the node is there");
                    })
                });
                tasks.collect::<Vec<_>>()
            });
            stage.run_for(200_000);
            assert!(done.iter().flatten().all(|done| done.take().is_some()), "{policy:?}");
            for machine in &machines {
                let node = machine.site.declock();
                assert!(node.is_idle(), "{policy:?}, {mode:?}");
            }
        }
    }
}
