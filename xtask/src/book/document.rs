//! A document of the project as the book and the runner of blocks see it: its blocks, and the code within its sentences.
//!
//! The first word of a block's info string is its language, which decides how it is run. After it may come, with commas between
//! them:
//!
//! - `fails`: the last command of the block ends with another status than 0;
//! - `norun=WHY`: the block is not run, for the reason that follows; what it says is still looked at;
//! - `file=NAME`: the file that the block is written to.
//!
//! A comment right before a block that begins with `before` holds what is run first and is of no interest to a reader:
//!
//! ```text
//! <!-- before
//! farside serve --memory 64MiB &
//! -->
//! ```

use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// How a block is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Language {
    /// Commands, each of which has to succeed.
    Sh,
    /// Commands behind `$ `, and what they print.
    Console,
    /// Commands behind `> ` of one connection to a gateway, and their replies as `redis-cli` prints them.
    Redis,
    /// The body of a function that returns a `Result`.
    Rust,
    /// Run where the wheel is installed, by `crates/farside-python/tests/test_documentation.py`.
    Python,
    /// A settings file, or dependencies of a program.
    Toml,
    /// The body of a function.
    C,
    /// The body of a function that returns an `error`.
    Go,
    /// No code: pictures, layouts, grammars.
    Text,
}

impl Language {
    const ALL: [(&str, Self); 9] = [
        ("sh", Self::Sh),
        ("console", Self::Console),
        ("redis", Self::Redis),
        ("rust", Self::Rust),
        ("python", Self::Python),
        ("toml", Self::Toml),
        ("c", Self::C),
        ("go", Self::Go),
        ("text", Self::Text),
    ];
}

/// A block of code.
#[derive(Debug)]
pub(super) struct Block {
    /// Where it begins, counted from 1.
    pub(super) line: usize,
    pub(super) language: Language,
    pub(super) fails: bool,
    /// Why it is not run.
    pub(super) not_run: Option<String>,
    pub(super) file: Option<String>,
    /// What is run before it.
    pub(super) before: String,
    pub(super) text: String,
}

/// A Markdown file.
pub(super) struct Document {
    /// From the root of the workspace.
    pub(super) path: PathBuf,
    pub(super) blocks: Vec<Block>,
    /// What stands between backticks in a sentence, with its line.
    pub(super) words: Vec<(usize, String)>,
}

impl Document {
    pub(super) fn read(root: &Path, path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(root.join(path));
        let text = text.with_context(|| format!("failed to read {}", path.display()))?;
        Self::parse(path, &text)
    }

    /// Every mistake is said, one per line.
    pub(super) fn parse(path: &Path, text: &str) -> Result<Self> {
        let (mut blocks, mut words, mut mistakes) = (Vec::new(), Vec::new(), Vec::new());
        let mut comment = String::new();
        // Of the block that we are in.
        let mut open: Option<(Result<Block>, Range<usize>)> = None;
        for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
            let line = 1 + text[..range.start].matches('\n').count();
            match event {
                Event::Html(html) => comment += &html,
                Event::Start(Tag::HtmlBlock) => comment.clear(),
                Event::End(TagEnd::HtmlBlock) => {}
                Event::Start(Tag::CodeBlock(kind)) => {
                    let before = std::mem::take(&mut comment);
                    open = Some((begun(&kind, line, &before), range));
                }
                Event::Text(text) if open.is_some() => {
                    if let Some((Ok(block), _)) = &mut open {
                        block.text += &text;
                    }
                }
                Event::End(TagEnd::CodeBlock) => match open.take().map(|(block, _)| block) {
                    Some(Ok(block)) => blocks.push(block),
                    Some(Err(error)) => mistakes.push(format!("{}:{line}: {error}", path.display())),
                    None => {}
                },
                Event::Code(code) => words.push((line, code.into_string())),
                Event::Start(_) => comment.clear(),
                _ => {}
            }
        }
        if !mistakes.is_empty() {
            bail!("{}", mistakes.join("\n"));
        }
        Ok(Self {
            path: path.to_owned(),
            blocks,
            words,
        })
    }
}

