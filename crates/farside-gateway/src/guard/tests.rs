//! Every way in which a command can arrive, and not arrive.

use super::*;
use proptest::prelude::*;
use redis_protocol::resp2::decode::decode_range;
use redis_protocol::resp2::types::RangeFrame;

fn framed(input: &[u8]) -> Result<Framed, ProtocolError> {
    Guard::default().next(input, false)
}

#[test]
fn whole_commands_are_found() {
    let ping = b"*1\r\n$4\r\nPING\r\n";
    assert_eq!(framed(ping), Ok(Framed::Array { bytes: 14 }));
    assert_eq!(framed(b"PING\r\nPING"), Ok(Framed::Line { line: 4, bytes: 6 }));
    assert_eq!(framed(b"PING\n"), Ok(Framed::Line { line: 4, bytes: 5 }));
    assert_eq!(framed(b"*0\r\n"), Ok(Framed::Nothing { bytes: 4 }));
    assert_eq!(framed(b"*-1\r\n"), Ok(Framed::Nothing { bytes: 5 }));
    assert_eq!(framed(b"*1\r\n$0\r\n\r\n"), Ok(Framed::Array { bytes: 10 }));
}

#[test]
fn announcements_beyond_the_limits_are_refused_at_once() {
    assert_eq!(framed(b"*2\r\n$600000000\r\n"), Err(ProtocolError::Length));
    assert_eq!(framed(b"*1000000000\r\n"), Err(ProtocolError::Count));
    assert_eq!(framed(b"*1048577\r\n"), Err(ProtocolError::Count));
    assert_eq!(framed(b"*1\r\n$-1\r\n"), Err(ProtocolError::Length));
    assert_eq!(framed(b"*x\r\n"), Err(ProtocolError::Count));
    assert_eq!(framed(b"*1\r\n:1\r\n"), Err(ProtocolError::Dollar { got: b':' }));
    assert_eq!(framed(b"*1\r\n*1\r\n"), Err(ProtocolError::Dollar { got: b'*' }));
    assert_eq!(framed(b"*1\r\n$4\r\nPINGS\r"), Err(ProtocolError::Unended));
    assert_eq!(framed(b"*1\r\n$4\r\nPING\r\r"), Err(ProtocolError::Unended));
    let endless = vec![b'1'; LINE_BYTES_MAX + 2];
    assert_eq!(framed(&endless), Err(ProtocolError::InlineTooLong));
    let mut count = endless.clone();
    count[0] = b'*';
    assert_eq!(framed(&count), Err(ProtocolError::CountTooLong));
    let length = [b"*1\r\n$".as_slice(), &endless].concat();
    assert_eq!(framed(&length), Err(ProtocolError::LengthTooLong));
}

#[test]
fn whole_command_is_bounded() {
    let bulk = VALUE_BYTES_MAX;
    let mut input = b"*9\r\n".to_vec();
    let mut guard = Guard::default();
    for _ in 0..4 {
        assert_eq!(guard.next(&input, false), Ok(Framed::Incomplete));
        input.extend_from_slice(format!("${bulk}\r\n").as_bytes());
        input.resize(input.len() + bulk, b'x');
        input.extend_from_slice(b"\r\n");
    }
    assert_eq!(guard.next(&input, false), Err(ProtocolError::Length));
}

#[test]
fn strangers_get_less() {
    let mut guard = Guard::default();
    assert_eq!(guard.next(b"*11\r\n", true), Err(ProtocolError::StrangerCount));
    assert_eq!(
        Guard::default().next(b"*1\r\n$16385\r\n", true),
        Err(ProtocolError::StrangerLength)
    );
}

/// A command of one argument that is announced to be so long.
fn announced(length: usize) -> Vec<u8> {
    format!("*1\r\n${length}\r\n").into_bytes()
}

#[test]
fn each_limit_is_the_last_that_passes() {
    let refused = |input: &[u8], is_stranger| Guard::default().next(input, is_stranger).err();
    let count = |count: usize| format!("*{count}\r\n").into_bytes();
    assert_eq!(refused(&count(BULK_COUNT_MAX), false), None);
    assert_eq!(refused(&count(BULK_COUNT_MAX + 1), false), Some(ProtocolError::Count));
    assert_eq!(refused(&count(STRANGER_BULK_COUNT_MAX), true), None);
    assert_eq!(
        refused(&count(STRANGER_BULK_COUNT_MAX + 1), true),
        Some(ProtocolError::StrangerCount)
    );
    assert_eq!(refused(&announced(BULK_BYTES_MAX), false), None);
    assert_eq!(
        refused(&announced(BULK_BYTES_MAX + 1), false),
        Some(ProtocolError::Length)
    );
    assert_eq!(refused(&announced(STRANGER_BULK_BYTES_MAX), true), None);
    assert_eq!(
        refused(&announced(STRANGER_BULK_BYTES_MAX + 1), true),
        Some(ProtocolError::StrangerLength)
    );
}

