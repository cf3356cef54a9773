//! What is so now against what is written down; of all crates that have ledgers.

use std::collections::BTreeSet;
use std::path::Path;

/// Compares with the ledger of this name of this crate, or writes it if `FARSIDE_RENEW` says so.
///
/// # Panics
/// If they differ.
pub(crate) fn compare(name: &str, ledger: &str, text: &str) {
    if std::env::var_os("FARSIDE_RENEW").is_some() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("ledger").join(name);
        std::fs::write(path, text).expect("the sources can be written");
        return;
    }
    let (before, now): (BTreeSet<&str>, BTreeSet<&str>) = (ledger.lines().collect(), text.lines().collect());
    let only = |these: &BTreeSet<&str>, those: &BTreeSet<&str>| {
        let some = these.difference(those).take(8);
        some.copied().collect::<Vec<_>>().join("\n")
    };
    assert!(
        ledger == text,
        "{name} is not what it was; if that is meant: cargo xtask ledger --renew\n{}\nbefore\n{}\nnow\n{}",
        text.lines().next().unwrap_or_default(),
        only(&before, &now),
        only(&now, &before),
    );
}
