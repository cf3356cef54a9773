//! `farside report`: what it prints, and what its exit status says.

use std::process::Output;

use crate::process::output;

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
    assert!(html.contains("farside figure shiftlock-retry --quick"));

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
        "farside: 1 of the figures failed; the page says which\n"
    );
    let html = std::fs::read_to_string(page).expect("the page");
    assert!(html.contains("Not measured"));
}
