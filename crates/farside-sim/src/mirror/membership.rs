//! The membership: takes one view per epoch, and tells members, sometimes late.

use farside_fabric::mirror::View;

/// What a service like etcd keeps of one group.
#[derive(Default, Debug)]
pub(super) struct Membership {
    views: Vec<View>,
    /// Until when nobody is answered.
    pub(super) down_until_ns: u64,
}

impl Membership {
    /// Takes the view if its epoch is the next, or if it is the one that was taken. Returns the newest.
    pub(super) fn propose(&mut self, view: &View) -> &View {
        let newest = self.views.last().map_or(0, |newest| newest.epoch);
        if view.epoch == newest + 1 {
            self.views.push(view.clone());
        }
        self.views.last().expect("the first proposal is taken")
    }

    pub(super) fn newest(&self) -> Option<&View> {
        self.views.last()
    }
}
