//! Skills in both forms: what is told of them, what is refused with its place,
//! and that nothing outside of a skill's folder is read.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use super::*;
use crate::plugin::tests::{Scratch, agent, echo, lines, plugin};

/// A skill of each name that has a folder below `s`.
fn folders(scratch: &Scratch) -> BTreeMap<String, PathBuf> {
    let entries = fs::read_dir(scratch.path().join("s")).into_iter().flatten().flatten();
    entries.map(|it| (it.file_name().to_string_lossy().into_owned(), it.path())).collect()
}

fn load_for(scratch: &Scratch, agents: &Agents) -> Result<Skills> {
    let home = Home::new("/home/beige");
    let registry = Registry::load(&[echo(scratch)], &BTreeMap::new(), &home)?;
    Skills::load(&folders(scratch), agents, &home, &registry)
}

fn load(scratch: &Scratch) -> Result<Skills> {
    load_for(scratch, &BTreeMap::new())
}

fn write_json(scratch: &Scratch, name: &str, manifest: &Value) {
    scratch.write(&format!("s/{name}/skill.json"), &manifest.to_string());
}

/// Skill `x` with these files is refused with that line, told at its `path`;
/// `DIR` stands for its folder.
#[track_caller]
fn check_refused(files: &[(&str, &str)], want: &str) {
    let scratch = Scratch::new();
    for (name, text) in files {
        scratch.write(&format!("s/x/{name}"), text);
    }
    check_scratch(&scratch, want);
}

#[track_caller]
fn check_scratch(scratch: &Scratch, want: &str) {
    let folder = scratch.path().join("s/x").display().to_string();
    let found: Vec<String> =
        lines(load(scratch)).iter().map(|it| it.replace(&folder, "DIR")).collect();
    assert_eq!(found, [format!("skills.x.path: {want}")]);
}

fn text(skills: &Skills, names: &[&str]) -> String {
    skills.context_text(&names.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>())
}

#[test]
fn a_context_file_is_told_whole_and_front_matter_by_its_description() -> Result<()> {
    let scratch = Scratch::new();
    write_json(&scratch, "review", &json!({"name": "review", "description": "How we\nreview."}));
    scratch.write("s/review/README.md", "\u{feff}# Reviews\n\nBe kind.\n");
    scratch.write("s/review/SKILL.md", "not told");
    write_json(
        &scratch,
        "bare",
        &json!({"name": "bare", "description": "Only files.", "version": "1"}),
    );
    let named = json!({"name": "named", "description": "d", "contextFile": "docs/a.md"});
    write_json(&scratch, "named", &named);
    scratch.write("s/named/docs/a.md", "of docs");
    scratch
        .write("s/pdf/SKILL.md", "---\nname: pdf\ndescription: >\n  Reads\n  PDFs.\n---\nhidden");
    let skills = load(&scratch)?;
    assert_eq!(skills.warnings(), [] as [&str; 0]);
    let of_review = "### review\nHow we review.\n\n# Reviews\n\nBe kind.\n";
    let of_pdf = "### pdf\nReads PDFs.\nRead /skills/pdf/SKILL.md before you do such work.\n";
    assert_eq!(
        text(&skills, &["pdf", "review", "gone"]),
        format!("{INTRODUCTION}\n\n{of_pdf}\n{of_review}")
    );
    assert!(text(&skills, &["bare"]).ends_with("### bare\nOnly files.\nSee /skills/bare.\n"));
    assert!(text(&skills, &["named"]).ends_with("### named\nd\n\nof docs\n"));
    assert_eq!(text(&skills, &[]), "");
    assert_eq!(
        skills.copies(&["pdf".to_owned()]),
        BTreeMap::from([("pdf".to_owned(), "/home/beige/data/skills/pdf".into())])
    );
    Ok(())
}

#[test]
fn a_long_context_file_is_cut_between_characters_with_a_note() -> Result<()> {
    let scratch = Scratch::new();
    write_json(&scratch, "x", &json!({"name": "x", "description": "d"}));
    scratch.write("s/x/SKILL.md", &format!("x{}", "那".repeat(30_000)));
    let skills = load(&scratch)?;
    assert_eq!(
        skills.warnings(),
        ["skills.x.path: skill.json: contextFile: SKILL.md has 90001 bytes, of which the agent \
          is told the first 65536"]
    );
    let told = text(&skills, &["x"]);
    assert!(told.ends_with("那\n\n(The rest of SKILL.md is left out: it is too long.)\n"));
    assert!(told.len() > 65_000 && told.len() < 66_000, "{}", told.len());
    Ok(())
}

