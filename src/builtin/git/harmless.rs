//! What makes a hostile repository harmless: the environment under which git
//! runs, which overrides what a repository's configuration may say, and the
//! keys that nothing overrides, for which a repository is refused. Pure.

use super::settings::Settings;

/// The shell's word that does nothing, and git's own for "no editor".
const NOTHING: &str = ":";

/// Fails: there is nothing to be verified or signed with here.
const FAILS: &str = "/usr/bin/false";

/// Over what any file says. `GIT_CONFIG_COUNT` is read last, and counts as the
/// command line.
const OVER_ALL: &[(&str, &str)] = &[
    ("core.hooksPath", "/dev/null"),
    // What these say of objects need not be true, and nothing looks whether it is.
    ("core.commitGraph", "false"),
    ("core.multiPackIndex", "false"),
    ("core.fsmonitor", "false"),
    ("core.pager", "cat"),
    ("core.editor", NOTHING),
    ("sequence.editor", NOTHING),
    ("core.sshCommand", FAILS),
    ("core.askPass", FAILS),
    ("credential.helper", ""),
    ("gpg.program", FAILS),
    ("gpg.openpgp.program", FAILS),
    ("gpg.x509.program", FAILS),
    ("gpg.ssh.program", FAILS),
    ("gpg.ssh.defaultKeyCommand", FAILS),
    ("commit.gpgSign", "false"),
    ("tag.gpgSign", "false"),
    ("tag.forceSignAnnotated", "false"),
    ("push.gpgSign", "false"),
    ("log.showSignature", "false"),
    ("merge.verifySignatures", "false"),
    ("submodule.recurse", "false"),
    ("fetch.recurseSubmodules", "false"),
    ("push.recurseSubmodules", "no"),
    ("diff.ignoreSubmodules", "dirty"),
    ("diff.submodule", "short"),
    ("status.submoduleSummary", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("help.autoCorrect", "never"),
    ("http.followRedirects", "false"),
    ("init.defaultBranch", "main"),
    ("safe.directory", "*"),
];

/// Environment that says where git finds what, and what it must not ask for.
const ENVIRONMENT: &[(&str, &str)] = &[
    ("PATH", "/usr/bin:/bin"),
    ("HOME", "/tmp"),
    ("LANG", "C.UTF-8"),
    ("TERM", "dumb"),
    ("PAGER", "cat"),
    ("GIT_PAGER", "cat"),
    ("GIT_EDITOR", NOTHING),
    ("GIT_SEQUENCE_EDITOR", NOTHING),
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("GIT_TEMPLATE_DIR", ""),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_MERGE_AUTOEDIT", "no"),
];

/// The environment of git, with further configuration over all else; of all
/// transports only this one is allowed.
pub(super) fn environment(
    settings: &Settings,
    transport: &str,
    more: &[(String, String)],
) -> Vec<(String, String)> {
    let text = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let mut env: Vec<(String, String)> = ENVIRONMENT.iter().map(text).collect();
    env.push(("GIT_ALLOW_PROTOCOL".into(), transport.into()));
    let (name, email) = &settings.identity;
    let mut config: Vec<(String, String)> = OVER_ALL.iter().map(text).collect();
    for of in ["user", "author", "committer"] {
        config.push((format!("{of}.name"), name.clone()));
        config.push((format!("{of}.email"), email.clone()));
    }
    config.extend_from_slice(more);
    env.push(("GIT_CONFIG_COUNT".into(), config.len().to_string()));
    for (number, (key, value)) in config.into_iter().enumerate() {
        env.push((format!("GIT_CONFIG_KEY_{number}"), key));
        env.push((format!("GIT_CONFIG_VALUE_{number}"), value));
    }
    env
}

/// The arguments that have git tell the configuration of a repository.
pub(super) const LIST: [&str; 4] = ["config", "--list", "-z", "--show-scope"];

/// The first key, of what [`LIST`] printed, that runs a program and cannot be
/// overridden.
pub(super) fn program_key(listed: &str) -> Option<&str> {
    let mut parts = listed.split('\0');
    while let (Some(scope), Some(pair)) = (parts.next(), parts.next()) {
        let (key, value) = pair.split_once('\n').unwrap_or((pair, ""));
        if scope != "command" && runs_program(key, value) {
            return Some(key);
        }
    }
    None
}

/// Section and name are in small letters, as git prints them.
fn runs_program(key: &str, value: &str) -> bool {
    let Some((section, rest)) = key.split_once('.') else { return false };
    let name = rest.rsplit_once('.').map_or(rest, |(_, name)| name);
    match section {
        "filter" => ["clean", "smudge", "process"].contains(&name),
        "diff" => ["external", "command", "textconv"].contains(&name),
        "merge" => name == "driver",
        "interactive" => name == "difffilter",
        "core" => name == "alternaterefscommand",
        "remote" => ["uploadpack", "receivepack", "vcs"].contains(&name),
        "trailer" => ["command", "cmd"].contains(&name),
        "submodule" => name == "update" && value.starts_with('!'),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(listed: &str, want: Option<&str>) {
        assert_eq!(program_key(&listed.replace('|', "\0")), want, "{listed}");
    }

    #[test]
    fn keys_that_run_programs_are_found_wherever_they_stand() {
        for key in [
            "filter.x.clean",
            "filter.x.smudge",
            "filter.a.b.process",
            "diff.external",
            "diff.x.command",
            "diff.x.textconv",
            "merge.x.driver",
            "interactive.difffilter",
            "core.alternaterefscommand",
            "remote.origin.uploadpack",
            "remote.x.y.receivepack",
            "remote.o.vcs",
            "trailer.x.command",
            "trailer.x.cmd",
        ] {
            check(&format!("local|core.bare\nfalse|local|{key}\nv|"), Some(key));
            check(&format!("worktree|{key}\nv|"), Some(key));
            check(&format!("command|{key}\nv|"), None);
        }
        check("local|submodule.x.update\n!id|", Some("submodule.x.update"));
    }

    #[test]
    fn other_keys_are_nobodys_business() {
        for key in [
            "core.bare",
            "core.hookspath",
            "core.fsmonitor",
            "alias.x",
            "user.name",
            "remote.origin.url",
            "remote.origin.fetch",
            "branch.filter.clean.remote",
            "diff.algorithm",
            "filter.x.required",
            "submodule.x.url",
            "submodule.x.active",
        ] {
            check(&format!("local|{key}\n!v|"), None);
        }
        check("", None);
        check("local|core.bare|local|filter.x.clean\n\n|", Some("filter.x.clean"));
    }

    #[test]
    fn git_is_given_all_of_it_by_number() {
        let env = environment(&Settings::default(), "file", &[("a.b".into(), "c".into())]);
        let value = |name: &str| env.iter().find(|it| it.0 == name).map(|it| it.1.as_str());
        let count: usize = value("GIT_CONFIG_COUNT").and_then(|it| it.parse().ok()).unwrap_or(0);
        assert_eq!(count, OVER_ALL.len() + 7);
        assert_eq!(value(&format!("GIT_CONFIG_KEY_{}", count - 1)), Some("a.b"));
        assert_eq!(value(&format!("GIT_CONFIG_VALUE_{}", count - 1)), Some("c"));
        assert_eq!(value("GIT_ALLOW_PROTOCOL"), Some("file"));
    }
}
