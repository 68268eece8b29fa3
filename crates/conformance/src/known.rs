//! Known failures: a file of lines, each the name of a case or the beginning of several names with
//! a `*` behind it, and a reason behind a `#`.

use anyhow::Context;
use std::path::Path;

/// The names of cases that are known to fail.
#[derive(Default)]
pub struct Known(Vec<String>);

impl Known {
    /// Reads such a file.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path);
        let text = text.with_context(|| format!("{}: cannot be read", path.display()))?;
        Ok(Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let lines = text.lines().map(|line| line.split(" #").next().unwrap_or_default().trim());
        let names = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        Self(names.map(str::to_owned).collect())
    }

    /// Whether a case is known to fail.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|known| match known.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == known,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_beginnings_are_known() {
        let known = Known::parse("# all\n\nlink/a [x y] # because\nxattr/*\n");
        for (name, is_known) in [("link/a [x y]", true), ("link/a", false), ("xattr/b", true)] {
            assert_eq!(known.has(name), is_known, "{name}");
        }
    }
}
