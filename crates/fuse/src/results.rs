//! The meaning of nested queries, and their results: symbolic links with names that no other result
//! has.

use crate::budget::Charge;
use crate::places::{PackedPath, PackedPaths};
use canopy_query::{
    Component, Context, Counts, Expression, Field, Span, Types, parse_nested, system_zone,
};
use std::collections::{HashMap, HashSet};

/// Bytes of the longest name of a file.
pub const NAME_BYTES_MAX: usize = 255;

/// Most queries that are nested.
pub const DEPTH_MAX: usize = 16;

/// A query that finds more fails, and so does opening one if a user's open ones have more together:
/// what they found is in memory.
pub const RESULTS_MAX: usize = 500_000;

/// The reason for refusing a component that names something else.
pub const NO_QUERY: &str = "this is not a query, and stands neither in nor below one here";

/// Number of files that are recent if a query gives no time.
const RECENT: usize = 1000;

/// Most bytes of names that the results of one query keep in memory.
pub const BYTES_MAX: usize = 128 << 20;

/// The owner and the times of a file that was found, which its link shows.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct About {
    pub uid: u32,
    pub gid: u32,
    pub mtime_ns: i64,
    pub ctime_ns: i64,
    pub atime_ns: i64,
    pub btime_ns: i64,
}

/// A file that a query has found.
#[derive(Clone, Debug, Default)]
pub struct FoundFile {
    /// Its path below the directory that was searched.
    pub path: Vec<u8>,
    /// Whether the path is too long for a link: it is the name alone then.
    pub is_beyond: bool,
    /// Its inode number.
    pub id: u64,
    /// Its owner and times.
    pub about: About,
}

/// One file that was found.
struct Hit {
    id: u64,
    /// None if its path is too long for a link; it has the name then.
    is_beyond: bool,
    place: PackedPath,
    /// Its name among the results, if that differs from its own.
    name: Option<Box<[u8]>>,
    about: About,
}

/// Files while they are being found.
pub struct Findings {
    places: PackedPaths,
    hits: Vec<Hit>,
    /// How many of them are wanted, those that were changed last.
    limit: usize,
}

/// Results of a query, with unique names. Paths are made on demand.
pub struct Hits {
    places: PackedPaths,
    hits: Vec<Hit>,
    /// Numbers of results by name.
    by_name: Vec<u32>,
    /// How many queries links lead up through.
    depth: usize,
    /// Its share of the memory for results.
    charge: Option<Charge>,
}

/// Why a query is none.
#[derive(Debug)]
pub struct Refusal<'a> {
    /// The component that is wrong.
    pub component: &'a [u8],
    /// The fault.
    pub why: String,
    /// The byte of the component at which that was found.
    pub at: usize,
}

/// Returns whether a name is in brackets.
pub fn is_query(name: &[u8]) -> bool {
    name.len() > 2 && name.starts_with(b"[") && name.ends_with(b"]")
}

/// Reads a component; none if it is in no brackets.
///
/// # Errors
///
/// Fails if the query is wrong.
pub fn parsed(component: &[u8], now_ns: i64) -> Result<Option<Component>, Refusal<'_>> {
    parsed_nested(component, now_ns, &mut Counts::default())
}

fn parsed_nested<'a>(
    component: &'a [u8],
    now_ns: i64,
    counts: &mut Counts,
) -> Result<Option<Component>, Refusal<'a>> {
    let user = |name: &str| {
        let user = nix::unistd::User::from_name(name).ok().flatten();
        user.map(|user| user.uid.as_raw())
    };
    let group = |name: &str| {
        let group = nix::unistd::Group::from_name(name).ok().flatten();
        group.map(|group| group.gid.as_raw())
    };
    let context = Context { now_ns, zone: system_zone(), user: &user, group: &group };
    let parsed = parse_nested(component, &context, counts);
    parsed.map_err(|error| Refusal { component, why: error.to_string(), at: error.at })
}

/// Returns the condition of nested queries, and how many results the last of them wants.
///
/// # Errors
///
/// Fails with the first component that is wrong or is not a search.
pub fn meaning(components: &[Vec<u8>], now_ns: i64) -> Result<(Expression, usize), Refusal<'_>> {
    let (mut all, mut limit) = (Vec::new(), RESULTS_MAX);
    let mut counts = Counts::default();
    for component in components {
        let files = || Types::of('f').map(Expression::types);
        match parsed_nested(component, now_ns, &mut counts)? {
            Some(Component::Search(expression)) => all.push(expression),
            Some(Component::Recent { since_ns }) => {
                all.extend(files());
                match since_ns {
                    Some(since_ns) => {
                        let most = Field::Mtime.domain().most;
                        let span = Span { least: since_ns.into(), most };
                        all.push(Expression::span(Field::Mtime, span));
                    }
                    None => limit = RECENT,
                }
            }
            _ => {
                return Err(Refusal { component, why: NO_QUERY.into(), at: 0 });
            }
        }
    }
    Ok((Expression::all(all), limit))
}

