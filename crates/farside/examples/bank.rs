//! A bank: processes transfer money between accounts, some are killed in the middle of it, and no coin is lost.
//!
//! ```text
//! cargo run --release --example bank -- [--processes 3] [--accounts 20] [--kills 20] [--pool shm:PATH|tcp:HOST:PORT]
//! ```
//!
//! The first process opens the accounts, starts the others, and kills one after the other, as `kill -9` does. Each time it
//! starts another one in its place, and adds all accounts up: in one transaction, so that it sees them as they are at one instant.

#![forbid(unsafe_code)]

use core::time::Duration;
use std::process::{Child, Command, ExitCode, Stdio};

use clap::Parser;
use farside::blocking::{Session, Store};
use farside::{Error, Options};

const MEMORY_BYTES: u64 = 64 << 20;
/// What each account has at first.
const START: i64 = 1000;
/// How long the others work between two deaths.
const PAUSE: Duration = Duration::from_millis(20);

/// What every process is told.
#[derive(Parser)]
struct Plan {
    /// How many processes make transfers
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    processes: u64,
    /// How many accounts there are
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(2..=10_000))]
    accounts: u64,
    /// How often one of them is killed
    #[arg(long, default_value_t = 20)]
    kills: u64,
    /// Where the memory is; of this machine if nothing is said
    #[arg(long)]
    pool: Option<String>,
    /// Whether this is one of the processes that were started, and where its dice begin
    #[arg(long, hide = true)]
    teller: Option<u64>,
}

fn main() -> ExitCode {
    let plan = Plan::parse();
    let result = match (plan.teller, &plan.pool) {
        (Some(seed), Some(pool)) => transfer_for_ever(&plan, pool, seed).map_err(|error| error.to_string()),
        _ => lead(&plan),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(line) => {
            eprintln!("bank: {line}");
            ExitCode::FAILURE
        }
    }
}

/// Opens the accounts, starts the others, kills them, and adds up.
fn lead(plan: &Plan) -> Result<(), String> {
    let say = |error: Error| error.to_string();
    let folder = tempfile::tempdir().map_err(|error| format!("no folder for the accounts: {error}"))?;
    let segment = folder.path().join("bank.segment");
    let pool = match &plan.pool {
        Some(pool) => pool.clone(),
        None => format!("shm:{}", segment.display()),
    };
    let options = match &plan.pool {
        Some(pool) => Options::pool(pool).map_err(say)?,
        None => Options::segment(&segment, MEMORY_BYTES),
    };
    let store = Store::open(options).map_err(say)?;
    let mut session = store.session().map_err(say)?;
    let keys = keys(plan);
    let opened = session.transaction_on(&keys, |transaction| {
        for key in &keys {
            transaction.put(key, &START.to_le_bytes())?;
        }
        Ok(())
    });
    opened.map_err(say)?;
    let mut tellers = Tellers::default();
    for seed in 0..plan.processes {
        tellers.start(plan, &pool, seed)?;
    }
    for kill in 0..plan.kills {
        #[expect(clippy::disallowed_methods, reason = "the tellers shall do something meanwhile")]
        std::thread::sleep(PAUSE);
        tellers.kill_first()?;
        tellers.start(plan, &pool, plan.processes + kill)?;
        add_up(plan, &mut session, kill + 1)?;
    }
    while !tellers.0.is_empty() {
        tellers.kill_first()?;
    }
    let transfers = add_up(plan, &mut session, plan.kills)?;
    println!(
        "{transfers} transfers, {} processes killed among them, no coin lost",
        plan.kills
    );
    Ok(())
}

/// The processes that make transfers; none outlives the first one.
#[derive(Default)]
struct Tellers(Vec<Child>);

impl Tellers {
    fn start(&mut self, plan: &Plan, pool: &str, seed: u64) -> Result<(), String> {
        let own = std::env::current_exe().map_err(|error| format!("where am I? {error}"))?;
        let mut command = Command::new(own);
        command.args(["--accounts", &plan.accounts.to_string(), "--pool", pool]);
        command.args(["--teller", &seed.to_string()]).stdin(Stdio::null());
        let started = command.spawn();
        self.0
            .push(started.map_err(|error| format!("cannot start a process: {error}"))?);
        Ok(())
    }

    fn kill_first(&mut self) -> Result<(), String> {
        let mut teller = self.0.remove(0);
        if let Some(status) = teller.try_wait().map_err(|error| error.to_string())? {
            return Err(format!("a process has failed: {status}"));
        }
        teller.kill().map_err(|error| error.to_string())?;
        teller.wait().map(drop).map_err(|error| error.to_string())
    }
}

impl Drop for Tellers {
    fn drop(&mut self) {
        for teller in &mut self.0 {
            // It may have ended by itself.
            let _ = teller.kill().and_then(|()| teller.wait());
        }
    }
}

/// Checks that nothing is lost; returns how many transfers were made.
fn add_up(plan: &Plan, session: &mut Session, kills: u64) -> Result<i64, String> {
    let mut keys = keys(plan);
    keys.push(COUNT.to_vec());
    let summed = session.transaction_on(&keys, |transaction| {
        let mut sum = 0;
        for key in &keys[..keys.len() - 1] {
            sum += number(transaction.get(key)?);
        }
        Ok((sum, number(transaction.get(COUNT)?)))
    });
    let (sum, transfers) = summed.map_err(|error| error.to_string())?;
    let expected = START * plan.accounts as i64;
    if sum != expected {
        return Err(format!("after {kills} kills the accounts have {sum}, not {expected}"));
    }
    Ok(transfers)
}

/// Makes transfers until it is killed.
fn transfer_for_ever(plan: &Plan, pool: &str, seed: u64) -> Result<(), Error> {
    let store = Store::open(Options::pool(pool)?)?;
    let mut session = store.session()?;
    let keys = keys(plan);
    let mut dice = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut roll = |sides: u64| {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        dice % sides
    };
    loop {
        let from = roll(plan.accounts);
        let to = (from + 1 + roll(plan.accounts - 1)) % plan.accounts;
        let amount = 1 + roll(100) as i64;
        let (from, to) = (&keys[from as usize], &keys[to as usize]);
        session.transaction_on(&[from, to, COUNT], |transaction| {
            let left = number(transaction.get(from)?) - amount;
            if left < 0 {
                return Ok(());
            }
            let more = number(transaction.get(to)?) + amount;
            let count = number(transaction.get(COUNT)?) + 1;
            transaction.put(from, &left.to_le_bytes())?;
            transaction.put(to, &more.to_le_bytes())?;
            transaction.put(COUNT, &count.to_le_bytes())?;
            Ok(())
        })?;
    }
}

/// Where the transfers are counted.
const COUNT: &[u8] = b"transfers";

fn keys(plan: &Plan) -> Vec<Vec<u8>> {
    (0..plan.accounts)
        .map(|account| format!("account:{account}").into_bytes())
        .collect()
}

/// What nobody has stored is 0.
fn number(stored: Option<&[u8]>) -> i64 {
    stored
        .and_then(|bytes| bytes.try_into().ok())
        .map_or(0, i64::from_le_bytes)
}
