//! Gets and sets of objects, shaped like the caches of Twitter.
//!
//! On the path: drawn before each operation of `bench objects`, or written to a file by `farside-lab trace generate`.
//!
//! DecLock (section 6.6) takes two traces of Twitter and publishes of each the mean size of an object and the share of gets.
//! Those are the numbers of [`OBJECT_WORKLOADS`]. What else makes a trace is chosen here:
//!
//! - **Popularity**: Zipf with exponent 1. "A large scale analysis of hundreds of in-memory cache clusters at Twitter" (OSDI
//!   2020) finds Zipf's law with a large skew; the exponents of these two traces are not published.
//! - **Sizes**: a generalized Pareto distribution with the shape 0.348 that was fitted to the values of a cache of Facebook
//!   (Atikoglu and others, SIGMETRICS 2012), and with the published mean. More than two thirds of all objects are smaller than
//!   the mean. An object's size follows from its rank: the sizes of consecutive ranks are spread over the distribution as
//!   evenly as multiples of the golden section, so that few objects have the mean of many, and requests that of objects. The
//!   most popular one is as large as the mean.
//! - **Times to live**: 5 minutes, 20 minutes, 12 hours or 3 days, of as many objects each: half of them no longer than 20
//!   minutes and a quarter longer than 2 days, as in Twitter's caches. Nothing expires in a benchmark; they are for the file.

use core::fmt::Write;

use rand_core::Rng;

use super::zipf::{below, unit};
use super::{Scatter, Zipf, client_random};

/// The largest object that is generated, in bytes: the largest item of a cache like Twitter's.
pub const GENERATED_BYTES_MAX: u64 = 1 << 20;

/// Shape of the distribution of sizes (`k`).
const SIZE_SHAPE: f64 = 0.348_238;
/// The smaller part of all 64-bit numbers cut by the golden section: by so much two consecutive ranks differ.
const GOLDEN: u64 = 0x61c8_8646_80b5_83eb;
/// Times to live, in seconds.
const TTLS_S: [u64; 4] = [300, 1200, 43_200, 259_200];
/// How many requests a second a generated file has.
const REQUESTS_PER_SECOND: u64 = 10_000;
/// From how many clients they come.
const FRONT_ENDS: u64 = 64;

/// What is published of a trace.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ObjectWorkload {
    /// Its name on the command line.
    pub name: &'static str,
    /// A line about it.
    pub about: &'static str,
    /// Mean size of an object, in bytes.
    pub object_bytes: u64,
    /// The share of gets, in percent.
    pub get_percent: u64,
    /// How much more popular some objects are than others.
    pub theta: f64,
}

/// Every workload of objects.
pub const OBJECT_WORKLOADS: [ObjectWorkload; 2] = [
    ObjectWorkload {
        name: "twitter-small",
        about: "objects of 414 B, 65 % get, 35 % set (DecLock, section 6.6; bench objects)",
        object_bytes: 414,
        get_percent: 65,
        theta: 1.0,
    },
    ObjectWorkload {
        name: "twitter-large",
        about: "objects of 9213 B, 89 % get, 11 % set (DecLock, section 6.6; bench objects)",
        object_bytes: 9213,
        get_percent: 89,
        theta: 1.0,
    },
];

impl ObjectWorkload {
    /// The workload with this name.
    ///
    /// # Errors
    /// Says which names there are.
    pub fn by_name(name: &str) -> Result<Self, String> {
        let found = OBJECT_WORKLOADS.into_iter().find(|workload| workload.name == name);
        found.ok_or_else(|| {
            let names = OBJECT_WORKLOADS.map(|workload| workload.name).join(", ");
            format!("`{name}` is not a workload of objects: choose from {names}")
        })
    }

    /// Bytes of the object that is more popular than all but `rank` others.
    #[must_use]
    pub fn bytes(&self, rank: u64) -> u32 {
        let mean = self.object_bytes as f64;
        let scale = mean * (1.0 - SIZE_SHAPE);
        // Of how many objects those behind it are larger; for the first one, whose size is the mean, (mean k / scale + 1)^(-1/k).
        let first = (mean * SIZE_SHAPE / scale + 1.0).powf(-1.0 / SIZE_SHAPE);
        let turns = rank.wrapping_mul(GOLDEN) as f64 / 2_f64.powi(64);
        let larger = (first + turns).fract().max(f64::EPSILON);
        let bytes = scale / SIZE_SHAPE * (larger.powf(-SIZE_SHAPE) - 1.0);
        (bytes.round() as u64).clamp(1, GENERATED_BYTES_MAX) as u32
    }

