//! The secret that a node and its clients may share.
//!
//! On the path: part of the hello of each connection; never in a log, an error or a `Debug` output.
//! It keeps strangers out; it travels unencrypted, so it does not protect against somebody who can
//! read the traffic.

use core::fmt;
use core::hint::black_box;
use std::fs;
use std::path::{Path, PathBuf};

/// The shortest secret, after white space was cut off both ends.
pub const SECRET_BYTES_MIN: usize = 16;
/// The longest secret.
pub const SECRET_BYTES_MAX: usize = 1024;

/// A shared secret of [`SECRET_BYTES_MIN`] to [`SECRET_BYTES_MAX`] bytes.
#[derive(Clone)]
pub struct Secret(Box<[u8]>);

/// Why a file does not give a secret.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The file cannot be read.
    #[error("cannot read the secret file {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The secret has the wrong length.
    #[error(
        "a secret has {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes without the white space around it, not {bytes}"
    )]
    Length {
        /// How many bytes there are.
        bytes: usize,
    },
}

impl Secret {
    /// The secret with these bytes; white space around it does not count.
    ///
    /// # Errors
    /// [`SecretError::Length`].
    pub fn new(bytes: &[u8]) -> Result<Self, SecretError> {
        let trimmed = bytes.trim_ascii();
        if (SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&trimmed.len()) {
            Ok(Self(trimmed.into()))
        } else {
            Err(SecretError::Length { bytes: trimmed.len() })
        }
    }

    /// The secret in a file.
    ///
    /// # Errors
    /// See [`SecretError`].
    pub fn from_file(path: &Path) -> Result<Self, SecretError> {
        let bytes = fs::read(path).map_err(|source| SecretError::File {
            path: path.to_owned(),
            source,
        })?;
        Self::new(&bytes)
    }

    /// The bytes, for the hello.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether `offered` is the secret. Takes the same time wherever they differ.
    pub(super) fn matches(&self, offered: &[u8]) -> bool {
        if offered.len() != self.0.len() {
            return false;
        }
        let pairs = self.0.iter().zip(offered);
        let difference = pairs.fold(0, |difference, (one, other)| black_box(difference | (one ^ other)));
        difference == 0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(not shown)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_does_not_count() {
        assert!(matches!(
            Secret::new(b"  fifteen bytes! \n"),
            Err(SecretError::Length { bytes: 14 })
        ));
        let secret = Secret::new(b"\n sixteen bytes !! \n").expect("long enough");
        assert!(secret.matches(b"sixteen bytes !!"));
        assert!(!secret.matches(b"sixteen bytes !?"));
        assert!(!secret.matches(b"sixteen bytes !!!"));
    }

    #[test]
    fn a_secret_has_a_least_and_a_greatest_length() {
        let is_secret = |bytes| Secret::new(&vec![b'x'; bytes]).is_ok();
        for (bytes, expected) in [
            (SECRET_BYTES_MIN - 1, false),
            (SECRET_BYTES_MIN, true),
            (SECRET_BYTES_MAX, true),
            (SECRET_BYTES_MAX + 1, false),
        ] {
            assert_eq!(is_secret(bytes), expected, "{bytes} bytes");
        }
    }

    #[test]
    fn debug_output_hides_it() {
        let secret = Secret::new(b"sixteen bytes !!").expect("long enough");
        assert!(!format!("{secret:?}").contains("sixteen"));
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = Secret::from_file(Path::new("/does/not/exist")).expect_err("no such file");
        assert!(error.to_string().contains("/does/not/exist"));
    }
}
