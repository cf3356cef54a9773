//! The swarm: plans drawn from seeds, over every target.
//!
//! `FARSIDE_SEED` says where seeds begin, and `FARSIDE_SEEDS` how many there are, each of which draws its target;
//! `FARSIDE_EACH` runs so many of every target instead, and `FARSIDE_SECONDS` as many as fit in a time. `FARSIDE_TARGET` says
//! which targets (a name, or a part of one), `FARSIDE_PLAN` names a file with one plan to replay instead, `FARSIDE_SHRINK` says
//! with how many runs a failing plan is made small (0: not at all). `cargo xtask sim` sets them.

use std::sync::atomic::{AtomicU64, Ordering};

use farside_fabric::host::HostClock;
use farside_sim::plan::{Aim, Disturbance, Plan, Work};
use farside_sim::swarm::{Runs, swarm};
use farside_sim::{Coverage, Failure, Target, draw, execute, shrink};

pub(crate) fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{name} is a number, not {text}")))
}

fn targets() -> Vec<Target> {
    let part = std::env::var("FARSIDE_TARGET").unwrap_or_default();
    let targets = Target::by_name(&part).map_or_else(|| Target::matching(&part), |target| vec![target]);
    let names = || Target::all().iter().map(Target::name).collect::<Vec<_>>().join(", ");
    assert!(
        !targets.is_empty(),
        "no target has `{part}` in its name; there are {}",
        names()
    );
    targets
}

/// Says how a plan fails, and keeps a smaller one that does.
fn report(runs: Runs, plan: &Plan, failure: &Failure) -> String {
    let mut text = format!("seed {} ({}) fails: {failure}\n", plan.seed, plan.target);
    let part = match runs {
        Runs::Seeds { .. } => std::env::var("FARSIDE_TARGET").ok(),
        Runs::Each { .. } => Some(plan.target.clone()),
    };
    let target = part.map_or_else(String::new, |part| format!(" --target {part}"));
    text.push_str(&format!(
        "replay it with: cargo xtask sim -p farside-sim --seeds 1 --seed {}{target}\n",
        plan.seed
    ));
    let runs_max = setting("FARSIDE_SHRINK").unwrap_or(400);
    if runs_max == 0 {
        return text;
    }
    let shrunk = shrink::shrink(plan, failure.clone(), runs_max);
    let folder = std::env::var("CARGO_TARGET_TMPDIR").map_or_else(|_| std::env::temp_dir(), Into::into);
    let path = folder.join(format!("farside-plan-{}.json", plan.seed));
    let json = serde_json::to_string_pretty(&shrunk.plan).expect("plans are plain data");
    let kept = std::fs::write(&path, json);
    text.push_str(&format!(
        "made small from {} to {} parts in {} runs: {}\n",
        plan.size(),
        shrunk.plan.size(),
        shrunk.runs,
        shrunk.failure
    ));
    match kept {
        Ok(()) => text.push_str(&format!(
            "replay the small plan with: cargo xtask sim --plan {}\n",
            path.display()
        )),
        Err(error) => text.push_str(&format!("the small plan could not be kept: {error}\n")),
    }
    text
}

#[test]
fn a_swarm_of_plans_holds() {
    if let Ok(path) = std::env::var("FARSIDE_PLAN") {
        return replay(&path);
    }
    let targets = targets();
    let first = setting("FARSIDE_SEED").unwrap_or(1);
    let runs = match (
        setting("FARSIDE_SECONDS"),
        setting("FARSIDE_EACH"),
        setting("FARSIDE_SEEDS"),
    ) {
        (Some(_), count, _) => Runs::Each {
            first,
            count: count.unwrap_or(u64::MAX),
        },
        (_, Some(count), _) => Runs::Each { first, count },
        (.., count) => Runs::Seeds {
            first,
            count: count.unwrap_or(60),
        },
    };
    let (found, done) = make(runs, &targets);
    println!("{runs:?}\n{}", found.coverage);
    summary(&targets, &found.coverage);
    for (plan, failure) in &found.failures {
        println!("{}", report(runs, plan, failure));
    }
    assert_eq!(found.failures.len(), 0, "plans fail; see above");
    assert!(
        found.coverage.sum("operations answered") > 10 * done,
        "the swarm did little"
    );
}

/// Makes the runs, and says every few seconds how far it has come; returns how many were made.
fn make(runs: Runs, targets: &[Target]) -> (farside_sim::swarm::Swarm, u64) {
    const EVERY_S: u64 = 10;
    let begin_ns = HostClock.now_ns();
    let time = setting("FARSIDE_SECONDS");
    let said = AtomicU64::new(0);
    let found = swarm(runs, targets, &|at| {
        let elapsed = (HostClock.now_ns() - begin_ns) / 1_000_000_000;
        let turn = elapsed / EVERY_S;
        // Relaxed: whoever raises it speaks.
        if said.fetch_max(turn, Ordering::Relaxed) < turn {
            eprintln!("    {elapsed} s: {at} runs");
        }
        time.is_none_or(|time| elapsed < time)
    });
    let done = found.coverage.sum("runs");
    (found, done)
}

