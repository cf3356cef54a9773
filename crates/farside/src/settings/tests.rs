//! Which source counts, and what is said about bad ones.

use std::fmt::Debug;

use super::*;

/// What a command line makes of an environment and a file.
fn parsed(words: &[&str], variables: &[(&str, &str)], text: &str) -> Result<(Cli, Vec<String>), String> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("f.toml");
    std::fs::write(&path, text).expect("a folder of ours");
    let all = variables.iter().map(|(name, value)| (name.into(), value.into()));
    let file = ("FARSIDE_CONFIG".into(), path.clone().into_os_string());
    let environment = Environment::new(all.chain([file]));
    let words = ["farside"].iter().chain(words).map(OsString::from);
    parse(words.collect(), &environment).map_err(|wrong| {
        let line = match wrong {
            Wrong::Arguments(error) => farside_cli::one_line(&error, "farside", "serve"),
            Wrong::Settings(failure) => format!("{failure:?}"),
        };
        line.replace(&format!("{}/", folder.path().display()), "")
    })
}

/// Whether what was parsed has this field.
fn has(cli: &impl Debug, field: &str) -> bool {
    format!("{cli:?}").contains(field)
}

#[test]
fn line_goes_before_environment_before_file_before_default() {
    let file = "log-format = 'json'\n[serve]\nthreads = 1\nmaxclients = 1\nmaxmemory = '1KiB'\nlocal-wc = true\n\
                [node]\nsegment = '/x'\n";
    let variables = [
        ("FARSIDE_THREADS", "2"),
        ("FARSIDE_MAXCLIENTS", "2"),
        ("FARSIDE_POOL", "nonsense"),
    ];
    let (cli, warnings) = parsed(&["serve", "--threads", "3"], &variables, file).expect("all are right");
    for field in [
        "threads: Some(3)",
        "maxclients: 2",
        "maxmemory: 1024",
        "local_wc: true",
        "slowlog_max_len: 128",
        "log_format: Json",
        "f.toml",
    ] {
        assert!(has(&cli, field), "{field}: {cli:?}");
    }
    assert!(warnings.is_empty(), "{warnings:?}");
    // An empty variable is none, and false is less than the file's true.
    let variables = [
        ("FARSIDE_MAXCLIENTS", ""),
        ("FARSIDE_LOCAL_WC", "no"),
        ("FARSIDE_LOG_FORMAT", "text"),
    ];
    let (cli, _) = parsed(&["--log-format", "json", "serve"], &variables, file).expect("all are right");
    for field in ["maxclients: 1,", "local_wc: false", "log_format: Json"] {
        assert!(has(&cli, field), "{field}: {cli:?}");
    }
}

#[test]
fn what_needs_what_is_seen_over_all_sources() {
    let file = "[serve]\ntls-cert = '/c'\n[gateway]\nlisten = '127.0.0.1:1'\n";
    let tls = ["serve", "--tls-listen", "127.0.0.1:2"];
    let (cli, _) = parsed(&tls, &[("FARSIDE_TLS_KEY", "/k")], file).expect("all three are there");
    assert!(has(&cli, "tls_key: Some(\"/k\")"), "{cli:?}");
    let line = parsed(&tls, &[], file).expect_err("no key");
    assert!(line.contains("--tls-key"), "{line}");
    let line = parsed(&["gateway"], &[], file).expect_err("no pool");
    assert!(line.contains("--pool"), "{line}");
    parsed(&["gateway"], &[("FARSIDE_POOL", "tcp:127.0.0.1:1")], file).expect("a pool");
}

