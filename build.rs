//! Builds tool-client, static, for the target that beige is built for, packs
//! it, and lays it where `sandbox/client.rs` embeds it. It downloads nothing:
//! all crates that tool-client needs are beige's own, and cargo has them by now.
//!
//! The nested cargo has a target folder of its own below `OUT_DIR` (the outer
//! one is locked) and is always given `--target`, so that its flags do not
//! reach the host's build scripts. Its profile is set here, since the client
//! wants to be small: every sandbox of every agent holds a copy.

use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use lzma_rust2::{LzmaOptions, LzmaWriter};

/// What the nested release build differs in.
const PROFILE: [(&str, &str); 6] = [
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "z"),
    ("CARGO_PROFILE_RELEASE_LTO", "fat"),
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1"),
    ("CARGO_PROFILE_RELEASE_PANIC", "abort"),
    ("CARGO_PROFILE_RELEASE_STRIP", "true"),
    ("CARGO_PROFILE_RELEASE_DEBUG", "false"),
];

/// Variables that cargo sets for this script and that would speak to the
/// nested cargo or its compiler: of the outer build, or of `cargo clippy`.
const NOT_INHERITED: [&str; 8] = [
    "RUSTFLAGS",
    "RUSTC_WORKSPACE_WRAPPER",
    "CARGO_BUILD_TARGET",
    "CARGO_TARGET_DIR",
    "CARGO_BUILD_TARGET_DIR",
    "CARGO_BUILD_RUSTFLAGS",
    "CLIPPY_ARGS",
    "LLVM_PROFILE_FILE",
];

fn main() -> Result<(), Box<dyn Error>> {
    for path in ["build.rs", "cold.ld", "Cargo.lock", "tool-client/Cargo.toml", "tool-client/src"] {
        say(&format!("cargo::rerun-if-changed={path}"));
    }
    let out = PathBuf::from(variable("OUT_DIR")?);
    if variable("PROFILE")? == "release" {
        put_cold_code_aside(&out)?;
        take_the_unwinder_in(&out)?;
        pack_relocations(&out)?;
    }
    let target = variable("TARGET")?;
    let folder = out.join("tool-client-build");
    let mut command = nested_cargo(&target, &folder)?;
    let status = command.status().map_err(|it| format!("start {command:?}: {it}"))?;
    if !status.success() {
        return Err(format!("tool-client could not be built ({status}): {command:?}").into());
    }
    let built = folder.join(&target).join("release/tool-client");
    let program = fs::read(&built).map_err(|it| format!("read {}: {it}", built.display()))?;
    fs::write(out.join("tool-client.lzma"), packed(&program)?)?;
    say(&format!("cargo::rustc-env=TOOL_CLIENT_BYTES={}", program.len()));
    say(&format!("cargo::rustc-env=TOOL_CLIENT_MARK={}", mark(&program)));
    Ok(())
}

/// Code that no idle gateway runs gets a place of its own in the program, so
/// that it is not in memory only because it lies beside what runs.
fn put_cold_code_aside(out: &Path) -> Result<(), Box<dyn Error>> {
    let script = Path::new(&variable("CARGO_MANIFEST_DIR")?).join("cold.ld");
    let argument = format!("-Wl,-T,{}", script.display());
    if links_with(&format!("-Clink-arg={argument}"), out)? {
        say(&format!("cargo::rustc-link-arg-bins={argument}"));
    }
    Ok(())
}

/// Links the few functions that show where a panic came from out of gcc's
/// static library: a shared one is loaded at each start for nothing else. It is
/// there, since tool-client is linked with it; the linker finds it under the
/// name of the shared one. On some processors it needs gcc's other library.
fn take_the_unwinder_in(out: &Path) -> Result<(), Box<dyn Error>> {
    let folder = out.join("unwinder");
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("libgcc_s.so"), "INPUT(-lgcc_eh -lgcc)\n")?;
    if links_with(&format!("-Lnative={}", folder.display()), out)? {
        say(&format!("cargo::rustc-link-search=native={}", folder.display()));
    }
    Ok(())
}

/// Addresses that are put right at each start take a tenth of their place when
/// packed. The C library has read them so since glibc 2.36; whether the one here
/// does is seen by starting a program, so a build for another machine goes without.
fn pack_relocations(out: &Path) -> Result<(), Box<dyn Error>> {
    let argument = "-Wl,-z,pack-relative-relocs";
    let is_here = variable("TARGET")? == variable("HOST")?;
    if is_here && links_with(&format!("-Clink-arg={argument}"), out)? {
        let started = Command::new(out.join("probe")).status();
        if started.is_ok_and(|it| it.success()) {
            say(&format!("cargo::rustc-link-arg-bins={argument}"));
        }
    }
    Ok(())
}

/// Whether the linker of this build makes a program with that flag. GNU ld and
/// LLD do; with one that does not, such as gold, the program goes without: that
/// costs memory and nothing else.
fn links_with(flag: &str, out: &Path) -> Result<bool, Box<dyn Error>> {
    let source = out.join("probe.rs");
    fs::write(&source, "fn main() {}\n")?;
    let mut command = Command::new(variable("RUSTC")?);
    command.arg(source).arg("-o").arg(out.join("probe")).arg("--target").arg(variable("TARGET")?);
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    command.args(flags.split('\x1f').filter(|it| !it.is_empty())).arg(flag);
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        let mut argument = OsString::from("-Clinker=");
        argument.push(linker);
        command.arg(argument);
    }
    let works = command.output().map_err(|it| format!("start {command:?}: {it}"))?.status.success();
    if !works {
        say(&format!("cargo::warning=the linker does not take {flag}: more memory is used"));
    }
    Ok(works)
}

/// LZMA takes a fifth less than deflate does.
fn packed(program: &[u8]) -> io::Result<Vec<u8>> {
    let size = program.len() as u64;
    let mut options = LzmaOptions::with_preset(6);
    options.nice_len = LzmaOptions::NICE_LEN_MAX;
    let mut writer = LzmaWriter::new_use_header(Vec::new(), &options, Some(size))?;
    writer.write_all(program)?;
    writer.finish()
}

/// What tells two builds of it apart; no protection against anyone.
fn mark(program: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    hasher.write(program);
    format!("{:016x}", hasher.finish())
}

fn nested_cargo(target: &OsString, folder: &Path) -> Result<Command, Box<dyn Error>> {
    let mut command = Command::new(variable("CARGO")?);
    command
        .args(["build", "--quiet", "--release", "--offline", "--locked"])
        .args(["--package", "tool-client", "--bin", "tool-client", "--target"])
        .arg(target)
        .arg("--target-dir")
        .arg(folder)
        .arg("--manifest-path")
        .arg(Path::new(&variable("CARGO_MANIFEST_DIR")?).join("Cargo.toml"));
    for name in NOT_INHERITED {
        command.env_remove(name);
    }
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if ["CARGO_PKG_", "CARGO_FEATURE_", "CARGO_CFG_", "CARGO_MANIFEST_", "DEP_"]
            .iter()
            .any(|it| text.starts_with(it))
        {
            command.env_remove(&name);
        }
    }
    command.envs(PROFILE).env("CARGO_ENCODED_RUSTFLAGS", "-Ctarget-feature=+crt-static");
    Ok(command)
}

fn variable(name: &str) -> Result<OsString, Box<dyn Error>> {
    env::var_os(name).ok_or_else(|| format!("cargo did not set {name}").into())
}

/// A build script speaks to cargo on standard output.
#[allow(clippy::print_stdout)]
fn say(line: &str) {
    println!("{line}");
}
