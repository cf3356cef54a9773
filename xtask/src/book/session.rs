//! Runs the blocks of a document in their order, as a reader would: one shell, one folder, which is empty but for links to the
//! folders of the project that a call may name.
//!
//! The shell has a network, processes and shared memory of its own (namespaces of Linux), so the ports and files that documents
//! name are free, and nothing that a block has started outlives the session. A command that ends with `&` is a server: the next
//! one waits until it listens. `./run`, `./lab` and `cargo run` start the programs that are built already.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

use super::document::{Block, Document, Language};
use crate::package;

/// A session that takes longer hangs.
const SECONDS_MAX: &str = "300";
/// What a reader's shell and ours have in common, and what is ours.
const PROLOGUE: &str = r#"
set -u
listens() { ss -Hlntxp 2>/dev/null | grep -q "pid=$1,"; }
await_server() { while ! listens "$1"; do kill -0 "$1" 2>/dev/null || return 1; sleep 0.02; done; }
run_step() {
  source "$steps/$1.sh" >"$steps/$1.out" 2>&1 </dev/null
  echo $? >"$steps/$1.status"
}
"#;

/// What blocks need beside the tools of the machine.
pub(super) struct Programs {
    /// Where `farside` and `farside-lab` are, and the examples in a folder of that name.
    pub(super) built: PathBuf,
    /// Runs the Rust block that is named to it, if any was compiled.
    pub(super) rust: Option<PathBuf>,
}

/// One thing that the shell does.
struct Step {
    line: usize,
    /// What a reader sees of it.
    shown: String,
    shell: String,
    /// What it has to print; `None`: whatever it likes.
    expected: Option<String>,
    fails: bool,
}

/// Whether the shell is alone.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Isolation {
    Namespaces,
    #[cfg(test)]
    None,
}

/// The name by which the program of all Rust blocks knows one.
pub(super) fn block_name(document: &Document, block: &Block) -> String {
    format!("{}:{}", document.path.display(), block.line)
}

/// Runs what is to be run of a document; how many blocks that were.
pub(super) fn run(
    root: &Path,
    programs: &Programs,
    place: &Path,
    document: &Document,
    isolation: Isolation,
) -> Result<usize> {
    let (work, steps_folder) = (place.join("work"), place.join("steps"));
    package::remade(&work)?;
    package::remade(&steps_folder)?;
    lay_out(root, programs, &work)?;
    let is_run =
        |block: &&Block| block.not_run.is_none() && !matches!(block.language, Language::Text | Language::Python);
    let mut steps = Vec::new();
    let mut count = 0;
    for block in document.blocks.iter().filter(is_run) {
        count += 1;
        steps.extend(steps_of(document, block, &steps_folder)?);
    }
    if steps.is_empty() {
        return Ok(0);
    }
    let mut script = PROLOGUE.to_owned();
    for (index, step) in steps.iter().enumerate() {
        std::fs::write(steps_folder.join(format!("{index}.sh")), &step.shell)?;
        let last = usize::from(step.fails);
        // What comes behind a step that went wrong would only confuse.
        writeln!(
            script,
            "run_step {index}; [ \"$(( $(<\"$steps/{index}.status\") != 0 ))\" = {last} ] || exit 0"
        )?;
    }
    let said = shell(isolation, &work, &steps_folder, programs, &script)?;
    for (index, step) in steps.iter().enumerate() {
        let read = |kind: &str| std::fs::read(steps_folder.join(format!("{index}.{kind}")));
        let printed = String::from_utf8_lossy(&read("out").unwrap_or_default()).into_owned();
        let place = format!("{}:{}", document.path.display(), step.line);
        let status = read("status").unwrap_or_default();
        let status = String::from_utf8_lossy(&status).trim().to_owned();
        ensure!(
            !status.is_empty(),
            "{place}: `{}` did not come to its end; it printed:\n{printed}{said}",
            step.shown
        );
        if (status != "0") != step.fails {
            let wanted = if step.fails { "was to fail" } else { "failed" };
            bail!(
                "{place}: `{}` {wanted} (status {status}); it printed:\n{printed}",
                step.shown
            );
        }
        if let Some(expected) = &step.expected
            && !fits(expected, &printed)
        {
            bail!(
                "{place}: `{}` was to print\n{expected}\nand printed\n{printed}",
                step.shown
            );
        }
    }
    Ok(count)
}

