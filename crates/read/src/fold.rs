//! Sums along a tree: of each directory, what it holds by itself, and with all below it.

use canopy_model::SourcePath;

/// A value that is added up.
pub trait Sum: Default {
    /// Adds another sum.
    fn add(&mut self, other: &Self);
}

/// The sums of a directory once everything below it has been seen.
pub struct Folded<'a, T> {
    /// Its path.
    pub path: SourcePath<'a>,
    /// The sum of its own contents.
    pub own: &'a T,
    /// The sum of its contents and of everything below it.
    pub total: T,
}

/// Adds up directories that come in path order, each before those below it.
///
/// Holds those of one path, from the first directory to where it is. A directory is given when the
/// first one that is not below it comes, or at the end: each behind those below it.
pub struct TreeFold<T> {
    /// The path of the innermost directory, which those of the others begin.
    path: String,
    open: Vec<Open<T>>,
}

struct Open<T> {
    /// Where its path ends in that of the fold.
    end: usize,
    own: T,
    below: T,
}

impl<T: Sum> TreeFold<T> {
    /// Begins at the directory above all others.
    pub fn new(path: SourcePath<'_>) -> Self {
        Self::with(path, T::default())
    }

    /// Begins at the directory above all others, with what is known of it.
    pub fn with(path: SourcePath<'_>, own: T) -> Self {
        let path = path.as_str();
        let first = Open { end: path.len(), own, below: T::default() };
        TreeFold { path: path.to_owned(), open: vec![first] }
    }

