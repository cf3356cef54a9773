//! How a client treats a connection from its first byte on.

use super::*;
use crate::tcp::server::{Server, ServerOptions};

#[tokio::test(flavor = "current_thread")]
async fn a_node_is_answered_at_once_and_noticed_when_it_is_gone() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound").to_string();
    let segment = Segment::anonymous(4096).expect("a little memory");
    let server = Server::new(segment, ServerOptions::default());
    let handle = server.handle();
    let meet = async {
        let remote = greet(&address, &ConnectOptions::default(), Returning::default()).await;
        let stream = remote.expect("the node is there").stream;
        assert!(stream.nodelay().expect("a socket"));
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().expect("a socket"));
        assert_eq!(socket.tcp_keepalive_time().expect("a socket"), KEEPALIVE_AFTER);
        handle.stop();
    };
    let (served, ()) = tokio::join!(server.serve(listener), meet);
    served.expect("it could listen");
}
