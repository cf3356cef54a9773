//! How far an import has come, in a file: so that one that was interrupted can go on.
//!
//! Records before `done` are stored for certain, those from `begun` on are not. Between them a key may be there from this
//! import; so whoever refuses keys that are there accepts those.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::place::Place;
use farside_cli::Failure;

/// How many records are begun at most before that is written down.
pub(super) const AHEAD: u64 = 1 << 18;

/// What is written.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(super) struct State {
    /// Where the import comes from, and what tells that from what was there before or after.
    from: String,
    version: Option<String>,
    /// Where it goes, and which of its records: others are counted differently.
    into: String,
    pub(super) done: u64,
    pub(super) begun: u64,
}

/// The file; `None` for standard input, which cannot be read again.
pub(super) struct StateFile {
    path: Option<PathBuf>,
    state: State,
    /// What was begun by the import that is resumed.
    begun_before: u64,
}

impl StateFile {
    /// Looks how far an import from this place `into` that one has come, if it is to go on.
    pub(super) fn open(from: &Place, into: String, is_resumed: bool) -> Result<Self, Failure> {
        let path = match from {
            Place::Standard if is_resumed => {
                return Err(Failure::usage(
                    "--resume needs a file or an object: standard input cannot be read again",
                ));
            }
            Place::Standard => None,
            Place::File(path) => {
                let mut name = path.file_name().unwrap_or_default().to_owned();
                name.push(".importing");
                Some(path.with_file_name(name))
            }
            Place::Object(address) => {
                let name = address.rsplit('/').next().unwrap_or_default();
                Some(PathBuf::from(format!("{name}.importing")))
            }
        };
        let mut file = Self {
            path,
            state: State {
                from: from.to_string(),
                version: from.version()?,
                into,
                ..State::default()
            },
            begun_before: 0,
        };
        if is_resumed {
            file.read()?;
        } else if let Some(path) = &file.path {
            // Of another import, which this one does not go on with.
            let _ = std::fs::remove_file(path);
        }
        Ok(file)
    }

    fn read(&mut self) -> Result<(), Failure> {
        let Some(path) = &self.path else { return Ok(()) };
        let text = std::fs::read_to_string(path).map_err(|error| {
            let path = path.display();
            Failure::usage(format!("there is nothing to resume: cannot read {path}: {error}"))
        })?;
        let wrong = |what: &str| Failure::usage(format!("{} {what}: import without --resume", path.display()));
        let state: State = serde_json::from_str(&text).map_err(|_| wrong("does not say how far an import has come"))?;
        if (&state.from, &state.version) != (&self.state.from, &self.state.version) {
            return Err(wrong("is about another file, or that has changed"));
        }
        if state.into != self.state.into {
            return Err(wrong("is about an import into another pool, or of other keys"));
        }
        self.begun_before = state.begun;
        self.state = state;
        Ok(())
    }

    pub(super) fn state(&self) -> &State {
        &self.state
    }

    /// Records before this one may be there from the import that is resumed.
    pub(super) fn begun_before(&self) -> u64 {
        self.begun_before
    }

    /// Notes that so many records are stored, and that more are about to be.
    pub(super) fn note(&mut self, done: u64) -> Result<(), Failure> {
        self.state.done = done;
        self.state.begun = self.state.begun.max(done + AHEAD);
        let Some(path) = &self.path else { return Ok(()) };
        let text = serde_json::to_string(&self.state).map_err(Failure::runtime)?;
        let partial = path.with_extension("importing.partial");
        let written = std::fs::write(&partial, text).and_then(|()| std::fs::rename(&partial, path));
        written.map_err(|error| Failure::runtime(format!("cannot write {}: {error}", path.display())))
    }

    /// The import is done.
    pub(super) fn remove(self) {
        if let Some(path) = self.path {
            // If it stays, whoever resumes finds that nothing is left to do.
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(place: &Place, is_resumed: bool) -> Result<StateFile, Failure> {
        StateFile::open(place, "shm:pool".to_owned(), is_resumed)
    }

    #[test]
    fn an_import_goes_on_where_it_was() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.rdb");
        std::fs::write(&path, "a file").expect("a file");
        let place = Place::File(path.clone());
        assert!(open(&place, true).is_err());
        let mut file = open(&place, false).expect("a state");
        file.note(7).expect("written");
        let again = open(&place, true).expect("a state");
        assert_eq!((again.state().done, again.state().begun), (7, 7 + AHEAD));
        assert!(StateFile::open(&place, "shm:other".to_owned(), true).is_err());
        std::fs::write(&path, "another file").expect("a file");
        assert!(open(&place, true).is_err());
        again.remove();
        assert!(open(&place, true).is_err());
        assert!(open(&Place::Standard, true).is_err());
    }
}
