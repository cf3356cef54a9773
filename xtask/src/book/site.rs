//! The site: documents laid out as mdBook wants them, and what it has made looked at.
//!
//! Documents link to each other and to files of the project by paths that lead somewhere on a forge. In a folder of the book's
//! they keep these places, so they lead to each other there, too; a file or folder that one links to becomes a page of its own,
//! which shows it. `docs/SUMMARY.md` says which documents are chapters, and all of them have to be.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::tidy::normalized;
use crate::{package, step, weight};

const SUMMARY: &str = "docs/SUMMARY.md";
/// Its settings, and what they name.
const SETTINGS: &str = "docs/book";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Where the site goes; what is there is replaced
    #[arg(long, default_value = "target/book")]
    out: PathBuf,
    /// Fail on warnings, and on links that lead nowhere, to a heading neither
    #[arg(long)]
    check: bool,
}

/// What CI wants.
pub(crate) fn check() -> Result<()> {
    run(&Options {
        out: PathBuf::from("target/book"),
        check: true,
    })
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let root = step::workspace_root();
    let source = weight::target_directory()?.join("book-source");
    package::remade(&source)?;
    let chapters = lay_out(root, &source)?;
    let out = std::path::absolute(root.join(&options.out))?;
    let output = Command::new(program(root))
        .args(["build", "--dest-dir"])
        .arg(&out)
        .arg(&source)
        .output()
        .context("mdbook is not there: need_book_tools of scripts/setup.bash installs it, and so does `cargo install mdbook`")?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "mdbook failed: {said}");
    if options.check {
        let complains = |line: &&str| line.contains("WARN") || line.contains("ERROR");
        let mut mistakes: Vec<_> = said.lines().filter(complains).map(str::to_owned).collect();
        mistakes.extend(dead_links(&out)?);
        if !mistakes.is_empty() {
            bail!("the book has {} mistakes:\n{}", mistakes.len(), mistakes.join("\n"));
        }
    }
    eprintln!("    {chapters} chapters: {}", out.join("index.html").display());
    Ok(())
}

/// mdBook where set-up has put it, or else in the PATH.
fn program(root: &Path) -> PathBuf {
    let ours = root.join("target/tools/mdbook/bin/mdbook");
    if ours.exists() { ours } else { PathBuf::from("mdbook") }
}

/// Writes the folder that mdBook reads; how many chapters there are.
fn lay_out(root: &Path, source: &Path) -> Result<usize> {
    let read = |path: &Path| {
        std::fs::read_to_string(root.join(path)).with_context(|| format!("failed to read {}", path.display()))
    };
    let place = |path: &Path| -> Result<PathBuf> {
        let path = source.join("src").join(path);
        std::fs::create_dir_all(path.parent().context("a file lies in a folder")?)?;
        Ok(path)
    };
    let write = |path: &Path, text: &str| -> Result<()> {
        let path = place(path)?;
        std::fs::write(&path, text).with_context(|| format!("failed to write {}", path.display()))
    };
    for entry in std::fs::read_dir(root.join(SETTINGS))? {
        let entry = entry?;
        std::fs::copy(entry.path(), source.join(entry.file_name()))?;
    }
    let summary = Path::new(SUMMARY);
    let text = read(summary)?;
    let in_book = with_targets(&text, |target| {
        Some(normalized(&Path::new("docs").join(target)).display().to_string())
    });
    write(Path::new("SUMMARY.md"), &in_book)?;
    let chapters: BTreeSet<PathBuf> = targets(&in_book).map(PathBuf::from).collect();
    let documents = super::paths(root)?;
    let missing = documents
        .iter()
        .filter(|path| *path != summary && !chapters.contains(*path));
    let missing: Vec<_> = missing.map(|path| path.display().to_string()).collect();
    ensure!(missing.is_empty(), "no chapters of {SUMMARY}: {}", missing.join(", "));

    let mut shown = BTreeSet::new();
    for path in &chapters {
        let folder = path.parent().unwrap_or(Path::new(""));
        let text = read(path)?;
        let text = with_targets(&text, |target| {
            let (file, _) = target.split_once('#').unwrap_or((target, ""));
            let path = normalized(&folder.join(file));
            let is_other = file.is_empty() || file.contains(':') || chapters.contains(&path);
            if is_other || !root.join(&path).exists() {
                return None;
            }
            let is_picture = path
                .extension()
                .is_some_and(|extension| extension == "svg" || extension == "png");
            shown.insert((path, is_picture));
            (!is_picture).then(|| format!("{}.html", file.trim_end_matches('/')))
        });
        write(path, &with_plain_languages(&text))?;
    }
    for (path, is_picture) in &shown {
        if *is_picture {
            std::fs::copy(root.join(path), place(path)?)
                .with_context(|| format!("failed to copy {}", path.display()))?;
        } else {
            let page = PathBuf::from(format!("{}.html", path.display()));
            write(&page, &page_of(path, &contents(&root.join(path))?))?;
        }
    }
    Ok(chapters.len())
}

/// The text with what `change` makes of the target of each link.
fn with_targets(text: &str, mut change: impl FnMut(&str) -> Option<String>) -> String {
    let mut changed = String::new();
    let mut left = text;
    while let Some((before, behind)) = left.split_once("](") {
        let (target, _) = behind.split_once(')').unwrap_or((behind, ""));
        changed += before;
        changed += "](";
        changed += &change(target).unwrap_or_else(|| target.to_owned());
        left = &behind[target.len()..];
    }
    changed + left
}

fn targets(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|behind| behind.split(')').next())
}

