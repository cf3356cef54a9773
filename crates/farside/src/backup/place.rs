//! Where an export goes and an import comes from: a file, an object in an object store, or standard output or input.
//!
//! A file is written under another name, `.NAME.PID.partial`, and gets its own when it is whole and on the disk.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use farside_bucket::{BucketError, Object, SCHEMES, Upload};
use farside_cli::Failure;

/// A place, as a user names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// Standard output or input.
    Standard,
    /// A file, or a folder.
    File(PathBuf),
    /// An object, or what the names of several begin with.
    Object(String),
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once("://") {
            None if text == "-" => Ok(Self::Standard),
            None if text.is_empty() => Err("an empty name: write a file, or - for standard output or input".to_owned()),
            None => Ok(Self::File(text.into())),
            Some(("file", path)) if path.starts_with('/') => Ok(Self::File(path.into())),
            Some((scheme, rest)) if SCHEMES.contains(&scheme) && !rest.is_empty() => Ok(Self::Object(text.to_owned())),
            Some(_) => Err(format!(
                "`{text}` is no place: write a file, file:///PATH, s3://BUCKET/NAME (gs://, az://), or - for standard output or input"
            )),
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Standard => f.write_str("-"),
            Self::File(path) => path.display().fmt(f),
            Self::Object(address) => f.write_str(address),
        }
    }
}

impl Place {
    /// A name within a folder.
    pub(super) fn within(&self, name: &str) -> Self {
        match self {
            Self::Standard => Self::Standard,
            Self::File(folder) => Self::File(folder.join(name)),
            Self::Object(address) => Self::Object(format!("{}/{name}", address.trim_end_matches('/'))),
        }
    }

    /// Opens it for reading.
    pub(super) fn read(&self) -> Result<Box<dyn Read + Send>, Failure> {
        match self {
            Self::Standard => Ok(Box::new(std::io::stdin())),
            Self::File(path) => {
                let file = File::open(path);
                let file = file.map_err(|error| Failure::usage(format!("cannot read {}: {error}", path.display())))?;
                Ok(Box::new(file))
            }
            Self::Object(address) => {
                let object = Object::open(address).and_then(Object::read);
                Ok(Box::new(object.map_err(unusable)?))
            }
        }
    }

    /// What tells what is there from what was there before: the length of a file, the version of an object.
    pub(super) fn version(&self) -> Result<Option<String>, Failure> {
        match self {
            Self::Standard => Ok(None),
            Self::File(path) => Ok(std::fs::metadata(path).ok().map(|metadata| metadata.len().to_string())),
            Self::Object(address) => {
                let version = Object::open(address).and_then(|object| object.version());
                version.map(Some).map_err(unusable)
            }
        }
    }

    /// Begins to write it.
    pub(super) fn write(&self) -> Result<Box<dyn Sink>, Failure> {
        match self {
            Self::Standard => Ok(Box::new(Standard)),
            Self::File(path) => Ok(Box::new(WholeFile::create(path)?)),
            Self::Object(address) => {
                let upload = Object::open(address).and_then(Object::write);
                Ok(Box::new(upload.map_err(unusable)?))
            }
        }
    }

    /// The names in a folder.
    pub(super) fn list(&self) -> Result<Vec<String>, Failure> {
        match self {
            Self::Standard => Ok(Vec::new()),
            Self::File(folder) => {
                let failed = |error| Failure::runtime(format!("cannot list {}: {error}", folder.display()));
                let mut names = Vec::new();
                for entry in std::fs::read_dir(folder).map_err(failed)? {
                    names.extend(entry.map_err(failed)?.file_name().into_string());
                }
                Ok(names)
            }
            Self::Object(address) => {
                let object = Object::open(address).map_err(unusable)?;
                object.list().map_err(Failure::runtime)
            }
        }
    }

    /// Removes what is there.
    pub(super) fn remove(&self) -> Result<(), Failure> {
        match self {
            Self::Standard => Ok(()),
            Self::File(path) => std::fs::remove_file(path)
                .map_err(|error| Failure::runtime(format!("cannot remove {}: {error}", path.display()))),
            Self::Object(address) => {
                let object = Object::open(address).map_err(unusable)?;
                object.remove().map_err(Failure::runtime)
            }
        }
    }
}

/// What takes the bytes of an export. What is dropped before it is whole leaves nothing behind.
pub(super) trait Sink: Send {
    /// Takes the next bytes.
    fn write(&mut self, bytes: Vec<u8>) -> Result<(), Failure>;
    /// It is whole: it gets its name.
    fn finish(self: Box<Self>) -> Result<(), Failure>;
}

struct Standard;

