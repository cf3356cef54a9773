//! What comes over a connection: at a node, at a client, and all the way there and back.
//!
//! The first byte of the input says what the rest is:
//!  - 0: what a client sends after the hello. The node answers or hangs up, and touches nothing but
//!    its memory;
//!  - 1: the same, hello included;
//!  - 2: what a node answers to a batch of verbs. The client gets results or an error;
//!  - 3: verbs. Over TCP they do what they do on memory at hand, since nothing is lost on the wire.

#![no_main]

use std::cell::RefCell;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

use farside_fabric::Endpoint;
use farside_fabric::backend::check_verb;
use farside_fabric::region::Region;
use farside_fabric::shm::{Segment, SegmentOptions};
use farside_fabric::tcp::{ConnectOptions, NodeLocation, Server, ServerOptions, connect};
use farside_fabric::{Batch, Deadline, MaskedAdd, MaskedCas, NodeId, RemoteAddr, Slice, Verb};
use libfuzzer_sys::fuzz_target;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Runtime;
use tokio::task::LocalSet;

/// The file ends at a multiple of 2 MiB: behind the memory are 4 KiB that nobody may touch.
const FILE_UNIT: u64 = 2 << 20;
const PAD_BYTES: u64 = 4096;
const MEMORY_BYTES: u64 = FILE_UNIT - PAD_BYTES;
/// Where the fields of the header end that nobody may touch.
const HEADER_BYTES: usize = 64;
/// Frames, either way: from their header to the longest.
const FRAME_BYTES: std::ops::RangeInclusive<usize> = 12..=64 << 10;
const WELCOME_BYTES: usize = 48;

/// A client that asks for an identity, as it opens a connection.
fn hello() -> Vec<u8> {
    let mut bytes = b"FARSIDE\n".to_vec();
    bytes.extend(2_u32.to_le_bytes());
    bytes.extend([0; 36]);
    bytes
}

/// The node that lets it in.
fn welcome() -> Vec<u8> {
    let mut bytes = b"FARSIDE\n".to_vec();
    bytes.extend(2_u32.to_le_bytes());
    bytes.extend([0, 3, 0, 0]);
    for number in [MEMORY_BYTES, 1 << 16, 7, 0] {
        bytes.extend(number.to_le_bytes());
    }
    bytes
}

/// The answer to request 0: 12 bytes, an answer, done.
const PONG: [u8; 12] = [12, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];

/// A node on a thread of its own, for all inputs.
struct Node {
    address: SocketAddr,
    segment: Segment,
    file: File,
    header: [u8; HEADER_BYTES],
}

fn node() -> &'static Node {
    static NODE: OnceLock<Node> = OnceLock::new();
    NODE.get_or_init(|| {
        let path = std::env::temp_dir().join(format!("farside-fuzz-{}.segment", std::process::id()));
        let options = SegmentOptions {
            memory_bytes: MEMORY_BYTES,
            endpoints_max: 16,
        };
        let segment = Segment::create(&path, options).expect("a segment");
        let file = File::open(&path).expect("the segment's file");
        // It stays for as long as it is mapped.
        std::fs::remove_file(&path).expect("our own file");
        let mut header = [0; HEADER_BYTES];
        file.read_exact_at(&mut header, 0).expect("a header");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let server = Server::new(segment.clone(), ServerOptions::default());
        std::thread::spawn(move || server.run(listener).expect("the server listens"));
        Node {
            address,
            segment,
            file,
            header,
        }
    })
}

impl Node {
    /// Nothing outside the memory was written.
    fn check(&self) {
        let mut header = [0; HEADER_BYTES];
        self.file.read_exact_at(&mut header, 0).expect("a header");
        assert_eq!(header, self.header);
        let mut pad = [0xff; PAD_BYTES as usize];
        let pad_at = self.file.metadata().expect("a file").len() - PAD_BYTES;
        self.file.read_exact_at(&mut pad, pad_at).expect("a pad");
        assert!(
            pad.iter().all(|&byte| byte == 0),
            "bytes behind the memory were written"
        );
    }
}

fuzz_target!(|input: &[u8]| {
    let [mode, bytes @ ..] = input else { return };
    match mode % 4 {
        0 => ask_node(&hello(), bytes),
        1 => ask_node(bytes, &[]),
        2 => answer_client(bytes),
        _ => there_and_back(bytes),
    }
});

