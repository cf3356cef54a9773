//! Client libraries as programs use them: redis-py with its locks, node-redis, ioredis and redlock.
//!
//! What they do stands in `tests/clients`, in their own languages; here they are started against a server
//! and must end well without a word of warning. `./test` installs them (`scripts/setup.bash`); without
//! them these tests fail.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::process::Server;

/// A file or folder of the project, which is there if the libraries are.
fn project_path(path: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    assert!(
        path.exists(),
        "{} is missing: run ./test once, it installs the client libraries",
        path.display()
    );
    path
}

/// Runs a script against the server until it has done everything it wants.
fn run(server: &Server, interpreter: &str, script: &str, library_variable: &str, libraries: &str) {
    let output = Command::new(interpreter)
        .arg(project_path(&format!("crates/farside/tests/clients/{script}")))
        .arg(format!("redis://{}/0", server.address))
        .env(library_variable, project_path(libraries))
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
    let server = Server::serve(&["--memory", "128MiB"]);
    run(&server, "python3", "redis_py.py", "PYTHONPATH", "target/clients/python");
}

#[test]
fn node_redis_ioredis_and_redlock_work() {
    let server = Server::serve(&["--memory", "128MiB"]);
    let libraries = "target/clients/node/node_modules";
    run(&server, "node", "node_clients.cjs", "NODE_PATH", libraries);
}
