//! The file in which a member writes down who is in its group.
//!
//! A process that is started anew must not take itself for the primary that its predecessor was: another may have been
//! promoted meanwhile. The file has the epoch and a line for each member, and is replaced as a whole.

use core::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use crate::mirror::{MemberId, Peer, View};

/// Replaces the file.
pub(super) fn write(path: &Path, view: &View) -> io::Result<()> {
    let mut text = format!("epoch {}\n", view.epoch);
    let backups = view.backups.iter().map(|peer| ("backup", peer));
    for (role, peer) in core::iter::once(("primary", &view.primary)).chain(backups) {
        let Peer { id, segment, address } = peer;
        // Writing to a string never fails.
        let _ = writeln!(text, "{role} {address} segment {segment:016x} process {id}");
    }
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    fs::write(&new, text)?;
    fs::rename(new, path)
}

/// What the file says; `None` if there is no file.
///
/// # Errors
/// If it cannot be read, or was not written here.
pub fn read(path: &Path) -> io::Result<Option<View>> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let damaged = || {
        let path = path.display();
        io::Error::other(format!(
            "{path} is damaged; it says who is in this node's group: if this node was alone, remove the file"
        ))
    };
    parse(&text).ok_or_else(damaged).map(Some)
}

fn parse(text: &str) -> Option<View> {
    let mut lines = text.lines();
    let epoch = lines.next()?.strip_prefix("epoch ")?.parse().ok()?;
    let mut peers = lines.map(parse_peer);
    let (_, primary) = peers.next()?.filter(|(role, _)| *role == "primary")?;
    let backups = peers.map(|peer| Some(peer.filter(|(role, _)| *role == "backup")?.1));
    Some(View {
        epoch,
        primary,
        backups: backups.collect::<Option<_>>()?,
    })
}

fn parse_peer(line: &str) -> Option<(&str, Peer)> {
    let words: Vec<&str> = line.split(' ').collect();
    let [role, address, "segment", segment, "process", process] = words[..] else {
        return None;
    };
    let peer = Peer {
        id: MemberId(u64::from_str_radix(process, 16).ok()?),
        segment: u64::from_str_radix(segment, 16).ok()?,
        address: address.to_owned(),
    };
    Some((role, peer))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(id: u64) -> Peer {
        Peer {
            id: MemberId(id),
            segment: id << 32 | 5,
            address: format!("host{id}:7380"),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("view");
        assert_eq!(read(&path).expect("no file is no error"), None);
        for backups in 0..3 {
            let view = View {
                epoch: 7 + backups,
                primary: peer(1),
                backups: (0..backups).map(|number| peer(number + 2)).collect(),
            };
            write(&path, &view).expect("there is room");
            assert_eq!(read(&path).expect("whole"), Some(view));
        }
    }

    #[test]
    fn a_damaged_file_is_refused_by_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("view");
        let alone = "epoch 1\nbackup a:1 segment 1 process 1\n";
        for text in ["", "epoch x\n", "epoch 1\n", alone, "epoch 1\nprimary a:1 segment\n"] {
            fs::write(&path, text).expect("there is room");
            let error = read(&path).expect_err(text);
            assert!(error.to_string().contains("view is damaged"), "{error}");
        }
    }
}