fn ask_node(hello: &[u8], bytes: &[u8]) {
    let node = node();
    let mut stream = TcpStream::connect(node.address).expect("the node listens");
    // Closed with a reset, so that the port can be used again at once.
    SockRef::from(&stream)
        .set_linger(Some(std::time::Duration::ZERO))
        .expect("a socket");
    // A node that has hung up is one of the right answers.
    let sent = stream.write_all(hello).and_then(|()| stream.write_all(bytes));
    let _ = sent.and_then(|()| stream.shutdown(Shutdown::Write));
    let mut answer = Vec::new();
    let is_whole = stream.read_to_end(&mut answer).is_ok();
    let mut frames = answer.get(WELCOME_BYTES..).unwrap_or_default();
    while is_whole && frames.len() >= 4 {
        let length = u32::from_le_bytes(*frames.first_chunk().expect("four bytes")) as usize;
        assert!(
            FRAME_BYTES.contains(&length),
            "the node sends a frame of {length} bytes"
        );
        frames = frames.get(length..).unwrap_or_default();
    }
    node.check();
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}

fn at(offset: u64) -> RemoteAddr {
    RemoteAddr::new(NodeId::new(0), offset)
}

fn answer_client(bytes: &[u8]) {
    let runtime = runtime();
    LocalSet::new().block_on(&runtime, async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound").to_string();
        let bytes = bytes.to_vec();
        tokio::task::spawn_local(async move {
            let (mut stream, _) = listener.accept().await.expect("the client connects");
            let mut asked = [0; 4096];
            let is_greeted = stream.read_exact(&mut asked[..hello().len()]).await.is_ok();
            if is_greeted && stream.write_all(&welcome()).await.is_ok() {
                // Connecting ends with a ping, request 0; the verbs are request 1.
                let _ = stream.read(&mut asked).await;
                let _ = stream.write_all(&PONG).await;
                let _ = stream.read(&mut asked).await;
                let _ = stream.write_all(&bytes).await;
                // What the client says to that does not matter, but a reset would take the answer back.
                let _ = stream.shutdown().await;
                while stream.read(&mut asked).await.is_ok_and(|count| count > 0) {}
            }
        });
        let endpoint = connect(vec![NodeLocation::Remote(address)], ConnectOptions::default()).await;
        let endpoint = endpoint.expect("a good welcome and a pong");
        let mut buffer = endpoint.buffer(4096);
        let mut batch = Batch::new();
        batch.read(at(3), Slice::new(100, 77));
        batch.read_word(at(8));
        batch.write_word(at(16), 7);
        batch.push(Verb::WideFetchAdd {
            target: at(32),
            operands: MaskedAdd::whole(1),
        });
        batch.read(at(0), Slice::new(1000, 0));
        batch.fetch_add(at(64), 1);
        let outcome = endpoint.post(&mut batch, &mut buffer, Deadline::NEVER).await;
        assert_eq!(buffer.len(), 4096, "the memory comes back");
        if outcome.is_ok() {
            assert!(
                buffer[..100].iter().chain(&buffer[177..]).all(|&byte| byte == 0),
                "{outcome:?}"
            );
        }
        // The connection is broken, or about to be.
        let _ = endpoint
            .execute(Verb::ReadWord { source: at(0) }, &mut buffer, Deadline::NEVER)
            .await;
    });
}

/// How much of the memory the verbs of one input reach.
const REACH_BYTES: usize = 1 << 18;
/// A verb longer than a frame is cut into several.
const COPY_BYTES_MAX: usize = 70 << 10;
const BUFFER_BYTES: usize = 1 << 18;

/// A client of the node for all inputs, and memory at hand beside it.
struct Client {
    runtime: Runtime,
    tasks: LocalSet,
    endpoint: Endpoint,
    region: Region,
}

impl Client {
    fn new() -> Self {
        let (runtime, tasks) = (runtime(), LocalSet::new());
        let location = NodeLocation::Remote(node().address.to_string());
        let endpoint = tasks.block_on(&runtime, connect(vec![location], ConnectOptions::default()));
        Self {
            runtime,
            tasks,
            endpoint: endpoint.expect("the node lets us in"),
            region: Region::anonymous(MEMORY_BYTES).expect("memory"),
        }
    }
}

thread_local! {
    // Never dropped: what tokio keeps for the thread may be gone before it.
    static CLIENT: RefCell<Option<&'static Client>> = const { RefCell::new(None) };
}

/// Takes numbers from the input; zeros once it is used up.
struct Draw<'a>(&'a [u8]);

