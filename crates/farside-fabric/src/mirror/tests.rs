//! What members tell each other survives the wire, and the log gives back what was put into it.

mod by_hand;
mod copying;

use proptest::prelude::*;

use super::log::Log;
use super::{MemberId, Note, Peer, Position, View};

fn peer(id: u64) -> Peer {
    Peer {
        id: MemberId(id),
        segment: id ^ 7,
        address: format!("host{id}:1"),
    }
}

fn notes(number: u64, bytes: &[u8]) -> Vec<Note> {
    let view = View {
        epoch: number,
        primary: peer(number),
        backups: vec![peer(1), peer(2)],
    };
    let (stream, epoch) = (number ^ 1, number ^ 2);
    vec![
        Note::Join {
            member: peer(number),
            stream,
            position: Some(Position { epoch: 1, last: number }),
            memory_bytes: number,
            is_blank: true,
        },
        Note::CopyBegins { stream, epoch },
        Note::Memory {
            stream,
            epoch,
            offset: number,
            bytes: bytes.to_vec(),
        },
        Note::CopyEnds {
            stream,
            epoch,
            last: number,
            clients: bytes.to_vec(),
            group: number,
        },
        Note::Append {
            stream,
            epoch,
            first: number,
            entries: bytes.to_vec(),
        },
        Note::Applied {
            stream,
            last: None,
            copied: number,
        },
        Note::Beat {
            view: view.clone(),
            sent_ns: number,
        },
        Note::Grant { sent_ns: number },
        Note::Outdated { view },
    ]
}

proptest! {
    #[test]
    fn notes_survive_the_wire_and_nothing_shorter_is_one(number: u64, bytes: Vec<u8>) {
        for note in notes(number, &bytes) {
            let mut encoded = Vec::new();
            note.encode(&mut encoded);
            prop_assert_eq!(Note::decode(&encoded), Ok(note));
            prop_assert!(Note::decode(&encoded[..encoded.len() - 1]).is_err());
            encoded.push(0);
            prop_assert!(Note::decode(&encoded).is_err());
        }
    }

    #[test]
    fn noise_is_no_reason_to_panic(bytes: Vec<u8>) {
        let _ = Note::decode(&bytes);
    }

    #[test]
    fn a_log_gives_back_its_entries(entries: Vec<Vec<u8>>, from in 0_u64..20, bytes_max in 1_usize..40) {
        let mut log = Log::after(0);
        for entry in &entries {
            log.push(entry);
        }
        let from = from.min(log.last());
        let mut taken = Vec::new();
        let to = log.after_to(from, bytes_max, &mut taken);
        prop_assert!(to > from || from == log.last(), "at least one, if there is one");
        prop_assert_eq!(taken.len() as u64, log.bytes_between(from, to));
        let expected: Vec<u8> = entries[from as usize..to as usize].concat();
        prop_assert_eq!(taken, expected);
        prop_assert!(to == from || to == from + 1 || log.bytes_between(from, to) <= bytes_max as u64);
    }
}
