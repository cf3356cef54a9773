//! `cargo xtask mutants --generated`: changes that nobody has chosen, each of which some test must notice.
//!
//! Every operator, condition, constant and statement of the protocols is changed in turn (`find`), all at once and behind
//! switches (`plant`), in a copy of the workspace that is built once (`copy`). Every test, and some seeds of every target of
//! the harness, runs once without a mutant and says what it comes past (`probe`). Then each mutant is run against what
//! reaches it, the quickest first, until something fails or the time is up.

mod copy;
mod find;
mod plant;
mod probe;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result, bail};

use self::copy::{Copy, Known};
use self::find::How;
use self::probe::{Probe, Runner, Verdict};
use crate::step;

/// What the tests consist of.
const MEMBERS: [&str; 10] = [
    "farside-fabric",
    "farside-pool",
    "farside-lock",
    "farside-sync",
    "farside-index",
    "farside-kv",
    "farside-rdb",
    "farside-value",
    "farside-gateway",
    "farside-sim",
];
/// The crates whose mutants are made unless one is named.
const PACKAGES: [&str; 5] = [
    "farside-pool",
    "farside-lock",
    "farside-sync",
    "farside-index",
    "farside-kv",
];
/// Mutants that may survive, with the reason.
const ACCEPTED: &str = "xtask/mutants.toml";
/// Mutants that `--brief` does not notice, of the crates of which it has run every one.
const SURVIVORS: &str = "xtask/survivors.tsv";
/// These crates.
const LISTED: [&str; 4] = ["farside-pool", "farside-sync", "farside-lock", "farside-kv"];
/// What became of each, in the runs so far.
const FATES: &str = "target/mutants/fates.tsv";
/// So many of the probes that have noticed others beside a mutant come first.
const KILLERS: usize = 4;
/// Seeds of each target at first,
const SEEDS: u64 = 30;
/// and in brief.
const SEEDS_BRIEF: u64 = 4;
/// How many times as long a mutant that nobody knows is run once more before it counts as a survivor, in brief.
const LONGER: u64 = 4;
/// How many times as many if nothing has failed,
const TIMES: u64 = 10;
/// of how many targets.
const TARGETS: usize = 8;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Change operators, conditions, constants and statements of the protocols one by one, instead of the bugs that were
    /// planted by hand
    #[arg(long)]
    generated: bool,
    /// Only so many mutants, chosen by chance
    #[arg(long, requires = "generated")]
    sample: Option<usize>,
    /// What chance begins with; printed, fresh unless it is given
    #[arg(long, requires = "generated")]
    seed: Option<u64>,
    /// Only this crate; may be given several times
    #[arg(long, short, requires = "generated")]
    package: Vec<String>,
    /// Only mutants whose file or function has this in its name, or one of these with commas between
    #[arg(long, requires = "generated")]
    within: Option<String>,
    /// Only mutants that earlier runs have not noticed, or not come to
    #[arg(long, requires = "generated")]
    missed: bool,
    /// Only tests of the crates that are changed, and few seeds, always the same: a survivor that `xtask/survivors.tsv` does
    /// not list is an error. Without `-p` the crates that it lists are meant
    #[arg(long, requires = "generated", conflicts_with_all = ["missed", "rate"])]
    brief: bool,
    /// List what survives
    #[arg(long, requires = "brief", conflicts_with = "sample")]
    renew: bool,
    /// For how many seconds a mutant is run against tests
    #[arg(long, default_value_t = 60, requires = "generated")]
    seconds: u64,
    /// Of the bugs that were planted by hand, say how many of so many seeds notice each
    #[arg(long, value_name = "SEEDS", conflicts_with = "generated")]
    rate: Option<u64>,
    /// Only print the mutants
    #[arg(long, requires = "generated")]
    list: bool,
}

impl Options {
    /// What CI runs: so many mutants.
    pub(crate) fn brief(sample: usize) -> Self {
        Self {
            generated: true,
            sample: Some(sample),
            seed: None,
            package: Vec::new(),
            within: None,
            missed: false,
            brief: true,
            renew: false,
            seconds: 10,
            rate: None,
            list: false,
        }
    }

