//! What a connection is to the commands: a client with a name and rights.

use crate::latency::Tally;

/// One client.
#[derive(Default, Debug)]
pub(crate) struct Client {
    /// Numbered over all connections of the gateway.
    pub(crate) id: u64,
    /// As set with CLIENT SETNAME.
    pub(crate) name: Vec<u8>,
    /// Whether it still owes a password.
    pub(crate) is_stranger: bool,
    /// Whether its connection ends when its replies have been written.
    pub(crate) is_leaving: bool,
    /// The commands of its present burst.
    pub(crate) tally: Tally,
}

impl Client {
    /// Sets the name.
    ///
    /// # Errors
    /// The error line, if the name would break lists of clients.
    pub(crate) fn set_name(&mut self, name: &[u8]) -> Result<(), &'static str> {
        if !name.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
            return Err("ERR Client names cannot contain spaces, newlines or special characters.");
        }
        self.name = name.to_vec();
        Ok(())
    }
}
