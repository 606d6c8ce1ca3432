//! Facts about the machine and the build that the figures are of.

use std::fs;
use std::process::Command;

use crate::arguments::Options;

/// What it is, and which.
pub(crate) type Fact = (&'static str, String);

/// Looks round; what cannot be found out is left out.
pub(crate) fn look(options: &Options) -> Vec<Fact> {
    let beige = options.beige.display().to_string();
    let facts = [
        ("beige", said(&beige, &["--version"])),
        ("commit", commit()),
        ("rounds", rounds(options)),
        ("date", said("date", &["-u", "+%Y-%m-%d %H:%M UTC"])),
        ("processor", processor()),
        ("memory", memory()),
        ("kernel", line_of("/proc/sys/kernel/osrelease")),
        ("Docker", said("docker", &["version", "--format", "{{.Server.Version}}"])),
        ("Podman", said("podman", &["--version"])),
        ("bubblewrap", said("bwrap", &["--version"])),
        ("compiler", said("rustc", &["--version"])),
    ];
    let known = facts.into_iter().filter_map(|(what, which)| Some((what, which?)));
    known.collect()
}

/// The first line that a program prints.
fn said(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let line = text.lines().next()?.trim();
    (output.status.success() && !line.is_empty()).then(|| line.to_owned())
}

/// The commit, and whether something was changed since.
fn commit() -> Option<String> {
    let commit = said("git", &["rev-parse", "--short", "HEAD"])?;
    // The results themselves are written by a run and change nothing.
    let changed = ["status", "--porcelain", "--", ".", ":!bench/results"];
    let is_changed = said("git", &changed).is_some();
    Some(if is_changed { format!("{commit}, with changes") } else { commit })
}

fn rounds(options: &Options) -> Option<String> {
    options.quick.then(|| "few (--quick): to see that it works, no figures to quote".to_owned())
}

fn processor() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let models = text.lines().filter_map(|it| it.strip_prefix("model name")?.split_once(": "));
    let model = models.map(|it| it.1.trim()).next().unwrap_or(std::env::consts::ARCH);
    let cores = std::thread::available_parallelism().ok()?;
    Some(format!("{model}, {cores} cores"))
}

fn memory() -> Option<String> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|it| it.strip_prefix("MemTotal:"))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(format!("{} GiB", (kilobytes + (1 << 19)) >> 20))
}

fn line_of(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.lines().next()?.to_owned())
}