    /// Whether mutants are made.
    pub(crate) fn is_generated(&self) -> bool {
        self.generated
    }

    /// How many seeds look for each bug that was planted by hand, if all of them do.
    pub(crate) fn rate(&self) -> Option<u64> {
        self.rate
    }
}

/// A mutant that may survive.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Accepted {
    file: String,
    function: String,
    change: String,
}

/// What became of a mutant.
enum Fate {
    /// No test comes past it.
    NotReached,
    /// This noticed it.
    Killed(String),
    Hung,
    Survived,
    /// It may survive.
    Accepted,
}

impl Fate {
    const SURVIVES: &str = "SURVIVES";
    const NEVER_REACHED: &str = "NEVER REACHED";

    /// Whether nothing has noticed it.
    fn is_missed(&self) -> bool {
        matches!(self, Self::Survived | Self::NotReached)
    }
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotReached => Self::NEVER_REACHED,
            Self::Killed(by) => by,
            Self::Hung => "does not end",
            Self::Survived => Self::SURVIVES,
            Self::Accepted => "may survive",
        })
    }
}

/// What the list of survivors names is still there: seen in a second, before anything is built.
pub(crate) fn check_list() -> Result<()> {
    Survivors::read()?.check(&LISTED, &copy::all_mutants(&LISTED)?)
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let member = |name: &String| {
        let found = MEMBERS.iter().find(|known| *known == name).copied();
        found.with_context(|| format!("there are no mutants of {name}, but of {}", MEMBERS.join(", ")))
    };
    let packages = match options.package.as_slice() {
        [] if options.brief => LISTED.to_vec(),
        [] => PACKAGES.to_vec(),
        names => names.iter().map(member).collect::<Result<_>>()?,
    };
    let mut known = copy::all_mutants(&packages)?;
    let mut survivors = Survivors::read()?;
    if options.brief && !options.renew {
        survivors.check(&packages, &known)?;
    }
    if let Some(part) = &options.within {
        let is_meant = |known: &Known, part: &str| {
            known.file.to_string_lossy().contains(part) || known.mutant.function.contains(part)
        };
        known.retain(|known| part.split(',').any(|part| is_meant(known, part)));
        if known.is_empty() {
            bail!(
                "no file or function of {} has `{part}` in its name",
                packages.join(", ")
            );
        }
    }
    let fates = Fates::read(step::workspace_root().join(FATES));
    if options.missed {
        known.retain(|known| !fates.is_noticed(known));
    }
    let seed = options.seed.unwrap_or_else(crate::sim::fresh_seed);
    let mut packages = packages;
    if options.brief && options.sample.is_some() && options.package.is_empty() {
        // Those of one crate, so that only its tests are built.
        let drawn = choose(known.len(), Some(1), seed);
        packages = drawn.iter().map(|&number| known[number as usize].package).collect();
        known.retain(|known| packages.contains(&known.package));
    }
    let packages = packages;
    let accepted = MaySurvive::read()?;
    let total = known.len();
    let chosen = choose(total, options.sample, seed);
    let names = packages.join(", ");
    eprintln!("==> {} of {total} mutants of {names}, seed {seed}", chosen.len());
    if options.list {
        for &number in &chosen {
            println!("{}", describe(&known[number as usize]));
        }
        return Ok(());
    }
    let (tests_of, untested) = match options.brief {
        // Tests of the harness itself are not among the probes.
        true => (
            packages.iter().copied().chain([probe::HARNESS]).collect(),
            Some(probe::HARNESS),
        ),
        false => (Vec::new(), None),
    };
    let copy = Copy::make(&MEMBERS, tests_of, untested)?;
    eprintln!("==> building the tests with all of them");
    let all = chosen.len();
    let ((programs, chosen), seconds) = {
        let (built, seconds) = step::timed(|| copy.build(&known, chosen));
        (built?, seconds)
    };
    eprintln!(
        "    {} that the compiler takes, of {all}, after {seconds} s",
        chosen.len()
    );

    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let runner = |core| Runner {
        programs: &programs,
        core,
        // What survives in brief is listed, so it always is the same.
        seed: if options.brief { 1 } else { seed },
        folder: copy.root(),
    };
    let mut probes = Probe::all(&programs, if options.brief { SEEDS_BRIEF } else { SEEDS })?;
    if options.brief {
        // Tests of the harness are about all crates, and take long.
        let is_meant = |probe: &Probe| probe.is_simulated() || programs[probe.program].package != probe::HARNESS;
        probes.retain(is_meant);
    }
    eprintln!("==> {} tests and targets without a mutant", probes.len());
    let (probes, seconds) = step::timed(|| learn(probes, cores, &runner));
    let mut probes = probes?;
    probes.sort_by_key(|probe| probe.millis);
    eprintln!("    took {seconds} s");

    eprintln!("==> each mutant");
    let mut numbers: Vec<u32> = chosen.into_iter().collect();
    // First those that no run has come to yet.
    numbers.sort_by_key(|&number| fates.by_change.contains_key(&key(&known[number as usize])));
    let jury = Jury {
        probes: &probes,
        killers: Mutex::default(),
    };
    let fates = Mutex::new(fates);
    let judge = |core, number| {
        let known = &known[number as usize];
        let mut fate = match accepted.includes(known) {
            true => Fate::Accepted,
            false => jury.judge(&runner(core), known, number, options.seconds)?,
        };
        if options.brief && fate.is_missed() && !options.renew && !survivors.changes.contains(&key(known)) {
            fate = jury.judge(&runner(core), known, number, LONGER * options.seconds)?;
        }
        fates.lock().expect("nobody panics with it").note(known, &fate)?;
        Ok(fate)
    };
    let judged = judge_each(&known, &numbers, cores, &judge)?;
    let missed = report(&packages, &known, &judged);
    if !options.brief {
        if missed > 0 {
            bail!("{missed} mutants are not noticed; {ACCEPTED} lists those that may survive");
        }
        return Ok(());
    }
    let missed = judged.iter().filter(|(_, fate)| fate.is_missed());
    let missed: BTreeSet<_> = missed.map(|(&number, _)| key(&known[number as usize])).collect();
    if options.renew {
        return survivors.renew(&packages, missed);
    }
    let new: Vec<_> = missed.difference(&survivors.changes).collect();
    if !new.is_empty() {
        let names: Vec<_> = new.iter().map(|change| format!("  {change}")).collect();
        bail!(
            "{} mutants survive that {SURVIVORS} does not list (seed {seed}): a check is missing, or the code is not needed\n{}",
            new.len(),
            names.join("\n")
        );
    }
    Ok(())
}

