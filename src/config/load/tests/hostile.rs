//! Files that are torn, rotten or made to harm.

use super::*;

/// Whatever the bytes: a configuration, or at least one finding.
#[track_caller]
fn check_any(case: &Case, bytes: &[u8]) {
    let file = case.folder.path().join("config.json5");
    let Examined { report, sound, .. } = examine_bytes(&file, &case.home, &surroundings(), bytes);
    assert!(sound.is_some() || report.has_errors());
    assert!(!report.to_string().contains('\0'));
}

#[test]
fn every_truncation_of_the_example_is_answered() {
    let case = Case::new();
    for text in [REPOSITORY, "{a: 'é\u{1F600}\\u{e9}\\xe9', \u{feff} // é\n b: ${é} /* é */ }"]
    {
        for end in 0..text.len() {
            check_any(&case, &text.as_bytes()[..end]);
        }
    }
}

#[test]
fn flipped_bits_are_answered() {
    let case = Case::new();
    let mut state: u64 = 0x9E37_79B9_7F4A_7C15;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % below as u64).unwrap_or_default()
    };
    for _ in 0..1500 {
        let mut bytes = REPOSITORY.as_bytes().to_vec();
        for _ in 0..=random(4) {
            let place = random(bytes.len());
            bytes[place] ^= 1 << random(8);
        }
        check_any(&case, &bytes);
    }
}

#[test]
fn brackets_without_end_are_answered() {
    let case = Case::new();
    for piece in ["[", "{", "{a:", "[{", "]", "}", "(", "[/*", "//[\n[", "('", "${", "/*", "-", "'"]
    {
        check_any(&case, piece.repeat(200_000).as_bytes());
    }
    let balanced = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
    check_any(&case, balanced.as_bytes());
    let comments = "/* [ */ // {\n".repeat(50_000);
    check_any(&case, comments.as_bytes());
    check_any(&case, format!("{comments}{{}}").as_bytes());
}
