//! Least squares: constants such that what is measured comes as near as it can to what was published.
//!
//! Constants and quantities are positive and of different units, so both are compared by their ratios: what is made small is the
//! sum of the squares of `ln(ours / published)`, over the logarithms of the constants (Gauss and Newton's method, a little damped).

/// By what share a constant is changed to find out what it moves.
const STEP: f64 = 0.1;
/// A round changes a constant by no more than this factor.
const FACTOR_MAX: f64 = 2.0;
/// Rounds at most.
const ROUNDS_MAX: usize = 8;
/// A round that changes every constant by less than this share is the last.
const SETTLED: f64 = 0.005;
/// Keeps a constant that moves nothing where it is.
const DAMPING: f64 = 1e-3;

/// What a fit has found.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// The constants.
    pub constants: Vec<f64>,
    /// What is measured with them.
    pub measured: Vec<f64>,
    /// How many rounds it took.
    pub rounds: usize,
}

/// Fits constants, from `start`, to what was published. `measure` is given several sets of constants, to be measured side by
/// side, and returns for each what stands against `published`; all numbers are positive.
///
/// # Errors
/// The first error of `measure`.
///
/// # Panics
/// If `measure` returns another number of results than there are.
pub fn fit<E>(
    start: &[f64],
    published: &[f64],
    mut measure: impl FnMut(&[Vec<f64>]) -> Result<Vec<Vec<f64>>, E>,
) -> Result<Fit, E> {
    let mut constants = start.to_vec();
    let mut best: Option<Fit> = None;
    for round in 1..=ROUNDS_MAX {
        let mut sets = vec![constants.clone()];
        for place in 0..constants.len() {
            let mut moved = constants.clone();
            // A whole number of nanoseconds at least: a smaller step would move nothing.
            moved[place] = (moved[place] * (1.0 + STEP)).max(moved[place] + 1.0);
            sets.push(moved);
        }
        let measured = measure(&sets)?;
        let errors = logs(&measured[0], published);
        if best
            .as_ref()
            .is_none_or(|best| square(&errors) < square(&logs(&best.measured, published)))
        {
            best = Some(Fit {
                constants: constants.clone(),
                measured: measured[0].clone(),
                rounds: round,
            });
        }
        let slopes: Vec<Vec<f64>> = (0..constants.len())
            .map(|place| {
                let step = (sets[place + 1][place] / constants[place]).ln();
                let moved = logs(&measured[place + 1], published);
                moved
                    .iter()
                    .zip(&errors)
                    .map(|(moved, was)| (moved - was) / step)
                    .collect()
            })
            .collect();
        let mut largest: f64 = 0.0;
        for (constant, step) in constants.iter_mut().zip(step(&slopes, &errors)) {
            let step = step.clamp(-FACTOR_MAX.ln(), FACTOR_MAX.ln());
            largest = largest.max(step.abs());
            *constant *= step.exp();
        }
        if largest < SETTLED {
            break;
        }
    }
    Ok(best.expect("there is a round"))
}

fn logs(measured: &[f64], published: &[f64]) -> Vec<f64> {
    assert_eq!(measured.len(), published.len());
    measured
        .iter()
        .zip(published)
        .map(|(ours, paper)| (ours / paper).ln())
        .collect()
}

fn square(errors: &[f64]) -> f64 {
    errors.iter().map(|error| error * error).sum()
}

/// By how much each logarithm of a constant changes: the solution of `(S S' + d I) x = -S e`, where row `i` of `S` says what
/// constant `i` moves.
fn step(slopes: &[Vec<f64>], errors: &[f64]) -> Vec<f64> {
    let dot = |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
    let rows = slopes.iter().enumerate().map(|(place, slope)| {
        let mut row: Vec<f64> = slopes.iter().map(|other| dot(slope, other)).collect();
        row[place] += DAMPING;
        row.push(-dot(slope, errors));
        row
    });
    solve(rows.collect())
}

/// Solves linear equations whose matrix is positive definite, by elimination; the last column is the right side.
fn solve(mut rows: Vec<Vec<f64>>) -> Vec<f64> {
    let count = rows.len();
    for pivot in 0..count {
        let row = rows[pivot].clone();
        for (place, other) in rows.iter_mut().enumerate() {
            if place != pivot {
                let factor = other[pivot] / row[pivot];
                other
                    .iter_mut()
                    .zip(&row)
                    .for_each(|(value, pivot)| *value -= factor * pivot);
            }
        }
    }
    rows.iter()
        .enumerate()
        .map(|(place, row)| row[count] / row[place])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::convert::Infallible;

    fn is_near(found: &[f64], expected: &[f64]) -> bool {
        found
            .iter()
            .zip(expected)
            .all(|(found, expected)| (found / expected - 1.0).abs() < 0.01)
    }

    #[test]
    fn as_many_quantities_as_constants_are_met() {
        // A rate, a latency, and one of both.
        let model = |constants: &[f64]| {
            let [unit, wire] = [constants[0], constants[1]];
            vec![16.0 / unit, 2.0 * wire + unit + 300.0]
        };
        let published = model(&[246.0, 850.0]);
        let measure = |sets: &[Vec<f64>]| Ok::<_, Infallible>(sets.iter().map(|set| model(set)).collect());
        let found = fit(&[100.0, 2000.0], &published, measure).expect("no errors");
        assert!(is_near(&found.constants, &[246.0, 850.0]), "{found:?}");
        assert!(is_near(&found.measured, &published));
        assert!(found.rounds > 1);
    }

    #[test]
    fn where_not_all_can_be_met_the_errors_are_shared() {
        let measure = |sets: &[Vec<f64>]| Ok::<_, Infallible>(sets.iter().map(|set| vec![set[0], set[0]]).collect());
        let found = fit(&[50.0], &[100.0, 400.0], measure).expect("no errors");
        assert!(is_near(&found.constants, &[200.0]), "{found:?}");
    }

    #[test]
    fn a_constant_that_moves_nothing_stays() {
        let measure = |sets: &[Vec<f64>]| Ok::<_, Infallible>(sets.iter().map(|set| vec![set[0]]).collect());
        let found = fit(&[50.0, 7.0], &[100.0], measure).expect("no errors");
        assert!(is_near(&found.constants, &[100.0, 7.0]), "{found:?}");
    }

    #[test]
    fn an_error_of_a_measurement_ends_it() {
        let found = fit(&[50.0], &[100.0], |_| Err("no memory"));
        assert_eq!(found, Err("no memory"));
    }
}
