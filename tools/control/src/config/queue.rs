//! Section `[queue]`: which job starts when, and where.
//!
//! Key type: [`Queue`]. Neighbours: `hearth_alloc::queue` has the policies,
//! `hearth_alloc::placement` the algorithms, `jobs` uses both.

use hearth_alloc::placement::Placing;
use hearth_alloc::placement::exact::Preference;
use hearth_alloc::queue::{self, Policy, QUEUED_MAX};
use serde::{Deserialize, Serialize};

use crate::jobs::JOBS_MAX;

/// Section `[queue]`.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Queue {
    /// When jobs start.
    policy: PolicyName,
    /// Jobs in the published window.
    window: usize,
    /// When passes run.
    pub passes: Passes,
    /// How nodes are chosen.
    placement: PlacingName,
    /// What warm nodes count.
    prefer: Prefer,
    /// Nodes that are given out together; 0: the publication's rule.
    pub unit: u32,
    /// Most running jobs of a user, 0 for any number.
    pub user_jobs_max: u32,
    /// Most nodes of a user, 0 for any number.
    pub user_nodes_max: u32,
    /// Most waiting jobs of a user, 0 for any number.
    pub user_queued_max: usize,
    /// Seconds of waiting after which a job goes before all priorities.
    pub overdue_after_s: u64,
    /// How often a job is queued again.
    pub requeue_max: u32,
    /// Failures of a node, one after the other, after which it is drained; 0: never.
    pub drain_after_failures: u32,
}

/// When scheduling passes run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Passes {
    /// When a job arrives or ends, and when nodes come or go.
    Every,
    /// As published: when a job arrives or ends.
    Published,
}

impl Queue {
    /// When jobs start.
    pub fn policy(&self) -> Policy {
        match self.policy.0 {
            Policy::Published { .. } => Policy::Published {
                window: self.window,
            },
            policy => policy,
        }
    }

    /// How nodes are chosen.
    pub fn placing(&self) -> Placing {
        match self.placement.0 {
            Placing::Exact(_) => Placing::Exact(self.prefer.0),
            placing => placing,
        }
    }

    /// Bounds for users and for waiting. Times are in milliseconds.
    pub fn limits(&self) -> queue::Limits {
        let some = |most: u32| (most > 0).then_some(most);
        queue::Limits {
            // Who is admitted is decided before (`queue_max`); what was admitted, runs again or
            // returns after a restart always has its place.
            queued: QUEUED_MAX + JOBS_MAX,
            running: JOBS_MAX,
            running_of_user: some(self.user_jobs_max),
            nodes_of_user: some(self.user_nodes_max),
            overdue_after: self.overdue_after_s.saturating_mul(1_000),
        }
    }
}

/// A policy by its name.
#[derive(Debug, Clone, Copy, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
struct PolicyName(Policy);

impl TryFrom<String> for PolicyName {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        name.parse().map(PolicyName)
    }
}

impl From<PolicyName> for String {
    fn from(name: PolicyName) -> String {
        name.0.to_string()
    }
}

/// An algorithm by its name.
#[derive(Debug, Clone, Copy, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
struct PlacingName(Placing);

impl TryFrom<String> for PlacingName {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        name.parse().map(PlacingName)
    }
}

impl From<PlacingName> for String {
    fn from(name: PlacingName) -> String {
        name.0.to_string()
    }
}

/// What warm nodes count: `hops`, `warm`, `none` or lambda.
#[derive(Debug, Clone, Copy, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
struct Prefer(Preference);

impl TryFrom<String> for Prefer {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        preference(&text).map(Prefer)
    }
}

impl From<Prefer> for String {
    fn from(prefer: Prefer) -> String {
        match prefer.0 {
            Preference::None => "none".to_string(),
            Preference::HopsFirst => "hops".to_string(),
            Preference::WarmFirst => "warm".to_string(),
            Preference::Weighted { milli } => (f64::from(milli) / 1e3).to_string(),
        }
    }
}

/// Largest lambda, in hops: more than any two nodes can be apart.
const LAMBDA_MAX: f64 = 1_000.0;

/// What warm nodes count: `hops`, `warm`, `none` or lambda.
///
/// # Errors
/// What to write instead.
pub fn preference(text: &str) -> Result<Preference, String> {
    Ok(match text {
        "hops" => Preference::HopsFirst,
        "warm" => Preference::WarmFirst,
        "none" => Preference::None,
        number => {
            let lambda = number.parse::<f64>().ok();
            let lambda = lambda.filter(|lambda| (0.0..=LAMBDA_MAX).contains(lambda));
            let lambda = lambda.ok_or("use hops, warm, none, or a number of hops as in 0.5")?;
            Preference::Weighted {
                milli: (lambda * 1_000.0).round() as u32,
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Queue, String> {
        let defaults = crate::config::defaults().queue;
        let mut table = toml::Table::try_from(defaults).unwrap();
        table.extend(toml::from_str::<toml::Table>(text).unwrap());
        table
            .try_into()
            .map_err(|error: toml::de::Error| error.to_string())
    }

    #[test]
    fn names_become_policies() {
        let defaults = read("").unwrap();
        assert_eq!(defaults.policy(), Policy::Easy);
        assert_eq!(defaults.placing(), Placing::Exact(Preference::HopsFirst));
        let limits = defaults.limits();
        assert_eq!(
            (limits.queued, limits.running_of_user),
            (QUEUED_MAX + JOBS_MAX, None)
        );
        assert_eq!(limits.overdue_after, 7 * 24 * 3_600_000);
        let other = "policy = \"published\"\nwindow = 7\nplacement = \"exact\"\nprefer = \"0.5\"";
        let other = read(other).unwrap();
        assert_eq!(other.policy(), Policy::Published { window: 7 });
        let weighted = Preference::Weighted { milli: 500 };
        assert_eq!(other.placing(), Placing::Exact(weighted));
        assert_eq!(String::from(other.prefer), "0.5");
    }

    #[test]
    fn names_that_there_are_not_are_explained() {
        for (text, word) in [
            ("policy = \"fifo\"", "easy"),
            ("placement = \"best\"", "first-fit"),
            ("prefer = \"many\"", "hops"),
            ("passes = \"some\"", "published"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }
}
