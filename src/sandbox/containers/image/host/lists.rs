//! What an offline image takes from the host, as lists: change what is in the
//! image here.

/// Programs, where the host has them; busybox stands in for what it can.
/// No git: agents use the git tool. Nothing that is setuid.
#[rustfmt::skip]
pub(super) const PROGRAMS: &[&str] = &[
    // Shells and what scripts call.
    "sh", "bash", "busybox", "env", "echo", "printf", "test", "[", "true", "false", "yes", "sleep",
    "timeout", "nohup", "nice", "xargs", "expr", "seq", "tee", "which", "getopt", "date", "id",
    "whoami", "groups", "uname", "hostname", "nproc", "pwd", "tty", "stty", "flock", "setsid",
    // Files.
    "ls", "cp", "mv", "rm", "mkdir", "rmdir", "ln", "chmod", "chown", "touch", "stat", "du", "df",
    "dd", "basename", "dirname", "readlink", "realpath", "mktemp", "install", "truncate", "sync",
    "find", "tree",
    // Text.
    "cat", "head", "tail", "sort", "uniq", "wc", "cut", "paste", "join", "comm", "tr", "tac", "nl",
    "od", "fold", "fmt", "expand", "unexpand", "split", "csplit", "shuf", "tsort", "factor", "numfmt",
    "grep", "egrep", "fgrep", "sed", "awk", "diff", "cmp", "diff3", "patch", "less", "rg", "jq",
    "iconv", "xxd", "hexdump", "column", "rev",
    // Sums and archives.
    "md5sum", "sha1sum", "sha256sum", "sha512sum", "b2sum", "cksum", "base64", "base32", "tar", "gzip",
    "gunzip", "zcat", "bzip2", "bunzip2", "xz", "unxz", "zstd", "zip", "unzip",
    // Processes and the network.
    "ps", "kill", "pgrep", "pkill", "top", "free", "uptime", "curl", "openssl", "getent",
    // Languages and stores.
    "python3", "node", "sqlite3",
];

/// Folders that are taken whole, where the host has them: the parts of node
/// that some distributions keep beside it, and the plain UTF-8 locale.
pub(super) const FOLDERS: &[&str] = &[
    "/usr/share/nodejs/acorn",
    "/usr/share/nodejs/acorn-walk",
    "/usr/share/nodejs/balanced-match",
    "/usr/share/nodejs/brace-expansion",
    "/usr/share/nodejs/cjs-module-lexer",
    "/usr/share/nodejs/minimatch",
    "/usr/share/nodejs/undici",
    "/usr/lib/locale/C.utf8",
];

/// How deep such a folder is followed.
pub(super) const DEPTH_LIMIT: usize = 12;

/// Folders that are there from the start, with their modes.
pub(super) const EMPTY_FOLDERS: &[(&str, u32)] = &[
    ("beige", 0o755),
    ("dev", 0o755),
    ("etc", 0o755),
    ("proc", 0o755),
    ("root", 0o700),
    ("run", 0o755),
    ("skills", 0o755),
    ("sys", 0o755),
    ("tmp", 0o1777),
    ("tools", 0o755),
    ("tools/bin", 0o755),
    ("tools/packages", 0o755),
    ("usr", 0o755),
    ("usr/bin", 0o755),
    ("usr/lib", 0o755),
    ("usr/lib32", 0o755),
    ("usr/lib64", 0o755),
    ("usr/local", 0o755),
    ("usr/local/bin", 0o755),
    ("usr/sbin", 0o755),
    ("var", 0o755),
    ("var/tmp", 0o1777),
    ("workspace", 0o755),
];

/// Links that are there from the start: the merged `/usr`.
pub(super) const LINKS: &[(&str, &str)] = &[
    ("bin", "usr/bin"),
    ("lib", "usr/lib"),
    ("lib32", "usr/lib32"),
    ("lib64", "usr/lib64"),
    ("sbin", "usr/sbin"),
];

/// Files that are ours.
pub(super) const TEXTS: &[(&str, &str)] = &[
    ("etc/group", "root:x:0:\nagent:x:10000:\nnogroup:x:65534:\n"),
    ("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"),
    ("etc/os-release", "NAME=\"beige sandbox (offline)\"\nID=beige\n"),
    (
        "etc/passwd",
        "root:x:0:0:root:/root:/bin/sh\n\
         agent:x:10000:10000:agent:/workspace:/bin/sh\n\
         nobody:x:65534:65534:nobody:/:/bin/false\n",
    ),
];

/// Where distributions keep the bundle of certificates.
pub(super) const CERTIFICATES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Where the image keeps it.
pub(super) const BUNDLE: &str = "etc/ssl/certs/ca-certificates.crt";

/// Where else TLS libraries look for it.
pub(super) const BUNDLE_LINKS: &[&str] =
    &["etc/pki/tls/certs/ca-bundle.crt", "etc/ssl/cert.pem", "usr/lib/ssl/cert.pem"];

/// Whether a file or folder below a taken folder is of no use at run time:
/// tests, and what builds extensions or draws windows.
pub(super) fn is_needless(name: &str) -> bool {
    const NAMES: &[&str] = &[
        "test",
        "tests",
        "idlelib",
        "lib2to3",
        "tkinter",
        "turtledemo",
        "ensurepip",
        "site-packages",
        "dist-packages",
    ];
    NAMES.contains(&name) || name.starts_with("config-")
}