    /// How long the object of a rank lives, in seconds.
    #[must_use]
    pub fn ttl_s(&self, rank: u64) -> u64 {
        // Not the bits that decide the size.
        TTLS_S[(rank.wrapping_mul(GOLDEN) >> 20) as usize % TTLS_S.len()]
    }

    /// Whether the next operation is a get.
    #[inline]
    pub fn is_get(&self, random: &mut impl Rng) -> bool {
        unit(random) * 100.0 < self.get_percent as f64
    }

    /// The lines of a trace of so many operations on so many objects, in the form that [`Trace`](super::Trace) reads.
    pub fn trace(self, objects: u64, operations: u64, seed: u64) -> impl Iterator<Item = String> {
        let mut random = client_random(seed, u64::MAX - 2);
        let (zipf, scatter) = (Zipf::new(objects, self.theta), Scatter::new(objects));
        (0..operations).map(move |number| {
            let rank = zipf.rank(&mut random);
            let key = format!("{}:{:012x}", self.name, scatter.key(rank));
            let (operation, ttl_s) = match self.is_get(&mut random) {
                true => ("get", 0),
                false => ("set", self.ttl_s(rank)),
            };
            let client = below(&mut random, FRONT_ENDS);
            let mut line = format!("{},{key},{},", number / REQUESTS_PER_SECOND, key.len());
            let rest = write!(line, "{},{client},{operation},{ttl_s}", self.bytes(rank));
            rest.expect("a string takes everything");
            line
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECTS: u64 = 100_000;

    /// By how much of the second the first differs from it.
    fn distance(ours: f64, published: f64) -> f64 {
        (ours / published - 1.0).abs()
    }

    #[test]
    fn objects_have_the_published_mean_size_and_most_are_smaller() {
        for workload in OBJECT_WORKLOADS {
            let sizes: Vec<u64> = (0..OBJECTS).map(|rank| u64::from(workload.bytes(rank))).collect();
            let published = workload.object_bytes as f64;
            let mean = sizes.iter().sum::<u64>() as f64 / OBJECTS as f64;
            assert!(distance(mean, published) < 0.01, "{}: {mean}", workload.name);
            assert_eq!(sizes[0], workload.object_bytes);
            let smaller = sizes.iter().filter(|&&bytes| bytes < workload.object_bytes).count();
            assert!((60_000..80_000).contains(&smaller), "{}: {smaller}", workload.name);
            let most = *sizes.iter().max().expect("there are some");
            assert!(
                most > 50 * workload.object_bytes && most <= GENERATED_BYTES_MAX,
                "{most}"
            );
        }
    }

    #[test]
    fn requests_have_the_published_mean_size_and_share_of_gets() {
        for workload in OBJECT_WORKLOADS {
            let (mut random, zipf) = (client_random(1, 0), Zipf::new(OBJECTS, workload.theta));
            let draws = 200_000_u32;
            let (mut bytes, mut gets) = (0.0, 0.0);
            for _ in 0..draws {
                bytes += f64::from(workload.bytes(zipf.rank(&mut random)));
                gets += f64::from(u8::from(workload.is_get(&mut random)));
            }
            let mean = bytes / f64::from(draws);
            assert!(
                distance(mean, workload.object_bytes as f64) < 0.05,
                "{}: {mean}",
                workload.name
            );
            let percent = 100.0 * gets / f64::from(draws);
            assert!((percent - workload.get_percent as f64).abs() < 0.5, "{percent}");
        }
    }

    #[test]
    fn times_to_live_are_spread_as_in_twitters_caches() {
        let workload = OBJECT_WORKLOADS[0];
        let share = |is_in: fn(u64) -> bool| {
            let found = (0..OBJECTS).filter(|&rank| is_in(workload.ttl_s(rank))).count();
            found as f64 / OBJECTS as f64
        };
        assert!((share(|ttl_s| ttl_s <= 1200) - 0.5).abs() < 0.01);
        assert!((share(|ttl_s| ttl_s > 2 * 86_400) - 0.25).abs() < 0.01);
    }

    #[test]
    fn a_seed_decides_a_trace() {
        let lines = |seed| OBJECT_WORKLOADS[0].trace(1000, 50, seed).collect::<Vec<_>>();
        assert_eq!(lines(1), lines(1));
        assert_ne!(lines(1), lines(2));
        assert!(lines(1).iter().all(|line| line.split(',').count() == 7));
    }

    #[test]
    fn a_workload_is_found_by_its_name() {
        for workload in OBJECT_WORKLOADS {
            assert_eq!(ObjectWorkload::by_name(workload.name), Ok(workload));
        }
        let reason = ObjectWorkload::by_name("twitter").expect_err("there is none");
        assert!(reason.contains("twitter-small, twitter-large"), "{reason}");
    }
}
