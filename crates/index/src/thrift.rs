//! Looks over bytes in Thrift's compact protocol, in which Parquet writes its footers and the heads
//! of its pages, before the Parquet library trusts the numbers in them: it takes memory for as many
//! elements as a list claims to have.
//!
//! The protocol: <https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md>.

/// Structures within structures; those of Parquet have fewer.
const DEPTH_MAX: u32 = 24;

/// Most numbers in the head of a page; that of Parquet has fewer.
const NUMBERS_MAX: usize = 64;

/// Numbers in a structure: by the numbers of the fields that lead there, of the outermost first.
type Numbers = Vec<([i16; 2], i64)>;

/// Returns whether bytes are structures, one after the other, in which no text and no list is
/// longer than what is left.
pub(crate) fn are_structures(bytes: &[u8]) -> bool {
    let mut walk = Walk { rest: bytes, numbers: None };
    while !walk.rest.is_empty() {
        if walk.structure(0, 0).is_none() {
            return false;
        }
    }
    true
}

/// Fields of the head of a page.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PageHead {
    /// Bytes of the page when it is no longer compressed.
    pub(crate) plain_bytes: i64,
    /// Values in it.
    pub(crate) values: i64,
    /// Whether they are those of a dictionary.
    pub(crate) is_dictionary: bool,
}

/// Reads the head at the beginning of a page; `None` if there is none.
pub(crate) fn page_head(page: &[u8]) -> Option<PageHead> {
    let mut walk = Walk { rest: page, numbers: Some(Vec::new()) };
    walk.structure(0, 0)?;
    let numbers = walk.numbers?;
    // PageHeader: 1 type, 2 uncompressed_page_size, 5 data_page_header, 7 dictionary_page_header,
    // in each of which 1 is num_values.
    let number = |path: [i16; 2]| {
        let mut found = numbers.iter().filter(|(field, _)| *field == path);
        // Ignore repeated fields: readers take different ones.
        found.next().map(|(_, value)| *value).filter(|_| found.next().is_none())
    };
    let is_dictionary = match number([1, 0])? {
        0 => false,
        2 => true,
        _ => return None,
    };
    let values = number(if is_dictionary { [7, 1] } else { [5, 1] })?;
    Some(PageHead { plain_bytes: number([2, 0])?, values, is_dictionary })
}

struct Walk<'a> {
    rest: &'a [u8],
    /// Those found, if anybody wants them.
    numbers: Option<Numbers>,
}

impl Walk<'_> {
    /// Goes over a structure that is the field `within` of the outermost one, or is that itself.
    fn structure(&mut self, depth: u32, within: i16) -> Option<()> {
        if depth > DEPTH_MAX {
            return None;
        }
        let mut field = 0_i16;
        loop {
            let head = self.byte()?;
            if head == 0 {
                return Some(());
            }
            field = match head >> 4 {
                0 => i16::try_from(self.zigzag()?).ok()?,
                step => field.checked_add(i16::from(step))?,
            };
            match (head & 0x0f, depth) {
                (5 | 6, 0..=1) => {
                    let value = self.zigzag()?;
                    let path = if depth == 0 { [field, 0] } else { [within, field] };
                    if let Some(numbers) = &mut self.numbers {
                        if numbers.len() == NUMBERS_MAX {
                            return None;
                        }
                        numbers.push((path, value));
                    }
                }
                (1 | 2, _) => {}
                (kind, _) => self.value(kind, depth, field)?,
            }
        }
    }

    fn value(&mut self, kind: u8, depth: u32, field: i16) -> Option<()> {
        if depth > DEPTH_MAX {
            return None;
        }
        match kind {
            // Truth values are a byte each in lists.
            1..=3 => self.byte().map(drop),
            4..=6 => self.varint().map(drop),
            7 => self.skip(8),
            8 => {
                let length = self.varint()?;
                self.skip(usize::try_from(length).ok()?)
            }
            9 | 10 => {
                let head = self.byte()?;
                let count = if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) };
                let kind = head & 0x0f;
                // Each structure of Parquet's in a list has a field and an end: three bytes at least.
                let least = if kind == 12 { 3 } else { 1 };
                if count > (self.rest.len() / least) as u64 {
                    return None;
                }
                (0..count).try_for_each(|_| self.value(kind, depth + 1, field))
            }
            12 => self.structure(depth + 1, field),
            // Parquet has no maps.
            _ => None,
        }
    }

    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    fn skip(&mut self, bytes: usize) -> Option<()> {
        self.rest = self.rest.get(bytes..)?;
        Some(())
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn zigzag(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_texts_fit_into_what_is_left() {
        // Field 1: a list of three numbers; field 2: a text; the end.
        let sound = [0x19, 0x35, 2, 4, 6, 0x18, 2, b'a', b'b', 0];
        assert!(are_structures(&sound) && are_structures(&[]));
        assert!(are_structures(&[&sound[..], &sound].concat()));
        for end in 1..sound.len() {
            assert!(!are_structures(&sound[..end]), "{end}");
        }
        // 2^31 - 1 structures, 2^62 bytes of text, and structures without an end.
        assert!(!are_structures(&[0x19, 0xfc, 0xff, 0xff, 0xff, 0xff, 0x07, 0, 0, 0, 0, 0]));
        assert!(!are_structures(&[0x18, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x40, 0]));
        assert!(!are_structures(&[0x1c; 100_000]));
        // Lists in lists without an end.
        assert!(!are_structures(&[0x19; 100_000]));
        assert_eq!(page_head(&[0x19; 100_000]), None);
    }

    #[test]
    fn the_head_of_a_page_is_read() {
        // Type 0, 100 bytes, 50 compressed, a data page of 7 values.
        let page = [0x15, 0, 0x15, 200, 1, 0x15, 100, 0x2c, 0x15, 14, 0x15, 0, 0, 0, 0xff];
        let head = PageHead { plain_bytes: 100, values: 7, is_dictionary: false };
        assert_eq!(page_head(&page), Some(head));
        assert_eq!(page_head(&page[..8]), None);
        // The number of values twice, and no end of numbers.
        let twice =
            [0x15, 0, 0x15, 200, 1, 0x15, 100, 0x2c, 0x15, 14, 0x05, 2, 40, 0x15, 0, 0, 0, 0xff];
        assert_eq!(page_head(&twice), None);
        assert_eq!(page_head(&[0x15, 0].repeat(1000)), None);
    }
}
