//! `cargo xtask book`: the documents as a site; `cargo xtask blocks`: every block of them, run.
//!
//! [`site`] lays the documents out for mdBook and looks at what it has made. [`document`] reads blocks, [`session`] runs those of
//! one document, [`compiled`] makes programs of those that are compiled, [`usage`] looks for the options that are named where
//! nothing is run.

mod compiled;
mod document;
mod session;
mod site;
mod usage;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::{package, step, test, weight};
use document::{Document, Language};
use session::{Isolation, Programs};
pub(crate) use site::{Options, check, run};
use usage::Usage;

/// How many blocks are not run, each for the reason that it names. One more is one more thing that can be wrong unseen.
const NOT_RUN: usize = 19;
/// The document whose blocks need the library for C: `cargo xtask c` has built it, and runs them.
const OF_C: &str = "docs/c.md";

#[derive(clap::Args)]
pub(crate) struct BlockOptions {
    /// Only those of these documents, such as docs/configuration.md
    #[arg(value_name = "DOCUMENT")]
    documents: Vec<PathBuf>,
    /// Print which blocks are not run, and why
    #[arg(long)]
    list: bool,
    /// Where the programs and libraries are, such as target/debug; nothing is built then
    #[arg(long, value_name = "FOLDER")]
    built: Option<PathBuf>,
}

impl BlockOptions {
    /// What CI wants.
    pub(crate) const ALL: Self = Self {
        documents: Vec::new(),
        list: true,
        built: None,
    };
}

/// The documents, from the root of the workspace: those at the root and those in `docs`.
fn paths(root: &Path) -> Result<Vec<PathBuf>> {
    let mut paths: Vec<PathBuf> = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"]
        .map(PathBuf::from)
        .into();
    let mut folder = Vec::new();
    for entry in std::fs::read_dir(root.join("docs")).context("failed to list docs")? {
        let path = Path::new("docs").join(entry?.file_name());
        if path.extension().is_some_and(|extension| extension == "md") {
            folder.push(path);
        }
    }
    folder.sort();
    paths.extend(folder);
    Ok(paths)
}

/// Every document, or every mistake in one.
fn documents(root: &Path) -> Result<Vec<Document>> {
    let (mut documents, mut mistakes) = (Vec::new(), Vec::new());
    for path in paths(root)? {
        match Document::read(root, &path) {
            Ok(document) => documents.push(document),
            Err(error) => mistakes.push(format!("{error:#}")),
        }
    }
    ensure!(mistakes.is_empty(), "{}", mistakes.join("\n"));
    Ok(documents)
}

pub(crate) fn run_blocks(options: &BlockOptions) -> Result<()> {
    let root = step::workspace_root();
    let mut documents = documents(root)?;
    let not_run = not_run(&documents);
    for (name, reason) in not_run.iter().filter(|_| options.list) {
        eprintln!("    {name} is not run: {reason}");
    }
    ensure!(
        not_run.len() == NOT_RUN,
        "{} blocks are not run, and NOT_RUN in xtask/src/book/mod.rs says {NOT_RUN}",
        not_run.len()
    );
    for path in &options.documents {
        let is_it = |document: &Document| document.path == *path;
        ensure!(
            documents.iter().any(is_it),
            "{} is none of the documents",
            path.display()
        );
    }
    if !options.documents.is_empty() {
        documents.retain(|document| options.documents.contains(&document.path));
    }

    let (built, libraries) = match &options.built {
        Some(folder) => {
            let folder = std::path::absolute(folder)?;
            let libraries = compiled::latest_libraries(&folder)?;
            (folder, libraries)
        }
        None => {
            // As the tests are built, so that nothing is built twice.
            let libraries = compiled::libraries(&test::built(&[])?)?;
            (weight::target_directory()?.join("debug"), libraries)
        }
    };
    let mut mistakes = mistakes_of_usage(&documents, &built)?;
    mistakes.extend(mistakes_of_syntax(&documents)?);

    let folder = weight::target_directory()?.join("blocks");
    package::remade(&folder)?;
    let programs = Programs {
        rust: compiled::rust_blocks(&documents, &libraries, &folder)?,
        built,
    };
    let mut count = 0;
    // Unless it is asked for, since it needs the library for C.
    let is_run = |document: &&Document| document.path != Path::new(OF_C) || !options.documents.is_empty();
    for document in documents.iter().filter(is_run) {
        let (outcome, seconds) = step::timed(|| {
            session::run(
                root,
                &programs,
                &folder.join("session"),
                document,
                Isolation::Namespaces,
            )
        });
        match outcome {
            Ok(0) => {}
            Ok(blocks) => {
                eprintln!("    {}: {blocks} blocks, {seconds} s", document.path.display());
                count += blocks;
            }
            Err(error) => mistakes.push(format!("{error:#}")),
        }
    }
    if !mistakes.is_empty() {
        bail!("{} mistakes in the documents:\n{}", mistakes.len(), mistakes.join("\n"));
    }
    eprintln!("    {count} blocks passed");
    Ok(())
}

