//! Regular expressions of find: the syntaxes of `-regextype`.
//!
//! `token` and `parse` read them as the C library does, by the choices of their `syntax`. The tree
//! (`node`) is written for the regex crate, which searches in linear time. That crate has no
//! back-references, so `backtrack` tries these expressions step by step, within a limit.
//!
//! They are matched against escaped names, in which a byte that is not UTF-8 is one character that
//! no dot matches.

mod backtrack;
mod node;
mod parse;
mod syntax;
mod token;

pub use syntax::Syntax;

use crate::characters::{Case, Characters};
use crate::error::{Error, Result};
use backtrack::Program;
use canopy_model::escape;
use parse::parse;
use regex::{Regex, RegexBuilder};

/// A regular expression of whole paths.
#[derive(Debug)]
pub struct PathRegex {
    pattern: String,
    characters: Characters,
    engine: Engine,
}

#[derive(Debug)]
enum Engine {
    Linear(Regex),
    Backtracking(Program),
}

impl PathRegex {
    /// Compiles a regular expression for paths of such characters.
    pub fn new(
        pattern: &[u8],
        syntax: Syntax,
        ignore_case: bool,
        characters: Characters,
    ) -> Result<Self> {
        let pattern = escape(pattern).into_owned();
        let case = if ignore_case { Case::Upper } else { Case::Matters };
        let engine = compile(&characters.of(&pattern), syntax, case, characters);
        match engine {
            Ok(engine) => Ok(PathRegex { pattern, characters, engine }),
            Err(why) => Err(Error::Regex { pattern, why }),
        }
    }

    /// Returns whether the whole path, escaped, matches. Fails where that takes too many steps to
    /// tell, as it may where the expression has back-references.
    pub fn matches(&self, path: &str) -> Result<bool> {
        let text = self.characters.of(path);
        match &self.engine {
            Engine::Linear(regex) => Ok(regex.is_match(&text)),
            Engine::Backtracking(program) => program.matches(&text).ok_or_else(|| {
                let (pattern, path) = (self.pattern.clone(), path.to_owned());
                Error::RegexSteps { pattern, path }
            }),
        }
    }
}

fn compile(
    pattern: &str,
    syntax: Syntax,
    case: Case,
    characters: Characters,
) -> Result<Engine, &'static str> {
    let tree = parse(pattern, syntax, case, characters)?;
    if tree.refers_back {
        return Program::new(&tree, case, characters).map(Engine::Backtracking);
    }
    let mut regex = "(?s)\\A(?:".to_owned();
    tree.root.write_regex(&mut regex);
    regex.push_str(")\\z");
    Regex::new(&regex).map(Engine::Linear).map_err(why)
}

/// Compiles a regular expression that may match any part of a text in UTF-8, as in grep(1), and
/// that takes no more than so many bytes of memory.
pub fn compile_search(
    pattern: &[u8],
    syntax: Syntax,
    ignore_case: bool,
    bytes_max: usize,
) -> Result<Regex> {
    let pattern = escape(pattern).into_owned();
    let case = if ignore_case { Case::Upper } else { Case::Matters };
    let compiled = parse(&pattern, syntax, case, Characters::Utf8).and_then(|tree| {
        if tree.refers_back {
            return Err("back-references are not supported");
        }
        let mut regex = "(?s)".to_owned();
        tree.root.write_regex(&mut regex);
        RegexBuilder::new(&regex).size_limit(bytes_max).build().map_err(why)
    });
    compiled.map_err(|why| Error::Regex { pattern, why })
}

