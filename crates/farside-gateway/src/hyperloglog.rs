//! HyperLogLog with the bytes of Redis: how many different elements were added, in 12 KiB at most, with a standard error of
//! 0.81 %.
//!
//! On the path: between a command and the value that it reads or makes; nothing here knows the protocol. Values go between
//! Redis and Farside in both directions, so every byte is as Redis writes it:
//!
//! - a header of 16 bytes: `HYLL`, the encoding, three bytes of zeros, the cardinality that was estimated last, as a
//!   little-endian number whose highest bit says that it is out of date;
//! - *dense*: 16,384 registers of 6 bits, the lowest bits first;
//! - *sparse*: runs of equal registers. `00nnnnnn` are 1 to 64 zeros, `01nnnnnn nnnnnnnn` 1 to 16,384 zeros, `1vvvvvnn` 1 to 4
//!   registers with the value 1 to 32. A value that has larger registers, or would be longer than 3,000 bytes, becomes dense.
//!
//! An element's hash (MurmurHash64A) chooses a register, which keeps the greatest number of zeros, plus one, that the rest of
//! a hash ended with. The estimate is Ertl's (*New cardinality estimation algorithms for HyperLogLog sketches*, 2017).

/// How many registers there are.
const REGISTERS: usize = 1 << INDEX_BITS;
/// So many bits of a hash choose the register.
const INDEX_BITS: u32 = 14;
/// The others; registers are at most one larger.
const REST_BITS: u32 = 64 - INDEX_BITS;
/// How many bits a register of the dense encoding has.
const REGISTER_BITS: usize = 6;
const MAGIC: &[u8] = b"HYLL";
const HEADER_BYTES: usize = 16;
const DENSE_BYTES: usize = HEADER_BYTES + REGISTERS * REGISTER_BITS / 8;
/// A longer sparse value becomes dense: the default of Redis's `hll-sparse-max-bytes`.
const SPARSE_BYTES_MAX: usize = 3000;
/// Where the encoding and the cardinality stand.
const ENCODING: usize = 4;
const DENSE: u8 = 0;
const SPARSE: u8 = 1;
const CARDINALITY: usize = 8;
/// In the last byte of the cardinality.
const IS_OUT_OF_DATE: u8 = 0x80;
const HASH_SEED: u64 = 0xadc8_3b19;
/// A half over the logarithm of 2.
const ALPHA: f64 = 0.721_347_520_444_481_7;

/// The longest runs that one opcode stands for, and the largest register.
const ZEROS_MAX: usize = 64;
const SAME_MAX: usize = 4;
const SPARSE_REGISTER_MAX: u8 = 32;

/// Why a value is not counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flaw {
    /// It has another header or another length.
    NotOne,
    /// Its runs are not those of all registers.
    Corrupt,
}

/// A value to which nothing was added.
pub(crate) fn empty() -> Vec<u8> {
    let mut value = [MAGIC, &[SPARSE], &[0; HEADER_BYTES - ENCODING - 1]].concat();
    push_zeros(&mut value, REGISTERS);
    value
}

/// Whether a value is dense.
///
/// # Errors
/// If it is none of these values.
pub(crate) fn is_dense(value: &[u8]) -> Result<bool, Flaw> {
    if value.len() < HEADER_BYTES || !value.starts_with(MAGIC) {
        return Err(Flaw::NotOne);
    }
    match value[ENCODING] {
        DENSE if value.len() == DENSE_BYTES => Ok(true),
        SPARSE => Ok(false),
        _ => Err(Flaw::NotOne),
    }
}

/// The cardinality that a value has in its header, if it is up to date.
pub(crate) fn known_count(value: &[u8]) -> Result<Option<u64>, Flaw> {
    is_dense(value)?;
    let count = value[CARDINALITY..HEADER_BYTES].try_into().expect("eight bytes");
    let is_known = value[HEADER_BYTES - 1] & IS_OUT_OF_DATE == 0;
    Ok(is_known.then(|| u64::from_le_bytes(count)))
}

/// Notes the cardinality in the header.
///
/// # Panics
/// If it is none of these values; likewise for the function below.
pub(crate) fn set_count(value: &mut [u8], count: u64) {
    value[CARDINALITY..HEADER_BYTES].copy_from_slice(&count.to_le_bytes());
}

/// Notes that registers have changed.
pub(crate) fn forget_count(value: &mut [u8]) {
    value[HEADER_BYTES - 1] |= IS_OUT_OF_DATE;
}

