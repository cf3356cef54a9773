//! Client libraries as programs use them: redis-py with its locks, node-redis, ioredis and redlock.
//!
//! What they do stands in `tests/clients`, in their own languages; here they are started against a server,
//! over TCP and over TLS, and must end well without a word of warning. `./test` installs them (`scripts/setup.bash`); without
//! them these tests fail.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::certificates::Certificates;
use super::process::Server;

/// A file or folder of the project, which is there if the libraries are.
pub(super) fn project_path(path: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    assert!(
        path.exists(),
        "{} is missing: run ./test once, it installs the client libraries",
        path.display()
    );
    path
}

/// A program that uses libraries, and where it looks for them.
struct Program {
    interpreter: &'static str,
    script: &'static str,
    library_variable: &'static str,
    libraries: &'static str,
}

const PYTHON: Program = Program {
    interpreter: "python3",
    script: "redis_py.py",
    library_variable: "PYTHONPATH",
    libraries: "target/clients/python",
};

const NODE: Program = Program {
    interpreter: "node",
    script: "node_clients.cjs",
    library_variable: "NODE_PATH",
    libraries: "target/clients/node/node_modules",
};

/// Runs a program against a server, over TCP and over TLS, until it has done everything it wants.
fn run(program: &Program) {
    let server = Server::serve(&["--memory", "128MiB"]);
    run_with(program, &[&format!("redis://{}/0", server.address)]);
    let certificates = Certificates::new();
    let server = certificates.serve(&[]);
    let url = format!("rediss://localhost:{}/0", server.address.port());
    run_with(program, &[&url, &certificates.text("ca.pem")]);
}

fn run_with(program: &Program, arguments: &[&str]) {
    let Program {
        interpreter, script, ..
    } = program;
    let output = Command::new(interpreter)
        .arg(project_path(&format!("crates/farside/tests/clients/{script}")))
        .args(arguments)
        .env(program.library_variable, project_path(program.libraries))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("{interpreter} cannot be run ({error}): run ./test once, it installs it"));
    let [said, complained] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    assert!(output.status.success(), "{script} failed:\n{said}{complained}");
    assert_eq!(complained, "", "{script} was warned");
    assert!(said.ends_with("done\n"), "{script} ended early:\n{said}");
}

#[test]
fn redis_py_and_its_locks_work() {
    run(&PYTHON);
}

#[test]
fn node_redis_ioredis_and_redlock_work() {
    run(&NODE);
}
