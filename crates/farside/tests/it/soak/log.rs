//! The log of one worker: a line before each operation, and one after its answer.
//!
//! On the path: a worker writes it with [`Writer`], one unbuffered append for each line, so that what it has said
//! outlives SIGKILL; the driver counts answers while it grows with [`Tail`], and makes a history of it with [`read`].
//!
//! Lines, times in nanoseconds of the machine's monotonic clock, which all processes share:
//!
//!     ? INDEX TIME SESSION CALL KEY [NUMBER]     about to ask; INDEX counts the operations of the log
//!     ! INDEX TIME ANSWER [NUMBER]               answered
//!     x INDEX                                    refused for want of memory: certain not to have happened
//!     o INDEX REASON                             failed, and may or may not have happened
//!     # TEXT                                     anything else worth knowing
//!
//! A `?` without an answer was in flight when the process died. A last line without its end was being written then:
//! of a `?` it says that the operation had not begun, of the others that the operation was in flight.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write as _};
use std::path::Path;

use farside_sim::history::{Answer, Call, Operation};

/// The worker's side.
pub(crate) struct Writer {
    file: File,
    next: u64,
}

impl Writer {
    /// A new log.
    ///
    /// # Panics
    /// If it cannot be written; likewise for all below.
    pub(crate) fn create(path: &Path) -> Self {
        let file = OpenOptions::new().append(true).create_new(true).open(path);
        Self {
            file: file.expect("the driver made the folder"),
            next: 0,
        }
    }

    fn append(&mut self, lines: &str) {
        self.file
            .write_all(lines.as_bytes())
            .expect("there is room for the log");
    }

    /// Before a session asks something about each of these keys; returns the index of the first.
    pub(crate) fn asks(&mut self, start_ns: u64, session: u32, asked: &[(u64, Call)]) -> u64 {
        let first = self.next;
        let mut lines = String::new();
        for (key, call) in asked {
            let index = self.next;
            self.next += 1;
            let _ = write!(lines, "? {index} {start_ns} {session} ");
            let _ = match call {
                Call::Get => writeln!(lines, "get {key}"),
                Call::Put(number) => writeln!(lines, "put {key} {number}"),
                Call::Insert(number) => writeln!(lines, "insert {key} {number}"),
                Call::Update(number) => writeln!(lines, "update {key} {number}"),
                Call::Delete => writeln!(lines, "delete {key}"),
                Call::Take => writeln!(lines, "take {key}"),
                Call::Add(number) => writeln!(lines, "add {key} {number}"),
            };
        }
        self.append(&lines);
        first
    }

    pub(crate) fn answered(&mut self, index: u64, end_ns: u64, answer: Answer) {
        let answer = match answer {
            Answer::Value(None) => "absent".to_owned(),
            Answer::Value(Some(number)) => format!("value {number}"),
            Answer::Done => "done".to_owned(),
            Answer::Happened(true) => "yes".to_owned(),
            Answer::Happened(false) => "no".to_owned(),
            Answer::Sum(number) => format!("sum {number}"),
        };
        self.append(&format!("! {index} {end_ns} {answer}\n"));
    }

    pub(crate) fn refused(&mut self, index: u64) {
        self.append(&format!("x {index}\n"));
    }

    pub(crate) fn left_open(&mut self, index: u64, reason: &str) {
        self.append(&format!("o {index} {reason}\n"));
    }

    pub(crate) fn remark(&mut self, text: &str) {
        self.append(&format!("# {text}\n"));
    }
}

/// Counts the lines of a log that is being written.
pub(crate) struct Tail {
    file: File,
    is_line_start: bool,
    asked: u64,
    answered: u64,
    failed: u64,
}

impl Tail {
    /// `None` as long as there is no such log.
    pub(crate) fn open(path: &Path) -> Option<Self> {
        let file = File::open(path).ok()?;
        Some(Self {
            file,
            is_line_start: true,
            asked: 0,
            answered: 0,
            failed: 0,
        })
    }