    /// Goes to a directory at or below the first one, and gives what it holds by itself, to be
    /// added to. A directory may come several times in a row.
    ///
    /// # Errors
    ///
    /// Fails with the first error of `each`.
    pub fn enter<E>(
        &mut self,
        path: SourcePath<'_>,
        mut each: impl FnMut(Folded<'_, T>) -> Result<(), E>,
    ) -> Result<&mut T, E> {
        if self.leave(path, &mut each)? && self.path != path.as_str() {
            self.open(path.as_str(), path.as_str().len(), T::default());
        }
        Ok(&mut self.top().own)
    }

    /// As [`TreeFold::enter`], where directories between one and the next may be missing: those
    /// that nobody can list. They are given too.
    pub(crate) fn enter_through<E>(
        &mut self,
        path: SourcePath<'_>,
        each: impl FnMut(Folded<'_, T>) -> Result<(), E>,
    ) -> Result<&mut T, E> {
        self.enter_through_with(path, |_, _| T::default(), each)
    }

    /// As `enter_through`; `begin` makes what a directory begins with, from what the
    /// one around it holds by itself and from its own name.
    ///
    /// # Errors
    ///
    /// Fails with the first error of `each`.
    pub fn enter_through_with<E>(
        &mut self,
        path: SourcePath<'_>,
        mut begin: impl FnMut(&T, &str) -> T,
        mut each: impl FnMut(Folded<'_, T>) -> Result<(), E>,
    ) -> Result<&mut T, E> {
        let is_below = self.leave(path, &mut each)?;
        let path = path.as_str();
        while is_below && self.path.len() < path.len() {
            let name_at = self.path.len() + usize::from(!self.path.is_empty());
            // An empty component, which only a damaged index has, counts with the one behind it.
            let name = path[name_at..].trim_start_matches('/');
            let end = name.find('/').map_or(path.len(), |slash| path.len() - name.len() + slash);
            let own = begin(&self.top().own, &path[name_at..end]);
            self.open(path, end, own);
        }
        Ok(&mut self.top().own)
    }

    /// Gives the directories that are left.
    ///
    /// # Errors
    ///
    /// Fails with the first error of `each`.
    pub fn finish<E>(
        mut self,
        mut each: impl FnMut(Folded<'_, T>) -> Result<(), E>,
    ) -> Result<(), E> {
        while !self.open.is_empty() {
            self.close(&mut each)?;
        }
        Ok(())
    }

    /// Returns the path of the innermost directory.
    fn innermost(&self) -> SourcePath<'_> {
        SourcePath::escaped(&self.path)
    }

    fn top(&mut self) -> &mut Open<T> {
        self.open.last_mut().expect("the first directory is open until the end")
    }

    /// Opens the directory whose path ends there.
    fn open(&mut self, path: &str, end: usize, own: T) {
        self.path.push_str(&path[self.path.len()..end]);
        self.open.push(Open { end, own, below: T::default() });
    }

    /// Gives those that a path is not below. Returns whether it is at or below the one that is
    /// innermost then: in a damaged index it may not even be below the first, with which it counts.
    fn leave<E>(
        &mut self,
        path: SourcePath<'_>,
        each: &mut impl FnMut(Folded<'_, T>) -> Result<(), E>,
    ) -> Result<bool, E> {
        while self.open.len() > 1 && !path.is_below(self.innermost()) {
            self.close(each)?;
        }
        Ok(path.is_below(self.innermost()))
    }

    /// Gives the innermost directory and adds it to the one around it.
    fn close<E>(&mut self, each: &mut impl FnMut(Folded<'_, T>) -> Result<(), E>) -> Result<(), E> {
        let Some(Open { own, below: mut total, .. }) = self.open.pop() else { return Ok(()) };
        total.add(&own);
        let mut end = self.path.len();
        if let Some(around) = self.open.last_mut() {
            around.below.add(&total);
            end = around.end;
        }
        each(Folded { path: self.innermost(), own: &own, total })?;
        self.path.truncate(end);
        Ok(())
    }
}

/// Adds up directories as [`TreeFold`] does, from an iterator of paths and what they hold.
///
/// # Errors
///
/// Fails with the first error of `each`.
pub fn fold_tree<'p, T: Sum, E>(
    path: SourcePath<'_>,
    directories: impl IntoIterator<Item = (SourcePath<'p>, T)>,
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
        let Ok(()) = fold_tree(
            SourcePath::ROOT,
            directories.map(|(path, own)| (SourcePath::escaped(path), own)),
            |folded| {
                given.push((folded.path.as_str().to_owned(), *folded.own, folded.total));
                Ok::<_, Infallible>(())
            },
        );
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
            given.push((folded.path.as_str().to_owned(), folded.total));
            Ok::<_, Infallible>(())
        };
        let mut fold = TreeFold::new(SourcePath::escaped("x"));
        for path in ["x/a/b", "x/a/c"] {
            let Ok(own) = fold.enter_through(SourcePath::escaped(path), &mut each);
            *own += 1;
        }
        let Ok(()) = fold.finish(&mut each);
        let expected = [("x/a/b", 1), ("x/a/c", 1), ("x/a", 2), ("x", 2)];
        assert_eq!(given, expected.map(|(path, total)| (path.to_owned(), total)));
    }

    #[test]
    fn paths_of_a_damaged_index_end_too() {
        let mut given = Vec::new();
        let mut each = |folded: Folded<'_, i64>| {
            given.push((folded.path.as_str().to_owned(), folded.total));
            Ok::<_, Infallible>(())
        };
        let mut fold = TreeFold::new(SourcePath::ROOT);
        for path in ["/", "//a/b", "a//", "a/ü"] {
            let Ok(own) = fold.enter_through(SourcePath::escaped(path), &mut each);
            *own += 1;
        }
        let Ok(()) = fold.finish(&mut each);
        assert_eq!(given.last(), Some(&(String::new(), 4)));
        let mut fold = TreeFold::<i64>::new(SourcePath::escaped("ab"));
        for path in ["ü", "", "abc/d"] {
            let Ok(own) =
                fold.enter_through(SourcePath::escaped(path), |_| Ok::<_, Infallible>(()));
            *own += 1;
            let Ok(own) = fold.enter(SourcePath::escaped(path), |_| Ok::<_, Infallible>(()));
            *own += 1;
        }
        assert_eq!(fold.path, "ab");
    }
}
