//! The words of the link: the sequenced-packet socket on which the first
//! process of a sandbox dials out, and by which it is handed the sockets of
//! single calls. docs/link.md describes the protocol.

/// What the resident says first, whole and once. Another version of the
/// protocol is another greeting, and a sandbox that greets so is made anew.
pub const HELLO: &[u8] = b"beige-link/1";

/// Largest packet that either side takes, in bytes.
pub const MOST_PACKET: usize = 64;

/// To the resident, with one socket: run a command that is asked for there.
pub const RUN: &[u8] = b"R";

/// To the resident, with one socket: do the file operation asked for there.
pub const FILE: &[u8] = b"F";

/// To the resident, first of all and without a socket: this link is the one that
/// is used. Whoever does not say so lets it go.
pub const TAKEN: &[u8] = b"T";

/// Whether a name in `/beige` is that of a link socket: `link.sock` of the
/// gateway, `link-PID.sock` of a one-shot.
pub fn is_socket_name(name: &[u8]) -> bool {
    let middle = name.strip_prefix(b"link").and_then(|it| it.strip_suffix(b".sock"));
    middle.is_some_and(|it| {
        it.is_empty() || it.strip_prefix(b"-").is_some_and(|it| is_number(it) && it.len() <= 10)
    })
}

fn is_number(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_link_sockets_are_taken_for_such() {
        for name in ["link.sock", "link-1.sock", "link-4194304.sock"] {
            assert!(is_socket_name(name.as_bytes()), "{name}");
        }
        for name in
            ["link", "link-.sock", "link-x.sock", "links.sock", "link.sock.new", "alink.sock"]
        {
            assert!(!is_socket_name(name.as_bytes()), "{name}");
        }
    }
}
