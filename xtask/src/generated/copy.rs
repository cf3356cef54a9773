//! A copy of the workspace in which mutants are planted, and its test programs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use cargo_metadata::diagnostic::{DiagnosticLevel, DiagnosticSpan};
use cargo_metadata::{CompilerMessage, Message};

use super::find::{self, Mutant};
use super::plant::{self, Planted};
use crate::step;
use crate::test::Program;

/// A mutant, and where it is.
pub(super) struct Known {
    pub(super) package: &'static str,
    /// From the root of the workspace on.
    pub(super) file: PathBuf,
    pub(super) mutant: Mutant,
    /// The text that is changed.
    pub(super) text: String,
}

/// Files of tests, and the one that has the switch.
const LEFT_ALONE: [&str; 3] = ["testing.rs", "tests.rs", "mutant.rs"];

/// Every mutant of these packages; their numbers are their places.
pub(super) fn all_mutants(packages: &[&'static str]) -> Result<Vec<Known>> {
    let mut found = Vec::new();
    for &package in packages {
        let source = Path::new("crates").join(package).join("src");
        let mut files = Vec::new();
        collect(&step::workspace_root().join(&source), &mut files)?;
        for path in files {
            let file = path
                .strip_prefix(step::workspace_root())
                .expect("it is in there")
                .to_owned();
            if file
                .file_name()
                .is_some_and(|name| LEFT_ALONE.iter().any(|other| name == *other))
            {
                continue;
            }
            let text = std::fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))?;
            let mutants = find::mutants(&text).with_context(|| file.display().to_string())?;
            found.extend(mutants.into_iter().map(|mutant| Known {
                package,
                file: file.clone(),
                text: text[mutant.at.clone()].to_owned(),
                mutant,
            }));
        }
    }
    Ok(found)
}

