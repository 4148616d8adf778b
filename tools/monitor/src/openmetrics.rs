//! The text format that monitoring systems read: OpenMetrics 1.0.
//!
//! Key types: [`Text`]. Invariant: whatever names and values come in, what comes out is
//! well-formed: names are reduced to the allowed characters, labels and help are escaped
//! (OpenMetrics 1.0, "Escaping"), a family appears once.

use std::collections::BTreeSet;

use crate::Kind;

/// The content type of an answer.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// An exposition under way.
#[derive(Debug, Default)]
pub struct Text {
    text: String,
    families: BTreeSet<String>,
    /// Name of samples of the family under way; empty: the family was there before and is left out.
    sample: String,
}

/// A name of allowed characters.
pub fn name(text: &str) -> String {
    let allowed = |character: char| {
        if character.is_ascii_alphanumeric() || matches!(character, '_' | ':') {
            character
        } else {
            '_'
        }
    };
    let mut name: String = text.chars().map(allowed).collect();
    if !name.starts_with(|first: char| first.is_ascii_alphabetic() || matches!(first, '_' | ':')) {
        name.insert(0, '_');
    }
    name
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

impl Text {
    /// Begins a family. The name of a counter may end in `_total`; a unit is said when the name
    /// ends in it, as the format wants.
    pub fn family(&mut self, metric: &str, kind: Kind, unit: &str, help: &str) {
        let metric = name(metric);
        let family = match kind {
            Kind::Counter => metric.strip_suffix("_total").unwrap_or(&metric).to_string(),
            Kind::Gauge => metric,
        };
        self.sample.clear();
        if !self.families.insert(family.clone()) {
            return;
        }
        let word = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        self.text.push_str(&format!("# TYPE {family} {word}\n"));
        let unit = name(unit);
        if unit != "_" && family.ends_with(&format!("_{unit}")) {
            self.text.push_str(&format!("# UNIT {family} {unit}\n"));
        }
        self.text
            .push_str(&format!("# HELP {family} {}\n", escaped(help)));
        self.sample = match kind {
            Kind::Counter => format!("{family}_total"),
            Kind::Gauge => family,
        };
    }

    /// A value of the family begun last.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: f64) {
        if self.sample.is_empty() {
            return;
        }
        self.text.push_str(&self.sample);
        for (index, (label, text)) in labels.iter().enumerate() {
            self.text.push(if index == 0 { '{' } else { ',' });
            // Colons are for metrics, not for labels.
            let label = name(label).replace(':', "_");
            self.text
                .push_str(&format!("{label}=\"{}\"", escaped(text)));
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let value = if value == f64::INFINITY {
            "+Inf".to_string()
        } else if value == f64::NEG_INFINITY {
            "-Inf".to_string()
        } else {
            value.to_string()
        };
        self.text.push_str(&format!(" {value}\n"));
    }

    /// The whole text.
    pub fn finish(mut self) -> String {
        self.text.push_str("# EOF\n");
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exposition_reads_as_the_format_says() {
        let mut text = Text::default();
        text.family(
            "hearth_idle_seconds_total",
            Kind::Counter,
            "seconds",
            "Time spent halted.",
        );
        text.sample(&[("node", "n0")], 1.5);
        text.family("hearth_nodes", Kind::Gauge, "", "Nodes.");
        text.sample(&[], 3.0);
        let expected = "# TYPE hearth_idle_seconds counter\n# UNIT hearth_idle_seconds seconds\n\
            # HELP hearth_idle_seconds Time spent halted.\nhearth_idle_seconds_total{node=\"n0\"} 1.5\n\
            # TYPE hearth_nodes gauge\n# HELP hearth_nodes Nodes.\nhearth_nodes 3\n# EOF\n";
        assert_eq!(text.finish(), expected);
    }

    #[test]
    fn hostile_names_stay_inside_their_places() {
        let mut text = Text::default();
        text.family("9 bad\n# EOF", Kind::Gauge, "b\nad", "help\nx 1");
        text.sample(&[("a b", "\"} 1\n# EOF\\"), ("c:d", "ok")], f64::INFINITY);
        text.family("9 bad\n# EOF", Kind::Gauge, "", "again");
        text.sample(&[], 1.0);
        let text = text.finish();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "# TYPE _9_bad___EOF gauge",
                "# HELP _9_bad___EOF help\\nx 1",
                "_9_bad___EOF{a_b=\"\\\"} 1\\n# EOF\\\\\",c_d=\"ok\"} +Inf",
                "# EOF",
            ]
        );
    }
}
