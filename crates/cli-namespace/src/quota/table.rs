//! Quotas as a table, like that of repquota(8), and as JSON.

use canopy_mount::QuotaReport;
use canopy_namespace::quota::Account;
use canopy_text::safe::terminal_name;
use canopy_text::{SizeForm, group_or_number, user_or_number};
use serde_json::{Value, json};
use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

const COLUMNS: [&str; 9] =
    ["account", "bytes", "soft", "hard", "grace", "inodes", "soft", "hard", "grace"];

pub fn print(all: &[QuotaReport], is_json: bool) -> std::io::Result<()> {
    let now_ns = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as i64;
    let mut out = std::io::stdout().lock();
    if is_json {
        let all = Value::from_iter(all.iter().map(|told| json(told, now_ns)));
        return writeln!(out, "{all}");
    }
    let mut rows = vec![COLUMNS.map(str::to_owned)];
    rows.extend(all.iter().map(|told| row(told, now_ns)));
    let widths = std::array::from_fn::<usize, 9, _>(|at| {
        rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0)
    });
    for row in rows {
        let mut line = format!("{:<width$}", row[0], width = widths[0]);
        for (cell, width) in row.iter().zip(widths).skip(1) {
            line.push_str(&format!("  {cell:>width$}"));
        }
        writeln!(out, "{line}")?;
    }
    Ok(())
}

fn row(told: &QuotaReport, now_ns: i64) -> [String; 9] {
    let (usage, limits) = (told.quota.usage, told.quota.limits);
    let size = |bytes: u64| SizeForm::HUMAN.show(bytes);
    let limit = |limit: u64, shown: String| if limit == 0 { "-".into() } else { shown };
    let account = match told.quota.account {
        Account::User(uid) => format!("user {}", user_or_number(uid)),
        Account::Group(gid) => format!("group {}", group_or_number(gid)),
        Account::Tree(project) => match &told.path {
            Some(path) => format!("tree {path}"),
            None if told.is_gone => format!("tree {project} (its directory is gone)"),
            None => format!("tree {project}"),
        },
    };
    let account = String::from_utf8_lossy(&terminal_name(account.as_bytes(), true)).into();
    let grace = |since_ns| left(since_ns, limits.grace_s, now_ns).map_or("-".into(), shown);
    [
        account,
        size(usage.bytes),
        limit(limits.bytes_soft, size(limits.bytes_soft)),
        limit(limits.bytes_hard, size(limits.bytes_hard)),
        grace(usage.bytes_since_ns),
        usage.inodes.to_string(),
        limit(limits.inodes_soft, limits.inodes_soft.to_string()),
        limit(limits.inodes_hard, limits.inodes_hard.to_string()),
        grace(usage.inodes_since_ns),
    ]
}

/// Returns for how many seconds a soft limit may still be passed; none if it is not.
fn left(since_ns: i64, grace_s: u64, now_ns: i64) -> Option<u64> {
    let passed = u64::try_from(now_ns.saturating_sub(since_ns)).unwrap_or(0) / 1_000_000_000;
    (since_ns != 0).then(|| grace_s.saturating_sub(passed))
}

/// Shows seconds in the largest unit of which there are two.
fn shown(seconds: u64) -> String {
    let units = [(86_400, "d"), (3600, "h"), (60, "m"), (1, "s")];
    let unit = units.iter().find(|(unit, _)| seconds >= 2 * unit);
    match unit {
        _ if seconds == 0 => "over".into(),
        Some((unit, name)) => format!("{}{name}", seconds.div_ceil(*unit)),
        None => format!("{seconds}s"),
    }
}

fn json(told: &QuotaReport, now_ns: i64) -> Value {
    let (usage, limits) = (told.quota.usage, told.quota.limits);
    let (kind, id) = match told.quota.account {
        Account::User(uid) => ("user", uid),
        Account::Group(gid) => ("group", gid),
        Account::Tree(project) => ("tree", project),
    };
    let name = match told.quota.account {
        Account::User(uid) => canopy_text::user_name(uid),
        Account::Group(gid) => canopy_text::group_name(gid),
        Account::Tree(_) => told.path.clone(),
    };
    json!({
        "kind": kind, "id": id, "name": name, "gone": told.is_gone,
        "bytes": usage.bytes, "bytes_soft": limits.bytes_soft, "bytes_hard": limits.bytes_hard,
        "bytes_grace_left_s": left(usage.bytes_since_ns, limits.grace_s, now_ns),
        "inodes": usage.inodes, "inodes_soft": limits.inodes_soft,
        "inodes_hard": limits.inodes_hard,
        "inodes_grace_left_s": left(usage.inodes_since_ns, limits.grace_s, now_ns),
        "grace_s": limits.grace_s,
    })
}