/// Adds an element. Returns whether a register has changed; [`forget_count`] is left to the caller.
pub(crate) fn add(value: &mut Vec<u8>, element: &[u8]) -> Result<bool, Flaw> {
    let hash = murmur_hash(element);
    let index = hash as usize % REGISTERS;
    let zeros = (hash >> INDEX_BITS | 1 << REST_BITS).trailing_zeros();
    raise(value, index, zeros as u8 + 1)
}

/// Makes a register at least so large; returns whether it was smaller.
fn raise(value: &mut Vec<u8>, index: usize, to: u8) -> Result<bool, Flaw> {
    if !is_dense(value)? {
        if let Some(is_raised) = raise_sparse(value, index, to)? {
            return Ok(is_raised);
        }
        make_dense(value)?;
    }
    let is_smaller = dense_register(value, index) < to;
    if is_smaller {
        set_dense_register(value, index, to);
    }
    Ok(is_smaller)
}

fn dense_register(value: &[u8], index: usize) -> u8 {
    let (byte, shift) = dense_place(index);
    let next = value.get(byte + 1).copied().unwrap_or(0);
    (u16::from_le_bytes([value[byte], next]) >> shift) as u8 & 0x3f
}

fn set_dense_register(value: &mut [u8], index: usize, register: u8) {
    let (byte, shift) = dense_place(index);
    let wide = |byte: u8| u16::from(byte) << shift;
    let (clear, [low, high]) = (!wide(0x3f), wide(register).to_le_bytes());
    let [clear_low, clear_high] = clear.to_le_bytes();
    value[byte] = value[byte] & clear_low | low;
    if let Some(next) = value.get_mut(byte + 1) {
        *next = *next & clear_high | high;
    }
}

/// The byte in which a dense register begins, and its lowest bit in it.
fn dense_place(index: usize) -> (usize, usize) {
    let bit = index * REGISTER_BITS;
    (HEADER_BYTES + bit / 8, bit % 8)
}

/// Registers that are equal and stand one behind the other, as an opcode of the sparse encoding has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    register: u8,
    length: usize,
    /// How many bytes the opcode has.
    bytes: usize,
}

/// The run whose opcode stands here.
fn run_at(value: &[u8], at: usize) -> Run {
    let byte = value[at];
    let (register, length, bytes) = if byte & 0x80 != 0 {
        ((byte >> 2 & 0x1f) + 1, usize::from(byte & 3) + 1, 1)
    } else if byte & 0x40 != 0 {
        // Behind its end, Redis reads the zero with which it ends every string.
        let low = value.get(at + 1).copied().unwrap_or(0);
        (0, usize::from(u16::from_be_bytes([byte & 0x3f, low])) + 1, 2)
    } else {
        (0, usize::from(byte & 0x3f) + 1, 1)
    };
    Run {
        register,
        length,
        bytes,
    }
}

/// Appends the opcode of a run of zeros, which may be empty.
fn push_zeros(opcodes: &mut Vec<u8>, length: usize) {
    match length {
        0 => {}
        1..=ZEROS_MAX => opcodes.push(length as u8 - 1),
        _ => {
            let [high, low] = (length as u16 - 1).to_be_bytes();
            opcodes.extend([high | 0x40, low]);
        }
    }
}

/// Appends the opcode of a run of other registers, likewise.
fn push_same(opcodes: &mut Vec<u8>, register: u8, length: usize) {
    if length > 0 {
        opcodes.push(0x80 | (register - 1) << 2 | (length as u8 - 1));
    }
}

/// Calls `each` with every run and the register that it begins with.
///
/// # Errors
/// If they are not those of all registers.
fn for_each_run(value: &[u8], each: &mut dyn FnMut(usize, Run)) -> Result<(), Flaw> {
    let (mut at, mut first) = (HEADER_BYTES, 0);
    while at < value.len() {
        let run = run_at(value, at);
        if first + run.length > REGISTERS {
            return Err(Flaw::Corrupt);
        }
        each(first, run);
        at += run.bytes;
        first += run.length;
    }
    match first {
        REGISTERS => Ok(()),
        _ => Err(Flaw::Corrupt),
    }
}

