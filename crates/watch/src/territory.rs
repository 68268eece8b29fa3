//! Followed trees, and the suspects that a change in them makes.

use crate::suspects::{Suspect, is_at_or_below};

/// The trees that are followed, and parts of them that are left out.
#[derive(Clone, Debug, Default)]
pub struct Territory {
    roots: Vec<Vec<u8>>,
    /// Directories whose changes are our own doing, or that no index has, with all below them.
    left_out: Vec<Vec<u8>>,
    /// Files with such changes.
    left_out_files: Vec<Vec<u8>>,
}

/// One thing that happened to an entry of a directory, or to a directory itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeEvent<'a> {
    /// Path of the directory.
    pub directory: &'a [u8],
    /// Name of the entry; `.` or empty for the directory itself.
    pub name: &'a [u8],
    /// Whether the entry is a directory, as far as that is known.
    pub is_dir: bool,
    /// The change.
    pub what: What,
}

/// A change of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// It is there now, or is another one: it was made, or moved there.
    Appeared,
    /// It is no longer there.
    Vanished,
    /// Its attributes changed: permissions, owner, times, extended attributes, the number of links.
    Attributes,
    /// Its contents changed, and so its size and times.
    Contents,
}

impl Territory {
    /// Returns the territory of some roots, which are absolute real paths. A root that lies in
    /// another one is part of that. Nothing at or below the paths `left_out` is followed.
    pub fn new(mut roots: Vec<Vec<u8>>, left_out: Vec<Vec<u8>>) -> Self {
        roots.sort_by_key(Vec::len);
        let mut kept: Vec<Vec<u8>> = Vec::new();
        for root in roots {
            if !kept.iter().any(|above| is_at_or_below(&root, above)) {
                kept.push(root);
            }
        }
        kept.sort();
        Territory { roots: kept, left_out, left_out_files: Vec::new() }
    }

    /// Leaves a file out, too: its row in the index is as old as that of its directory.
    pub fn leave_out_file(&mut self, path: Vec<u8>) {
        self.left_out_files.push(path);
    }

    /// Returns the roots, sorted.
    pub fn roots(&self) -> &[Vec<u8>] {
        &self.roots
    }

    /// Returns the roots, and the directories that are left out.
    pub(crate) fn trees(&self) -> (&[Vec<u8>], &[Vec<u8>]) {
        (&self.roots, &self.left_out)
    }

    /// Returns which of the roots a path is at or below, unless it is left out.
    pub fn root_of(&self, path: &[u8]) -> Option<usize> {
        if self.left_out.iter().any(|tree| is_at_or_below(path, tree)) {
            return None;
        }
        self.roots.iter().position(|root| is_at_or_below(path, root))
    }

    /// Returns whether changes of a directory matter: it is in a root, or above one.
    pub fn concerns(&self, directory: &[u8]) -> bool {
        self.root_of(directory).is_some() || self.is_above(directory)
    }

    fn is_above(&self, directory: &[u8]) -> bool {
        self.roots.iter().any(|root| root != directory && is_at_or_below(root, directory))
    }

    /// Adds to `suspects` what a change makes so.
    ///
    /// The directory of the entry, always: its listing is another. An entry that is a directory and
    /// appeared, with all below it: it may have come with a tree, and what is in it now may be older
    /// than the first event that tells of it. A directory whose attributes changed, alone: who deals
    /// with it sees whether its permissions are others, on which depends who may see what is below.
    /// A root whose way from `/` changed, as a whole.
    pub fn suspects_of(&self, change: &ChangeEvent<'_>, suspects: &mut Vec<Suspect>) {
        let ChangeEvent { directory, name, is_dir, what } = *change;
        let is_itself = matches!(name, b"" | b".");
        let child = || join(directory, name);
        if self.root_of(directory).is_some() {
            if is_itself {
                suspects.push(Suspect { path: directory.to_vec(), recursive: false });
                return;
            }
            let is_left_out = |files: &[Vec<u8>]| {
                !files.is_empty() && {
                    let child = child();
                    files.contains(&child)
                }
            };
            if is_left_out(&self.left_out_files) {
                return;
            }
            suspects.push(Suspect { path: directory.to_vec(), recursive: false });
            if is_dir && matches!(what, What::Appeared | What::Attributes) {
                let child = child();
                if self.root_of(&child).is_some() {
                    suspects.push(Suspect { path: child, recursive: what == What::Appeared });
                }
            }
            return;
        }
        let changed = if is_itself { directory.to_vec() } else { child() };
        let matters = match what {
            What::Contents => false,
            What::Attributes => is_itself || is_dir,
            What::Appeared | What::Vanished => true,
        };
        if matters {
            self.suspects_in(&changed, suspects);
        }
    }

