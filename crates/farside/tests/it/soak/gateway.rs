//! A gateway of a run, and the conversation of a worker that uses the pool through it.
//!
//! On the path: the driver starts `farside gateway` and kills it; the worker speaks RESP, and writes into the same history. A call
//! whose connection breaks is left open: it may have happened.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use farside_fabric::host::HostClock;
use farside_sim::history::{Answer, Call};
use rustix::process::Signal;

use super::process::{Process, farside, free_port};
use super::value::{key_bytes, number_of, value_of};
use super::worker::Worker;

/// How long a reply may take: much longer than the gateway waits for a primary.
const PATIENCE: Duration = Duration::from_secs(120);

/// A `farside gateway`: an address that stays, and the process that listens there now.
pub(crate) struct Gateway {
    arguments: Vec<String>,
    pub(crate) address: SocketAddr,
    stderr: PathBuf,
    process: Option<Process>,
    /// Whether the process that runs now has said where it listens.
    serves: Arc<AtomicBool>,
}

impl Gateway {
    /// Of a pool, with a scheme of its workers.
    pub(crate) fn start(pool: &str, scheme: &str, stderr: PathBuf) -> Self {
        let address = free_port();
        let arguments = ["gateway", "--pool", pool, "--sync", scheme, "--threads", "1"].map(str::to_owned);
        let mut gateway = Self {
            arguments: arguments.into(),
            address,
            stderr,
            process: None,
            serves: Arc::default(),
        };
        gateway.launch();
        gateway
    }

    pub(crate) fn launch(&mut self) {
        let mut command = farside();
        command
            .args(&self.arguments)
            .args(["--listen", &self.address.to_string()]);
        let mut process = Process::start_piped(&mut command, &self.stderr);
        let serves: Arc<AtomicBool> = Arc::default();
        self.serves = serves.clone();
        let lines = BufReader::new(process.take_stdout()).lines();
        // Read on, so that it never waits for us.
        std::thread::spawn(move || {
            for _ in lines.map_while(Result::ok) {
                serves.store(true, Ordering::SeqCst);
            }
        });
        self.process = Some(process);
    }

    pub(crate) fn is_serving(&self) -> bool {
        self.process.is_some() && self.serves.load(Ordering::SeqCst)
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill();
        }
    }

    /// A gateway that finds no etcd or no primary when it starts ends, and is started again, as an init system would; one that
    /// has served must not end.
    pub(crate) fn tend(&mut self) {
        let Some(process) = &mut self.process else { return };
        if self.serves.load(Ordering::SeqCst) {
            process.expect_running();
        } else if process.has_ended() {
            self.launch();
        }
    }

    /// SIGTERM: it must end well.
    pub(crate) fn terminate(mut self) {
        let mut process = self.process.take().expect("it serves");
        process.signal(Signal::TERM);
        process.expect_end();
    }
}

/// What a gateway says.
enum Reply {
    Done,
    Nil,
    Number(i64),
    Bytes(Vec<u8>),
    Error(String),
}

struct Connection {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Connection {
    fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let reader = BufReader::new(stream.try_clone()?);
        Ok(Self { stream, reader })
    }

    fn ask(&mut self, words: &[&[u8]]) -> io::Result<Reply> {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend(format!("${}\r\n", word.len()).into_bytes());
            bytes.extend(*word);
            bytes.extend(b"\r\n");
        }
        self.stream.write_all(&bytes)?;
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let whole = line.strip_suffix("\r\n").ok_or(ErrorKind::UnexpectedEof)?;
        let (kind, rest) = whole.split_at_checked(1).ok_or(ErrorKind::InvalidData)?;
        let number = || rest.parse::<i64>().map_err(io::Error::other);
        Ok(match kind {
            "+" => Reply::Done,
            "-" => Reply::Error(rest.to_owned()),
            ":" => Reply::Number(number()?),
            "$" => match usize::try_from(number()?) {
                Err(_) => Reply::Nil,
                Ok(length) => {
                    let mut value = vec![0; length + 2];
                    self.reader.read_exact(&mut value)?;
                    value.truncate(length);
                    Reply::Bytes(value)
                }
            },
            _ => return Err(ErrorKind::InvalidData.into()),
        })
    }
}

impl Worker {
    /// Works through a gateway until the connection breaks, or the worker is told to end.
    pub(super) fn work_through(&self, gateway: SocketAddr) {
        if let Err(error) = self.converse_through(gateway) {
            assert!(
                !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
                "the gateway did not answer in two minutes"
            );
            // Which error it is depends on what the system had in its hands.
            self.log.borrow_mut().remark("the gateway was gone");
            #[expect(clippy::disallowed_methods, reason = "real processes take real time")]
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn converse_through(&self, gateway: SocketAddr) -> io::Result<()> {
        let mut connection = Connection::open(gateway)?;
        self.log.borrow_mut().remark("a gateway let us in");
        while !self.is_told_to_end() {
            let key = self.some_key();
            let call = match self.roll(100) {
                0..=39 => Call::Get,
                40..=64 => Call::Put(self.number()),
                65..=74 => Call::Insert(self.number()),
                75..=84 => Call::Update(self.number()),
                85..=94 => Call::Delete,
                _ => Call::Take,
            };
            let name = key_bytes(key);
            let value = match call {
                Call::Put(number) | Call::Insert(number) | Call::Update(number) => value_of(key, number),
                _ => Vec::new(),
            };
            let words: &[&[u8]] = match call {
                Call::Put(_) => &[b"SET", &name, &value],
                Call::Insert(_) => &[b"SET", &name, &value, b"NX"],
                Call::Update(_) => &[b"SET", &name, &value, b"XX"],
                Call::Delete => &[b"DEL", &name],
                Call::Take => &[b"GETDEL", &name],
                _ => &[b"GET", &name],
            };
            let index = self.log.borrow_mut().asks(HostClock.now_ns(), 0, &[(key, call)]);
            let reply = connection.ask(words);
            let now_ns = HostClock.now_ns();
            let mut log = self.log.borrow_mut();
            let reply = match reply {
                Ok(reply) => reply,
                Err(error) => {
                    log.left_open(index, "the connection to the gateway broke");
                    return Err(error);
                }
            };
            let answer = match (call, reply) {
                (_, Reply::Error(error)) if error.starts_with("OOM ") => {
                    log.refused(index);
                    continue;
                }
                (_, Reply::Error(error)) => {
                    log.left_open(index, &format!("a gateway says: {error}"));
                    continue;
                }
                (Call::Get | Call::Take, Reply::Nil) => Answer::Value(None),
                (Call::Get | Call::Take, Reply::Bytes(value)) => {
                    Answer::Value(Some(number_of(key, &value).expect("values are never torn")))
                }
                (Call::Put(_), Reply::Done) => Answer::Done,
                (Call::Insert(_) | Call::Update(_), Reply::Done) => Answer::Happened(true),
                (Call::Insert(_) | Call::Update(_), Reply::Nil) => Answer::Happened(false),
                (Call::Delete, Reply::Number(count @ (0 | 1))) => Answer::Happened(count == 1),
                (call, _) => panic!("no reply to {call:?}"),
            };
            log.answered(index, now_ns, answer);
        }
        Ok(())
    }
}
