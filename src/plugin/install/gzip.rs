//! A gzip stream as bytes: heads, checksums and lengths are ours, the inflating
//! is miniz_oxide's. Holds one window in memory, whatever comes.

use std::io::{self, BufRead, BufReader, Read};

use miniz_oxide::inflate::stream::{InflateState, inflate};
use miniz_oxide::{DataFormat, MZError, MZFlush, MZStatus};

/// Longest name or remark in a head, in bytes.
const LONGEST_TEXT: usize = 64 * 1024;

/// Bits of a head's flags: what follows it.
const HAS_CHECKSUM: u8 = 2;
const HAS_EXTRA: u8 = 4;
const HAS_NAME: u8 = 8;
const HAS_REMARK: u8 = 16;
const UNKNOWN: u8 = 0xE0;

/// Reads what was packed. A fault in it is an error of the kind
/// [`io::ErrorKind::InvalidData`], an end too early one of
/// [`io::ErrorKind::UnexpectedEof`].
pub(super) struct Gunzip<R> {
    from: BufReader<R>,
    /// None between two members.
    member: Option<Member>,
    ended: bool,
}

struct Member {
    state: Box<InflateState>,
    checksum: u32,
    length: u32,
}

impl<R: Read> Gunzip<R> {
    pub(super) fn new(from: R) -> io::Result<Self> {
        let mut from = BufReader::with_capacity(64 * 1024, from);
        read_head(&mut from)?;
        Ok(Self { from, member: Some(Member::new()), ended: false })
    }

    /// Into a part of `into`; `None` at the end of the member.
    fn inflate(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        let Some(member) = &mut self.member else { return Ok(None) };
        loop {
            let input = self.from.fill_buf()?;
            let is_end = input.is_empty();
            let done = inflate(&mut member.state, input, into, MZFlush::None);
            self.from.consume(done.bytes_consumed);
            member.count(into.get(..done.bytes_written).unwrap_or_default());
            match done.status {
                Ok(MZStatus::StreamEnd) if done.bytes_written == 0 => return Ok(None),
                Ok(_) | Err(MZError::Buf) if done.bytes_written > 0 => {
                    return Ok(Some(done.bytes_written));
                }
                Ok(_) | Err(MZError::Buf) if is_end => {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                Ok(_) | Err(MZError::Buf) => {}
                Err(_) => return Err(fault("what it packs is damaged")),
            }
        }
    }

    /// Holds a member against what stands behind it, and begins the next.
    fn next_member(&mut self) -> io::Result<()> {
        let Some(member) = self.member.take() else { return Ok(()) };
        let mut behind = [0; 8];
        self.from.read_exact(&mut behind)?;
        let [a, b, c, d, rest @ ..] = behind;
        let wanted = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes(rest));
        if (member.checksum, member.length) != wanted {
            return Err(fault("its checksum is wrong"));
        }
        match self.from.fill_buf()?.first() {
            Some(0x1f) => {
                read_head(&mut self.from)?;
                self.member = Some(Member::new());
            }
            // Nothing, or what fills a block.
            _ => self.ended = true,
        }
        Ok(())
    }
}

impl<R: Read> Read for Gunzip<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while !self.ended && !into.is_empty() {
            match self.inflate(into)? {
                Some(count) => return Ok(count),
                None => self.next_member()?,
            }
        }
        Ok(0)
    }
}

impl Member {
    fn new() -> Self {
        Self { state: InflateState::new_boxed(DataFormat::Raw), checksum: 0, length: 0 }
    }

    fn count(&mut self, bytes: &[u8]) {
        self.checksum = checksum(self.checksum, bytes);
        #[expect(clippy::cast_possible_truncation, reason = "the format counts so")]
        let more = bytes.len() as u32;
        self.length = self.length.wrapping_add(more);
    }
}

