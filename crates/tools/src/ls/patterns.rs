//! Patterns of names that are left out.

use canopy_model::escape;
use canopy_text::{Characters, Glob};

/// A shell pattern of names, in which a leading dot has to be written.
#[derive(Clone, Debug)]
pub struct NamePattern {
    glob: Glob,
    /// Whether it begins with a dot.
    dot: bool,
}

impl NamePattern {
    /// Compiles a pattern. Fails as [`Glob::new`] does.
    pub fn new(pattern: &[u8]) -> canopy_text::Result<Self> {
        let dot = matches!(pattern, [b'.', ..] | [b'\\', b'.', ..]);
        Ok(NamePattern { glob: Glob::new(pattern, false, Characters::of_locale())?, dot })
    }

    /// Returns whether a name matches.
    pub(super) fn matches(&self, name: &[u8]) -> bool {
        (self.dot || !name.starts_with(b".")) && self.glob.matches(&escape(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leading_dots_are_written() {
        let matches = |pattern: &str, name: &str| {
            NamePattern::new(pattern.as_bytes()).unwrap().matches(name.as_bytes())
        };
        assert!(matches("*~", "a~") && matches(".*~", ".a~") && matches("\\.a", ".a"));
        for pattern in ["*", "?a", "[.]a", "*a"] {
            assert!(!matches(pattern, ".a"), "{pattern}");
        }
    }
}
