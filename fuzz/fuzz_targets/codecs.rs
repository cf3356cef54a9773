//! Words and bytes that stand in far memory: every decoder takes any bytes, and what it reads is
//! what an encoder would have written, where the format says so.
//!
//! Input: the words, 8 bytes each, little-endian; and all of it as the bytes of a block.

#![no_main]

use farside_fabric::{NodeId, RemoteAddr};
use farside_index::item::{Header, KEY_BYTES_MAX, VALUE_BYTES_MAX, bucket_bytes, decode_bucket, encode_bucket};
use farside_pool::client::{ClientEntry, state_word};
use farside_pool::layout::{ChunkState, GEOMETRY_WORDS};
use farside_pool::size_class::{SizeClass, UNIT_BYTES};
use farside_sync::Pointer;
use libfuzzer_sys::fuzz_target;

/// Where the words start that a client rewrites: behind its state and its identity.
const PROGRESS_AT: usize = 16;

fuzz_target!(|input: &[u8]| {
    let (words, _) = input.as_chunks::<8>();
    for &word in words {
        let word = u64::from_le_bytes(word);
        pointer(word);
        chunk_state(word);
        size_class(word);
    }
    block(input);
    client_entry(input);
});

fn pointer(word: u64) {
    let pointer = Pointer::from_word(word);
    assert_eq!(
        Pointer::new(pointer.block(), pointer.hint(), pointer.version())
            .with_fingerprint(pointer.fingerprint())
            .to_word(),
        word
    );
    assert_eq!(pointer.is_null(), pointer.block().is_null());
    if let Some(addr) = RemoteAddr::from_bits(word) {
        assert_eq!(RemoteAddr::new(addr.node(), addr.offset()).to_bits(), word);
    }
}

fn chunk_state(word: u64) {
    let Some(state) = ChunkState::from_word(word) else {
        return;
    };
    assert_eq!(state.to_word(), word);
    let owned = state.with_owner(state.owner());
    assert_eq!(owned, state);
    let free = state.with_owner(None);
    assert_eq!(free.owner(), None);
    assert_eq!(ChunkState::from_word(free.to_word()), Some(free));
}

fn size_class(word: u64) {
    let chunk_bytes = 4096_u64 << (word >> 60);
    let class = SizeClass::for_bytes(word % (2 * chunk_bytes), chunk_bytes);
    if class != SizeClass::RUN {
        assert!(class.bytes() >= word % (2 * chunk_bytes));
        assert!(class.bytes().is_multiple_of(UNIT_BYTES) && class.bytes() <= chunk_bytes / 2);
        assert!(usize::from(class.0) < SizeClass::count(chunk_bytes));
    }
}

fn block(bytes: &[u8]) {
    let Some(header) = Header::decode(bytes) else { return };
    let block_bytes = header.block_bytes() as usize;
    match header {
        Header::Item {
            key_bytes, value_bytes, ..
        } => {
            assert!(key_bytes <= KEY_BYTES_MAX && value_bytes <= VALUE_BYTES_MAX);
            if block_bytes <= bytes.len() {
                let item = header.item(bytes);
                let mut again = vec![0; block_bytes];
                item.encode(&mut again);
                assert_eq!(again, bytes[..block_bytes], "an item has one encoding");
            }
        }
        Header::Bucket { entries } => {
            assert_eq!(bucket_bytes(entries) as usize, block_bytes);
            if block_bytes <= bytes.len() {
                let listed: Vec<_> = decode_bucket(&bytes[..block_bytes]).collect();
                assert_eq!(listed.len(), entries);
                let mut again = vec![0xff; block_bytes];
                encode_bucket(&listed, &mut again);
                // Bytes 1 to 4 and 8 to 16 of a bucket mean nothing and are written as zero.
                let again_listed: Vec<_> = decode_bucket(&again).collect();
                assert_eq!((Header::decode(&again), again_listed), (Some(header), listed));
            }
        }
        Header::Descriptor => assert_eq!(block_bytes, 4 * size_of::<u64>(), "a descriptor is four words"),
    }
}

fn client_entry(bytes: &[u8]) {
    let Some(bytes) = bytes.first_chunk::<64>() else { return };
    let entry = ClientEntry::from_bytes(bytes);
    let mut again = *bytes;
    again[..8].copy_from_slice(&state_word(entry.liveness, entry.life).to_le_bytes());
    let progress = entry.progress();
    again[PROGRESS_AT..][..progress.len()].copy_from_slice(&progress);
    assert_eq!(ClientEntry::from_bytes(&again), entry);
    assert_eq!(again[8..], bytes[8..], "only the state word has spare bits");
    let words: [u64; GEOMETRY_WORDS] = core::array::from_fn(|index| {
        let at = index * 8 % 64;
        u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
    });
    let _ = farside_pool::Geometry::from_words(&words, NodeId::new(0), 1 << 26);
}
