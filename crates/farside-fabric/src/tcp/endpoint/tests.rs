//! A client that joins nodes while something happens to it.

use super::*;

#[tokio::test(flavor = "current_thread")]
async fn who_is_cut_off_while_it_joins_is_not_let_in() {
    let segment = Segment::anonymous(4096).expect("a little memory");
    let join = || {
        let connected = segment.claim_connected(None).expect("room in the table");
        let id = connected.id();
        let joined = vec![Joined::Mapped(segment.clone(), connected)];
        Endpoint::new(id, joined, None, ConnectOptions::default())
    };
    let endpoint = join();
    endpoint.confirm().await.expect("nobody has cut it off");
    let fence = segment.fence(NodeId::new(0), endpoint.id(), Deadline::NEVER).await;
    assert_eq!(fence, Ok(Fence::CutOff));
    assert!(matches!(endpoint.confirm().await, Err(ConnectError::Fenced { .. })));
    let other = join();
    other.confirm().await.expect("nobody has cut this one off");
}