impl Sink for Standard {
    fn write(&mut self, bytes: Vec<u8>) -> Result<(), Failure> {
        let written = std::io::stdout().write_all(&bytes);
        written.map_err(|error| Failure::runtime(format!("cannot write to standard output: {error}")))
    }

    fn finish(self: Box<Self>) -> Result<(), Failure> {
        let flushed = std::io::stdout().flush();
        flushed.map_err(|error| Failure::runtime(format!("cannot write to standard output: {error}")))
    }
}

/// A file that is there wholly or not at all.
struct WholeFile {
    file: File,
    path: PathBuf,
    partial: PathBuf,
    is_whole: bool,
}

impl WholeFile {
    fn create(path: &Path) -> Result<Self, Failure> {
        let name = path.file_name().filter(|_| !path.is_dir()).ok_or_else(|| {
            Failure::usage(format!(
                "{} is a folder: name a file in it, or use --every",
                path.display()
            ))
        })?;
        let name = format!(".{}.{}.partial", name.to_string_lossy(), std::process::id());
        let partial = path.with_file_name(name);
        let file = File::create(&partial)
            .map_err(|error| Failure::usage(format!("cannot write {}: {error}", partial.display())))?;
        Ok(Self {
            file,
            path: path.to_path_buf(),
            partial,
            is_whole: false,
        })
    }

    fn failed(&self, error: &std::io::Error) -> Failure {
        Failure::runtime(format!("cannot write {}: {error}", self.path.display()))
    }
}

impl Sink for WholeFile {
    fn write(&mut self, bytes: Vec<u8>) -> Result<(), Failure> {
        let written = self.file.write_all(&bytes);
        written.map_err(|error| self.failed(&error))
    }

    fn finish(mut self: Box<Self>) -> Result<(), Failure> {
        let synced = self.file.sync_all();
        synced.map_err(|error| self.failed(&error))?;
        std::fs::rename(&self.partial, &self.path).map_err(|error| self.failed(&error))?;
        self.is_whole = true;
        // The name, too, is to be there after a loss of power.
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = File::open(folder.unwrap_or(Path::new("."))).and_then(|folder| folder.sync_all());
        match folder {
            Err(error) if error.kind() != ErrorKind::InvalidInput => Err(self.failed(&error)),
            _ => Ok(()),
        }
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        if !self.is_whole {
            // Nobody takes it for an export.
            let _ = std::fs::remove_file(&self.partial);
        }
    }
}

/// What a user mends: an address, a name that is not there, what the environment says.
fn unusable(error: BucketError) -> Failure {
    Failure::usage(error)
}

impl Sink for Upload {
    fn write(&mut self, bytes: Vec<u8>) -> Result<(), Failure> {
        Self::write(self, &bytes).map_err(Failure::runtime)
    }

    fn finish(self: Box<Self>) -> Result<(), Failure> {
        Self::finish(*self).map_err(Failure::runtime)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_files_standard_streams_and_objects() {
        let object = |text: &str| Ok(Place::Object(text.to_owned()));
        assert_eq!("-".parse(), Ok(Place::Standard));
        assert_eq!("a/b.rdb".parse(), Ok(Place::File("a/b.rdb".into())));
        assert_eq!("file:///tmp/a".parse(), Ok(Place::File("/tmp/a".into())));
        for text in ["s3://bucket/name", "gs://bucket/name", "az://container/name"] {
            assert_eq!(text.parse::<Place>(), object(text));
        }
        for text in ["", "file://host/a", "ftp://host/a", "s3://"] {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
        let within = Place::Object("s3://bucket/folder/".to_owned()).within("name");
        assert_eq!(within.to_string(), "s3://bucket/folder/name");
    }

    #[test]
    fn a_file_is_there_wholly_or_not_at_all() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.rdb");
        let place = Place::File(path.clone());
        std::fs::write(&path, "before").expect("a file");
        let mut sink = place.write().expect("a sink");
        sink.write(b"half".to_vec()).expect("room");
        let place_of_all = Place::File(folder.path().to_path_buf());
        assert_eq!(place_of_all.list().expect("names").len(), 2);
        drop(sink);
        assert_eq!(place_of_all.list().expect("names"), ["a.rdb"]);
        assert_eq!(std::fs::read(&path).expect("a file"), b"before");
        let mut sink = place.write().expect("a sink");
        sink.write(b"wh".to_vec()).expect("room");
        sink.write(b"ole".to_vec()).expect("room");
        sink.finish().expect("a name");
        assert_eq!(std::fs::read(&path).expect("a file"), b"whole");
        assert_eq!(place_of_all.list().expect("names"), ["a.rdb"]);
        assert!(place_of_all.write().is_err());
    }
}