/// What becomes of each of these mutants; says which are not noticed as it goes.
fn judge_each(
    known: &[Known],
    numbers: &[u32],
    cores: usize,
    judge: &(dyn Fn(usize, u32) -> Result<Fate> + Sync),
) -> Result<BTreeMap<u32, Fate>> {
    const EVERY: usize = 50;
    let fates = Mutex::new(BTreeMap::new());
    let next = AtomicUsize::new(0);
    on_each_core(cores, &|core| {
        loop {
            // Relaxed: each place is taken once.
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(&number) = numbers.get(at) else {
                return Ok(());
            };
            let fate = judge(core, number)?;
            let mutant = &known[number as usize];
            match &fate {
                Fate::Survived => eprintln!("    survives: {}", describe(mutant)),
                Fate::NotReached => eprintln!("    never reached: {}", describe(mutant)),
                _ => {}
            }
            if (at + 1).is_multiple_of(EVERY) {
                eprintln!("    {} of {}", at + 1, numbers.len());
            }
            fates.lock().expect("nobody panics with it").insert(number, fate);
        }
    })?;
    Ok(fates.into_inner().expect("nobody panics with it"))
}

/// Does this in a thread for each core; fails if one does.
fn on_each_core(cores: usize, work: &(dyn Fn(usize) -> Result<()> + Sync)) -> Result<()> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|core| scope.spawn(move || work(core))).collect();
        let mut ended = threads
            .into_iter()
            .map(|thread| thread.join().expect("it does not panic"));
        ended.try_for_each(|outcome| outcome)
    })
}

