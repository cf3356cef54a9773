//! The file beside a segment that says of which group its memory is.
//!
//! A view in etcd counts for a segment only if it is of the same group: if etcd has lost its data, and somebody has made a group of
//! the same name, what this segment holds must not be replaced.

use std::fs;
use std::io;
use std::path::Path;

use crate::name::ClusterName;

/// Of which group a segment is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Lineage {
    pub(crate) cluster: String,
    pub(crate) node: u16,
    /// `None`: the segment was made for this node, and has been of no group yet.
    pub(crate) group: Option<u64>,
}

impl Lineage {
    pub(crate) fn new(cluster: &ClusterName, node: u16, group: Option<u64>) -> Self {
        Self {
            cluster: cluster.name.clone(),
            node,
            group,
        }
    }

    /// Replaces the file.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        let group = self.group.map_or("none".to_owned(), |group| format!("{group:016x}"));
        let text = format!("cluster {} node {} group {group}\n", self.cluster, self.node);
        let mut new = path.as_os_str().to_owned();
        new.push(".new");
        fs::write(&new, text)?;
        fs::rename(new, path)
    }

    /// What the file says; `None` if there is no file.
    ///
    /// # Errors
    /// If it cannot be read, or was not written here.
    pub(crate) fn read(path: &Path) -> io::Result<Option<Self>> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let damaged = || io::Error::other("it is damaged: it says of which cluster the segment is");
        Self::parse(&text).ok_or_else(damaged).map(Some)
    }

    fn parse(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.trim_end().split(' ').collect();
        let ["cluster", cluster, "node", node, "group", group] = words[..] else {
            return None;
        };
        let group = match group {
            "none" => None,
            group => Some(u64::from_str_radix(group, 16).ok()?),
        };
        Some(Self {
            cluster: cluster.to_owned(),
            node: node.parse().ok()?,
            group,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.cluster");
        assert_eq!(Lineage::read(&path).expect("no file is no error"), None);
        let cluster: ClusterName = "etcd:a:1/main".parse().expect("a name");
        for group in [None, Some(7)] {
            let lineage = Lineage::new(&cluster, 3, group);
            lineage.write(&path).expect("there is room");
            assert_eq!(Lineage::read(&path).expect("whole"), Some(lineage));
        }
        fs::write(&path, "cluster main node 3").expect("there is room");
        Lineage::read(&path).expect_err("damaged");
    }
}
