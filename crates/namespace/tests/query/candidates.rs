//! Ranges of indexes that have all files which a query is true of.

use super::read;
use canopy_namespace::attributes::{Attribute, Indexes};
use canopy_namespace::{Candidates, FileId, Source};
use canopy_query::{Component, Expression};

fn expression(text: &str) -> Expression {
    match read(text) {
        Component::Search(expression) => expression,
        other => panic!("{other} is not a search"),
    }
}

#[test]
fn candidates_are_alternatives_and_unions() {
    let indexes = Indexes {
        attributes: [Attribute::Size, Attribute::Uid, Attribute::Extension, Attribute::Btime]
            .into(),
        xattrs: [(b"user.run".to_vec(), 0)].into(),
    };
    let shape = |text: &str| {
        let candidates = Candidates::of(&expression(text), &indexes);
        candidates.map(|candidates| shape_of(&candidates))
    };
    for (query, expected) in [
        ("[size>1]", Some("Size")),
        ("[gid=1]", None),
        ("[size>1 and gid=1]", Some("Size")),
        ("[size>1 and uid=1]", Some("either(Size Uid)")),
        ("[size>1 or gid=1]", None),
        ("[size>1 or uid=1]", Some("union(Size Uid)")),
        ("[size!=1]", Some("union(Size Size)")),
        ("[(size>1 or uid=1) and ext=c]", Some("either(union(Size Uid) Extension)")),
        // A birth that is not known is 0, and passes the opposite.
        ("[not btime<2020]", Some("union(Btime Btime)")),
        ("[btime!=1999]", Some("union(Btime Btime Btime)")),
        ("[ext!=c]", None),
        ("[ext~c*]", Some("Extension")),
        ("[name=a.c]", None),
        ("[user.run>5]", Some("Xattr(0)")),
        ("[user.walk]", None),
        ("[inode=7]", Some("files 7 to 7")),
        ("[true]", None),
        ("[false]", Some("union()")),
    ] {
        assert_eq!(shape(query).as_deref(), expected, "{query}");
    }
    // What every part of an And has, and whatever one of an Or has.
    let candidates =
        Candidates::of(&expression("[(size>1 or uid=1) and ext=c]"), &indexes).unwrap();
    let ids = |of: &[u64]| Ok::<_, ()>(Some(of.iter().copied().map(FileId).collect()));
    let (sizes, uids) = (Vec::from_iter((0..40).rev()), Vec::from_iter(30..60));
    let mut all = |source: &Source| match source {
        Source::Index(Attribute::Size, _) => ids(&sizes),
        Source::Index(Attribute::Uid, _) => ids(&uids),
        _ => ids(&[3, 59, 61, 3]),
    };
    assert_eq!(candidates.files(&mut all), ids(&[3, 59]));
    // A source that has too many is left out, if there is another.
    let mut without = |source: &Source| match source {
        Source::Index(Attribute::Uid, _) => Ok(None),
        _ => all(source),
    };
    assert_eq!(candidates.files(&mut without), ids(&[3, 59, 61]));
    let either = Candidates::of(&expression("[size>1 or uid=1]"), &indexes).unwrap();
    assert_eq!(either.files(&mut without), Ok(None));
    assert_eq!(either.files(&mut |_| Err(5)), Err(5));
}

fn shape_of(candidates: &Candidates) -> String {
    let parts = |parts: &[Candidates]| parts.iter().map(shape_of).collect::<Vec<_>>().join(" ");
    match candidates {
        Candidates::Source(Source::Index(attribute, _)) => format!("{attribute:?}"),
        Candidates::Source(Source::Files(ids)) => format!("files {} to {}", ids.start(), ids.end()),
        Candidates::Either(choices) => format!("either({})", parts(choices)),
        Candidates::Union(all) => format!("union({})", parts(all)),
    }
}
