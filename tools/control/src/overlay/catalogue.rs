//! The metrics that streams can have: their numbers, names and base units, and what to say of a
//! name that is not among them.
//!
//! Key items: [`Described`] with [`Described::in_base_units`], the one way from what nodes send to
//! what people see; [`raw_bounds`], the way back; [`wanted`]; [`all`]. Neighbours: the tables of
//! `netstack::overlay`, where the numbers are; [`super::view`] and [`super::kept`], which show
//! values.
//!
//! Invariant: nobody outside sees or gives a raw value: numbers are in the unit that the metric's
//! name says.

use std::collections::HashMap;
use std::sync::LazyLock;

use hearth_monitor::csv;
use netstack::overlay::{MetricId, MetricKind, OverlayMetric, ProfileMetric};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::near;

/// Raw values are below this, up and down: a number of base units that is larger was not meant.
const RAW_MOST: f64 = 9.0e18;
/// How far from a raw value a number may be, in raw units, at least: 0.1 s is no sum of powers of
/// two. Of large numbers, as far as their digits go: a f64 has fewer parts of a second the more
/// seconds it has.
const RAW_SLACK: f64 = 1e-3;

/// A metric as people and other systems see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described {
    /// Its name in base units.
    pub name: String,
    /// Whether it only grows.
    pub counter: bool,
    /// Its base unit; empty for plain counts.
    pub unit: &'static str,
    /// Raw units in one base unit.
    pub scale: u32,
    /// One sentence.
    pub help: String,
}

impl Described {
    /// One raw unit in base units.
    pub fn worth(&self) -> f64 {
        1.0 / f64::from(self.scale)
    }

    /// A raw value, as nodes send it, in base units: the number that its name promises.
    pub fn in_base_units(&self, raw: f64) -> f64 {
        csv::scaled(raw, self.worth())
    }

    /// The raw value of a number in base units.
    ///
    /// # Errors
    /// Why no value can be that.
    fn raw(&self, number: f64) -> Result<i64, String> {
        let (name, scaled) = (&self.name, number * f64::from(self.scale));
        let raw = scaled.round();
        // Both ends are exact in a f64, and far beyond what anything here counts to.
        if !scaled.is_finite() || raw.abs() >= RAW_MOST {
            return Err(format!("{number} is beyond what {name} can be"));
        }
        let slack = RAW_SLACK.max(4.0 * f64::EPSILON * scaled.abs());
        if (scaled - raw).abs() > slack {
            let step = csv::scaled(1.0, self.worth());
            return Err(format!(
                "{number} is no value of {name}, which has steps of {step}"
            ));
        }
        Ok(raw as i64)
    }
}

/// All metrics by their numbers.
static BY_NUMBER: LazyLock<HashMap<u16, Described>> = LazyLock::new(|| {
    let described = |number| Some((number, describe(MetricId(number))?));
    (0..=u16::MAX).filter_map(described).collect()
});

/// What is known of a metric by its number. Made once: answers ask for it with each value of each
/// node, under the lock.
pub fn described(metric: MetricId) -> Option<&'static Described> {
    BY_NUMBER.get(&metric.0)
}

/// The same, from the tables of numbers.
fn describe(metric: MetricId) -> Option<Described> {
    let tables = [
        &netstack::overlay::NodeMetric::DEFS[..],
        &OverlayMetric::DEFS,
        &netstack::overlay::NetworkMetric::DEFS,
        &ProfileMetric::DEFS,
    ];
    // Parts of a program's text have numbers in their names, the first one too.
    let buckets = ProfileMetric::FIRST + ProfileMetric::Buckets as u16;
    let found = tables
        .iter()
        .flat_map(|table| table.iter())
        .find(|def| def.id == metric && metric.0 != buckets);
    if let Some(def) = found {
        return Some(Described {
            name: def.open_metrics_name(),
            counter: def.kind == MetricKind::Counter,
            unit: def.unit.suffix().trim_start_matches('_'),
            scale: def.unit.scale(),
            help: format!("{}.", def.help),
        });
    }
    let count = |name: String, counter: bool, help: String| Described {
        name,
        counter,
        unit: "",
        scale: 1,
        help,
    };
    if let Some(part) = metric.0.checked_sub(buckets)
        && usize::from(part) < ProfileMetric::BUCKETS
    {
        let name = format!("hearth_profile_bucket_{part}_total");
        let parts = ProfileMetric::BUCKETS;
        let help =
            format!("Samples in part {part} of the {parts} equal parts of the text, from 0.");
        return Some(count(name, true, help));
    }
    if let Some(index) = metric.0.checked_sub(MetricId::FIRST_PROGRAM) {
        let known = u64::from(index) < hearth_abi::monitor::COUNTERS_MAX;
        let help = format!("Counter {index} of the program.");
        return known.then(|| count(format!("hearth_program_counter_{index}"), false, help));
    }
    let index = metric.0.checked_sub(MetricId::FIRST_CALL)?;
    let number = match u64::from(index) {
        index @ 0..512 => index,
        index => index - 512 + 4096,
    };
    let name = hearth_abi::sysno::name(number)?.to_lowercase();
    let help = format!("Times that programs called {name}, over all nodes.");
    Some(count(format!("hearth_call_{name}_total"), true, help))
}