impl Draw<'_> {
    fn number(&mut self, bytes: usize) -> u64 {
        let (now, later) = self.0.split_at(bytes.min(self.0.len()));
        self.0 = later;
        now.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
    }

    fn wide(&mut self) -> u128 {
        u128::from(self.number(8)) << 64 | u128::from(self.number(8))
    }

    fn verb(&mut self) -> Verb {
        let code = self.number(1);
        let offset = self.number(3) % REACH_BYTES as u64;
        let (word, wide) = (at(offset & !7), at(offset & !15));
        // What is read lands in the upper half, what is written comes from the lower: bytes of a verb in
        // flight belong to the fabric.
        let half = BUFFER_BYTES as u32 / 2;
        let mut slice = |first: u32| {
            let bytes = self.number(3) as u32 % COPY_BYTES_MAX as u32;
            Slice::new(first + self.number(2) as u32 % (half - COPY_BYTES_MAX as u32), bytes)
        };
        match code % 10 {
            0 => Verb::Read {
                source: at(offset),
                target: slice(half),
            },
            1 => Verb::Write {
                source: slice(0),
                target: at(offset),
            },
            2 => Verb::ReadWord { source: word },
            3 => Verb::WriteWord {
                target: word,
                value: self.number(8),
            },
            4 => Verb::CompareSwap {
                target: word,
                compare: self.number(1),
                swap: self.number(8),
            },
            // One in eight is misaligned, which is refused before it is posted.
            5 => Verb::FetchAdd {
                target: if code > 200 { at(offset | 1) } else { word },
                add: self.number(8),
            },
            6 => Verb::MaskedCompareSwap {
                target: word,
                operands: MaskedCas {
                    compare: self.number(8),
                    compare_mask: self.number(2),
                    swap: self.number(8),
                    swap_mask: self.number(8),
                },
            },
            7 => Verb::MaskedFetchAdd {
                target: word,
                operands: MaskedAdd {
                    add: self.number(8),
                    boundary: self.number(8),
                },
            },
            8 => Verb::WideCompareSwap {
                target: wide,
                operands: MaskedCas {
                    compare: self.wide(),
                    compare_mask: self.wide(),
                    swap: self.wide(),
                    swap_mask: self.wide(),
                },
            },
            _ => Verb::WideFetchAdd {
                target: wide,
                operands: MaskedAdd {
                    add: self.wide(),
                    boundary: self.wide(),
                },
            },
        }
    }
}

fn there_and_back(bytes: &[u8]) {
    CLIENT.with_borrow_mut(|client| {
        let Client {
            runtime,
            tasks,
            endpoint,
            region,
        } = client.get_or_insert_with(|| Box::leak(Box::new(Client::new())));
        let capabilities = Region::capabilities();
        let reached = vec![0; REACH_BYTES + COPY_BYTES_MAX];
        node().segment.region().write(0, &reached);
        region.write(0, &reached);
        let mut buffer = endpoint.buffer(BUFFER_BYTES);
        for (index, byte) in buffer.iter_mut().enumerate() {
            *byte = index as u8 ^ (index >> 8) as u8;
        }
        let mut expected = buffer.to_vec();
        let mut draw = Draw(bytes);
        let mut positions = Vec::new();
        while !draw.0.is_empty() {
            let mut batch = Batch::new();
            positions.clear();
            for _ in 0..=draw.number(1) % 16 {
                positions.push(batch.push(draw.verb()));
            }
            let posted = tasks.block_on(runtime, endpoint.post(&mut batch, &mut buffer, Deadline::NEVER));
            let wrong = batch
                .verbs()
                .iter()
                .find_map(|verb| check_verb(verb, MEMORY_BYTES, capabilities).err());
            if let Some(wrong) = wrong {
                assert_eq!(posted, Err(wrong), "refused, and nothing was posted");
                continue;
            }
            assert!(posted.is_ok(), "{posted:?}");
            for (verb, &position) in batch.verbs().iter().zip(&positions) {
                assert_eq!(
                    batch.wide_result(position),
                    region.execute(verb, &mut expected),
                    "{verb:?}"
                );
            }
            assert!(
                *buffer == *expected,
                "what was read is what is there: {:?}",
                batch.verbs()
            );
        }
        let (mut near, mut far) = (reached.clone(), reached);
        region.read(0, &mut near);
        node().segment.region().read(0, &mut far);
        assert!(near == far, "what was written is what is there");
    });
}
