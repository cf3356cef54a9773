//! Nodes, gateways and direct access to one pool at the same time.

use std::process::Stdio;

use super::process::{Server, farside, output};

/// A memory node over a new segment at `path`, on a port of its own.
fn start_node(path: &str) -> Server {
    Server::node(path, &["--listen", "127.0.0.1:0"])
}

#[test]
fn node_gateway_and_direct_access_share_a_pool() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("segment");
    let path = path.to_str().expect("plain");
    let node = start_node(path);
    let (tcp, shm) = (format!("tcp:{}", node.address), format!("shm:{path}"));
    let near = Server::start(&["gateway", "--pool", &shm, "--listen", "127.0.0.1:0", "--threads", "1"]);
    let far = Server::start(&["gateway", "--pool", &tcp, "--listen", "127.0.0.1:0", "--threads", "1"]);
    assert_eq!(near.client().ask("SET a near"), "+OK\r\n");
    assert_eq!(far.client().ask("GET a"), "$4\r\nnear\r\n");
    assert_eq!(far.client().ask("MSET a far b more"), "+OK\r\n");
    assert_eq!(
        near.client().ask("MGET a b c"),
        "*3\r\n$3\r\nfar\r\n$4\r\nmore\r\n$-1\r\n"
    );

    let get = output(&["kv", "--pool", &tcp, "get", "a"]);
    assert_eq!((get.status.code(), get.stdout), (Some(0), b"far\n".to_vec()));
    assert_eq!(output(&["kv", "--pool", &shm, "get", "none"]).status.code(), Some(1));
    assert_eq!(
        output(&["kv", "--pool", &shm, "put", "c", "direct"]).status.code(),
        Some(0)
    );
    assert_eq!(near.client().ask("GET c"), "$6\r\ndirect\r\n");
    assert_eq!(output(&["kv", "--pool", &tcp, "del", "c"]).status.code(), Some(0));
    assert_eq!(output(&["kv", "--pool", &tcp, "del", "c"]).status.code(), Some(1));
    let mut put = farside(&["kv", "--pool", &tcp, "put", "piped", "-"]);
    let mut put = put.stdin(Stdio::piped()).spawn().expect("built");
    std::io::Write::write_all(&mut put.stdin.take().expect("a pipe"), b"through a pipe").expect("it reads");
    assert!(put.wait().expect("ours").success());
    assert_eq!(far.client().ask("GET piped"), "$14\r\nthrough a pipe\r\n");

    assert!(near.terminate() && far.terminate());
    let checked = output(&["fsck", "--pool", &tcp]);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    assert!(node.terminate());
}

/// Two gateways that map the memory and two that reach it over TCP. What one acknowledges every other one has
/// at once: no reader is given time. And increments of all of them at the same time all count.
#[test]
fn every_gateway_sees_what_any_other_acknowledged() {
    const ROUNDS: u64 = 100;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("segment");
    let path = path.to_str().expect("plain");
    let node = start_node(path);
    let (tcp, shm) = (format!("tcp:{}", node.address), format!("shm:{path}"));
    let gateways = [&shm, &tcp, &shm, &tcp]
        .map(|pool| Server::start(&["gateway", "--pool", pool, "--listen", "127.0.0.1:0", "--threads", "1"]));
    let mut clients = gateways.each_ref().map(Server::client);
    for round in 0..ROUNDS {
        let writer = round as usize % clients.len();
        let key = format!("key{}", round % 7);
        assert_eq!(clients[writer].ask(&format!("SET {key} {round}")), "+OK\r\n");
        for reader in &mut clients {
            let expected = format!("${}\r\n{round}\r\n", round.to_string().len());
            assert_eq!(reader.ask(&format!("GET {key}")), expected);
        }
        if round % 5 == 4 {
            assert_eq!(clients[writer].ask(&format!("DEL {key}")), ":1\r\n");
            for reader in &mut clients {
                assert_eq!(reader.ask(&format!("GET {key}")), "$-1\r\n");
            }
        }
    }
    std::thread::scope(|scope| {
        for client in &mut clients {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    client.ask("INCR all");
                }
            });
        }
    });
    let sum = (ROUNDS * clients.len() as u64).to_string();
    assert_eq!(clients[0].ask("GET all"), format!("${}\r\n{sum}\r\n", sum.len()));
    drop(clients);
    assert!(gateways.into_iter().all(Server::terminate));
    let checked = output(&["fsck", "--pool", &shm]);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    assert!(node.terminate());
}

#[test]
fn clients_stay_connected_when_a_node_restarts() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("segment");
    let path = path.to_str().expect("plain");
    let node = start_node(path);
    let listen = node.address.to_string();
    let pool = format!("tcp:{listen}");
    let gateway = Server::start(&["gateway", "--pool", &pool, "--listen", "127.0.0.1:0", "--threads", "1"]);
    let mut client = gateway.client();
    assert_eq!(client.ask("SET a 1"), "+OK\r\n");
    node.kill();
    let reply = client.ask("GET a");
    assert!(reply.starts_with("-ERR"), "{reply}");
    let node = Server::start(&["node", "--segment", path, "--listen", &listen]);
    // The same connection is served again, as soon as the gateway has joined anew.
    while client.ask("GET a") != "$1\r\n1\r\n" {}
    assert_eq!(client.ask("INCR a"), ":2\r\n");
    drop(node);
}

#[test]
fn pool_of_several_nodes_is_one_store() {
    let folder = tempfile::tempdir().expect("a folder");
    let paths = ["one", "two"].map(|name| folder.path().join(name).to_str().expect("plain").to_owned());
    let nodes = paths.each_ref().map(|path| start_node(path));
    let pool = format!("shm:{},tcp:{}", paths[0], nodes[1].address);
    let gateway = Server::start(&["gateway", "--pool", &pool, "--listen", "127.0.0.1:0", "--threads", "1"]);
    let mut client = gateway.client();
    for number in 0..500 {
        assert_eq!(client.ask(&format!("SET key{number} {number}")), "+OK\r\n");
    }
    for number in 0..500 {
        assert_eq!(
            client.ask(&format!("GET key{number}")),
            format!("${}\r\n{number}\r\n", number.to_string().len())
        );
    }
    assert!(gateway.terminate());
    let checked = output(&["fsck", "--json", "--pool", &pool]);
    let report: serde_json::Value = serde_json::from_slice(&checked.stdout).expect("JSON");
    assert_eq!(
        (&report["is_clean"], &report["items"], &report["nodes"]),
        (&true.into(), &500.into(), &2.into()),
        "{report}"
    );
    // One of them alone is no pool.
    let alone = output(&["fsck", "--pool", &format!("shm:{}", paths[0])]);
    assert_eq!(alone.status.code(), Some(2));
}
