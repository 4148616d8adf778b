//! Names that are made of a node's own: `{name}-bmc`, `10.0.1.{number+100}`.
//!
//! Key type: [`Template`]. Neighbours: `config` has them.
//!
//! Invariant: a template that is there has only placeholders that are known.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Action, Error, Machine};

/// A text with placeholders.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Template(String);

/// A placeholder that stands for nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0} in {1:?} stands for nothing; there are {{name}} (n3), {{number}} (3), {{number+100}} (103), {{mac}}, and in power.command {{action}}"
)]
pub struct TemplateError(String, String);

impl TryFrom<String> for Template {
    type Error = TemplateError;

    fn try_from(text: String) -> Result<Self, TemplateError> {
        let unknown = pieces(&text).find_map(|piece| match piece {
            Piece::Unknown(word) => Some(word.to_owned()),
            _ => None,
        });
        match unknown {
            Some(word) => Err(TemplateError(word, text)),
            None => Ok(Template(text)),
        }
    }
}

impl From<Template> for String {
    fn from(template: Template) -> String {
        template.0
    }
}

impl fmt::Display for Template {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl Template {
    /// Whether there is no text.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The text for a machine; `action` for templates of a command.
    ///
    /// # Errors
    /// [`Error::NoMac`]; [`Error::Template`] where there is no action.
    pub fn expand(&self, machine: &Machine, action: Option<Action>) -> Result<String, Error> {
        let mut text = String::new();
        for piece in pieces(&self.0) {
            match piece {
                Piece::Text(part) => text.push_str(part),
                Piece::Name => text.push_str(&machine.name()),
                Piece::Number(more) => text += &(u64::from(machine.node) + more).to_string(),
                Piece::Mac => {
                    let mac = machine.known_mac()?;
                    text += &mac.map(|byte| format!("{byte:02x}")).join(":");
                }
                Piece::Action => match action {
                    Some(action) => text += &action.to_string(),
                    None => {
                        let word = "{action}".to_owned();
                        return Err(TemplateError(word, self.0.clone()).into());
                    }
                },
                Piece::Unknown(_) => unreachable!("refused when it was made"),
            }
        }
        Ok(text)
    }
}

/// A part of a template.
enum Piece<'a> {
    Text(&'a str),
    Name,
    /// The number of the node and so many more.
    Number(u64),
    Mac,
    Action,
    Unknown(&'a str),
}

fn pieces(text: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        if !rest.starts_with('{') {
            let (text, behind) = rest.split_at(rest.find('{').unwrap_or(rest.len()));
            rest = behind;
            return Some(Piece::Text(text));
        }
        let Some(end) = rest.find('}') else {
            return Some(Piece::Unknown(std::mem::take(&mut rest)));
        };
        let (word, behind) = rest.split_at(end + 1);
        rest = behind;
        let more = word
            .strip_prefix("{number+")
            .and_then(|more| more.strip_suffix('}'))
            .and_then(|more| more.parse::<u32>().ok());
        Some(match (word, more) {
            ("{name}", _) => Piece::Name,
            ("{number}", _) => Piece::Number(0),
            ("{mac}", _) => Piece::Mac,
            ("{action}", _) => Piece::Action,
            (_, Some(more)) => Piece::Number(more.into()),
            (word, None) => Piece::Unknown(word),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: Machine = Machine {
        node: 3,
        mac: Some([0x52, 0x54, 0, 7, 0, 0xab]),
    };

    fn expanded(text: &str) -> String {
        let template = Template::try_from(text.to_owned()).unwrap();
        template.expand(&MACHINE, Some(Action::Reset)).unwrap()
    }

    #[test]
    fn placeholders_stand_for_what_the_node_is_called() {
        assert_eq!(expanded("{name}-bmc.example"), "n3-bmc.example");
        assert_eq!(expanded("10.0.1.{number+100}"), "10.0.1.103");
        assert_eq!(expanded("{number}/{mac}"), "3/52:54:00:07:00:ab");
        assert_eq!(expanded("--{action}"), "--reset");
        assert_eq!(expanded(""), "");
    }

    #[test]
    fn what_stands_for_nothing_is_refused() {
        for wrong in ["{nme}", "{number+x}", "{number+-1}", "a{name", "{}"] {
            let error = Template::try_from(wrong.to_owned()).unwrap_err();
            assert!(error.to_string().contains("{number+100}"), "{error}");
        }
        let unknown = Machine { node: 3, mac: None };
        let template = Template::try_from("{mac}".to_owned()).unwrap();
        let error = template.expand(&unknown, None).unwrap_err();
        assert!(error.to_string().contains("n3"), "{error}");
        let template = Template::try_from("{action}".to_owned()).unwrap();
        assert!(template.expand(&MACHINE, None).is_err());
    }
}