/// Returns what regcomp(3) would call an error of the regex crate.
fn why(error: regex::Error) -> &'static str {
    match error {
        regex::Error::CompiledTooBig(_) => "Regular expression too big",
        _ => "Invalid regular expression",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path_regex(pattern: &str, syntax: &str, ignore_case: bool) -> Result<PathRegex> {
        let syntax = Syntax::named(syntax)?;
        PathRegex::new(pattern.as_bytes(), syntax, ignore_case, Characters::Utf8)
    }

    #[test]
    fn each_syntax_has_its_operators() {
        for (syntax, pattern, text, matches) in [
            ("emacs", ".*/a", "./x/a", true),
            ("emacs", ".*/a", "./x/ab", false),
            ("emacs", "\\(a\\|b\\)+", "abab", true),
            ("emacs", "(a)", "(a)", true),
            ("emacs", "a{2}", "a{2}", true),
            ("emacs", "a|b", "a|b", true),
            ("emacs", "*a", "*a", true),
            ("emacs", ".*[0-9]\\.txt", "x1.txt", true),
            ("posix-basic", "a\\{2\\}", "aa", true),
            ("posix-basic", "a+", "a+", true),
            ("posix-basic", "a\\+", "aaa", true),
            ("posix-minimal-basic", "a\\+", "a+", true),
            ("posix-extended", "(a|b){2,3}", "aba", true),
            ("posix-extended", "\\(a\\)", "(a)", true),
            ("posix-extended", "a.b", "a\nb", true),
            ("emacs", "a.b", "a\nb", false),
            ("grep", "a**", "aa", true),
            ("posix-extended", "a\\**", "a**", true),
            ("emacs", ".*\\s.*", "asb", false),
            ("emacs", ".*\\s.*", "a b", true),
            ("emacs", "\\S*", "a b", false),
            ("gnu-awk", ".*\\s.*", "a b", true),
            ("awk", ".*\\s.*", "asb", true),
            ("posix-awk", ".*\\<b\\w", "a<bw", true),
            ("emacs", "[[:upper:]]*", ":]]", true),
            ("emacs", "[z-a]", "z", false),
            ("emacs", "[^z-a]", "z", true),
            ("posix-extended", "[[=a=]][[.b.]]", "ab", true),
            ("posix-extended", "a{,3}", "aaa", true),
            ("posix-extended", "a{,3}", "aaaa", false),
            ("posix-basic", "a\\{,3\\}", "aa", true),
            ("posix-extended", "a{2}?", "", true),
            ("posix-extended", "a{2}?", "aa", true),
            ("posix-extended", "a*{1}", "aaa", true),
            ("egrep", "a{1x}", "a{1x}", true),
            ("awk", "a{2}", "a{2}", true),
            ("posix-extended", "a)", "a)", true),
            ("awk", "a[\\]]", "a]", true),
            ("awk", "a\\1", "a1", true),
            ("egrep", "(*a)", "a", true),
            ("gnu-awk", "(*a)", "*a", true),
        ] {
            let regex = path_regex(pattern, syntax, false).unwrap();
            assert_eq!(regex.matches(text), Ok(matches), "{syntax} {pattern} {text}");
        }
        for (syntax, pattern, why) in [
            ("posix-extended", "[[:foo:]]", "Invalid character class name"),
            ("posix-extended", "[z-a]", "Invalid range end"),
            ("emacs", "[[.hyphen.]]", "Invalid collation character"),
            ("posix-extended", "a{2", "Unmatched \\{"),
            ("posix-extended", "a{1,2,3}", "Invalid content of \\{\\}"),
            ("posix-extended", "a{3,1}", "Invalid content of \\{\\}"),
            ("posix-extended", "{2}", "Invalid preceding regular expression"),
            ("posix-extended", "a|*b", "Invalid preceding regular expression"),
            ("posix-extended", "a(", "Unmatched ( or \\("),
            ("emacs", "a\\)", "Unmatched ) or \\)"),
            ("posix-basic", "a**", "Invalid preceding regular expression"),
            ("posix-extended", "(a)|b\\1", "Invalid back reference"),
            ("posix-extended", "[^", "Invalid regular expression"),
        ] {
            let error = path_regex(pattern, syntax, false).unwrap_err();
            assert!(error.to_string().ends_with(why), "{pattern}: {error}");
        }
        let upper = path_regex("[[:upper:]]*", "posix-extended", true).unwrap();
        assert_eq!(upper.matches("a\u{ff15}"), Ok(true));
        assert_eq!(upper.matches("1"), Ok(false));
    }

    #[test]
    fn groups_are_referred_to() {
        for (pattern, text, matches) in [
            ("(a|b)\\1", "aa", true),
            ("(a|b)\\1", "ab", false),
            ("(.*)/\\1", "x/y/x/y", true),
            ("(.*)/\\1", "x/y/y/x", false),
            ("(a*)*b\\1", "aab", true),
            ("((a)|b){2}\\2", "aba", true),
            ("(a|ab)(c|bcd)\\1", "abcdab", false),
            ("(a|ab)(c|bcd)\\1", "abcda", true),
            ("(a)?b\\1", "b", false),
            ("(a|ab)(c|bcd)\\2*", "abcdbcd", true),
            ("(é).\\1", "éxé", true),
            ("(.)(.)(.)(.)(.)(.)(.)(.)(.)\\9", "abcdefghii", true),
            ("(^|/)(a)?b\\2", "bx", false),
            ("^(a+)$\\n\\1", "a", false),
        ] {
            let regex = path_regex(pattern, "posix-extended", false).unwrap();
            assert_eq!(regex.matches(text), Ok(matches), "{pattern} {text}");
        }
        let any_case = path_regex("(é)\\1", "posix-extended", true).unwrap();
        assert_eq!(any_case.matches("éÉ"), Ok(true));
        let long = path_regex("(a*)*(a*)*(a*)*b\\1", "posix-extended", false).unwrap();
        let error = long.matches(&"a".repeat(200)).unwrap_err();
        assert!(error.to_string().contains("takes too many steps"), "{error}");
    }

    #[test]
    fn characters_are_bytes_where_the_locale_says_so() {
        for (pattern, text, characters, matches) in [
            (".", "ü", Characters::Utf8, true),
            (".", "ü", Characters::Bytes, false),
            ("..", "ü", Characters::Bytes, true),
            ("[^a][^a]", "ü", Characters::Bytes, true),
            ("[[:alpha:]]+", "ü", Characters::Bytes, false),
            ("ü", "ü", Characters::Bytes, true),
            ("(.)\\1", "üü", Characters::Utf8, true),
            ("(..)\\1", "üü", Characters::Bytes, true),
        ] {
            let regex = PathRegex::new(pattern.as_bytes(), Syntax::EXTENDED, false, characters);
            assert_eq!(regex.unwrap().matches(text), Ok(matches), "{pattern} {characters:?}");
        }
    }

    #[test]
    fn a_search_finds_parts_within_its_memory() {
        let search =
            |pattern: &str| compile_search(pattern.as_bytes(), Syntax::EXTENDED, false, 1 << 18);
        for (pattern, text, matches) in [
            ("b", "abc", true),
            ("^b", "abc", false),
            ("^a|c$", "bbc", true),
            ("a.c", "a\nc", true),
            ("\\.h5$", "x.h5", true),
        ] {
            assert_eq!(search(pattern).unwrap().is_match(text), matches, "{pattern} {text}");
        }
        let error = search("((((a{99}){99}){99}){99})").unwrap_err();
        assert!(error.to_string().ends_with("Regular expression too big"), "{error}");
        assert!(search("*.c").is_err());
    }
}