#[test]
fn what_is_wrong_with_a_skill_is_said_at_its_path() {
    check_refused(
        &[("a", "")],
        "DIR holds neither skill.json nor SKILL.md, one of which is needed",
    );
    check_refused(
        &[("skill.json", "{")],
        "skill.json: is not JSON: EOF while parsing an object at line 1 column 1",
    );
    check_refused(&[("skill.json", "[]")], "skill.json: the file: must be an object, is an array");
    check_refused(
        &[("skill.json", r#"{"name": "x", "description": " "}"#)],
        "skill.json: description: is required",
    );
    check_refused(
        &[("skill.json", r#"{"name": "y", "description": "d"}"#)],
        "skill.json: name: it calls itself `y`; the entry must have that name",
    );
    check_refused(
        &[("skill.json", r#"{"name": "x", "description": "d", "requires": {"tools": "git"}}"#)],
        "skill.json: requires.tools: must be an array of strings, is a string",
    );
    check_refused(
        &[("SKILL.md", "# Title\n")],
        "SKILL.md: line 1: must be `---`, with `name` and `description` below it, or there must be \
         a skill.json",
    );
    check_refused(&[("SKILL.md", "---\nname: x\n---\n")], "SKILL.md: `description` is missing");
    check_refused(
        &[("SKILL.md", "---\nname: x\ndescription: [a]\n---\n")],
        "SKILL.md: line 3: `description` is a list, a map or something else that is not read here; \
         write a text, in quotes if it begins with such a sign",
    );
    check_refused(
        &[("SKILL.md", &format!("---\nname: x\ndescription: {}\n---\n", "é".repeat(1025)))],
        "SKILL.md: description: has 1025 characters, of which there may be 1024",
    );
    check_refused(
        &[("SKILL.md", &"a".repeat(1024 * 1024 + 1))],
        "SKILL.md: is larger than 1024 KiB",
    );
    let absent = Scratch::new();
    let _ = symlink("nowhere", absent.path().join("s"));
    let skills = BTreeMap::from([("x".to_owned(), absent.path().join("x"))]);
    let mut findings = Findings::default();
    let home = Home::new("/home/beige");
    let registry = Registry::examine(&[], &BTreeMap::new(), &home, &mut findings);
    Skills::examine(&skills, &BTreeMap::new(), &home, &registry, &mut findings);
    assert!(findings.lines().eq([format!(
        "skills.x.path: read {}/x: No such file or directory (os error 2)",
        absent.path().display()
    )]));
}

#[test]
fn an_unknown_key_is_a_warning() -> Result<()> {
    let scratch = Scratch::new();
    let manifest =
        json!({"name": "a", "description": "d", "requirs": {}, "requires": {"tool": []}});
    write_json(&scratch, "a", &manifest);
    scratch.write("s/b/SKILL.md", "---\nname: b\ndescription: d\nallowd: x\n---\n");
    assert_eq!(
        load(&scratch)?.warnings(),
        [
            "skills.a.path: skill.json: requirs: unknown key, ignored; did you mean `requires`?",
            "skills.a.path: skill.json: requires.tool: unknown key, ignored; did you mean `tools`?",
            "skills.b.path: SKILL.md: allowd: unknown key, ignored",
        ]
    );
    Ok(())
}

#[test]
fn nothing_outside_of_the_folder_is_read() -> std::io::Result<()> {
    let named = |file: &str| json!({"name": "x", "description": "d", "contextFile": file});
    for file in ["../../secret", "out", "up/secret", "./up/s/../secret"] {
        let scratch = Scratch::new();
        let secret = scratch.write("secret", "not to be told");
        write_json(&scratch, "x", &named(file));
        symlink(&secret, scratch.path().join("s/x/out"))?;
        symlink("../..", scratch.path().join("s/x/up"))?;
        let want = format!("skill.json: contextFile: {file} leads out of the skill's folder");
        check_scratch(&scratch, &want);
    }
    let scratch = Scratch::new();
    let secret = scratch.write("secret", "not to be told").display().to_string();
    write_json(&scratch, "x", &named(&secret));
    let want = format!("skill.json: contextFile: {secret} leads out of the skill's folder");
    check_scratch(&scratch, &want);
    // Nor is a link followed to what has the right form.
    let scratch = Scratch::new();
    let real = scratch.write("SKILL.md", "---\nname: x\ndescription: d\n---\n");
    fs::create_dir_all(scratch.path().join("s/x"))?;
    symlink(real, scratch.path().join("s/x/SKILL.md"))?;
    check_scratch(&scratch, "SKILL.md: is a link, and no link gets into a sandbox; copy the file");
    let scratch = Scratch::new();
    scratch.write("s/x/real.md", "---\nname: x\ndescription: d\n---\n");
    symlink("real.md", scratch.path().join("s/x/SKILL.md"))?;
    let want = "SKILL.md: is a link, and no link gets into a sandbox; copy the file";
    check_scratch(&scratch, want);
    Ok(())
}

#[test]
fn what_is_no_file_is_neither_opened_nor_waited_for() -> std::io::Result<()> {
    for name in ["skill.json", "SKILL.md"] {
        let scratch = Scratch::new();
        scratch.write("s/x/a", "");
        let fifo = scratch.path().join("s/x").join(name);
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU)?;
        check_scratch(&scratch, &format!("{name}: is not a regular file"));
    }
    let manifest = r#"{"name": "x", "description": "d", "contextFile": "."}"#;
    let want = "skill.json: contextFile: . is a folder, not a file";
    check_refused(&[("skill.json", manifest)], want);
    let manifest = r#"{"name": "x", "description": "d", "contextFile": "no.md"}"#;
    let want =
        "skill.json: contextFile: no.md cannot be read: No such file or directory (os error 2)";
    check_refused(&[("skill.json", manifest)], want);
    let scratch = Scratch::new();
    write_json(&scratch, "x", &json!({"name": "x", "description": "d"}));
    fs::write(scratch.path().join("s/x/README.md"), b"\xff")?;
    check_scratch(&scratch, "skill.json: contextFile: README.md is not UTF-8 text");
    Ok(())
}

/// An agent with these tools and skills, of which `review` requires `echo` and
/// `read`, and the skill `style`; `broken` is no skill.
#[track_caller]
fn check_agent(tools: &[&str], skills: &[&str], want: &[&str]) {
    let scratch = Scratch::new();
    let requires = json!({"tools": ["read", "echo"], "skills": ["style"]});
    let manifest = json!({"name": "review", "description": "d", "requires": requires});
    write_json(&scratch, "review", &manifest);
    write_json(&scratch, "style", &json!({"name": "style", "description": "d"}));
    scratch.write("s/broken/README.md", "");
    let skills = skills.iter().map(|it| (*it).to_owned()).collect();
    let agent = Agent { skills, ..agent(tools, json!({})) };
    let loaded = load_for(&scratch, &BTreeMap::from([("a".to_owned(), agent)]));
    let found: Vec<String> =
        lines(loaded).into_iter().filter(|it| !it.starts_with("skills.broken")).collect();
    assert_eq!(found, want);
}

#[test]
fn an_agents_skills_are_there_with_what_they_require() {
    check_agent(&["echo"], &["review", "style"], &[]);
    check_agent(&[], &["style", "broken"], &[]);
    check_agent(
        &["echo.raw"],
        &["reveiw", "review"],
        &[
            "agents.a.skills[0]: `reveiw` is not a registered skill; did you mean `review`?; \
             registered: review, style",
            "agents.a.skills[1]: `review` requires the tool `echo`, which is not among this \
             agent's `tools`; registered: echo, echo.raw",
            "agents.a.skills[1]: `review` requires the skill `style`, which is not among this \
             agent's `skills`; registered: review, style",
        ],
    );
    check_agent(
        &[],
        &["style", "style"],
        &["agents.a.skills[1]: `style` is given twice; leave one out"],
    );
}

#[test]
fn a_copy_is_made_for_every_skill_without_what_looks_secret() -> Result<()> {
    let scratch = Scratch::new();
    let home = Home::new(scratch.path().join("home"));
    write_json(&scratch, "x", &json!({"name": "x", "description": "d"}));
    scratch.write("s/x/.env", "KEY=secret");
    let registry = Registry::load(&[], &BTreeMap::new(), &home)?;
    let skills = Skills::load(&folders(&scratch), &BTreeMap::new(), &home, &registry)?;
    skills.refresh_copies()?;
    assert!(home.skill("x").join("skill.json").is_file());
    assert!(!home.skill("x").join(".env").exists());
    Ok(())
}

/// A plugin `p` with these skills, and the files of two of them.
fn with_skills(scratch: &Scratch, skills: &Value) -> (Registry, Agents) {
    scratch.write("p/skills/how/SKILL.md", "---\nname: how\ndescription: How to.\n---\n");
    scratch.write("p/docs/README.md", "Be kind.\n");
    scratch.write("p/docs/secret.txt", "");
    let manifest = json!({"name": "p", "tools": [{"name": "p", "run": ["./tool"]}],
        "private": ["secret*", "hidden/**"], "provides": {"tools": ["p"], "skills": skills}});
    let entry = plugin(scratch, "p", &manifest);
    let registry = Registry::load(&[entry], &BTreeMap::new(), &Home::new(scratch.path()));
    let with = agent(&["p"], json!({}));
    let without = Agent { name: "b".into(), ..agent(&[], json!({})) };
    let agents = by_name([("a".to_owned(), with), ("b".to_owned(), without)]);
    (registry.unwrap_or_else(|it| panic!("{it}")), agents)
}

#[test]
fn an_agent_has_the_skills_of_its_plugins_without_what_is_private() -> Result<()> {
    let scratch = Scratch::new();
    let described = json!({"name": "kind", "path": "./docs", "description": "Kindness."});
    let (registry, agents) = with_skills(&scratch, &json!(["how", described]));
    let home = Home::new(scratch.path());
    let skills = Skills::load(&BTreeMap::new(), &agents, &home, &registry)?;
    assert_eq!(
        (skills.of(&agents["a"]), skills.of(&agents["b"]).len()),
        (vec!["how".to_owned(), "kind".to_owned()], 0)
    );
    let told = text(&skills, &["how", "kind"]);
    assert!(told.contains("### how\nHow to.\nRead /skills/how/SKILL.md"), "{told}");
    assert!(told.contains("### kind\nKindness.\n\nBe kind.\n"), "{told}");
    home.create()?;
    registry.refresh_packages()?;
    skills.refresh_copies()?;
    assert!(home.skill("how").join("SKILL.md").is_file());
    assert!(home.skill("kind").join("README.md").is_file());
    assert!(!home.skill("kind").join("secret.txt").exists());
    Ok(())
}

#[test]
fn what_is_wrong_with_a_plugins_skill_is_said_at_the_plugin() {
    let check = |skill: Value, folders: &[&str], want: &str| {
        let scratch = Scratch::new();
        scratch.write("p/hidden/x/SKILL.md", "---\nname: x\ndescription: d\n---\n");
        let (registry, agents) = with_skills(&scratch, &json!([skill]));
        scratch.write("s/how/SKILL.md", "---\nname: how\ndescription: d\n---\n");
        let link = scratch.path().join("p/out");
        std::os::unix::fs::symlink(scratch.path().join("s/how"), link).expect("a link");
        let folders = folders.iter().map(|it| ((*it).to_owned(), scratch.path().join("s/how")));
        let (home, folders) = (Home::new(scratch.path()), by_name(folders));
        let found = lines(Skills::load(&folders, &agents, &home, &registry));
        let found: Vec<String> =
            found.iter().map(|it| it.replace(&*scratch.path().to_string_lossy(), "DIR")).collect();
        assert_eq!(found, [format!("plugins.p.path: its skill {want}")]);
    };
    check(json!("how"), &["how"], "`how` has the name of another one");
    check(
        json!("gone"),
        &[],
        "`gone`: read DIR/p/skills/gone: No such file or directory (os error 2)",
    );
    check(json!({"name": "how", "path": "out"}), &[], "`how` leads out of the plugin's folder");
    check(json!({"name": "x", "path": "hidden/x"}), &[], "`x` lies where `private` hides it");
    check(
        json!({"name": "kind", "path": "docs"}),
        &[],
        "`kind`: DIR/p/docs holds neither skill.json nor SKILL.md, one of which is needed",
    );
}

#[test]
fn a_plugin_may_give_skills_alone() -> Result<()> {
    let scratch = Scratch::new();
    scratch.write("p/skills/how/SKILL.md", "---\nname: how\ndescription: How to.\n---\n");
    let entry = plugin(&scratch, "p", &json!({"name": "p", "provides": {"skills": ["how"]}}));
    let home = Home::new(scratch.path());
    let registry = Registry::load(&[entry], &BTreeMap::new(), &home)?;
    let with = Agent { skills: vec!["how".to_owned()], ..agent(&[], json!({})) };
    let agents = by_name([("a".to_owned(), with.clone())]);
    let skills = Skills::load(&BTreeMap::new(), &agents, &home, &registry)?;
    assert_eq!(skills.of(&with), ["how"]);
    assert!(text(&skills, &["how"]).contains("How to."));
    Ok(())
}