/// The name of a metric in base units, and raw units in one of these.
pub fn name_of(metric: MetricId) -> Option<(String, u32)> {
    described(metric).map(|described| (described.name.clone(), described.scale))
}

/// The name of a metric, or its number where it has none.
pub fn shown_name(metric: MetricId) -> String {
    name_of(metric).map_or_else(|| metric.0.to_string(), |(name, _)| name)
}

/// A raw value of a metric in base units; as it is, of one that has no name.
pub fn in_base_units(metric: MetricId, raw: f64) -> f64 {
    described(metric).map_or(raw, |described| described.in_base_units(raw))
}

/// All metrics by their names.
static BY_NAME: LazyLock<HashMap<String, MetricId>> = LazyLock::new(|| {
    let all = (1..=u16::MAX).rev().map(MetricId);
    let named = |metric| Some((name_of(metric)?.0, metric));
    all.filter_map(named).collect()
});

/// A metric that streams can have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MetricRow {
    /// Its number, which can stand for its name.
    pub number: u16,
    /// Its name.
    pub name: String,
    /// The unit of its values and of bounds; empty for plain counts.
    pub unit: String,
    /// Whether it only grows.
    pub counter: bool,
    /// One sentence.
    pub help: String,
}

/// All metrics, by number.
pub fn all() -> Vec<MetricRow> {
    let row = |number| {
        let described = described(MetricId(number))?;
        Some(MetricRow {
            number,
            name: described.name.clone(),
            unit: described.unit.to_string(),
            counter: described.counter,
            help: described.help.clone(),
        })
    };
    (1..=u16::MAX).filter_map(row).collect()
}

/// The metric that somebody names, by its name or its number.
///
/// # Errors
/// There is none; which names are near, and what lists all.
pub fn wanted(name: &str) -> Result<MetricId, String> {
    let number = name.parse().ok().map(MetricId);
    let known = match number {
        Some(metric) => described(metric).map(|_| metric),
        None => BY_NAME.get(name).copied(),
    };
    known.ok_or_else(|| {
        let near = near::did_you_mean(name, BY_NAME.keys().map(String::as_str));
        let name = near::quoted(name);
        format!(
            "there is no metric {name}{near}; `hearth overlay metrics` (GET /v1/overlay/metrics) lists all"
        )
    })
}

/// The bounds of a histogram as nodes compare with them, from `bounds` in base units.
///
/// # Errors
/// The metrics have several units, or a bound is no value of theirs.
pub fn raw_bounds(bounds: &[f64], metrics: &[MetricId]) -> Result<Vec<i64>, String> {
    let mut described = metrics.iter().filter_map(|metric| described(*metric));
    let Some(first) = described.next() else {
        return Ok(Vec::new());
    };
    let word = |unit: &str| match unit {
        "" => "a plain count".to_string(),
        unit => format!("in {unit}"),
    };
    if let Some(other) = described.find(|other| other.unit != first.unit) {
        return Err(format!(
            "bounds are in the unit of the metrics, which have to have the same: {} is {}, {} is {}; open a stream for each unit",
            first.name,
            word(first.unit),
            other.name,
            word(other.unit)
        ));
    }
    let raw = bounds.iter().map(|bound| first.raw(*bound));
    raw.collect::<Result<_, _>>()
        .map_err(|error| format!("bounds: {error}"))
}

/// Families of metrics of which one line says the names: what all begin with, what is between, and
/// what they end with.
const FAMILIES: [(&str, &str); 3] = [
    ("hearth_call_", "_total"),
    ("hearth_profile_bucket_", "_total"),
    ("hearth_program_counter_", ""),
];

