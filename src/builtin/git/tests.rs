//! What may be asked and where to, as tables.

use serde_json::json;

use super::arguments::{Parsed, parse, read};
use super::commands::{Effect, KNOWN, named};
use super::confine::{Bind, Cell};
use super::remotes::Remote;
use super::settings::Settings;
use crate::sandbox::bubblewrap::HostLayout;

fn words(line: &str) -> Vec<String> {
    line.split(' ').filter(|it| !it.is_empty()).map(str::to_owned).collect()
}

/// `None` if it may be asked.
#[track_caller]
fn check(line: &str, want: Option<&str>) {
    let settings = Settings::default();
    let args = words(line);
    let got = read(&args, &settings).and_then(|it| {
        let is_transfer = it.command.effect == Effect::Transfers;
        if is_transfer { parse(it.command, &it.rest).map(drop) } else { Ok(()) }
    });
    match (got, want) {
        (Ok(()), None) => {}
        (Err(text), Some(want)) => assert!(text.contains(want), "{line}: {text}"),
        (got, _) => panic!("{line}: {got:?}"),
    }
}

#[test]
fn what_agents_do_every_day_is_allowed() {
    for line in [
        "--version",
        "status -sb",
        "--no-pager log --oneline -5",
        "-C sub -C er diff --stat",
        "diff --text -- help",
        "add -A .",
        "commit -am x",
        "commit --amend --no-edit",
        "rebase -i HEAD~2",
        "rebase --onto main a b",
        "checkout -b x",
        "grep -n x -- y",
        "grep -e-O x",
        "log --format=%H -S--foo",
        "bisect start",
        "submodule",
        "submodule status",
        "remote -v",
        "remote add o https://h/x",
        "stash push -m x",
        "show --stat",
        "tag -l",
        "clone https://h/x",
        "clone -b x --depth 1 https://h/x y",
        "fetch -pt origin",
        "fetch --depth=3 origin x:y",
        "pull --rebase origin main",
        "pull --rebase=merges",
        "pull -Xours -s ort",
        "push -u origin x",
        "push -o ci.skip --tags",
        "push -oci.skip",
        "ls-remote --heads origin",
        "clean -fdx",
        "cat-file -p HEAD",
        "init -b main",
    ] {
        check(line, None);
    }
}

#[test]
fn what_runs_programs_or_leads_elsewhere_is_refused() {
    for command in [
        "config",
        "filter-branch",
        "fast-import",
        "fast-export",
        "archive",
        "daemon",
        "upload-pack",
        "receive-pack",
        "upload-archive",
        "send-email",
        "imap-send",
        "difftool",
        "mergetool",
        "credential",
        "credential-store",
        "help",
        "instaweb",
        "gui",
        "citool",
        "web--browse",
        "shell",
        "remote-ext",
        "remote-https",
        "http-backend",
        "http-fetch",
        "svn",
        "p4",
        "cvsserver",
        "hook",
        "maintenance",
        "for-each-repo",
        "request-pull",
        "quiltimport",
        "submodule--helper",
        "var",
        "interpret-trailers",
        "run-command",
        "sh",
        "",
        "../git",
    ] {
        assert!(named(command).is_none(), "{command}");
    }
    for line in [
        "-c a=b status",
        "--config-env=a=b status",
        "--exec-path=x status",
        "--git-dir=x status",
        "--work-tree x status",
        "--namespace=x status",
        "-p log",
        "--paginate log",
        "--bare log",
        "--super-prefix=x status",
        "--attr-source=x log",
        "--html-path",
        "-C",
        "-Cx status",
    ] {
        check(line, Some(if line == "-C" { "wants a folder" } else { "before the command" }));
    }
    for line in [
        "status --help",
        "status --hel",
        "log --textconv",
        "diff --ext-diff",
        "show --ext-d",
        "log --show-signature",
        "diff --no-index a b",
        "grep -O x",
        "grep -nO x",
        "grep -Oless x",
        "grep --open-files-in-pager=x y",
        "grep --op x",
        "diff --submodule=diff",
        "log -p --subm",
        "status --ignore-submodules=none",
        "checkout --recurse-submodules x",
        "rebase -x id",
        "rebase -ix id",
        "rebase --exec=id",
        "rebase --exe id",
        "rebase main --ex id",
        "cat-file --filters x",
        "cat-file --textconv x",
        "init --template=x",
        "init --temp x",
        "bisect run id",
        "bisect view",
        "submodule foreach id",
        "submodule update --init",
        "submodule add x",
        "submodule --quiet foreach id",
        "remote update",
        "blame --textconv x",
        "clone -u id https://h/x",
        "clone --upload-pack=id https://h/x",
        "clone -c a=b https://h/x",
        "clone --config a=b https://h/x",
        "clone --template=x https://h/x",
        "clone --reference x https://h/x",
        "clone --separate-git-dir=x https://h/x",
        "clone --recurse-submodules https://h/x",
        "clone --bundle-uri=x https://h/x",
        "clone -qu id https://h/x",
        "clone --filter=blob:none https://h/x",
        "clone -l x",
        "clone --remote-submodules https://h/x",
        "clone --shared x",
        "fetch --upload-pack id o",
        "fetch --uplo=id o",
        "fetch --recurse-submodules o",
        "fetch --multiple a b",
        "fetch --all",
        "fetch --stdin",
        "fetch --server-option=x",
        "fetch --filter=x",
        "pull --upload-pack=id",
        "pull -S o",
        "pull --gpg-sign",
        "pull --recurse-submodules",
        "push --receive-pack=id o",
        "push --exec=id o",
        "push --exe=id",
        "push --rec=id",
        "push --signed",
        "push --recurse-submodules=on-demand",
        "push --repo=x",
        "ls-remote --upload-pack=id o",
        "ls-remote --exec=id o",
        "ls-remote -o x",
    ] {
        check(line, Some("not allowed here"));
    }
    check("fetch --depth", Some("wants a value"));
}

