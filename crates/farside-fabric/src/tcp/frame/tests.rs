//! Round trips, and bytes that no client would send.

use proptest::collection::vec;
use proptest::prelude::*;

use super::batch::encode_verb;
use super::*;
use crate::addr::{NodeId, RemoteAddr};
use crate::batch::BATCH_VERBS_MAX;
use crate::rdma::IntroductionKind;
use crate::verb::{MaskedAdd, MaskedCas, Slice, Verb};

/// What a test's slices refer to.
const BUFFER_BYTES: u32 = 200 * 1024;

fn addr() -> impl Strategy<Value = RemoteAddr> {
    (0..1_u64 << 48).prop_map(|offset| RemoteAddr::new(NodeId::new(0), offset))
}

fn slice(bytes_max: u32) -> impl Strategy<Value = Slice> {
    (0..=bytes_max).prop_flat_map(|bytes| (0..=BUFFER_BYTES - bytes).prop_map(move |at| Slice::new(at, bytes)))
}

fn verb() -> impl Strategy<Value = Verb> {
    let swap = |[compare, compare_mask, swap, swap_mask]: [u64; 4]| MaskedCas {
        compare,
        compare_mask,
        swap,
        swap_mask,
    };
    let wide_swap = |[compare, compare_mask, swap, swap_mask]: [u128; 4]| MaskedCas {
        compare,
        compare_mask,
        swap,
        swap_mask,
    };
    prop_oneof![
        (addr(), slice(300)).prop_map(|(source, target)| Verb::Read { source, target }),
        (addr(), slice(300)).prop_map(|(target, source)| Verb::Write { source, target }),
        addr().prop_map(|source| Verb::ReadWord { source }),
        (addr(), any::<u64>()).prop_map(|(target, value)| Verb::WriteWord { target, value }),
        (addr(), any::<[u64; 2]>()).prop_map(|(target, [compare, swap])| Verb::CompareSwap { target, compare, swap }),
        (addr(), any::<u64>()).prop_map(|(target, add)| Verb::FetchAdd { target, add }),
        (addr(), any::<[u64; 4]>()).prop_map(move |(target, words)| Verb::MaskedCompareSwap {
            target,
            operands: swap(words)
        }),
        (addr(), any::<[u64; 2]>()).prop_map(|(target, [add, boundary])| Verb::MaskedFetchAdd {
            target,
            operands: MaskedAdd { add, boundary }
        }),
        (addr(), any::<[u128; 4]>()).prop_map(move |(target, words)| Verb::WideCompareSwap {
            target,
            operands: wide_swap(words)
        }),
        (addr(), any::<[u128; 2]>()).prop_map(|(target, [add, boundary])| Verb::WideFetchAdd {
            target,
            operands: MaskedAdd { add, boundary }
        }),
    ]
}

fn buffer() -> Vec<u8> {
    (0..BUFFER_BYTES).map(|index| (index % 251) as u8).collect()
}

/// The verbs of all frames, each with the payload it carries, after the checks that every frame has
/// to pass.
fn decode_all(mut frames: &[u8], first_request: u32) -> Vec<(Verb, Vec<u8>)> {
    let mut verbs = Vec::new();
    let mut request = first_request;
    while !frames.is_empty() {
        let Ok(Framed::Whole(header, end)) = split_frame::<RequestHeader>(frames) else {
            panic!("the writer writes whole frames");
        };
        assert_eq!(header.request.get(), request);
        assert_eq!(RequestKind::from_code(header.kind), Ok(RequestKind::Batch));
        let body = &frames[HEADER_BYTES..end];
        let mut answer_bytes = 0;
        for verb in decode_verbs(body, header.verb_count).expect("the writer writes what can be read") {
            let payload = match verb {
                Verb::Write { source, .. } => body[source.range()].to_vec(),
                _ => Vec::new(),
            };
            if let Verb::Read { target, .. } = verb {
                assert_eq!(target.at as usize, answer_bytes, "READs put their bytes in verb order");
            }
            answer_bytes += verb.result_bytes();
            verbs.push((verb, payload));
        }
        assert!(HEADER_BYTES + answer_bytes <= FRAME_BYTES_MAX);
        frames = &frames[end..];
        request = request.wrapping_add(1);
    }
    verbs
}

/// The verb without its place in a buffer, which is another on each side.
fn placeless(verb: Verb) -> Verb {
    match verb {
        Verb::Read { source, target } => Verb::Read {
            source,
            target: Slice::first(target.bytes),
        },
        Verb::Write { source, target } => Verb::Write {
            source: Slice::first(source.bytes),
            target,
        },
        other => other,
    }
}

