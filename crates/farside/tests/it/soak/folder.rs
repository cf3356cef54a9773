//! The folder of one run: segments, logs, what the processes complained about.
//!
//! On the path: made by the driver before anything else. It vanishes with the run, unless that fails: then it is kept,
//! and what is in it is said. `FARSIDE_SOAK_KEEP` keeps it in any case.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::plan::Plan;

/// In memory where the system has a place for that: segments are large, and written all over.
const MEMORY: &str = "/dev/shm";

pub(crate) struct Folder {
    folder: TempDir,
    command: String,
    is_kept: bool,
}

impl Folder {
    pub(crate) fn create(plan: &Plan) -> Self {
        let mut builder = tempfile::Builder::new();
        builder.prefix("farside-soak-");
        let folder = builder.tempdir_in(MEMORY).or_else(|_| builder.tempdir());
        Self {
            folder: folder.expect("there is a place for temporary files"),
            command: plan.command(),
            // A run that is meant to fail leaves nothing behind.
            is_kept: !plan.lies,
        }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if std::env::var_os("FARSIDE_SOAK_KEEP").is_some() {
            self.folder.disable_cleanup(true);
            println!("kept: {}", self.path().display());
        } else if std::thread::panicking() && self.is_kept {
            self.folder.disable_cleanup(true);
            eprintln!(
                "kept in {}: segments, logs of the workers (format: tests/it/soak/log.rs), their complaints (*.stderr)\n\
                 to run it again: {}\n\
                 (operations and faults are the same then; how the processes meet is not: try several times)",
                self.path().display(),
                self.command
            );
        }
    }
}
