//! Mirrored nodes over sockets: members in threads of this process, clients over TCP.

use std::net::TcpListener;
use std::thread::JoinHandle;

use farside_fabric::host::{HostClock, on_this_thread};
use farside_fabric::mirror::{Contents, RoleName, Settings, Standing};
use farside_fabric::shm::{Segment, SegmentError, SegmentOptions};
use farside_fabric::tcp::{
    Command, ConnectError, ConnectOptions, MirrorOptions, NodeLocation, Server, ServerHandle, ServerOptions, command,
    connect,
};
use farside_fabric::{Deadline, Endpoint, NodeId, OpContext, RemoteAddr};

const MEMORY_BYTES: u64 = 4 << 20;
const LEASE_NS: u64 = 200_000_000;

/// A member that serves in a thread of its own.
struct Member {
    address: String,
    segment: Segment,
    handle: ServerHandle,
    thread: Option<JoinHandle<()>>,
}

impl Member {
    /// A primary, or the backup of another.
    fn start(backup_of: Option<&Member>) -> Self {
        let segment = Segment::anonymous(MEMORY_BYTES).expect("memory");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound").to_string();
        let options = MirrorOptions {
            settings: Settings::by_hand(LEASE_NS),
            address: address.clone(),
            backup_of: backup_of.map(|member| member.address.clone()),
            is_standby: false,
            contents: Contents::Blank,
            membership: None,
            record: None,
        };
        let server = Server::new(segment.clone(), ServerOptions::default()).with_mirror(options);
        let handle = server.handle();
        let thread = std::thread::spawn(move || server.run(listener).expect("serves"));
        Self {
            address,
            segment,
            handle,
            thread: Some(thread),
        }
    }

