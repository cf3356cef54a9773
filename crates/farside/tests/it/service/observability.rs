//! Metrics, FARSIDE, `farside top` and logs, as monitors and people meet them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::client::encode;
use super::process::{Server, farside, output};

/// Takes what is asked of an HTTP server and returns its whole answer.
pub(crate) fn http(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("somebody listens");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers and hangs up");
    answer
}

pub(crate) fn scrape(address: SocketAddr) -> String {
    http(address, "GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n")
}

/// The value of a sample.
pub(crate) fn sample(text: &str, name: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let value = line.unwrap_or_else(|| panic!("{name} is not in\n{text}"));
    value.parse().expect("a number")
}

/// Where a server that was started with `--metrics` says that its metrics are.
pub(crate) fn metrics_of(server: &Server) -> SocketAddr {
    let line = server.line_with("metrics: http://");
    let address = line
        .strip_prefix("metrics: http://")
        .and_then(|rest| rest.strip_suffix("/metrics"));
    address.and_then(|address| address.parse().ok()).expect("an address")
}

fn serve() -> Server {
    Server::serve(&["--memory", "64MiB", "--metrics", "127.0.0.1:0"])
}

#[test]
fn scrape_tells_what_clients_did() {
    let server = serve();
    let metrics = metrics_of(&server);
    let mut client = server.client();
    for number in 0..50 {
        assert_eq!(client.ask(&format!("SET key{number} value")), "+OK\r\n");
    }
    assert_eq!(client.ask("GET key1"), "$5\r\nvalue\r\n");
    assert_eq!(client.ask("GET none"), "$-1\r\n");
    // GETs of one burst are looked up together, and counted one by one.
    client.send(&encode(&[b"GET", b"key2"]).repeat(20));
    (0..20).for_each(|_| assert_eq!(client.receive(), b"$5\r\nvalue\r\n"));
    assert!(client.ask("NONSENSE").starts_with("-ERR"));
    let text = scrape(metrics);
    assert!(
        text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("# EOF\n"),
        "{text}"
    );
    assert!(text.contains("content-type: application/openmetrics-text"), "{text}");
    for (name, value) in [
        ("farside_commands_total{command=\"get\"}", 22.0),
        ("farside_commands_total{command=\"set\"}", 50.0),
        ("farside_command_latency_seconds_count{group=\"read\"}", 22.0),
        ("farside_command_latency_seconds_count{group=\"write\"}", 50.0),
        ("farside_lookup_hits_total", 21.0),
        ("farside_lookup_misses_total", 1.0),
        ("farside_error_replies_total", 1.0),
        ("farside_connections", 1.0),
        ("farside_pool_up", 1.0),
        ("farside_pool_clients{state=\"live\"}", 2.0),
        ("farside_pool_deaths_total", 0.0),
    ] {
        assert_eq!(sample(&text, name), value, "{name}");
    }
    let uses = ["tables", "index", "blocks", "large", "free"];
    let bytes = uses.map(|used| sample(&text, &format!("farside_pool_memory_bytes{{use=\"{used}\"}}")));
    assert_eq!(bytes.iter().sum::<f64>(), f64::from(64 << 20));
    assert!(sample(&text, "farside_received_bytes_total") > 0.0);
}

#[test]
fn verbs_are_published_while_nobody_does_anything() {
    let server = serve();
    let metrics = metrics_of(&server);
    assert_eq!(server.client().ask("SET a 1"), "+OK\r\n");
    // Ten times a second; whoever asks before the first time asks again.
    while sample(&scrape(metrics), "farside_verbs_total{kind=\"write\"}") == 0.0 {}
    assert!(sample(&scrape(metrics), "farside_fabric_written_bytes_total") > 0.0);
}

#[test]
fn the_port_of_metrics_has_what_it_has_and_no_more() {
    let server = serve();
    let metrics = metrics_of(&server);
    for (request, status) in [
        ("GET /keys HTTP/1.1\r\nHost: here\r\n\r\n", "404"),
        (
            "POST /metrics HTTP/1.1\r\nHost: here\r\nContent-Length: 0\r\n\r\n",
            "405",
        ),
        ("\u{1}\u{2} nonsense\r\n\r\n", "400"),
    ] {
        let answer = http(metrics, request);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{request}: {answer}"
        );
    }
    // Those who connect and say nothing keep nobody out, as long as they are few.
    let silent: Vec<TcpStream> = (0..8)
        .map(|_| TcpStream::connect(metrics).expect("it listens"))
        .collect();
    assert!(scrape(metrics).ends_with("# EOF\n"));
    drop(silent);
}

#[test]
fn gateway_without_its_node_says_that_the_pool_is_down() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("segment");
    let path = path.to_str().expect("plain");
    let any = "127.0.0.1:0";
    let node = Server::node(path, &["--listen", any, "--metrics", any]);
    let pool = format!("tcp:{}", node.address);
    let gateway = Server::start(&[
        "gateway",
        "--pool",
        &pool,
        "--listen",
        any,
        "--threads",
        "1",
        "--metrics",
        any,
    ]);
    let (node_metrics, gateway_metrics) = (metrics_of(&node), metrics_of(&gateway));
    let of_node = scrape(node_metrics);
    assert_eq!(sample(&of_node, "farside_pool_up"), 1.0);
    assert_eq!(sample(&of_node, "farside_pool_clients{state=\"live\"}"), 1.0);
    assert!(!of_node.contains("farside_commands"), "{of_node}");
    assert_eq!(sample(&scrape(gateway_metrics), "farside_pool_up"), 1.0);
    node.kill();
    // What was seen a moment ago is told for some seconds.
    while sample(&scrape(gateway_metrics), "farside_pool_up") == 1.0 {}
    let text = scrape(gateway_metrics);
    assert!(!text.contains("farside_pool_memory"), "{text}");
    assert_eq!(sample(&text, "farside_threads"), 1.0);
}

