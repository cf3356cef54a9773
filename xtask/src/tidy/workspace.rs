//! The workspace as tidy sees it: crates with their dependencies (from cargo), source files, manifests and documents (from
//! disk).
//!
//! Paths are relative to the root of the workspace.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use cargo_metadata::{MetadataCommand, TargetKind};

use crate::step;

pub(super) use cargo_metadata::DependencyKind;

/// Everything the checks read.
pub(super) struct Workspace {
    pub(super) crates: Vec<Crate>,
    /// Every Rust file.
    pub(super) files: Vec<TextFile>,
    /// Every Markdown file.
    pub(super) documents: Vec<TextFile>,
    /// Every file and folder.
    pub(super) paths: BTreeSet<PathBuf>,
    /// The text of the root Cargo.toml.
    pub(super) manifest: String,
}

/// One member.
pub(super) struct Crate {
    pub(super) name: String,
    pub(super) folder: PathBuf,
    /// On other members only.
    pub(super) dependencies: Vec<Dependency>,
    /// The root file of every library, binary and example. Tests and benchmarks are not shipped.
    pub(super) roots: Vec<PathBuf>,
    /// The text of its Cargo.toml.
    pub(super) manifest: String,
}

/// One edge of the graph inside the workspace.
pub(super) struct Dependency {
    pub(super) name: String,
    pub(super) kind: DependencyKind,
}

/// One file that was read.
pub(super) struct TextFile {
    pub(super) path: PathBuf,
    pub(super) text: String,
}

impl Crate {
    pub(super) fn manifest_path(&self) -> PathBuf {
        self.folder.join("Cargo.toml")
    }
}

impl Workspace {
    pub(super) fn load(root: &Path) -> Result<Self> {
        let metadata = MetadataCommand::new()
            .cargo_path(step::cargo_path())
            .current_dir(root)
            .no_deps()
            .exec()
            .context("failed to read the dependency graph")?;
        let root = metadata.workspace_root.as_std_path();
        let relative = |path: &Path| path.strip_prefix(root).unwrap_or(path).to_owned();

        let mut crates = Vec::new();
        for package in &metadata.packages {
            let manifest_path = package.manifest_path.as_std_path();
            let is_member = |name: &str| metadata.packages.iter().any(|member| member.name == name);
            let is_shipped = |target: &&cargo_metadata::Target| {
                use TargetKind::{Bin, CDyLib, Example, Lib, RLib, StaticLib};
                let kinds = [Lib, RLib, CDyLib, StaticLib, Bin, Example];
                kinds.into_iter().any(|kind| target.is_kind(kind))
            };
            crates.push(Crate {
                name: package.name.to_string(),
                folder: relative(manifest_path.parent().context("a manifest lies in a folder")?),
                dependencies: package
                    .dependencies
                    .iter()
                    .filter(|dependency| is_member(&dependency.name))
                    .map(|dependency| Dependency {
                        name: dependency.name.clone(),
                        kind: dependency.kind,
                    })
                    .collect(),
                roots: package
                    .targets
                    .iter()
                    .filter(is_shipped)
                    .map(|target| relative(target.src_path.as_std_path()))
                    .collect(),
                manifest: read(manifest_path)?,
            });
        }

        let mut workspace = Self {
            crates,
            files: Vec::new(),
            documents: Vec::new(),
            paths: BTreeSet::new(),
            manifest: read(&root.join("Cargo.toml"))?,
        };
        workspace.read_folder(root, root)?;
        Ok(workspace)
    }

    /// Everything below `folder`, but for build output and hidden folders.
    fn read_folder(&mut self, root: &Path, folder: &Path) -> Result<()> {
        let entries = fs::read_dir(folder).with_context(|| format!("failed to list {}", folder.display()))?;
        let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
        // The file system's order is nobody's order.
        paths.sort();
        for path in paths {
            let relative = path.strip_prefix(root).unwrap_or(&path).to_owned();
            let is_hidden = path
                .file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with('.'));
            // CACHEDIR.TAG marks cargo's output whatever name it was given, unless somebody else has made the folder.
            let is_output = relative == Path::new("target") || path.join("CACHEDIR.TAG").exists();
            if is_hidden || is_output {
                continue;
            }
            self.paths.insert(relative.clone());
            if path.is_dir() {
                self.read_folder(root, &path)?;
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                self.files.push(TextFile {
                    text: read(&path)?,
                    path: relative,
                });
            } else if path.extension().is_some_and(|extension| extension == "md") {
                self.documents.push(TextFile {
                    text: read(&path)?,
                    path: relative,
                });
            }
        }
        Ok(())
    }
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("failed to read {}", path.display()))
}