/// The Rust files of a folder, and of those in it.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("failed to read {}", folder.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    for path in paths {
        if path.is_dir() {
            // Tests beside what they test.
            if !path.ends_with("tests") {
                collect(&path, files)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// The copy, in the target folder.
pub(super) struct Copy {
    root: PathBuf,
    /// The packages whose tests are built; all if there are none.
    tests_of: Vec<&'static str>,
}

impl Copy {
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Copies what the packages of the tests are made of. Files that are as before keep their age, so that cargo builds only
    /// what has changed.
    ///
    /// `tests_of` are the packages whose tests are built, all if there are none; the library of `untested` has none there.
    pub(super) fn make(members: &[&str], tests_of: Vec<&'static str>, untested: Option<&str>) -> Result<Self> {
        let copy = Self {
            root: step::workspace_root().join("target/mutants"),
            tests_of,
        };
        let root = step::workspace_root();
        for member in members {
            copy.copy_folder(&Path::new("crates").join(member))?;
        }
        // Tests read some of it.
        copy.copy_folder(Path::new("docs"))?;
        for file in ["Cargo.lock", "rust-toolchain.toml", "clippy.toml"] {
            if root.join(file).exists() {
                copy.write(Path::new(file), &std::fs::read(root.join(file))?)?;
            }
        }
        let manifest = std::fs::read_to_string(root.join("Cargo.toml"))?;
        let mut manifest: toml::Table = manifest.parse()?;
        let workspace = manifest.get_mut("workspace").and_then(toml::Value::as_table_mut);
        let workspace = workspace.context("the workspace has no manifest")?;
        let names = members.iter().map(|name| toml::Value::String(format!("crates/{name}")));
        workspace.insert("members".to_owned(), toml::Value::Array(names.collect()));
        workspace.remove("default-members");
        // A statement that is left out leaves warnings behind; an operation that overflows is wrong only when it happens.
        workspace.remove("lints");
        workspace.insert(
            "lints".to_owned(),
            "[rust]\nwarnings = \"allow\"\nunused_must_use = \"allow\"\narithmetic_overflow = \"allow\"\n\
             unconditional_panic = \"allow\""
                .parse::<toml::Table>()?
                .into(),
        );
        // Nobody looks for a line in what is changed.
        let profile = manifest.get_mut("profile").and_then(|profiles| profiles.get_mut("dev"));
        let profile = profile.and_then(toml::Value::as_table_mut);
        let profile = profile.context("the workspace has no profile for tests")?;
        profile.insert("debug".to_owned(), toml::Value::Boolean(false));
        copy.write(Path::new("Cargo.toml"), manifest.to_string().as_bytes())?;
        if let Some(name) = untested {
            let path = Path::new("crates").join(name).join("Cargo.toml");
            let mut manifest: toml::Table = std::fs::read_to_string(root.join(&path))?.parse()?;
            let library = manifest.entry("lib").or_insert_with(|| toml::Table::new().into());
            let library = library.as_table_mut().context("[lib] is no table")?;
            library.insert("test".to_owned(), toml::Value::Boolean(false));
            copy.write(&path, manifest.to_string().as_bytes())?;
        }
        let mutant = Path::new("crates/farside-fabric/src/mutant.rs");
        let mut text = std::fs::read_to_string(root.join(mutant))?;
        text.push_str(plant::SWITCH);
        copy.write(mutant, text.as_bytes())?;
        Ok(copy)
    }

    /// The same files, and no others.
    fn copy_folder(&self, folder: &Path) -> Result<()> {
        let from = step::workspace_root().join(folder);
        for entry in std::fs::read_dir(self.root.join(folder)).into_iter().flatten() {
            let (name, path) = entry.map(|entry| (entry.file_name(), entry.path()))?;
            if !from.join(name).exists() {
                let removed = if path.is_dir() {
                    std::fs::remove_dir_all(&path)
                } else {
                    std::fs::remove_file(&path)
                };
                removed.with_context(|| format!("failed to remove {}", path.display()))?;
            }
        }
        for entry in std::fs::read_dir(&from).with_context(|| format!("failed to read {}", from.display()))? {
            let entry = entry?;
            let path = folder.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                self.copy_folder(&path)?;
            } else if !path.ends_with("farside-fabric/src/mutant.rs") {
                self.write(&path, &std::fs::read(entry.path())?)?;
            }
        }
        Ok(())
    }

    fn write(&self, file: &Path, bytes: &[u8]) -> Result<()> {
        let path = self.root.join(file);
        if std::fs::read(&path).is_ok_and(|there| there == bytes) {
            return Ok(());
        }
        let folder = path.parent().expect("a file is in a folder");
        std::fs::create_dir_all(folder)?;
        std::fs::write(&path, bytes).with_context(|| format!("failed to write {}", path.display()))
    }

    /// Plants the mutants of these numbers, leaves out those that the compiler refuses, and builds the test programs. Returns
    /// these, and the numbers that are left.
    pub(super) fn build(&self, known: &[Known], mut chosen: BTreeSet<u32>) -> Result<(Vec<Program>, BTreeSet<u32>)> {
        const ROUNDS_MAX: u32 = 200;
        /// Of so few as a rule the compiler refuses none, and it is as quick to build them at once.
        const UNCHECKED_MAX: usize = 20;
        for round in 1..=ROUNDS_MAX {
            let planted = self.plant(known, &chosen)?;
            let mut errors = Vec::new();
            if chosen.len() > UNCHECKED_MAX {
                let mut command = self.cargo("check");
                command.arg("--keep-going");
                errors = messages(&mut command)?.1;
            }
            if errors.is_empty() {
                let artifacts;
                (artifacts, errors) = messages(&mut self.cargo("test"))?;
                if errors.is_empty() {
                    return Ok((Program::among(artifacts), chosen));
                }
            }
            let refused = refused(&errors, &planted);
            if refused.is_empty() {
                bail!("the copy does not build:\n{}", text_of(&errors));
            }
            eprintln!(
                "    round {round}: the compiler refuses {} of {}",
                refused.len(),
                chosen.len()
            );
            chosen.retain(|number| !refused.contains(number));
        }
        bail!("after {ROUNDS_MAX} rounds the compiler still refuses mutants")
    }

    fn cargo(&self, command: &str) -> Command {
        let mut cargo = step::cargo([command, "--message-format=json"]);
        cargo.current_dir(&self.root);
        match self.tests_of.as_slice() {
            [] => cargo.arg("--workspace"),
            packages => cargo.args(packages.iter().flat_map(|package| ["--package", package])),
        };
        if command == "test" {
            cargo.arg("--no-run");
            match self.tests_of.as_slice() {
                [] => cargo.args(["--lib", "--test", crate::test::IT]),
                // Named, a library without tests would be tested, too.
                _ => cargo.arg("--tests"),
            };
            cargo.env("CARGO_INCREMENTAL", "0");
        }
        // What others have written is built there already.
        cargo.env("CARGO_TARGET_DIR", step::workspace_root().join("target"));
        cargo
    }

    /// Writes the sources with these mutants.
    fn plant(&self, known: &[Known], chosen: &BTreeSet<u32>) -> Result<BTreeMap<PathBuf, Planted>> {
        let mut files: BTreeMap<&Path, Vec<(u32, &Mutant)>> = BTreeMap::new();
        for (number, known) in known.iter().enumerate() {
            let list = files.entry(&known.file).or_default();
            if chosen.contains(&(number as u32)) {
                list.push((number as u32, &known.mutant));
            }
        }
        let mut planted = BTreeMap::new();
        for (file, mutants) in files {
            let text = std::fs::read_to_string(step::workspace_root().join(file))?;
            let is_fabric = file.starts_with("crates/farside-fabric");
            let root = if is_fabric { "crate" } else { "::farside_fabric" };
            let new = plant::plant(&text, &mutants, &format!("{root}::mutant::generated::on"));
            self.write(file, new.text.as_bytes())?;
            planted.insert(file.to_owned(), new);
        }
        Ok(planted)
    }
}

/// What cargo says: the artifacts and the errors.
fn messages(command: &mut Command) -> Result<(Vec<cargo_metadata::Artifact>, Vec<CompilerMessage>)> {
    let line = step::command_line(command);
    let log = step::workspace_root().join("target/mutants.log");
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(File::create(&log).with_context(|| format!("failed to create {}", log.display()))?)
        .spawn()
        .with_context(|| format!("failed to start `{line}`"))?;
    let output = child.stdout.take().expect("it was asked for");
    let (mut artifacts, mut errors) = (Vec::new(), Vec::new());
    for message in Message::parse_stream(BufReader::new(output)) {
        match message? {
            Message::CompilerArtifact(artifact) => artifacts.push(artifact),
            Message::CompilerMessage(message)
                if matches!(message.message.level, DiagnosticLevel::Error | DiagnosticLevel::Ice) =>
            {
                errors.push(message);
            }
            _ => {}
        }
    }
    if !child.wait()?.success() && errors.is_empty() {
        let said = std::fs::read_to_string(&log)?;
        bail!("`{line}` failed, and says no error of the compiler:\n{said}");
    }
    Ok((artifacts, errors))
}

fn text_of(errors: &[CompilerMessage]) -> String {
    errors
        .iter()
        .filter_map(|error| error.message.rendered.clone())
        .collect()
}

/// The mutants that errors are about: those in whose own text they are, otherwise all of the innermost place around.
fn refused(errors: &[CompilerMessage], planted: &BTreeMap<PathBuf, Planted>) -> BTreeSet<u32> {
    let mut refused = BTreeSet::new();
    for error in errors {
        let spans = &error.message.spans;
        let (primary, others): (Vec<_>, Vec<_>) = spans.iter().partition(|span| span.is_primary);
        let found = [primary, others].into_iter().find_map(|spans| {
            let mutants: BTreeSet<u32> = spans.iter().flat_map(|span| at(span, planted)).collect();
            (!mutants.is_empty()).then_some(mutants)
        });
        refused.extend(found.into_iter().flatten());
    }
    refused
}

fn at(span: &DiagnosticSpan, planted: &BTreeMap<PathBuf, Planted>) -> Vec<u32> {
    let Some(planted) = planted.get(Path::new(&span.file_name)) else {
        return Vec::new();
    };
    let (start, end) = (span.byte_start as usize, span.byte_end as usize);
    let own = planted
        .places
        .iter()
        .filter(|place| place.own.start <= start && end <= place.own.end);
    let own: Vec<u32> = own.map(|place| place.mutant).collect();
    if !own.is_empty() {
        return own;
    }
    let around = planted
        .places
        .iter()
        .filter(|place| place.around.start <= start && end <= place.around.end);
    let innermost = around.clone().map(|place| place.around.len()).min();
    if innermost.is_none() {
        let within = planted
            .places
            .iter()
            .filter(|place| start <= place.around.start && place.around.end <= end);
        return within.map(|place| place.mutant).collect();
    }
    around
        .filter(|place| Some(place.around.len()) == innermost)
        .map(|place| place.mutant)
        .collect()
}