#[test]
fn hot_keys_are_found() {
    let server = serve();
    let mut client = server.client();
    assert_eq!(client.ask("FARSIDE HOTKEYS"), "*0\r\n");
    // One use in 64 is looked at: of 20,000 so many that chance cannot hide a key.
    let burst = [encode(&[b"SET", b"hot", b"1"]).repeat(3), encode(&[b"GET", b"warm"])].concat();
    for _ in 0..50 {
        client.send(&burst.repeat(100));
        (0..400).for_each(|_| drop(client.receive()));
    }
    let hot = client.ask("FARSIDE HOTKEYS 5");
    let lines: Vec<&str> = hot.split("\r\n").collect();
    assert_eq!((lines[0], lines[3], lines[8]), ("*2", "hot", "warm"), "{hot}");
    assert!(
        lines[5].starts_with("0.7") || lines[5].starts_with("0.8") || lines[5].starts_with("0.6"),
        "{hot}"
    );
    assert_eq!(client.ask("FARSIDE HOTKEYS 0"), "*0\r\n");
    assert!(
        client
            .ask("FARSIDE HOTKEYS x")
            .starts_with("-ERR value is not an integer")
    );
    assert!(
        client
            .ask("FARSIDE HOTKEYS -1")
            .starts_with("-ERR count must not be negative")
    );
    assert!(
        client
            .ask("FARSIDE STATS x")
            .starts_with("-ERR wrong number of arguments")
    );
    assert!(client.ask("FARSIDE NONSENSE").starts_with("-ERR unknown subcommand"));
    assert!(client.ask("FARSIDE HELP").starts_with("*13\r\n"));
}

#[test]
fn top_prints_a_frame_or_an_object() {
    let folder = tempfile::tempdir().expect("a folder");
    let password = folder.path().join("password");
    std::fs::write(&password, "open sesame\n").expect("writable");
    let password = password.to_str().expect("plain");
    let server = Server::serve(&["--memory", "64MiB", "--auth-file", password]);
    let address = server.address.to_string();
    let top = |more: &[&str]| {
        let shown = output(&[&["top", "--connect", &address], more].concat());
        let text = |bytes| String::from_utf8(bytes).expect("text");
        (shown.status.code(), text(shown.stdout), text(shown.stderr))
    };
    let (status, frame, _) = top(&["--once", "--auth-file", password]);
    assert_eq!(status, Some(0));
    assert!(frame.starts_with(&format!("farside top {address}")), "{frame}");
    for words in ["throughput", "latency", "memory", "hot keys", "pool clients 2 live"] {
        assert!(frame.contains(words), "{words}: {frame}");
    }
    let (status, object, _) = top(&["--once", "--json", "--auth-file", password]);
    let report: serde_json::Value = serde_json::from_str(&object).expect("one object");
    assert_eq!(
        (
            status,
            &report["threads"],
            &report["pool"]["clients_live"],
            &report["address"]
        ),
        (Some(0), &2.into(), &2.into(), &address.as_str().into())
    );
    for (more, hint) in [
        (&["--once"][..], "--auth-file"),
        // Its output is no terminal here.
        (&["--auth-file", password], "--once"),
        (&["--json"], "--once"),
    ] {
        let (status, _, line) = top(more);
        assert_eq!((status, line.lines().count()), (Some(2), 1), "{line}");
        assert!(line.contains(hint), "{hint}: {line}");
    }
    assert!(server.terminate());
    let (status, _, line) = top(&["--once", "--auth-file", password]);
    assert_eq!((status, line.lines().count()), (Some(2), 1), "{line}");
    assert!(line.contains(&address) && line.contains("farside serve"), "{line}");
}

#[test]
fn logs_are_json_when_asked_for() {
    let mut command = farside(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--memory",
        "64MiB",
        "--log-format",
        "json",
    ]);
    let mut child = (command.stderr(std::process::Stdio::piped()))
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("built");
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().expect("a pipe")));
    let line = lines.next().expect("it says what it opened").expect("text");
    let event: serde_json::Value = serde_json::from_str(&line).expect("one object per line");
    assert_eq!(
        (&event["level"], &event["message"], &event["bytes"]),
        (&"INFO".into(), &"serving".into(), &(64 << 20).into()),
        "{line}"
    );
    child.kill().expect("ours");
    child.wait().expect("ours");
}

#[test]
fn wrong_filter_of_logs_is_explained() {
    let refused = farside(&["list"]).env("RUST_LOG", "=x=").output().expect("built");
    let line = String::from_utf8(refused.stderr).expect("text");
    assert_eq!((refused.status.code(), line.lines().count()), (Some(2), 1), "{line}");
    assert!(line.contains("RUST_LOG") && line.contains("info"), "{line}");
}