/// A sample of the numbers below `total`.
fn choose(total: usize, sample: Option<usize>, seed: u64) -> BTreeSet<u32> {
    let mut numbers: Vec<u32> = (0..total as u32).collect();
    let count = sample.unwrap_or(total).min(total);
    // splitmix64.
    let mut state = seed;
    let mut random = move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    for at in 0..count {
        let other = at + (random() % (total - at) as u64) as usize;
        numbers.swap(at, other);
    }
    numbers.truncate(count);
    numbers.into_iter().collect()
}

/// Runs every probe without a mutant; those that fail are left out, and named.
fn learn<'a>(probes: Vec<Probe>, cores: usize, runner: &(dyn Fn(usize) -> Runner<'a> + Sync)) -> Result<Vec<Probe>> {
    let left = Mutex::new(probes.into_iter());
    let learned = Mutex::new(Vec::new());
    let learn_all = |core| -> Result<()> {
        let runner = runner(core);
        loop {
            let next = left.lock().expect("nobody panics with it").next();
            let Some(mut probe) = next else {
                return Ok(());
            };
            if runner.learn(&mut probe)? {
                learned.lock().expect("nobody panics with it").push(probe);
            } else {
                eprintln!(
                    "    fails without a mutant, and is left out: {}",
                    probe.name(runner.programs)
                );
            }
        }
    };
    on_each_core(cores, &learn_all)?;
    Ok(learned.into_inner().expect("nobody panics with it"))
}

/// What decides about mutants.
struct Jury<'p> {
    /// The quickest first.
    probes: &'p [Probe],
    /// Which probes have noticed mutants of the same function, and of the same file, the last one last.
    killers: Mutex<BTreeMap<String, Vec<usize>>>,
}

impl Jury<'_> {
    /// Runs a mutant against what reaches it: first what has noticed others beside it.
    fn judge(&self, runner: &Runner<'_>, known: &Known, number: u32, seconds: u64) -> Result<Fate> {
        let reach = (0..self.probes.len()).filter(|&at| self.probes[at].reached.contains(&number));
        let (targets, tests): (Vec<usize>, Vec<usize>) = reach.partition(|&at| self.probes[at].is_simulated());
        if targets.is_empty() && tests.is_empty() {
            return Ok(Fate::NotReached);
        }
        let is_own = |at: &usize| runner.programs[self.probes[*at].program].package == known.package;
        let (own, others): (Vec<usize>, Vec<usize>) = tests.into_iter().partition(is_own);
        // Targets that reach it in their first seeds are many and alike: some of them say as much as all, and run for longer.
        let step = targets.len().div_ceil(TARGETS).max(1);
        let (some, rest): (Vec<usize>, Vec<usize>) = (0..targets.len()).partition(|place| place.is_multiple_of(step));
        let pick = |places: Vec<usize>| places.into_iter().map(|place| targets[place]).collect::<Vec<_>>();
        let (some, rest) = (pick(some), pick(rest));
        let file = known.file.to_string_lossy().into_owned();
        let places = [format!("{file} {}", known.mutant.function), file];
        let mut once: Vec<usize> = own.into_iter().chain(some.iter().copied()).chain(others).collect();
        {
            let killers = self.killers.lock().expect("nobody panics with it");
            once.sort_by_key(|at| {
                let ranks = places.iter().enumerate().filter_map(|(order, place)| {
                    let before = killers.get(place)?;
                    let back = before.iter().rev().take(KILLERS).position(|killer| killer == at)?;
                    Some((order, back))
                });
                ranks.min().unwrap_or((places.len(), 0))
            });
        }
        let longer = some.into_iter().map(|at| (at, TIMES));
        let runs = once
            .into_iter()
            .map(|at| (at, 1))
            .chain(longer)
            .chain(rest.into_iter().map(|at| (at, 1)));
        let mut left_ms = seconds * 1000;
        for (at, times) in runs {
            let probe = &self.probes[at];
            let cost_ms = probe.millis * times;
            if cost_ms > left_ms {
                continue;
            }
            left_ms -= cost_ms;
            let fate = match runner.run(probe, number, times)? {
                Verdict::Held => continue,
                Verdict::Hung => Fate::Hung,
                Verdict::Failed => Fate::Killed(probe.name(runner.programs)),
            };
            let mut killers = self.killers.lock().expect("nobody panics with it");
            for place in places {
                killers.entry(place).or_default().push(at);
            }
            return Ok(fate);
        }
        Ok(Fate::Survived)
    }
}

