//! Sizes as people read them.

/// A size with a unit of powers of 1024, rounded up as du(1) and ls(1) do with `-h`: `4.0K`, `12M`.
pub fn human_size(bytes: i64) -> String {
    let value = bytes.unsigned_abs();
    let sign = if bytes < 0 { "-" } else { "" };
    if value < 1024 {
        return format!("{sign}{value}");
    }
    let mut unit = 1_u128;
    for suffix in ["K", "M", "G", "T", "P", "E"] {
        unit *= 1024;
        let tenths = (u128::from(value) * 10).div_ceil(unit);
        if tenths < 100 {
            return format!("{sign}{}.{}{suffix}", tenths / 10, tenths % 10);
        }
        let whole = u128::from(value).div_ceil(unit);
        if whole < 1024 {
            return format!("{sign}{whole}{suffix}");
        }
    }
    format!("{sign}{value}")
}

#[cfg(test)]
mod tests {
    use super::human_size;

    #[test]
    fn sizes_round_up_as_du_does() {
        for (bytes, text) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1025, "1.1K"),
            (10_240, "10K"),
            (10_138, "10K"),
            (1_048_575, "1.0M"),
            (-2048, "-2.0K"),
            (i64::MAX, "8.0E"),
        ] {
            assert_eq!(human_size(bytes), text, "{bytes}");
        }
    }
}