/// Runs the script; what it printed itself, which is nothing unless something is wrong with the session.
fn shell(isolation: Isolation, work: &Path, steps: &Path, programs: &Programs, script: &str) -> Result<String> {
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", SECONDS_MAX]);
    let mut start = "";
    if isolation == Isolation::Namespaces {
        command.arg("unshare");
        if !package::is_superuser() {
            command.args(["--user", "--map-root-user"]);
        }
        command.args(["--net", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc"]);
        start = "ip link set lo up && mount -t tmpfs tmpfs /dev/shm || exit 1\n";
    }
    command.args(["bash", "--norc", "-c"]).arg(format!("{start}{script}"));
    let path = std::env::var("PATH").unwrap_or_default();
    command
        .current_dir(work)
        .env("PATH", format!("{}:{path}", work.join(".bin").display()))
        .env("steps", steps)
        // As on a terminal.
        .env("FAKETTY", "1")
        .env_remove("LD_LIBRARY_PATH")
        .env("FARSIDE_BUILT", &programs.built)
        .env("FARSIDE_BLOCKS", programs.rust.as_deref().unwrap_or(Path::new("")));
    let output = command.stdin(Stdio::null()).output();
    let output = output.context("failed to start a session: it needs timeout, unshare and bash")?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    ensure!(
        output.status.success(),
        "a session failed ({}; it needs namespaces, and ip and ss of iproute2): {text}",
        output.status
    );
    Ok(text)
}

/// Links to what commands name, and the programs under the names that documents call them by.
fn lay_out(root: &Path, programs: &Programs, work: &Path) -> Result<()> {
    let bin = work.join(".bin");
    std::fs::create_dir(&bin)?;
    for folder in ["crates", "packaging", "scripts", "figures"] {
        std::os::unix::fs::symlink(root.join(folder), work.join(folder))?;
    }
    std::fs::create_dir(work.join("target"))?;
    std::os::unix::fs::symlink(&programs.built, work.join("target/release"))?;
    for program in ["farside", "farside-lab"] {
        std::os::unix::fs::symlink(programs.built.join(program), bin.join(program))?;
    }
    let stand_in = |path: PathBuf, text: &str| {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::write(&path, format!("#!/usr/bin/env bash\n{text}\n"))?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))
    };
    stand_in(work.join("run"), r#"exec farside serve "$@""#)?;
    stand_in(work.join("lab"), r#"exec farside-lab "$@""#)?;
    let cargo = r#"case "$*" in
  "run --release -- "*) shift 3; exec farside "$@" ;;
  "run --release -p farside-lab -- "*) shift 5; exec farside-lab "$@" ;;
  "run --release --example "*) name=$4; shift 4; exec "$FARSIDE_BUILT/examples/$name" "${@:2}" ;;
esac
echo "a document may run programs by cargo, and nothing else: cargo $*" >&2
exit 1"#;
    stand_in(bin.join("cargo"), cargo).context("failed to write a stand-in")
}

