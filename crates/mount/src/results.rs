//! What queries mean and find, for every mount that has them: their results are symbolic links with
//! names that no other result has.

use canopy_namespace::query::{
    Component, Context, Expression, Field, Span, Types, parse, system_zone,
};
use canopy_namespace::{FileId, Found, Inode, NAME_BYTES_MAX};
use std::collections::{HashMap, HashSet};

/// So many queries one below the other.
pub const DEPTH_MAX: usize = 16;

/// A query that finds more fails, and so does opening one if a user's open ones have more together:
/// what they found is in memory.
pub const RESULTS_MAX: usize = 500_000;

/// What is said of a component that names something else.
pub(crate) const NO_QUERY: &str = "this is no query, and stands neither in nor below one here";

/// So many files are recent if nobody says since when.
const RECENT: usize = 1000;

/// One result: a name that no other has, where it leads, and the file that it leads to.
pub struct Hit {
    /// Its name.
    pub name: Vec<u8>,
    /// Where it leads, from the query; empty if that is too long for a link.
    pub target: Vec<u8>,
    /// The attributes of the file.
    pub inode: Inode,
}

/// What a query found.
pub struct Hits {
    /// The results, by name.
    pub hits: Vec<Hit>,
    by_name: HashMap<Vec<u8>, usize>,
}

/// Why a query is none.
#[derive(Debug)]
pub struct Refusal<'a> {
    /// The component that is wrong.
    pub component: &'a [u8],
    /// What is wrong with it.
    pub why: String,
}

/// Returns whether a name is in brackets.
pub fn is_query(name: &[u8]) -> bool {
    name.len() > 2 && name.starts_with(b"[") && name.ends_with(b"]")
}

/// Reads a component; none if it is in no brackets.
pub fn parsed(component: &[u8], now_ns: i64) -> Result<Option<Component>, Refusal<'_>> {
    let user = |name: &str| {
        let user = nix::unistd::User::from_name(name).ok().flatten();
        user.map(|user| user.uid.as_raw())
    };
    let group = |name: &str| {
        let group = nix::unistd::Group::from_name(name).ok().flatten();
        group.map(|group| group.gid.as_raw())
    };
    let context = Context { now_ns, zone: system_zone(), user: &user, group: &group };
    let parsed = parse(component, &context);
    parsed.map_err(|error| Refusal { component, why: error.to_string() })
}

/// Returns what queries ask for together, and how many results the last of them wants.
pub fn meaning(components: &[Vec<u8>], now_ns: i64) -> Result<(Expression, usize), Refusal<'_>> {
    let (mut all, mut limit) = (Vec::new(), RESULTS_MAX);
    for component in components {
        let files = || Types::of('f').map(Expression::types);
        match parsed(component, now_ns)? {
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
                return Err(Refusal { component, why: NO_QUERY.into() });
            }
        }
    }
    Ok((Expression::all(all), limit))
}

/// Leaves the files that were changed last.
pub fn keep_recent(found: &mut Vec<Found>, limit: usize) {
    if found.len() > limit {
        found.sort_unstable_by_key(|one| std::cmp::Reverse(one.inode.mtime_ns));
        found.truncate(limit);
    }
}

impl Hits {
    /// Returns the result with a name.
    pub fn get(&self, name: &[u8]) -> Option<&Hit> {
        self.by_name.get(name).map(|at| &self.hits[*at])
    }

    /// Gives what was found names, each once: the file's own, or with its id if another file has
    /// it. Links lead up through `depth` queries.
    pub fn new(mut found: Vec<Found>, depth: usize) -> Self {
        found.sort_by(|one, other| {
            let key = |one: &Found| (one.inode.id, one.path.clone());
            name_of(&one.path).cmp(name_of(&other.path)).then_with(|| key(one).cmp(&key(other)))
        });
        let firsts = found.iter().map(|one| name_of(&one.path).to_vec());
        let mut used: HashSet<Vec<u8>> = firsts.collect();
        let mut hits: Vec<Hit> = Vec::with_capacity(found.len());
        let mut before: Vec<u8> = Vec::new();
        // Of each file, where to go on looking for a number: it may have very many names.
        let mut numbers: HashMap<FileId, u64> = HashMap::new();
        for one in found {
            let (own, inode) = (name_of(&one.path).to_vec(), &one.inode);
            let mut name = own.clone();
            // A name that is a query would be taken for one.
            if own == before || is_query(&own) {
                name = unused(&own, inode.id, &used, numbers.entry(inode.id).or_default());
                used.insert(name.clone());
            }
            before = own;
            hits.push(Hit { name, target: target_of(&one, depth), inode: one.inode });
        }
        Self::of(hits)
    }

    /// Gives results that have names of their own.
    pub(crate) fn of(hits: Vec<Hit>) -> Self {
        let names = hits.iter().enumerate().map(|(at, hit)| (hit.name.clone(), at));
        Hits { by_name: names.collect(), hits }
    }
}

/// Returns where a link to a file leads that lies below so many queries.
pub(crate) fn target_of(found: &Found, depth: usize) -> Vec<u8> {
    if found.is_beyond { Vec::new() } else { [&b"../".repeat(depth)[..], &found.path].concat() }
}

/// Returns a name that is not used yet, made of one that is: with the id, and if need be with a
/// number above the last one of this file.
fn unused(name: &[u8], id: FileId, used: &HashSet<Vec<u8>>, last: &mut u64) -> Vec<u8> {
    let with = |suffix: String| {
        let kept = &name[..name.len().min(NAME_BYTES_MAX - suffix.len())];
        [kept, suffix.as_bytes()].concat()
    };
    let mut unused = with(format!("~{id}"));
    // Somebody may have called a file so, or it has several names.
    while used.contains(&unused) {
        *last += 1;
        unused = with(format!("~{id}~{last}"));
    }
    unused
}

fn name_of(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_result_has_a_name_of_its_own() {
        let long = "x".repeat(NAME_BYTES_MAX);
        let cut = |suffix: &str| format!("{}{suffix}", &long[..NAME_BYTES_MAX - suffix.len()]);
        // Somebody has called files as the second one with the long name would be called.
        let names = [&long, &long, &long, &cut("~7"), &cut("~"), &cut("~7~"), &cut("~7~1")];
        let found = names.iter().enumerate().map(|(at, name)| Found {
            path: format!("{at}/{name}").into_bytes(),
            is_beyond: false,
            inode: Inode { id: 7, ..Inode::default() },
        });
        let hits = Hits::new(found.collect(), 1).hits;
        let unique: HashSet<&Vec<u8>> = hits.iter().map(|hit| &hit.name).collect();
        assert_eq!(unique.len(), names.len());
        assert!(hits.iter().all(|hit| hit.name.len() <= NAME_BYTES_MAX));
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
            let inode = Inode { id: 7, ..Inode::default() };
            Found { path: format!("{number}/{name}").into_bytes(), is_beyond: false, inode }
        });
        let hits = Hits::new(found.collect(), 1);
        assert_eq!(hits.by_name.len(), 60_000);
    }
}
