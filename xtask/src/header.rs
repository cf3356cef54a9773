//! `cargo xtask header`: writes `crates/farside-c/include/farside.h` from the sources, or checks that it is what they say.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use cbindgen::{Builder, Config, EnumConfig, Language, RenameRule, Style};

use crate::step;

/// What the types of the crate are called in C.
const NAMES: &[(&str, &str)] = &[
    ("OpenStore", "farside_store"),
    ("StoreOptions", "farside_options"),
    ("ItemIterator", "farside_iterator"),
    ("ThreadTransaction", "farside_transaction"),
    ("NamedLocks", "farside_locks"),
    ("HeldLock", "farside_lock"),
    ("LockHolder", "farside_holder"),
    ("Slice", "farside_slice"),
    ("Status", "farside_status"),
];
/// Those that stand for a pointer of the caller (`src/border.rs`), and the pointer.
const POINTERS: &[(&str, &str)] = &[
    ("In", "const void *"),
    ("Out", "void *"),
    ("Text", "const char *"),
    ("Slices", "const struct farside_slice *"),
    ("OutSlices", "struct farside_slice *"),
];

const ABOUT: &str = "\
/*
 * Farside for C: a key-value store, locks and transactions in memory that threads, processes or machines share.
 *
 * docs/c.md is the introduction. Written by `cargo xtask header`; do not edit it.
 *
 * Functions answer a status, but for three that cannot fail. Keys, values and names are bytes with a length; an empty one may be
 * NULL. A pointer that is passed has to be valid during the call, and no longer. Handles may be used by any thread unless it
 * says otherwise, but nobody may use one that is being closed, or was. In the child of a fork() no handle of the parent can be
 * used (FARSIDE_FORKED). Signal handlers call nothing of this.
 */";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Write nothing, and fail if the header is not what the sources say
    #[arg(long)]
    check: bool,
}

fn path() -> PathBuf {
    folder().join("include/farside.h")
}

/// The crate that is the library for C.
pub(crate) fn folder() -> PathBuf {
    step::workspace_root().join("crates/farside-c")
}

pub(crate) fn run(options: &Options) -> Result<()> {
    if options.check {
        return check();
    }
    std::fs::write(path(), generated()?).context("failed to write the header")
}

/// Fails if the header is not what the sources say.
pub(crate) fn check() -> Result<()> {
    let written = std::fs::read_to_string(path()).context("failed to read the header")?;
    if written != generated()? {
        bail!("crates/farside-c/include/farside.h is not what the sources say; `cargo xtask header` writes it anew");
    }
    Ok(())
}

fn generated() -> Result<String> {
    let mut config = Config {
        language: Language::C,
        style: Style::Both,
        cpp_compat: true,
        include_guard: Some("FARSIDE_H".to_owned()),
        header: Some(ABOUT.to_owned()),
        documentation_length: cbindgen::DocumentationLength::Full,
        line_length: 110,
        usize_is_size_t: true,
        no_includes: true,
        sys_includes: ["stdbool.h", "stddef.h", "stdint.h"].map(str::to_owned).to_vec(),
        enumeration: EnumConfig {
            rename_variants: RenameRule::QualifiedScreamingSnakeCase,
            ..EnumConfig::default()
        },
        ..Config::default()
    };
    for (name, in_c) in NAMES.iter().chain(POINTERS) {
        config.export.rename.insert((*name).to_owned(), (*in_c).to_owned());
    }
    config.export.exclude = POINTERS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let bindings = Builder::new().with_crate(folder()).with_config(config).generate()?;
    let mut text = Vec::new();
    bindings.write(&mut text);
    let mut text = String::from_utf8(text).context("a header is text")?;
    for (_, pointer) in POINTERS {
        text = text.replace(&format!("{pointer} "), pointer);
    }
    // The status is what one writes most often.
    Ok(text.replace("FARSIDE_STATUS_", "FARSIDE_"))
}
