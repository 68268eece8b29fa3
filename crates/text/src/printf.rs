//! Parts that formats of find(1) and stat(1) share with printf(3): flags, widths and precisions of
//! directives, letters behind backslashes.

/// Flags, width and precision of a directive.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flags {
    /// `-`: values stand at the left of their width.
    pub left: bool,
    /// `0`: zeros fill the width of a number.
    pub zero: bool,
    /// `+`: numbers that are not negative have a sign.
    pub plus: bool,
    /// A space: numbers that are not negative have a space for a sign.
    pub space: bool,
    /// `#`: numbers have the prefix of their base.
    pub alternate: bool,
    /// How many bytes a value takes at least.
    pub width: usize,
    /// How many bytes of a text, or how many digits of a number, are printed.
    pub precision: Option<usize>,
    /// Whether there was a dot without digits.
    pub dot: bool,
}

/// The largest width and precision.
pub const WIDTH_MAX: usize = 1_000_000;

impl Flags {
    /// Returns whether width or precision is larger than [`WIDTH_MAX`].
    pub fn is_too_wide(&self) -> bool {
        self.width.max(self.precision.unwrap_or(0)) > WIDTH_MAX
    }

    /// Takes flags, width and precision from the beginning of a text. `others` are flags without
    /// effect here.
    pub fn read(rest: &mut &[u8], others: &[u8]) -> Self {
        let mut flags = Flags::default();
        while let Some((&byte, after)) = rest.split_first() {
            match byte {
                b'-' => flags.left = true,
                b'0' => flags.zero = true,
                b'+' => flags.plus = true,
                b' ' => flags.space = true,
                b'#' => flags.alternate = true,
                other if others.contains(&other) => {}
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

    /// Returns whether a value is printed as it is.
    pub fn is_plain(&self) -> bool {
        self.width == 0
            && self.precision.is_none()
            && !(self.plus || self.space || self.zero || self.alternate)
    }

    /// Prints a text.
    pub fn text(&self, mut value: Vec<u8>, text: &mut Vec<u8>) {
        value.truncate(self.precision.unwrap_or(usize::MAX));
        self.pad(value, text);
    }

    /// Prints the digits of a number without sign; with `#`, the prefix of its base before them.
    pub fn number(&self, digits: String, prefix: &str, text: &mut Vec<u8>) {
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
        let zeros =
            "0".repeat(length.saturating_sub(value.len() + if prefix == "0" { 1 } else { 0 }));
        self.pad(format!("{prefix}{zeros}{value}").into_bytes(), text);
    }

    /// Prints a number with its sign.
    pub fn signed(&self, value: i64, text: &mut Vec<u8>) {
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

    /// Returns what stands before the digits of a number.
    pub fn sign(&self, negative: bool) -> &'static str {
        match (negative, self.plus, self.space) {
            (true, ..) => "-",
            (_, true, _) => "+",
            (_, _, true) => " ",
            _ => "",
        }
    }

    /// Prints a value, filled up to the width.
    pub fn pad(&self, value: Vec<u8>, text: &mut Vec<u8>) {
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

/// Reads a number; one that is not a width stands for all beyond.
fn digits(rest: &mut &[u8]) -> Option<usize> {
    let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let number = rest[..count].iter().fold(0_usize, |number, digit| {
        (number * 10 + usize::from(digit - b'0')).min(WIDTH_MAX + 1)
    });
    *rest = &rest[count..];
    (count > 0).then_some(number)
}

/// Letters that stand for a byte behind a backslash in C, with that byte.
const ESCAPES: [(u8, u8); 7] =
    [(b'a', 7), (b'b', 8), (b't', 9), (b'n', 10), (b'v', 11), (b'f', 12), (b'r', 13)];

/// Returns the byte that a letter behind a backslash stands for in C; `e` is GNU's.
pub fn control(letter: u8) -> Option<u8> {
    let escapes = ESCAPES.iter().chain(&[(b'e', 27)]);
    escapes.into_iter().find(|(known, _)| *known == letter).map(|(_, byte)| *byte)
}

/// Takes so many digits off a text, at most, and returns the byte that they stand for, if there are
/// any; what is too large for a byte loses its highest bits.
pub fn byte_of_digits(rest: &mut &[u8], radix: u32, most: usize) -> Option<u8> {
    let digits = rest.iter().take(most).map_while(|byte| char::from(*byte).to_digit(radix));
    let (count, value) =
        digits.fold((0, 0), |(count, value), digit| (count + 1, value * radix + digit));
    *rest = &rest[count..];
    (count > 0).then_some(value as u8)
}

/// Returns the character that stands for a byte behind a backslash in C.
pub(crate) fn letter_of(byte: u8) -> Option<u8> {
    let escapes = ESCAPES.iter().chain(&[(b'\\', b'\\')]);
    escapes.into_iter().find(|(_, known)| *known == byte).map(|(letter, _)| *letter)
}