fn payload(verb: &Verb, buffer: &[u8]) -> Vec<u8> {
    match verb {
        Verb::Write { source, .. } => buffer[source.range()].to_vec(),
        _ => Vec::new(),
    }
}

fn write(verbs: &[Verb], buffer: &[u8], request: u32) -> (Vec<u8>, u32) {
    let mut output = Vec::new();
    let mut writer = RequestWriter::new(&mut output, request, 0);
    for verb in verbs {
        writer.push(verb, buffer);
    }
    let frames = writer.finish();
    (output, frames)
}

/// Follows the pieces of one long READ or WRITE.
fn check_pieces(verb: &Verb, buffer: &[u8]) {
    let (output, frames) = write(core::slice::from_ref(verb), buffer, 7);
    let pieces = decode_all(&output, 7);
    let (addr, bytes) = verb.target();
    assert!(frames as usize <= pieces.len(), "a short rest may share a frame");
    let mut next = addr;
    let mut carried = Vec::new();
    for (index, (piece, payload)) in pieces.iter().enumerate() {
        assert_eq!(core::mem::discriminant(piece), core::mem::discriminant(verb));
        let (at, count) = piece.target();
        assert_eq!(at, next, "the pieces follow each other");
        assert!(index == 0 || at.offset() % 8 == 0, "no word is cut");
        next = at.plus(count);
        carried.extend_from_slice(payload);
    }
    assert_eq!(next.offset() - addr.offset(), bytes);
    assert_eq!(carried, payload(verb, buffer));
}

proptest! {
    #[test]
    fn batches_survive_the_wire(verbs in vec(verb(), 1..=BATCH_VERBS_MAX), request: u32) {
        let buffer = buffer();
        let (output, frames) = write(&verbs, &buffer, request);
        prop_assert_eq!(frames, 1, "a small batch is one frame");
        let seen = decode_all(&output, request);
        prop_assert_eq!(seen.len(), verbs.len());
        for ((seen, seen_payload), verb) in seen.into_iter().zip(&verbs) {
            prop_assert_eq!(seen_payload, payload(verb, &buffer));
            prop_assert_eq!(placeless(seen), placeless(*verb));
        }
    }

    #[test]
    fn long_copies_are_cut_between_words(offset in 0_u64..1 << 20, bytes in 1_u32..BUFFER_BYTES) {
        let (buffer, addr) = (buffer(), RemoteAddr::new(NodeId::new(0), offset));
        let slice = Slice::new(BUFFER_BYTES - bytes, bytes);
        check_pieces(&Verb::Read { source: addr, target: slice }, &buffer);
        check_pieces(&Verb::Write { source: slice, target: addr }, &buffer);
    }

    #[test]
    fn arbitrary_bodies_decode_to_verbs_within_their_bounds(body in vec(any::<u8>(), 0..400), count: u8) {
        check_decoded(&body, count);
    }

    #[test]
    fn damaged_frames_decode_to_verbs_within_their_bounds(
        verbs in vec(verb(), 1..=BATCH_VERBS_MAX),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut: prop::sample::Index,
    ) {
        let (mut frame, _) = write(&verbs, &buffer(), 0);
        let mut body = frame.split_off(HEADER_BYTES);
        for (index, byte) in damage {
            let index = index.index(body.len());
            body[index] = byte;
        }
        check_decoded(&body, verbs.len() as u8);
        body.truncate(cut.index(body.len()));
        check_decoded(&body, verbs.len() as u8);
    }

    #[test]
    fn arbitrary_input_is_never_split_beyond_its_end(input in vec(any::<u8>(), 0..100)) {
        if let Ok(Framed::Whole(_, end)) = split_frame::<RequestHeader>(&input) {
            prop_assert!((HEADER_BYTES..=input.len()).contains(&end));
        }
    }

    #[test]
    fn messages_survive_the_wire(peer: u64, bytes in vec(any::<u8>(), 0..=MESSAGE_BYTES_MAX), request: u32) {
        let mut output = Vec::new();
        put_send(&mut output, request, EndpointId(peer), &bytes);
        put_message(&mut output, EndpointId(peer), &bytes);
        let Ok(Framed::Whole(header, end)) = split_frame::<RequestHeader>(&output) else {
            panic!("a whole request");
        };
        prop_assert_eq!((header.kind, header.request.get()), (RequestKind::Send as u8, request));
        let sent = decode_message(&output[HEADER_BYTES..end]).expect("what was written");
        prop_assert_eq!((sent.0, &sent.1[..]), (EndpointId(peer), &bytes[..]));
        let Ok(Framed::Whole(header, length)) = split_frame::<ResponseHeader>(&output[end..]) else {
            panic!("a whole response");
        };
        prop_assert_eq!((header.kind, end + length), (ResponseKind::Message as u8, output.len()));
        prop_assert_eq!(decode_message(&output[end + HEADER_BYTES..]), Ok(sent));
    }

    #[test]
    fn introductions_survive_the_wire(peer: u64, round: u32) {
        let peer = EndpointId(peer);
        let introduction = Introduction::new(IntroductionKind::Ask, round, None);
        let mut output = Vec::new();
        put_introduce(&mut output, peer, &introduction);
        put_introduction(&mut output, peer, &introduction);
        let Ok(Framed::Whole(header, end)) = split_frame::<RequestHeader>(&output) else {
            panic!("a whole request");
        };
        prop_assert_eq!((header.kind, header.request.get()), (RequestKind::Introduce as u8, 0));
        prop_assert_eq!(decode_introduction(&output[HEADER_BYTES..end]), Ok((peer, introduction)));
        let Ok(Framed::Whole(header, length)) = split_frame::<ResponseHeader>(&output[end..]) else {
            panic!("a whole response");
        };
        prop_assert_eq!((header.kind, end + length), (ResponseKind::Introduction as u8, output.len()));
        prop_assert_eq!(decode_introduction(&output[end + HEADER_BYTES..]), Ok((peer, introduction)));
        output.push(0);
        let longer = &output[end + HEADER_BYTES..];
        prop_assert_eq!(decode_introduction(longer), Err(FrameError::Introduction));
    }

    #[test]
    fn numbers_survive_the_wire(number: u64, request: u32) {
        let mut output = Vec::new();
        put_fence(&mut output, request, EndpointId(number));
        prop_assert_eq!(decode_number(&output[HEADER_BYTES..]), Ok(number));
        output.clear();
        put_granted(&mut output, number);
        prop_assert_eq!(decode_number(&output[HEADER_BYTES..]), Ok(number));
        output.push(0);
        prop_assert_eq!(decode_number(&output[HEADER_BYTES..]), Err(FrameError::Trailing));
    }
}

