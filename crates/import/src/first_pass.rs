//! Results of the first pass: directories as the input has them, and which of them is the root.

use crate::error::{Error, Position, Problems, Result};
use crate::path::{below, common, trimmed};
use crate::tree::Xattrs;
use canopy_model::Attributes;
use rustc_hash::FxHashMap;

/// How the root of the input is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RootRule {
    /// Relative paths begin with the name of the root.
    Named,
    /// Relative paths are below the root, which is empty or '.'.
    Below,
    /// The root is '/', and all paths are absolute.
    Top,
}

/// The directories that one thread has found, in the order of its input.
#[derive(Debug, Default)]
pub(crate) struct FirstPass {
    paths: Vec<u8>,
    dirs: Vec<FoundDir>,
    pub(crate) xattrs: FxHashMap<u32, Xattrs>,
}

/// A directory as a record describes it.
#[derive(Debug)]
pub(crate) struct FoundDir {
    path_end: usize,
    pub attributes: Attributes,
    pub unknown: bool,
    pub input: u32,
    pub place: Position,
}

impl FirstPass {
    /// Adds a directory. `unknown` says that its permissions are not known for sure.
    pub(crate) fn push(
        &mut self,
        path: &[u8],
        attributes: Attributes,
        unknown: bool,
        xattrs: Xattrs,
        at: (u32, Position),
    ) {
        if !xattrs.is_empty() {
            self.xattrs.insert(self.dirs.len() as u32, xattrs);
        }
        self.paths.extend_from_slice(path);
        let (input, place) = at;
        self.dirs.push(FoundDir { path_end: self.paths.len(), attributes, unknown, input, place });
    }

    /// Returns how many there are.
    pub(crate) fn len(&self) -> usize {
        self.dirs.len()
    }

    /// Returns their paths, as the input has them, and what else is known.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &FoundDir)> {
        let mut start = 0;
        self.dirs.iter().map(move |dir| {
            let path = &self.paths[start..dir.path_end];
            start = dir.path_end;
            (path, dir)
        })
    }
}

/// Finds the root of the input, without slashes at its end.
///
/// The deepest directory that is above all others could be the wrong one where records are missing,
/// and what the real root keeps from others would be open. So it is taken only where nothing can be
/// missing unnoticed.
pub(crate) fn input_root(
    gathered: &[FirstPass],
    asked: Option<&[u8]>,
    rule: RootRule,
    problems: &Problems,
) -> Result<Vec<u8>> {
    let mut paths = gathered.iter().flat_map(FirstPass::iter).map(|(path, _)| path);
    let Some(first) = paths.next() else {
        return Err(Error::Input("the input has no directory".to_owned()));
    };
    if rule == RootRule::Top {
        return Ok(Vec::new());
    }
    if !first.starts_with(b"/") {
        if asked.is_none() {
            let reason =
                "the input has relative paths: say with --root which absolute path its root has";
            return Err(Error::Input(reason.to_owned()));
        }
        let name = first.split(|&byte| byte == b'/').next().unwrap_or_default();
        return Ok(match rule {
            RootRule::Below if name != b"." => Vec::new(),
            _ => name.to_owned(),
        });
    }
    let mut top = trimmed(first);
    for path in paths.filter(|path| path.starts_with(b"/")) {
        top = common(top, trimmed(path));
    }
    match asked.map(trimmed) {
        Some(root) if below(root, top).is_some() => Ok(root.to_owned()),
        _ if problems.lenient() && !top.is_empty() => {
            let reason = "--lenient needs the root of the input, as the input has it, with --root";
            Err(Error::Input(reason.to_owned()))
        }
        _ => Ok(top.to_owned()),
    }
}