    /// Ends it; its connections break.
    fn stop(&mut self) {
        self.handle.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("ends in order");
        }
    }

    async fn standing(&self) -> Standing {
        command(&self.address, None, &Command::Status).await.expect("it serves")
    }

    /// Waits until the member is what it should be.
    async fn becomes(&self, role: RoleName) {
        while self.standing().await.role != role {
            HostClock.sleep(5_000_000).await;
        }
    }

    async fn client(&self) -> OpContext {
        OpContext::new(join(&self.address).await.expect("the primary serves"))
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn join(names: &str) -> Result<Endpoint, ConnectError> {
    connect(vec![NodeLocation::Remote(names.to_owned())], ConnectOptions::default()).await
}

fn word(offset: u64) -> RemoteAddr {
    RemoteAddr::new(NodeId::new(0), offset)
}

#[test]
fn backup_has_what_was_acknowledged_and_takes_over_without_a_client_noticing() {
    on_this_thread(async {
        let mut primary = Member::start(None);
        let mut cx = primary.client().await;
        for offset in 0..100 {
            cx.write_word(word(offset * 4096), offset + 1).await.expect("served");
        }
        let backup = Member::start(Some(&primary));
        backup.becomes(RoleName::Backup).await;
        // Copied, and mirrored since.
        assert_eq!(cx.fetch_add(word(8), 5).await.expect("served"), 0);
        let mut bytes = [0; 8];
        backup.segment.region().read(8, &mut bytes);
        assert_eq!(
            u64::from_le_bytes(bytes),
            5,
            "acknowledged means that the backup has it"
        );
        backup.segment.region().read(99 * 4096, &mut bytes);
        assert_eq!(u64::from_le_bytes(bytes), 100);

        // While it is used the primary dies, and an operator says who is next.
        let counted = async {
            for count in 0..400 {
                assert_eq!(
                    cx.fetch_add(word(16), 1).await.expect("never fails"),
                    count,
                    "once each"
                );
                if count % 100 == 0 {
                    HostClock.sleep(LEASE_NS / 10).await;
                }
            }
        };
        let dies = async {
            HostClock.sleep(LEASE_NS / 5).await;
            primary.stop();
            let promoted = command(&backup.address, None, &Command::Promote).await;
            assert_eq!(
                promoted.expect("it is a backup").role,
                RoleName::Backup,
                "its grant is not over"
            );
            backup.becomes(RoleName::Primary).await;
        };
        tokio::join!(counted, dies);
        let standing = backup.standing().await;
        assert_eq!(
            standing.view.expect("decided").epoch,
            1_000_000,
            "alone, with a backup; the backup alone, above whatever the primary decides that it does not hear"
        );
        // The new primary takes a backup in turn, and newcomers are sent on by whoever is none.
        let third = Member::start(Some(&backup));
        third.becomes(RoleName::Backup).await;
        let mut other = third.client().await;
        assert_eq!(other.fetch_add(word(16), 0).await.expect("served"), 400);
    })
    .expect("a runtime");
}

#[test]
fn messages_and_fences_outlive_their_primary() {
    on_this_thread(async {
        let mut primary = Member::start(None);
        let backup = Member::start(Some(&primary));
        backup.becomes(RoleName::Backup).await;
        let names = format!("{}+{}", backup.address, primary.address);
        let (sender, receiver, victim) = (join(&names).await, join(&names).await, join(&names).await);
        let (sender, receiver, victim) = (sender.expect("joins"), receiver.expect("joins"), victim.expect("joins"));
        let message = |number: u8| farside_fabric::Message::from_iter([number]);
        for number in 0..3 {
            sender
                .send(receiver.id(), &message(number), Deadline::NEVER)
                .await
                .expect("sent");
        }
        let first = receiver.receive(Deadline::NEVER).await.expect("sent");
        assert_eq!(first.message[..], [0]);
        sender.fence(victim.id(), Deadline::NEVER).await.expect("cut off");
        primary.stop();
        command(&backup.address, None, &Command::Promote)
            .await
            .expect("it is a backup");
        for number in 3..200 {
            sender
                .send(receiver.id(), &message(number), Deadline::NEVER)
                .await
                .expect("sent");
        }
        for number in 1..200 {
            let received = receiver.receive(Deadline::NEVER).await.expect("sent");
            assert_eq!(
                (received.from, received.message[0]),
                (sender.id(), number),
                "each once, in order"
            );
        }
        let mut cut_off = OpContext::new(victim);
        cut_off
            .write_word(word(0), 1)
            .await
            .expect_err("no verb takes effect after a fence");
    })
    .expect("a runtime");
}

#[test]
fn nobody_writes_past_a_mirrored_node() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("segment");
    let segment = Segment::create(&path, SegmentOptions::with_memory(MEMORY_BYTES)).expect("made");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    let options = MirrorOptions {
        settings: Settings::by_hand(LEASE_NS),
        address: address.clone(),
        backup_of: None,
        is_standby: false,
        contents: Contents::Blank,
        membership: None,
        record: None,
    };
    let hold = segment.hold().expect("nobody else has it");
    let server = Server::new(segment, ServerOptions::default()).with_mirror(options);
    let handle = server.handle();
    let thread = std::thread::spawn(move || server.run(listener).expect("serves"));
    on_this_thread(async { join(&address).await.map(drop) })
        .expect("a runtime")
        .expect("over TCP it can be joined");
    let mapped = on_this_thread(async {
        let segment = Segment::open(&path).expect("it is there");
        connect(vec![NodeLocation::Mapped(segment)], ConnectOptions::default()).await
    });
    let refused = mapped.expect("a runtime").expect_err("it would write past the node");
    assert!(
        matches!(refused, ConnectError::Segment(SegmentError::Mirrored { .. })),
        "{refused}"
    );
    assert!(refused.to_string().contains("tcp:HOST:PORT"), "{refused}");
    handle.stop();
    thread.join().expect("ends in order");
    drop(hold);
    let mapped = on_this_thread(async {
        let segment = Segment::open(&path).expect("it is there");
        connect(vec![NodeLocation::Mapped(segment)], ConnectOptions::default())
            .await
            .map(drop)
    });
    mapped.expect("a runtime").expect("nobody mirrors it now");
}
