//! CONFIG REWRITE: new values in a table of the file, which is otherwise as somebody has written it.
//!
//!  1. read the file anew, since somebody may have changed it, and change the values in it;
//!  2. replace the file as a whole: who reads it, at any time and after any crash, finds the old one or the new one.

use std::fs;
use std::path::PathBuf;

use farside_cli::chain;
use toml_edit::{DocumentMut, Item, Value};

/// The table of a command in a file.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) path: PathBuf,
    pub(super) command: &'static str,
}

impl farside_gateway::SettingsFile for Table {
    fn rewrite(&self, settings: &[(&'static str, String)]) -> Result<(), String> {
        let text = fs::read_to_string(&self.path).map_err(|error| error.to_string())?;
        let text = changed(&text, self.command, settings)?;
        farside_gateway::replace_file(&self.path, text.as_bytes()).map_err(|error| chain(&error))
    }
}

/// The text with these settings; comments, order and everything else stay.
fn changed(text: &str, command: &str, settings: &[(&str, String)]) -> Result<String, String> {
    let mut document: DocumentMut = text.parse().map_err(|_| "it is no longer valid TOML".to_owned())?;
    let table = document
        .entry(command)
        .or_insert_with(toml_edit::table)
        .as_table_like_mut();
    let table = table.ok_or_else(|| format!("`{command}` is no longer a table in it"))?;
    for (name, text) in settings {
        let mut value = as_value(text);
        match table.get_mut(name).and_then(Item::as_value_mut) {
            Some(before) => {
                // Spaces and comments around it.
                *value.decor_mut() = before.decor().clone();
                *before = value;
            }
            None => drop(table.insert(name, Item::Value(value))),
        }
    }
    Ok(document.to_string())
}

/// A value as CONFIG has it, in a file.
pub(crate) fn as_value(text: &str) -> Value {
    match (text, text.parse::<i64>()) {
        (_, Ok(number)) => number.into(),
        ("yes" | "true", _) => true.into(),
        ("no" | "false", _) => false.into(),
        _ => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
    use std::path::Path;

    #[test]
    fn comments_order_and_all_other_values_stay() {
        let text = "# mine\nlog-format = 'text'\n\n[serve] # a store\nmaxmemory = \"1GiB\"  # enough\n# who goes\n\
                    maxmemory-policy   = 'noeviction'\nmemory = \"2GiB\"\n\n# nodes\n[node]\nsegment = '/x'\n";
        let settings = [
            ("maxclients", "5".to_owned()),
            ("maxmemory", "1024".to_owned()),
            ("maxmemory-policy", "allkeys-lru".to_owned()),
            ("enable-monitor-command", "yes".to_owned()),
        ];
        let expected = "# mine\nlog-format = 'text'\n\n[serve] # a store\nmaxmemory = 1024  # enough\n# who goes\n\
                        maxmemory-policy   = \"allkeys-lru\"\nmemory = \"2GiB\"\nmaxclients = 5\n\
                        enable-monitor-command = true\n\n# nodes\n[node]\nsegment = '/x'\n";
        assert_eq!(changed(text, "serve", &settings).as_deref(), Ok(expected));
        let added = changed("# none\n", "serve", &settings[..1]);
        assert_eq!(added.as_deref(), Ok("[serve]\nmaxclients = 5\n# none\n"));
        changed("serve = 1", "serve", &settings).expect_err("no table");
        changed("serve = ", "serve", &settings).expect_err("no TOML");
    }

    #[test]
    fn a_file_is_replaced_with_its_mode_and_where_a_link_leads() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&path, "[serve]\n").expect("a folder of ours");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("a file of ours");
        symlink(&path, &link).expect("a folder of ours");
        let table = Table {
            path: link.clone(),
            command: "serve",
        };
        let rewrite = |count: &str| {
            let settings = [("maxclients", count.to_owned())];
            farside_gateway::SettingsFile::rewrite(&table, &settings)
        };
        rewrite("7").expect("all is writable");
        assert_eq!(fs::read_to_string(&path).expect("text"), "[serve]\nmaxclients = 7\n");
        assert!(link.is_symlink());
        let mode = |path: &Path| fs::metadata(path).expect("it is there").mode() & 0o777;
        assert_eq!(mode(&path), 0o640);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o440)).expect("a file of ours");
        let why = rewrite("8").expect_err("nobody may write");
        assert!(why.contains("nobody may write"), "{why}");
        assert_eq!(fs::read_to_string(&path).expect("text"), "[serve]\nmaxclients = 7\n");
        assert_eq!(
            fs::read_dir(folder.path()).expect("it is there").count(),
            2,
            "nothing is left"
        );
    }
}