fn read_head(from: &mut impl BufRead) -> io::Result<()> {
    let mut head = [0; 10];
    from.read_exact(&mut head)?;
    let [0x1f, 0x8b, 8, flags, ..] = head else { return Err(fault("it is no gzip file")) };
    if flags & UNKNOWN != 0 {
        return Err(fault("its head is none that is known"));
    }
    if flags & HAS_EXTRA != 0 {
        let mut length = [0; 2];
        from.read_exact(&mut length)?;
        skip(from, u16::from_le_bytes(length).into())?;
    }
    for flag in [HAS_NAME, HAS_REMARK] {
        if flags & flag != 0 {
            skip_text(from)?;
        }
    }
    skip(from, if flags & HAS_CHECKSUM != 0 { 2 } else { 0 })
}

fn skip(from: &mut impl Read, bytes: u64) -> io::Result<()> {
    match io::copy(&mut from.take(bytes), &mut io::sink())? == bytes {
        true => Ok(()),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn skip_text(from: &mut impl BufRead) -> io::Result<()> {
    let mut text = Vec::new();
    from.take(LONGEST_TEXT as u64).read_until(0, &mut text)?;
    match text.last() {
        Some(0) => Ok(()),
        _ => Err(fault("its head has no end")),
    }
}

fn fault(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

/// CRC-32 as gzip has it, carried on from `before`.
fn checksum(before: u32, bytes: &[u8]) -> u32 {
    let step = |sum: u32, byte: &u8| {
        let [low, ..] = sum.to_le_bytes();
        TABLE[usize::from(low ^ byte)] ^ (sum >> 8)
    };
    !bytes.iter().fold(!before, step)
}

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut place = 0;
    while place < 256 {
        let mut sum = place as u32;
        let mut bit = 0;
        while bit < 8 {
            sum = if sum & 1 == 1 { 0xEDB8_8320 ^ (sum >> 1) } else { sum >> 1 };
            bit += 1;
        }
        table[place] = sum;
        place += 1;
    }
    table
};

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A gzip member that stores these bytes or packs them.
    pub(crate) fn packed(bytes: &[u8]) -> Vec<u8> {
        let mut member = vec![0x1f, 0x8b, 8, HAS_NAME, 0, 0, 0, 0, 0, 255];
        member.extend(b"name\0");
        member.extend(miniz_oxide::deflate::compress_to_vec(bytes, 6));
        member.extend(checksum(0, bytes).to_le_bytes());
        member.extend((bytes.len() as u32).to_le_bytes());
        member
    }

    fn unpacked(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        Gunzip::new(bytes)?.read_to_end(&mut out)?;
        Ok(out)
    }

    #[test]
    fn what_was_packed_is_read_member_by_member() -> io::Result<()> {
        assert_eq!(checksum(0, b"123456789"), 0xCBF4_3926);
        let text: Vec<u8> =
            (0..200_000_u32).flat_map(|it| (it.wrapping_mul(it) / 7).to_le_bytes()).collect();
        assert_eq!(unpacked(&packed(&text))?, text);
        assert_eq!(unpacked(&packed(b""))?, b"");
        let two = [packed(b"one "), packed(b""), packed(b"two"), vec![0; 512]].concat();
        assert_eq!(unpacked(&two)?, b"one two");
        Ok(())
    }

    #[test]
    fn every_cut_and_every_flipped_bit_is_an_error_or_the_same() {
        let text = b"some text, some text, some more text".repeat(20);
        let whole = packed(&text);
        for end in 0..whole.len() {
            assert!(unpacked(&whole[..end]).is_err(), "{end}");
        }
        for place in 0..whole.len() * 8 {
            let mut flipped = whole.clone();
            flipped[place / 8] ^= 1 << (place % 8);
            // Bits that mean nothing are in the head, and behind the last one packed.
            let same = unpacked(&flipped).is_ok_and(|it| it == text);
            assert!(!same || place / 8 < 15 || place / 8 == whole.len() - 9, "{place}");
        }
        assert!(
            unpacked(b"PK\x03\x04 and more bytes")
                .is_err_and(|it| it.to_string().contains("no gzip"))
        );
    }
}
