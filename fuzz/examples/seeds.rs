//! Writes the first inputs of every target to `fuzz/corpus`: what a fuzzer would take long to find.
//!
//! Run it in `fuzz` with `cargo run --example seeds` after a format has changed. Files of other names (inputs
//! that once found a bug) stay.

use std::path::Path;

use farside_fabric::{NodeId, RemoteAddr};
use farside_index::item::{Entry, Item, bucket_bytes, encode_bucket};
use farside_pool::client::{Liveness, state_word};
use farside_pool::layout::{ChunkState, Geometry, Owner};
use farside_pool::size_class::SizeClass;
use farside_sync::{Pointer, SizeHint};
use farside_value::packed::hash::ExpiryCondition;
use farside_value::packed::list::End;
use farside_value::packed::{hash, list, set, sorted};
use farside_value::{Edit, Text};

fn main() {
    for (target, seeds) in [
        ("resp", resp()),
        ("tcp_frames", tcp_frames()),
        ("superblock", superblock()),
        ("codecs", codecs()),
        ("store_model", store_model()),
        ("values", values()),
    ] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
        std::fs::create_dir_all(&folder).expect("a folder");
        for (name, bytes) in seeds {
            std::fs::write(folder.join(name), bytes).expect("a file");
        }
    }
}

type Seeds = Vec<(&'static str, Vec<u8>)>;

/// Flags, cuts, input.
fn resp() -> Seeds {
    let seed = |flags: u8, input: &[u8]| [&[flags, 7], input].concat();
    vec![
        ("array", seed(0, b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$4\r\n\r\n\0x\r\n")),
        ("gets", seed(0, &b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n".repeat(3))),
        (
            "gets-cut",
            seed(0, b"*2\r\n$3\r\nget\r\n$1\r\na\r\n*2\r\n$3\r\nGET\r\n$10\r\nabc"),
        ),
        ("inline", seed(0, b"SET a \"x\\x41\\n\" 'y'\r\nPING\n\r\n")),
        ("nothing", seed(0, b"*0\r\n*-1\r\n*1\r\n$0\r\n\r\n")),
        ("refused", seed(0, b"*2\r\n$600000000\r\n")),
        ("stranger", seed(1, b"*2\r\n$4\r\nAUTH\r\n$6\r\nsecret\r\n*11\r\n")),
    ]
}

/// A frame of requests: bytes, number, kind, verb count, reserved, body.
fn frame(request: u32, kind: u8, verb_count: u8, body: &[u8]) -> Vec<u8> {
    let mut frame = (12 + body.len() as u32).to_le_bytes().to_vec();
    frame.extend(request.to_le_bytes());
    frame.extend([kind, verb_count, 0, 0]);
    frame.extend(body);
    frame
}

fn verb(offset: u32, code: u8, operands: &[u8]) -> Vec<u8> {
    [&offset.to_le_bytes()[..], &[0, 0, code, 0], operands].concat()
}

fn tcp_frames() -> Seeds {
    let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let batch = [
        verb(64, 2, &[&5_u32.to_le_bytes()[..], b"bytes"].concat()),
        verb(64, 1, &5_u32.to_le_bytes()),
        verb(8, 4, &words(&[7])),
        verb(8, 3, &[]),
        verb(8, 5, &words(&[7, 8])),
        verb(8, 6, &words(&[1])),
        verb(8, 7, &words(&[9, !0, 10, !0])),
        verb(8, 8, &words(&[1, 1 << 31])),
        verb(16, 9, &words(&[0, 0, 0, 0, 1, 2, !0, !0])),
        verb(16, 10, &words(&[1, 0, 0, 0])),
    ];
    let mode = |mode: u8, frames: &[Vec<u8>]| [&[mode], &frames.concat()[..]].concat();
    let node = mode(
        0,
        &[
            frame(0, 1, 10, &batch.concat()),
            frame(1, 4, 0, &[]),
            frame(2, 2, 0, &[&words(&[1 << 16])[..], b"a message"].concat()),
            frame(3, 3, 0, &words(&[99])),
            frame(4, 5, 0, &words(&[3])),
        ],
    );
    let outside = mode(
        0,
        &[frame(
            0,
            1,
            1,
            &verb(0x1f_f000, 2, &[&4_u32.to_le_bytes()[..], b"over"].concat()),
        )],
    );
    let long = mode(
        0,
        &[frame(
            0,
            1,
            2,
            &[
                verb(0, 1, &60_000_u32.to_le_bytes()),
                verb(0, 1, &60_000_u32.to_le_bytes()),
            ]
            .concat(),
        )],
    );
    let greeting = [
        b"FARSIDE\n",
        &2_u32.to_le_bytes()[..],
        &[4, 0, 0, 0],
        &words(&[5, 0, 0, 0]),
        b"word",
    ]
    .concat();
    // What the client of the target asks for, in request 1: 77 bytes, a word, nothing, a wide word, 0 bytes, a word.
    let answer = frame(1, 1, 0, &[9; 77 + 8 + 16 + 8]);
    let message = frame(0, 2, 0, &[&words(&[4])[..], b"a message"].concat());
    vec![
        ("node-all-requests", node),
        ("node-behind-the-memory", outside),
        ("node-answer-too-long", long),
        ("node-hello-with-secret", mode(1, &[greeting])),
        ("client-answer", mode(2, &[message, answer.clone()])),
        ("client-answer-short", mode(2, &[answer[..50].to_vec()])),
        ("client-answer-wrong-length", mode(2, &[frame(1, 1, 0, &[9; 30])])),
        ("client-cut-off", mode(2, &[frame(0, 3, 0, &[])])),
        (
            "verbs-of-each-kind",
            [&[3, 9], &(0..=255).collect::<Vec<u8>>()[..]].concat(),
        ),
        (
            "verbs-longer-than-a-frame",
            [3, 2, 1, 9, 0, 0, 0, 1, 1, 0, 0, 0, 9, 0, 0, 0, 1, 1, 0, 0].to_vec(),
        ),
    ]
}

/// Flags, then patches.
fn superblock() -> Seeds {
    const IN_HEADER: u8 = 1;
    const SUM: u8 = 2;
    let patch = |at: u16, word: u64| [&at.to_le_bytes()[..], &word.to_le_bytes()].concat();
    let seed = |flags: u8, patches: &[(u16, u64)]| {
        let patches = patches.iter().map(|&(at, word)| patch(at, word));
        [vec![flags], patches.collect::<Vec<_>>().concat()].concat()
    };
    let chunk_table: u16 = 4096 + 4 * 64;
    vec![
        ("whole", seed(0, &[])),
        ("cut-short", seed(4, &[])),
        ("header-size", seed(IN_HEADER, &[(32, 1 << 40)])),
        ("header-closed", seed(IN_HEADER, &[(1024, 2)])),
        ("blank", seed(0, &[(0, 0)])),
        ("half-formatted", seed(0, &[(0, 0), (704, 9)])),
        ("clients", seed(SUM, &[(9 * 8, 5)])),
        ("clients-beyond-any", seed(SUM, &[(9 * 8, 1 << 59)])),
        ("chunk-bytes-zero", seed(SUM, &[(6 * 8, 0)])),
        ("chunk-bytes-beyond-any", seed(SUM, &[(6 * 8, u64::MAX)])),
        ("chunk-word", seed(0, &[(chunk_table + 8, 0xf)])),
        ("chunk-class", seed(0, &[(chunk_table + 8, 0xff1)])),
        ("client-state", seed(0, &[(640, 4), (4096 + 64, 1), (4096 + 72, 9)])),
        ("root", seed(0, &[(1024, 1 << 60)])),
        ("root-length", seed(0, &[(1032, u64::MAX)])),
    ]
}

fn codecs() -> Seeds {
    let owner = Some(Owner { client: 3, life: 9 });
    let block = RemoteAddr::new(NodeId::new(5), 0x1240);
    let words = [
        Pointer::new(block, SizeHint::Bucket, 200).to_word(),
        ChunkState::Blocks {
            owner,
            class: SizeClass(9),
        }
        .to_word(),
        ChunkState::Run { owner, count: 7 }.to_word(),
        ChunkState::RunTail { owner: None, back: 6 }.to_word(),
        ChunkState::Root { number: 1 }.to_word(),
        1 << 60 | 4097,
    ];
    let words: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let item = Item {
        key: b"key",
        value: b"a value",
        expiry_ms: 12_345,
    };
    let mut stored = vec![0; item.bytes() as usize];
    item.encode(&mut stored);
    let entries: Vec<Entry> = (1..4)
        .map(|hash| Entry {
            hash,
            pointer: Pointer::new(block, SizeHint::Line, hash as u8),
        })
        .collect();
    let mut bucket = vec![0; bucket_bytes(entries.len()) as usize];
    encode_bucket(&entries, &mut bucket);
    let client = [state_word(Liveness::Live, 7), 65_536, 5, 6, 7, 8, 9, 0];
    let client = client.iter().flat_map(|word| word.to_le_bytes()).collect();
    let geometry = Geometry::divide(1, NodeId::new(0), 1, 1 << 26, 1 << 17, 64).expect("large enough");
    let superblock = geometry.to_words().iter().flat_map(|word| word.to_le_bytes()).collect();
    vec![
        ("words", words),
        ("item", stored),
        ("bucket", bucket),
        ("client", client),
        ("superblock", superblock),
    ]
}

/// The number of an operation and its arguments; see the target.
fn store_model() -> Seeds {
    let set = |key: u8, bytes: u16| [&[4, key][..], &bytes.to_le_bytes(), &[key]].concat();
    let fill: Vec<u8> = (0..32).flat_map(|key| set(key, u16::from(key) * 13)).collect();
    let many = [&[3, 32][..], &(0..32).collect::<Vec<u8>>()].concat();
    let delete: Vec<u8> = (0..32).flat_map(|key| [10, key]).collect();
    // Twelve values of 128 KiB fill the pool; overwriting and deleting them must still be possible.
    let large: Vec<u8> = (0..24).flat_map(|key| set(key % 12 + 1, 0xffff)).collect();
    vec![
        (
            "fill-read-empty",
            [&fill[..], &many, &[14], &delete, &many, &[14]].concat(),
        ),
        (
            "overwrite",
            [set(1, 5), set(1, 300), set(1, 0xd000), set(1, 0), vec![0, 1]].concat(),
        ),
        (
            "conditions",
            [[8, 1, 9, 0, 7], [8, 1, 8, 0, 7], [9, 2, 8, 0, 7], [9, 1, 3, 0, 7]].concat(),
        ),
        ("append", [13, 1, 9, 0, 7].repeat(40)),
        ("memory-full", [&large[..], &many, &delete, &fill, &[14]].concat()),
        ("clear", [&fill[..], &[15, 14], &fill, &many].concat()),
    ]
}

/// Type, bytes of the value, the value; then strings behind their lengths.
fn values() -> Seeds {
    let seed = |kind: u8, edit: Edit, texts: &[&str]| {
        let Edit::Put(value) = edit else { panic!("{edit:?}") };
        let mut seed = vec![kind, value.len() as u8];
        seed.extend(value);
        for text in texts {
            seed.push(text.len() as u8);
            seed.extend(text.as_bytes());
        }
        seed
    };
    let fields: [(&[u8], &[u8]); 4] = [
        (b"field0", b"abc"),
        (b"field1", b"-70000"),
        (b"a field whose name is long", b"1.5"),
        (b"1234567890", b""),
    ];
    let (plain, _) = hash::set(None, &fields, 0).expect("a hash");
    let Edit::Put(value) = &plain else { panic!("{plain:?}") };
    let always = ExpiryCondition::Always;
    let (expiring, _) = hash::expire(Some(value), &[b"field0", b"field1"], 1500, always, 0).expect("a hash");
    let members = |members: &[&'static str]| {
        members
            .iter()
            .map(|member| Text::new(member.as_bytes()))
            .collect::<Vec<_>>()
    };
    let integers = members(&["-1", "7", "300", "70000", "9223372036854775807"]);
    let mixed = members(&["abc", "7", "", "-0"]);
    let scores = [0.0, -0.0, 1.5, f64::INFINITY, -3.0].into_iter().zip(&integers);
    let entries = scores.map(|(score, member)| (*member, score)).collect();
    let equal = mixed.iter().map(|member| (*member, 2.0)).collect();
    let (list, _) = list::push(None, End::Tail, &[b"a", b"7", b"a", b"", b"-300"]).expect("a list");
    vec![
        ("hash", seed(0, plain, &["field1", "7", "field2", "x"])),
        ("hash-expiring", seed(0, expiring, &["field1", "7", "field1"])),
        ("set-integers", seed(1, set::build(&integers), &["7", "8", "7"])),
        ("set-mixed", seed(1, set::build(&mixed), &["7", "8", "abc"])),
        ("sorted-set", seed(2, sorted::build(entries), &["(1", "7", "+inf"])),
        ("sorted-set-lex", seed(2, sorted::build(equal), &["[7", "-0", "(b"])),
        ("list", seed(3, list, &["a", "b"])),
    ]
}
