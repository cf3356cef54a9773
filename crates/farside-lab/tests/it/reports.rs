//! `farside-lab report`: what it prints, and what its exit status says; and what the program refuses.

use std::process::{Command, Output};

fn output(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farside-lab"));
    command.args(arguments).env_remove("RUST_LOG");
    command.output().expect("the binary is built")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

#[test]
fn a_report_prints_verdicts_goes_on_and_tells_of_failures() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let report = || -> Output {
        let out = out.to_str().expect("plain");
        output(&["report", "--quick", "--out", out, "shiftlock-retry"])
    };
    let first = report();
    assert_eq!(first.status.code(), Some(0), "{}", text(&first.stderr));
    let said = text(&first.stdout);
    let lines: Vec<&str> = said.lines().collect();
    let [figure, page] = lines[..] else {
        panic!("a line for the figure and one for the page: {said}");
    };
    assert!(figure.starts_with("[1/1] shiftlock-retry"), "{figure}");
    assert!(figure.contains("claims hold: ok"), "{figure}");
    let page = std::path::Path::new(page);
    assert_eq!(page, out.join("report.html"));
    let html = std::fs::read_to_string(page).expect("the page");
    assert!(html.contains("farside-lab figure shiftlock-retry --quick"));

    let again = report();
    assert!(
        text(&again.stdout).contains("[of an earlier run]"),
        "{}",
        text(&again.stdout)
    );
    assert_eq!(
        std::fs::read_to_string(page).expect("the page"),
        html,
        "the same numbers, the same page"
    );

    let result = out.join("shiftlock-retry.json");
    std::fs::remove_file(&result).expect("it was written");
    std::fs::create_dir(&result).expect("writable");
    let failed = report();
    assert_eq!(failed.status.code(), Some(1));
    assert_eq!(
        text(&failed.stderr),
        "farside-lab: 1 of the figures failed; the page says which\n"
    );
    let html = std::fs::read_to_string(page).expect("the page");
    assert!(html.contains("Not measured"));
}

#[test]
fn a_report_says_what_other_numbers_change() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().to_str().expect("plain");
    let told = output(&[
        "report",
        "--quick",
        "--held-out",
        "--out",
        out,
        "chime-16",
        "shiftlock-retry",
    ]);
    assert_eq!(told.status.code(), Some(0), "{}", text(&told.stderr));
    let said = text(&told.stdout);
    let verdicts = said
        .lines()
        .find(|line| line.starts_with("held out: "))
        .expect("what became of them");
    assert!(verdicts.ends_with("of 7 claims are judged the same"), "{verdicts}");
    let number = |folder: &str, key: &str| {
        let path = std::path::Path::new(out).join(folder).join("shiftlock-retry.json");
        let text = std::fs::read_to_string(path).expect("a result");
        let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        json["runs"][1]["report"][key].as_u64().expect("a number")
    };
    assert_eq!([number("", "clients"), number("", "seed")], [240, 1]);
    assert_eq!([number("held-out", "clients"), number("held-out", "seed")], [216, 2]);
    assert_eq!([number("", "locks"), number("held-out", "locks")], [1, 1]);
}

#[test]
fn what_makes_no_sense_is_one_line_that_says_what_would_be_right() {
    for (arguments, hint) in [
        (&["report", "cider-99"][..], "choose from shiftlock-retry"),
        (&["report", "--fast"], "--fast"),
        (&[], "farside-lab --help"),
        (&["list", "--json"], "--json"),
    ] {
        let refused = output(arguments);
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}");
        let line = text(&refused.stderr);
        assert!(
            line.starts_with("farside-lab: ") && line.lines().count() == 1 && line.contains(hint),
            "{arguments:?}: `{hint}` is not in: {line}"
        );
    }
}

#[test]
fn what_can_be_named_is_listed() {
    let listed = output(&["list"]);
    let text = text(&listed.stdout);
    for part in ["locks", "shiftlock", "workloads", "ycsb-a", "figures", "cider-1"] {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
}

/// The tables of the papers are written by `farside-lab report --tables docs/papers.md`, and neither by hand nor before the
/// figure's file was changed.
#[test]
fn the_tables_of_the_papers_are_those_of_the_last_runs() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/papers.md");
    let text = std::fs::read_to_string(path).expect("it is there");
    assert_eq!(farside_lab::figure::tables::differences(&text), Ok(Vec::new()));
    assert!(text.matches("<!-- figure ").count() >= 9);
}

#[test]
fn a_document_that_cannot_be_filled_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = |name: &str| folder.path().join(name).to_str().expect("plain").to_owned();
    let (document, out) = (place("papers.md"), place("out"));
    let report = |arguments: &[&str]| {
        let arguments = [&["report", "chime-t1", "--out", &out, "--tables", &document], arguments].concat();
        output(&arguments)
    };
    let absent = report(&[]);
    assert_eq!(absent.status.code(), Some(2), "{}", text(&absent.stderr));
    assert!(text(&absent.stderr).contains("papers.md: "), "{}", text(&absent.stderr));
    std::fs::write(&document, "<!-- figure chime-t1 -->\n<!-- end -->\n").expect("writable");
    let written = report(&[]);
    assert!(written.status.success(), "{}", text(&written.stderr));
    assert!(
        text(&written.stdout).contains("papers.md: 1 tables"),
        "{}",
        text(&written.stdout)
    );
    let filled = std::fs::read_to_string(&document).expect("it is there");
    assert_eq!(farside_lab::figure::tables::differences(&filled), Ok(Vec::new()));
    assert!(
        !report(&["--quick"]).status.success(),
        "a smaller set-up is no full run"
    );
}