#[test]
fn what_would_overwrite_is_known_by_the_arguments() {
    let push = named("push").expect("it is there");
    let forces = |line: &str| {
        let args = words(line);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        parse(push, &args).map(|it| it.forces().map(str::to_owned))
    };
    for line in
        ["-f", "-uf o", "--force", "--force-with-lease=a:b", "-d o x", "o +x", "o :x", "--mirror"]
    {
        assert!(forces(line).is_ok_and(|it| it.is_some()), "{line}");
    }
    for line in ["", "o x", "-u o x:y", "--tags", "o :", "-o +x o", "--force-if-includes o x"] {
        assert_eq!(forces(line), Ok(None), "{line}");
    }
}

#[test]
fn options_are_read_as_git_reads_them() {
    let args = ["-qb", "x", "--depth=1", "url", "--depth", "2", "-j4", "--", "-d"];
    let parsed = parse(named("clone").expect("it is there"), &args).expect("parsed");
    let option = |name: &str, value| (name.to_owned(), value);
    let want = Parsed {
        options: vec![
            option("-q", None),
            option("-b", Some("x")),
            option("--depth", Some("1")),
            option("--depth", Some("2")),
            option("-j", Some("4")),
        ],
        operands: vec!["url", "-d"],
    };
    assert_eq!(parsed, want);
    assert_eq!(parsed.only(&["--depth", "-b"]), ["-bx", "--depth=1", "--depth=2"]);
}

#[test]
fn the_table_has_each_command_once() {
    let mut names: Vec<&str> = KNOWN.iter().map(|it| it.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), KNOWN.len());
}

#[track_caller]
fn check_glob(url: &str, glob: &str, want: bool) {
    let remote = Remote::read(url).unwrap_or_else(|it| panic!("{it}"));
    assert_eq!(remote.matches(glob), want, "{glob} on {url}");
}

#[test]
fn globs_are_compared_with_the_host_and_the_path() {
    let https = "https://GitHub.com/me/r.git";
    for glob in [
        "https://github.com/me/*",
        "https://github.com/me/r",
        "https://github.com/me/r.git",
        "github.com/me/*",
        "github.com/**",
        "github.com",
        "https://github.com",
        "**",
        "*/me/r",
    ] {
        check_glob(https, glob, true);
    }
    for glob in [
        "https://github.com/*",
        "https://github.com/you/*",
        "ssh://github.com/me/*",
        "http://github.com/me/*",
        "hub.com/me/*",
        "r.git",
        "me/r",
        "",
        "/**",
        "./**",
        ":me/r",
        "git@github.com:me/*",
        "github.com:443/me/*",
    ] {
        check_glob(https, glob, false);
    }
    for url in ["git@github.com:me/r.git", "ssh://git@github.com/me/r.git", "github.com:/me/r"] {
        for glob in ["github.com/me/*", "ssh://github.com/**", "github.com"] {
            check_glob(url, glob, true);
        }
        check_glob(url, "git@github.com:me/*", url.contains("git@"));
        check_glob(url, "root@github.com:me/*", false);
        check_glob(url, "https://github.com/**", false);
        check_glob(url, "git@github.com:you/*", false);
    }
    check_glob("ssh://h:22/r", "h/*", false);
    check_glob("ssh://h:22/r", "h:*/*", true);
    check_glob("ssh://h:22/r", "ssh://h:22/r", true);
    check_glob("http://h/r", "**", false);
    check_glob("http://h/r", "h/r", false);
    check_glob("http://h/r", "http://h/r", true);
    check_glob("https://evil.example/github.com", "github.com", false);
}

