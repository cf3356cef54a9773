//! The password of a gateway, from a file.
//!
//! On the path: the user `default` begins with it; never in a log, an error or a `Debug` output.

use core::fmt;
use std::path::{Path, PathBuf};

/// What clients have to give before anything else.
#[derive(Clone)]
pub struct Password(Box<[u8]>);

/// Why a file does not give a password.
#[derive(Debug, thiserror::Error)]
pub enum PasswordError {
    /// The file cannot be read.
    #[error("cannot read the password file {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// There is nothing in the file but white space.
    #[error("the password file {} is empty: write the password into it", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

impl Password {
    /// The password in a file; white space around it does not count.
    ///
    /// # Errors
    /// See [`PasswordError`].
    pub fn from_file(path: &Path) -> Result<Self, PasswordError> {
        let bytes = std::fs::read(path).map_err(|source| PasswordError::File {
            path: path.to_owned(),
            source,
        })?;
        match bytes.trim_ascii() {
            [] => Err(PasswordError::Empty { path: path.to_owned() }),
            password => Ok(Self(password.into())),
        }
    }

    /// The password itself, for whoever has to give it.
    #[must_use]
    pub fn reveal(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(not shown)")
    }
}
