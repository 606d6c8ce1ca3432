//! Which commands of git there are for an agent, and what may not be given to
//! each. A table: what it does not name is refused, whatever git or a
//! configuration says. Of those that it leaves out, many run programs that the
//! arguments name, and some serve or send what is theirs to whoever asks.

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Tells something.
    Reads,
    /// Changes the workspace.
    Changes,
    /// Speaks with another host.
    Transfers,
}

/// A command of git.
#[derive(Debug)]
pub(super) struct Known {
    /// As git calls it.
    pub(super) name: &'static str,
    pub(super) effect: Effect,
    /// Options that are refused, `-x` and `--long`.
    pub(super) refused: &'static [&'static str],
    /// Letters of short options that take the rest of their word.
    pub(super) valued: &'static str,
    /// Of its first operand.
    pub(super) words: Words,
}

/// What the first operand of a command may be.
#[derive(Debug)]
pub(super) enum Words {
    Any,
    Only(&'static [&'static str]),
    Not(&'static [&'static str]),
}

/// Refused with every command: the first starts a reader of manuals, the
/// others programs of a configuration, of a submodule's too.
pub(super) const NEVER: [&str; 9] = [
    "--help",
    "--ext-diff",
    "--textconv",
    "--show-signature",
    "--upload-pack",
    "--receive-pack",
    "--submodule",
    "--ignore-submodules",
    "--recurse-submodules",
];

/// Commands that look into submodules, by their configuration, unless they are
/// told not to.
pub(super) const LOOK_INTO_SUBMODULES: [&str; 4] = ["status", "diff", "diff-files", "diff-index"];

/// Options whose names are the beginning of one in [`NEVER`].
pub(super) const INNOCENT: [&str; 1] = ["text"];

const fn reads(name: &'static str) -> Known {
    Known { name, effect: Effect::Reads, refused: &[], valued: "", words: Words::Any }
}

const fn changes(name: &'static str) -> Known {
    Known { effect: Effect::Changes, ..reads(name) }
}

const fn transfers(name: &'static str) -> Known {
    Known { effect: Effect::Transfers, ..reads(name) }
}

/// All of them.
pub(super) const KNOWN: &[Known] = &[
    changes("add"),
    changes("am"),
    changes("apply"),
    Known { words: Words::Not(&["run", "view", "visualize"]), ..changes("bisect") },
    reads("blame"),
    changes("branch"),
    changes("bundle"),
    Known { refused: &["--filters"], ..reads("cat-file") },
    reads("check-attr"),
    reads("check-ignore"),
    changes("checkout"),
    changes("cherry-pick"),
    reads("cherry"),
    changes("clean"),
    transfers("clone"),
    changes("commit"),
    changes("commit-tree"),
    reads("count-objects"),
    reads("describe"),
    Known { refused: &["--no-index"], ..reads("diff") },
    reads("diff-files"),
    reads("diff-index"),
    reads("diff-tree"),
    transfers("fetch"),
    reads("for-each-ref"),
    changes("format-patch"),
    reads("fsck"),
    changes("gc"),
    Known {
        refused: &["-O", "--open-files-in-pager", "--ext-grep"],
        valued: "efmABC",
        ..reads("grep")
    },
    changes("hash-object"),
    Known { refused: &["--template"], ..changes("init") },
    reads("log"),
    reads("ls-files"),
    transfers("ls-remote"),
    reads("ls-tree"),
    changes("merge"),
    reads("merge-base"),
    reads("merge-tree"),
    changes("mv"),
    reads("name-rev"),
    changes("notes"),
    transfers("pull"),
    transfers("push"),
    reads("range-diff"),
    Known { refused: &["-x", "--exec"], valued: "sXC", ..changes("rebase") },
    reads("reflog"),
    Known { words: Words::Not(&["update", "prune"]), ..changes("remote") },
    changes("reset"),
    changes("restore"),
    changes("revert"),
    reads("rev-list"),
    reads("rev-parse"),
    changes("rm"),
    reads("shortlog"),
    reads("show"),
    reads("show-branch"),
    reads("show-ref"),
    changes("sparse-checkout"),
    changes("stash"),
    reads("status"),
    Known { words: Words::Only(&["status", "summary"]), ..reads("submodule") },
    changes("switch"),
    changes("symbolic-ref"),
    changes("tag"),
    changes("update-index"),
    changes("update-ref"),
    reads("version"),
    reads("whatchanged"),
    changes("worktree"),
    changes("write-tree"),
];