#[test]
fn urls_that_could_be_read_in_two_ways_are_none() {
    for url in [
        "ext::sh -c id",
        "ext::sh",
        "fd::3",
        "file:///x",
        "file::x",
        "git://h/x",
        "ftp://h/x",
        "/x",
        "./x",
        "../x",
        "x/y:z",
        "-x:y",
        "--upload-pack=x",
        "https://h",
        "https:///x",
        "https://h/",
        "https://h/a/../b",
        "https://h/./a",
        "https://h//a",
        "https://h/a%2f..%2Fb",
        "https://h/%2e%2e/b",
        "https://h/a%252f",
        "https://u@h/x",
        "https://u:p@h/x",
        "https://a@b@h/x",
        "https://h\\@e/x",
        "https://h/x?y",
        "https://h/x#y",
        "https://h/x y",
        "https://h/x\ny",
        "https://h:x/y",
        "https://h:/y",
        "https://[::1]/x",
        "ssh://-o/x",
        "ssh://-u@h/x",
        "u@-h:x",
        "-u@h:x",
        "h:-x",
        "h:a/-x",
        "h:",
        "ssh://h/'x'",
        "h:$(id)",
        "h:`id`",
        "h:x;id",
        "HTTPS://h/x",
        "https::https://h/x",
        "transport::h",
        "https://é/x",
    ] {
        assert!(Remote::read(url).is_err(), "{url}");
    }
    assert!(Remote::read("origin").is_err_and(|it| it.contains("has no remote `origin`")));
    let told = Remote::read("https://me:secret@h/x").err().unwrap_or_default();
    assert!(!told.contains("secret"), "{told}");
}

#[test]
fn a_token_is_given_to_https_that_matches_by_the_longest_glob() {
    let config = json!({"tokens": {"github.com/**": "general", "github.com/me/*": "bob:mine1234"}});
    let settings = Settings::read(&config, "a");
    let check = |url: &str, want: Option<(&str, &str)>| {
        let remote = Remote::read(url).unwrap_or_else(|it| panic!("{it}"));
        assert_eq!(settings.credential(&remote), want, "{url}");
    };
    check("https://github.com/you/r", Some(("x-access-token", "general")));
    check("https://github.com/me/r", Some(("bob", "mine1234")));
    check("https://gitlab.com/me/r", None);
    check("git@github.com:me/r", None);
    check("http://github.com/me/r", None);
    assert_eq!(settings.secrets().collect::<Vec<_>>(), ["mine1234"], "short ones are words");
}

#[test]
fn no_remote_is_allowed_until_one_is() {
    let settings = Settings::read(&json!({}), "a");
    assert!(settings.remote("https://h/x").is_err_and(|it| it.contains("allowedRemotes")));
    assert_eq!(settings.identity, ("a".into(), "a@beige.invalid".into()));
    let settings = Settings::read(&json!({"allowedRemotes": ["h/*"]}), "a");
    assert!(settings.remote("https://h/x").is_ok());
}

#[test]
fn a_box_shows_what_it_is_told_and_nothing_else_of_the_host() {
    let host = |setpriv: Option<&str>| HostLayout {
        bwrap: "/usr/bin/bwrap".into(),
        setpriv: setpriv.map(Into::into),
        uid: 0,
        shown: vec!["/usr".into()],
        resolver: vec!["/etc/resolv.conf".into()],
        links: vec![("/bin".into(), "usr/bin".into())],
    };
    let line = |setpriv, network, input_at| {
        let host = host(setpriv);
        let cell = Cell {
            host: &host,
            owner: (7, 8),
            binds: vec![Bind { source: "/w".into(), inside: "/workspace".into(), writable: true }],
            network,
            input_at,
            folder: "/workspace/d".into(),
            env: vec![("A".into(), "b".into())],
        };
        let command = cell.command(&["git".to_owned()]);
        assert_eq!(command.get_envs().count(), 1);
        let words: Vec<_> = command.get_args().map(|it| it.to_string_lossy()).collect();
        words.join(" ").replace("/usr/bin/prlimit --data=4294967296 --core=0 --nproc=1024 ", "")
    };
    let walls = "--new-session --unshare-user --disable-userns --unshare-pid --unshare-ipc \
                 --unshare-uts --unshare-cgroup-try --cap-drop ALL --die-with-parent";
    let end = "--dev /dev --proc /proc --ro-bind /proc/sys /proc/sys --remount-ro /dev \
               --remount-ro / --chdir /workspace/d -- git";
    let tmp = "--perms 1777 --size 268435456 --tmpfs /tmp";
    let local = format!(
        "{walls} --unshare-net --ro-bind /usr /usr --symlink usr/bin /bin {tmp} \
         --bind /w /workspace {end}"
    );
    assert_eq!(line(None, false, None), local);
    let open = format!(
        "{walls} --ro-bind /usr /usr --ro-bind /etc/resolv.conf /etc/resolv.conf \
         --symlink usr/bin /bin {tmp} --bind /w /workspace --perms 0400 --ro-bind-data 0 /c {end}"
    );
    assert_eq!(line(None, true, Some("/c")), open);
    let outer = "--die-with-parent --unshare-pid --dev-bind / / --tmpfs /mnt --bind /w /mnt/0 -- \
                 /usr/bin/setpriv --reuid=7 --regid=8 --clear-groups --no-new-privs \
                 --inh-caps=-all --bounding-set=-all -- /usr/bin/bwrap ";
    let inner = local.replace("--bind /w", "--bind /mnt/0");
    assert_eq!(line(Some("/usr/bin/setpriv"), false, None), format!("{outer}{inner}"));
}
