//! The answers of the kernel and of the index to a user: all commands for one user on a site run in
//! one shell with that user's credentials, since starting processes takes most of the time.

use crate::common;

use super::names::{Token, tokens};
use super::site::{Site, shown};
use crate::exactness::attributes;
use common::batch::{Line, NEXT};
use common::{Fixture, User};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const FORMAT: &str = "%p|%P|%f|%h|%d|%y|%s|%b|%k|%m|%M|%u|%U|%g|%G|%n|%i|%l|%T@|%C@|%A@|%S\\0";

/// A test of attributes, whether it asks for values, and how a line of getfattr begins.
const XATTRS: [(&str, bool, &str); 5] = [
    ("user.a", false, "user.a"),
    ("system.posix_acl*", false, "system.posix_acl"),
    ("trusted.*", false, "trusted."),
    ("user.a=plain*", true, "user.a="),
    ("security.*=plain*", true, "security.canopy="),
];

/// Everything that was asked, in the order of the commands.
pub struct Answers {
    pub find: Answer,
    pub xattrs: Answer,
    pub du: Answer,
    pub raw: Option<Raw>,
}

/// The same from the kernel and from the index.
pub struct Answer {
    pub kernel: Vec<String>,
    pub index: Vec<String>,
}

/// Names that a user can discover, and the files of the index that are open to the user.
pub struct Raw {
    /// Random parts of names, and of values of attributes, that are found from the top.
    pub listed: BTreeSet<Token>,
    /// Those found in any directory whose path the user knows.
    pub known: BTreeSet<Token>,
    /// Files of the index found from its top.
    pub walked: BTreeSet<PathBuf>,
    /// Files of the index that can be read by those who know their paths.
    pub opened: BTreeSet<PathBuf>,
}

/// A question about a site.
pub struct Question<'a> {
    pub starts: Vec<&'a Path>,
    pub du: &'a Path,
    pub du_options: Vec<String>,
    /// All directories of the site and all files of its index, where reading them is tried.
    pub raw: Option<(&'a [PathBuf], &'a [PathBuf])>,
    /// Whether values of attributes are compared, or names.
    pub values: bool,
}

/// Asks a site as a user.
pub fn ask(site: &Site, place: &Fixture, user: &User, question: &Question<'_>) -> Answers {
    let script = script(site, place, question);
    let mut command = user.command();
    command.args(["sh", "-c"]).arg(script).arg("sh").current_dir("/");
    if let Some((_, files)) = question.raw {
        command.args(files);
    }
    let output = command.env("LC_ALL", "C.UTF-8").env("TZ", "UTC").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    // Names have ends of lines in them.
    let fine = |message: &str| {
        let known = [
            "or not for you to see",
            "Permission denied",
            "No such file or directory",
            "it is there now",
            "no index covers",
        ];
        known.iter().any(|known| message.contains(known))
    };
    let mut messages = said.split("canopy: ");
    assert!(
        messages.next() == Some("") && messages.all(fine),
        "seed {} {user:?}: {said}",
        site.seed
    );
    let mut parts = output.stdout.split(|&byte| byte == NEXT);
    let mut part = || parts.next().expect("an output of every command");
    let (find, xattrs, index) = (part(), part(), part());
    let (index, index_xattrs): (Vec<String>, Vec<String>) =
        common::sorted(index, 0).into_iter().partition(|line| line.starts_with('/'));
    let mut kernel = common::sorted(find, 0);
    kernel.retain(|line| !site.is_excluded(line.split('|').next().unwrap()));
    let find = Answer { kernel, index };
    let kernel = expected_xattrs(site, &attributes(xattrs), question.values);
    let xattrs = Answer { kernel, index: index_xattrs };
    let du = Answer { kernel: common::sorted(part(), 0), index: common::sorted(part(), 0) };
    let raw = question.raw.map(|_| {
        let listed = tokens(part());
        let known = tokens(part());
        Raw { listed, known, walked: paths(part()), opened: paths(part()) }
    });
    assert!(parts.next().is_some_and(<[u8]>::is_empty), "seed {}: no end", site.seed);
    Answers { find, xattrs, du, raw }
}

