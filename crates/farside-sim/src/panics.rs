//! What a panic said, for runs that are expected to panic when something is wrong.

use std::cell::{Cell, RefCell};
use std::sync::Once;

thread_local! {
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

/// While it lives, panics of this thread are kept instead of printed.
pub(crate) struct Quiet {
    was_quiet: bool,
}

impl Quiet {
    pub(crate) fn new() -> Self {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let print = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                if IS_QUIET.get() {
                    LAST.set(info.to_string());
                } else {
                    print(info);
                }
            }));
        });
        let was_quiet = IS_QUIET.replace(true);
        Self { was_quiet }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        IS_QUIET.set(self.was_quiet);
    }
}

/// What the last panic said.
pub(crate) fn take_last() -> String {
    LAST.take()
}