    /// Adds to `suspects` all that is at and below a path.
    pub fn suspects_in(&self, path: &[u8], suspects: &mut Vec<Suspect>) {
        if self.root_of(path).is_some() {
            suspects.push(Suspect { path: path.to_vec(), recursive: true });
            return;
        }
        let below = self.roots.iter().filter(|root| is_at_or_below(root, path));
        suspects.extend(below.map(|root| Suspect { path: root.clone(), recursive: true }));
    }

    /// Returns all roots as suspects.
    pub fn all_suspect(&self) -> Vec<Suspect> {
        let all = self.roots.iter();
        all.map(|root| Suspect { path: root.clone(), recursive: true }).collect()
    }
}

/// Returns the path of an entry.
pub(crate) fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let directory = if directory == b"/" { b"" } else { directory };
    [directory, b"/", name].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn territory() -> Territory {
        let paths =
            |paths: &[&str]| Vec::from_iter(paths.iter().map(|path| path.as_bytes().to_vec()));
        let mut territory =
            Territory::new(paths(&["/srv/data/in", "/srv/data", "/home"]), paths(&["/home/index"]));
        territory.leave_out_file(b"/home/metrics.prom".to_vec());
        territory
    }

    fn suspects(directory: &str, name: &str, is_dir: bool, what: What) -> Vec<String> {
        let (directory, name) = (directory.as_bytes(), name.as_bytes());
        let mut suspects = Vec::new();
        territory().suspects_of(&ChangeEvent { directory, name, is_dir, what }, &mut suspects);
        let show = |one: Suspect| {
            let star = if one.recursive { "/**" } else { "" };
            format!("{}{star}", String::from_utf8(one.path).unwrap())
        };
        suspects.into_iter().map(show).collect()
    }

    #[test]
    fn changes_make_their_directories_suspects_and_some_all_below() {
        use What::{Appeared, Attributes, Contents, Vanished};
        assert_eq!(territory().roots(), [b"/home".to_vec(), b"/srv/data".to_vec()]);
        assert_eq!(suspects("/home/a", "f", false, Contents), ["/home/a"]);
        assert_eq!(suspects("/home/a", "f", false, Appeared), ["/home/a"]);
        assert_eq!(suspects("/home/a", "d", true, Appeared), ["/home/a", "/home/a/d/**"]);
        assert_eq!(suspects("/home/a", "d", true, Vanished), ["/home/a"]);
        assert_eq!(suspects("/home/a", "d", true, Attributes), ["/home/a", "/home/a/d"]);
        assert_eq!(suspects("/home/a", ".", true, Attributes), ["/home/a"]);
        assert_eq!(suspects("/srv/data/in", "f", false, Vanished), ["/srv/data/in"]);
        // Left-out paths, and paths elsewhere.
        assert_eq!(suspects("/home/index/x", "f", false, Appeared), [""; 0]);
        assert_eq!(suspects("/home", "index", true, Appeared), ["/home"]);
        assert_eq!(suspects("/home", "metrics.prom", false, Appeared), [""; 0]);
        assert_eq!(suspects("/homer", "f", false, Appeared), [""; 0]);
        // The way to a root.
        assert_eq!(suspects("/srv", ".", true, Attributes), ["/srv/data/**"]);
        assert_eq!(suspects("/", "srv", true, Vanished), ["/srv/data/**"]);
        assert_eq!(suspects("/", "srv", true, Appeared), ["/srv/data/**"]);
        assert_eq!(suspects("/srv", "data", true, Vanished), ["/srv/data/**"]);
        assert_eq!(suspects("/srv", "other", true, Appeared), [""; 0]);
        assert_eq!(suspects("/", ".", true, Attributes), ["/home/**", "/srv/data/**"]);
    }
}