/// What became of mutants, in this run and in earlier ones, by what `describe` says without the line.
struct Fates {
    path: PathBuf,
    by_change: BTreeMap<Accepted, String>,
    /// Those that this run has not noticed. Two changes of a function can look the same: one of them suffices.
    missed: BTreeSet<Accepted>,
}

impl Fates {
    /// Those of earlier runs.
    fn read(path: PathBuf) -> Self {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let entries = text.lines().filter_map(|line| {
            let mut fields = line.splitn(4, '\t').map(str::to_owned);
            let mut next = || fields.next();
            let (fate, file, function, change) = (next()?, next()?, next()?, next()?);
            Some((Accepted { file, function, change }, fate))
        });
        Self {
            by_change: entries.collect(),
            path,
            missed: BTreeSet::new(),
        }
    }

    fn is_noticed(&self, known: &Known) -> bool {
        let fate = self.by_change.get(&key(known));
        fate.is_some_and(|fate| fate != Fate::SURVIVES && fate != Fate::NEVER_REACHED)
    }

    /// Notes one, and keeps all.
    fn note(&mut self, known: &Known, fate: &Fate) -> Result<()> {
        if matches!(fate, Fate::Survived | Fate::NotReached) {
            self.missed.insert(key(known));
        } else if self.missed.contains(&key(known)) {
            return Ok(());
        }
        self.by_change.insert(key(known), fate.to_string());
        let mut text = String::new();
        for (Accepted { file, function, change }, fate) in &self.by_change {
            writeln!(text, "{fate}\t{file}\t{function}\t{change}")?;
        }
        std::fs::write(&self.path, text).with_context(|| format!("failed to write {}", self.path.display()))
    }
}

impl fmt::Display for Accepted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.file, self.function, self.change)
    }
}

/// The list of what `--brief` does not notice.
struct Survivors {
    changes: BTreeSet<Accepted>,
}

impl Survivors {
    fn read() -> Result<Self> {
        let path = step::workspace_root().join(SURVIVORS);
        let text = std::fs::read_to_string(&path).with_context(|| format!("failed to read {SURVIVORS}"))?;
        let entry = |line: &str| {
            let mut fields = line.splitn(3, '\t').map(str::to_owned);
            let mut field = || {
                let field = fields.next();
                field.with_context(|| format!("a line of {SURVIVORS} has no file, function and change: {line}"))
            };
            Ok(Accepted {
                file: field()?,
                function: field()?,
                change: field()?,
            })
        };
        let changes = text.lines().map(entry).collect::<Result<_>>()?;
        Ok(Self { changes })
    }

    fn is_of(change: &Accepted, packages: &[&str]) -> bool {
        let is_in = |package: &&str| change.file.starts_with(&format!("crates/{package}/"));
        packages.iter().any(is_in)
    }

    /// What is listed of these crates can still be changed.
    fn check(&self, packages: &[&str], known: &[Known]) -> Result<()> {
        let known: BTreeSet<_> = known.iter().map(key).collect();
        let gone = self.changes.difference(&known);
        let gone: Vec<_> = gone.filter(|change| Self::is_of(change, packages)).collect();
        if !gone.is_empty() {
            let lines: Vec<_> = gone.iter().map(|change| format!("  {change}")).collect();
            bail!(
                "{SURVIVORS} lists what is not there any more; delete these lines:\n{}",
                lines.join("\n")
            );
        }
        Ok(())
    }

