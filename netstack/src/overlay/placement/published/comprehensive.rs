//! Placement 2, comprehensive evaluation: hosts are judged good, medium or poor by several factors.
//!
//! Source: the overlay method names fuzzy comprehensive evaluation, but its formulas are not
//! available; this is the standard method (membership matrix, weighted average, defuzzified score),
//! with shares by largest remainder. All reals are [`Fixed`], so that the published table comes out
//! to the last digit. Every number here is finite by construction: what is not a number is refused
//! where texts are read ([`Fixed::parse`]).

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use super::averaging;
use crate::overlay::fixed::Fixed;

/// Number of factors.
pub const FACTORS: usize = 4;
/// What they are, for texts.
pub const FACTOR_NAMES: [&str; FACTORS] = ["free cores", "free memory", "link speed", "load"];
/// A larger value of this factor is worse.
const IS_COST: [bool; FACTORS] = [false, false, false, true];

/// A value for each factor: free cores, free memory, link speed, load, each in the unit of its
/// bounds.
pub type Factors = [Fixed; FACTORS];

/// How hosts are judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FuzzyConfig {
    /// What each factor counts for; they sum to 1.
    pub weights: Factors,
    /// The value of each factor that is mapped to 0.
    pub low: Factors,
    /// The value of each factor that is mapped to 1.
    pub high: Factors,
    /// A host with less free memory gets nothing.
    pub memory_least: Fixed,
}

impl Default for FuzzyConfig {
    /// The published weights and bounds: 20 cores, 100 GiB, 40 Gbit/s, a load of 1.
    fn default() -> Self {
        FuzzyConfig {
            weights: [35, 20, 25, 20].map(Fixed::hundredths),
            low: [Fixed::ZERO; FACTORS],
            high: [20, 100, 40, 1].map(Fixed::whole),
            memory_least: Fixed::ZERO,
        }
    }
}

/// What is known of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostFactors {
    /// Its factors.
    pub raw: Factors,
    /// It can take processes at all.
    pub up: bool,
    /// Most processes it may get.
    pub cap: u32,
    /// Back ends it has, for the case that all hosts are judged useless.
    pub back_ends: u32,
}

/// What came out for a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Judged {
    /// Its factors from 0 to 1, where 1 is best.
    pub unit: Factors,
    /// How far it is good, medium and poor: the weighted membership, which sums to 1.
    pub judgement: [Fixed; 3],
    /// Its score from 0 to 1.
    pub score: Fixed,
    /// The share of the processes that its score earns, before it is made whole.
    pub quota: Fixed,
    /// The processes it gets.
    pub processes: u32,
}

/// Why hosts cannot be judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FuzzyError {
    /// The bounds of this factor leave no room between them.
    Bounds(usize),
    /// A weight is negative, or they do not sum to 1 (the sum is given).
    Weights(Fixed),
    /// All caps together are less than the processes to place.
    Caps {
        /// Sum of the caps.
        caps: u64,
        /// Processes to place.
        count: u32,
    },
}

impl fmt::Display for FuzzyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FuzzyError::Bounds(factor) => write!(
                f,
                "the upper bound of {} is not above the lower one: raise it",
                FACTOR_NAMES[*factor]
            ),
            FuzzyError::Weights(sum) => {
                write!(
                    f,
                    "the weights sum to {sum}: make them sum to 1, none below 0"
                )
            }
            FuzzyError::Caps { caps, count } => write!(
                f,
                "the hosts may take {caps} processes together and {count} are to be placed: raise the caps or ask for fewer"
            ),
        }
    }
}

impl core::error::Error for FuzzyError {}

/// `clamp((x - a) / (b - a))`.
fn up(x: Fixed, a: Fixed, b: Fixed) -> Fixed {
    (x - a).over(b - a).clamp_unit()
}

/// Good, medium and poor of one factor (step 2).
fn membership(x: Fixed) -> [Fixed; 3] {
    let good = up(x, Fixed::hundredths(60), Fixed::hundredths(80));
    let poor = Fixed::ONE - up(x, Fixed::hundredths(20), Fixed::hundredths(40));
    [good, Fixed::ONE - good - poor, poor]
}

