//! What an entry must be like for a search to do anything with it, in terms that indexes of
//! attributes understand. It is never false of an entry that is acted on; of others it may be true.

use crate::find::actions::Action;
use crate::find::language::{AskedXattr, Expr, Find, Number, Test, XattrTest};
use canopy_index::ColumnId;
use canopy_index::column::{BTIME, INO, SIZE};
use canopy_model::FileType;
use canopy_text::Glob;

/// A condition of entries.
#[derive(Clone, Debug, PartialEq)]
pub enum Bound {
    /// All entries, or none.
    Always(bool),
    /// All of these.
    All(Vec<Bound>),
    /// At least one of these.
    Any(Vec<Bound>),
    /// A number or a time of a column from the first to the second, both included. The least and
    /// the largest `i64` stand for no limit.
    Number(ColumnId, i64, i64),
    /// One of these types.
    Type(Vec<FileType>),
    /// This name.
    Name(Vec<u8>),
    /// A name that begins so.
    NameStart(Vec<u8>),
    /// A name with at least one byte, a dot, and this.
    Extension(Vec<u8>),
    /// An extended attribute of this name.
    Xattr(Vec<u8>),
}

impl Bound {
    /// Returns what must be true of an entry for an action to be reached.
    pub(super) fn of_acting(find: &Find) -> Self {
        Conditions::of(&find.expr, &find.actions).acts
    }

    fn all(parts: [Bound; 2]) -> Self {
        Self::joined(parts, true)
    }

    fn any(parts: [Bound; 2]) -> Self {
        Self::joined(parts, false)
    }

    /// Returns the condition that all of these hold, or any.
    fn joined(parts: [Bound; 2], all: bool) -> Self {
        let mut joined = Vec::new();
        for part in parts {
            match part {
                Bound::Always(outcome) if outcome == all => {}
                Bound::Always(outcome) => return Bound::Always(outcome),
                Bound::All(parts) if all => joined.extend(parts),
                Bound::Any(parts) if !all => joined.extend(parts),
                other => joined.push(other),
            }
        }
        match joined.len() {
            0 => Bound::Always(all),
            1 => joined.remove(0),
            _ if all => Bound::All(joined),
            _ => Bound::Any(joined),
        }
    }

    /// Returns the condition that a column is within bounds.
    fn within(column: ColumnId, least: i64, most: i64) -> Self {
        match least <= most {
            true if (least, most) == (i64::MIN, i64::MAX) => Bound::Always(true),
            true => Bound::Number(column, least, most),
            false => Bound::Always(false),
        }
    }
}

/// What must be true of an entry for three things to happen to it.
struct Conditions {
    /// The expression is true.
    passes: Bound,
    /// It is false.
    fails: Bound,
    /// An action in it is reached.
    acts: Bound,
}

impl Conditions {
    fn of(expr: &Expr, actions: &[Action]) -> Self {
        let (always, never) = (Bound::Always(true), Bound::Always(false));
        let of = |expr: &Expr| Self::of(expr, actions);
        match expr {
            Expr::And(first, second) => of(first).and(of(second)),
            // It is false where both are.
            Expr::Or(first, second) => of(first).not().and(of(second).not()).not(),
            Expr::Comma(first, second) => {
                let (first, second) = (of(first), of(second));
                Conditions { acts: Bound::any([first.acts, second.acts]), ..second }
            }
            Expr::Not(inner) => of(inner).not(),
            Expr::Test(test) => {
                Conditions { passes: passes(test), fails: fails(test), acts: never }
            }
            Expr::Action(action) => {
                let fails = if actions[*action].decides() { always.clone() } else { never };
                Conditions { passes: always.clone(), fails, acts: always }
            }
            Expr::Prune => Conditions { passes: always, fails: never.clone(), acts: never },
        }
    }

    fn and(self, second: Conditions) -> Self {
        let after = |second: Bound| Bound::all([self.passes.clone(), second]);
        Conditions {
            fails: Bound::any([self.fails, after(second.fails)]),
            acts: Bound::any([self.acts, after(second.acts)]),
            passes: after(second.passes),
        }
    }

    fn not(self) -> Self {
        Conditions { passes: self.fails, fails: self.passes, acts: self.acts }
    }
}

