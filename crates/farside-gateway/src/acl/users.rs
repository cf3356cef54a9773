//! All users of a gateway.
//!
//! On the path: a client asks for its user when it begins, when it gives a password, and when somebody has changed users. The
//! table outlives no process, unless ACL SAVE writes it to its file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::file;
use super::log::Log;
use super::user::{DEFAULT, User, Wrong};
use crate::live::lock;
use crate::password::Password;

/// Why users cannot be read or written; one line.
#[derive(Debug, thiserror::Error)]
pub enum AclError {
    /// The file cannot be read.
    #[error("cannot read the ACL file {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A line of it is wrong.
    #[error("{}:{line}: {mistake}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Which line, from 1 on.
        line: usize,
        /// What is wrong with it.
        mistake: String,
    },
}

/// See the module.
#[derive(Debug)]
pub struct Users {
    table: Mutex<Table>,
    /// What `default` is if no file says it.
    default: Arc<User>,
    file: Option<PathBuf>,
    pub(crate) log: Mutex<Log>,
    /// Held while the file is written.
    saving: Mutex<()>,
}

type Table = BTreeMap<Vec<u8>, Arc<User>>;

impl Default for Users {
    /// One user, `default`, who may do everything without a password.
    fn default() -> Self {
        Self::with_default(User::with_everything(None), None)
    }
}

impl Users {
    fn with_default(default: User, file: Option<PathBuf>) -> Self {
        let default = Arc::new(default);
        Self {
            table: Mutex::new(Table::from([(DEFAULT.to_vec(), Arc::clone(&default))])),
            default,
            file,
            log: Mutex::default(),
            saving: Mutex::default(),
        }
    }

    /// The user `default` with a password, and those of a file. What the file says about `default` goes before the
    /// password.
    ///
    /// # Errors
    /// If the file cannot be read, or one of its lines is wrong.
    pub fn open(password: Option<&Password>, file: Option<&Path>) -> Result<Self, AclError> {
        let default = User::with_everything(password.map(Password::reveal));
        let users = Self::with_default(default, file.map(Path::to_owned));
        if let Some(path) = file {
            *lock(&users.table) = users.read(path)?;
        }
        Ok(users)
    }

    /// Whether a connection may do something before it has given a password.
    #[must_use]
    pub fn let_strangers_in(&self) -> bool {
        self.default().is_open()
    }

    fn read(&self, path: &Path) -> Result<Table, AclError> {
        let text = std::fs::read(path).map_err(|source| AclError::File {
            path: path.to_owned(),
            source,
        })?;
        let users = file::parse(&text).map_err(|mistake| AclError::Line {
            path: path.to_owned(),
            line: mistake.line,
            mistake: mistake.text,
        })?;
        let mut table: Table = users.into_iter().map(|(name, user)| (name, Arc::new(user))).collect();
        table
            .entry(DEFAULT.to_vec())
            .or_insert_with(|| Arc::clone(&self.default));
        Ok(table)
    }

    /// The file of users, if there is one.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// The user with this name.
    pub(crate) fn find(&self, name: &[u8]) -> Option<Arc<User>> {
        lock(&self.table).get(name).cloned()
    }

    /// The user that a connection begins with.
    pub(crate) fn default(&self) -> Arc<User> {
        self.find(DEFAULT).expect("it is never deleted")
    }

    /// All of them, in the order of their names.
    pub(crate) fn all(&self) -> Vec<Arc<User>> {
        lock(&self.table).values().cloned().collect()
    }

    /// Changes a user, or makes it. Connections have to be told.
    pub(crate) fn change<'r>(&self, name: &[u8], rules: impl Iterator<Item = &'r [u8]>) -> Result<(), Wrong> {
        let mut table = lock(&self.table);
        let changed = match table.get(name) {
            Some(user) => user.with(rules)?,
            None => User::new(name).with(rules)?,
        };
        table.insert(name.to_vec(), Arc::new(changed));
        Ok(())
    }

    /// Deletes a user; returns whether there was one. Connections have to be told.
    pub(crate) fn delete(&self, name: &[u8]) -> bool {
        lock(&self.table).remove(name).is_some()
    }

    /// Reads the file again, and has the users that it names and no others. Connections have to be told.
    ///
    /// # Errors
    /// As at the start; then nothing has changed.
    pub(crate) fn load(&self, path: &Path) -> Result<(), AclError> {
        *lock(&self.table) = self.read(path)?;
        Ok(())
    }

    /// Writes all users to the file.
    pub(crate) fn save(&self, path: &Path) -> std::io::Result<()> {
        let saving = self.saving.lock().unwrap_or_else(PoisonError::into_inner);
        let written = file::write(path, self.all().iter().map(|user| user.text()));
        drop(saving);
        written
    }
}