/// The blocks that are not run, and why.
fn not_run(documents: &[Document]) -> Vec<(String, &str)> {
    let blocks = documents.iter().flat_map(|document| {
        let blocks = document.blocks.iter();
        blocks.filter_map(|block| Some((session::block_name(document, block), block.not_run.as_deref()?)))
    });
    blocks.collect()
}

/// Runs the blocks of the document about the library for C, with what was built for release; those in Go only `with_go`.
pub(crate) fn run_blocks_of_c(built: &Path, with_go: bool) -> Result<()> {
    let root = step::workspace_root();
    let programs = Programs {
        built: built.to_owned(),
        rust: None,
    };
    let mut document = Document::read(root, Path::new(OF_C))?;
    document
        .blocks
        .retain(|block| with_go || block.language != Language::Go);
    let place = weight::target_directory()?.join("c/blocks");
    let count = session::run(root, &programs, &place, &document, Isolation::Namespaces)?;
    eprintln!("    {OF_C}: {count} blocks passed");
    Ok(())
}

/// Commands and options that documents name and that are not there.
fn mistakes_of_usage(documents: &[Document], built: &Path) -> Result<Vec<String>> {
    let xtask = std::env::current_exe().context("this program has no path")?;
    let mut usage = Usage::new(built.join("farside"), built.join("farside-lab"), xtask);
    let mut mistakes = Vec::new();
    for document in documents {
        let blocks = document.blocks.iter();
        let shells = blocks.filter(|block| matches!(block.language, Language::Sh | Language::Console));
        let shells = shells.map(|block| (block.line, &block.text));
        let words = document.words.iter().map(|(line, text)| (*line, text));
        for (line, text) in shells.chain(words) {
            let found = usage.mistakes(text)?;
            mistakes.extend(
                found
                    .iter()
                    .map(|mistake| format!("{}:{line}: {mistake}", document.path.display())),
            );
        }
    }
    Ok(mistakes)
}

/// Commands that are not run, and that no shell could run.
fn mistakes_of_syntax(documents: &[Document]) -> Result<Vec<String>> {
    let mut mistakes = Vec::new();
    for document in documents {
        for block in document.blocks.iter().filter(|block| block.not_run.is_some()) {
            let commands = match block.language {
                Language::Sh => block.text.clone(),
                Language::Console => session::commands(&block.text)?
                    .into_iter()
                    .map(|(_, command, _)| command + "\n")
                    .collect(),
                _ => continue,
            };
            let output = Command::new("bash").args(["-n", "-c", &commands]).output()?;
            if !output.status.success() {
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                mistakes.push(format!("{}: {said}", session::block_name(document, block)));
            }
        }
    }
    Ok(mistakes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_is_run_or_says_why_not() {
        let documents = documents(step::workspace_root()).unwrap();
        let not_run = not_run(&documents);
        assert_eq!(not_run.len(), NOT_RUN, "{not_run:#?}");
        let blocks: usize = documents.iter().map(|document| document.blocks.len()).sum();
        assert!(blocks > 3 * NOT_RUN, "{blocks} blocks");
    }

    #[test]
    fn no_shell_stumbles_over_what_is_not_run() {
        let documents = documents(step::workspace_root()).unwrap();
        assert_eq!(mistakes_of_syntax(&documents).unwrap(), [""; 0]);
        let text = "```sh,norun=an example\nif true\n```\n";
        let wrong = [Document::parse(Path::new("docs/a.md"), text).unwrap()];
        assert_eq!(mistakes_of_syntax(&wrong).unwrap().len(), 1);
    }
}