/// Makes a register of a sparse value at least so large; returns whether it was smaller, or nothing if the value has to
/// become dense for it.
fn raise_sparse(value: &mut Vec<u8>, index: usize, to: u8) -> Result<Option<bool>, Flaw> {
    if to > SPARSE_REGISTER_MAX {
        return Ok(None);
    }
    let (mut at, mut first) = (HEADER_BYTES, 0);
    let mut before = None;
    let run = loop {
        if at >= value.len() {
            return Err(Flaw::Corrupt);
        }
        let run = run_at(value, at);
        if index < first + run.length {
            break run;
        }
        before = Some(at);
        at += run.bytes;
        first += run.length;
    };
    if run.register >= to {
        return Ok(Some(false));
    }
    // What stands before the register in its run, the register, and what stands behind it.
    let (ahead, behind) = (index - first, first + run.length - index - 1);
    let mut opcodes = Vec::with_capacity(5);
    let push_rest = |opcodes: &mut Vec<u8>, length| match run.register {
        0 => push_zeros(opcodes, length),
        register => push_same(opcodes, register, length),
    };
    push_rest(&mut opcodes, ahead);
    push_same(&mut opcodes, to, 1);
    push_rest(&mut opcodes, behind);
    let end = (at + run.bytes).min(value.len());
    let is_longer = opcodes.len() > run.bytes;
    if is_longer && value.len() + opcodes.len() - run.bytes > SPARSE_BYTES_MAX {
        return Ok(None);
    }
    value.splice(at..end, opcodes);
    join_runs(value, before.unwrap_or(HEADER_BYTES));
    Ok(Some(true))
}

/// Makes one of neighbouring runs with the same register, not zero, among the first five opcodes from here on.
fn join_runs(value: &mut Vec<u8>, mut at: usize) {
    for _ in 0..5 {
        if at >= value.len() {
            break;
        }
        let run = run_at(value, at);
        if run.register > 0 && at + 1 < value.len() {
            let next = run_at(value, at + 1);
            let length = run.length + next.length;
            if next.register == run.register && length <= SAME_MAX {
                let mut opcode = Vec::with_capacity(1);
                push_same(&mut opcode, run.register, length);
                value.splice(at..at + 2, opcode);
                // Perhaps with the next one as well.
                continue;
            }
        }
        at += run.bytes;
    }
}

/// Gives a sparse value the dense encoding.
pub(crate) fn make_dense(value: &mut Vec<u8>) -> Result<(), Flaw> {
    let mut dense = vec![0; DENSE_BYTES];
    dense[..HEADER_BYTES].copy_from_slice(&value[..HEADER_BYTES]);
    dense[ENCODING] = DENSE;
    for_each_run(value, &mut |first, run| {
        if run.register > 0 {
            (first..first + run.length).for_each(|index| set_dense_register(&mut dense, index, run.register));
        }
    })?;
    *value = dense;
    Ok(())
}

/// The opcodes of a sparse value in the words of Redis: `z` and `Z` are runs of zeros in one and in two bytes, `v` are a
/// register and how often it stands there.
pub(crate) fn opcodes(value: &[u8]) -> Result<String, Flaw> {
    let mut words = Vec::new();
    for_each_run(value, &mut |_, run| {
        words.push(match (run.register, run.bytes) {
            (0, 1) => format!("z:{}", run.length),
            (0, _) => format!("Z:{}", run.length),
            (register, _) => format!("v:{register},{}", run.length),
        });
    })?;
    Ok(words.join(" "))
}

/// The registers of several values together: of each, the largest.
#[derive(Debug)]
pub(crate) struct Union {
    registers: Vec<u8>,
    /// Whether one of the values is dense.
    is_dense: bool,
}

impl Union {
    pub(crate) fn new() -> Self {
        Self {
            registers: vec![0; REGISTERS],
            is_dense: false,
        }
    }

    pub(crate) fn registers(&self) -> &[u8] {
        &self.registers
    }

    /// Takes the value of a key in; a key that is not there has no elements.
    pub(crate) fn add_if_there(&mut self, value: Option<&[u8]>) -> Result<(), Flaw> {
        value.map_or(Ok(()), |value| self.add(value))
    }

    /// Takes one more value in.
    fn add(&mut self, value: &[u8]) -> Result<(), Flaw> {
        let registers = &mut self.registers;
        if is_dense(value)? {
            self.is_dense = true;
            for (index, register) in registers.iter_mut().enumerate() {
                *register = (*register).max(dense_register(value, index));
            }
            return Ok(());
        }
        for_each_run(value, &mut |first, run| {
            let same = registers[first..first + run.length].iter_mut();
            same.for_each(|register| *register = (*register).max(run.register));
        })
    }