/// Steps 1 to 3: the score of one host.
///
/// # Errors
/// The configuration makes no sense.
pub fn judge(config: &FuzzyConfig, host: &HostFactors) -> Result<Judged, FuzzyError> {
    let sum: Fixed = config.weights.iter().copied().sum();
    if sum != Fixed::ONE || config.weights.iter().any(|weight| *weight < Fixed::ZERO) {
        return Err(FuzzyError::Weights(sum));
    }
    let mut judged = Judged::default();
    for (factor, is_cost) in IS_COST.into_iter().enumerate() {
        let (low, high) = (config.low[factor], config.high[factor]);
        if high <= low {
            return Err(FuzzyError::Bounds(factor));
        }
        let x = up(host.raw[factor], low, high);
        let x = if is_cost { Fixed::ONE - x } else { x };
        judged.unit[factor] = x;
        for (sum, part) in judged.judgement.iter_mut().zip(membership(x)) {
            *sum = *sum + config.weights[factor].times(part);
        }
    }
    // What rounding took off goes to medium, so that the three sum to 1.
    let [good, medium, poor] = &mut judged.judgement;
    *medium = Fixed::ONE - *good - *poor;
    if host.up && host.raw[1] >= config.memory_least {
        judged.score = *good + medium.times(Fixed::hundredths(50));
    }
    Ok(judged)
}

/// Places `count` processes (steps 1 to 4).
///
/// # Errors
/// The configuration makes no sense, or the hosts may not take so many.
pub fn evaluate(
    config: &FuzzyConfig,
    hosts: &[HostFactors],
    count: u32,
) -> Result<Vec<Judged>, FuzzyError> {
    let judged: Result<Vec<Judged>, FuzzyError> =
        hosts.iter().map(|host| judge(config, host)).collect();
    let mut judged = judged?;
    let caps: u64 = hosts.iter().map(|host| u64::from(host.cap)).sum();
    if caps < u64::from(count) {
        return Err(FuzzyError::Caps { caps, count });
    }
    let mut open: Vec<usize> = (0..hosts.len()).collect();
    let mut left = count;
    // Each round fixes a host at its cap or ends: at most as many rounds as hosts.
    loop {
        let shares = apportion(&mut judged, hosts, &open, left);
        let over: Vec<usize> = (open.iter().zip(&shares))
            .filter(|(host, share)| **share > hosts[**host].cap)
            .map(|(host, _)| *host)
            .collect();
        if over.is_empty() {
            for (host, share) in open.iter().zip(shares) {
                judged[*host].processes = share;
            }
            return Ok(judged);
        }
        for host in over {
            judged[host].processes = hosts[host].cap;
            left -= hosts[host].cap;
            open.retain(|other| *other != host);
        }
    }
}

