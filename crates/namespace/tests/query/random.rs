//! Random queries: they mean what a plain reading of them means, their normal forms mean the same,
//! and candidates have all files that match.

use super::{component, read};
use canopy_namespace::attributes::{Attribute, Indexes};
use canopy_namespace::{Candidates, FileId, Inode, NamedInode, Source};
use canopy_query::{Component, Expression, extension};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// A file with everything that queries look at.
#[derive(Debug)]
struct File {
    inode: Inode,
    name: &'static str,
    path: String,
    run: Option<&'static str>,
}

const NAMES: [&str; 8] = ["a", "b.c", "a.c", "ab.h5", ".c", "B.C", "a.", "b c"];
const RUNS: [&str; 6] = ["", "1", "02", "2.5", "ab", "b"];
const SECOND_NS: i64 = 1_000_000_000;

fn pick<T: Copy>(random: &mut StdRng, from: &[T]) -> T {
    from[random.random_range(0..from.len())]
}

fn file(random: &mut StdRng) -> File {
    let name = pick(random, &NAMES);
    let time = |random: &mut StdRng| {
        random.random_range(-2..3) * SECOND_NS + pick(random, &[0, 1, SECOND_NS - 1])
    };
    let types = [0o100_000, 0o040_000, 0o120_000, 0o010_000, 0];
    let mode = pick(random, &types) | pick(random, &[0o644, 0o755, 0o600, 0]);
    let mut inode = Inode {
        mode,
        uid: random.random_range(0..4),
        gid: random.random_range(0..4),
        nlink: random.random_range(0..3),
        project: random.random_range(0..2),
        size: random.random_range(0..6),
        blocks: random.random_range(0..6),
        id: FileId(random.random_range(1..5)),
        ..Inode::default()
    };
    for time_ns in
        [&mut inode.mtime_ns, &mut inode.ctime_ns, &mut inode.atime_ns, &mut inode.btime_ns]
    {
        *time_ns = time(random);
    }
    if mode >> 12 == 0o12 {
        inode.target = pick(random, &NAMES).into();
    }
    let path = format!("{}{name}", pick(random, &["", "x/", "a/b/"]));
    let run = random.random_bool(0.7).then(|| pick(random, &RUNS));
    File { inode, name, path, run }
}

/// A query's text, and what it means to a plain reader. Queries bind as tightly as their last
/// number says: 0 or, 1 and, 2 alone.
struct Query(String, Box<dyn Fn(&File) -> bool>, u8);

fn number(random: &mut StdRng) -> Query {
    let fields: [(&str, fn(&Inode) -> u64); 7] = [
        ("size", |inode| inode.size),
        ("blocks", |inode| inode.blocks),
        ("uid", |inode| inode.uid.into()),
        ("gid", |inode| inode.gid.into()),
        ("links", |inode| inode.nlink.into()),
        ("project", |inode| inode.project.into()),
        ("inode", |inode| inode.id.0),
    ];
    let (name, field) = pick(random, &fields);
    let value = random.random_range(0..6);
    let (operator, holds) = comparison::<u64>(random);
    let test = move |file: &File| holds(field(&file.inode), value);
    Query(format!("{name}{operator}{value}"), Box::new(test), 2)
}

fn comparison<T: Ord>(random: &mut StdRng) -> (&'static str, fn(T, T) -> bool) {
    let all: [(&str, fn(T, T) -> bool); 6] = [
        ("=", |a, b| a == b),
        (" != ", |a, b| a != b),
        ("<", |a, b| a < b),
        ("<=", |a, b| a <= b),
        (" >", |a, b| a > b),
        (">=", |a, b| a >= b),
    ];
    pick(random, &all)
}

fn time(random: &mut StdRng) -> Query {
    let fields: [(&str, fn(&Inode) -> i64); 4] = [
        ("mtime", |inode| inode.mtime_ns),
        ("ctime", |inode| inode.ctime_ns),
        ("atime", |inode| inode.atime_ns),
        ("btime", |inode| inode.btime_ns),
    ];
    let (name, field) = pick(random, &fields);
    let second: i64 = random.random_range(-2..3);
    let (operator, holds) = comparison::<i64>(random);
    // A birth that is not known passes no test, and its opposite; `!=` is one.
    let (is_birth, is_opposite) = (name == "btime", operator.contains('!'));
    let test = move |file: &File| match field(&file.inode) {
        0 if is_birth => is_opposite,
        time_ns => holds(time_ns.div_euclid(SECOND_NS), second),
    };
    Query(format!("{name}{operator}@{second}"), Box::new(test), 2)
}

fn kind(random: &mut StdRng) -> Query {
    let letters = pick(random, &["f", "d", "l", "fd", "fdl", "s"]);
    let unequal = random.random_bool(0.3);
    let letter = |inode: &Inode| match inode.mode >> 12 {
        0o10 => 'f',
        0o4 => 'd',
        0o12 => 'l',
        0o1 => 'p',
        _ => 'U',
    };
    let operator = if unequal { "!=" } else { "=" };
    let test = move |file: &File| letters.contains(letter(&file.inode)) != unequal;
    Query(format!("type{operator}{letters}"), Box::new(test), 2)
}

