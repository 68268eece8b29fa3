//! Meaning of queries, as queries in their normal form.

use super::{NOW_NS, component, read};
use canopy_query::{Candidate, Component, Expression, Field};

#[test]
#[expect(clippy::too_many_lines, reason = "a list of cases")]
fn queries_have_a_normal_form() {
    for (query, normal) in [
        // Numbers.
        ("[size>1M]", "[size>=1048577]"),
        ("[size >= 1M]", "[size>=1048576]"),
        ("[size<1K]", "[size<=1023]"),
        ("[size=0]", "[size=0]"),
        ("[size<=0]", "[size=0]"),
        ("[size!=5]", "[size<=4 or size>=6]"),
        ("[size=1.3K]", "[false]"),
        ("[size>1.3K]", "[size>=1332]"),
        ("[size<1.3K]", "[size<=1331]"),
        ("[size>=0]", "[true]"),
        ("[size<0]", "[false]"),
        ("[blocks=8]", "[blocks=8]"),
        ("[allocated>1M]", "[blocks>=2049]"),
        ("[allocated=1000]", "[false]"),
        ("[allocated>1000]", "[blocks>=2]"),
        ("[allocated<1000]", "[blocks<=1]"),
        ("[uid={1,2}]", "[uid=1 or uid=2]"),
        ("[links>1]", "[links>=2]"),
        ("[nlink=2]", "[links=2]"),
        ("[id=7]", "[inode=7]"),
        ("[project!=0]", "[project>=1]"),
        // Owners.
        ("[user=ada]", "[uid=1000]"),
        ("[owner!=ada]", "[uid<=999 or uid>=1001]"),
        ("[user=1001]", "[uid=1001]"),
        ("[group=staff]", "[gid=50]"),
        ("[group={staff,51}]", "[gid=50 or gid=51]"),
        // Types and permissions.
        ("[type=f]", "[type=f]"),
        ("[type=df]", "[type=fd]"),
        ("[type={f, dir}]", "[type=fd]"),
        ("[type=f or type=d]", "[type=fd]"),
        ("[type!=f]", "[type!=f]"),
        ("[type=fd and type!=f]", "[type=d]"),
        ("[type=f and type=d]", "[false]"),
        ("[type=f or type!=f]", "[true]"),
        ("[perm=644]", "[perm=644]"),
        ("[mode=0644]", "[perm=644]"),
        ("[perm=-222]", "[perm-all=222]"),
        ("[perm-any=022]", "[perm-any=22]"),
        ("[not perm-any=22]", "[perm-any!=22]"),
        // Times.
        ("[mtime=2023-11-14]", "[mtime>=@1699920000.000000000 and mtime<=@1700006399.999999999]"),
        ("[mtime>2023-11-14]", "[mtime>=@1700006400.000000000]"),
        ("[mtime>=2023-11-14]", "[mtime>=@1699920000.000000000]"),
        ("[mtime<2023-11-14]", "[mtime<=@1699919999.999999999]"),
        ("[mtime!=@0]", "[mtime<=@-0.000000001 or mtime>=@1.000000000]"),
        ("[ctime>-1h]", "[ctime>=@1699996400.000000001]"),
        ("[atime < -1d]", "[atime<=@1699913599.999999999]"),
        ("[created>=-1d]", "[btime>=@1699913600.000000000]"),
        ("[age>1d]", "[mtime<=@1699913599.999999999]"),
        ("[age<=1D]", "[mtime>=@1699913600.000000000]"),
        ("[mtime<=now]", "[mtime<=@1700000000.000000000]"),
        // Births that are not known pass no test, and all opposites.
        ("[btime=@5]", "[btime>=@5.000000000 and btime<=@5.999999999]"),
        ("[btime!=@5]", "[not (btime>=@5.000000000 and btime<=@5.999999999)]"),
        ("[not btime<@5]", "[not (btime<=@4.999999999)]"),
        ("[not not btime<@5]", "[btime<=@4.999999999]"),
        ("[btime<@5 and btime>@7]", "[false]"),
        ("[btime>=@-9223372036.854775808]", "[btime<=@9223372036.854775807]"),
        // Texts.
        ("[name=a.c]", "[name=a.c]"),
        ("[name='*']", "[name=\"*\"]"),
        ("[name=\"a b\"]", "[name=\"a b\"]"),
        ("[name=\"\\x2f\\xff\"]", "[name=\"\\x2f\\xff\"]"),
        ("[name=ä]", "[name=\"ä\"]"),
        ("[name~*.h5]", "[name~*.h5]"),
        ("[name !~ *~]", "[name!~\"*~\"]"),
        ("[name=~^run]", "[name=~^run]"),
        ("[name!=~'\\.(c|h)$']", "[name!=~\"\\\\.(c|h)$\"]"),
        ("[iname=A]", "[iname=A]"),
        ("[iext=~H.]", "[iext=~H.]"),
        ("[name~{*.c,*.h}]", "[name~*.c or name~*.h]"),
        ("[name!~{*.c,*.h}]", "[name!~*.c and name!~*.h]"),
        ("[extension=h5]", "[ext=h5]"),
        ("[path~src?lib*]", "[path~src?lib*]"),
        ("[target~*lib*]", "[target~*lib*]"),
        // Extended attributes.
        ("[user.run]", "[has(user.run)]"),
        ("[not user.run]", "[not has(user.run)]"),
        ("[has( user.run )]", "[has(user.run)]"),
        ("[user.run=7]", "[user.run=7]"),
        ("[user.run!=7]", "[user.run!=7]"),
        ("[user.Run>7]", "[user.Run>7]"),
        ("[user.run>=-7.50]", "[user.run>=-7.5]"),
        ("[user.run>\"7\"]", "[user.run>\"7\"]"),
        ("[not user.run>7]", "[not user.run>7]"),
        ("[\"user.a b\"=7]", "[\"user.a b\"=7]"),
        // Words.
        ("[empty]", "[type=f and size=0]"),
        ("[!empty]", "[type!=f or size>=1]"),
        ("[true]", "[true]"),
        ("[NOT True]", "[false]"),
        // Joined.
        ("[size>1,uid=5]", "[size>=2 and uid=5]"),
        ("[size>1 && uid=5&gid=6]", "[size>=2 and uid=5 and gid=6]"),
        ("[size>1 and size<9]", "[size>=2 and size<=8]"),
        ("[size>9 and size<1]", "[false]"),
        ("[uid=1 or uid=2 and gid=3]", "[uid=1 or uid=2 and gid=3]"),
        ("[(uid=1 | uid=2) and gid=3]", "[(uid=1 or uid=2) and gid=3]"),
        ("[not (uid=1 or name=a)]", "[(uid=0 or uid>=2) and name!=a]"),
        ("[not uid>1 and gid=3]", "[uid<=1 and gid=3]"),
        ("[not not uid>1]", "[uid>=2]"),
        ("[((uid=1))]", "[uid=1]"),
        ("[uid=1 and uid=1 or uid=1]", "[uid=1]"),
        ("[user.a and name=b and size=1]", "[size=1 and name=b and has(user.a)]"),
        ("[name=a or true]", "[true]"),
        ("[name=a and true]", "[name=a]"),
        ("[  ( size>1K )and(uid=1 )  ]", "[size>=1025 and uid=1]"),
        // Others.
        ("[@monday]", "[@monday]"),
        ("[@\"a b\"]", "[@\"a b\"]"),
        ("[recent]", "[recent]"),
        ("[recent 1d]", "[recent @1699913600.000000000]"),
        ("[recent -1d]", "[recent @1699913600.000000000]"),
        ("[Recent 2023-11-14]", "[recent @1699920000.000000000]"),
        ("[recent today]", "[recent @1699920000.000000000]"),
        ("[duplicates]", "[duplicates]"),
    ] {
        let first = read(query);
        assert_eq!(first.to_string(), normal, "{query}");
        assert_eq!(read(normal), first, "{normal}");
    }
}