fn paths(output: &[u8]) -> BTreeSet<PathBuf> {
    let paths = output.split(|&byte| byte == 0).filter(|path| !path.is_empty());
    paths.map(|path| PathBuf::from(OsStr::from_bytes(path))).collect()
}

/// The expected results of tests of attributes, as `number|path`.
fn expected_xattrs(site: &Site, lines: &[String], values: bool) -> Vec<String> {
    let mut expected = Vec::new();
    for (number, (_, asks_value, begin)) in XATTRS.iter().enumerate() {
        let lines = lines.iter().filter_map(|line| line.split_once('|'));
        let hits = lines.filter(|(path, rest)| {
            *asks_value == values && rest.starts_with(begin) && !site.is_excluded(path)
        });
        expected.extend(hits.map(|(path, _)| format!("{number}|{path}")));
    }
    expected.sort();
    expected
}

fn script(site: &Site, place: &Fixture, question: &Question<'_>) -> OsString {
    let starts = || question.starts.iter();
    let xdev: &[&str] = if site.one_file_system { &["-xdev"] } else { &[] };
    let format = match site.has_foreign() {
        // The device of a mount point is one of the differences.
        true => FORMAT.to_owned(),
        false => format!("%D|{FORMAT}").replacen("%D|%p", "%p|%D", 1),
    };
    let getfattr = |values| {
        let values = if values { "-d -e hex" } else { "" };
        format!("-exec getfattr -h --absolute-names -m - {values} -- {{}} + 2>/dev/null")
    };
    let canopy = || Line::default().words([place.canopy.as_os_str()]).plain("--index");
    let canopy = || canopy().words([site.index.as_os_str()]);
    let mut find = canopy().plain("find").words(starts()).words(["-printf", &format]);
    for (number, (pattern, values, _)) in XATTRS.iter().enumerate() {
        if *values == question.values {
            let print = format!("{number}|%p\\0");
            find = find.words(["(", "-xattr", pattern, "-printf", &print, "-o", "-true", ")"]);
        }
    }
    let mut lines = vec![
        Line::new("find")
            .words(starts())
            .words(xdev)
            .words(["-printf", &format])
            .plain("2>/dev/null"),
        Line::new("find").words(starts()).words(xdev).plain(&getfattr(question.values)),
        find,
        Line::new("du -0").words(&question.du_options).words([question.du]).plain("2>/dev/null"),
        canopy()
            .plain("du -0")
            .words(question.du_options.iter().filter(|o| !o.starts_with("--exclude") && *o != "-x"))
            .words([question.du]),
    ];
    if let Some((dirs, _)) = question.raw {
        let values = "-exec getfattr -h --absolute-names -m '^[^s]|^se' -d -e text -- {} +";
        let text = |line: Line| line.plain("-print0").plain(values).plain("2>/dev/null");
        lines.push(text(Line::new("find").words([&site.base])));
        lines.push(text(Line::new("find").words(dirs).plain("-maxdepth 1")));
        lines.push(Line::new("find").words([&site.index]).plain("-type f -print0 2>/dev/null"));
        let open = "for f; do if true <\"$f\"; then printf '%s\\0' \"$f\"; fi; done 2>/dev/null";
        lines.push(Line::new(open));
    }
    let mut script = OsString::new();
    for Line(line) in lines {
        script.push(line);
        script.push("\nprintf '\\036'\n");
    }
    script
}

/// Says what is wrong where the kernel and the index do not agree.
pub fn compare(site: &Site, answer: &Answer, what: &str) {
    if site.narrowed {
        let expected: BTreeSet<&String> = answer.kernel.iter().collect();
        let extra: Vec<_> = answer.index.iter().filter(|line| !expected.contains(line)).collect();
        assert!(extra.is_empty(), "{what}: not expected: {extra:#?}");
        return;
    }
    common::assert_same(&answer.index, &answer.kernel, what);
}

/// Returns the random part of the last name of a path.
pub fn token_of(path: &Path) -> Option<Token> {
    tokens(shown(Path::new(path.file_name()?)).as_bytes()).into_iter().next()
}
