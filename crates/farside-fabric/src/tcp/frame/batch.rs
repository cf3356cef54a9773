//! Verbs in frames: how a post is put into them, and taken out again.
//!
//! On the path: [`RequestWriter`] at the client, [`decode_verbs`] at the node.
//!
//! A verb is a [`VerbHead`], its operands, and for a WRITE the bytes. A long READ or WRITE becomes
//! several, cut at addresses that are multiples of 8, so that no word is torn that would not be.

use arrayvec::ArrayVec;
use zerocopy::byteorder::little_endian::{U16, U32, U64, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{FRAME_BYTES_MAX, Fields, FrameError, HEADER_BYTES, RequestHeader, RequestKind};
use crate::addr::{NodeId, OFFSET_BITS, RemoteAddr};
use crate::batch::BATCH_VERBS_MAX;
use crate::verb::{MaskedAdd, MaskedCas, Slice, Verb};

/// The most bytes that one READ or WRITE moves on the wire.
const PIECE_BYTES_MAX: usize = 60 * 1024;
/// The longest verb without its payload.
const VERB_BYTES_MAX: usize = size_of::<VerbHead>() + size_of::<WideSwapOperands>();

const _: () = {
    // A frame holds the longest piece, and any batch that has no payload.
    assert!(HEADER_BYTES + VERB_BYTES_MAX + PIECE_BYTES_MAX <= FRAME_BYTES_MAX);
    assert!(HEADER_BYTES + BATCH_VERBS_MAX * VERB_BYTES_MAX <= FRAME_BYTES_MAX);
};

codes! {
    VerbCode, "verb" {
        Read = 1,
        Write = 2,
        ReadWord = 3,
        WriteWord = 4,
        CompareSwap = 5,
        FetchAdd = 6,
        MaskedCompareSwap = 7,
        MaskedFetchAdd = 8,
        WideCompareSwap = 9,
        WideFetchAdd = 10,
    }
}

/// Opens every verb. The node is the one that the connection leads to.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct VerbHead {
    offset_low: U32,
    offset_high: U16,
    code: u8,
    reserved: u8,
}