/// Those of `metrics` that stand for themselves; and in one line for each family those of single
/// system calls, of parts of a program's text, and counters of programs.
pub fn folded(metrics: &[MetricRow]) -> (Vec<&MetricRow>, Vec<String>) {
    let mut of_families: [Vec<&str>; FAMILIES.len()] = Default::default();
    let mut alone = Vec::new();
    for metric in metrics {
        let inside = |(begin, end): &(&str, &str)| {
            let rest = metric.name.strip_prefix(begin)?;
            rest.strip_suffix(end)
        };
        let family = FAMILIES.iter().position(|family| inside(family).is_some());
        match family {
            Some(family) => of_families[family].extend(inside(&FAMILIES[family])),
            None => alone.push(metric),
        }
    }
    let mut lines = Vec::new();
    for ((begin, end), members) in FAMILIES.iter().zip(of_families) {
        let numbers = members.iter().all(|member| member.parse::<u32>().is_ok());
        let members = match (numbers, &members[..]) {
            (_, []) => continue,
            (true, [first, .., last]) => format!("{first} to {last}"),
            _ => members.join(", "),
        };
        lines.push(format!("{begin}X{end} with X one of {members}"));
    }
    (alone, lines)
}

#[cfg(test)]
mod tests {
    use netstack::overlay::NodeMetric;

    use super::*;

    #[test]
    fn every_metric_is_found_by_its_name_and_its_number_and_is_listed() {
        let all = all();
        let (alone, lines) = folded(&all);
        for row in &all {
            let metric = Ok(MetricId(row.number));
            assert_eq!(wanted(&row.number.to_string()), metric, "{}", row.name);
            assert_eq!(wanted(&row.name), metric, "{}", row.name);
            let of_family = FAMILIES
                .iter()
                .any(|(begin, _)| row.name.starts_with(begin));
            assert!(of_family || alone.contains(&row), "{}", row.name);
            let number = MetricId(row.number);
            let twice = [described(number), described(number)].map(Option::unwrap);
            assert!(
                std::ptr::eq(twice[0], twice[1]),
                "{} is made anew",
                row.name
            );
        }
        let lines = lines.join("\n");
        for words in [
            "hearth_call_X_total with X one of read, write,",
            "hearth_profile_bucket_X_total with X one of 0 to 55",
            "hearth_program_counter_X with X one of 0 to 15",
        ] {
            assert!(lines.contains(words), "{words} is missing in\n{lines}");
        }
    }

    #[test]
    fn a_name_that_is_not_known_is_answered_with_near_ones_and_not_with_all() {
        for (name, near) in [
            ("hearth_node_uptime", "hearth_node_uptime_seconds"),
            (
                "hearth_node_memory_used_byte",
                "hearth_node_memory_used_bytes",
            ),
            ("hearth_call_wriet_total", "hearth_call_write_total"),
            ("uptime", "hearth_node_uptime_seconds"),
        ] {
            let error = wanted(name).unwrap_err();
            assert!(
                error.contains("did you mean") && error.contains(near),
                "{error}"
            );
            assert!(
                error.len() < 300 && error.contains("`hearth overlay metrics`"),
                "{error}"
            );
        }
        for strange in ["0", "nonsense", "65535", "99999999", ""] {
            let error = wanted(strange).unwrap_err();
            assert!(!error.contains("did you mean"), "{error}");
        }
    }

    #[test]
    fn bounds_are_in_the_unit_of_the_name() {
        let (uptime, used) = (NodeMetric::Uptime.id(), NodeMetric::MemoryUsed.id());
        assert_eq!(
            raw_bounds(&[-1.0, 0.1, 100.0], &[uptime]),
            Ok(vec![-1_000_000, 100_000, 100_000_000])
        );
        assert_eq!(raw_bounds(&[4096.0], &[used, used]), Ok(vec![4096]));
        // 200 days, and what a counter of microseconds reaches in 30 years.
        assert_eq!(
            raw_bounds(&[17_241_893.6, 946_684_800.000_001], &[uptime]),
            Ok(vec![17_241_893_600_000, 946_684_800_000_001])
        );
        for (bound, metrics, word) in [
            (0.5, &[used][..], "steps of 1"),
            (1e-7, &[uptime], "steps of 0.000001"),
            (1e300, &[uptime], "beyond"),
            (f64::NAN, &[uptime], "beyond"),
            (
                1.0,
                &[uptime, used],
                "in seconds, hearth_node_memory_used_bytes is in bytes",
            ),
        ] {
            let error = raw_bounds(&[bound], metrics).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }
}
