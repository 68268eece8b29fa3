//! Sums along a tree: of each directory, what it holds by itself, and with all below it.

use canopy_model::is_below;
use std::borrow::Cow;

/// What is added up.
pub trait Sum: Default {
    /// Adds another sum.
    fn add(&mut self, other: &Self);
}

/// What is known of a directory when all below it has been seen.
pub struct Folded<'a, T> {
    /// Its path.
    pub path: &'a str,
    /// What it holds by itself.
    pub own: &'a T,
    /// What it holds with all below it.
    pub total: T,
}

/// Adds up directories that come in path order, each before those below it.
///
/// Holds those of one path, from the first directory to where it is. A directory is given when the
/// first one that is not below it comes, or at the end: each behind those below it.
pub struct TreeFold<'p, T> {
    open: Vec<Open<'p, T>>,
}

struct Open<'p, T> {
    path: Cow<'p, str>,
    own: T,
    below: T,
}

impl<'p, T: Sum> TreeFold<'p, T> {
    /// Begins at the directory above all others.
    pub fn new(path: impl Into<Cow<'p, str>>) -> Self {
        TreeFold { open: vec![Open::new(path.into())] }
    }

    /// Goes to a directory at or below the first one, and gives what it holds by itself, to be added
    /// to. A directory may come several times in a row.
    pub fn enter<E>(
        &mut self,
        path: impl Into<Cow<'p, str>>,
        mut each: impl FnMut(Folded<'_, T>) -> Result<(), E>,
    ) -> Result<&mut T, E> {
        let path = path.into();
        while self.open.len() > 1 && !is_below(&path, &self.top().path) {
            self.close(&mut each)?;
        }
        if self.top().path != path {
            self.open.push(Open::new(path));
        }
        Ok(&mut self.top().own)
    }

    /// As [`TreeFold::enter`], where directories between one and the next may be missing: those
    /// that nobody can list. They are given too.
    pub fn enter_through<E>(
        &mut self,
        path: &str,
        mut each: impl FnMut(Folded<'_, T>) -> Result<(), E>,
    ) -> Result<&mut T, E> {
        while self.open.len() > 1 && !is_below(path, &self.top().path) {
            self.close(&mut each)?;
        }
        let around = self.top().path.len();
        let ends = path[around..].match_indices('/').map(|(at, _)| around + at).chain([path.len()]);
        for end in ends.filter(|&end| end > around) {
            self.enter(path[..end].to_owned(), &mut each)?;
        }
        Ok(&mut self.top().own)
    }

    /// Gives the directories that are left.
    pub fn finish<E>(
        mut self,
        mut each: impl FnMut(Folded<'_, T>) -> Result<(), E>,
    ) -> Result<(), E> {
        while !self.open.is_empty() {
            self.close(&mut each)?;
        }
        Ok(())
    }

    fn top(&mut self) -> &mut Open<'p, T> {
        self.open.last_mut().expect("the first directory is open until the end")
    }

    /// Gives the innermost directory and adds it to the one around it.
    fn close<E>(&mut self, each: &mut impl FnMut(Folded<'_, T>) -> Result<(), E>) -> Result<(), E> {
        let Some(Open { path, own, below: mut total }) = self.open.pop() else { return Ok(()) };
        total.add(&own);
        if let Some(around) = self.open.last_mut() {
            around.below.add(&total);
        }
        each(Folded { path: &path, own: &own, total })
    }
}

impl<'p, T: Default> Open<'p, T> {
    fn new(path: Cow<'p, str>) -> Self {
        Open { path, own: T::default(), below: T::default() }
    }
}

/// Adds up directories as [`TreeFold`] does, from an iterator of paths and what they hold.
pub fn fold_tree<'p, T: Sum, E>(
    path: &'p str,
    directories: impl IntoIterator<Item = (&'p str, T)>,
    mut each: impl FnMut(Folded<'_, T>) -> Result<(), E>,
) -> Result<(), E> {
    let mut fold = TreeFold::new(path);
    for (path, own) in directories {
        fold.enter(path, &mut each)?.add(&own);
    }
    fold.finish(each)
}

impl Sum for canopy_model::Totals {
    fn add(&mut self, other: &Self) {
        *self += *other;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    impl Sum for i64 {
        fn add(&mut self, other: &Self) {
            *self += other;
        }
    }

    #[test]
    fn directories_come_behind_those_below_them_with_their_sums() {
        let mut given = Vec::new();
        let directories = [("a", 1), ("a/b", 10), ("a/b/c", 100), ("a/b/c", 100), ("d", 1000)];
        let Ok(()) = fold_tree("", directories, |folded| {
            given.push((folded.path.to_owned(), *folded.own, folded.total));
            Ok::<_, Infallible>(())
        });
        let expected = [
            ("a/b/c", 200, 200),
            ("a/b", 10, 210),
            ("a", 1, 211),
            ("d", 1000, 1000),
            ("", 0, 1211),
        ];
        assert_eq!(given, expected.map(|(path, own, total)| (path.to_owned(), own, total)));
    }

    #[test]
    fn directories_that_are_missing_are_given_where_asked_for() {
        let mut given = Vec::new();
        let mut each = |folded: Folded<'_, i64>| {
            given.push((folded.path.to_owned(), folded.total));
            Ok::<_, Infallible>(())
        };
        let mut fold = TreeFold::new("x");
        for path in ["x/a/b", "x/a/c"] {
            let Ok(own) = fold.enter_through(path, &mut each);
            *own += 1;
        }
        let Ok(()) = fold.finish(&mut each);
        let expected = [("x/a/b", 1), ("x/a/c", 1), ("x/a", 2), ("x", 2)];
        assert_eq!(given, expected.map(|(path, total)| (path.to_owned(), total)));
    }
}