/// The command of that name.
pub(super) fn named(name: &str) -> Option<&'static Known> {
    KNOWN.iter().find(|it| it.name == name)
}

/// What the options of a command that transfers may be: whole names, each with
/// what follows it.
#[derive(Debug)]
pub(super) struct Options {
    /// Those without a value.
    pub(super) flags: &'static [&'static str],
    /// Those with one, in the same word or the next.
    pub(super) valued: &'static [&'static str],
    /// Long ones that may have one, in the same word.
    pub(super) either: &'static [&'static str],
}

const FETCH: Options = Options {
    flags: &[
        "-a",
        "--append",
        "--atomic",
        "-v",
        "--verbose",
        "-q",
        "--quiet",
        "--progress",
        "--no-progress",
        "-p",
        "--prune",
        "-P",
        "--prune-tags",
        "-t",
        "--tags",
        "-n",
        "--no-tags",
        "-f",
        "--force",
        "-k",
        "--keep",
        "-4",
        "-6",
        "--dry-run",
        "--unshallow",
        "--update-shallow",
        "--set-upstream",
        "--no-auto-gc",
        "--porcelain",
        "--no-recurse-submodules",
        "-u",
        "--update-head-ok",
        "--show-forced-updates",
    ],
    valued: &["--depth", "--deepen", "--shallow-since", "--shallow-exclude", "-j", "--jobs"],
    either: &[],
};

const PULL: Options = Options {
    flags: &[
        "-a",
        "--append",
        "-v",
        "--verbose",
        "-q",
        "--quiet",
        "--progress",
        "--no-progress",
        "-p",
        "--prune",
        "-t",
        "--tags",
        "--no-tags",
        "-f",
        "--force",
        "-k",
        "--keep",
        "-4",
        "-6",
        "--dry-run",
        "--unshallow",
        "--update-shallow",
        "--set-upstream",
        "--no-recurse-submodules",
        "-r",
        "--no-rebase",
        "--ff",
        "--ff-only",
        "--no-ff",
        "--commit",
        "--no-commit",
        "-e",
        "--edit",
        "--no-edit",
        "-n",
        "--stat",
        "--no-stat",
        "--squash",
        "--no-squash",
        "--autostash",
        "--no-autostash",
        "--no-verify",
        "--verify",
        "--allow-unrelated-histories",
        "--signoff",
    ],
    valued: &[
        "--depth",
        "--deepen",
        "--shallow-since",
        "--shallow-exclude",
        "-j",
        "--jobs",
        "-s",
        "--strategy",
        "-X",
        "--strategy-option",
    ],
    either: &["--rebase"],
};

const PUSH: Options = Options {
    flags: &[
        "-v",
        "--verbose",
        "-q",
        "--quiet",
        "--progress",
        "--no-progress",
        "--all",
        "--branches",
        "--tags",
        "--follow-tags",
        "--no-follow-tags",
        "-n",
        "--dry-run",
        "--porcelain",
        "--atomic",
        "--no-atomic",
        "-u",
        "--set-upstream",
        "-f",
        "--force",
        "--force-if-includes",
        "-d",
        "--delete",
        "--mirror",
        "--prune",
        "--no-verify",
        "--thin",
        "--no-thin",
        "-4",
        "-6",
    ],
    valued: &["-o", "--push-option"],
    either: &["--force-with-lease"],
};

const CLONE: Options = Options {
    flags: &[
        "-v",
        "--verbose",
        "-q",
        "--quiet",
        "--progress",
        "--no-progress",
        "-n",
        "--no-checkout",
        "--bare",
        "--single-branch",
        "--no-single-branch",
        "--tags",
        "--no-tags",
        "--no-local",
        "--no-hardlinks",
        "-4",
        "-6",
        "--sparse",
    ],
    valued: &[
        "--depth",
        "-b",
        "--branch",
        "-o",
        "--origin",
        "--shallow-since",
        "--shallow-exclude",
        "-j",
        "--jobs",
    ],
    either: &[],
};

const LS_REMOTE: Options = Options {
    flags: &[
        "--heads",
        "--branches",
        "-h",
        "-b",
        "-t",
        "--tags",
        "--refs",
        "-q",
        "--quiet",
        "--exit-code",
        "--symref",
        "--get-url",
    ],
    valued: &["--sort"],
    either: &[],
};

/// The options of a command that transfers.
pub(super) fn options(name: &str) -> &'static Options {
    match name {
        "fetch" => &FETCH,
        "pull" => &PULL,
        "push" => &PUSH,
        "clone" => &CLONE,
        _ => &LS_REMOTE,
    }
}
