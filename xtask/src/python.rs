//! `cargo xtask python`: the wheel for Python. `--check` then installs it as a user does, and runs its tests; `--target` makes it for
//! another processor, with the linker of Debian's package for that.
//!
//! Tools come from PyPI in the versions of `crates/farside-python/requirements.txt`, to an environment in `target/python`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::{step, weight};

/// What a user downloads.
const WHEEL_BYTES_MAX: u64 = 8_000_000;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Also install it and run its tests
    #[arg(long, conflicts_with = "target")]
    check: bool,
    /// Make it for this processor: `rustup target add` it before, and install its linker
    #[arg(long)]
    target: Option<Target>,
}

/// For which processors there are wheels besides that of this machine.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Target {
    #[value(name = "aarch64-unknown-linux-gnu")]
    Aarch64,
}

impl Target {
    /// As Rust names it.
    const fn triple(self) -> &'static str {
        match self {
            Self::Aarch64 => "aarch64-unknown-linux-gnu",
        }
    }

    /// What cargo is told about it.
    const fn linker(self) -> (&'static str, &'static str) {
        match self {
            // Debian: gcc-aarch64-linux-gnu
            Self::Aarch64 => ("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc"),
        }
    }
}

impl Options {
    /// What CI wants.
    pub(crate) const CHECKED: Self = Self {
        check: true,
        target: None,
    };
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let folder = step::workspace_root().join("target/python");
    let source = step::workspace_root().join("crates/farside-python");
    let tools = tools(&folder, &source.join("requirements.txt"))?;
    let wheels = folder.join("wheels");
    if wheels.exists() {
        std::fs::remove_dir_all(&wheels).context("failed to remove the wheel before")?;
    }
    let mut build = Command::new(tools.join("bin/maturin"));
    step::forget_package(&mut build);
    build.args(["build", "--release", "--locked", "--out"]).arg(&wheels);
    if let Some(target) = options.target {
        let (variable, linker) = target.linker();
        build.args(["--target", target.triple()]).env(variable, linker);
    }
    step::run(build.current_dir(&source))?;
    let wheel = the_only(&wheels)?;
    let bytes = std::fs::metadata(&wheel)?.len();
    println!("{}, {bytes} bytes", wheel.display());
    if bytes > WHEEL_BYTES_MAX {
        bail!("the wheel has {bytes} bytes, more than {WHEEL_BYTES_MAX}");
    }
    if options.check {
        install_afresh(&folder, &wheel)?;
        check(&tools, &source, &wheel)?;
    }
    Ok(())
}

/// The environment with the tools; one that is there is whole, and has these versions.
fn tools(folder: &Path, wanted: &Path) -> Result<PathBuf> {
    let tools = folder.join("tools");
    let installed = tools.join("requirements.txt");
    let wanted_text = std::fs::read(wanted).with_context(|| format!("failed to read {}", wanted.display()))?;
    if std::fs::read(&installed).is_ok_and(|text| text == wanted_text) {
        return Ok(tools);
    }
    std::fs::create_dir_all(folder)?;
    // Says to backup programs and to `cargo xtask tidy` that nothing here is ours to keep.
    std::fs::write(
        folder.join("CACHEDIR.TAG"),
        "Signature: 8a477f597d28d172789f06886806bc55\n",
    )?;
    let mut environment = Command::new("python3");
    step::run(environment.args(["-m", "venv", "--clear"]).arg(&tools)).context("Debian: python3-venv")?;
    step::run(
        Command::new(tools.join("bin/pip"))
            .args([
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "--require-hashes",
                "--requirement",
            ])
            .arg(wanted),
    )?;
    std::fs::copy(wanted, installed)?;
    Ok(tools)
}

fn the_only(folder: &Path) -> Result<PathBuf> {
    let mut entries = std::fs::read_dir(folder).with_context(|| format!("failed to read {}", folder.display()))?;
    let entry = entries.next().context("maturin has made nothing")??;
    Ok(entry.path())
}

/// What a user does: installs the wheel where there is nothing else, and where no compiler can be found, and stores something.
fn install_afresh(folder: &Path, wheel: &Path) -> Result<()> {
    const FIRST: &str =
        "import farside; s = farside.Store(memory=64 << 20); s['key'] = 'value'; assert s.get('key') == b'value'";
    let fresh = folder.join("fresh");
    let mut environment = Command::new("python3");
    step::run(environment.args(["-m", "venv", "--clear"]).arg(&fresh))?;
    let (python, no_programs) = (fresh.join("bin/python"), "");
    let run = || {
        let mut install = Command::new(&python);
        install.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-index",
        ]);
        step::run(install.arg(wheel).env("PATH", no_programs))?;
        step::run(
            Command::new(&python)
                .args(["-c", FIRST])
                .env("PATH", no_programs)
                .current_dir(folder),
        )
    };
    let (done, time) = step::clocked(run);
    done?;
    println!("from `pip install` to the first get: {:.1} s", time.as_secs_f64());
    Ok(())
}

/// What the tests do.
fn check(tools: &Path, source: &Path, wheel: &Path) -> Result<()> {
    let pip = tools.join("bin/pip");
    step::run(
        Command::new(&pip)
            .args([
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "--no-index",
                "--no-deps",
                "--force-reinstall",
            ])
            .arg(wheel),
    )?;
    let python = || {
        let mut python = Command::new(tools.join("bin/python"));
        // Not where the sources are: what is imported is what the wheel has brought.
        python.current_dir(tools).env("PYTHONDONTWRITEBYTECODE", "1");
        python
    };
    let program = weight::release_program()?;
    step::run(
        python()
            .env("FARSIDE_PROGRAM", program)
            .args(["-m", "pytest", "--quiet", "-p", "no:cacheprovider", "--rootdir"])
            .arg(source)
            .arg("--config-file")
            .arg(source.join("pyproject.toml"))
            .arg(source.join("tests")),
    )?;
    step::run(
        Command::new("valgrind")
            .args(["--quiet", "--error-exitcode=9", "--undef-value-errors=no"])
            .arg(tools.join("bin/python"))
            .arg(source.join("tests/memcheck.py"))
            .current_dir(tools)
            .env("PYTHONMALLOC", "malloc"),
    )
    .context("Debian: valgrind")?;
    for module in ["farside", "farside.aio"] {
        let test =
            format!("import doctest, importlib; exit(doctest.testmod(importlib.import_module({module:?})).failed)");
        step::run(python().args(["-c", &test]))?;
    }
    step::run(
        python()
            .args(["-m", "mypy.stubtest", "farside._farside", "--allowlist"])
            .arg(source.join("tests/stubtest.allow")),
    )?;
    step::run(
        python()
            .args([
                "-m",
                "mypy",
                "--strict",
                "--python-version",
                "3.11",
                "--cache-dir=/dev/null",
            ])
            .arg(source.join("tests/typed.py")),
    )?;
    step::run(python().args([
        "-m",
        "mypy",
        "--strict",
        "--python-version",
        "3.11",
        "--cache-dir=/dev/null",
        "-p",
        "farside",
    ]))?;
    let mut examples: Vec<_> = std::fs::read_dir(source.join("examples"))?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    examples.sort();
    for example in examples {
        step::run(python().arg(example))?;
    }
    Ok(())
}
