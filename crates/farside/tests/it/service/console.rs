//! The console: what it shows to whom, over plain HTTP; and as people use it, in a browser.
//!
//! `tests/console/look.cjs` drives Debian's Chromium through playwright-core; `./test` installs both (`scripts/setup.bash`), and
//! without them that test fails. Screenshots go to `out/console-*.png`, for people to look at.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use farside::blocking::Locks;
use farside::{Mode, Options};
use serde_json::{Value, json};

use super::observability::{http, metrics_of};
use super::process::Server;

/// What clients have to give.
const PASSWORD: &str = "sesame";

/// An answer.
#[derive(Debug)]
struct Said {
    status: u16,
    head: String,
    body: String,
}

impl Said {
    /// The value of a header; names are in lower case.
    fn header(&self, name: &str) -> Option<&str> {
        self.head
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    fn json(&self) -> Value {
        assert_eq!(self.status, 200, "{self:?}");
        serde_json::from_str(&self.body).expect("JSON")
    }

    /// The line of a refusal.
    fn line(&self) -> &str {
        assert_eq!(
            (self.body.lines().count(), self.body.ends_with('\n')),
            (1, true),
            "{self:?}"
        );
        self.body.trim_end()
    }
}

/// A browser as far as the server can tell.
#[derive(Clone)]
struct Browser {
    address: SocketAddr,
    host: String,
    more: String,
}

impl Browser {
    fn new(address: SocketAddr) -> Self {
        Self {
            address,
            host: address.to_string(),
            more: String::new(),
        }
    }

    fn at(&self, host: &str) -> Self {
        Self {
            host: host.to_owned(),
            ..self.clone()
        }
    }

    fn with(&self, header: &str) -> Self {
        Self {
            more: format!("{}{header}\r\n", self.more),
            ..self.clone()
        }
    }

    fn send(&self, method: &str, path: &str, more: &str, body: &str) -> Said {
        let (host, own, length) = (&self.host, &self.more, body.len());
        let length = match method {
            "POST" if !more.contains("content-length") => format!("content-length: {length}\r\n"),
            _ => String::new(),
        };
        let answer = http(
            self.address,
            &format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\n{own}{more}{length}\r\n{body}"),
        );
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        Said {
            status: status.expect("a number"),
            head: head.to_lowercase(),
            body: body.to_owned(),
        }
    }

    fn get(&self, path: &str) -> Said {
        self.send("GET", path, "", "")
    }

    /// As the page posts.
    fn post(&self, path: &str, body: &Value) -> Said {
        let more = format!("origin: http://{}\r\ncontent-type: application/json\r\n", self.host);
        self.send("POST", path, &more, &body.to_string())
    }

    fn login(&self, password: &str) -> Said {
        self.post("/api/login", &json!({ "user": "default", "password": password }))
    }

