//! Export for spreadsheets: RFC 4180, one row a node and step.
//!
//! Invariant: text that came from outside never begins a formula: a field that begins with `=`,
//! `+`, `-`, `@`, a tab or a line end gets an apostrophe before it (OWASP, "CSV Injection").
//! Numbers are ours and stay numbers.

use std::io::{self, Write};
use std::ops::ControlFlow;

use crate::reader::{Level, Nodes, Reader, Span};
use crate::rollup::Rollup;
use crate::{Metric, MonitorError};

/// A field of text.
pub fn field(text: &str) -> String {
    let dangerous = |first: char| matches!(first, '=' | '+' | '-' | '@' | '\t' | '\r' | '\n');
    let guard = if text.starts_with(dangerous) { "'" } else { "" };
    if text.contains(['"', ',', '\r', '\n']) || !guard.is_empty() {
        format!("\"{guard}{}\"", text.replace('"', "\"\""))
    } else {
        text.to_string()
    }
}

/// Year, month and day of a day counted from 1970-01-01 (Hinnant, "chrono-compatible low-level date
/// algorithms", civil_from_days).
pub fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let of_era = shifted % 146_097;
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

/// `2026-11-22T02:54:39.125Z`.
pub fn time(at_ms: u64) -> String {
    let (year, month, day) = civil(at_ms / crate::DAY_MS);
    let of_day = at_ms % crate::DAY_MS;
    let (hour, minute) = (of_day / 3_600_000, of_day / 60_000 % 60);
    let (second, millisecond) = (of_day / 1_000 % 60, of_day % 1_000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millisecond:03}Z")
}

/// Why an export ended early.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The values cannot be read.
    #[error(transparent)]
    Read(#[from] MonitorError),
    /// The reader of the export went away.
    #[error("cannot write the export: {0}")]
    Write(#[from] io::Error),
}

/// Writes `metrics` of `nodes` over `span`: a head line, then a row a node and step with the mean
/// of each gauge and the last count of each counter, in base units; nothing where there is no data.
/// `name` gives nodes their names. Gives the number of rows. `out` may be slow: nothing of the
/// files is held meanwhile.
///
/// # Errors
/// [`ExportError`].
pub fn export(
    reader: &Reader,
    level: Level,
    span: Span,
    nodes: Nodes,
    metrics: &[Metric],
    name: &dyn Fn(u32) -> String,
    out: &mut dyn Write,
) -> Result<u64, ExportError> {
    let mut head = String::from("time,node");
    for metric in metrics {
        head.push(',');
        head.push_str(&field(&metric.name));
    }
    write!(out, "{head}\r\n")?;
    let (mut rows, mut failed) = (0, None);
    let mut line = String::new();
    reader.visit(level, span, nodes, metrics, &mut |at, node, rollups| {
        line.clear();
        line.push_str(&time(at));
        line.push(',');
        line.push_str(&field(&name(node)));
        for (metric, rollup) in metrics.iter().zip(rollups) {
            line.push(',');
            if let Some(value) = value(metric, rollup) {
                line.push_str(&value.to_string());
            }
        }
        line.push_str("\r\n");
        match out.write_all(line.as_bytes()) {
            Ok(()) => {
                rows += 1;
                ControlFlow::Continue(())
            }
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        }
    })?;
    match failed {
        Some(error) => Err(error.into()),
        None => Ok(rows),
    }
}

fn value(metric: &Metric, rollup: &Rollup) -> Option<f64> {
    if rollup.count == 0 {
        return None;
    }
    let stored = match metric.kind {
        crate::Kind::Counter => rollup.max as f64,
        crate::Kind::Gauge => rollup.sum as f64 / rollup.count as f64,
    };
    Some(scaled(stored, metric.scale))
}

/// `stored * scale` without the digits that a scale of 1e-6 makes up: 3 * 1e-6 is 0.000003.
pub fn scaled(stored: f64, scale: f64) -> f64 {
    if scale != 0.0 && scale < 1.0 {
        let units = (1.0 / scale).round();
        if (units * scale - 1.0).abs() < 1e-9 {
            return stored / units;
        }
    }
    stored * scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_from_outside_are_harmless() {
        for (text, safe) in [
            ("n3", "n3"),
            ("=1+1", "\"'=1+1\""),
            ("@SUM(A1)", "\"'@SUM(A1)\""),
            ("-2+3", "\"'-2+3\""),
            ("+cmd|' /C calc'!A0", "\"'+cmd|' /C calc'!A0\""),
            ("\t=x", "\"'\t=x\""),
            ("a,b", "\"a,b\""),
            ("a\"b", "\"a\"\"b\""),
            ("a\nb", "\"a\nb\""),
        ] {
            assert_eq!(field(text), safe);
        }
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(time(951_827_696_007), "2000-02-29T12:34:56.007Z");
        assert_eq!(scaled(3.0, 1e-6).to_string(), "0.000003");
        assert_eq!(scaled(3.0, 4096.0).to_string(), "12288");
    }
}
