//! Blocks in languages that are compiled, as whole programs.
//!
//! All blocks in Rust become one program, since linking is slow; it is told which of them to run.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use cargo_metadata::{Artifact, TargetKind};

use super::document::{Block, Document, Language};
use super::session::block_name;
use crate::step;

/// Crates that blocks may use.
const CRATES: [&str; 2] = ["farside", "farside_fabric"];

/// Where the crates are that blocks may use, as cargo has just built them.
pub(super) fn libraries(artifacts: &[Artifact]) -> Result<Vec<(&'static str, PathBuf)>> {
    let library = |name| {
        let is_it = |artifact: &&Artifact| {
            artifact.target.name == name && artifact.target.is_kind(TargetKind::Lib) && !artifact.profile.test
        };
        let artifact = artifacts.iter().find(is_it)?;
        let mut files = artifact.filenames.iter();
        Some((name, files.find(|file| file.extension() == Some("rlib"))?.into()))
    };
    let found = CRATES.map(|name| library(name).with_context(|| format!("cargo has not built {name}")));
    found.into_iter().collect()
}

/// The same, as they were built last in this folder.
pub(super) fn latest_libraries(built: &Path) -> Result<Vec<(&'static str, PathBuf)>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(built.join("deps")).context("there is no folder deps")? {
        let entry = entry?;
        files.push((entry.metadata()?.modified()?, entry.path()));
    }
    files.sort();
    let library = |name: &'static str| {
        let is_it = |path: &Path| {
            let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
            let crate_name = stem.rsplit_once('-').map(|(start, _)| start);
            path.extension().is_some_and(|extension| extension == "rlib")
                && crate_name.and_then(|start| start.strip_prefix("lib")) == Some(name)
        };
        let latest = files.iter().rfind(|(_, path)| is_it(path));
        latest
            .map(|(_, path)| (name, path.clone()))
            .with_context(|| format!("there is no {name}"))
    };
    CRATES.into_iter().map(library).collect()
}

/// Compiles the blocks in Rust of these documents; where the program is, if there are any.
pub(super) fn rust_blocks(
    documents: &[Document],
    libraries: &[(&str, PathBuf)],
    folder: &Path,
) -> Result<Option<PathBuf>> {
    let blocks = documents.iter().flat_map(|document| {
        let blocks = document.blocks.iter();
        let blocks = blocks.filter(|block| block.language == Language::Rust && block.not_run.is_none());
        blocks.map(|block| (block_name(document, block), block))
    });
    let blocks: Vec<_> = blocks.collect();
    if blocks.is_empty() {
        return Ok(None);
    }
    let (source, program) = (folder.join("blocks.rs"), folder.join("blocks"));
    std::fs::write(&source, rust_program(&blocks)).with_context(|| format!("failed to write {}", source.display()))?;
    let mut command = Command::new(step::cargo_path().with_file_name("rustc"));
    command.args(["--edition", "2024", "--cap-lints", "allow", "-C", "debuginfo=0"]);
    command.arg(&source).arg("-o").arg(&program);
    for (name, library) in libraries {
        command.arg("--extern").arg(format!("{name}={}", library.display()));
        // Cargo has them there, or a link to them in the folder above.
        let beside = library.parent().context("a library lies in a folder")?;
        for folder in [beside.to_owned(), beside.join("deps")] {
            command.arg("-L").arg(format!("dependency={}", folder.display()));
        }
    }
    step::run(&mut command)
        .context("a block in Rust does not compile; the function's name has its document and line")?;
    Ok(Some(program))
}

fn rust_program(blocks: &[(String, &Block)]) -> String {
    let (mut functions, mut arms) = (String::new(), String::new());
    for (name, block) in blocks {
        let is_plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let function: String = name.chars().map(is_plain).collect();
        let (before, text) = (&block.before, &block.text);
        writeln!(
            functions,
            "fn {function}() -> Result<(), Box<dyn std::error::Error>> {{"
        )
        .and_then(|()| writeln!(functions, "{before}\n{text}\nOk(())\n}}"))
        .and_then(|()| writeln!(arms, "{name:?} => {function}(),"))
        .expect("a string takes everything");
    }
    format!(
        "{functions}\nfn main() {{\n\
         let name = std::env::args().nth(1).expect(\"the name of a block\");\n\
         let outcome = match &*name {{\n{arms}_ => panic!(\"there is no block {{name}}\"),\n}};\n\
         if let Err(error) = outcome {{\neprintln!(\"{{error}}\");\nstd::process::exit(1);\n}}\n}}\n"
    )
}

pub(super) fn c_program(block: &Block) -> String {
    let headers = ["inttypes.h", "stdio.h", "stdlib.h", "string.h"].map(|name| format!("#include <{name}>\n"));
    let (before, text) = (&block.before, &block.text);
    format!(
        "{}#include \"farside.h\"\n\nint main(void) {{\n{before}\n{text}\nreturn 0;\n}}\n",
        headers.concat()
    )
}

pub(super) fn go_program(block: &Block) -> String {
    let (before, text) = (&block.before, &block.text);
    format!(
        "package main\n\nimport (\n\"context\"\n\"errors\"\n\"fmt\"\n\"os\"\n\n\"farside\"\n)\n\n\
         var _, _ = context.Background, errors.Is\n\n\
         func block() error {{\n{before}\n{text}\nreturn err\n}}\n\n\
         func main() {{\nif err := block(); err != nil {{\nfmt.Fprintln(os.Stderr, err)\nos.Exit(1)\n}}\n}}\n"
    )
}

/// The module of such a program, with the package in a folder of the session.
pub(super) fn go_module(work: &Path) -> String {
    let package = work.join("crates/farside-c/go");
    format!(
        "module block\n\ngo 1.19\n\nrequire farside v0.0.0\n\nreplace farside => {}\n",
        package.display()
    )
}
