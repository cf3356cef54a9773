//! What goes wrong with an object, in one line.

use object_store::Error;

/// Something is wrong with an object: its address, its store, or the way there.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{address}: {reason}")]
pub struct BucketError {
    address: String,
    reason: String,
}

impl BucketError {
    pub(crate) fn new(address: &str, reason: &str) -> Self {
        Self {
            address: address.to_owned(),
            reason: reason.to_owned(),
        }
    }

    /// What a store says, without the address, which is said once.
    pub(crate) fn of(address: &str, error: &Error) -> Self {
        let reason = match error {
            Error::NotFound { .. } => "it is not there, or its bucket is not".to_owned(),
            Error::PermissionDenied { source, .. } => format!("the store forbids it: {source}"),
            Error::Unauthenticated { source, .. } => format!("the store does not know who asks: {source}"),
            Error::Precondition { .. } => "it has changed while it was read".to_owned(),
            Error::Generic { source, .. } => cause(source.as_ref()),
            other => other.to_string(),
        };
        // Answers are whole XML documents at times.
        let mut reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
        if let Some((end, _)) = reason.char_indices().nth(REASON_CHARS_MAX) {
            reason.truncate(end);
            reason.push_str("...");
        }
        if ASKED_FOR_CREDENTIALS.iter().any(|part| reason.contains(part)) {
            reason.push_str(match address.split_once("://") {
                Some(("gs", _)) => "; nobody says who asks: set GOOGLE_APPLICATION_CREDENTIALS",
                Some(("s3" | "s3a", _)) => "; nobody says who asks: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
                _ => "; set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
            });
        }
        Self {
            address: address.to_owned(),
            reason,
        }
    }
}

/// Without credentials in the environment, those of the machine are asked for, at an address that only machines of clouds have.
const ASKED_FOR_CREDENTIALS: [&str; 3] = [
    "169.254.169.254",
    "metadata.google.internal",
    "Account must be specified",
];
const REASON_CHARS_MAX: usize = 400;

/// The whole chain: outer errors say what was asked, inner ones why that failed.
fn cause(error: &(dyn core::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let inner = error.to_string();
        if !text.contains(&inner) {
            text = format!("{text}: {inner}");
        }
        source = error.source();
    }
    text
}
