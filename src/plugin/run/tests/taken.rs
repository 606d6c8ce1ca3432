//! What of a call is taken and what is refused before anything runs.

use super::*;

#[track_caller]
fn check_refused(args: &[&str], kind: Kind, text: &str) {
    let scratch = Scratch::new();
    let witness = scratch.path().join("ran");
    let refused = run(&tool(&format!("touch {}", witness.display())), args).err();
    let refused = refused.map(|it| (it.kind(), it.to_string()));
    assert_eq!(refused, Some((kind, text.to_owned())));
    assert!(!witness.exists());
}

#[test]
fn only_listed_flags_are_taken_and_nothing_runs_else() {
    let check = |flags: &[&str], args: &[&str], want: Option<&str>| {
        let flags: Vec<String> = flags.iter().map(|it| (*it).to_owned()).collect();
        let args: Vec<String> = args.iter().map(|it| (*it).to_owned()).collect();
        assert_eq!(refused_flag(Some(&flags), &args), want, "{flags:?} {args:?}");
    };
    check(&[], &["status", "a-b", ""], None);
    check(&["-s", "--depth"], &["-s", "--depth=1", "--depth", "1"], None);
    check(&["--depth"], &["--dept"], Some("--dept"));
    check(&["--depth"], &["--upload-pack=id"], Some("--upload-pack=id"));
    check(&["-a", "-b"], &["-ab"], Some("-ab"));
    check(&["-o"], &["-o/etc/passwd"], Some("-o/etc/passwd"));
    check(&[], &["-"], Some("-"));
    check(&[], &["--"], Some("--"));
    check(&["--"], &["--", "--exec=id"], Some("--exec=id"));
    check(&["--"], &["--", "file"], None);
    check(&["--"], &["--=x"], None);
    assert_eq!(refused_flag(None, &["--anything".to_owned()]), None);
}

#[test]
fn a_refused_flag_is_exit_2_and_nothing_ran() -> Result<()> {
    let scratch = Scratch::new();
    let witness = scratch.path().join("ran");
    let mut tool = tool(&format!("touch {}", witness.display()));
    run_of(&mut tool).flags = Some(vec!["-s".into(), "--".into()]);
    let output = run(&tool, &["log", "--output=x"])?;
    let text = "`p` does not take \"--output=x\": allowed are -s, --\n".to_owned();
    assert_eq!(output, Output::of(text, 2));
    assert!(!witness.exists());
    Ok(())
}

#[test]
fn nul_and_too_many_bytes_are_refused() {
    check_refused(&["a\0b"], Kind::Usage, "an argument cannot hold a NUL byte");
    let part = "x".repeat(100_000);
    check_refused(
        &[&*part; 11],
        Kind::TooLarge,
        "the arguments are longer than 1 MiB; long text can come on standard input",
    );
    check_refused(
        &[&"x".repeat(128 * 1024)],
        Kind::TooLarge,
        "an argument is longer than 128 KiB; long text can come on standard input",
    );
}

#[test]
fn a_megabyte_of_arguments_is_taken() -> Result<()> {
    let part = "x".repeat(100_000);
    let output = run(&tool("echo $#"), &[&*part; 10])?;
    assert_eq!(output.text, "10\n");
    Ok(())
}

#[test]
fn a_configuration_that_cannot_be_passed_is_named() {
    let config = json!({"long": "x".repeat(128 * 1024)});
    let request = RunCall {
        args: &[],
        stdin: None,
        context: context(),
        config: &config,
        redactor: &Redactor::new(),
    };
    let asker = Asker { cancel: &Cancel::never(), line: None };
    let refused = call(&tool("true"), &request, asker, MAX_OUTPUT).err();
    assert_eq!(
        refused.map(|it| it.to_string()).as_deref(),
        Some("BEIGE_CONTEXT is longer than 128 KiB, and Linux passes on no more")
    );
}

#[test]
fn a_program_that_cannot_start_is_a_clear_error() {
    let check = |program: Program, want: &str| {
        // A folder of PATH that may not be read would hide what is missing.
        let env = BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]);
        let mut broken = tool("");
        *run_of(&mut broken) = Run { program, env, args: Vec::new(), flags: None };
        let failed = run(&broken, &[]).err().map(|it| it.to_string());
        assert_eq!(failed, Some(format!("run the tool `p`: {want}")));
    };
    let scratch = Scratch::new();
    let not_there = |program: &str| {
        format!(
            "its program `{program}`, the interpreter named in the program's first line, or the \
             plugin's folder is not there"
        )
    };
    let absent = "beige-no-such-program";
    check(Program::OnPath(absent.into()), &not_there(absent));
    let script = scratch.path().join("no-interpreter");
    // Written by a child: a process that a test beside this one starts would
    // otherwise hold it open for writing for a moment.
    let write = format!("echo '#!/no/such' > {0}; chmod +x {0}", script.display());
    assert!(run(&tool(&write), &[]).is_ok_and(|it| it.exit_code == 0));
    check(Program::Inside(script), &not_there("no-interpreter"));
    let plain = scratch.write("plain", "");
    check(
        Program::Inside(plain),
        "its program `plain` may not be executed, or a folder of PATH not be read",
    );
}