/// Shares of the open hosts by score, made whole by largest remainder; by averaging if all scores
/// are 0.
fn apportion(judged: &mut [Judged], hosts: &[HostFactors], open: &[usize], count: u32) -> Vec<u32> {
    let total: i128 = open
        .iter()
        .map(|&host| i128::from(judged[host].score.0))
        .sum();
    if total == 0 {
        let back_ends: Vec<u32> = open.iter().map(|&host| hosts[host].back_ends).collect();
        return averaging::average(&back_ends, count);
    }
    let mut shares = vec![0; open.len()];
    let mut rest = Vec::with_capacity(open.len());
    let mut given = 0;
    for (index, &host) in open.iter().enumerate() {
        let exact = i128::from(judged[host].score.0) * i128::from(count);
        judged[host].quota = Fixed((exact * 1_000_000_000 / total) as i64);
        shares[index] = (exact / total) as u32;
        given += shares[index];
        rest.push((exact % total, index));
    }
    // Larger remainder first; ties: higher score, then lower number.
    rest.sort_by_key(|&(rest, index)| {
        let score = judged[open[index]].score;
        (core::cmp::Reverse(rest), core::cmp::Reverse(score), index)
    });
    for &(_, index) in rest.iter().take((count - given) as usize) {
        shares[index] += 1;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::ToString;

    fn host(raw: [&str; 4]) -> HostFactors {
        HostFactors {
            raw: raw.map(|text| Fixed::parse(text).unwrap()),
            up: true,
            cap: 100,
            back_ends: 1,
        }
    }

    fn published() -> Vec<HostFactors> {
        vec![
            host(["18", "70", "40", "0.25"]),
            host(["10", "50", "10", "0.50"]),
            host(["6", "90", "40", "0.70"]),
            host(["3", "25", "10", "0.95"]),
        ]
    }

    fn processes(judged: &[Judged]) -> Vec<u32> {
        judged.iter().map(|host| host.processes).collect()
    }

    #[test]
    fn the_published_table_comes_out_to_the_last_digit() {
        let judged = evaluate(&FuzzyConfig::default(), &published(), 7).unwrap();
        let row = |host: &Judged| {
            let texts = |numbers: &[Fixed]| {
                let texts: Vec<_> = numbers.iter().map(ToString::to_string).collect();
                texts.join(" ")
            };
            (
                texts(&host.unit),
                texts(&host.judgement),
                host.score.to_string(),
            )
        };
        let expected = [
            ("0.9 0.7 1 0.75", "0.85 0.15 0", "0.925", 3.2785),
            ("0.5 0.5 0.25 0.5", "0 0.8125 0.1875", "0.40625", 1.4399),
            ("0.3 0.9 1 0.3", "0.45 0.275 0.275", "0.5875", 2.0823),
            ("0.15 0.25 0.25 0.05", "0 0.1125 0.8875", "0.05625", 0.1994),
        ];
        for (host, (unit, judgement, score, quota)) in judged.iter().zip(expected) {
            let (got_unit, got_judgement, got_score) = row(host);
            assert_eq!(
                (&*got_unit, &*got_judgement, &*got_score),
                (unit, judgement, score)
            );
            let off = host.quota.0 as f64 / 1e9 - quota;
            assert!(off.abs() < 0.000_05, "{quota}: off by {off}");
        }
        assert_eq!(processes(&judged), [3, 2, 2, 0]);
    }

    #[test]
    fn a_cap_moves_the_rest_on() {
        let mut hosts = published();
        hosts.iter_mut().for_each(|host| host.cap = 2);
        let judged = evaluate(&FuzzyConfig::default(), &hosts, 7).unwrap();
        assert_eq!(processes(&judged), [2, 2, 2, 1]);
        let error = evaluate(&FuzzyConfig::default(), &hosts, 9).unwrap_err();
        assert_eq!(error, FuzzyError::Caps { caps: 8, count: 9 });
        assert!(error.to_string().contains("raise the caps"));
    }

    #[test]
    fn a_configuration_that_makes_no_sense_says_why() {
        let mut config = FuzzyConfig::default();
        config.high[2] = Fixed::ZERO;
        let error = evaluate(&config, &published(), 7).unwrap_err();
        assert_eq!(error, FuzzyError::Bounds(2));
        assert!(error.to_string().contains("link speed"));
        config = FuzzyConfig::default();
        config.weights[0] = Fixed::hundredths(36);
        let error = evaluate(&config, &published(), 7).unwrap_err();
        assert!(error.to_string().contains("1.01"), "{error}");
    }

    #[test]
    fn useless_hosts_get_nothing_unless_all_are() {
        let mut hosts = published();
        hosts[0].up = false;
        let config = FuzzyConfig {
            memory_least: Fixed::whole(60),
            ..FuzzyConfig::default()
        };
        let judged = evaluate(&config, &hosts, 7).unwrap();
        assert_eq!(processes(&judged), [0, 0, 7, 0]);
        hosts.iter_mut().for_each(|host| host.up = false);
        let judged = evaluate(&config, &hosts, 7).unwrap();
        assert_eq!(processes(&judged), [2, 2, 2, 1], "as averaging has it");
    }

    proptest! {
        #[test]
        fn all_are_placed_and_no_cap_is_exceeded(
            hosts in proptest::collection::vec(
                ((0_i64..30, 0_i64..120, 0_i64..50, 0_i64..150), any::<bool>(), 0_u32..20), 1..20),
            share in 0_u32..=100,
        ) {
            let hosts: Vec<HostFactors> = hosts.into_iter().map(|(raw, up, cap)| HostFactors {
                raw: [Fixed::whole(raw.0), Fixed::whole(raw.1), Fixed::whole(raw.2), Fixed::hundredths(raw.3)],
                up, cap, back_ends: cap % 3,
            }).collect();
            let caps: u32 = hosts.iter().map(|host| host.cap).sum();
            let count = caps * share / 100;
            let judged = evaluate(&FuzzyConfig::default(), &hosts, count).unwrap();
            prop_assert_eq!(judged.iter().map(|host| host.processes).sum::<u32>(), count);
            for (host, judged) in hosts.iter().zip(&judged) {
                prop_assert!(judged.processes <= host.cap);
                prop_assert_eq!(judged.judgement.iter().copied().sum::<Fixed>(), Fixed::ONE);
            }
        }
    }
}