impl Findings {
    /// Nothing is found yet; so many of the files that were changed last are wanted.
    pub fn new(limit: usize) -> Self {
        Findings { places: PackedPaths::default(), hits: Vec::new(), limit }
    }

    /// Adds a file.
    pub fn add(&mut self, found: &FoundFile) {
        self.add_named(found, None);
        if self.limit < RESULTS_MAX && self.hits.len() > 4 * self.limit {
            self.keep_recent();
        }
    }

    /// Adds a file that has another name among the results.
    pub fn add_named(&mut self, found: &FoundFile, name: Option<Vec<u8>>) {
        self.hits.push(Hit {
            id: found.id,
            is_beyond: found.is_beyond,
            place: self.places.add(&found.path),
            name: name.map(Vec::into_boxed_slice),
            about: found.about,
        });
    }

    /// Returns how many files there are.
    pub fn count(&self) -> usize {
        self.hits.len()
    }

    /// Returns the memory that they take.
    pub fn bytes(&self) -> usize {
        bytes_of(&self.places, self.hits.capacity())
    }

    /// Leaves the files that were changed last.
    fn keep_recent(&mut self) {
        if self.hits.len() <= self.limit {
            return;
        }
        self.hits.sort_unstable_by_key(|hit| std::cmp::Reverse(hit.about.mtime_ns));
        self.hits.truncate(self.limit);
        let mut places = PackedPaths::default();
        for hit in &mut self.hits {
            hit.place = places.add(&self.places.path(hit.place));
        }
        self.places = places;
    }

    /// Gives the files names, each once: the file's own, or with its id if another file has it.
    /// Links lead up through `depth` queries.
    pub fn into_hits(mut self, depth: usize) -> Hits {
        self.keep_recent();
        let Findings { places, mut hits, .. } = self;
        let ranks = places.ranks();
        let key =
            |hit: &Hit| (places.name(hit.place), hit.id, ranks[places.directory_of(hit.place)]);
        hits.sort_unstable_by(|one, other| key(one).cmp(&key(other)));
        // Names that are given, beside those that files have.
        let mut given: HashSet<Vec<u8>> = HashSet::new();
        // For each file, the place to continue the search for a number: it may have very many
        // names.
        let mut numbers: HashMap<u64, u64> = HashMap::new();
        for at in 0..hits.len() {
            let own = places.name(hits[at].place);
            let is_same = at > 0 && places.name(hits[at - 1].place) == own;
            // A name that is a query would be taken for one.
            if is_same || is_query(own) {
                let is_own = |name: &[u8]| {
                    hits.binary_search_by(|hit| places.name(hit.place).cmp(name)).is_ok()
                };
                let id = hits[at].id;
                let is_used = |name: &Vec<u8>| given.contains(name) || is_own(name);
                let name = unused(own, id, is_used, numbers.entry(id).or_default());
                given.insert(name.clone());
                hits[at].name = Some(name.into_boxed_slice());
            }
        }
        Hits::of(Findings { places, hits, limit: self.limit }, depth)
    }
}

fn bytes_of(places: &PackedPaths, hits: usize) -> usize {
    // Names that are given are few, or short.
    places.bytes() + hits * (size_of::<Hit>() + size_of::<u32>())
}

impl Hits {
    /// Gives results that have names of their own.
    pub fn of(findings: Findings, depth: usize) -> Self {
        let Findings { mut places, mut hits, .. } = findings;
        places.finish();
        hits.shrink_to_fit();
        let mut by_name: Vec<u32> = (0..hits.len() as u32).collect();
        let name = |at: u32| name_of(&places, &hits[at as usize]);
        by_name.sort_unstable_by(|&one, &other| name(one).cmp(name(other)));
        Hits { by_name, places, hits, depth, charge: None }
    }

    /// Has the results take their memory from a charge until they are dropped.
    pub fn charged(mut self, mut charge: Charge) -> Self {
        charge.settle(self.bytes());
        self.charge = Some(charge);
        self
    }

    /// Returns how many results there are.
    pub fn count(&self) -> usize {
        self.hits.len()
    }

    /// Returns the memory that they take.
    pub fn bytes(&self) -> usize {
        let given = self.hits.iter().filter_map(|hit| hit.name.as_ref());
        bytes_of(&self.places, self.hits.capacity()) + given.map(|name| name.len()).sum::<usize>()
    }

    /// Returns the number of the result with a name.
    pub fn find(&self, name: &[u8]) -> Option<usize> {
        let found = self.by_name.binary_search_by(|&at| self.name(at as usize).cmp(name));
        found.ok().map(|at| self.by_name[at] as usize)
    }

