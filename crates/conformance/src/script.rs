//! Cases as text.
//!
//! ```text
//! list removal = unlink | rmdir
//!
//! case removal/of-nothing
//! needs tmpfile
//! for call = @removal
//! for path = missing | missing/below
//!   mkdir d 0777
//!   u1: $call $path => ENOENT
//! ```
//!
//! `for` makes one case of each combination of its values; with several names, `for mask mode = 022
//! 0755 | 077 0700`, each value has one word for each name. A step is `[WHO:] [VARIABLE =] CALL [=>
//! EXPECTED]`. By default, root makes the call and success is expected. `later` in front of a call
//! leaves its reply to the step `await` of the same process; `pending` is a step that fails if
//! there is a reply already. An indented line that begins with `|` continues the line above.

use crate::case::{Case, Expected, Step};
use crate::credentials;
use anyhow::{Context, bail};
use std::collections::HashMap;

/// Variables whose values are known when a script is read.
type Variables = Vec<(String, String)>;

/// A case whose variants are not made yet.
#[derive(Default)]
struct Template {
    name: String,
    needs: Vec<String>,
    lacks: Vec<String>,
    variables: Vec<(String, Vec<String>)>,
    lines: Vec<String>,
}

/// Reads scripts, later ones of which may use the lists of earlier ones.
#[derive(Default)]
pub struct Reader {
    lists: HashMap<String, Vec<String>>,
}

impl Reader {
    /// Reads the cases of one script, each of which begins with the given word (`case`, `feature`).
    pub fn read(&mut self, script: &str, keyword: &str) -> anyhow::Result<Vec<Case>> {
        let mut templates: Vec<Template> = Vec::new();
        for line in joined(script) {
            let (first, rest) = line.split_once(' ').unwrap_or((&line, ""));
            if first == "list" {
                let (name, values) = rest.split_once(" = ").context("a list without values")?;
                let values = self.values(values)?;
                self.lists.insert(name.to_owned(), values);
                continue;
            }
            if first == keyword {
                templates.push(Template { name: rest.to_owned(), ..Template::default() });
                continue;
            }
            let template = templates.last_mut().with_context(|| format!("no case: {line}"))?;
            match first {
                "needs" => template.needs.extend(rest.split(' ').map(str::to_owned)),
                "lacks" => template.lacks.extend(rest.split(' ').map(str::to_owned)),
                "for" => {
                    let (name, values) = rest.split_once(" = ").context("for without values")?;
                    template.variables.push((name.to_owned(), self.values(values)?));
                }
                _ => template.lines.push(line),
            }
        }
        let cases = templates.iter().map(Template::cases).collect::<Result<Vec<_>, _>>()?;
        Ok(cases.concat())
    }

    /// Splits values, in which `@` stands in front of the name of a list, and `1..9` is every
    /// number.
    fn values(&self, text: &str) -> anyhow::Result<Vec<String>> {
        let mut values = Vec::new();
        for value in text.split(" | ").map(str::trim) {
            if let Some(list) = value.strip_prefix('@') {
                let list = self.lists.get(list).with_context(|| format!("no list {list}"))?;
                values.extend_from_slice(list);
            } else if let Some(numbers) = range(value) {
                values.extend(numbers.map(|number| number.to_string()));
            } else {
                values.push(value.to_owned());
            }
        }
        Ok(values)
    }
}

/// The numbers from one to another.
fn range(text: &str) -> Option<std::ops::RangeInclusive<u32>> {
    let (first, last) = text.split_once("..")?;
    Some(first.parse().ok()?..=last.parse().ok()?)
}

/// The lines of a script, without comments.
fn joined(script: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in script.lines().map(str::trim) {
        match lines.last_mut() {
            _ if line.is_empty() || line.starts_with('#') => {}
            Some(above) if line.starts_with('|') => {
                above.push(' ');
                above.push_str(line);
            }
            _ => lines.push(line.to_owned()),
        }
    }
    lines
}