/// What the shell does for a block.
fn steps_of(document: &Document, block: &Block, folder: &Path) -> Result<Vec<Step>> {
    let step = |shown: &str, shell: String| Step {
        line: block.line,
        shown: shown.to_owned(),
        shell,
        expected: None,
        fails: false,
    };
    let mut steps = Vec::new();
    let is_shell = matches!(
        block.language,
        Language::Sh | Language::Console | Language::Redis | Language::Toml
    );
    if is_shell && !block.before.is_empty() {
        steps.push(step("what is run before", with_servers(&block.before)));
    }
    let file = |name: &str, text: &str| -> Result<PathBuf> {
        let path = folder.join(format!("{}-{name}", block.line));
        std::fs::write(&path, text)?;
        Ok(path)
    };
    match block.language {
        Language::Sh => steps.push(step("the block", with_servers(&block.text))),
        Language::Console => {
            for (line, command, printed) in commands(&block.text)? {
                steps.push(Step {
                    line: block.line + line,
                    expected: (!printed.is_empty()).then_some(printed),
                    ..step(&command, with_servers(&command))
                });
            }
        }
        Language::Redis => {
            let (mut sent, mut replies) = (String::new(), String::new());
            for line in block.text.lines() {
                let (to, line) = line
                    .strip_prefix("> ")
                    .map_or((&mut replies, line), |line| (&mut sent, line));
                *to += line;
                *to += "\n";
            }
            let sent = file("sent", &sent)?;
            let talk = format!("redis-cli -p 6380 <{}\n", sent.display());
            let talk = step("the block", talk);
            steps.push(Step {
                expected: Some(replies),
                ..talk
            });
        }
        Language::Toml => {
            let text = file("toml", &block.text)?;
            let name = block.file.as_deref().unwrap_or("farside.toml");
            let checked = if block.text.contains("[dependencies]") {
                dependencies(&block.text)?;
                String::new()
            } else {
                format!("farside config check --config {name}\n")
            };
            steps.push(step("the file", format!("cp {} {name}\n{checked}", text.display())));
        }
        Language::Rust => {
            let name = block_name(document, block);
            steps.push(step("the block", format!("\"$FARSIDE_BLOCKS\" {name}\n")));
        }
        Language::C => {
            let source = file("block.c", &super::compiled::c_program(block))?;
            let flags = "-std=c11 -Wall -Wextra -Werror -I crates/farside-c/include";
            let link = "-L target/release -lfarside_c -pthread -Wl,-rpath,\"$FARSIDE_BUILT\"";
            let shell = format!("cc {flags} {} -o .bin/block {link} && .bin/block\n", source.display());
            steps.push(step("the block", shell));
        }
        Language::Go => {
            let module = folder.join(format!("{}-go", block.line));
            std::fs::create_dir(&module)?;
            std::fs::write(module.join("main.go"), super::compiled::go_program(block))?;
            std::fs::write(
                module.join("go.mod"),
                super::compiled::go_module(&folder.with_file_name("work")),
            )?;
            let variables = "CGO_ENABLED=1 GOTOOLCHAIN=local GOFLAGS=-mod=mod";
            let link = "CGO_LDFLAGS=\"-L$FARSIDE_BUILT -Wl,-rpath,$FARSIDE_BUILT\"";
            let shell = format!("(cd {} && {variables} {link} go run .)\n", module.display());
            steps.push(step("the block", shell));
        }
        Language::Python | Language::Text => {}
    }
    if let Some(last) = steps.last_mut() {
        last.fails = block.fails;
    }
    if block.language != Language::Toml
        && let (Some(name), Some(last)) = (&block.file, steps.last_mut())
    {
        let text = file("file", &block.text)?;
        last.shell = format!("cp {} {name}\n{}", text.display(), last.shell);
    }
    Ok(steps)
}

/// The commands of a console, each with its line in the block and what it prints.
pub(super) fn commands(text: &str) -> Result<Vec<(usize, String, String)>> {
    let mut commands: Vec<(usize, String, String)> = Vec::new();
    let mut goes_on = false;
    for (number, line) in (1..).zip(text.lines()) {
        if goes_on {
            let (_, command, _) = commands.last_mut().context("it has begun")?;
            *command += "\n";
            *command += line;
            goes_on = line.ends_with('\\');
        } else if let Some(command) = line.strip_prefix("$ ") {
            commands.push((number, command.to_owned(), String::new()));
            goes_on = line.ends_with('\\');
        } else if let Some((_, _, printed)) = commands.last_mut() {
            *printed += line;
            *printed += "\n";
        } else {
            bail!("a console begins with a command, `$ ...`, and not with `{line}`");
        }
    }
    Ok(commands)
}

/// The same, but whoever starts a server waits until it listens; and the first command that fails ends it.
fn with_servers(shell: &str) -> String {
    let mut lines = Vec::new();
    for line in shell.lines() {
        let command = line.split(" #").next().unwrap_or(line).trim_end();
        lines.push(line.to_owned());
        if command.ends_with('&') && !command.ends_with("&&") {
            // Without `disown` the shell would speak of its end in the midst of what others print.
            lines.push("disown $!; await_server $! || return 1".to_owned());
        } else if !command.is_empty() && !command.ends_with(['\\', '{', '|']) {
            lines.push("[ $? = 0 ] || return 1".to_owned());
        }
    }
    lines.join("\n") + "\n"
}

