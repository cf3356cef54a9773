//! Exports and imports through an object store: a server of S3's protocol that checks signatures.
//!
//! The server is `tests/clients/s3_server.py`; `./test` installs what it stands on (`scripts/setup.bash`).

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, Command, Output, Stdio};

use super::certificates::Certificates;
use super::libraries::project_path;
use super::process::{Server, farside};

/// A server with a bucket named `bucket`. It ends with the test.
struct S3 {
    child: Child,
    /// Closed, it lets the server end.
    _stdin: ChildStdin,
    endpoint: String,
    key: String,
    secret: String,
    /// Whom clients trust, where it speaks TLS.
    authority: Option<String>,
}

impl S3 {
    fn start(certificates: Option<&Certificates>) -> Self {
        let script = project_path("crates/farside/tests/clients/s3_server.py");
        let mut command = Command::new("python3");
        command.arg(script);
        if let Some(certificates) = certificates {
            command.args([certificates.text("server.pem"), certificates.text("server.key")]);
        }
        let mut child = command
            .env("PYTHONPATH", project_path("target/clients/s3"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("PYTHONWARNINGS", "ignore")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 is installed: ./test does so");
        let mut line = String::new();
        let mut lines = BufReader::new(child.stdout.take().expect("piped"));
        lines.read_line(&mut line).expect("a line");
        let [port, key, secret] = *line.split_whitespace().collect::<Vec<_>>() else {
            panic!("port, key and secret, not {line:?}");
        };
        Self {
            _stdin: child.stdin.take().expect("piped"),
            child,
            endpoint: format!("{}://localhost:{port}", certificates.map_or("http", |_| "https")),
            key: key.to_owned(),
            secret: secret.to_owned(),
            authority: certificates.map(|certificates| certificates.text("ca.pem")),
        }
    }

    /// A command whose environment says where the store is and who asks.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = farside(arguments);
        command
            .env("AWS_ENDPOINT", &self.endpoint)
            .env("AWS_REGION", "us-east-1")
            .env("AWS_ACCESS_KEY_ID", &self.key)
            .env("AWS_SECRET_ACCESS_KEY", &self.secret)
            .env("AWS_ALLOW_HTTP", "true")
            .stdin(Stdio::null());
        if let Some(authority) = &self.authority {
            command.env("SSL_CERT_FILE", authority).env_remove("AWS_ALLOW_HTTP");
        }
        command
    }

    fn summary(&self, arguments: &[&str]) -> serde_json::Value {
        let done = self.command(arguments).output().expect("the binary is built");
        assert!(done.status.success(), "{arguments:?}: {}", complaint(&done));
        serde_json::from_slice(&done.stdout).expect("JSON")
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn complaint(done: &Output) -> String {
    String::from_utf8_lossy(&done.stderr).into_owned()
}

fn failure(command: &mut Command) -> String {
    let done = command.output().expect("the binary is built");
    assert!(!done.status.success(), "{}", complaint(&done));
    let complaint = complaint(&done);
    assert_eq!(complaint.lines().count(), 1, "one line: {complaint}");
    complaint
}

/// A server over a segment, and the name of its pool.
fn store(folder: &tempfile::TempDir, name: &str, memory: &str) -> (Server, String) {
    let segment = folder.path().join(name);
    let segment = segment.to_str().expect("a temporary folder has a plain name");
    let server = Server::serve(&["--segment", segment, "--memory", memory]);
    (server, format!("shm:{segment}"))
}

/// Through TLS, and in more parts than one.
#[test]
fn what_is_exported_to_a_bucket_is_imported_from_it() {
    let certificates = Certificates::new();
    let s3 = S3::start(Some(&certificates));
    let folder = tempfile::tempdir().expect("a folder");
    let (from, pool) = store(&folder, "from", "256MiB");
    let mut client = from.client();
    // Three parts of 16 MiB, of which the last is not full.
    let large: String = (0..1_000_000)
        .map(|place| char::from(b'a' + (place % 26) as u8))
        .collect();
    for number in 0..36 {
        client.ask(&format!("SET large{number} {number}{large}"));
    }
    for number in 0..1000 {
        client.ask(&format!("SET key{number} value{number}"));
    }
    let place = "s3://bucket/backups/store.rdb";
    let made = s3.summary(&["export", "--pool", &pool, "--to", place, "--json"]);
    assert_eq!(
        (made["to"].as_str(), made["items"].as_u64()),
        (Some(place), Some(1036)),
        "{made}"
    );

    let (into, pool) = store(&folder, "into", "256MiB");
    let read = s3.summary(&["import", "--pool", &pool, "--from", place, "--json"]);
    assert_eq!(read["items"].as_u64(), Some(1036), "{read}");
    assert_eq!(read["crc64"], made["crc64"]);
    let mut ours = into.client();
    for line in ["DBSIZE", "GET large0", "GET large35", "GET key999"] {
        assert_eq!(ours.ask(line), client.ask(line), "{line}");
    }
    // A store whose certificate nobody vouches for.
    let mut distrusting = s3.command(&["import", "--pool", &pool, "--from", place]);
    let others = Certificates::new();
    let says = failure(distrusting.env("SSL_CERT_FILE", others.text("ca.pem")));
    assert!(says.contains(place) && says.contains("certificate"), "{says}");
}

#[test]
fn a_bucket_that_refuses_says_why() {
    let s3 = S3::start(None);
    let folder = tempfile::tempdir().expect("a folder");
    let (server, pool) = store(&folder, "segment", "64MiB");
    server.client().ask("SET a 1");
    let export = |place: &'static str| ["export", "--pool", &pool, "--to", place].map(str::to_owned);
    let command = |place| {
        let arguments = export(place);
        s3.command(&arguments.each_ref().map(String::as_str))
    };
    let wrong_secret = failure(command("s3://bucket/a.rdb").env("AWS_SECRET_ACCESS_KEY", "wrong"));
    assert!(wrong_secret.contains("SignatureDoesNotMatch"), "{wrong_secret}");
    let in_the_clear = failure(command("s3://bucket/a.rdb").env_remove("AWS_ALLOW_HTTP"));
    assert!(in_the_clear.contains("AWS_ALLOW_HTTP"), "{in_the_clear}");
    let no_server = failure(command("s3://bucket/a.rdb").env("AWS_ENDPOINT", "localhost:9000"));
    assert!(
        no_server.contains("`localhost:9000`: write https://HOST:PORT"),
        "{no_server}"
    );
    let no_bucket = failure(&mut command("s3://elsewhere/a.rdb"));
    assert!(
        no_bucket.contains("s3://elsewhere/a.rdb: it is not there"),
        "{no_bucket}"
    );
    let no_name = failure(&mut command("s3://bucket"));
    assert!(no_name.contains("no name in the bucket"), "{no_name}");
    let mut import = s3.command(&["import", "--pool", &pool, "--from", "s3://bucket/a.rdb"]);
    let nothing = failure(&mut import);
    assert!(nothing.contains("s3://bucket/a.rdb: it is not there"), "{nothing}");
}

/// One backup under the schedule, which keeps two.
#[test]
fn old_backups_in_a_bucket_go() {
    let s3 = S3::start(None);
    let folder = tempfile::tempdir().expect("a folder");
    let (server, pool) = store(&folder, "segment", "64MiB");
    server.client().ask("SET a 1");
    let names = [
        "farside-20200101T000000Z.rdb",
        "farside-20200102T000000Z.rdb",
        "mine.rdb",
    ];
    let places = names.map(|name| format!("s3://bucket/backups/{name}"));
    for place in &places {
        s3.summary(&["export", "--pool", &pool, "--to", place, "--json"]);
    }
    let schedule = ["export", "--pool", &pool, "--to", "s3://bucket/backups"];
    let more = ["--every", "1h", "--keep", "2", "--json"];
    let mut schedule = s3.command(&[&schedule[..], &more].concat());
    let mut schedule = schedule.stdout(Stdio::piped()).spawn().expect("the binary is built");
    let mut line = String::new();
    let mut lines = BufReader::new(schedule.stdout.take().expect("piped"));
    lines.read_line(&mut line).expect("a line");
    let made: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!(made["items"].as_u64(), Some(1), "{made}");
    let terminated = rustix::process::kill_process(
        rustix::process::Pid::from_child(&schedule),
        rustix::process::Signal::TERM,
    );
    terminated.expect("it is ours");
    assert!(schedule.wait().expect("it is ours").success());
    let import = |place: &str| {
        let command = ["import", "--pool", &pool, "--from", place, "--replace", "--json"];
        s3.command(&command)
            .output()
            .expect("the binary is built")
            .status
            .success()
    };
    let newest = made["to"].as_str().expect("a place");
    let kept = [&places[0], &places[1], &places[2], newest].map(import);
    assert_eq!(kept, [false, true, true, true]);
}
