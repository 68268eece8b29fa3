//! The words of find's language by name, for those who offer them: shells that complete them.

/// What may stand behind a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// Nothing.
    None,
    /// Anything.
    Text,
    /// The path of a file.
    File,
    /// A user.
    User,
    /// A group.
    Group,
    /// One of some words, or another.
    Words(&'static [&'static str]),
}

use Operand::{File, Group, None, Text, User, Words};

const HSM_STATES: Operand =
    Words(&["archived", "dirty", "exists", "lost", "noarchive", "norelease", "released"]);

const TYPES: Operand = Words(&["f", "d", "l", "p", "s", "b", "c"]);

/// All words that begin with a hyphen but operators of one letter, each with what stands behind it.
pub const WORDS: [(&str, Operand); 103] = [
    ("-H", None),
    ("-L", None),
    ("-P", None),
    ("-a", None),
    ("-acl", None),
    ("-amin", Text),
    ("-and", None),
    ("-anewer", File),
    ("-atime", Text),
    ("-cmin", Text),
    ("-cnewer", File),
    ("-component-count", Text),
    ("-context", Text),
    ("-ctime", Text),
    ("-daystart", None),
    ("-delete", None),
    ("-depth", None),
    ("-empty", None),
    ("-exec", Text),
    ("-execdir", Text),
    ("-executable", None),
    ("-false", None),
    ("-files0-from", File),
    ("-fls", File),
    ("-follow", None),
    ("-fprint", File),
    ("-fprint0", File),
    ("-fprintf", File),
    ("-fstype", Text),
    ("-gid", Text),
    ("-group", Group),
    ("-hsm-state", HSM_STATES),
    ("-ignore_readdir_race", None),
    ("-ilname", Text),
    ("-iname", Text),
    ("-inum", Text),
    ("-ipath", Text),
    ("-iregex", Text),
    ("-iwholename", Text),
    ("-j", Text),
    ("-links", Text),
    ("-lname", Text),
    ("-ls", None),
    ("-maxdepth", Text),
    ("-mdt-index", Text),
    ("-mindepth", Text),
    ("-mmin", Text),
    ("-mount", None),
    ("-mtime", Text),
    ("-name", Text),
    ("-newer", File),
    ("-newerat", Text),
    ("-newerct", Text),
    ("-newermt", Text),
    ("-nogroup", None),
    ("-noignore_readdir_race", None),
    ("-not", None),
    ("-nouser", None),
    ("-nowarn", None),
    ("-o", None),
    ("-ok", Text),
    ("-okdir", Text),
    ("-or", None),
    ("-ost", Text),
    ("-path", Text),
    ("-perm", Text),
    ("-pool", Text),
    ("-print", None),
    ("-print0", None),
    ("-printf", Text),
    ("-projid", Text),
    ("-prune", None),
    ("-quit", None),
    ("-readable", None),
    ("-regex", Text),
    (
        "-regextype",
        Words(&[
            "awk",
            "ed",
            "egrep",
            "emacs",
            "findutils-default",
            "gnu-awk",
            "grep",
            "posix-awk",
            "posix-basic",
            "posix-egrep",
            "posix-extended",
            "posix-minimal-basic",
            "sed",
        ]),
    ),
    ("-samefile", File),
    ("-size", Text),
    ("-stripe-count", Text),
    ("-stripe-size", Text),
    ("-true", None),
    ("-type", TYPES),
    ("-uid", Text),
    ("-used", Text),
    ("-user", User),
    ("-warn", None),
    ("-wholename", Text),
    ("-writable", None),
    ("-xattr", Text),
    ("-xdev", None),
    ("-xtype", TYPES),
    ("--0", None),
    ("--color", None),
    ("--color=always", None),
    ("--color=auto", None),
    ("--color=never", None),
    ("--count", None),
    ("--json", None),
    ("--limit", Text),
    ("--live", None),
    ("--ndjson", None),
    ("--reverse", None),
    (
        "--sort",
        Words(&[
            "path", "depth", "name", "size", "blocks", "mtime", "atime", "ctime", "btime", "uid",
            "gid", "links", "ino", "match=",
        ]),
    ),
];

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;
    use std::ffi::OsString;

    #[test]
    fn words_are_those_of_the_language() {
        let is_known = |words: &[&str]| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            parse(&words, 0).err().is_none_or(|error| !error.contains("unknown predicate"))
        };
        assert!(!is_known(&[".", "-nonsense", "x"]));
        for (word, operand) in WORDS {
            let is_leading = ["-H", "-L", "-P"].contains(&word);
            let words = if is_leading {
                vec![word, "."]
            } else {
                vec![".", "-true", word, "/dev/null", ";"]
            };
            assert!(is_known(&words), "{word}");
            if let Words(operands) = operand {
                for one in operands {
                    let words = [".", word, one].map(OsString::from);
                    assert!(parse(&words, 0).is_ok(), "{word} {one}");
                }
            }
        }
        // What the parser knows is there, but for what does nothing and what is told to stand before.
        const OTHERS: [&str; 4] = ["-noleaf", "--threads", "--index", "--verbose"];
        let source = include_str!("primary.rs");
        let names = source.split('"').skip(1).step_by(2).filter(|text| {
            let name = text.trim_start_matches('-');
            text.len() > 2
                && name.len() < text.len()
                && name.starts_with(|c: char| c.is_ascii_lowercase())
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-0".contains(&byte))
        });
        let mut count = 0;
        for name in names.filter(|name| !OTHERS.contains(name)) {
            assert!(WORDS.iter().any(|(word, _)| *word == name), "{name}");
            count += 1;
        }
        assert!(count > 70, "{count}");
    }
}
