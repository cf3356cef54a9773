//! Bytes of a Redis client: guard and decoder never panic, and make the same commands of them
//! however they are cut into pieces.
//!
//! Input: one byte of flags, one byte by which the cuts are drawn, then what the client sends.

#![no_main]

use farside_gateway::fuzzing::requests;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let [flags, seed, bytes @ ..] = input else { return };
    let is_stranger = flags & 1 == 1;
    let whole = requests(bytes, &[], is_stranger);
    let mut cuts = Vec::new();
    // A linear congruential generator: cuts of 1 to 64 bytes, or of one byte each.
    let (mut at, mut draw) = (0, u32::from(*seed));
    while at < bytes.len() {
        draw = draw.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        at += if *seed == 0 { 1 } else { 1 + (draw >> 26) as usize };
        cuts.push(at);
    }
    assert_eq!(requests(bytes, &cuts, is_stranger), whole, "cut at {cuts:?}");
    let arguments = whole.requests.iter().flatten();
    assert!(
        arguments.map(Vec::len).sum::<usize>() <= bytes.len(),
        "arguments are parts of the input"
    );
});
