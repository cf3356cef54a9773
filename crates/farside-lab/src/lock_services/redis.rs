//! A lock in Redis (`SET NX PX`, released by the script that compares the token), and Redlock over several servers.

use std::io::{Error, ErrorKind};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::run::Service;
use crate::error::BenchError;

/// Deletes the lock if it is still ours: the script of the documentation of `SET`.
const RELEASE: &str = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";
/// How long a lock lives whose holder dies.
const LIFE_MS: &str = "30000";

/// A connection with one request under way.
struct Connection {
    stream: TcpStream,
    request: Vec<u8>,
    reply: Vec<u8>,
}

impl Connection {
    async fn open(address: &str) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            request: Vec::new(),
            reply: Vec::new(),
        })
    }

    async fn send(&mut self, words: &[&str]) -> std::io::Result<()> {
        self.request.clear();
        self.request
            .extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
        for word in words {
            self.request
                .extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
        }
        self.stream.write_all(&self.request).await
    }

    /// A reply of one line; of a string that is not null, its text.
    async fn receive(&mut self) -> std::io::Result<String> {
        let line = self.line().await?;
        match line.strip_prefix('$') {
            Some(length) if length != "-1" => self.line().await,
            _ if line.starts_with('-') => Err(Error::other(line)),
            _ => Ok(line),
        }
    }

    async fn line(&mut self) -> std::io::Result<String> {
        loop {
            if let Some(end) = self.reply.windows(2).position(|two| two == b"\r\n") {
                let line = String::from_utf8_lossy(&self.reply[..end]).into_owned();
                self.reply.drain(..end + 2);
                return Ok(line);
            }
            if self.stream.read_buf(&mut self.reply).await? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

/// A client of a lock that more than half of the servers have to grant: of one server, that is Redis' own.
pub(super) struct RedisLock {
    servers: Vec<Connection>,
    script: String,
    token: String,
}

impl RedisLock {
    pub(super) async fn connect(addresses: &[String], client: u64) -> Result<Self, BenchError> {
        let mut lock = Self {
            servers: Vec::new(),
            script: String::new(),
            token: format!("client-{client}"),
        };
        for address in addresses {
            let connection = Connection::open(address).await;
            let mut connection = connection.map_err(BenchError::system("connect to redis"))?;
            let loaded = async {
                connection.send(&["SCRIPT", "LOAD", RELEASE]).await?;
                connection.receive().await
            };
            lock.script = loaded.await.map_err(BenchError::system("load a script into redis"))?;
            lock.servers.push(connection);
        }
        Ok(lock)
    }

    /// Asks all servers at once; how many answer this.
    async fn ask(&mut self, words: &[&str], wanted: &str) -> std::io::Result<usize> {
        for server in &mut self.servers {
            server.send(words).await?;
        }
        let mut count = 0;
        for server in &mut self.servers {
            count += usize::from(server.receive().await? == wanted);
        }
        Ok(count)
    }

    async fn give_back(&mut self, name: &str) -> std::io::Result<usize> {
        let (script, token) = (self.script.clone(), self.token.clone());
        self.ask(&["EVALSHA", &script, "1", name, &token], ":1").await
    }
}

impl Service for RedisLock {
    async fn try_lock(&mut self, name: &str) -> Result<bool, BenchError> {
        let token = self.token.clone();
        let asked = self.ask(&["SET", name, &token, "NX", "PX", LIFE_MS], "+OK").await;
        let granted = asked.map_err(BenchError::system("talk to redis"))?;
        if granted * 2 > self.servers.len() {
            return Ok(true);
        }
        if granted > 0 {
            // Others shall have what did not make a majority.
            let given_back = self.give_back(name).await;
            given_back.map_err(BenchError::system("talk to redis"))?;
        }
        Ok(false)
    }

    async fn unlock(&mut self, name: &str) -> Result<(), BenchError> {
        let released = self.give_back(name).await;
        let released = released.map_err(BenchError::system("talk to redis"))?;
        if released * 2 > self.servers.len() {
            Ok(())
        } else {
            Err(BenchError::system("release a lock of redis")(Error::other(
                "somebody else has it",
            )))
        }
    }
}