/// Operands of READ, and of WRITE, where as many bytes of payload follow.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct CopyOperands {
    bytes: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct WordOperand {
    value: U64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct CompareSwapOperands {
    compare: U64,
    swap: U64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct MaskedSwapOperands {
    compare: U64,
    compare_mask: U64,
    swap: U64,
    swap_mask: U64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct MaskedAddOperands {
    add: U64,
    boundary: U64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct WideSwapOperands {
    compare: U128,
    compare_mask: U128,
    swap: U128,
    swap_mask: U128,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct WideAddOperands {
    add: U128,
    boundary: U128,
}

/// Puts the verbs of one post into frames, at the end of a connection's output.
///
/// Invariant: `output[start..]` is one frame with `verb_count` verbs, whole but for its header, and
/// its answer has `answer_bytes` bytes.
pub(in crate::tcp) struct RequestWriter<'a> {
    output: &'a mut Vec<u8>,
    request: u32,
    behind: u16,
    start: usize,
    verb_count: u8,
    answer_bytes: usize,
    frames: u32,
}

impl<'a> RequestWriter<'a> {
    /// A writer whose first frame has number `request`, and comes so many requests behind the first without an answer.
    #[inline]
    pub(in crate::tcp) fn new(output: &'a mut Vec<u8>, request: u32, behind: u16) -> Self {
        let start = output.len();
        output.extend_from_slice(&[0; HEADER_BYTES]);
        Self {
            output,
            request,
            behind,
            start,
            verb_count: 0,
            answer_bytes: HEADER_BYTES,
            frames: 0,
        }
    }

    /// Adds a verb. `buffer` is what its slice refers to.
    #[inline]
    pub(in crate::tcp) fn push(&mut self, verb: &Verb, buffer: &[u8]) {
        let copies_much = verb.local().is_some_and(|slice| slice.bytes as usize > PIECE_BYTES_MAX);
        if copies_much {
            self.push_pieces(verb, buffer);
        } else {
            self.push_piece(verb, buffer);
        }
    }

    #[cold]
    fn push_pieces(&mut self, verb: &Verb, buffer: &[u8]) {
        let (addr, _) = verb.target();
        let whole = verb.local().expect("only READ and WRITE are cut");
        let mut done = 0;
        while done < whole.bytes {
            // The cut is at a word, which must not tear.
            let misfit = (addr.offset() + u64::from(done)) as usize & 7;
            let bytes = (whole.bytes - done).min((PIECE_BYTES_MAX - misfit) as u32);
            let (addr, slice) = (addr.plus(done.into()), Slice::new(whole.at + done, bytes));
            let piece = match verb {
                Verb::Read { .. } => Verb::Read {
                    source: addr,
                    target: slice,
                },
                _ => Verb::Write {
                    source: slice,
                    target: addr,
                },
            };
            self.push_piece(&piece, buffer);
            done += bytes;
        }
    }

    #[inline]
    fn push_piece(&mut self, verb: &Verb, buffer: &[u8]) {
        let payload = match verb {
            Verb::Write { source, .. } => source.bytes as usize,
            _ => 0,
        };
        let request_bytes = self.output.len() - self.start + VERB_BYTES_MAX + payload;
        let answer_bytes = self.answer_bytes + verb.result_bytes();
        let is_full = self.verb_count as usize == BATCH_VERBS_MAX;
        if is_full || request_bytes > FRAME_BYTES_MAX || answer_bytes > FRAME_BYTES_MAX {
            self.end_frame();
            self.start = self.output.len();
            self.output.extend_from_slice(&[0; HEADER_BYTES]);
            self.verb_count = 0;
            self.answer_bytes = HEADER_BYTES;
        }
        self.verb_count += 1;
        self.answer_bytes += verb.result_bytes();
        encode_verb(self.output, verb, buffer);
    }

    fn end_frame(&mut self) {
        let header = RequestHeader {
            bytes: U32::new((self.output.len() - self.start) as u32),
            request: U32::new(self.request.wrapping_add(self.frames)),
            kind: RequestKind::Batch as u8,
            verb_count: self.verb_count,
            // Fewer than fit are ever without an answer.
            behind: U16::new(self.behind.saturating_add(self.frames as u16)),
        };
        self.output[self.start..self.start + HEADER_BYTES].copy_from_slice(header.as_bytes());
        self.frames += 1;
    }

    /// Ends the last frame and returns how many there are.
    #[inline]
    pub(in crate::tcp) fn finish(mut self) -> u32 {
        self.end_frame();
        self.frames
    }
}

#[inline]
pub(super) fn encode_verb(output: &mut Vec<u8>, verb: &Verb, buffer: &[u8]) {
    let offset = verb.target().0.offset();
    let head = |code: VerbCode| VerbHead {
        offset_low: U32::new(offset as u32),
        offset_high: U16::new((offset >> 32) as u16),
        code: code as u8,
        reserved: 0,
    };
    let mut put = |code: VerbCode, operands: &[u8]| {
        output.extend_from_slice(head(code).as_bytes());
        output.extend_from_slice(operands);
    };
    match *verb {
        Verb::Read { target, .. } => put(VerbCode::Read, U32::new(target.bytes).as_bytes()),
        Verb::Write { source, .. } => {
            put(VerbCode::Write, U32::new(source.bytes).as_bytes());
            output.extend_from_slice(&buffer[source.range()]);
        }
        Verb::ReadWord { .. } => put(VerbCode::ReadWord, &[]),
        Verb::WriteWord { value, .. } => put(VerbCode::WriteWord, U64::new(value).as_bytes()),
        Verb::CompareSwap { compare, swap, .. } => {
            let operands = CompareSwapOperands {
                compare: U64::new(compare),
                swap: U64::new(swap),
            };
            put(VerbCode::CompareSwap, operands.as_bytes());
        }
        Verb::FetchAdd { add, .. } => put(VerbCode::FetchAdd, U64::new(add).as_bytes()),
        Verb::MaskedCompareSwap { operands, .. } => {
            let operands = MaskedSwapOperands {
                compare: U64::new(operands.compare),
                compare_mask: U64::new(operands.compare_mask),
                swap: U64::new(operands.swap),
                swap_mask: U64::new(operands.swap_mask),
            };
            put(VerbCode::MaskedCompareSwap, operands.as_bytes());
        }
        Verb::MaskedFetchAdd { operands, .. } => {
            let operands = MaskedAddOperands {
                add: U64::new(operands.add),
                boundary: U64::new(operands.boundary),
            };
            put(VerbCode::MaskedFetchAdd, operands.as_bytes());
        }
        Verb::WideCompareSwap { operands, .. } => {
            let operands = WideSwapOperands {
                compare: U128::new(operands.compare),
                compare_mask: U128::new(operands.compare_mask),
                swap: U128::new(operands.swap),
                swap_mask: U128::new(operands.swap_mask),
            };
            put(VerbCode::WideCompareSwap, operands.as_bytes());
        }
        Verb::WideFetchAdd { operands, .. } => {
            let operands = WideAddOperands {
                add: U128::new(operands.add),
                boundary: U128::new(operands.boundary),
            };
            put(VerbCode::WideFetchAdd, operands.as_bytes());
        }
    }
}

/// The verbs of a frame. WRITEs take their bytes from `body`; READs put theirs into the answer's
/// body. Addresses name node 0: bounds and alignment are the caller's to check.
pub(in crate::tcp) fn decode_verbs(body: &[u8], verb_count: u8) -> Result<ArrayVec<Verb, BATCH_VERBS_MAX>, FrameError> {
    if verb_count == 0 || verb_count as usize > BATCH_VERBS_MAX {
        return Err(FrameError::VerbCount { count: verb_count });
    }
    let mut verbs = ArrayVec::new();
    let mut fields = Fields { bytes: body, at: 0 };
    let mut answer_bytes = 0;
    for _ in 0..verb_count {
        let verb = decode_verb(&mut fields, answer_bytes)?;
        answer_bytes += verb.result_bytes();
        if HEADER_BYTES + answer_bytes > FRAME_BYTES_MAX {
            return Err(FrameError::AnswerLength);
        }
        verbs.push(verb);
    }
    fields.end()?;
    Ok(verbs)
}

#[inline]
fn decode_verb(fields: &mut Fields<'_>, answer_at: usize) -> Result<Verb, FrameError> {
    let head: VerbHead = fields.take("verb")?;
    let offset = u64::from(head.offset_high.get()) << 32 | u64::from(head.offset_low.get());
    const { assert!(OFFSET_BITS == 48, "offset_low and offset_high together") };
    let addr = RemoteAddr::new(NodeId::new(0), offset);
    let verb = match VerbCode::from_code(head.code)? {
        VerbCode::Read => {
            let operands: CopyOperands = fields.take("READ")?;
            // The caller checks that `answer_at` stays below the longest frame.
            let target = Slice::new(answer_at as u32, operands.bytes.get());
            Verb::Read { source: addr, target }
        }
        VerbCode::Write => {
            let operands: CopyOperands = fields.take("WRITE")?;
            let source = Slice::new(fields.at as u32, operands.bytes.get());
            fields.take_bytes(source.bytes as usize, "WRITE")?;
            Verb::Write { source, target: addr }
        }
        VerbCode::ReadWord => Verb::ReadWord { source: addr },
        VerbCode::WriteWord => {
            let operand: WordOperand = fields.take("WRITE of a word")?;
            Verb::WriteWord {
                target: addr,
                value: operand.value.get(),
            }
        }
        VerbCode::CompareSwap => {
            let operands: CompareSwapOperands = fields.take("compare-and-swap")?;
            Verb::CompareSwap {
                target: addr,
                compare: operands.compare.get(),
                swap: operands.swap.get(),
            }
        }
        VerbCode::FetchAdd => {
            let operand: WordOperand = fields.take("fetch-and-add")?;
            Verb::FetchAdd {
                target: addr,
                add: operand.value.get(),
            }
        }
        VerbCode::MaskedCompareSwap => {
            let fields: MaskedSwapOperands = fields.take("masked compare-and-swap")?;
            let operands = MaskedCas {
                compare: fields.compare.get(),
                compare_mask: fields.compare_mask.get(),
                swap: fields.swap.get(),
                swap_mask: fields.swap_mask.get(),
            };
            Verb::MaskedCompareSwap { target: addr, operands }
        }
        VerbCode::MaskedFetchAdd => {
            let fields: MaskedAddOperands = fields.take("masked fetch-and-add")?;
            let operands = MaskedAdd {
                add: fields.add.get(),
                boundary: fields.boundary.get(),
            };
            Verb::MaskedFetchAdd { target: addr, operands }
        }
        VerbCode::WideCompareSwap => {
            let fields: WideSwapOperands = fields.take("16-byte compare-and-swap")?;
            let operands = MaskedCas {
                compare: fields.compare.get(),
                compare_mask: fields.compare_mask.get(),
                swap: fields.swap.get(),
                swap_mask: fields.swap_mask.get(),
            };
            Verb::WideCompareSwap { target: addr, operands }
        }
        VerbCode::WideFetchAdd => {
            let fields: WideAddOperands = fields.take("16-byte fetch-and-add")?;
            let operands = MaskedAdd {
                add: fields.add.get(),
                boundary: fields.boundary.get(),
            };
            Verb::WideFetchAdd { target: addr, operands }
        }
    };
    Ok(verb)
}