    /// Makes the registers of a value at least as large, and notes that they have changed. It becomes dense if one of the
    /// values was.
    pub(crate) fn store(&self, value: &mut Vec<u8>) -> Result<(), Flaw> {
        if self.is_dense && !is_dense(value)? {
            make_dense(value)?;
        }
        for (index, &register) in self.registers.iter().enumerate() {
            if register > 0 {
                raise(value, index, register)?;
            }
        }
        forget_count(value);
        Ok(())
    }

    /// An estimate of how many different elements were added.
    pub(crate) fn count(&self) -> u64 {
        let mut counts = [0_u32; 1 << REGISTER_BITS];
        self.registers
            .iter()
            .for_each(|&register| counts[usize::from(register)] += 1);
        let registers = REGISTERS as f64;
        let largest = f64::from(counts[REST_BITS as usize + 1]);
        let mut sum = registers * tau((registers - largest) / registers);
        for &count in counts[1..=REST_BITS as usize].iter().rev() {
            sum += f64::from(count);
            sum *= 0.5;
        }
        sum += registers * sigma(f64::from(counts[0]) / registers);
        (ALPHA * registers * registers / sum).round() as u64
    }
}

/// The estimate for one value.
pub(crate) fn count(value: &[u8]) -> Result<u64, Flaw> {
    let mut union = Union::new();
    union.add(value)?;
    Ok(union.count())
}

fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut sum) = (1.0, x);
    loop {
        x *= x;
        let before = sum;
        sum += x * y;
        y += y;
        if sum == before {
            return sum;
        }
    }
}

fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut sum) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = sum;
        y *= 0.5;
        sum -= (1.0 - x) * (1.0 - x) * y;
        if sum == before {
            return sum / 3.0;
        }
    }
}