    /// Returns the name of a result.
    pub fn name(&self, number: usize) -> &[u8] {
        name_of(&self.places, &self.hits[number])
    }

    /// Returns the owner and the times of the file that a result leads to.
    pub fn about(&self, number: usize) -> &About {
        &self.hits[number].about
    }

    /// Returns where a result leads, from the query; empty if that is too long for a link.
    pub fn target(&self, number: usize) -> Vec<u8> {
        let hit = &self.hits[number];
        let mut target = Vec::new();
        if !hit.is_beyond {
            target.extend(b"../".repeat(self.depth));
            self.places.append(hit.place, &mut target);
        }
        target
    }
}

fn name_of<'a>(places: &'a PackedPaths, hit: &'a Hit) -> &'a [u8] {
    hit.name.as_deref().unwrap_or_else(|| places.name(hit.place))
}

/// Returns a name that is not used yet, made of one that is: with the id, and if need be with a
/// number above the last one of this file.
fn unused(name: &[u8], id: u64, is_used: impl Fn(&Vec<u8>) -> bool, last: &mut u64) -> Vec<u8> {
    let with = |suffix: String| {
        let kept = &name[..name.len().min(NAME_BYTES_MAX - suffix.len())];
        [kept, suffix.as_bytes()].concat()
    };
    let mut unused = with(format!("~{id}"));
    // Somebody may have called a file so, or it has several names.
    while is_used(&unused) {
        *last += 1;
        unused = with(format!("~{id}~{last}"));
    }
    unused
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits(found: impl Iterator<Item = (String, u64)>, depth: usize) -> Hits {
        let mut findings = Findings::new(RESULTS_MAX);
        for (path, id) in found {
            findings.add(&FoundFile { path: path.into_bytes(), id, ..FoundFile::default() });
        }
        findings.into_hits(depth)
    }

    #[test]
    fn every_result_has_a_name_of_its_own() {
        let long = "x".repeat(NAME_BYTES_MAX);
        let cut = |suffix: &str| format!("{}{suffix}", &long[..NAME_BYTES_MAX - suffix.len()]);
        // Somebody has called files as the second one with the long name would be called.
        let names = [&long, &long, &long, &cut("~7"), &cut("~"), &cut("~7~"), &cut("~7~1")];
        let found = names.iter().enumerate().map(|(at, name)| (format!("{at}/{name}"), 7));
        let hits = hits(found, 1);
        let all: HashSet<&[u8]> = (0..hits.count()).map(|at| hits.name(at)).collect();
        assert_eq!(all.len(), names.len());
        assert!(all.iter().all(|name| name.len() <= NAME_BYTES_MAX));
        for (at, name) in all.iter().enumerate() {
            let number = hits.find(name).expect("a result");
            assert_eq!(hits.name(number), *name, "{at}");
        }
        assert_eq!(hits.find(b"x"), None);
    }

    #[test]
    fn a_file_may_have_very_many_names() {
        // Some of them alike, some as others would be called, and two times as long a time for twice
        // as many.
        let long = "y".repeat(NAME_BYTES_MAX - 1);
        let found = (0..60_000).map(|number| {
            let name = match number % 3 {
                0 => "x".to_owned(),
                1 => format!("x~7~{number}"),
                _ => format!("{long}{}", number % 10),
            };
            (format!("{number}/{name}"), 7)
        });
        let hits = hits(found, 1);
        let all: HashSet<&[u8]> = (0..hits.count()).map(|at| hits.name(at)).collect();
        assert_eq!(all.len(), 60_000);
    }

    /// Each result had its whole path, so that 60,000 of them took 256 MB.
    #[test]
    fn long_paths_take_no_more_than_their_names() {
        let above = vec!["x".repeat(250); 15].join("/");
        let found = (0..60_000).map(|number| (format!("{above}/{number}/name"), number));
        let hits = hits(found, 2);
        assert!(hits.bytes() < 16 << 20, "{}", hits.bytes());
        let last = hits.find(b"name~59999").expect("a result");
        let target = format!("../../{above}/59999/name");
        assert_eq!(hits.target(last), target.as_bytes());
    }

    #[test]
    fn only_recent_files_stay() {
        let mut findings = Findings::new(10);
        for number in 0..1000_i64 {
            let about = About { mtime_ns: number * 7 % 1000, ..About::default() };
            let path = format!("a{number}/b/c{}", about.mtime_ns).into_bytes();
            findings.add(&FoundFile { path, about, ..FoundFile::default() });
            assert!(findings.count() <= 40);
        }
        let hits = findings.into_hits(1);
        let names: Vec<&[u8]> = (0..hits.count()).map(|at| hits.name(at)).collect();
        let expected =
            ["c990", "c991", "c992", "c993", "c994", "c995", "c996", "c997", "c998", "c999"];
        assert_eq!(names, expected.map(str::as_bytes));
    }
}