#[test]
fn a_name_without_brackets_is_not_a_query() {
    for text in ["", "[", "]", "a", "[a", "a]", "x[size>1]", "[size>1]x"] {
        assert_eq!(component(text.as_bytes()), Ok(None), "{text}");
    }
}

fn expression(text: &str) -> Expression {
    match read(text) {
        Component::Search(expression) => expression,
        other => panic!("{other} is not a search"),
    }
}

struct Entry<'a> {
    mode: u32,
    size: i128,
    mtime_ns: i64,
    name: &'a [u8],
    path: &'a [u8],
    target: &'a [u8],
}

impl Candidate for Entry<'_> {
    fn number(&self, field: Field) -> i128 {
        match field {
            Field::Size => self.size,
            Field::Mtime => self.mtime_ns.into(),
            _ => 0,
        }
    }

    fn mode(&self) -> u32 {
        self.mode
    }

    fn name(&self) -> &[u8] {
        self.name
    }

    fn path(&self) -> &[u8] {
        self.path
    }

    fn target(&self) -> &[u8] {
        self.target
    }

    fn xattr(&self, name: &[u8]) -> Option<Vec<u8>> {
        (name == b"user.run").then(|| b"42\n".to_vec())
    }
}

#[test]
fn files_match_by_what_they_have() {
    let candidate = Entry {
        mode: 0o120_777,
        size: 11,
        mtime_ns: NOW_NS,
        name: b"Run\xff.SO",
        path: b"src/a/Run\xff.SO",
        target: b"../lib/x.so",
    };
    for (query, matches) in [
        ("[type=l]", true),
        ("[empty]", false),
        ("[name=\"Run\\xff.SO\"]", true),
        ("[name~Run?.SO]", true),
        ("[name~run*]", false),
        ("[iname~run*]", true),
        ("[iext=so]", true),
        ("[ext=so]", false),
        ("[ext!=so]", true),
        ("[path~src*SO]", true),
        ("[path=~'^src.a.']", true),
        ("[path~\"src\\x2f*\"]", true),
        ("[target=~'\\.so$']", true),
        ("[target!~*lib*]", false),
        ("[user.run]", true),
        ("[user.run>41]", true),
        ("[user.run>41.5]", true),
        ("[user.run>\"5\"]", false),
        ("[user.run=42]", false),
        ("[user.run=\"42\\n\"]", true),
        ("[user.walk>1]", false),
        ("[not user.walk>1]", true),
        ("[user.walk!=1]", true),
        ("[perm=777]", true),
        ("[perm-all=022]", true),
        ("[mtime=today]", true),
        ("[age<1s]", true),
        ("[btime<now]", false),
        ("[not btime<now]", true),
        ("[btime>=@-9223372036.854775808]", false),
    ] {
        assert_eq!(expression(query).matches(&candidate), matches, "{query}");
    }
    let candidate = Entry { mode: 0o100_644, size: 0, name: b"a", target: b"", ..candidate };
    for (query, matches) in
        [("[target~*]", false), ("[target!~*]", true), ("[ext~*]", false), ("[empty]", true)]
    {
        assert_eq!(expression(query).matches(&candidate), matches, "{query}");
    }
}

