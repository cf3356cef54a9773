//! What the tests of a CQL lock's parts share.

use std::rc::Rc;

use super::client::Client;
use crate::testing::Machine;

/// The client of a machine.
pub(super) fn client(machine: &Machine) -> Client {
    Client {
        endpoint: machine.endpoint.clone(),
        node: machine.site.declock().clone(),
        inbox: machine.site.inbox(machine.endpoint.id()),
        retries: Rc::default(),
    }
}
