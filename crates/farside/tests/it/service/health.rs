//! `/healthz`, `/readyz` and `farside health`, as probes of a container and balancers use them.

use std::io::Write;
use std::net::SocketAddr;

use rustix::process::Signal;

use super::client::encode;
use super::observability::{http, metrics_of};
use super::process::{Server, output};

/// The status and the line of an answer.
fn ask(address: SocketAddr, path: &str) -> (u16, String) {
    let answer = http(address, &format!("GET {path} HTTP/1.1\r\nHost: here\r\n\r\n"));
    let (head, line) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.expect("a number"), line.to_owned())
}

fn is_ready(address: SocketAddr) -> bool {
    let (status, line) = ask(address, "/readyz");
    assert_eq!(line.lines().count(), 1, "{line}");
    assert_eq!(status == 200, line == "ready\n", "{status} {line}");
    assert!(status == 200 || status == 503, "{status}");
    status == 200
}

/// What `farside health` says: its exit status, and the line that it prints, wherever.
fn health(address: SocketAddr) -> (Option<i32>, String) {
    let said = output(&["health", "--connect", &address.to_string()]);
    let text = String::from_utf8([said.stdout, said.stderr].concat()).expect("text");
    assert_eq!(text.lines().count(), 1, "{text}");
    (said.status.code(), text)
}

fn node(path: &str, listen: &str) -> Server {
    Server::node(path, &["--listen", listen, "--metrics", "127.0.0.1:0"])
}

#[test]
fn gateway_is_ready_as_long_as_its_node_answers() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("segment");
    let path = path.to_str().expect("plain");
    let any = "127.0.0.1:0";
    let first = node(path, any);
    let listen = first.address.to_string();
    let pool = format!("tcp:{listen}");
    let gateway = Server::start(&[
        "gateway",
        "--pool",
        &pool,
        "--listen",
        any,
        "--threads",
        "2",
        "--metrics",
        any,
    ]);
    let (of_node, of_gateway) = (metrics_of(&first), metrics_of(&gateway));
    for metrics in [of_node, of_gateway] {
        assert_eq!(ask(metrics, "/healthz"), (200, "alive\n".to_owned()));
        assert_eq!(ask(metrics, "/readyz"), (200, "ready\n".to_owned()));
        assert_eq!(health(metrics), (Some(0), "ready\n".to_owned()));
    }

    // It stands still: nobody is told that it is out of reach.
    first.signal(Signal::STOP);
    while is_ready(of_gateway) {}
    assert_eq!(ask(of_gateway, "/healthz").0, 200);
    let (status, line) = health(of_gateway);
    assert!(status == Some(1) && line.contains("pool cannot be reached"), "{line}");
    first.signal(Signal::CONT);
    while !is_ready(of_gateway) {}

    // It is gone, and another process serves its memory.
    first.kill();
    let (status, line) = health(of_node);
    assert!(status == Some(1) && line.contains("--metrics"), "{line}");
    while is_ready(of_gateway) {}
    assert_eq!(ask(of_gateway, "/healthz").0, 200);
    let second = node(path, &listen);
    while !is_ready(of_gateway) {}
    assert_eq!(gateway.client().ask("SET key value"), "+OK\r\n");
    assert!(gateway.terminate() && second.terminate());
}

#[test]
fn gateway_that_ends_says_so_while_clients_are_served() {
    let server = Server::serve(&["--memory", "64MiB", "--metrics", "127.0.0.1:0"]);
    let metrics = metrics_of(&server);
    assert_eq!(health(metrics), (Some(0), "ready\n".to_owned()));
    let mut client = server.client();
    client.call(&[b"SET", b"key", &vec![b'x'; 1 << 20]]);
    // More than the buffers of the sockets hold: its last command goes on until this client reads.
    client
        .stream
        .write_all(&encode(&[b"GET", b"key"]).repeat(8))
        .expect("short");
    client.receive();
    server.signal(Signal::TERM);
    while is_ready(metrics) {}
    assert_eq!(ask(metrics, "/readyz"), (503, "the gateway is stopping\n".to_owned()));
    assert_eq!(ask(metrics, "/healthz").0, 200);
    client.receive_all();
    assert!(server.terminate());
}

#[test]
fn what_is_no_port_of_metrics_is_explained() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let (status, line) = health(server.address);
    assert!(status == Some(1) && line.contains("--metrics"), "{line}");
    assert_eq!(server.client().ask("PING"), "+PONG\r\n");
}
