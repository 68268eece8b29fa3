//! Functions over paths and names of attributes that the views are made of.
//!
//! GUFI keeps attributes of users alone, so others are left out of its lists.

use super::values::{integers, texts};
use arrow::array::{ArrayRef, BooleanArray, Int64Array, ListBuilder, StringArray, StringBuilder};
use canopy_model::xattr_names;
use canopy_read::links::parent_of;
use datafusion::error::Result;
use std::sync::Arc;

/// Ends the name of an attribute in GUFI's lists of them.
const END: char = '\u{1f}';

/// Joins directories and names of entries of them.
pub(super) fn joined(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let (directories, names) = (texts(&arguments[0])?, texts(&arguments[1])?);
    let path = |(directory, name): (Option<&str>, Option<&str>)| {
        Some(format!("{}/{}", directory?.trim_end_matches('/'), name?))
    };
    Ok(Arc::new(directories.iter().zip(names.iter()).map(path).collect::<StringArray>()))
}

/// Returns the directories so many levels above others.
pub(super) fn roots(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let (paths, depths) = (texts(&arguments[0])?, integers(&arguments[1])?);
    let rows = paths.iter().zip(&depths);
    let roots = rows.map(|(path, depth)| upwards(path?, depth?).last());
    Ok(Arc::new(roots.collect::<StringArray>()))
}

/// Lists each directory and those above it, as many as it has levels.
pub(super) fn ancestors(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let (paths, depths) = (texts(&arguments[0])?, integers(&arguments[1])?);
    let mut lists = ListBuilder::new(StringBuilder::new());
    for (path, depth) in paths.iter().zip(&depths) {
        if let (Some(path), Some(depth)) = (path, depth) {
            upwards(path, depth).for_each(|path| lists.values().append_value(path));
        }
        lists.append(true);
    }
    Ok(Arc::new(lists.finish()))
}

/// Returns a path and the directories so many levels above it, or as many as there are.
fn upwards(path: &str, levels: i64) -> impl Iterator<Item = &str> {
    let levels = usize::try_from(levels).unwrap_or(0);
    std::iter::successors(Some(path), |&path| (path != "/").then(|| parent_of(path)))
        .take(levels.saturating_add(1))
}

/// Writes the names of attributes in GUFI's form: each followed by the byte 31.
pub(super) fn xattr_names(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let lists = texts(&arguments[0])?;
    let names = |list: Option<&str>| {
        split(list.unwrap_or_default())
            .into_iter()
            .fold(String::new(), |text, name| text + &name + "\u{1f}")
    };
    Ok(Arc::new(StringArray::from_iter_values(lists.iter().map(names))))
}

/// Counts the attributes of entries.
pub(super) fn xattr_counts(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let lists = texts(&arguments[0])?;
    let count = |list: Option<&str>| split(list.unwrap_or_default()).len() as i64;
    Ok(Arc::new(Int64Array::from_iter_values(lists.iter().map(count))))
}

/// Returns the names of users' attributes in the index's list of names.
fn split(list: &str) -> Vec<String> {
    let names = xattr_names::decode(list).filter(|name| name.starts_with("user."));
    // This byte would end the name.
    names.map(|name| name.replace(END, "?")).collect()
}

/// Returns whether paths are directories or at or below them.
pub(super) fn below(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let (paths, directories) = (texts(&arguments[0])?, texts(&arguments[1])?);
    let below = |(path, directory): (Option<&str>, Option<&str>)| {
        let rest = path?.strip_prefix(directory?.trim_end_matches('/'));
        Some(rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
    };
    Ok(Arc::new(paths.iter().zip(directories.iter()).map(below).collect::<BooleanArray>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_of_the_root_is_the_root() {
        for (path, above) in [("/a/b", "/a"), ("/a", "/"), ("/", "/")] {
            assert_eq!(parent_of(path), above);
        }
    }

    #[test]
    fn there_are_no_directories_above_the_root() {
        let path: ArrayRef = Arc::new(StringArray::from(vec!["/a/b"; 3]));
        let levels: ArrayRef = Arc::new(Int64Array::from(vec![-1, 1, i64::MAX]));
        let roots = roots(&[path.clone(), levels.clone()]).unwrap();
        assert_eq!(texts(&roots).unwrap(), StringArray::from(vec!["/a/b", "/a", "/"]));
        let lengths = arrow::compute::kernels::length::length(&ancestors(&[path, levels]).unwrap());
        assert_eq!(integers(&lengths.unwrap()).unwrap(), Int64Array::from(vec![1, 2, 3]));
    }

    #[test]
    fn paths_with_one_beginning_are_not_below_each_other() {
        let column = |texts: &[&str]| -> ArrayRef { Arc::new(StringArray::from(texts.to_vec())) };
        let paths = column(&["/a", "/a/b", "/ab", "/", "/a"]);
        let directories = column(&["/a", "/a", "/a", "/", "/"]);
        let answers = below(&[paths, directories]).unwrap();
        assert_eq!(*answers, BooleanArray::from(vec![true, true, false, true, true]));
    }

    #[test]
    fn lists_of_attributes_are_split_at_bare_commas() {
        for (list, names) in [
            ("", vec![]),
            ("user.a", vec!["user.a"]),
            ("user.a,user.b", vec!["user.a", "user.b"]),
            ("user.a\\,b\\\\,user.c", vec!["user.a,b\\", "user.c"]),
            ("security.a,user.b,system.posix_acl_access", vec!["user.b"]),
            ("user.\u{1f}", vec!["user.?"]),
        ] {
            assert_eq!(split(list), names, "{list}");
        }
    }
}