/// Do the paths of these dependencies lead to crates of ours?
fn dependencies(text: &str) -> Result<()> {
    let table: toml::Table = text.parse().context("dependencies that are no TOML")?;
    let dependencies = table.get("dependencies").and_then(toml::Value::as_table);
    for (name, value) in dependencies.context("there are no dependencies")? {
        let Some(path) = value.get("path").and_then(toml::Value::as_str) else {
            continue;
        };
        ensure!(
            path.ends_with(&format!("crates/{name}")),
            "{name} is in crates/{name}, not in {path}"
        );
    }
    Ok(())
}

/// Was this printed? In what is expected, `...` stands for anything, also for lines if it is alone in one.
fn fits(expected: &str, printed: &str) -> bool {
    let lines = |text: &str| {
        text.trim_end()
            .lines()
            .map(|line| line.trim_end().to_owned())
            .collect::<Vec<_>>()
    };
    lines_fit(&lines(expected), &lines(printed))
}

fn lines_fit(expected: &[String], printed: &[String]) -> bool {
    match expected.split_first() {
        None => printed.is_empty(),
        Some((first, others)) if first.trim() == "..." => {
            (0..=printed.len()).any(|skipped| lines_fit(others, &printed[skipped..]))
        }
        Some((first, others)) => printed
            .split_first()
            .is_some_and(|(line, left)| line_fits(first, line) && lines_fit(others, left)),
    }
}

fn line_fits(expected: &str, line: &str) -> bool {
    match expected.split_once("...") {
        None => expected == line,
        Some((start, end)) => line
            .strip_prefix(start)
            .is_some_and(|left| (0..=left.len()).any(|at| left.is_char_boundary(at) && line_fits(end, &left[at..]))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a document with the machine's own programs.
    fn run_text(text: &str) -> Result<usize> {
        let place = tempfile::tempdir().unwrap();
        let document = Document::parse(Path::new("docs/a.md"), text).unwrap();
        let programs = Programs {
            built: "/usr/bin".into(),
            rust: None,
        };
        run(Path::new("/"), &programs, place.path(), &document, Isolation::None)
    }

    fn failure(text: &str) -> String {
        run_text(text).expect_err("the document is wrong").to_string()
    }

    #[test]
    fn a_document_that_says_what_happens_passes() {
        let text = "```sh\nname=world\necho 'a b' >file\n```\n\n```console\n$ cat file\na b\n$ echo hello $name; \\\n  seq 9\n\
                    hello ...\n1\n...\n9\n```\n\n```console,fails\n$ cat gone\ncat: gone: ...\n```\n";
        assert_eq!(run_text(text).unwrap(), 3);
    }

    #[test]
    fn output_that_differs_is_an_error() {
        let error = failure("Words.\n\n```console\n$ true\n$ echo a\nb\n```\n");
        assert_eq!(error, "docs/a.md:5: `echo a` was to print\nb\n\nand printed\na\n");
    }

    #[test]
    fn a_command_that_fails_is_an_error_wherever_it_stands() {
        assert!(failure("```sh\nfalse\ntrue\n```\n").contains("docs/a.md:1: `the block` failed (status 1)"));
        assert!(failure("```console\n$ false\n```\n").contains("docs/a.md:2: `false` failed"));
        assert!(failure("```console,fails\n$ true\n```\n").contains("`true` was to fail"));
        assert!(failure("```sh\nexit 0\n```\n").contains("did not come to its end"));
        assert!(failure("```sh\nfalse &\n```\n").contains("failed"));
    }

    #[test]
    fn a_block_that_is_not_to_be_run_is_not() {
        assert_eq!(
            run_text("```sh,norun=it fails\nfalse\n```\n\n```text\nx\n```\n").unwrap(),
            0
        );
    }

    #[test]
    fn dots_stand_for_anything() {
        assert!(fits("a...c\n...\nz\n", "abc\nx\ny\nz\n"));
        assert!(fits("a\n...\n", "a\n"));
        assert!(!fits("a...c\n", "abd\n"));
        assert!(!fits("a\n", "a\nb\n"));
        assert!(!fits("a\nb\n", "a\n"));
    }
}