fn check_decoded(body: &[u8], count: u8) {
    let Ok(verbs) = decode_verbs(body, count) else {
        return;
    };
    assert_eq!(verbs.len(), count as usize);
    let mut answer_bytes = 0;
    for verb in &verbs {
        if let Verb::Write { source, .. } = verb {
            assert!(source.range().end <= body.len());
        }
        answer_bytes += verb.result_bytes();
    }
    assert!(HEADER_BYTES + answer_bytes <= FRAME_BYTES_MAX);
}

#[test]
fn lengths_are_refused_before_the_frame_is_there() {
    for bytes in [0, 1, HEADER_BYTES as u32 - 1, FRAME_BYTES_MAX as u32 + 1, u32::MAX] {
        let refused = split_frame::<RequestHeader>(&bytes.to_le_bytes());
        assert!(matches!(refused, Err(FrameError::Length { bytes: named }) if named == bytes));
    }
}

#[test]
fn more_verbs_than_a_frame_holds_take_several() {
    let buffer = buffer();
    let verbs = [Verb::Write {
        source: Slice::first(20 * 1024),
        target: RemoteAddr::new(NodeId::new(0), 0),
    }; BATCH_VERBS_MAX];
    let (output, frames) = write(&verbs, &buffer, u32::MAX);
    assert!(frames > 1);
    assert_eq!(decode_all(&output, u32::MAX).len(), verbs.len());
}

#[test]
fn an_answer_that_would_be_too_long_is_refused() {
    let verbs = [Verb::Read {
        source: RemoteAddr::new(NodeId::new(0), 0),
        target: Slice::first(8 * 1024),
    }; BATCH_VERBS_MAX];
    let mut body = Vec::new();
    for verb in &verbs {
        encode_verb(&mut body, verb, &[]);
    }
    assert_eq!(
        decode_verbs(&body, BATCH_VERBS_MAX as u8),
        Err(FrameError::AnswerLength)
    );
}

/// The longest READ or WRITE that is not cut, and the longest verb without its payload.
const PIECE_BYTES: u32 = 60 * 1024;
const VERB_BYTES: u32 = 72;

fn read_of(bytes: u32) -> Verb {
    Verb::Read {
        source: RemoteAddr::new(NodeId::new(0), 3),
        target: Slice::first(bytes),
    }
}

fn write_of(bytes: u32) -> Verb {
    Verb::Write {
        source: Slice::first(bytes),
        target: RemoteAddr::new(NodeId::new(0), 3),
    }
}