    fn catch_up(&mut self) {
        let mut bytes = Vec::new();
        self.file.read_to_end(&mut bytes).expect("the log is there");
        for byte in bytes {
            if self.is_line_start {
                self.asked += u64::from(byte == b'?');
                self.answered += u64::from(byte == b'!');
                self.failed += u64::from(byte == b'x' || byte == b'o');
            }
            self.is_line_start = byte == b'\n';
        }
    }

    /// How many operations were answered so far.
    pub(crate) fn answered(&mut self) -> u64 {
        self.catch_up();
        self.answered
    }

    /// How many operations are under way.
    pub(crate) fn in_flight(&mut self) -> u64 {
        self.catch_up();
        self.asked - self.answered - self.failed
    }
}

/// What logs say, all together.
#[derive(Default, Debug)]
pub(crate) struct History {
    pub(crate) operations: Vec<Operation>,
    pub(crate) answered: u64,
    pub(crate) refused: u64,
    /// In flight at a death, or failed with the outcome unknown.
    pub(crate) open: u64,
    /// Remarks, and reasons of failures, and how often each was given.
    pub(crate) remarks: BTreeMap<String, u64>,
    clients: u32,
}

/// Reads one log into the history.
///
/// A session whose operation is left open goes on as another client: one client asks one thing at a time.
///
/// # Panics
/// If the log is none.
pub(crate) fn read(path: &Path, history: &mut History) {
    let text = std::fs::read_to_string(path).expect("the log is there");
    let mut reader = Reader {
        history,
        asked: BTreeMap::new(),
        clients: BTreeMap::new(),
    };
    for line in text.split_inclusive('\n') {
        let Some(line) = line.strip_suffix('\n') else { break };
        let read = reader.read_line(line);
        read.unwrap_or_else(|| panic!("{}: no line of a log: {line}", path.display()));
    }
    let in_flight = std::mem::take(&mut reader.asked);
    for (_, operation) in in_flight.into_values() {
        history.leave_open(operation);
    }
}

struct Reader<'h> {
    history: &'h mut History,
    /// What was not answered so far, by index, and the session that asked.
    asked: BTreeMap<u64, (u32, Operation)>,
    /// Who each session is in the history.
    clients: BTreeMap<u32, u32>,
}

impl Reader<'_> {
    /// `None` if it is no line of a log.
    fn read_line(&mut self, line: &str) -> Option<()> {
        let (mark, rest) = line.split_at_checked(2)?;
        if mark == "# " {
            *self.history.remarks.entry(rest.to_owned()).or_default() += 1;
            return Some(());
        }
        let mut words = rest.split(' ');
        let index = words.next()?.parse().ok()?;
        if mark == "? " {
            let start_ns = words.next()?.parse().ok()?;
            let session = words.next()?.parse().ok()?;
            let (key, call) = parse_call(words)?;
            let client = *self.clients.entry(session).or_insert_with(|| {
                self.history.clients += 1;
                self.history.clients
            });
            let operation = Operation {
                client,
                key,
                call,
                start_ns,
                end: None,
            };
            self.asked.insert(index, (session, operation));
            return Some(());
        }
        let (session, operation) = self.asked.remove(&index)?;
        match mark {
            "! " => {
                let end_ns = words.next()?.parse().ok()?;
                let end = Some((end_ns, parse_answer(words)?));
                self.history.answered += 1;
                self.history.operations.push(Operation { end, ..operation });
            }
            "x " => self.history.refused += 1,
            "o " => {
                let reason = words.collect::<Vec<_>>().join(" ");
                *self.history.remarks.entry(reason).or_default() += 1;
                self.history.leave_open(operation);
                self.clients.remove(&session);
            }
            _ => return None,
        }
        Some(())
    }
}

impl History {
    /// For how long no operation of any worker was answered, at most, between two instants; and from when on.
    pub(crate) fn longest_silence(&self, (start_ns, end_ns): (u64, u64)) -> (u64, u64) {
        let ends = self.operations.iter().filter_map(|operation| operation.end);
        let mut instants: Vec<u64> = ends.map(|(end_ns, _)| end_ns).collect();
        instants.retain(|instant| (start_ns..end_ns).contains(instant));
        instants.extend([start_ns, end_ns]);
        instants.sort_unstable();
        let silences = instants.windows(2).map(|pair| (pair[1] - pair[0], pair[0]));
        silences.max().unwrap_or_default()
    }