    /// Lists these of the crates instead of what was listed of them before.
    fn renew(&mut self, packages: &[&str], missed: BTreeSet<Accepted>) -> Result<()> {
        self.changes.retain(|change| !Self::is_of(change, packages));
        self.changes.extend(missed);
        let mut text = String::new();
        for Accepted { file, function, change } in &self.changes {
            writeln!(text, "{file}\t{function}\t{change}")?;
        }
        std::fs::write(step::workspace_root().join(SURVIVORS), text)
            .with_context(|| format!("failed to write {SURVIVORS}"))
    }
}

/// Which mutants may survive.
#[derive(Default)]
struct MaySurvive {
    changes: BTreeSet<Accepted>,
    /// Constants that may be larger or smaller by one wherever they are used.
    constants: BTreeSet<String>,
}

impl MaySurvive {
    fn read() -> Result<Self> {
        let path = step::workspace_root().join(ACCEPTED);
        let text = std::fs::read_to_string(&path).with_context(|| format!("failed to read {ACCEPTED}"))?;
        let table: toml::Table = text.parse().with_context(|| format!("failed to parse {ACCEPTED}"))?;
        let entries = |kind: &str| {
            let entries = table.get(kind).and_then(toml::Value::as_array);
            entries.map(Vec::as_slice).unwrap_or_default()
        };
        let field = |entry: &toml::Value, name: &str| {
            let text = entry.get(name).and_then(toml::Value::as_str);
            text.map(str::to_owned)
                .with_context(|| format!("an entry of {ACCEPTED} has no `{name}`"))
        };
        let mut all = Self::default();
        for entry in entries("accepted") {
            field(entry, "why")?;
            all.changes.insert(Accepted {
                file: field(entry, "file")?,
                function: field(entry, "function")?,
                change: field(entry, "change")?,
            });
        }
        for entry in entries("constant") {
            field(entry, "why")?;
            all.constants.insert(field(entry, "name")?);
        }
        Ok(all)
    }

    fn includes(&self, known: &Known) -> bool {
        let is_by_one = |other: &str| {
            [" - 1", " + 1"]
                .iter()
                .any(|by| other.strip_suffix(by) == Some(&known.text))
        };
        self.changes.contains(&key(known))
            || matches!(&known.mutant.how, How::Replace(other) if self.constants.contains(&known.text) && is_by_one(other))
    }
}

fn key(known: &Known) -> Accepted {
    Accepted {
        file: known.file.to_string_lossy().into_owned(),
        function: known.mutant.function.clone(),
        change: change(known),
    }
}

/// What a mutant does, in one line.
fn change(known: &Known) -> String {
    let short = |text: &str| {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        match text.char_indices().nth(100) {
            Some((end, _)) => format!("{}...", &text[..end]),
            None => text,
        }
    };
    match &known.mutant.how {
        How::Replace(other) => format!("{} -> {}", short(&known.text), short(other)),
        How::LeaveOut => format!("without {}", short(&known.text)),
        How::Return(value) => format!("returns {value} at once"),
    }
}

fn describe(known: &Known) -> String {
    let Accepted { file, function, change } = key(known);
    format!("{file}:{} {function}: {change}", known.mutant.line)
}

/// Says how many mutants of each crate were noticed; returns how many were not.
fn report(packages: &[&str], known: &[Known], fates: &BTreeMap<u32, Fate>) -> u32 {
    let mut missed = 0;
    for package in packages {
        let mut counts = [0_u32; 5];
        for (&number, fate) in fates {
            if known[number as usize].package == *package {
                let kind = match fate {
                    Fate::Killed(_) => 0,
                    Fate::Hung => 1,
                    Fate::NotReached => 2,
                    Fate::Survived => 3,
                    Fate::Accepted => 4,
                };
                counts[kind] += 1;
            }
        }
        let [failed, hung, unreached, survived, accepted] = counts;
        let (killed, all) = (failed + hung, failed + hung + unreached + survived);
        missed += unreached + survived;
        println!(
            "{package}: {killed} of {all} noticed ({:.1} %; {hung} did not end), {survived} survive, {unreached} are never \
             reached, {accepted} may survive",
            100.0 * f64::from(killed) / f64::from(all.max(1))
        );
    }
    println!("each by itself: {FATES}");
    missed
}