#[test]
fn a_frame_is_filled_to_the_last_byte_of_its_answer() {
    let rest = FRAME_BYTES_MAX as u32 - HEADER_BYTES as u32 - PIECE_BYTES;
    let full = [read_of(PIECE_BYTES), read_of(rest)];
    let frames = |last: u32, before: usize| {
        let verbs = [&full.repeat(before)[..], &[read_of(PIECE_BYTES), read_of(last)]].concat();
        let (output, frames) = write(&verbs, &[], 0);
        assert_eq!(decode_all(&output, 0).len(), verbs.len());
        frames
    };
    assert_eq!([frames(rest, 0), frames(rest + 1, 0)], [1, 2]);
    // Those that follow as well.
    assert_eq!([frames(rest, 1), frames(rest + 1, 1)], [2, 3]);
}

#[test]
fn a_frame_is_filled_as_long_as_any_verb_would_fit() {
    let (buffer, head) = (buffer(), 12);
    let rest = FRAME_BYTES_MAX as u32 - HEADER_BYTES as u32 - head - PIECE_BYTES - VERB_BYTES;
    let full = [write_of(PIECE_BYTES), write_of(rest)];
    let frames = |last: u32, before: usize| {
        let verbs = [&full.repeat(before)[..], &[write_of(PIECE_BYTES), write_of(last)]].concat();
        let (output, frames) = write(&verbs, &buffer, 0);
        assert_eq!(decode_all(&output, 0).len(), verbs.len());
        frames
    };
    assert_eq!([frames(rest, 0), frames(rest + 1, 0)], [1, 2]);
    assert_eq!([frames(rest, 1), frames(rest + 1, 1)], [2, 3]);
}

#[test]
fn only_what_is_longer_than_a_piece_is_cut() {
    let buffer = buffer();
    let pieces = |verb: Verb| {
        let (output, _) = write(&[verb], &buffer, 0);
        decode_all(&output, 0)
            .iter()
            .map(|(verb, _)| verb.target().1)
            .collect::<Vec<_>>()
    };
    let whole = u64::from(PIECE_BYTES);
    for verb_of in [read_of, write_of] {
        assert_eq!(pieces(verb_of(PIECE_BYTES)), [whole]);
        // They are at offset 3: the first cut is where a word ends.
        assert_eq!(pieces(verb_of(PIECE_BYTES + 1)), [whole - 3, 4]);
        assert_eq!(pieces(verb_of(2 * PIECE_BYTES - 3)), [whole - 3, whole]);
        assert_eq!(pieces(verb_of(2 * PIECE_BYTES - 2)), [whole - 3, whole, 1]);
    }
}

#[test]
fn a_frame_has_as_many_bytes_as_there_may_be() {
    for bytes in [HEADER_BYTES, FRAME_BYTES_MAX] {
        let mut input = vec![0; bytes];
        input[..4].copy_from_slice(&(bytes as u32).to_le_bytes());
        let whole = split_frame::<RequestHeader>(&input);
        assert!(matches!(whole, Ok(Framed::Whole(_, end)) if end == bytes));
        input.pop();
        assert!(matches!(split_frame::<RequestHeader>(&input), Ok(Framed::Partial)));
    }
}

#[test]
fn an_answer_is_as_long_as_a_frame_may_be() {
    let rest = FRAME_BYTES_MAX as u32 - HEADER_BYTES as u32 - PIECE_BYTES;
    let decoded = |last: u32| {
        let mut body = Vec::new();
        for verb in [read_of(PIECE_BYTES), read_of(last)] {
            encode_verb(&mut body, &verb, &[]);
        }
        decode_verbs(&body, 2).map(|verbs| verbs.len())
    };
    assert_eq!(decoded(rest), Ok(2));
    assert_eq!(decoded(rest + 1), Err(FrameError::AnswerLength));
}

#[test]
fn a_batch_has_one_verb_to_as_many_as_there_may_be() {
    let body = |count: usize| {
        let mut body = Vec::new();
        for _ in 0..count {
            encode_verb(&mut body, &read_of(8), &[]);
        }
        body
    };
    let decoded = |count: usize| decode_verbs(&body(count), count as u8).map(|verbs| verbs.len());
    for count in [1, BATCH_VERBS_MAX] {
        assert_eq!(decoded(count), Ok(count));
    }
    for count in [0, BATCH_VERBS_MAX + 1] {
        assert_eq!(decoded(count), Err(FrameError::VerbCount { count: count as u8 }));
    }
    let (output, frames) = write(&[read_of(8); BATCH_VERBS_MAX + 1], &[], 0);
    assert_eq!((frames, decode_all(&output, 0).len()), (2, BATCH_VERBS_MAX + 1));
}
