//! The Zipf distribution over any number of items, without a table.
//!
//! On the path: every operation of a benchmark draws the key that it works on. Rank `k` (from 1) has
//! a probability proportional to `k^-theta`. Rejection inversion (Hörmann and Derflinger, 1996) draws
//! exactly from it: invert the integral of a density that encloses the distribution, round to a
//! rank, and accept; more than nine of ten draws are accepted at once. Setting up costs nothing that
//! grows with the number of items. YCSB's generator (Gray and others, 1994) is an approximation
//! from rank 3 on and sums over all items first.
//!
//! Ranks are not keys: [`Scatter`] maps one to the other, so that popular keys are not neighbours.

use rand_core::Rng;

/// A Zipf distribution over ranks `0..items`; rank 0 is the most popular. `theta` 0 is uniform.
#[derive(Clone, Copy, Debug)]
pub struct Zipf {
    items: u64,
    theta: f64,
    /// Integral of the density up to half a rank behind the last, and up to the first.
    high: f64,
    low: f64,
    /// Draws whose rounding moved them up by no more than this are accepted without looking.
    sure: f64,
}

impl Zipf {
    /// The distribution over `items` ranks.
    ///
    /// # Panics
    /// If there are no items, or `theta` is negative or no number.
    #[must_use]
    pub fn new(items: u64, theta: f64) -> Self {
        assert!(items > 0, "a distribution has at least one item");
        assert!(theta >= 0.0, "the skew is not negative");
        let mut zipf = Self {
            items,
            theta,
            high: 0.0,
            low: 0.0,
            sure: 0.0,
        };
        zipf.high = zipf.integral(items as f64 + 0.5);
        zipf.low = zipf.integral(1.5) - 1.0;
        zipf.sure = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.density(2.0));
        zipf
    }

    /// How many items there are.
    #[must_use]
    pub fn items(&self) -> u64 {
        self.items
    }

    fn density(&self, x: f64) -> f64 {
        (-self.theta * x.ln()).exp()
    }

    /// Integral of the density from 1 to x: `(x^(1-theta) - 1) / (1 - theta)`, or `ln x`.
    fn integral(&self, x: f64) -> f64 {
        let exponent = 1.0 - self.theta;
        let log = x.ln();
        if (exponent * log).abs() < 1e-9 {
            log
        } else {
            (exponent * log).exp_m1() / exponent
        }
    }

    /// Where the integral has this value.
    fn inverse(&self, area: f64) -> f64 {
        let exponent = 1.0 - self.theta;
        let scaled = (area * exponent).max(-1.0);
        if scaled.abs() < 1e-9 {
            area.exp()
        } else {
            (scaled.ln_1p() / exponent).exp()
        }
    }

    /// Draws a rank.
    #[inline]
    pub fn rank(&self, random: &mut impl Rng) -> u64 {
        if self.theta == 0.0 {
            return below(random, self.items);
        }
        // Ends: a draw is refused with a probability below a tenth, independently of the last.
        loop {
            let area = self.high + unit(random) * (self.low - self.high);
            let x = self.inverse(area);
            let rank = x.round().clamp(1.0, self.items as f64);
            if rank - x <= self.sure || area >= self.integral(rank + 0.5) - self.density(rank) {
                return rank as u64 - 1;
            }
        }
    }
}

/// A uniformly distributed number below `bound`.
#[inline]
pub fn below(random: &mut impl Rng, bound: u64) -> u64 {
    ((u128::from(random.next_u64()) * u128::from(bound)) >> 64) as u64
}