fn permissions(random: &mut StdRng) -> Query {
    let bits: u32 = pick(random, &[0o644, 0o22, 0o111, 0o4000]);
    let all: [(&str, fn(u32, u32) -> bool); 3] = [
        ("perm", |mode, bits| mode & 0o7777 == bits),
        ("perm-all", |mode, bits| mode & bits == bits),
        ("perm-any", |mode, bits| mode & bits != 0),
    ];
    let (name, holds) = pick(random, &all);
    Query(format!("{name}={bits:o}"), Box::new(move |file| holds(file.inode.mode, bits)), 2)
}

/// Ways to compare texts that need no library to be read.
fn comparison_of_texts(random: &mut StdRng) -> (String, Box<dyn Fn(&str) -> bool>) {
    let part = pick(random, &["a", "b", "c", ".c", "b.c", "ab", "h5"]);
    match random.random_range(0..8) {
        0 => (format!("={part}"), Box::new(move |text| text == part)),
        1 => (format!("!={part}"), Box::new(move |text| text != part)),
        2 => (format!("~{part}*"), Box::new(move |text| text.starts_with(part))),
        3 => (format!("!~*{part}"), Box::new(move |text| !text.ends_with(part))),
        4 => (format!("~*{part}*"), Box::new(move |text| text.contains(part))),
        5 => {
            (format!("~{part}?"), Box::new(move |text| text.strip_prefix(part).is_some_and(is_one)))
        }
        6 => {
            let literal = part.replace('.', "\\.");
            (format!("=~^{literal}"), Box::new(move |text| text.starts_with(part)))
        }
        _ => {
            let literal = part.replace('.', "\\.");
            (format!("!=~{literal}$"), Box::new(move |text| !text.ends_with(part)))
        }
    }
}

fn is_one(text: &str) -> bool {
    text.chars().count() == 1
}

fn text(random: &mut StdRng) -> Query {
    fn of<'a>(name: &str, file: &'a File) -> Option<&'a str> {
        match name {
            "name" => Some(file.name),
            "path" => Some(&file.path),
            "ext" => extension(file.name.as_bytes()).map(|text| std::str::from_utf8(text).unwrap()),
            "user.run" => file.run,
            _ if file.inode.mode >> 12 == 0o12 => std::str::from_utf8(&file.inode.target).ok(),
            _ => None,
        }
    }
    let name = pick(random, &["name", "path", "ext", "target", "user.run"]);
    let (comparison, holds) = comparison_of_texts(random);
    if name == "ext" && comparison.contains('.') && !comparison.contains('~') {
        return text(random);
    }
    // What there is nothing of is unlike everything.
    let absent = comparison.starts_with('!');
    let test = move |file: &File| of(name, file).map_or(absent, &holds);
    Query(format!("{name}{comparison}"), Box::new(test), 2)
}

fn xattr(random: &mut StdRng) -> Query {
    let (operator, holds) = pick(
        random,
        &[
            ("<", (|ordering| ordering == -1) as fn(i32) -> bool),
            ("<=", |ordering| ordering <= 0),
            (">", |ordering| ordering == 1),
            (">=", |ordering| ordering >= 0),
        ],
    );
    match random.random_range(0..3) {
        0 => Query("user.run".into(), Box::new(|file| file.run.is_some()), 2),
        1 => {
            let bound = pick(random, &[-1.0, 0.0, 2.0, 2.5]);
            let test = move |file: &File| {
                let value = file.run.and_then(|run| run.parse::<f64>().ok());
                value.is_some_and(|value| holds(value.total_cmp(&bound) as i32))
            };
            Query(format!("user.run{operator}{bound}"), Box::new(test), 2)
        }
        _ => {
            let bound = pick(random, &RUNS);
            let test = move |file: &File| file.run.is_some_and(|run| holds(run.cmp(bound) as i32));
            Query(format!("user.run{operator}'{bound}'"), Box::new(test), 2)
        }
    }
}

fn query(random: &mut StdRng, depth: u32) -> Query {
    if depth == 0 || random.random_bool(0.3) {
        let kinds = [number, number, time, kind, permissions, text, xattr];
        return pick(random, &kinds)(random);
    }
    if random.random_bool(0.25) {
        let Query(text, test, binds) = query(random, depth - 1);
        let not = pick(random, &["not ", "!", "NOT "]);
        let text = if binds < 2 { format!("{not}({text})") } else { format!("{not}{text}") };
        return Query(text, Box::new(move |file| !test(file)), 2);
    }
    let [left, right] = [(); 2].map(|()| query(random, depth - 1));
    let all = random.random_bool(0.5);
    let binds = u8::from(all);
    let join = match all {
        true => pick(random, &[" and ", " & ", "&&"]),
        false => pick(random, &[" or ", "|", " || "]),
    };
    let side = |Query(text, _, binds_part): &Query| match *binds_part < binds {
        true => format!("({text})"),
        false => text.clone(),
    };
    let text = [side(&left), side(&right)].join(join);
    let (Query(_, left, _), Query(_, right, _)) = (left, right);
    let test = move |file: &File| match all {
        true => left(file) && right(file),
        false => left(file) || right(file),
    };
    Query(text, Box::new(test), binds)
}