/// Returns what is true of all entries that pass a test.
fn passes(test: &Test) -> Bound {
    match test {
        Test::Always(outcome) => Bound::Always(*outcome),
        Test::Name(glob) => name(glob),
        Test::Type(types) => Bound::Type(types.clone()),
        Test::Size(number, unit) => {
            let (after, until) = number.span(*unit);
            Bound::within(SIZE.id(), after.saturating_add(i64::from(after > i64::MIN)), until)
        }
        Test::Empty => {
            Bound::any([Bound::Number(SIZE.id(), 0, 0), Bound::Type(vec![FileType::Directory])])
        }
        Test::Time(column, after, until) => {
            let least = after.saturating_add(i64::from(*after > i64::MIN));
            Bound::within(column.id(), least, *until)
        }
        Test::Id(column, number) => numbers(column.id(), *number),
        Test::Inode(number) => numbers(INO.id(), *number),
        Test::SameFile(file) => match i64::try_from(file.ino) {
            Ok(ino) => Bound::Number(INO.id(), ino, ino),
            Err(_) => Bound::Always(true),
        },
        Test::Target(_) => Bound::Type(vec![FileType::Symlink]),
        // Names are escaped in patterns; what is not plain is left to the test itself.
        Test::Xattr(XattrTest { asked: AskedXattr::Named(Glob::Literal(name), ..), .. })
            if name.is_ascii() =>
        {
            Bound::Xattr(name.clone().into_bytes())
        }
        _ => Bound::Always(true),
    }
}

/// Returns what is true of all entries that fail a test.
fn fails(test: &Test) -> Bound {
    let outside = |bound| match bound {
        Bound::Number(column, least, most) => Bound::any([
            Bound::within(column, i64::MIN, least.saturating_sub(1)).when(least > i64::MIN),
            Bound::within(column, most.saturating_add(1), i64::MAX).when(most < i64::MAX),
        ]),
        Bound::Always(passes) => Bound::Always(!passes),
        _ => Bound::Always(true),
    };
    match test {
        Test::Always(outcome) => Bound::Always(!outcome),
        // A birth that is not known fails, too.
        Test::Time(column, ..) if column.id() == BTIME.id() => Bound::Always(true),
        Test::Size(..) | Test::Time(..) | Test::Id(..) | Test::Inode(_) => outside(passes(test)),
        Test::Type(types) => {
            let others = ALL_TYPES.iter().filter(|one| !types.contains(one));
            Bound::Type(others.copied().collect())
        }
        _ => Bound::Always(true),
    }
}

/// All types that there are.
const ALL_TYPES: [FileType; 8] = [
    FileType::Regular,
    FileType::Directory,
    FileType::Symlink,
    FileType::Fifo,
    FileType::Socket,
    FileType::Block,
    FileType::Character,
    FileType::Unknown,
];

fn numbers(column: ColumnId, number: Number) -> Bound {
    match number {
        Number::More(i64::MAX) | Number::Less(i64::MIN) => Bound::Always(false),
        Number::More(n) => Bound::within(column, n + 1, i64::MAX),
        Number::Less(n) => Bound::within(column, i64::MIN, n - 1),
        Number::Exactly(n) => Bound::within(column, n, n),
    }
}

/// Returns what is true of all names that match a pattern. Names are escaped in patterns: only what
/// is plain in both is used.
fn name(glob: &Glob) -> Bound {
    let plain = |text: &str| text.is_ascii() && !text.is_empty();
    match glob {
        Glob::Literal(text) if plain(text) => Bound::Name(text.clone().into_bytes()),
        Glob::Prefix(text) if plain(text) => Bound::NameStart(text.clone().into_bytes()),
        Glob::Suffix(text) if plain(text) => extension(text, false),
        Glob::Parts(begin, _, end) if plain(begin) => {
            Bound::all([Bound::NameStart(begin.clone().into_bytes()), extension(end, true)])
        }
        Glob::Parts(_, _, end) => extension(end, false),
        _ => Bound::Always(true),
    }
}

/// Returns what is true of names that end so, with something in front if `is_longer`.
fn extension(end: &str, is_longer: bool) -> Bound {
    let Some(dot) = end.rfind('.').filter(|_| end.is_ascii()) else { return Bound::Always(true) };
    let text = &end[dot + 1..];
    if text.is_empty() {
        return Bound::Always(true);
    }
    let extension = Bound::Extension(text.as_bytes().to_vec());
    match is_longer || dot > 0 {
        true => extension,
        // The name may be no more than that, which is no extension.
        false => Bound::any([extension, Bound::Name(end.as_bytes().to_vec())]),
    }
}

impl Bound {
    fn when(self, is_one: bool) -> Self {
        if is_one { self } else { Bound::Always(false) }
    }
}