/// A uniformly distributed number from 0 to 1, 1 excluded.
#[inline]
pub fn unit(random: &mut impl Rng) -> f64 {
    (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

/// A permutation of `0..items` that puts neighbours far apart: rank `r` becomes `r * step mod items`
/// with a step near the golden section of `items` and coprime to it.
///
/// YCSB hashes ranks instead, by which some keys get two ranks and others none; here each key has
/// exactly one, so the distribution stays what it is called.
#[derive(Clone, Copy, Debug)]
pub struct Scatter {
    items: u64,
    step: u64,
}

impl Scatter {
    /// The permutation of `0..items`.
    ///
    /// # Panics
    /// If there are no items.
    #[must_use]
    pub fn new(items: u64) -> Self {
        assert!(items > 0, "a permutation has at least one item");
        let mut step = (items as f64 * 0.618_033_988_749_895) as u64 | 1;
        while greatest_common_divisor(step, items) != 1 {
            step += 2;
        }
        Self { items, step }
    }

    /// The key of a rank.
    #[inline]
    #[must_use]
    pub fn key(&self, rank: u64) -> u64 {
        (u128::from(rank) * u128::from(self.step) % u128::from(self.items)) as u64
    }
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::SeedableRng;

    /// The sum of `k^-theta` for k from 1 to `items`: the head term by term, the tail by the
    /// Euler-Maclaurin formula.
    fn zeta(items: u64, theta: f64) -> f64 {
        let head = items.min(10_000);
        let sum: f64 = (1..=head).map(|k| (k as f64).powf(-theta)).sum();
        if head == items {
            return sum;
        }
        let (from, to) = (head as f64, items as f64);
        let integral = if theta == 1.0 {
            (to / from).ln()
        } else {
            (to.powf(1.0 - theta) - from.powf(1.0 - theta)) / (1.0 - theta)
        };
        sum + integral + (to.powf(-theta) - from.powf(-theta)) / 2.0
    }

    /// Chi-square of `draws` draws over groups of ranks: 0, 1, 2, 3, 4-7, 8-15, and so on. Returns it
    /// with the number of groups.
    fn chi_square(items: u64, theta: f64, seed: u64, draws: u64) -> (f64, usize) {
        let zipf = Zipf::new(items, theta);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let group_of = |rank: u64| {
            if rank < 4 {
                rank as usize
            } else {
                rank.ilog2() as usize + 2
            }
        };
        let mut seen = vec![0_u64; group_of(items - 1) + 1];
        for _ in 0..draws {
            let rank = zipf.rank(&mut random);
            assert!(rank < items);
            seen[group_of(rank)] += 1;
        }
        let total = zeta(items, theta);
        let first_of = |group: usize| if group < 4 { group as u64 } else { 1 << (group - 2) };
        let mut sum = 0.0;
        for (group, &count) in seen.iter().enumerate() {
            let (first, end) = (first_of(group), first_of(group + 1).min(items));
            let share = (zeta(end, theta) - if first == 0 { 0.0 } else { zeta(first, theta) }) / total;
            let expected = share * draws as f64;
            sum += (count as f64 - expected).powi(2) / expected.max(1e-9);
        }
        (sum, seen.len())
    }

    /// Far beyond what chance does: mean plus eight standard deviations.
    fn limit(groups: usize) -> f64 {
        let freedom = groups as f64;
        freedom + 8.0 * (2.0 * freedom).sqrt()
    }

    #[test]
    fn sixty_million_items_follow_the_law() {
        for theta in [0.5, 0.9, 0.99, 1.0, 1.2] {
            let (sum, groups) = chi_square(60_000_000, theta, 7, 400_000);
            assert!(
                sum < limit(groups),
                "theta {theta}: chi-square {sum} over {groups} groups"
            );
        }
    }

    #[test]
    fn another_skew_is_noticed() {
        let zipf = Zipf::new(60_000_000, 0.97);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
        let draws = 400_000;
        let first = (0..draws).filter(|_| zipf.rank(&mut random) == 0).count() as f64;
        let expected = f64::from(draws) / zeta(60_000_000, 0.99);
        assert!(
            (first - expected).abs() > 8.0 * expected.sqrt(),
            "{first} of {expected}"
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
        #[test]
        fn any_number_of_items_and_any_skew_follow_the_law(items in 4_u64..5000, theta in 0.0..1.5, seed: u64) {
            let (sum, groups) = chi_square(items, theta, seed, 40_000);
            prop_assert!(sum < limit(groups), "chi-square {} over {} groups", sum, groups);
        }

        #[test]
        fn scatter_is_a_permutation(items in 1_u64..3000) {
            let scatter = Scatter::new(items);
            let mut keys: Vec<u64> = (0..items).map(|rank| scatter.key(rank)).collect();
            keys.sort_unstable();
            prop_assert!(keys.into_iter().eq(0..items));
        }
    }
}
