//! Exploring: a small scenario is run again and again, until every sequence of choices was taken.
//!
//! On the path: a test makes a new simulation in each run, hands it the [`Choices`] as its chooser, and
//! checks the outcome. Depth first: each run takes the choices of the one before, up to the last one
//! that has an alternative left. Where there is one possibility nothing is chosen.
//!
//! ```
//! use farside_fabric::sim::{Sim, SimOptions, explore};
//! use farside_fabric::{OpContext, RemoteAddr};
//!
//! let explored = explore(1000, |choices| {
//!     let sim = Sim::new(SimOptions::default());
//!     let node = sim.add_memory_node(4096);
//!     let compute_node = sim.add_compute_node();
//!     sim.set_chooser(Some(choices.chooser()));
//!     for _ in 0..2 {
//!         let mut op = OpContext::new(sim.endpoint(compute_node));
//!         op.endpoint().clone().spawn(async move {
//!             let word = RemoteAddr::new(node, 8);
//!             while op.read_word(word).await.is_ok_and(|seen| seen == 0) {
//!                 op.compare_swap(word, 0, 1).await.expect("the node is there");
//!             }
//!         });
//!     }
//!     sim.run_until_idle();
//!     assert_eq!(sim.region(node).word(8).load(std::sync::atomic::Ordering::Relaxed), 1);
//! });
//! assert!(explored.is_complete);
//! ```

use core::cell::RefCell;
use std::rc::Rc;

use super::stepping::Chooser;

/// A choice that was made: which, and of how many.
#[derive(Clone, Copy, Debug)]
struct Made {
    choice: usize,
    count: usize,
}

/// What an exploration has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Explored {
    /// How many runs there were, each with a sequence of choices of its own.
    pub runs: u64,
    /// Whether those were all that there are.
    pub is_complete: bool,
}

/// The choices of one run. Clones are the same ones.
#[derive(Clone, Debug)]
pub struct Choices {
    path: Rc<RefCell<Path>>,
}

#[derive(Default, Debug)]
struct Path {
    made: Vec<Made>,
    /// How many of `made` this run has come past.
    passed: usize,
}

impl Choices {
    /// A number below `count`; in another run another one.
    ///
    /// # Panics
    /// If `count` is 0, or differs from that of an earlier run that made the same choices before: then
    /// the run depends on something else.
    #[must_use]
    pub fn pick(&self, count: usize) -> usize {
        assert!(count > 0, "there is something to choose from");
        if count == 1 {
            return 0;
        }
        let mut path = self.path.borrow_mut();
        let passed = path.passed;
        path.passed += 1;
        if passed == path.made.len() {
            path.made.push(Made { choice: 0, count });
        }
        let made = &mut path.made[passed];
        if made.count == usize::MAX {
            made.count = count;
        }
        assert!(
            made.count == count && made.choice < count,
            "choice {passed} was one of {}, and now is one of {count}: runs must depend on their choices only",
            made.count
        );
        made.choice
    }

    /// Yes or no, such as "crash here"; no comes first.
    #[must_use]
    pub fn flip(&self) -> bool {
        self.pick(2) == 1
    }

    /// The same choices, for [`Sim::set_chooser`](super::Sim::set_chooser).
    #[must_use]
    pub fn chooser(&self) -> Chooser {
        let choices = self.clone();
        Box::new(move |candidates| choices.pick(candidates.len()))
    }

    /// What was chosen in this run so far, for [`replay`].
    #[must_use]
    pub fn taken(&self) -> Vec<usize> {
        let path = self.path.borrow();
        path.made[..path.passed].iter().map(|made| made.choice).collect()
    }
}

/// Says how to replay a run that panics.
struct Report(Choices);

impl Drop for Report {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("this run's choices, for sim::replay: {:?}", self.0.taken());
        }
    }
}

fn run_once(path: &Rc<RefCell<Path>>, run: &mut impl FnMut(Choices)) {
    path.borrow_mut().passed = 0;
    let choices = Choices { path: Rc::clone(path) };
    let _report = Report(choices.clone());
    run(choices);
}

/// Runs `run` with every sequence of choices, depth first, at most `limit` times. A run must depend on
/// its choices only: it makes its own simulation, of a fixed seed. The choices of a run that panics are
/// printed.
///
/// # Panics
/// If a run does, or makes fewer choices or others than an earlier one that began like it.
pub fn explore(limit: u64, mut run: impl FnMut(Choices)) -> Explored {
    let path = Rc::new(RefCell::new(Path::default()));
    for runs in 1..=limit {
        run_once(&path, &mut run);
        let mut path = path.borrow_mut();
        let (passed, known) = (path.passed, path.made.len());
        assert!(
            passed == known,
            "a run made {passed} choices of {known}: runs must depend on their choices only"
        );
        while path.made.last().is_some_and(|made| made.choice + 1 == made.count) {
            path.made.pop();
        }
        match path.made.last_mut() {
            Some(made) => made.choice += 1,
            None => {
                return Explored {
                    runs,
                    is_complete: true,
                };
            }
        }
    }
    Explored {
        runs: limit,
        is_complete: false,
    }
}

/// Runs `run` once with the choices that [`Choices::taken`] returned, or [`explore`] printed; further
/// ones are the first of each.
///
/// # Panics
/// If the run does, or the choices are not those of this `run`.
pub fn replay(taken: &[usize], mut run: impl FnMut(Choices)) {
    // How many there were to choose from shows in the run.
    let made = taken.iter().map(|&choice| Made {
        choice,
        count: usize::MAX,
    });
    let made = made.collect();
    let path = Rc::new(RefCell::new(Path { made, passed: 0 }));
    run_once(&path, &mut run);
}
