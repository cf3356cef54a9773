//! How a server treats a connection from its first byte on.

use super::*;

/// What a client that asks for an identity says first.
fn hello() -> Hello {
    Hello {
        magic: MAGIC,
        version: U32::new(VERSION),
        secret_bytes: U16::ZERO,
        endpoint: U64::ZERO,
        run: U64::ZERO,
        ..Hello::new_zeroed()
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_client_is_answered_at_once_and_noticed_when_it_is_gone() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let mut client = TcpStream::connect(address).await.expect("somebody listens");
    let (mut stream, _) = listener.accept().await.expect("somebody connects");
    let written = client.write_all(hello().as_bytes()).await;
    written.expect("it fits into the socket");
    let segment = Segment::anonymous(4096).expect("a little memory");
    let service = Rc::new(Service::new(segment, None, 7, Arc::default()));
    let guest = greet(&service, &ServerOptions::default(), &mut stream).await;
    guest.map(drop).expect("a good hello");
    assert!(stream.nodelay().expect("a socket"));
    let socket = SockRef::from(&stream);
    assert!(socket.keepalive().expect("a socket"));
    assert_eq!(socket.tcp_keepalive_time().expect("a socket"), KEEPALIVE_AFTER);
}