#[test]
fn bad_settings_are_one_line_that_names_the_place_and_what_would_be_right() {
    for (text, hint) in [
        ("[serve\n", "f.toml:1: "),
        ("[serve]\nlisten = x\n", "f.toml:2: "),
        ("[serve]\nmemory = 1\nmemory = 2\n", "f.toml:3: "),
        (
            "[sevre]\nmemory = 1\n",
            "f.toml:1: there is no table or key `sevre`: did you mean `serve`?",
        ),
        ("serve = 1\n", "f.toml:1: `serve` is a table: write [serve]"),
        (
            "listen = '127.0.0.1:1'\n",
            "f.toml:1: there is no table or key `listen`: it belongs below [serve], [node], [gateway]",
        ),
        (
            "[serve]\nlog-format = 'json'\n",
            "in [serve]: it belongs above all tables",
        ),
        (
            "[serve]\n\n# more\nmemry = '1GiB'\n",
            "f.toml:4: there is no key `memry` in [serve]: did you mean `memory`?",
        ),
        (
            "[node]\nmetrik = '1GiB'\n",
            "f.toml:2: there is no key `metrik` in [node]: did you mean `metrics`?",
        ),
        (
            "[serve]\nconfig = '/y'\n",
            "`config` in [serve]: `farside config example`",
        ),
        ("[serve]\npool = 'shm:/x'\n", "it belongs below [gateway]"),
        (
            "[serve]\nmemory = 'lots'\n",
            "f.toml:2: memory: `lots` is not a size: write a number with KiB",
        ),
        ("[serve]\nmemory = 1.5\n", "f.toml:2: memory: write a string in quotes"),
        (
            "[serve]\nmemory = ['1GiB', '2GiB']\n",
            "f.toml:2: memory: it has one value",
        ),
        ("[serve]\nthreads = 0\n", "f.toml:2: threads: 0 is not in 1..=256"),
        ("[serve]\nlisten = 6380\n", "f.toml:2: listen: `6380` is not an address"),
        ("[serve]\nsegment = ''\n", "f.toml:2: segment: ``: write a value"),
        (
            "[serve]\nlocal-wc = 'maybe'\n",
            "f.toml:2: local-wc: `maybe` is neither true nor false",
        ),
        (
            "log-format = 'xml'\n",
            "f.toml:1: log-format: `xml`: write one of text, json",
        ),
        (
            "[serve]\nthreads = 0\nmemory = 'x'\n",
            "; and 1 more, which `farside config check` shows",
        ),
    ] {
        let line = parsed(&["serve"], &[], text).expect_err(text);
        assert!(line.contains(hint) && !line.contains('\n'), "{text}: {line}");
    }
    let line = parsed(&["serve"], &[("FARSIDE_MEMORY", "much")], "").expect_err("no size");
    assert!(line.contains("FARSIDE_MEMORY: memory: `much` is not a size"), "{line}");
    let line = parsed(&["serve", "--config", "/no/such/file"], &[], "").expect_err("no file");
    assert!(line.contains("failed to read /no/such/file: No such file"), "{line}");
    // What stands on the line is told as ever.
    let line = parsed(&["serve", "--memory", "lots"], &[], "").expect_err("no size");
    assert!(line.contains("'--memory <SIZE>'"), "{line}");
}

#[test]
fn an_option_that_may_be_given_several_times_takes_a_list() {
    let values: Vec<OsString> = ["1", "2"].map(OsString::from).to_vec();
    let several = Arg::new("port").long("port").action(ArgAction::Append);
    let several = several.value_parser(clap::value_parser!(u16));
    let made = as_arguments(&several, "port", &values);
    assert_eq!(made, Ok(vec!["--port=1".into(), "--port=2".into()]));
    assert_eq!(as_arguments(&several, "port", &[]), Ok(Vec::new()));
    as_arguments(&several, "port", &["1".into(), "x".into()]).expect_err("one is no number");
}

#[test]
fn a_variable_that_is_nearly_a_setting_is_warned_of() {
    let variables = [
        ("FARSIDE_MEMROY", "1GiB"),
        ("FARSIDE_SEED", "1"),
        ("FARSIDE_SECONDS", "1"),
        ("FARSIDE_PLAN", "1"),
        ("FARSIDE_TEST_POOL", "1"),
        ("FARSIDE_RATE", "1"),
    ];
    let (_, warnings) = parsed(&["serve"], &variables, "").expect("nothing is wrong");
    assert_eq!(
        warnings,
        ["FARSIDE_MEMROY is not a setting: did you mean FARSIDE_MEMORY?"]
    );
    let (_, warnings) = parsed(&["list"], &variables, "[nonsense]").expect("it has no settings");
    assert!(warnings.is_empty(), "{warnings:?}");
}
