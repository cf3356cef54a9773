//! The file: a table for each command, and `log-format`, which belongs to all.

use std::path::Path;

use clap::Command;
use toml_edit::{Document, Item, Key, Value};

use super::{COMMANDS, Said, TOP, keys, nearest};

/// Settings as they are written, with the lines where they are.
#[derive(Debug)]
pub(crate) struct File {
    /// As messages name it.
    pub(crate) name: String,
    entries: Vec<Entry>,
    /// A line for each key that is none, and each value of a wrong type.
    pub(crate) mistakes: Vec<String>,
}

#[derive(Debug)]
struct Entry {
    table: String,
    key: String,
    values: Vec<String>,
    line: usize,
}

impl File {
    /// Reads it.
    ///
    /// # Errors
    /// If it cannot be read or is no TOML: a line that names it.
    pub(crate) fn read(path: &Path, root: &Command) -> Result<Self, String> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| format!("failed to read {name}: {error}"))?;
        Self::parse(name, &text, root)
    }

    pub(crate) fn parse(name: String, text: &str, root: &Command) -> Result<Self, String> {
        let line_at = |at: usize| 1 + text.bytes().take(at).filter(|&byte| byte == b'\n').count();
        let document = Document::parse(text).map_err(|error| {
            let line = line_at(error.span().map_or(0, |span| span.start));
            format!("{name}:{line}: {}", error.message().replace('\n', ", "))
        })?;
        let line_of = |key: Option<&Key>| line_at(key.and_then(Key::span).map_or(0, |span| span.start));
        let top = document.as_table();
        let mut file = Self {
            name,
            entries: Vec::new(),
            mistakes: Vec::new(),
        };
        for (name, item) in top {
            let line = line_of(top.key(name));
            match (COMMANDS.contains(&name), item.as_table_like()) {
                (true, Some(table)) => {
                    for (key, item) in table.iter() {
                        file.add(root, (name, key), item, line_of(table.key(key)));
                    }
                }
                (true, None) => file.wrong(line, &format!("`{name}` is a table: write [{name}]")),
                (false, _) => file.add(root, (TOP, name), item, line),
            }
        }
        Ok(file)
    }

    fn wrong(&mut self, line: usize, what: &str) {
        self.mistakes.push(format!("{}:{line}: {what}", self.name));
    }

    fn add(&mut self, root: &Command, (table, key): (&str, &str), item: &Item, line: usize) {
        let mut known: Vec<&str> = keys(root, table).map(|(key, _)| key).collect();
        if !known.contains(&key) {
            let mut what = format!("there is no key `{key}` in [{table}]");
            if table == TOP {
                known.extend(COMMANDS);
                what = format!("there is no table or key `{key}`");
            }
            let meant = || Some(format!("did you mean `{}`?", nearest(key, known.into_iter())?));
            let hint = elsewhere(root, key).or_else(meant);
            let hint = hint.unwrap_or_else(|| "`farside config example` shows all there are".to_owned());
            return self.wrong(line, &format!("{what}: {hint}"));
        }
        match values(item) {
            Some(values) => self.entries.push(Entry {
                table: table.to_owned(),
                key: key.to_owned(),
                values,
                line,
            }),
            None => self.wrong(
                line,
                &format!("{key}: write a string in quotes, a whole number, true or false"),
            ),
        }
    }

    /// What it says about a setting.
    pub(super) fn get(&self, table: &str, key: &str) -> Option<Said> {
        let mut entries = self.entries.iter();
        let entry = entries.find(|entry| entry.table == table && entry.key == key)?;
        Some(Said {
            place: format!("{}:{}", self.name, entry.line),
            values: entry.values.iter().map(|value| value.into()).collect(),
        })
    }

    /// Whether it says anything in a table.
    pub(crate) fn has(&self, table: &str) -> bool {
        self.entries.iter().any(|entry| entry.table == table)
    }
}

/// Where a key would be right, if it would be anywhere but in this table.
fn elsewhere(root: &Command, key: &str) -> Option<String> {
    let is_of = |table: &str| keys(root, table).any(|(known, _)| known == key);
    if is_of(TOP) {
        return Some("it belongs above all tables".to_owned());
    }
    let tables = COMMANDS.iter().filter(|command| is_of(command));
    let tables: Vec<String> = tables.map(|command| format!("[{command}]")).collect();
    (!tables.is_empty()).then(|| format!("it belongs below {}", tables.join(", ")))
}

/// The values of an item, as they would be written on the command line.
fn values(item: &Item) -> Option<Vec<String>> {
    match item.as_value()? {
        Value::Array(array) => array.iter().map(scalar).collect(),
        value => Some(vec![scalar(value)?]),
    }
}

fn scalar(value: &Value) -> Option<String> {
    Some(match value {
        Value::String(text) => text.value().clone(),
        Value::Integer(number) => number.value().to_string(),
        Value::Boolean(is) => is.value().to_string(),
        _ => return None,
    })
}