/// A small clean workspace in memory, for tests to plant a violation in.
#[cfg(test)]
pub(super) mod samples {
    use super::*;

    pub(in super::super) fn workspace() -> Workspace {
        let mut workspace = Workspace {
            crates: Vec::new(),
            files: Vec::new(),
            documents: Vec::new(),
            paths: BTreeSet::new(),
            manifest: "[workspace.dependencies]\n# Slices without a copy.\nbytes = \"1\"\n".to_owned(),
        };
        add_crate(&mut workspace, "farside-fabric", &[]);
        add_crate(&mut workspace, "farside-pool", &["farside-fabric"]);
        add_crate(&mut workspace, "farside-lock", &["farside-fabric"]);
        workspace
    }

    pub(in super::super) fn add_crate(workspace: &mut Workspace, name: &str, dependencies: &[&str]) {
        let folder = Path::new("crates").join(name);
        let root = folder.join("src/lib.rs");
        let text = "//! What this crate is.\n\n#![forbid(unsafe_code)]\n".to_owned();
        workspace.paths.extend([folder.clone(), root.clone()]);
        workspace.files.push(TextFile {
            path: root.clone(),
            text,
        });
        workspace.crates.push(Crate {
            name: name.to_owned(),
            folder,
            dependencies: dependencies
                .iter()
                .map(|&name| Dependency {
                    name: name.to_owned(),
                    kind: DependencyKind::Normal,
                })
                .collect(),
            roots: vec![root],
            manifest: "[lints]\nworkspace = true\n[dependencies]\nbytes.workspace = true\n".to_owned(),
        });
    }

    /// The crate of that name.
    pub(in super::super) fn member<'a>(workspace: &'a mut Workspace, name: &str) -> &'a mut Crate {
        workspace
            .crates
            .iter_mut()
            .find(|member| member.name == name)
            .expect("the sample has this crate")
    }

    /// Adds a file of that text.
    pub(in super::super) fn add_file(workspace: &mut Workspace, path: &str, text: &str) {
        workspace.files.push(TextFile {
            path: path.into(),
            text: text.to_owned(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("below the root")).expect("failed to make a folder");
        fs::write(path, text).expect("failed to write a file");
    }

    #[test]
    fn real_workspace_is_read_from_cargo_and_disk() {
        let folder = tempfile::tempdir().expect("failed to make a folder");
        let root = folder.path().canonicalize().expect("the folder exists");
        let member = |name: &str, rest: &str| {
            format!("[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n{rest}")
        };
        write(
            &root,
            "Cargo.toml",
            "[workspace]\nmembers = [\"crates/*\"]\nresolver = \"3\"\n",
        );
        write(&root, "crates/low/Cargo.toml", &member("low", ""));
        write(&root, "crates/low/src/lib.rs", "//! Low.\n");
        write(
            &root,
            "crates/high/Cargo.toml",
            &member(
                "high",
                "[dependencies]\nlow = { path = \"../low\" }\n[dev-dependencies.low]\npath = \"../low\"\n",
            ),
        );
        write(&root, "crates/high/src/main.rs", "//! High.\nfn main() {}\n");
        write(&root, "crates/high/tests/slow.rs", "//! A test.\n");
        write(&root, "docs/high.md", "# High\n");
        write(&root, "target/CACHEDIR.TAG", "");
        write(&root, "target/generated.rs", "built, not written");
        write(&root, ".hidden/x.rs", "not ours");

        let workspace = Workspace::load(&root).expect("the workspace is sound");
        let high = workspace
            .crates
            .iter()
            .find(|member| member.name == "high")
            .expect("high is a member");
        assert_eq!(high.folder, Path::new("crates/high"));
        assert_eq!(high.roots, [Path::new("crates/high/src/main.rs")]);
        assert!(high.manifest.contains("name = \"high\""));
        let kinds: Vec<_> = high.dependencies.iter().map(|d| (d.name.as_str(), d.kind)).collect();
        assert!(kinds.contains(&("low", DependencyKind::Normal)), "{kinds:?}");
        assert!(kinds.contains(&("low", DependencyKind::Development)), "{kinds:?}");
        let paths: Vec<_> = workspace
            .files
            .iter()
            .map(|file| file.path.display().to_string())
            .collect();
        assert_eq!(
            paths,
            [
                "crates/high/src/main.rs",
                "crates/high/tests/slow.rs",
                "crates/low/src/lib.rs"
            ]
        );
    }
}
