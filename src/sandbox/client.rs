//! The program that stands in every sandbox, embedded: so the gateway is one
//! file, and what runs inside is always of its own version.

/// tool-client as a static executable for this machine, built by `build.rs`.
pub static TOOL_CLIENT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tool-client"));

#[cfg(test)]
mod tests {
    use super::*;

    /// Type of a program header that names a dynamic loader.
    const PT_INTERP: u32 = 3;

    /// The types of the program headers of a 64-bit little-endian ELF file.
    fn program_headers(elf: &[u8]) -> Option<Vec<u32>> {
        let half = |at: usize| Some(u16::from_le_bytes(*elf.get(at..)?.first_chunk()?));
        let start = usize::try_from(u64::from_le_bytes(*elf.get(32..)?.first_chunk()?)).ok()?;
        let (size, count) = (usize::from(half(54)?), usize::from(half(56)?));
        (0..count)
            .map(|it| Some(u32::from_le_bytes(*elf.get(start + it * size..)?.first_chunk()?)))
            .collect()
    }

    #[test]
    fn it_needs_no_loader_and_so_runs_in_an_empty_image() {
        assert!(TOOL_CLIENT.starts_with(b"\x7fELF\x02\x01"));
        let headers = program_headers(TOOL_CLIENT).unwrap_or_default();
        assert!(!headers.is_empty());
        assert!(!headers.contains(&PT_INTERP));
    }
}
