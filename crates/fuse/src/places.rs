//! Paths of many files, each directory on the way kept once: of deep trees, all paths together take
//! many times what their names do.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

/// Bytes from one place of the text on.
#[derive(Clone, Copy)]
struct Span {
    start: u32,
    length: u32,
}

struct Directory {
    /// The one above it, by number; its own for the base.
    above: u32,
    name: Span,
}

/// One path, as [`PackedPaths`] keeps it.
#[derive(Clone, Copy)]
pub struct PackedPath {
    directory: u32,
    name: Span,
}

/// The directory that paths are relative to, by number.
const BASE: u32 = 0;

/// Paths, in less than 4 GiB: the caller looks at [`bytes`](Self::bytes) before it adds some.
pub struct PackedPaths {
    text: Vec<u8>,
    directories: Vec<Directory>,
    /// Directories by a hash of the one above and the name. Where two have one, the second may be
    /// kept more than once.
    known: HashMap<u64, u32>,
    hasher: RandomState,
    /// The directory that had the last path.
    last: (Vec<u8>, u32),
}

impl Default for PackedPaths {
    fn default() -> Self {
        let base = Directory { above: BASE, name: Span { start: 0, length: 0 } };
        PackedPaths {
            text: Vec::new(),
            directories: vec![base],
            known: HashMap::new(),
            hasher: RandomState::new(),
            last: (Vec::new(), BASE),
        }
    }
}

impl PackedPaths {
    /// Adds a path without a slash in front.
    pub fn add(&mut self, path: &[u8]) -> PackedPath {
        let (above, name) = match path.iter().rposition(|byte| *byte == b'/') {
            Some(at) => (&path[..at], &path[at + 1..]),
            None => (&b""[..], path),
        };
        if self.last.0 != above {
            let names = above.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
            let directory = names.fold(BASE, |above, name| self.directory(above, name));
            self.last.0.clear();
            self.last.0.extend_from_slice(above);
            self.last.1 = directory;
        }
        PackedPath { directory: self.last.1, name: self.keep(name) }
    }

    fn directory(&mut self, above: u32, name: &[u8]) -> u32 {
        let hash = self.hasher.hash_one((above, name));
        if let Some(&known) = self.known.get(&hash) {
            let directory = &self.directories[known as usize];
            if directory.above == above && self.text(directory.name) == name {
                return known;
            }
        }
        let name = self.keep(name);
        self.directories.push(Directory { above, name });
        let number = (self.directories.len() - 1) as u32;
        self.known.insert(hash, number);
        number
    }

    fn keep(&mut self, name: &[u8]) -> Span {
        let span = Span { start: self.text.len() as u32, length: name.len() as u32 };
        self.text.extend_from_slice(name);
        span
    }

    fn text(&self, span: Span) -> &[u8] {
        let start = span.start as usize;
        &self.text[start..start + span.length as usize]
    }

    /// Returns the last name of a path.
    pub fn name(&self, place: PackedPath) -> &[u8] {
        self.text(place.name)
    }

    /// Adds a path to the end of a text.
    pub fn append(&self, place: PackedPath, path: &mut Vec<u8>) {
        let mut way = Vec::new();
        let mut at = place.directory;
        while at != BASE {
            let directory = &self.directories[at as usize];
            way.push(directory.name);
            at = directory.above;
        }
        for name in way.into_iter().rev() {
            path.extend_from_slice(self.text(name));
            path.push(b'/');
        }
        path.extend_from_slice(self.name(place));
    }

    /// Returns a path.
    pub fn path(&self, place: PackedPath) -> Vec<u8> {
        let mut path = Vec::new();
        self.append(place, &mut path);
        path
    }

    /// Returns the memory that this takes.
    pub fn bytes(&self) -> usize {
        let of_known = self.known.capacity() * (size_of::<(u64, u32)>() + 1);
        let of_directories = self.directories.capacity() * size_of::<Directory>();
        self.text.capacity() + of_directories + of_known + self.last.0.capacity()
    }

    /// Drops the state that only adding needs.
    pub fn finish(&mut self) {
        self.known = HashMap::new();
        self.last = (Vec::new(), BASE);
        self.text.shrink_to_fit();
        self.directories.shrink_to_fit();
    }

    /// Returns a number for each directory, by which they are in the order of their names.
    pub fn ranks(&self) -> Vec<u32> {
        let above = |number: u32| self.directories[number as usize].above;
        let name = |number: u32| self.text(self.directories[number as usize].name);
        let mut below: Vec<u32> = (1..self.directories.len() as u32).collect();
        // From the end on a stack, so that the first one is taken first.
        below.sort_unstable_by(|&one, &other| {
            (above(one), name(other), other).cmp(&(above(other), name(one), one))
        });
        let mut ranks = vec![0; self.directories.len()];
        let (mut stack, mut next) = (vec![BASE], 0);
        while let Some(number) = stack.pop() {
            ranks[number as usize] = next;
            next += 1;
            let start = below.partition_point(|&one| above(one) < number);
            let end = below.partition_point(|&one| above(one) <= number);
            stack.extend_from_slice(&below[start..end]);
        }
        ranks
    }

    /// Returns the number of the directory that a path lies in.
    pub fn directory_of(&self, place: PackedPath) -> usize {
        place.directory as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_as_they_were_added() {
        let long = format!("{}/x", ["y"; 2000].join("/"));
        let paths = ["a", "a/b", "b/a/c", "a/b", "b/a/d", "b/c", &long, "b/a/x/y", "a/x"];
        let mut places = PackedPaths::default();
        let kept: Vec<PackedPath> = paths.iter().map(|path| places.add(path.as_bytes())).collect();
        places.finish();
        for (place, path) in kept.iter().zip(paths) {
            assert_eq!(places.path(*place), path.as_bytes());
            assert_eq!(places.name(*place), path.rsplit('/').next().unwrap_or_default().as_bytes());
        }
        // a, b, b/a, b/a/x, 2,000 below each other, and the base.
        assert_eq!(places.directories.len(), 2005);
        let ranks = places.ranks();
        let rank = |at: usize| ranks[places.directory_of(kept[at])];
        assert!(rank(0) < rank(1) && rank(1) < rank(2) && rank(2) < rank(7));
        assert!(rank(7) < rank(6) && rank(1) == rank(8) && rank(5) < rank(2));
    }

    #[test]
    fn directories_are_kept_once() {
        let mut places = PackedPaths::default();
        let above = vec!["x".repeat(255); 15].join("/");
        for number in 0..60_000 {
            places.add(format!("{above}/{number}").as_bytes());
        }
        // Each path has 4 kB.
        assert!(places.bytes() < 1 << 20, "{}", places.bytes());
    }
}
