//! A process of a contender: it does what it is told on standard input, and answers. While it has nothing to do its
//! tasks run, so that it answers whoever resets a lock.

use std::io::BufRead;

use farside_fabric::shm::robust::RobustMutex;
use farside_lock::LockKind;
use parking_lot::RwLock;
use tokio::sync::mpsc;

use super::LockWorkerOptions;
use super::board::{Board, MEMBERS_MAX};
use super::contender::{Contender, Farside, PARKING_LOT, PTHREAD_ROBUST, Parked, Robust};
use super::measure::Task;
use crate::error::BenchError;
use crate::stage::machine::on_this_thread;
use crate::worker_process::answer;

/// The name of a robust mutex in the folder of its contender.
pub(super) const MUTEX_FILE: &str = "mutex";

/// Runs a worker until its standard input ends.
///
/// # Errors
/// See [`BenchError`].
pub fn serve(options: &LockWorkerOptions) -> Result<(), BenchError> {
    let board = Board::open(&options.folder)?;
    match options.contender.as_str() {
        PARKING_LOT => threads(&board),
        PTHREAD_ROBUST => {
            let mutex = RobustMutex::open(&options.folder.join(MUTEX_FILE));
            let mutex = mutex.map_err(BenchError::system("open a robust mutex"))?;
            on_this_thread(obey(Robust::new(&mutex), &board, options.member))?
        }
        name => {
            let unknown = || BenchError::Argument(format!("there is no contender `{name}`"));
            let kind = LockKind::by_name(name).ok_or_else(unknown)?;
            on_this_thread(async { obey(Farside::join(kind, &board)?, &board, options.member).await })?
        }
    }
}

fn task_of(line: &str) -> Result<Task, BenchError> {
    let unknown = || BenchError::Argument(format!("`{line}` is nothing that a worker does"));
    Task::of_line(line).ok_or_else(unknown)
}

async fn obey(mut lock: impl Contender, board: &Board, member: u64) -> Result<(), BenchError> {
    let (sender, mut lines) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            // Whoever listened may have ended.
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    while let Some(line) = lines.recv().await {
        let line = line.map_err(BenchError::system("read what to do"))?;
        answer(&task_of(&line)?.run(&mut lock, board, member).await?)?;
    }
    Ok(())
}

/// All members are threads of this process: answers with the numbers of each, one after the other.
fn threads(board: &Board) -> Result<(), BenchError> {
    let lock = RwLock::new(());
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(BenchError::system("read what to do"))?;
        let task = task_of(&line)?;
        let members = task.members().min(MEMBERS_MAX);
        let results = std::thread::scope(|scope| {
            let lock = &lock;
            let members: Vec<_> = (0..members)
                .map(|member| scope.spawn(move || on_this_thread(task.run(&mut Parked::new(lock), board, member))?))
                .collect();
            let ended = members
                .into_iter()
                .map(|member| member.join().expect("a thread panicked"));
            ended.collect::<Result<Vec<_>, BenchError>>()
        });
        answer(&results?.concat())?;
    }
    Ok(())
}
