//! `farside-lab calibrate`: profiles keep to what they follow from, and what is printed.

use std::process::Command;

use farside_lab::calibrate::file::Testbed;
use farside_lab::calibrate::{self, Calibration};
use farside_lab::figure::variation::Variation;

/// A third of what would make a claim be missed.
const OFF_MAX: f64 = 0.09;

fn keeps_to_its_anchors(profile: &str) {
    let testbed = calibrate::testbed(profile).expect("a testbed");
    let measured = calibrate::measured(&testbed, Variation::default(), &mut None).expect("it runs");
    for (anchor, ours) in testbed.anchors.iter().zip(measured) {
        let off = (ours / anchor.published - 1.0).abs();
        assert!(
            off < OFF_MAX,
            "{profile}: {}: {ours} for {}",
            anchor.text,
            anchor.published
        );
    }
}

#[test]
fn cx4_keeps_to_its_anchors() {
    keeps_to_its_anchors("cx4");
}

#[test]
fn cx5_keeps_to_its_anchors() {
    keeps_to_its_anchors("cx5");
}

#[test]
fn cx6_keeps_to_its_anchors() {
    keeps_to_its_anchors("cx6");
}

/// A testbed of one number, and a claim that no constant moves.
const SMALL: &str = r#"
profile = "cx6"
testbed = "one client"

[[fitted]]
name = "wire_ns"
start = 300

[[given]]
name = "post_ns"
why = "assumed"

[[anchor]]
text = "READ, us"
source = "nowhere"
published = 3.0
measure = { value = { series = "one", x = 1, key = "latency_us.mean" } }

[[series]]
name = "one"
label = "one client"
clients = [1]
clients_per_cn = 1
duration = "1ms"
probe = { what = "verbs", load = { bytes = [8] } }

[[headline]]
figure = "chime-t1"
claim = "SEARCH, everything cached: round trips"
"#;

#[test]
fn constants_are_fitted_and_each_is_varied() {
    let testbed = Testbed::parse(SMALL).expect("it is right");
    let found: Calibration = calibrate::run(&testbed, true).expect("it runs");
    let [wire] = &found.fitted[..] else {
        panic!("{found:?}");
    };
    // Half of what is missing of 3 us goes to each way.
    let [read] = &found.anchors[..] else {
        panic!("{found:?}");
    };
    assert!((read.fitted - 3.0).abs() < 0.01, "{read:?}");
    let expected_ns = wire.profile + (3.0 - read.profile) * 500.0;
    let fitted_ns = wire.fitted.expect("it was fitted");
    assert!(
        (fitted_ns / expected_ns - 1.0).abs() < 0.01,
        "{fitted_ns}, and not {expected_ns}"
    );

    let [headline] = &found.sensitivity[..] else {
        panic!("{found:?}");
    };
    assert!(headline.verdict.is_ok);
    let changes: Vec<(&str, f64)> = headline
        .moves
        .iter()
        .map(|one| (one.constant.as_str(), one.change))
        .collect();
    assert_eq!(
        changes,
        [("wire_ns", -0.2), ("wire_ns", 0.2), ("post_ns", -0.2), ("post_ns", 0.2)]
    );
    assert!(headline.moves.iter().all(|one| one.is_ok && one.ours == 1.0));

    let text = found.to_text();
    for part in [
        "wire_ns ",
        "assumed",
        "READ, us (nowhere)",
        "chime-t1",
        "  post_ns ",
        "-20 %: 1.00",
        "+20 %: 1.00",
    ] {
        assert!(text.contains(part), "no `{part}` in {text}");
    }
    let json: serde_json::Value = serde_json::from_str(&found.to_json()).expect("JSON");
    assert_eq!(json["fitted"][0]["name"], "wire_ns");
    assert_eq!(json["sensitivity"][0]["moves"].as_array().map(Vec::len), Some(4));
}

#[test]
fn a_file_that_makes_no_sense_is_refused_in_words() {
    for (from, to, reason) in [
        ("\"wire_ns\"", "\"wires_ns\"", "is not a numeric constant"),
        ("\"cx6\"", "\"cx3\"", "no profile `cx3`"),
        ("everything cached: round", "everything: round", "claims nothing like"),
        ("\"chime-t1\"", "\"chime-t9\"", "is not a figure"),
        ("probe = {", "bank = {", "unknown field"),
    ] {
        let error = Testbed::parse(&SMALL.replacen(from, to, 1)).expect_err(reason);
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn an_unknown_profile_is_one_line() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farside-lab"));
    let output = command
        .args(["calibrate", "cx3"])
        .output()
        .expect("the binary is built");
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(said, "farside-lab: `cx3` is not a testbed: choose from cx4, cx5, cx6\n");
}
