//! A connection to Redis, with one request under way: one command, or several that travel together.

use std::io::{Error, ErrorKind, Result};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How much is read at a time, in bytes.
const READ_BYTES: usize = 16 << 10;

/// See the module. Words and replies are text.
pub(crate) struct Connection {
    stream: TcpStream,
    request: Vec<u8>,
    reply: Vec<u8>,
    /// Where in `reply` what nobody has taken yet begins.
    at: usize,
}

impl Connection {
    /// Connects to HOST:PORT.
    pub(crate) async fn open(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            request: Vec::new(),
            reply: Vec::new(),
            at: 0,
        })
    }

    /// Adds a command to the next request.
    pub(crate) fn push(&mut self, words: &[&str]) -> &mut Self {
        self.request
            .extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
        for word in words {
            self.request
                .extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
        }
        self
    }

    /// Sends the commands that were added; each has a reply, in their order.
    pub(crate) async fn send(&mut self) -> Result<()> {
        self.stream.write_all(&self.request).await?;
        self.request.clear();
        Ok(())
    }

    /// Sends one command and returns its reply; see [`Connection::receive`].
    pub(crate) async fn ask(&mut self, words: &[&str]) -> Result<String> {
        self.push(words).send().await?;
        self.receive().await
    }

    /// A reply that is no array: of a string its text, `$-1` if it is null; otherwise the line, with the sign that says its
    /// type.
    ///
    /// # Errors
    /// What Redis refuses, among others.
    pub(crate) async fn receive(&mut self) -> Result<String> {
        let line = self.line().await?;
        match line.strip_prefix('$') {
            Some(length) if length != "-1" => {
                let bytes = number(length)?;
                self.text(bytes).await
            }
            _ if line.starts_with('-') => Err(Error::other(line)),
            _ => Ok(line),
        }
    }

    /// A reply that is an array of what [`Connection::receive`] reads; `None` if it is null.
    ///
    /// # Errors
    /// What Redis refuses, as a whole or in one element, among others.
    pub(crate) async fn receive_array(&mut self) -> Result<Option<Vec<String>>> {
        let line = self.line().await?;
        match line.strip_prefix('*') {
            Some("-1") => Ok(None),
            Some(length) => {
                let mut elements = Vec::new();
                for _ in 0..number(length)? {
                    elements.push(self.receive().await?);
                }
                Ok(Some(elements))
            }
            None => Err(Error::other(line)),
        }
    }

    async fn line(&mut self) -> Result<String> {
        loop {
            let rest = &self.reply[self.at..];
            if let Some(end) = rest.windows(2).position(|two| two == b"\r\n") {
                let line = String::from_utf8_lossy(&rest[..end]).into_owned();
                self.at += end + 2;
                return Ok(line);
            }
            self.read().await?;
        }
    }

    /// So many bytes, and the end of the line behind them.
    async fn text(&mut self, bytes: usize) -> Result<String> {
        while self.reply.len() - self.at < bytes + 2 {
            self.read().await?;
        }
        let text = String::from_utf8_lossy(&self.reply[self.at..self.at + bytes]).into_owned();
        self.at += bytes + 2;
        Ok(text)
    }

    async fn read(&mut self) -> Result<()> {
        self.reply.drain(..self.at);
        self.at = 0;
        self.reply.reserve(READ_BYTES);
        match self.stream.read_buf(&mut self.reply).await? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

fn number(text: &str) -> Result<usize> {
    let parsed = text.parse();
    parsed.map_err(|_| Error::other(format!("`{text}` is not the length of a reply")))
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;
    use crate::stage::machine::on_this_thread;

    #[test]
    fn replies_of_all_kinds_are_read_however_they_are_cut() {
        on_this_thread(async {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let address = listener.local_addr()?.to_string();
            let (connection, accepted) = tokio::join!(Connection::open(&address), listener.accept());
            let (mut connection, (mut server, _)) = (connection?, accepted?);
            let replies = b"+OK\r\n$5\r\na\r\nbc\r\n$-1\r\n:7\r\n*2\r\n$1\r\nx\r\n$-1\r\n*-1\r\n-ERR no\r\n";
            let write = async {
                for part in replies.chunks(3) {
                    server.write_all(part).await?;
                    server.flush().await?;
                }
                Ok::<_, Error>(())
            };
            let read = async {
                let mut texts = Vec::new();
                for _ in 0..4 {
                    texts.push(connection.receive().await?);
                }
                assert_eq!(texts, ["+OK", "a\r\nbc", "$-1", ":7"]);
                let array = connection.receive_array().await?;
                assert_eq!(array, Some(vec!["x".to_owned(), "$-1".to_owned()]));
                assert_eq!(connection.receive_array().await?, None);
                let refused = connection.receive_array().await.expect_err("an error is no array");
                assert_eq!(refused.to_string(), "-ERR no");
                Ok::<_, Error>(())
            };
            let (written, were_read) = tokio::join!(write, read);
            written.and(were_read)
        })
        .expect("an event loop")
        .expect("the loopback works");
    }
}
