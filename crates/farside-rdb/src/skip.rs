//! Values that are not kept here: how long they are, and what to call them.

use crate::{RdbError, Reader};

impl Reader<'_> {
    fn pass_strings(&mut self, count: u64) -> Result<(), RdbError> {
        (0..count).try_for_each(|_| self.pass_string())
    }

    /// Passes over a value of this type; says what it is.
    pub(crate) fn pass_value(&mut self, kind: u8) -> Result<&'static str, RdbError> {
        Ok(match kind {
            7 => {
                self.length()?;
                self.pass_module()?;
                "a value of a module"
            }
            15 | 19 | 21 => {
                self.pass_stream(kind)?;
                "a stream"
            }
            _ => return Err(self.damaged("a value of an unknown type")),
        })
    }

    /// What a module wrote: values that say what they are, and an end.
    pub(crate) fn pass_module(&mut self) -> Result<(), RdbError> {
        loop {
            match self.length()? {
                0 => return Ok(()),
                1 | 2 => drop(self.length()?),
                3 => self.pass(4)?,
                4 => self.pass(8)?,
                5 => self.pass_string()?,
                _ => return Err(self.damaged("a module's value of an unknown kind")),
            }
        }
    }

    fn pass_lengths(&mut self, count: usize) -> Result<(), RdbError> {
        (0..count).try_for_each(|_| self.length().map(drop))
    }

    fn pass_stream(&mut self, kind: u8) -> Result<(), RdbError> {
        let count = self.length()?;
        let strings = count.checked_mul(2);
        self.pass_strings(strings.ok_or_else(|| self.damaged("a stream of too many nodes"))?)?;
        // How many entries, and the last one's name; later also the first one's, the last deleted one's and how many there were.
        self.pass_lengths(if kind == 15 { 3 } else { 8 })?;
        for _ in 0..self.length()? {
            self.pass_string()?;
            self.pass_lengths(if kind == 15 { 2 } else { 3 })?;
            for _ in 0..self.length()? {
                // Name and time of what was not acknowledged, and how often it was delivered.
                self.pass(16 + 8)?;
                self.length()?;
            }
            for _ in 0..self.length()? {
                self.pass_string()?;
                self.pass(if kind == 21 { 16 } else { 8 })?;
                let pending = self.length()?;
                (0..pending).try_for_each(|_| self.pass(16))?;
            }
        }
        Ok(())
    }
}