    fn leave_open(&mut self, operation: Operation) {
        self.open += 1;
        // A reading that nobody heard the answer of says nothing.
        if operation.call != Call::Get {
            self.operations.push(operation);
        }
    }
}

fn parse_call<'l>(mut words: impl Iterator<Item = &'l str>) -> Option<(u64, Call)> {
    let name = words.next()?;
    let key = words.next()?.parse().ok()?;
    let mut number = || words.next()?.parse().ok();
    let call = match name {
        "get" => Call::Get,
        "put" => Call::Put(number()?),
        "insert" => Call::Insert(number()?),
        "update" => Call::Update(number()?),
        "delete" => Call::Delete,
        "take" => Call::Take,
        "add" => Call::Add(number()?),
        _ => return None,
    };
    Some((key, call))
}

fn parse_answer<'l>(mut words: impl Iterator<Item = &'l str>) -> Option<Answer> {
    let name = words.next()?;
    let mut number = || words.next()?.parse().ok();
    Some(match name {
        "absent" => Answer::Value(None),
        "value" => Answer::Value(Some(number()?)),
        "done" => Answer::Done,
        "yes" => Answer::Happened(true),
        "no" => Answer::Happened(false),
        "sum" => Answer::Sum(number()?),
        _ => return None,
    })
}

/// Lines are what is left of a worker after SIGKILL: what they say must be what it said.
#[test]
fn a_log_is_read_as_it_was_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("log");
    let mut writer = Writer::create(&path);
    let said = [
        (Call::Get, Answer::Value(None)),
        (Call::Get, Answer::Value(Some(7))),
        (Call::Put(1), Answer::Done),
        (Call::Insert(2), Answer::Happened(true)),
        (Call::Update(3), Answer::Happened(false)),
        (Call::Delete, Answer::Happened(true)),
        (Call::Take, Answer::Value(Some(8))),
        (Call::Add(4), Answer::Sum(11)),
    ];
    let operation = |(time, (call, answer)): (u64, (Call, Answer))| Operation {
        client: 1,
        key: 9,
        call,
        start_ns: time,
        end: Some((time + 1, answer)),
    };
    for (time, (call, answer)) in (0..).zip(said) {
        let index = writer.asks(time, 0, &[(9, call)]);
        writer.answered(index, time + 1, answer);
    }
    let mut history = History::default();
    read(&path, &mut history);
    let expected: Vec<_> = (0..).zip(said).map(operation).collect();
    assert_eq!(history.operations, expected);
    let mut tail = Tail::open(&path).expect("it is there");
    let answered = said.len() as u64;
    assert_eq!((tail.answered(), tail.in_flight()), (answered, 0));
    let refused = writer.asks(20, 0, &[(9, Call::Get), (10, Call::Get)]);
    writer.refused(refused);
    assert_eq!((tail.answered(), tail.in_flight()), (answered, 1));
}

#[test]
fn what_was_in_flight_at_a_death_is_open() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("log");
    let log = "? 0 10 0 put 1 5\nx 0\n? 1 20 0 put 1 6\no 1 node 0 is gone\n? 2 30 0 put 1 7\n? 3 30 1 get 1\n\
        ? 4 40 0 delete 1\n! 4 50 ye";
    std::fs::write(&path, log).expect("there is room");
    let mut history = History::default();
    read(&path, &mut history);
    assert_eq!((history.answered, history.refused, history.open), (0, 1, 4));
    assert!(history.operations.iter().all(|operation| operation.end.is_none()));
    let calls: Vec<_> = (history.operations.iter())
        .map(|operation| (operation.client, operation.call))
        .collect();
    // The put that was refused is not there, the get says nothing, and after the failure somebody else goes on.
    assert_eq!(calls, [(1, Call::Put(6)), (2, Call::Put(7)), (2, Call::Delete)]);
    assert_eq!(history.remarks.get("node 0 is gone"), Some(&1));
    // A question cut short was never asked.
    std::fs::write(&path, "? 0 10 0 put 1 5\n? 1 20 0 de").expect("there is room");
    let mut history = History::default();
    read(&path, &mut history);
    assert_eq!(history.open, 1);
}
