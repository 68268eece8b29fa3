//! The words of find's language by name, for those who offer them: shells that complete them.

/// The kind of operand behind a word.
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
    /// One of some words, with blanks between, or another.
    Words(&'static str),
}

use Operand::{File, Group, None, Text, User, Words};

/// All words that begin with a hyphen but operators of one letter, by what stands behind them.
const WORDS: [(Operand, &str); 9] = [
    (
        None,
        "-H -L -P -a -acl -and -daystart -delete -depth -empty -executable -false -follow \
         -ignore_readdir_race -ls -mine -mount -nogroup -noignore_readdir_race -not -nouser -nowarn -o \
         -or -print -print0 -prune -quit -readable -true -warn -writable -xdev --0 --color \
         --color=always --color=auto --color=never --count --json --live --mine --ndjson --reverse --sum",
    ),
    (
        Text,
        "-amin -atime -cmin -component-count -context -ctime -exec -execdir -fstype -gid -ilname \
         -iname -inum -ipath -iregex -iwholename -j -links -lname -maxdepth -mdt-index -mindepth \
         -mmin -mtime -name -newerat -newerct -newermt -ok -okdir -ost -path -perm -pool -printf \
         -projid -regex -size -stripe-count -stripe-size -uid -used -wholename -xattr --limit",
    ),
    (File, "-anewer -cnewer -files0-from -fls -fprint -fprint0 -fprintf -newer -samefile"),
    (User, "-user --user"),
    (Group, "-group"),
    (Words("f d l p s b c"), "-type -xtype"),
    (Words("archived dirty exists lost noarchive norelease released"), "-hsm-state"),
    (
        Words(
            "awk ed egrep emacs findutils-default gnu-awk grep posix-awk posix-basic posix-egrep \
             posix-extended posix-minimal-basic sed",
        ),
        "-regextype",
    ),
    (
        Words("path depth name size blocks mtime atime ctime btime uid gid links ino match="),
        "--sort",
    ),
];

/// Returns those words, each with what stands behind it: find's own in order, then ours.
pub fn words() -> Vec<(&'static str, Operand)> {
    let words =
        WORDS.iter().flat_map(|(operand, words)| words.split(' ').map(|word| (word, *operand)));
    let mut words: Vec<(&str, Operand)> = words.collect();
    words.sort_by_key(|(word, _)| (word.starts_with("--"), *word));
    words
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;
    use std::ffi::OsString;

    #[test]
    fn words_are_those_of_the_language() {
        let is_known = |words: &[&str]| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            parse(&words, 0)
                .err()
                .is_none_or(|error| !error.to_string().contains("unknown predicate"))
        };
        assert!(!is_known(&[".", "-nonsense", "x"]));
        for (word, operand) in words() {
            let is_leading = ["-H", "-L", "-P"].contains(&word);
            let line = if is_leading {
                vec![word, "."]
            } else {
                vec![".", "-true", word, "/dev/null", ";"]
            };
            assert!(is_known(&line), "{word}");
            if let Words(operands) = operand {
                for one in operands.split(' ') {
                    let line = [".", word, one].map(OsString::from);
                    assert!(parse(&line, 0).is_ok(), "{word} {one}");
                }
            }
        }
        // Words of the parser without an entry: they have no effect, or must come first.
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
            assert!(words().iter().any(|(word, _)| *word == name), "{name}");
            count += 1;
        }
        assert!(count > 70, "{count}");
    }
}