/// Says what was run least.
fn summary(targets: &[Target], coverage: &Coverage) {
    let runs = |target: &Target| coverage.of("runs", &target.name());
    let least = targets.iter().min_by_key(|target| runs(target)).expect("a target");
    println!(
        "{} runs of {} targets; the fewest, {}, of {}",
        coverage.sum("runs"),
        targets.len(),
        runs(least),
        least.name()
    );
    places(targets, coverage);
}

/// Says which places of the protocols each target came past seldom, and which nobody did.
fn places(targets: &[Target], coverage: &Coverage) {
    /// Seldom is in one run of so many.
    const SELDOM: u64 = 500;
    let mut never: Vec<&str> = super::mutants::places().collect();
    println!(
        "\nplaces where a bug can be planted, by target: how many its runs came past, and which of them in at most one run of {SELDOM}"
    );
    for target in targets {
        let (name, runs) = (target.name(), coverage.of("runs", &target.name()));
        let passed: Vec<_> = super::mutants::places()
            .map(|place| (place, coverage.passed(&name, place)))
            .filter(|&(_, times)| times > 0)
            .collect();
        never.retain(|place| !passed.iter().any(|(known, _)| known == place));
        let seldom: Vec<_> = passed.iter().filter(|&&(_, times)| times * SELDOM <= runs).collect();
        let seldom = seldom.iter().map(|(place, times)| format!("; {place} ({times})"));
        println!("  {name:<48} {:>3}{}", passed.len(), seldom.collect::<String>());
    }
    println!(
        "places that no run came past: {}",
        if never.is_empty() {
            "none".to_owned()
        } else {
            never.join("; ")
        }
    );
}

fn replay(path: &str) {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let plan: Plan = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path} is no plan: {error}"));
    let outcome = execute(&plan);
    println!("{}", outcome.coverage);
    if let Some(failure) = outcome.failure {
        panic!("the plan fails: {failure}");
    }
}

/// Plans that once found bugs, made small: see `docs/testing.md`.
#[test]
fn bugs_that_were_found_stay_away() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("plans");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).expect("the plans are there") {
        let path = entry.expect("an entry").path();
        replay(&path.display().to_string());
        count += 1;
    }
    assert!(count >= 8, "only {count} plans");
}

#[test]
fn a_seed_always_gives_the_same_run() {
    let targets = Target::all();
    for seed in 1000..1012 {
        let plan = draw::plan(seed, &targets);
        assert_eq!(plan, draw::plan(seed, &targets));
        assert_eq!(execute(&plan), execute(&plan), "seed {seed}");
    }
    assert_ne!(draw::plan(1, &targets), draw::plan(2, &targets));
}

#[test]
fn plans_survive_a_file() {
    for seed in 0..200 {
        let plan = draw::plan(seed, &Target::all());
        let json = serde_json::to_string(&plan).expect("plain data");
        assert_eq!(serde_json::from_str::<Plan>(&json).expect("what was written"), plan);
    }
}

/// Some thousand plans draw every kind of fault and of work, and every target.
#[test]
fn drawing_reaches_everything() {
    let mut faults = std::collections::BTreeSet::new();
    let mut work = std::collections::BTreeSet::new();
    let mut names = std::collections::BTreeSet::new();
    let mut traits = std::collections::BTreeSet::new();
    let targets = Target::all();
    for seed in 0..2000 {
        let plan = draw::plan(seed, &targets);
        faults.extend(plan.faults.iter().map(|fault| fault.what.name()));
        names.insert(plan.target.clone());
        let setup = &plan.setup;
        let drawn = [
            (setup.is_swept, "swept"),
            (setup.is_mapped, "mapped"),
            (setup.eviction.is_some(), "evicting"),
            (setup.lull_one_in > 0, "held back"),
            (setup.lull_aim == Aim::Writers, "writers held back"),
            (setup.lull_aim == Aim::Paces, "paces"),
            (setup.lull_aim == Aim::Lines, "lines"),
        ];
        traits.extend(drawn.into_iter().filter_map(|(is_so, name)| is_so.then_some(name)));
        for piece in plan.actors.iter().flat_map(|actor| &actor.work) {
            work.insert(match piece {
                Work::Call { call, .. } => format!("{call:?}").split('(').next().unwrap_or_default().to_owned(),
                Work::Think(_) => "think".to_owned(),
                Work::GetMany(_) => "get_many".to_owned(),
                Work::PutMany(_) => "put_many".to_owned(),
                Work::DeleteMany(_) => "delete_many".to_owned(),
                Work::Together(_) => "together".to_owned(),
                Work::Scan => "scan".to_owned(),
                Work::Range { .. } => "range".to_owned(),
                Work::Critical { .. } => "critical".to_owned(),
            });
        }
    }
    assert_eq!(faults.len(), Disturbance::NAMES.len(), "{faults:?}");
    assert_eq!(work.len(), 15, "{work:?}");
    assert_eq!(names.len(), targets.len());
    assert_eq!(traits.len(), 7, "{traits:?}");
}