/// The block with this info string, still empty.
fn begun(kind: &CodeBlockKind<'_>, line: usize, comment: &str) -> Result<Block> {
    let CodeBlockKind::Fenced(info) = kind else {
        bail!("a block that is only indented: put it between fences that name its language");
    };
    let (language, attributes) = info.split_once(',').unwrap_or((info, ""));
    let known = || Language::ALL.map(|(name, _)| name).join(", ");
    let Some((_, language)) = Language::ALL.into_iter().find(|(name, _)| *name == language) else {
        bail!(
            "a block in `{language}`, which nothing runs: the languages are {}",
            known()
        );
    };
    let mut block = Block {
        line,
        language,
        fails: false,
        not_run: None,
        file: None,
        before: before(comment).to_owned(),
        text: String::new(),
    };
    let mut left = attributes;
    while !left.is_empty() {
        // The reason may have commas.
        if let Some(reason) = left.strip_prefix("norun=") {
            block.not_run = Some(reason.to_owned());
            break;
        }
        let (attribute, others) = left.split_once(',').unwrap_or((left, ""));
        match attribute.split_once('=') {
            None if attribute == "fails" => block.fails = true,
            Some(("file", name)) => block.file = Some(name.to_owned()),
            _ => bail!("`{attribute}` is said of a block: there are `fails`, `file=NAME` and `norun=WHY`"),
        }
        left = others;
    }
    if block.not_run.as_deref() == Some("") {
        bail!("a block that is not run for no reason: say why, as in `norun=needs a network card`");
    }
    Ok(block)
}

/// What a comment wants to be run before the block that follows it.
fn before(comment: &str) -> &str {
    let text = comment.trim().strip_prefix("<!-- before\n");
    text.and_then(|text| text.strip_suffix("-->")).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Document> {
        Document::parse(Path::new("docs/a.md"), text)
    }

    fn refused(text: &str) -> String {
        parsed(text).err().expect("the document has a mistake").to_string()
    }

    #[test]
    fn a_block_has_its_language_its_attributes_and_what_is_run_before() {
        let text = "# A\n\n<!-- before\nlet a = 1;\n-->\n```rust\na;\n```\n\n```console,fails,norun=no card, no node\n$ x\n```\n";
        let document = parsed(text).unwrap();
        let [first, second] = &document.blocks[..] else {
            panic!("{:?}", document.blocks)
        };
        assert_eq!((first.language, first.line), (Language::Rust, 6));
        assert_eq!((&*first.before, &*first.text), ("let a = 1;\n", "a;\n"));
        assert_eq!((second.language, second.fails), (Language::Console, true));
        assert_eq!(second.not_run.as_deref(), Some("no card, no node"));
        assert_eq!(second.before, "");
    }

    #[test]
    fn what_is_run_before_belongs_to_the_next_block_alone() {
        let document = parsed("<!-- before\na\n-->\n\nWords.\n\n```sh\nb\n```\n").unwrap();
        assert_eq!(document.blocks[0].before, "");
    }

    #[test]
    fn a_block_that_nothing_runs_is_refused() {
        assert!(refused("```\nx\n```\n").contains("docs/a.md:1: a block in ``"));
        assert!(refused("```bash\nx\n```\n").contains("`bash`"));
        assert!(refused("Words.\n\n    x\n").contains("docs/a.md:3: a block that is only indented"));
        assert!(refused("- an item\n\n      x\n").contains("only indented"));
        assert!(refused("```sh,ignore\nx\n```\n").contains("`ignore`"));
        assert!(refused("```sh,norun=\nx\n```\n").contains("for no reason"));
    }

    #[test]
    fn code_within_sentences_is_found() {
        let document = parsed("Say\n`farside serve --memory 1GiB`.\n\n| a |\n|---|\n| `farside list` |\n").unwrap();
        let words = [(2, "farside serve --memory 1GiB"), (6, "farside list")];
        assert_eq!(document.words, words.map(|(line, text)| (line, text.to_owned())));
    }
}