/// Without what is said to the runner of blocks: what is left of an info string chooses colours.
fn with_plain_languages(text: &str) -> String {
    let plain = |line: &str| match line.strip_prefix("```").and_then(|info| info.split_once(',')) {
        Some((language, _)) => format!("```{language}\n"),
        None => format!("{line}\n"),
    };
    text.lines().map(plain).collect()
}

/// A file as text, or the names in a folder.
fn contents(path: &Path) -> Result<String> {
    if !path.is_dir() {
        return std::fs::read_to_string(path).with_context(|| format!("failed to read {}", path.display()));
    }
    let mut names = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        let end = if entry.path().is_dir() { "/" } else { "" };
        names.push(format!("{}{end}\n", entry.file_name().to_string_lossy()));
    }
    names.sort();
    Ok(names.concat())
}

fn page_of(path: &Path, text: &str) -> String {
    let escaped = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let name = path.display();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>{name}</title>\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <style>:root {{ color-scheme: light dark }} body {{ margin: 2rem; font-family: sans-serif }}\n\
         pre {{ overflow: auto }}</style>\n\
         </head>\n<body><h1>{name}</h1>\n<pre>{escaped}</pre></body>\n</html>\n"
    )
}

/// Links of the site to what is not in it, each with its page.
fn dead_links(site: &Path) -> Result<Vec<String>> {
    let mut pages = BTreeMap::new();
    collect(site, site, &mut pages)?;
    let mut dead = Vec::new();
    for (path, text) in &pages {
        // What mdBook makes of all chapters together, and of nothing.
        if ["print.html", "404.html", "toc.html"]
            .iter()
            .any(|name| path == Path::new(name))
        {
            continue;
        }
        let folder = path.parent().unwrap_or(Path::new(""));
        for target in values(text, "href").chain(values(text, "src")) {
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            if file.contains(':') || file.starts_with("//") {
                continue;
            }
            let to = if file.is_empty() {
                path.clone()
            } else {
                normalized(&folder.join(file))
            };
            let page = pages.get(&to);
            let is_there = match page {
                Some(page) => heading.is_empty() || values(page, "id").any(|id| id == heading),
                None => site.join(&to).exists() && heading.is_empty(),
            };
            if !is_there {
                dead.push(format!("{}: a link to {target}, which is not there", path.display()));
            }
        }
    }
    dead.dedup();
    Ok(dead)
}

/// The pages below a folder.
fn collect(site: &Path, folder: &Path, pages: &mut BTreeMap<PathBuf, String>) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| format!("failed to list {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            collect(site, &path, pages)?;
        } else if path.extension().is_some_and(|extension| extension == "html") {
            let relative = path.strip_prefix(site).unwrap_or(&path).to_owned();
            pages.insert(relative, std::fs::read_to_string(&path)?);
        }
    }
    Ok(())
}

/// The values of an attribute, wherever there is one.
fn values<'a>(page: &'a str, attribute: &'static str) -> impl Iterator<Item = &'a str> {
    page.match_indices(attribute).filter_map(move |(start, _)| {
        let value = page[start + attribute.len()..].strip_prefix("=\"")?;
        // Within a value or a sentence it is no attribute.
        let is_one = page[..start].ends_with([' ', '\n']);
        is_one.then(|| value.split('"').next()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_document_is_a_chapter_and_every_file_that_is_shown_is_there() {
        let source = tempfile::tempdir().unwrap();
        let chapters = lay_out(step::workspace_root(), source.path()).unwrap();
        assert!(chapters > 20, "{chapters}");
        let is_there = |name: &str| source.path().join("src").join(name).exists();
        assert!(is_there("docs/papers.md") && is_there("ARCHITECTURE.md") && is_there("docs/images/top.svg"));
        assert!(is_there("docs/images/console.png"));
        assert!(is_there("crates/farside-c/include/farside.h.html") && is_there("crates/farside-c/go.html"));
    }

    #[test]
    fn links_are_changed_where_they_are_links() {
        let change = |target: &str| target.ends_with(".rs").then(|| format!("{target}.html"));
        let text = "[a](b.rs) and [c](d.md#e), f(b.rs)\n";
        assert_eq!(with_targets(text, change), "[a](b.rs.html) and [c](d.md#e), f(b.rs)\n");
        assert_eq!(targets(text).collect::<Vec<_>>(), ["b.rs", "d.md#e"]);
    }

    #[test]
    fn a_reader_sees_the_language_of_a_block_alone() {
        assert_eq!(
            with_plain_languages("```sh,norun=a, b\nx,y\n```\n"),
            "```sh\nx,y\n```\n"
        );
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let site = tempfile::tempdir().unwrap();
        std::fs::create_dir(site.path().join("docs")).unwrap();
        let write = |name: &str, text: &str| std::fs::write(site.path().join(name), text).unwrap();
        write(
            "index.html",
            "<a href=\"docs/a.html#identity\">a</a> <a href=\"https://example.org/x\">x</a> <a href=\"#top\" id=\"top\">",
        );
        write(
            "docs/a.html",
            "<h1 id=\"identity\">One</h1> <a href=\"../index.html\">b</a> <img src=\"b.svg\">",
        );
        write("docs/b.svg", "");
        assert_eq!(dead_links(site.path()).unwrap(), [""; 0]);
        write("docs/a.html", "<a href=\"../gone.html\">b</a> <img src=\"c.svg\">");
        let dead = dead_links(site.path()).unwrap().join("\n");
        for wanted in [
            "index.html: a link to docs/a.html#identity",
            "docs/a.html: a link to ../gone.html",
            "c.svg",
        ] {
            assert!(dead.contains(wanted), "{wanted} is not in {dead}");
        }
    }
}