#[test]
fn needs_are_what_is_looked_at() {
    let needs = expression("[size>1 and (not path~x or user.a=1 or user.b)]").needs();
    assert!(!needs.name && needs.path);
    assert_eq!(needs.xattrs, [b"user.a".to_vec(), b"user.b".to_vec()].into());
    assert!(expression("[ext=c]").needs().name);
    assert_eq!(expression("[type=l]").needs(), Default::default());
}

#[test]
fn examples_for_users_are_queries() {
    let page = include_str!("../../../../docs/queries.md");
    let blocks = || page.split("```").skip(1).step_by(2);
    // A mark stands below where a query is wrong, and the reason below that.
    let lines = Vec::from_iter(blocks().flat_map(str::lines));
    let mut refused = Vec::new();
    for lines in lines.windows(3).filter(|lines| lines[1].trim() == "^") {
        let error = component(lines[0].trim().as_bytes()).unwrap_err();
        assert_eq!(lines[2], format!("canopy: {error}"));
        refused.push(lines[0].trim());
    }
    assert_eq!(refused.len(), 1);
    let mut count = 0;
    for after in blocks().flat_map(|block| block.split('[').skip(1)) {
        let query = format!("[{}]", after.split(']').next().unwrap_or_default());
        if !refused.contains(&&*query) {
            read(&query);
            count += 1;
        }
    }
    assert!(count > 8, "{count}");
}
