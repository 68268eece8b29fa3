//! Directives of stat(1)'s formats: flags, widths and precisions as printf(3) has them, seconds with fractions, backslash escapes.

/// Flags, width and precision of a directive.
#[derive(Default)]
pub(super) struct Flags {
    left: bool,
    zero: bool,
    plus: bool,
    space: bool,
    alternate: bool,
    width: usize,
    precision: Option<usize>,
    /// Whether there was a dot without digits.
    dot: bool,
}

impl Flags {
    pub(super) fn read(rest: &mut &[u8]) -> Self {
        let mut flags = Flags::default();
        while let Some((&byte, after)) = rest.split_first() {
            match byte {
                b'-' => flags.left = true,
                b'0' => flags.zero = true,
                b'+' => flags.plus = true,
                b' ' => flags.space = true,
                b'#' => flags.alternate = true,
                // Groups of digits, of which the C locale has none, and other digits, likewise.
                b'\'' | b'I' => {}
                _ => break,
            }
            *rest = after;
        }
        flags.width = digits(rest).unwrap_or(0);
        if let Some(after) = rest.strip_prefix(b".") {
            *rest = after;
            let precision = digits(rest);
            flags.dot = precision.is_none();
            flags.precision = Some(precision.unwrap_or(0));
        }
        flags
    }

    pub(super) fn text(&self, mut value: Vec<u8>, text: &mut Vec<u8>) {
        value.truncate(self.precision.unwrap_or(usize::MAX));
        self.pad(value, text);
    }

    pub(super) fn number(&self, digits: String, prefix: &str, text: &mut Vec<u8>) {
        let mut value = digits;
        if value == "0" && self.precision == Some(0) {
            value.clear();
        }
        let mut prefix = match value.as_str() {
            "0" => "",
            "" if prefix == "0x" => "",
            _ if self.alternate => prefix,
            _ => "",
        };
        let mut length = self.precision.unwrap_or(0);
        if self.zero && !self.left && self.precision.is_none() {
            length = self.width.saturating_sub(if prefix == "0x" { 2 } else { 0 });
        }
        if prefix == "0" && length > value.len() {
            prefix = "";
        }
        let zeros = "0".repeat(length.saturating_sub(value.len() + if prefix == "0" { 1 } else { 0 }));
        self.pad(format!("{prefix}{zeros}{value}").into_bytes(), text);
    }

    pub(super) fn signed(&self, value: i64, text: &mut Vec<u8>) {
        let sign = self.sign(value < 0);
        let mut digits = value.unsigned_abs().to_string();
        if digits == "0" && self.precision == Some(0) {
            digits.clear();
        }
        let mut length = self.precision.unwrap_or(0);
        if self.zero && !self.left && self.precision.is_none() {
            length = self.width.saturating_sub(sign.len());
        }
        let zeros = "0".repeat(length.saturating_sub(digits.len()));
        self.pad(format!("{sign}{zeros}{digits}").into_bytes(), text);
    }

    fn sign(&self, negative: bool) -> &'static str {
        match (negative, self.plus, self.space) {
            (true, ..) => "-",
            (_, true, _) => "+",
            (_, _, true) => " ",
            _ => "",
        }
    }

    /// Seconds since 1970, with as many digits behind the dot as the precision says.
    pub(super) fn time(&self, time_ns: i64, text: &mut Vec<u8>) {
        let places = match self.precision {
            None => 0,
            Some(_) if self.dot => 9,
            Some(places) => places,
        };
        let unit = 10_i64.pow(9 - places.min(9) as u32);
        let (mut seconds, nanoseconds) =
            (time_ns.div_euclid(1_000_000_000), time_ns.rem_euclid(1_000_000_000));
        let mut fraction = nanoseconds / unit;
        let negative = seconds < 0;
        if negative && nanoseconds != 0 {
            // As stat does it: cut off towards 1970, but towards the past where nothing is left of the fraction.
            fraction = 1_000_000_000 / unit - fraction - i64::from(nanoseconds % unit != 0);
            seconds += i64::from(fraction != 0);
        }
        let sign = self.sign(negative);
        let digits = seconds.unsigned_abs().to_string();
        // What the fraction leaves of the width, if that is more than a column.
        let room = self.width.saturating_sub(1 + places);
        let width = match places {
            0 => self.width,
            _ if self.left || room <= 1 => 0,
            _ => room,
        };
        let zeros = if self.zero && !self.left { width } else { 0 };
        let zeros = "0".repeat(zeros.saturating_sub(sign.len() + digits.len()));
        let whole = Flags { left: self.left, width, ..Flags::default() };
        let before = text.len();
        whole.pad(format!("{sign}{zeros}{digits}").into_bytes(), text);
        if places == 0 {
            return;
        }
        let written = text.len() - before;
        let known = places.min(9);
        text.extend(format!(".{fraction:0known$}").into_bytes());
        let rest = places - known;
        text.extend(std::iter::repeat_n(b'0', rest));
        if self.width > written + 1 {
            // stat pads by as much as the digits are too many as well.
            let blank = (self.width - written - 1).abs_diff(known);
            text.extend(std::iter::repeat_n(b' ', blank.saturating_sub(rest)));
        }
    }

    fn pad(&self, value: Vec<u8>, text: &mut Vec<u8>) {
        let padding = std::iter::repeat_n(b' ', self.width.saturating_sub(value.len()));
        if self.left {
            text.extend(value);
            text.extend(padding);
        } else {
            text.extend(padding);
            text.extend(value);
        }
    }
}

/// A number, as far as it is sensible.
fn digits(rest: &mut &[u8]) -> Option<usize> {
    let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let number = rest[..count]
        .iter()
        .fold(0_usize, |number, digit| (number * 10 + usize::from(digit - b'0')).min(10_000));
    *rest = &rest[count..];
    (count > 0).then_some(number)
}

/// Prints what follows a backslash of `--printf`.
pub(super) fn escape_sequence(rest: &mut &[u8], text: &mut Vec<u8>) {
    let mut number = |rest: &mut &[u8], radix: u32, most: usize| {
        let count = rest.iter().take(most).take_while(|byte| (**byte as char).is_digit(radix)).count();
        let digit = |byte: &u8| (*byte as char).to_digit(radix).unwrap_or(0);
        let value = rest[..count].iter().fold(0, |value, byte| value * radix + digit(byte));
        *rest = &rest[count..];
        text.push(value as u8);
    };
    match rest.first().copied() {
        None => text.push(b'\\'),
        Some(b'0'..=b'7') => number(rest, 8, 3),
        Some(b'x') if rest.get(1).is_some_and(u8::is_ascii_hexdigit) => {
            *rest = &rest[1..];
            number(rest, 16, 2);
        }
        Some(letter) => {
            *rest = &rest[1..];
            text.push(match letter {
                b'a' => 7,
                b'b' => 8,
                b'e' => 27,
                b'f' => 12,
                b'n' => 10,
                b'r' => 13,
                b't' => 9,
                b'v' => 11,
                other => other,
            });
        }
    }
}