    /// The same browser with the cookie that it was given.
    fn with_cookie_of(&self, said: &Said) -> Self {
        let cookie = said.header("set-cookie").expect("a cookie");
        self.with(&format!(
            "cookie: other=1; {}",
            cookie.split(';').next().expect("a value")
        ))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A folder with the password in a file.
struct Files {
    folder: tempfile::TempDir,
    password: String,
}

impl Files {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("password");
        std::fs::write(&path, PASSWORD).expect("writable");
        let password = path.to_str().expect("plain").to_owned();
        Self { folder, password }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().expect("plain").to_owned()
    }
}

fn open_server() -> (Server, Browser) {
    let server = Server::serve(&["--memory", "64MiB", "--metrics", "127.0.0.1:0"]);
    let browser = Browser::new(metrics_of(&server));
    (server, browser)
}

fn locked_server(files: &Files) -> (Server, Browser) {
    let server = Server::serve(&[
        "--memory",
        "64MiB",
        "--metrics",
        "127.0.0.1:0",
        "--auth-file",
        &files.password,
    ]);
    let browser = Browser::new(metrics_of(&server));
    (server, browser)
}

#[test]
fn the_page_is_shut_to_all_but_its_own_files() {
    let (_server, browser) = open_server();
    for (path, kind) in [
        ("/", "text/html"),
        ("/console.css", "text/css"),
        ("/console.js", "text/javascript"),
        ("/charts.js", "text/javascript"),
        ("/icon.svg", "image/svg+xml"),
        ("/api/status", "application/json"),
    ] {
        let said = browser.get(path);
        assert_eq!(said.status, 200, "{path}");
        assert!(
            said.header("content-type").is_some_and(|is| is.starts_with(kind)),
            "{path}"
        );
        let policy = said.header("content-security-policy").expect("a policy");
        assert!(policy.contains("default-src 'self'") && policy.contains("frame-ancestors 'none'"));
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(said.header("x-content-type-options"), Some("nosniff"));
        assert!(
            matches!(said.header("cache-control"), Some("no-cache" | "no-store")),
            "{path}"
        );
        // No script, style or picture of another address; the names of XML's dialects are no addresses.
        let foreign = said.body.replace("http://www.w3.org/", "");
        assert!(!foreign.contains("http://") && !foreign.contains("https://"), "{path}");
        let head = browser.send("HEAD", path, "", "");
        assert_eq!((head.status, head.body.as_str()), (200, ""), "{path}");
        let refused = browser.post(path, &json!({}));
        assert_eq!(
            (refused.status, refused.header("allow")),
            (405, Some("get, head")),
            "{path}"
        );
        refused.line();
    }
    let page = browser.get("/").body;
    assert!(!page.contains("style=") && !page.contains("<style") && !page.contains("onclick"));
    for path in ["/nothing", "/api/", "/api/nothing", "/console.css/..", "//"] {
        let said = browser.get(path);
        assert_eq!(said.status, 404, "{path}");
        assert!(said.line().contains("/metrics"));
    }
    for path in ["/api/login", "/api/create", "/api/delete"] {
        let said = browser.get(path);
        assert_eq!((said.status, said.header("allow")), (405, Some("post")), "{path}");
    }
}

#[test]
fn strangers_see_numbers_and_no_keys() {
    let files = Files::new();
    let (server, browser) = locked_server(&files);
    let mut client = server.client();
    assert_eq!(client.ask("AUTH sesame"), "+OK\r\n");
    for _ in 0..3000 {
        client.ask("SET a-secret-key a-secret-value");
    }
    let said = browser.get("/api/status");
    let told = said.json();
    assert_eq!((&told["access"], &told["kind"]), (&json!("login"), &json!("gateway")));
    assert!(told["report"]["counts"]["commands"].as_u64() >= Some(3000));
    assert!(
        told["report"]["nodes"][0]["usage"]["bytes"].as_u64() > Some(0),
        "{told}"
    );
    assert_eq!(told["report"]["index"]["name"], "race");
    assert!(!said.body.contains("secret"), "{}", said.body);
    for path in ["/api/people", "/api/keys", "/api/key?key=61", "/api/count"] {
        for who in [
            &browser,
            &browser.with("cookie: farside-console-1=00"),
            &browser.with(&format!(
                "cookie: farside-console-{}={}",
                browser.address.port(),
                "00".repeat(32)
            )),
        ] {
            let said = who.get(path);
            assert_eq!((said.status, said.line()), (401, "log in first"), "{path}");
        }
    }
    let key = json!({ "key": hex(b"a-secret-key") });
    assert_eq!(browser.post("/api/delete", &key).status, 401);
    assert_eq!(client.ask("EXISTS a-secret-key"), ":1\r\n");

    let session = browser.with_cookie_of(&browser.login(PASSWORD));
    let told = session.get("/api/people").json();
    assert_eq!(told["hot_keys"][0]["key"], "a-secret-key", "{told}");
    let names: Vec<&Value> = told["clients"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|client| &client["name"])
        .collect();
    assert!(names.contains(&&json!("console")) && names.len() >= 2, "{told}");
    assert_eq!((&told["locks"], &told["slow"]), (&json!([]), &json!([])));
    assert_eq!(session.get("/api/status").json()["user"], "default");
    assert_eq!(session.get("/api/count").json(), json!({ "keys": 1 }));
}

#[test]
fn sessions_begin_with_the_password_and_end() {
    let files = Files::new();
    let (server, browser) = locked_server(&files);
    let wrong = browser.login("open");
    assert_eq!((wrong.status, wrong.line()), (401, "wrong user or password"));
    let unknown = browser.post("/api/login", &json!({ "user": "nobody", "password": PASSWORD }));
    assert_eq!(unknown.line(), wrong.line());
    let said = browser.login(PASSWORD);
    assert_eq!(said.status, 200);
    let cookie = said.header("set-cookie").expect("a cookie");
    for part in ["httponly", "samesite=strict", "path=/"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    let other = browser.login(PASSWORD);
    assert_ne!(
        other.header("set-cookie"),
        said.header("set-cookie"),
        "each has a token of its own"
    );
    let (session, other) = (browser.with_cookie_of(&said), browser.with_cookie_of(&other));
    assert_eq!(session.get("/api/keys").status, 200);
    let bye = session.post("/api/logout", &json!({}));
    assert!(
        bye.header("set-cookie")
            .is_some_and(|cookie| cookie.contains("max-age=0"))
    );
    assert_eq!(
        session.get("/api/keys").status,
        401,
        "the token is worth nothing any more"
    );
    assert_eq!(other.get("/api/keys").status, 200);

    // Whoever is thrown out of the gateway is out of the console.
    let mut client = server.client();
    assert_eq!(client.ask("AUTH sesame"), "+OK\r\n");
    assert_ne!(client.ask("CLIENT KILL SKIPME yes USER default"), ":0\r\n");
    let mut status = core::iter::repeat_with(|| other.get("/api/keys").status);
    assert_eq!(status.find(|&status| status != 503), Some(401));

    // Guessing is slowed down, however many guess at once.
    let is_refused = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while !is_refused.load(Ordering::Relaxed) {
                    let said = browser.login("guess");
                    assert!(matches!(said.status, 401 | 429), "{said:?}");
                    if said.status == 429 {
                        assert!(said.line().contains("second"));
                        is_refused.store(true, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    // And the right password is not refused for long.
    while browser.login(PASSWORD).status == 429 {}
}

#[test]
fn pages_of_other_sites_change_nothing() {
    let (server, browser) = open_server();
    let change = json!({ "key": hex(b"k"), "value": hex(b"v") }).to_string();
    let json = "content-type: application/json\r\n";
    let own = format!("origin: http://{}\r\n", browser.host);
    for (head, status) in [
        (json.to_owned(), 403),
        (format!("origin: http://elsewhere\r\n{json}"), 403),
        (format!("origin: null\r\n{json}"), 403),
        (format!("{own}sec-fetch-site: cross-site\r\n{json}"), 403),
        (format!("sec-fetch-site: same-site\r\n{json}"), 403),
        (format!("{own}content-type: text/plain\r\n"), 415),
        (own.clone(), 415),
    ] {
        let said = browser.send("POST", "/api/create", &head, &change);
        assert_eq!(said.status, status, "{head}");
        said.line();
    }
    let said = browser.with("sec-fetch-site: cross-site").get("/api/keys");
    assert_eq!(said.status, 403, "{said:?}");
    assert_eq!(server.client().ask("DBSIZE"), ":0\r\n");
    assert_eq!(
        browser
            .send("POST", "/api/create", &format!("{own}{json}"), &change)
            .status,
        200
    );
    assert_eq!(server.client().ask("GET k"), "$1\r\nv\r\n");
}

#[test]
fn without_a_password_only_this_machine_sees_keys() {
    let (server, browser) = open_server();
    server.client().ask("SET k v");
    let port = browser.address.port();
    for host in [
        format!("localhost:{port}"),
        format!("127.0.0.1:{port}"),
        "[::1]".to_owned(),
    ] {
        let told = browser.at(&host).get("/api/keys").json();
        assert_eq!(told, json!({ "keys": [hex(b"k")], "cursor": "0" }), "{host}");
    }
    let rebound = browser.at(&format!("evil.example:{port}"));
    let proxied = browser.with("x-forwarded-for: 10.1.2.3");
    for who in [&rebound, &proxied] {
        for path in ["/api/keys", "/api/people", "/api/key?key=6b"] {
            let said = who.get(path);
            assert_eq!(said.status, 403, "{path}");
            assert!(said.line().contains("localhost"));
        }
        assert_eq!(who.post("/api/delete", &json!({ "key": hex(b"k") })).status, 403);
        assert_eq!(who.login("").status, 403, "any password would do");
        assert_eq!(who.get("/api/status").json()["access"], "none");
    }
    assert_eq!(server.client().ask("EXISTS k"), ":1\r\n");
    assert_eq!(browser.get("/api/status").json()["access"], "open");
}

#[test]
fn keys_of_any_bytes_are_browsed_and_changed() {
    let (server, browser) = open_server();
    let mut client = server.client();
    let key = b"\x00\xff <b>\r\n".as_slice();
    let made = json!({ "key": hex(key), "value": hex(b"\x00\x80"), "ttl_ms": 60_000 });
    assert_eq!(browser.post("/api/create", &made).json(), json!({}));
    assert_eq!(client.call(&[b"GET", key]), b"$2\r\n\x00\x80\r\n");
    let again = browser.post("/api/create", &made);
    assert_eq!((again.status, again.line()), (409, "there is such a key already"));
    let show = || browser.get(&format!("/api/key?key={}", hex(key)));
    let told = show().json();
    assert_eq!(
        (&told["bytes"], &told["value"], &told["is_whole"]),
        (&json!(2), &json!("0080"), &json!(true))
    );
    assert!((1..=60_000).contains(&told["ttl_ms"].as_u64().expect("it expires")));
    let replaced = browser.post("/api/replace", &json!({ "key": hex(key), "value": "" }));
    assert_eq!(replaced.status, 200);
    assert_eq!(
        (show().json()["bytes"].clone(), show().json()["ttl_ms"].is_null()),
        (json!(0), false)
    );
    for ttl_ms in [Value::Null, json!(90_000)] {
        let said = browser.post("/api/expire", &json!({ "key": hex(key), "ttl_ms": ttl_ms }));
        assert_eq!(
            (said.status, show().json()["ttl_ms"].is_null()),
            (200, ttl_ms.is_null())
        );
    }
    assert_eq!(browser.post("/api/delete", &json!({ "key": hex(key) })).status, 200);
    assert_eq!(client.call(&[b"EXISTS", key]), b":0\r\n");
    let gone = json!({ "key": hex(key), "value": "", "ttl_ms": 5 });
    for path in ["/api/replace", "/api/expire", "/api/delete"] {
        assert_eq!(browser.post(path, &gone).status, 404, "{path}");
    }
    assert_eq!(show().status, 404);

    // Page by page, each key once; long values in part.
    for number in 0..400 {
        client.ask(&format!("SET page:{number} x"));
    }
    client.ask("SET other x");
    let (mut found, mut cursor) = (Vec::new(), "0".to_owned());
    loop {
        let told = browser
            .get(&format!("/api/keys?match={}&cursor={cursor}", hex(b"page:*")))
            .json();
        found.extend(
            told["keys"]
                .as_array()
                .expect("a list")
                .iter()
                .map(|key| key.to_string()),
        );
        cursor = told["cursor"].as_str().expect("text").to_owned();
        if cursor == "0" {
            break;
        }
    }
    found.sort_unstable();
    found.dedup();
    assert_eq!(found.len(), 400);
    client.call(&[b"SET", b"long", &vec![b'x'; 300 << 10]]);
    let told = browser.get(&format!("/api/key?key={}", hex(b"long"))).json();
    assert_eq!((&told["bytes"], &told["is_whole"]), (&json!(300 << 10), &json!(false)));

    // What makes no sense is refused with a line that says what would.
    for path in [
        "/api/key?key=6",
        "/api/key?key=zz",
        "/api/keys?match=x",
        "/api/keys?cursor=-1",
    ] {
        let said = browser.get(path);
        assert_eq!(said.status, 400, "{path}");
        assert!(said.line().contains('`'), "{said:?}");
    }
    for body in [
        json!([]),
        json!({}),
        json!({ "key": "61", "more": 1 }),
        json!({ "key": 1 }),
        json!({ "key": "6" }),
    ] {
        let said = browser.post("/api/create", &body);
        assert_eq!(said.status, 400, "{body}");
        assert!(said.line().contains("6869"), "{said:?}");
    }
    let said = browser.post("/api/create", &json!({ "key": "61" }));
    assert!(
        said.status == 400 && said.line().contains("`value` is missing"),
        "{said:?}"
    );
    let long = format!(
        "origin: http://{}\r\ncontent-type: application/json\r\ncontent-length: 99999999\r\n",
        browser.host
    );
    let said = browser.send("POST", "/api/create", &long, "");
    assert_eq!(said.status, 413);
    assert!(said.line().contains("bytes"));
    let expired = browser.post("/api/create", &json!({ "key": "62", "value": "", "ttl_ms": u64::MAX }));
    assert_eq!(expired.status, 422, "the gateway's own words: {}", expired.line());
}

#[test]
fn locks_are_shown_with_who_holds_them() {
    let files = Files::new();
    let segment = files.path("segment");
    let server = Server::serve(&["--memory", "64MiB", "--segment", &segment, "--metrics", "127.0.0.1:0"]);
    let browser = Browser::new(metrics_of(&server));
    let mut client = server.client();
    assert_eq!(client.ask("FARSIDE LOCKS"), "*0\r\n");
    let locks = Locks::open(Options::segment(&segment, 0).owner("the test")).expect("it is there");
    let others = Locks::open(Options::segment(&segment, 0).owner("another")).expect("it is there");
    let writer = locks.exclusive("accounts/17").expect("free");
    let readers = [
        locks.shared("prices").expect("free"),
        others.shared("prices").expect("shared"),
    ];
    let told = browser.get("/api/people").json();
    let row = |index: usize, name: &str| told["locks"][index][name].clone();
    assert_eq!(
        (row(0, "name"), row(0, "owner")),
        (json!("accounts/17"), json!("the test")),
        "{told}"
    );
    assert_eq!((row(0, "mode"), row(0, "in_queue")), (json!("exclusive"), json!(1)));
    assert!(row(0, "since_ms").as_u64() > Some(1_600_000_000_000));
    assert_eq!(
        (row(1, "name"), row(1, "mode"), row(1, "in_queue")),
        (json!("prices"), json!("shared"), json!(2))
    );
    assert_eq!(
        locks.holder("accounts/17").expect("there").map(|holder| holder.mode),
        Some(Mode::Exclusive)
    );
    drop((writer, readers));
    while client.ask("FARSIDE LOCKS") != "*0\r\n" {}
    assert_eq!(
        client.ask("FARSIDE LOCKS x"),
        "-ERR value is not an integer or out of range\r\n"
    );
}

#[test]
fn nodes_are_told_apart_and_a_lost_one_is_named() {
    let files = Files::new();
    let any = ["--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"];
    let nodes = ["one", "two"].map(|name| Server::node(&files.path(name), &any));
    let pool = format!("tcp:{},tcp:{}", nodes[0].address, nodes[1].address);
    let arguments = ["gateway", "--pool", &pool, "--threads", "1"];
    let gateway = Server::start(&[&arguments[..], &any].concat());
    let browser = Browser::new(metrics_of(&gateway));
    let nodes_now = || browser.get("/api/status").json()["report"]["nodes"].clone();
    let told = nodes_now();
    for (index, node) in nodes.iter().enumerate() {
        assert_eq!(
            told[index]["place"],
            json!({ "transport": "tcp", "name": node.address.to_string() })
        );
        assert_eq!(told[index]["usage"]["bytes"], json!(64 << 20), "{told}");
    }
    // A node shows its own memory, and nothing else.
    let own = Browser::new(metrics_of(&nodes[1]));
    let told = own.get("/api/status").json();
    assert_eq!(
        (&told["kind"], &told["report"]["pool"]["bytes"]),
        (&json!("node"), &json!(64 << 20))
    );
    let said = own.get("/api/keys");
    assert_eq!(said.status, 404);
    assert!(said.line().contains("gateway"));
    let [_first, second] = nodes;
    second.kill();
    while !nodes_now()[1]["usage"].is_null() {}
}

/// A file or folder of the project.
fn project(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// As people use it; see `look.cjs`.
#[test]
fn people_use_it_in_a_browser() {
    let libraries = project("target/clients/node/node_modules");
    assert!(
        libraries.join("playwright-core").exists(),
        "playwright-core is missing: run ./test once, it installs it"
    );
    let chromium =
        std::env::var_os("FARSIDE_BROWSER").map_or_else(|| PathBuf::from("/usr/bin/chromium"), PathBuf::from);
    assert!(
        chromium.exists(),
        "{} is missing: run ./test once, it installs Chromium, or name another with FARSIDE_BROWSER",
        chromium.display()
    );
    let screenshots = project("out");
    std::fs::create_dir_all(&screenshots).expect("writable");
    let files = Files::new();
    let segment = files.path("segment");
    let serve = |listen: &str, metrics: &str| {
        let more = [
            "--slowlog-max-len",
            "12",
            "--slowlog-log-slower-than",
            "0",
            "--auth-file",
            &files.password,
            "--segment",
            &segment,
        ];
        let own = [
            "serve",
            "--threads",
            "2",
            "--memory",
            "64MiB",
            "--listen",
            listen,
            "--metrics",
            metrics,
        ];
        Server::start(&[&own[..], &more].concat())
    };
    let server = serve("127.0.0.1:0", "127.0.0.1:0");
    let (address, metrics) = (server.address, metrics_of(&server));
    let locks = Locks::open(Options::segment(&segment, 0).owner("the test")).expect("it is there");
    let lock = locks.exclusive("accounts/17").expect("free");
    let mut child = Command::new("node")
        .arg(project("crates/farside/tests/console/look.cjs"))
        .args([metrics.to_string(), address.to_string(), PASSWORD.to_owned()])
        .arg(screenshots.join("console"))
        .env("NODE_PATH", libraries)
        .env("FARSIDE_BROWSER", chromium)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("node cannot be run ({error}): run ./test once, it installs it"));
    let mut input = child.stdin.take().expect("a pipe");
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut present = Some((server, lock));
    let mut said = Vec::new();
    for line in lines.map(|line| line.expect("text")) {
        match line.as_str() {
            "stop the server" => {
                let (server, lock) = present.take().expect("it was there");
                drop(lock);
                server.kill();
                input.write_all(b"stopped\n").expect("it reads");
            }
            "start the server" => {
                let server = serve(&address.to_string(), &metrics.to_string());
                let lock = locks.exclusive("accounts/18").expect("free");
                present = Some((server, lock));
                input.write_all(b"started\n").expect("it reads");
            }
            _ => said.push(line),
        }
    }
    let status = child.wait().expect("ours");
    assert!(
        status.success() && said == ["done"],
        "it says above what is wrong: {said:?}"
    );
}