/// MurmurHash64A.
fn murmur_hash(bytes: &[u8]) -> u64 {
    const MULTIPLIER: u64 = 0xc6a4_a793_5bd1_e995;
    const SHIFT: u32 = 47;
    let mut hash = HASH_SEED ^ (bytes.len() as u64).wrapping_mul(MULTIPLIER);
    let (words, rest) = bytes.as_chunks::<8>();
    for &word in words {
        let mut word = u64::from_le_bytes(word).wrapping_mul(MULTIPLIER);
        word ^= word >> SHIFT;
        hash = (hash ^ word.wrapping_mul(MULTIPLIER)).wrapping_mul(MULTIPLIER);
    }
    if !rest.is_empty() {
        let mut word = [0; 8];
        word[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(MULTIPLIER);
    }
    hash ^= hash >> SHIFT;
    hash = hash.wrapping_mul(MULTIPLIER);
    hash ^ hash >> SHIFT
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A register of a value, whatever its encoding.
    fn registers(value: &[u8]) -> Vec<u8> {
        let mut union = Union::new();
        union.add(value).expect("it is one");
        union.registers
    }

    fn with(elements: impl IntoIterator<Item = u64>) -> Vec<u8> {
        let mut value = empty();
        for element in elements {
            add(&mut value, element.to_string().as_bytes()).expect("it is one");
        }
        value
    }

    fn hex(value: &[u8]) -> String {
        value.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn the_bytes_are_those_of_redis() {
        assert_eq!(hex(&empty()), "48594c4c0100000000000000000000007fff");
        assert_eq!(opcodes(&empty()).as_deref(), Ok("Z:16384"));
        // GET after PFADD k a b c, of redis-server 7.0.15.
        let mut value = empty();
        for element in ["a", "b", "c"] {
            assert_eq!(add(&mut value, element.as_bytes()), Ok(true));
        }
        forget_count(&mut value);
        assert_eq!(hex(&value), REDIS_ABC);
        assert_eq!((known_count(&value), count(&value)), (Ok(None), Ok(3)));
        set_count(&mut value, 3);
        assert_eq!(known_count(&value), Ok(Some(3)));
        assert_eq!(add(&mut value, b"a"), Ok(false));
    }

    const REDIS_ABC: &str = "48594c4c01000000000000000000008060f38050b1844bfb80425a";

    #[test]
    fn estimates_are_within_the_error() {
        for elements in [0, 1, 10, 1000, 20_000, 200_000] {
            let found = count(&with(0..elements)).expect("it is one");
            // Five standard errors.
            let off = found.abs_diff(elements) as f64 / elements.max(1) as f64;
            assert!(off < 0.04, "{elements}: {found}");
        }
    }

    #[test]
    fn a_value_becomes_dense_when_it_is_long() {
        let mut value = empty();
        let mut elements = 0_u64..;
        while is_dense(&value) == Ok(false) {
            assert!(value.len() <= SPARSE_BYTES_MAX);
            let element = elements.next().expect("there is no end");
            add(&mut value, element.to_string().as_bytes()).expect("it is one");
        }
        assert_eq!(value.len(), DENSE_BYTES);
        assert_eq!(registers(&value), registers(&with(0..elements.start)));
        assert!((1000..5000).contains(&elements.start), "{}", elements.start);
    }

    #[test]
    fn a_large_register_makes_it_dense() {
        for (register, dense) in [(SPARSE_REGISTER_MAX, false), (SPARSE_REGISTER_MAX + 1, true)] {
            let mut value = with(0..10);
            let before = registers(&value);
            assert_eq!(raise(&mut value, 7, register), Ok(true));
            assert_eq!(is_dense(&value), Ok(dense));
            let expected: Vec<u8> = (0..REGISTERS)
                .map(|index| if index == 7 { register } else { before[index] })
                .collect();
            assert_eq!(registers(&value), expected);
        }
    }

    #[test]
    fn other_values_are_refused() {
        let mut short = empty();
        short.truncate(HEADER_BYTES - 1);
        let mut unknown = empty();
        unknown[ENCODING] = 2;
        let mut dense = empty();
        dense[ENCODING] = DENSE;
        for value in [b"".to_vec(), b"HYLX234567890123456".to_vec(), short, unknown, dense] {
            assert_eq!(
                (known_count(&value), count(&value)),
                (Err(Flaw::NotOne), Err(Flaw::NotOne))
            );
            assert_eq!(add(&mut value.clone(), b"x"), Err(Flaw::NotOne));
        }
        for opcodes in [&[][..], &[0], &[0x7f], &[0x7f, 0xff, 0], &[0x7f, 0xfe, 0x81]] {
            let mut value = empty();
            value.truncate(HEADER_BYTES);
            value.extend_from_slice(opcodes);
            assert_eq!(count(&value), Err(Flaw::Corrupt), "{opcodes:?}");
        }
    }

    proptest! {
        #[test]
        fn sparse_and_dense_are_the_same(raises in proptest::collection::vec((0..60_usize, 1..=32_u8), 0..200)) {
            let (mut sparse, mut dense) = (empty(), empty());
            make_dense(&mut dense).expect("it is one");
            let mut expected = vec![0; REGISTERS];
            for (index, to) in raises {
                // Some stand together, some far apart.
                let index = if index < 40 { index } else { index * 270 };
                let is_smaller = expected[index] < to;
                expected[index] = expected[index].max(to);
                prop_assert_eq!(raise(&mut sparse, index, to), Ok(is_smaller));
                prop_assert_eq!(raise(&mut dense, index, to), Ok(is_smaller));
            }
            prop_assert_eq!(is_dense(&sparse), Ok(false));
            prop_assert_eq!(&registers(&sparse), &expected);
            prop_assert_eq!(&registers(&dense), &expected);
            prop_assert_eq!(count(&sparse), count(&dense));
            make_dense(&mut sparse).expect("it is one");
            prop_assert_eq!(sparse, dense);
        }

        #[test]
        fn a_union_has_the_elements_of_all(
            parts in proptest::collection::vec((0..2000_u64, 0..1000_u64), 1..4),
        ) {
            let mut union = Union::new();
            for &(start, count) in &parts {
                union.add(&with(start..start + count)).expect("it is one");
            }
            let all = with(parts.iter().flat_map(|&(start, count)| start..start + count));
            prop_assert_eq!(&union.registers, &registers(&all));
            let mut stored = with(0..1);
            union.store(&mut stored).expect("it is one");
            prop_assert_eq!(known_count(&stored), Ok(None));
            let mut with_first = all;
            add(&mut with_first, b"0").expect("it is one");
            prop_assert_eq!(registers(&stored), registers(&with_first));
        }

        #[test]
        fn any_bytes_are_refused_or_counted(
            encoding in 0..3_u8,
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            element: u64,
        ) {
            let mut value = empty();
            value[ENCODING] = encoding;
            value.truncate(HEADER_BYTES);
            value.extend(bytes);
            let counted = count(&value);
            if add(&mut value, &element.to_le_bytes()) == Ok(true) && counted.is_ok() {
                prop_assert!(count(&value).is_ok());
            }
        }
    }
}
