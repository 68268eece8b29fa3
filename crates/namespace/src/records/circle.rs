//! Ways upwards in damaged trees, where a directory may lie in itself.

use crate::records::keys::FileId;

/// Notices that a way goes round in circles, without a memory of its steps: trees may be deep. Each
/// step is compared with one before, which is replaced after 1, 2, 4 ... steps (Brent's algorithm).
pub(crate) struct Circle {
    mark: FileId,
    steps: u64,
    steps_to_mark: u64,
}

impl Circle {
    /// Begins a way at a file.
    pub(crate) fn at(start: FileId) -> Self {
        Circle { mark: start, steps: 0, steps_to_mark: 1 }
    }

    /// Takes a step to another file. Returns whether the way goes round in a circle, for certain.
    pub(crate) fn is_closed_by(&mut self, next: FileId) -> bool {
        if next == self.mark {
            return true;
        }
        self.steps += 1;
        if self.steps == self.steps_to_mark {
            (self.mark, self.steps, self.steps_to_mark) = (next, 0, self.steps_to_mark * 2);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circles_are_noticed_and_long_ways_are_not_taken_for_one() {
        for lead in 0..20 {
            for length in 1..20 {
                let mut circle = Circle::at(FileId(0));
                let step = |at: u64| if at + 1 < lead + length { at + 1 } else { lead };
                let way = std::iter::successors(Some(step(0)), |at| Some(step(*at)));
                let taken = way.take_while(|at| !circle.is_closed_by(FileId(*at))).count() as u64;
                assert!(taken <= 4 * (lead + length), "{taken} steps of {lead} and {length}");
            }
        }
        let mut circle = Circle::at(FileId(0));
        assert!(!(1..100_000).any(|at| circle.is_closed_by(FileId(at))));
    }
}