fn matches(expression: &Expression, file: &File) -> bool {
    let xattr = |name: &[u8]| {
        assert_eq!(name, b"user.run");
        file.run.map(|run| run.as_bytes().to_vec())
    };
    let (name, path) = (file.name.as_bytes(), file.path.as_bytes());
    expression.matches(&NamedInode { inode: &file.inode, name, path, xattr: &xattr })
}

/// Returns whether every choice of sources has the file.
fn has(candidates: &Candidates, indexes: &Indexes, file: &File) -> bool {
    match candidates {
        Candidates::Source(Source::Files(ids)) => ids.contains(&file.inode.id),
        Candidates::Source(Source::Index(_, range)) => {
            let run = file
                .run
                .and_then(|run| indexes.xattr_entry(b"user.run", run.as_bytes(), file.inode.id));
            let mut entries = indexes.entries(&file.inode, file.name.as_bytes()).chain(run);
            entries.any(|key| range.contains(key.as_ref()))
        }
        Candidates::Either(choices) => choices.iter().all(|choice| has(choice, indexes, file)),
        Candidates::Union(parts) => parts.iter().any(|part| has(part, indexes, file)),
    }
}

#[test]
fn random_queries_mean_what_they_say() {
    let mut random = StdRng::seed_from_u64(7);
    let files: Vec<File> = (0..150).map(|_| file(&mut random)).collect();
    let (mut matched, mut helped, mut left_out) = (0, 0, 0);
    for _ in 0..10_000 {
        let depth = random.random_range(0..4);
        let Query(text, test, _) = query(&mut random, depth);
        let text = format!("[{text}]");
        let Component::Search(expression) = read_unless_large(&text) else { continue };
        let shown = format!("[{expression}]");
        assert_eq!(read(&shown), Component::Search(expression.clone()), "{text}: {shown}");
        let attributes = Attribute::built_in().filter(|_| random.random_bool(0.7)).collect();
        let xattrs = [(b"user.run".to_vec(), 3)].into_iter().filter(|_| random.random_bool(0.7));
        let indexes = Indexes { attributes, xattrs: xattrs.collect() };
        let candidates = Candidates::of(&expression, &indexes);
        helped += usize::from(candidates.is_some());
        for file in &files {
            let expected = test(file);
            matched += usize::from(expected);
            assert_eq!(matches(&expression, file), expected, "{text} {shown} {file:?}");
            let found = candidates.as_ref().is_none_or(|all| has(all, &indexes, file));
            left_out += usize::from(!found);
            assert!(found || !expected, "{text}: {candidates:?} {file:?}");
        }
    }
    // The test tests something.
    assert!(
        matched > 300_000 && helped > 3000 && left_out > 100_000,
        "{matched} {helped} {left_out}"
    );
}

/// Reads a query, or one of all files in place of one with too many regular expressions.
fn read_unless_large(text: &str) -> Component {
    match component(text.as_bytes()) {
        Err(error) if error.message.contains("regular expressions") => read("[recent]"),
        _ => read(text),
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one course of steps")]
fn nothing_that_is_read_makes_it_fail() {
    const WORDS: [&str; 48] = [
        "size",
        "mtime",
        "name",
        "user",
        "uid",
        "type",
        "perm",
        "ext",
        "user.a",
        "has",
        "empty",
        "recent",
        "duplicates",
        "@",
        "and",
        "or",
        "not",
        "(",
        ")",
        "!",
        "&",
        "|",
        ",",
        "=",
        "!=",
        "<",
        ">=",
        "~",
        "=~",
        "{",
        "}",
        "'",
        "\"",
        "\\",
        " ",
        "1",
        "1K",
        "-1d",
        "2023-11-14",
        "T10:00",
        "+01:00",
        "@-1.5",
        "*.c",
        "[a]",
        "\u{e4}",
        "1E",
        "99999999999999999999",
        ".",
    ];
    let mut random = StdRng::seed_from_u64(11);
    let mut queries = 0;
    for _ in 0..200_000 {
        let mut text = b"[".to_vec();
        for _ in 0..random.random_range(0..12) {
            match random.random_range(0..20) {
                0 => text.push(random.random()),
                _ => text.extend_from_slice(pick(&mut random, &WORDS).as_bytes()),
            }
        }
        text.push(b']');
        match component(&text) {
            Ok(None) => unreachable!("it is in brackets"),
            Ok(Some(component)) => {
                queries += 1;
                assert_eq!(read(&component.to_string()), component);
            }
            Err(error) => assert!(error.at <= text.len() && !error.message.is_empty()),
        }
    }
    assert!(queries > 1000, "{queries}");
}
