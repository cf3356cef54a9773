//! Shared memory between real processes, some of them killed.
//!
//! The other processes are this test binary again, told by an environment variable to play a part
//! instead of testing. What they want the test to know they write into the segment.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use farside_fabric::Endpoint;
use farside_fabric::shm::{Fabric, Segment, SegmentError, SegmentOptions};
use farside_fabric::{Deadline, EndpointId, FabricError, Fence, Message, NodeId, OpContext, RemoteAddr};
use tempfile::TempDir;

const PART: &str = "FARSIDE_TEST_PART";
const SEGMENT: &str = "FARSIDE_TEST_SEGMENT";

const OPTIONS: SegmentOptions = SegmentOptions {
    memory_bytes: 1 << 20,
    // Few, so that the places of the killed are needed.
    endpoints_max: 6,
};

/// Where the test leaves its identity for the others.
const PARENT_AT: RemoteAddr = at(0);
/// Where a child leaves its identity for the test.
const CHILD_AT: RemoteAddr = at(8);
/// What the children add to.
const SUM_AT: RemoteAddr = at(64);

const fn at(offset: u64) -> RemoteAddr {
    RemoteAddr::new(NodeId::new(0), offset)
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    farside_fabric::host::on_this_thread(future).expect("an event loop")
}

fn number(value: u64) -> Message {
    Message::try_from(&value.to_le_bytes()[..]).expect("short")
}

fn value(message: &Message) -> u64 {
    u64::from_le_bytes(message[..].try_into().expect("a number"))
}

/// A process that ends with the test, whatever happens.
struct Player(Child);

impl Player {
    fn start(part: &str, path: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("a test binary has a path"));
        command.args(["--exact", "shm_processes::part", "--nocapture", "--test-threads=1"]);
        command.env(PART, part).env(SEGMENT, path).stdout(Stdio::null());
        Self(command.spawn().expect("this binary runs"))
    }

    /// SIGKILL, and the end of it.
    fn kill(mut self) {
        self.0.kill().expect("it is ours");
        self.0.wait().expect("it is ours");
    }

    fn finish(mut self) {
        assert!(self.0.wait().expect("it is ours").success());
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        // Already ended, in most cases.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Not a test: what the other processes do.
#[test]
fn part() {
    let Ok(part) = std::env::var(PART) else {
        return;
    };
    let path = PathBuf::from(std::env::var_os(SEGMENT).expect("given with the part"));
    let segment = Segment::open_or_create(&path, OPTIONS).expect("a segment, or none yet");
    match part.as_str() {
        "create" => record_id(&segment),
        "hold" => hold(&segment),
        other => block_on(play(other, OpContext::new(join(segment)))),
    }
}

fn join(segment: Segment) -> Endpoint {
    Fabric::new(vec![segment])
        .endpoint()
        .expect("the table has room, or somebody was killed")
}

/// Counts itself, or says that it saw another segment than those before.
fn record_id(segment: &Segment) {
    use std::sync::atomic::Ordering::SeqCst;
    let id = segment.segment_id() as u64;
    if let Err(first) = segment.region().word(0).compare_exchange(0, id, SeqCst, SeqCst) {
        assert_eq!(first, id);
    }
    segment.region().word(64).fetch_add(1, SeqCst);
}

fn hold(segment: &Segment) {
    let _hold = segment.hold().expect("nobody else has it");
    segment.region().word(64).store(1, std::sync::atomic::Ordering::SeqCst);
    loop {
        std::thread::park();
    }
}

async fn play(part: &str, mut op: OpContext) {
    let own = op.endpoint().id();
    let parent = EndpointId(op.read_word(PARENT_AT).await.expect("a good address"));
    match part {
        "add" => {
            for _ in 0..50_000 {
                op.fetch_add(SUM_AT, 1).await.expect("a good address");
            }
            op.endpoint()
                .send(parent, &number(7), Deadline::NEVER)
                .await
                .expect("it waits");
        }
        "send" => {
            op.write_word(CHILD_AT, own.0).await.expect("a good address");
            for count in 0.. {
                while op
                    .endpoint()
                    .send(parent, &number(count), Deadline::NEVER)
                    .await
                    .is_err()
                {
                    std::thread::yield_now();
                }
            }
        }
        "answer" => {
            op.write_word(CHILD_AT, own.0).await.expect("a good address");
            loop {
                let received = op.endpoint().receive(Deadline::NEVER).await.expect("mail");
                let answer = number(value(&received.message) + 1);
                op.endpoint()
                    .send(received.from, &answer, Deadline::NEVER)
                    .await
                    .expect("it waits");
            }
        }
        other => panic!("no such part: {other}"),
    }
}

/// A segment that the test has joined.
struct Stage {
    _folder: TempDir,
    path: PathBuf,
    op: OpContext,
}

impl Stage {
    async fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("a.segment");
        let segment = Segment::create(&path, OPTIONS).expect("a new file");
        let mut op = OpContext::new(join(segment));
        let own = op.endpoint().id().0;
        op.write_word(PARENT_AT, own).await.expect("a good address");
        Self {
            _folder: folder,
            path,
            op,
        }
    }

    /// The child's identity, once it has told it.
    async fn child(&mut self) -> EndpointId {
        loop {
            let id = self.op.compare_swap(CHILD_AT, 0, 0).await.expect("a good address");
            if id != 0 {
                self.op.write_word(CHILD_AT, 0).await.expect("a good address");
                return EndpointId(id);
            }
            self.op.endpoint().sleep(1_000_000).await;
        }
    }

    fn soon(&self) -> Deadline {
        self.op.endpoint().deadline_in(20_000_000_000)
    }

    async fn fence(&self, peer: EndpointId) -> Fence {
        self.op
            .endpoint()
            .fence(peer, self.soon())
            .await
            .expect("mapped clients do not keep us waiting")
    }
}