#[test]
fn the_longest_lines_pass() {
    let line = |bytes: usize| [vec![b'x'; bytes], b"\n".to_vec()].concat();
    let whole = Framed::Line {
        line: LINE_BYTES_MAX,
        bytes: LINE_BYTES_MAX + 1,
    };
    assert_eq!(framed(&line(LINE_BYTES_MAX)), Ok(whole));
    assert_eq!(framed(&line(LINE_BYTES_MAX + 1)), Err(ProtocolError::InlineTooLong));
    assert_eq!(framed(&vec![b'x'; LINE_BYTES_MAX]), Ok(Framed::Incomplete));
    assert_eq!(
        framed(&vec![b'x'; LINE_BYTES_MAX + 1]),
        Err(ProtocolError::InlineTooLong)
    );
    // The kind is no part of the line of a head.
    let head = |bytes: usize| [b"*".to_vec(), vec![b'1'; bytes]].concat();
    assert_eq!(framed(&head(LINE_BYTES_MAX - 1)), Ok(Framed::Incomplete));
    assert_eq!(framed(&head(LINE_BYTES_MAX)), Err(ProtocolError::CountTooLong));
    let ended = |bytes: usize| [head(bytes), b"\r\n".to_vec()].concat();
    assert_eq!(framed(&ended(LINE_BYTES_MAX - 1)), Err(ProtocolError::Count));
    assert_eq!(framed(&ended(LINE_BYTES_MAX)), Err(ProtocolError::CountTooLong));
}

#[test]
fn the_longest_command_passes() {
    // The last argument ends with the last byte, or one beyond.
    for (beyond, expected) in [(0, None), (1, Some(ProtocolError::Length))] {
        let mut input = b"*9\r\n".to_vec();
        let mut guard = Guard::default();
        let bulk = VALUE_BYTES_MAX;
        loop {
            let announced = format!("${bulk}\r\n");
            if input.len() + announced.len() + bulk + 2 > COMMAND_BYTES_MAX {
                break;
            }
            input.extend_from_slice(announced.as_bytes());
            input.resize(input.len() + bulk, b'x');
            input.extend_from_slice(b"\r\n");
            assert_eq!(guard.next(&input, false), Ok(Framed::Incomplete));
        }
        let left = COMMAND_BYTES_MAX - input.len();
        // `$`, the digits, and two line ends.
        let digits = left.to_string().len();
        let length = left - 1 - digits - 4 + beyond;
        assert_eq!(length.to_string().len(), digits);
        input.extend_from_slice(format!("${length}\r\n").as_bytes());
        assert_eq!(guard.next(&input, false).err(), expected);
    }
}

#[test]
fn what_was_seen_is_not_looked_at_again() {
    let mut guard = Guard::default();
    assert_eq!(guard.next(b"PIN", false), Ok(Framed::Incomplete));
    assert_eq!(guard.at, 3);
    assert_eq!(guard.next(b"PING\r\n", false), Ok(Framed::Line { line: 4, bytes: 6 }));
    assert_eq!(
        (guard.at, guard.left, guard.wanted),
        (0, 0, 0),
        "the next command is a new one"
    );
    assert_eq!(
        guard.next(b"*2\r\n$3\r\nGET\r\n$5\r\nab", false),
        Ok(Framed::Incomplete)
    );
    assert_eq!((guard.at, guard.left, guard.wanted), (13, 1, 24));
    let whole = b"*2\r\n$3\r\nGET\r\n$5\r\nabcde\r\n";
    assert_eq!(guard.next(whole, false), Ok(Framed::Array { bytes: whole.len() }));
    assert_eq!((guard.at, guard.left, guard.wanted), (0, 0, 0));
}

/// A command as clients send it.
fn array(arguments: &[Vec<u8>]) -> Vec<u8> {
    let mut input = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        input.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        input.extend_from_slice(argument);
        input.extend_from_slice(b"\r\n");
    }
    input
}

proptest! {
    /// However a command is cut into pieces, it is found where it ends, and not before.
    #[test]
    fn pieces_make_no_difference(
        arguments in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 1..6),
        cuts in proptest::collection::vec(1_usize..12, 1..80),
    ) {
        let input = array(&arguments);
        let mut guard = Guard::default();
        let mut at = 0;
        for cut in cuts {
            at += cut;
            if at >= input.len() {
                break;
            }
            prop_assert_eq!(guard.next(&input[..at], false), Ok(Framed::Incomplete));
        }
        prop_assert_eq!(guard.next(&input, false), Ok(Framed::Array { bytes: input.len() }));
    }

    /// The codec takes a command apart as the guard does.
    #[test]
    fn the_codec_says_the_same(arguments in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 1..6)) {
        let input = array(&arguments);
        let mut guard = Guard::default();
        prop_assert_eq!(guard.next(&input, false), Ok(Framed::Array { bytes: input.len() }));
        let frames = guard.places().iter().map(|&(start, end)| RangeFrame::BulkString((start as usize, end as usize)));
        let decoded = decode_range(&input).expect("a whole command").expect("a whole command");
        prop_assert_eq!(decoded, (RangeFrame::Array(frames.collect()), input.len()));
    }

    /// Whatever arrives, the guard names no more bytes than there are.
    #[test]
    fn garbage_is_bounded(input in proptest::collection::vec(prop_oneof![
        any::<u8>(), Just(b'*'), Just(b'$'), Just(b'\r'), Just(b'\n'), b'0'..=b'9'], 0..200)) {
        match framed(&input) {
            Ok(Framed::Nothing { bytes } | Framed::Array { bytes } | Framed::Line { bytes, .. }) => {
                prop_assert!(0 < bytes && bytes <= input.len());
            }
            Ok(Framed::Incomplete) | Err(_) => {}
        }
    }
}
