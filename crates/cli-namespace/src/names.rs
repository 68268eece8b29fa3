//! Names that wait, in little memory: directories may have millions.

use std::ffi::{CStr, CString};

/// Names one after the other, each with its NUL.
#[derive(Default)]
pub struct Names(Vec<u8>);

impl Names {
    /// Adds a name.
    pub fn push(&mut self, name: &CStr) {
        self.0.extend_from_slice(name.to_bytes_with_nul());
    }

    /// Takes the name that was added last.
    pub fn pop(&mut self) -> Option<CString> {
        self.0.pop()?;
        let start = self.0.iter().rposition(|byte| *byte == 0).map_or(0, |at| at + 1);
        // A name has no NUL in it.
        CString::new(self.0.split_off(start)).ok()
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_in_reverse() {
        let mut names = Names::default();
        [c"a", c"\xff\n", c"long name"].into_iter().for_each(|name| names.push(name));
        for expected in [c"long name", c"\xff\n", c"a"] {
            assert_eq!(names.pop().as_deref(), Some(expected));
        }
        assert!(names.is_empty() && names.pop().is_none());
    }
}