#[test]
fn processes_share_words_and_mail() {
    block_on(async {
        let mut stage = Stage::new().await;
        let players: Vec<_> = (0..3).map(|_| Player::start("add", &stage.path)).collect();
        for _ in 0..3 {
            let received = stage
                .op
                .endpoint()
                .receive(stage.soon())
                .await
                .expect("three were started");
            assert_eq!(value(&received.message), 7);
        }
        players.into_iter().for_each(Player::finish);
        assert_eq!(stage.op.read_word(SUM_AT).await, Ok(150_000));
    });
}

#[test]
fn senders_killed_at_any_instruction_do_not_wedge_the_mailbox() {
    block_on(async {
        let mut stage = Stage::new().await;
        for round in 0..25_u64 {
            let player = Player::start("send", &stage.path);
            let child = stage.child().await;
            let mut count = 0;
            // A different moment in each round.
            while count < 1 + round * 37 {
                let received = stage
                    .op
                    .endpoint()
                    .receive(stage.soon())
                    .await
                    .expect("it keeps sending");
                assert_eq!((received.from, value(&received.message)), (child, count));
                count += 1;
            }
            assert_eq!(stage.fence(child).await, Fence::StillRunning);
            player.kill();
            assert_eq!(stage.fence(child).await, Fence::CutOff);
            // What it had sent arrives, in order, and nothing else.
            let mut last = Vec::new();
            while let Ok(received) = stage.op.endpoint().receive(stage.op.endpoint().deadline_in(0)).await {
                last.push((received.from, value(&received.message)));
            }
            let expected: Vec<_> = (count..count + last.len() as u64).map(|count| (child, count)).collect();
            assert_eq!(last, expected);
        }
    });
}

#[test]
fn a_receiver_that_sleeps_is_woken_and_one_that_was_killed_is_unknown() {
    block_on(async {
        let mut stage = Stage::new().await;
        for _ in 0..8 {
            let player = Player::start("answer", &stage.path);
            let child = stage.child().await;
            for count in 0..30 {
                stage
                    .op
                    .endpoint()
                    .send(child, &number(count), stage.soon())
                    .await
                    .expect("it is there");
                let received = stage.op.endpoint().receive(stage.soon()).await.expect("it answers");
                assert_eq!((received.from, value(&received.message)), (child, count + 1));
                if count % 10 == 9 {
                    // Long enough for it to fall asleep.
                    stage.op.endpoint().sleep(5_000_000).await;
                }
            }
            player.kill();
            let sent = stage.op.endpoint().send(child, &number(0), stage.soon()).await;
            assert_eq!(sent, Err(FabricError::PeerUnknown { peer: child }));
            assert_eq!(stage.fence(child).await, Fence::CutOff);
        }
    });
}

#[test]
fn one_of_many_processes_creates_the_segment() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for round in 0..5 {
        let path = folder.path().join(round.to_string());
        let players: Vec<_> = (0..4).map(|_| Player::start("create", &path)).collect();
        players.into_iter().for_each(Player::finish);
        let segment = Segment::open(&path).expect("somebody made it");
        assert_eq!(segment.region().word(64).load(std::sync::atomic::Ordering::SeqCst), 4);
    }
}

#[test]
fn the_holder_is_named_and_a_killed_one_holds_nothing() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("a.segment");
    let segment = Segment::create(&path, OPTIONS).expect("a new file");
    let player = Player::start("hold", &path);
    while segment.region().word(64).load(std::sync::atomic::Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    let error = segment.hold().expect_err("the other process has it");
    let pid = player.0.id();
    assert!(
        matches!(&error, SegmentError::Held { pid: holder, .. } if *holder == pid),
        "{error}"
    );
    player.kill();
    segment.hold().expect("the role ended with its process");
}
