//! `cargo xtask c`: the library for C as its users have it, and the Go package over it.
//!
//! It builds the library, compiles the example and the suite in `crates/farside-c` with all warnings as errors, and runs
//! them: over mapped memory and a memory node, as they are and under valgrind's memcheck. Then the tests of the Go package,
//! if there is Go, and the blocks of the document.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::{book, header, package, step, weight};

/// What programs are compiled with.
const C_FLAGS: &[&str] = &["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O1", "-g"];
/// What a program needs that has the library in it.
const STATIC_FLAGS: &[&str] = &["-lpthread", "-ldl", "-lm"];
/// How memory is checked: nothing may be used that is not there, and nothing be lost.
const MEMCHECK: &[&str] = &[
    "--quiet",
    "--error-exitcode=9",
    "--leak-check=full",
    "--errors-for-leak-kinds=definite",
    "--show-leak-kinds=definite",
    // Threads get their turns one after the other, and each its own.
    "--fair-sched=yes",
];

/// Where `cargo run` has libraries looked for before all else: those of other builds, too.
const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";

pub(crate) fn run() -> Result<()> {
    header::check()?;
    step::run(&mut step::cargo([
        "build",
        "--release",
        "-p",
        "farside",
        "-p",
        "farside-c",
    ]))?;
    let built = weight::target_directory()?.join("release");
    let out = weight::target_directory()?.join("c");
    package::remade(&out)?;
    let workplace = Workplace { built, out };
    workplace.compile_header_as_cpp()?;
    let suite = workplace.compile("tests/suite.c", "suite", false)?;
    for (name, is_static) in [("visits", false), ("visits-static", true)] {
        let visits = workplace.compile("examples/visits.c", name, is_static)?;
        let segment = workplace.fresh(name)?.join("segment");
        step::run(Command::new(visits).env_remove(LIBRARY_PATH).arg(segment).arg("alice"))?;
    }
    workplace.run_suite("plain", Command::new(&suite))?;
    let mut checked = Command::new("valgrind");
    checked.args(MEMCHECK).arg(&suite);
    workplace.run_suite("memcheck", checked)?;
    let has_go = workplace.test_go()?;
    book::run_blocks_of_c(&workplace.built, has_go)
}

struct Workplace {
    /// Where the library and the program are.
    built: PathBuf,
    out: PathBuf,
}

impl Workplace {
    fn fresh(&self, name: &str) -> Result<PathBuf> {
        let folder = self.out.join(format!("{name}.files"));
        package::remade(&folder)?;
        Ok(folder)
    }

    fn compile(&self, source: &str, name: &str, is_static: bool) -> Result<PathBuf> {
        let (folder, program) = (header::folder(), self.out.join(name));
        let mut command = Command::new("cc");
        command.args(C_FLAGS).arg("-I").arg(folder.join("include"));
        command.arg(folder.join(source)).arg("-o").arg(&program);
        match is_static {
            true => command.arg(self.built.join("libfarside_c.a")).args(STATIC_FLAGS),
            false => command.args(self.link_flags()).args(["-lfarside_c", "-pthread"]),
        };
        step::run(&mut command)?;
        Ok(program)
    }

    fn link_flags(&self) -> [String; 2] {
        let built = self.built.display();
        [format!("-L{built}"), format!("-Wl,-rpath,{built}")]
    }

    fn compile_header_as_cpp(&self) -> Result<()> {
        let source = self.out.join("header.cpp");
        let text = "#include \"farside.h\"\nint main() { return farside_thread_leave() == FARSIDE_OK ? 0 : 1; }\n";
        std::fs::write(&source, text).context("failed to write a program")?;
        let program = self.out.join("header");
        let mut command = Command::new("c++");
        command.args(["-std=c++11", "-Wall", "-Wextra", "-Werror", "-pedantic"]);
        command.arg("-I").arg(header::folder().join("include"));
        command.arg(source).args(self.link_flags()).arg("-lfarside_c");
        step::run(command.arg("-o").arg(&program))?;
        step::run(Command::new(program).env_remove(LIBRARY_PATH))
    }

    /// Runs the suite with a memory node of its own. It must say nothing on its standard error: there stands a panic at the end of a
    /// thread, which nobody else hears of.
    fn run_suite(&self, name: &str, mut command: Command) -> Result<()> {
        let folder = self.fresh(name)?;
        let address = package::free_address()?;
        let mut node = Command::new(self.built.join("farside"));
        node.args([
            "node",
            "--memory",
            "256MiB",
            "--listen",
            &address.to_string(),
            "--segment",
        ]);
        let _node = package::Service::start(node.arg(folder.join("node")))?;
        package::await_connection(address)?;
        command.arg(&folder).arg(format!("tcp:{address}"));
        command.env_remove(LIBRARY_PATH);
        let line = step::command_line(&command);
        eprintln!("    $ {line}");
        let ended = command.stdout(Stdio::inherit()).stderr(Stdio::piped()).output();
        let ended = ended.with_context(|| format!("failed to start `{line}`"))?;
        let said = String::from_utf8_lossy(&ended.stderr);
        ensure!(ended.status.success(), "`{line}` failed ({}): {said}", ended.status);
        ensure!(said.is_empty(), "`{line}` has passed, but complains: {said}");
        Ok(())
    }

    /// Whether there is Go.
    fn test_go(&self) -> Result<bool> {
        if !Command::new("go")
            .arg("version")
            .status()
            .is_ok_and(|status| status.success())
        {
            eprintln!("    skipped: there is no Go (Debian: golang-go)");
            return Ok(false);
        }
        let [folder, run_path] = self.link_flags();
        for arguments in [&["vet", "./..."][..], &["test", "-count=1", "./..."]] {
            let mut command = Command::new("go");
            command.current_dir(header::folder().join("go")).args(arguments);
            command.env("CGO_ENABLED", "1").env("GOTOOLCHAIN", "local");
            command.env_remove(LIBRARY_PATH);
            step::run(command.env("CGO_LDFLAGS", format!("{folder} {run_path}")))?;
        }
        Ok(true)
    }
}
