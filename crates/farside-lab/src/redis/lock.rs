//! A lock in Redis (`SET NX PX`, released by the script that compares the token), and Redlock over several servers.

use std::io::Error;

use super::Connection;
use crate::error::BenchError;

/// Deletes the lock if it is still ours: the script of the documentation of `SET`.
const RELEASE: &str = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";
/// How long a lock lives whose holder dies.
const LIFE_MS: &str = "30000";

/// A client of locks that more than half of the servers have to grant: of one server, that is Redis' own.
pub(crate) struct RedisLock {
    servers: Vec<Connection>,
    script: String,
    token: String,
}

impl RedisLock {
    /// Connects to the servers, HOST:PORT each, as the client with this number.
    ///
    /// # Errors
    /// If one of them does not answer.
    pub(crate) async fn connect(addresses: &[String], client: u64) -> Result<Self, BenchError> {
        let mut lock = Self {
            servers: Vec::new(),
            script: String::new(),
            token: format!("client-{client}"),
        };
        for address in addresses {
            let connection = Connection::open(address).await;
            let mut connection = connection.map_err(BenchError::system("connect to redis"))?;
            let loaded = connection.ask(&["SCRIPT", "LOAD", RELEASE]).await;
            lock.script = loaded.map_err(BenchError::system("load a script into redis"))?;
            lock.servers.push(connection);
        }
        Ok(lock)
    }

    /// Asks for a lock; whether more than half of the servers have granted it.
    ///
    /// # Errors
    /// If a server does not answer.
    pub(crate) async fn try_lock(&mut self, name: &str) -> Result<bool, BenchError> {
        for server in &mut self.servers {
            let request = server.push(&["SET", name, &self.token, "NX", "PX", LIFE_MS]);
            request.send().await.map_err(BenchError::system("talk to redis"))?;
        }
        let granted = self.count("+OK").await?;
        if self.is_majority(granted) {
            return Ok(true);
        }
        if granted > 0 {
            // Others shall have what did not make a majority.
            self.give_back(&[name]).await?;
        }
        Ok(false)
    }

    /// Gives locks back, all of them at once.
    ///
    /// # Errors
    /// If a server does not answer, or one of them was not held any more.
    pub(crate) async fn unlock(&mut self, names: &[&str]) -> Result<(), BenchError> {
        for released in self.give_back(names).await? {
            if !self.is_majority(released) {
                return Err(BenchError::system("release a lock of redis")(Error::other(
                    "somebody else has it",
                )));
            }
        }
        Ok(())
    }

    fn is_majority(&self, servers: usize) -> bool {
        servers * 2 > self.servers.len()
    }

    /// How many servers had each of the locks.
    async fn give_back(&mut self, names: &[&str]) -> Result<Vec<usize>, BenchError> {
        for server in &mut self.servers {
            for name in names {
                server.push(&["EVALSHA", &self.script, "1", name, &self.token]);
            }
            server.send().await.map_err(BenchError::system("talk to redis"))?;
        }
        let mut counts = Vec::new();
        for _ in names {
            counts.push(self.count(":1").await?);
        }
        Ok(counts)
    }

    /// How many servers answer this next.
    async fn count(&mut self, wanted: &str) -> Result<usize, BenchError> {
        let mut count = 0;
        for server in &mut self.servers {
            let reply = server.receive().await.map_err(BenchError::system("talk to redis"))?;
            count += usize::from(reply == wanted);
        }
        Ok(count)
    }
}
