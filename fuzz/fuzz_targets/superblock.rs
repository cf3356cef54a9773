//! A segment file with anything in its header and in the tables of its pool: opening and examining
//! it ends with a result or an error, and changes nothing unless it formats what was blank.
//!
//! Input: a byte of flags, then patches of 10 bytes: where (2 bytes) and a word. They are put into
//! the segment's header, or into the superblock and tables of a small pool. A flag says whether the
//! checksum of the superblock is made right afterwards, so that the fields behind it are reached.

#![no_main]

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use farside_fabric::shm::{Fabric, Segment, SegmentOptions};
use farside_fabric::{NodeId, OpContext, RemoteAddr};
use farside_index::pointer_array::walk;
use farside_kv::{Store, StoreConfig};
use farside_pool::layout::{CLIENTS_AT, GEOMETRY_WORDS, ROOTS_AT};
use farside_pool::{FormatOptions, account, open, open_or_format, root};
use libfuzzer_sys::fuzz_target;

/// The tables of the pool below end well before this.
const TABLES_BYTES: usize = 16 << 10;
const MEMORY_BYTES: u64 = 160 << 10;
/// What stands before the endpoint table.
const HEADER_BYTES: usize = 4096;
const FORMAT: FormatOptions = FormatOptions {
    clients_max: 4,
    chunk_bytes: Some(8 << 10),
    // A creator that has not finished is not waited for.
    patience_ns: 0,
};

fn block_on<T>(body: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    tokio::task::LocalSet::new().block_on(&runtime, body)
}

/// A whole segment with a store of a few keys.
struct Sample {
    segment: Segment,
    file: File,
    header: Vec<u8>,
    memory: Vec<u8>,
}

fn sample() -> &'static Sample {
    static SAMPLE: OnceLock<Sample> = OnceLock::new();
    SAMPLE.get_or_init(|| {
        let path = path();
        let _ = std::fs::remove_file(path);
        let options = SegmentOptions {
            memory_bytes: MEMORY_BYTES,
            endpoints_max: 2,
        };
        let segment = Segment::create(path, options).expect("a segment");
        block_on(async {
            let endpoint = Fabric::new(vec![segment.clone()]).endpoint().expect("an endpoint");
            let config = StoreConfig {
                slots: Some(3),
                format: FORMAT,
                ..StoreConfig::default()
            };
            let store = Store::open(endpoint, config).await.expect("a store");
            let mut session = store.session();
            for (key, bytes) in [
                (&b"a"[..], 10),
                (b"b", 300),
                (b"c", 20_000),
                (b"d", 0),
                (b"e", 64),
                (b"f", 5),
            ] {
                session.put(key, &vec![key[0]; bytes]).await.expect("put");
            }
            store.close().await.expect("close");
        });
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .expect("our own file");
        Sample {
            header: header(&file),
            memory: memory(&segment),
            segment,
            file,
        }
    })
}

fn header(file: &File) -> Vec<u8> {
    let mut header = vec![0; HEADER_BYTES];
    let bytes = file.read_at(&mut header, 0).expect("our own file");
    header.truncate(bytes);
    header
}

fn memory(segment: &Segment) -> Vec<u8> {
    let mut memory = vec![0; MEMORY_BYTES as usize];
    segment.region().read(0, &mut memory);
    memory
}

/// The segment's file; it stays behind in memory, a few MiB of which most were never written.
fn path() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| std::env::temp_dir().join(format!("farside-fuzz-{}.superblock", std::process::id())))
}

/// FNV-1a, as the superblock has it.
fn checksum(words: &[u8]) -> u64 {
    words.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fuzz_target!(|input: &[u8]| {
    let [flags, patches @ ..] = input else { return };
    let patches = patches.chunks_exact(10).take(64).map(|patch| {
        let at = u16::from_le_bytes([patch[0], patch[1]]);
        (usize::from(at), &patch[2..])
    });
    if flags & 1 == 1 {
        let mut header = sample().header.clone();
        for (at, word) in patches {
            let at = at % (HEADER_BYTES / 2);
            header[at..at + 8].copy_from_slice(word);
        }
        open_file(&header, flags & 4 == 4);
        return;
    }
    let mut memory = sample().memory.clone();
    for (at, word) in patches {
        let at = at % TABLES_BYTES;
        memory[at..at + 8].copy_from_slice(word);
    }
    if flags & 2 == 2 {
        let (words, rest) = memory.split_at_mut((GEOMETRY_WORDS - 1) * 8);
        rest[..8].copy_from_slice(&checksum(words).to_le_bytes());
    }
    block_on(examine(&memory));
});

/// Opens the file with another header, and perhaps cut short.
fn open_file(changed: &[u8], is_short: bool) {
    let Sample { file, header, .. } = sample();
    let file_bytes = file.metadata().expect("our own file").len();
    let copy_path = path().with_extension("copy");
    let copy = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&copy_path);
    let copy = copy.expect("our own file");
    copy.set_len(if is_short { file_bytes / 2 } else { file_bytes })
        .expect("our own file");
    copy.write_all_at(changed, 0).expect("our own file");
    match Segment::open(&copy_path) {
        Ok(segment) => {
            assert!(!is_short, "half a segment");
            assert!(segment.memory_bytes() <= file_bytes);
            // What is opened can be joined or says why not.
            if let Err(error) = Fabric::new(vec![segment]).endpoint() {
                assert!(!error.to_string().is_empty());
            }
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            assert!(changed != header || is_short, "{error}");
            assert!(self::header(&copy) == changed, "refused, and rewritten");
        }
    }
}

async fn examine(before: &[u8]) {
    let segment = &sample().segment;
    segment.region().write(0, before);
    let is_unchanged = || memory(segment) == before;
    let endpoint = Fabric::new(vec![segment.clone()]).endpoint().expect("a free entry");
    let mut cx = OpContext::new(endpoint);

    let opened = open(&mut cx).await;
    assert!(is_unchanged(), "opening writes nothing");
    if let Ok(geometry) = &opened {
        let mut blocks = Vec::new();
        // Any of them may find damage; none may trust what it reads.
        let _ = walk(&mut cx, geometry, None, &mut |block| blocks.push(block)).await;
        let _ = account(&mut cx, geometry, &blocks).await;
        let _ = root(&mut cx, NodeId::new(0), 0).await;
        assert!(is_unchanged(), "examining writes nothing");
    }
    let magic = cx.read_word(RemoteAddr::new(NodeId::new(0), 0)).await.expect("a word");
    let may_format = magic == 0;
    match open_or_format(&mut cx, FORMAT).await {
        Ok(_) if may_format => {}
        Ok(geometry) => {
            assert_eq!(Ok(geometry), opened);
            assert!(is_unchanged(), "opened, and rewritten");
        }
        Err(error) => {
            assert!(!may_format, "there is room for a pool: {error}");
            assert!(!error.to_string().is_empty());
            assert!(is_unchanged(), "refused ({error}), and rewritten");
        }
    }
}

const _: () = assert!(
    ROOTS_AT < CLIENTS_AT && CLIENTS_AT < TABLES_BYTES as u64,
    "patches reach them"
);