impl Template {
    fn cases(&self) -> anyhow::Result<Vec<Case>> {
        let mut combinations: Vec<Variables> = vec![Vec::new()];
        for (name, values) in &self.variables {
            let longer = combinations.iter().flat_map(|before| {
                values.iter().map(move |value| [&before[..], &paired(name, value)].concat())
            });
            combinations = longer.collect();
        }
        combinations.into_iter().map(|variables| self.case(&variables)).collect()
    }

    fn case(&self, variables: &Variables) -> anyhow::Result<Case> {
        let values = Vec::from_iter(variables.iter().map(|(_, value)| value.as_str()));
        let name = match &values[..] {
            [] => self.name.clone(),
            values => format!("{} [{}]", self.name, replaced(&values.join(", "), variables)),
        };
        let steps = self.lines.iter().map(|line| {
            step(&replaced(line, variables)).with_context(|| format!("{name}: {line}"))
        });
        let steps = steps.collect::<Result<_, _>>()?;
        Ok(Case { needs: self.needs.clone(), lacks: self.lacks.clone(), name, steps })
    }
}

/// Gives each of some names its word of a value, the last one all that is left.
fn paired(names: &str, value: &str) -> Variables {
    let names = Vec::from_iter(names.split(' '));
    let words = value.splitn(names.len(), ' ');
    names.iter().zip(words).map(|(name, word)| ((*name).to_owned(), word.to_owned())).collect()
}

/// Replaces variables, also in the values that replace them. Unknown variables stay.
fn replaced(line: &str, variables: &Variables) -> String {
    let mut line = line.to_owned();
    for _ in 0..=variables.len() {
        line = replace(&line, |name| {
            let known = variables.iter().find(|(known, _)| known == name);
            known.map(|(_, value)| value.clone()).or_else(|| user(name))
        });
    }
    line
}

/// The numbers of users and groups: `$u1`, `$g1`.
fn user(name: &str) -> Option<String> {
    let number = name.strip_prefix(['u', 'g'])?.parse().ok()?;
    (1..=credentials::USERS).contains(&number).then(|| credentials::id(number).to_string())
}

/// Replaces each `$name` that has a value.
pub fn replace(text: &str, value: impl Fn(&str) -> Option<String>) -> String {
    let mut pieces = text.split('$');
    let mut result = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let end = piece.find(|letter: char| !letter.is_ascii_alphanumeric());
        let (name, after) = piece.split_at(end.unwrap_or(piece.len()));
        match value(name) {
            Some(value) => result.push_str(&value),
            None => result.extend(["$", name]),
        }
        result.push_str(after);
    }
    result
}

/// Reads one step.
pub fn step(line: &str) -> anyhow::Result<Step> {
    let (call, expected) = match line.split_once("=>") {
        Some((call, expected)) => (call.trim(), Expected::parse(expected)),
        None => (line, Expected::Success),
    };
    let (who, call) = match call.split_once(": ") {
        Some((who, call)) if !who.contains(' ') => (who, call),
        _ => ("root", call),
    };
    let (variable, call) = match call.split_once(" = ") {
        Some((variable, call)) => (Some(variable.to_owned()), call),
        None => (None, call),
    };
    let (later, call) = match call.strip_prefix("later ") {
        Some(call) => (true, call),
        None => (false, call),
    };
    if call.is_empty() || variable.as_ref().is_some_and(|variable| variable.contains(' ')) {
        bail!("no step");
    }
    Ok(Step { who: who.to_owned(), variable, call: call.to_owned(), later, expected })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_combined() {
        let script = "list both = a | b\ncase x\nneeds y\nfor p = @both\n | c\nfor q = $p | 1..1\n \
                      u1: v = open $p$q $w $u1 => E$q";
        let cases = Reader::default().read(script, "case").unwrap();
        let names = Vec::from_iter(cases.iter().map(|case| case.name.as_str()));
        assert_eq!(names, ["x [a, a]", "x [a, 1]", "x [b, b]", "x [b, 1]", "x [c, c]", "x [c, 1]"]);
        assert_eq!(cases[1].steps, [step("u1: v = open a1 $w 65533 => E1").unwrap()]);
        assert_eq!(cases[1].needs, ["y"]);
        assert_eq!(cases[1].steps[0].who, "u1");
        assert_eq!(cases[1].steps[0].variable.as_deref(), Some("v"));
    }
}
