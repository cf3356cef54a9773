//! A file in place of another, at one instant.
//!
//! On the path: nowhere; for ACL SAVE and CONFIG REWRITE.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::Path;

/// Gives a file this content; whoever reads it, at any time and after any crash, finds the old or the new one. A new file is for
/// its owner alone; one that is there keeps owner and mode, and a link stays one.
///
/// # Errors
/// What the system reports; then the file is as it was.
pub fn replace_file(path: &Path, content: &[u8]) -> io::Result<()> {
    // What is renamed is the file, and not a link to it.
    let path = match fs::canonicalize(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => path.to_owned(),
        found => found?,
    };
    let before = fs::metadata(&path).ok();
    if before.as_ref().is_some_and(|before| before.permissions().readonly()) {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "nobody may write to it",
        ));
    }
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::IsADirectory.into());
    };
    let folder = if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    };
    let beside = folder.join(format!(".{}.{}", name.to_string_lossy(), std::process::id()));
    // One that a process of this number has left behind.
    let _ = fs::remove_file(&beside);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&beside)?;
    let written = (|| {
        if let Some(before) = before {
            // Who may not give it away keeps it.
            let _ = fchown(&file, Some(before.uid()), Some(before.gid()));
            file.set_permissions(before.permissions())?;
        }
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&beside, &path)
    })();
    if written.is_err() {
        // What is left of it is removed next time.
        let _ = fs::remove_file(&beside);
    }
    written?;
    // The rename, too.
    File::open(folder)?.sync_all()
}
