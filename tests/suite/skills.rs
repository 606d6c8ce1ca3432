//! Skills as agents meet them: told in the system prompt, read in the sandbox,
//! never changed there; and what is wrong with one as a person meets it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::{
    ModelServer, World, on_each_runtime, provider_at, says, some_world, wait_until,
};

/// The skill of each form, `review` with a context file and `pdf` with front
/// matter.
fn write_skills(world: &World) {
    write(world, "review/skill.json", r#"{"name": "review", "description": "How we review."}"#);
    write(world, "review/README.md", "Always be kind to authors.\n");
    write(world, "review/.env", "KEY=not-to-be-seen");
    let front_matter = "---\nname: pdf\ndescription: Reads PDF files.\n---\n";
    write(world, "pdf/SKILL.md", &format!("{front_matter}Call pdftotext.\n"));
    write(world, "pdf/references/forms.md", "forms\n");
}

fn write(world: &World, path: &str, text: &str) {
    let path = folder(world).join(path);
    fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    fs::write(path, text).expect("written");
}

fn folder(world: &World) -> PathBuf {
    world.root.join("skills")
}

const BOTH: &str =
    "skills: { review: { path: './skills/review' }, pdf: { path: './skills/pdf' } },";

/// Both skills, of which agent `a` has these.
fn configure(world: &World, skills: &str) {
    let fields = format!("skills: [{skills}],");
    world.write_config(&world.agent("a", "", &fields), BOTH);
}

#[test]
fn an_agent_reads_its_skills_and_changes_none() {
    on_each_runtime(|world| {
        write_skills(world);
        configure(world, "'review', 'pdf'");
        let line = "cd /skills && find . -type f | sort && cat pdf/references/forms.md";
        let want = "./pdf/SKILL.md\n./pdf/references/forms.md\n./review/README.md\n\
                    ./review/skill.json\nforms\n";
        assert_eq!(world.sh(line).expect(0).text(), want);
        let line = "for it in /skills /skills/pdf /skills/pdf/references; do \
                    (echo x > $it/planted) 2>/dev/null && echo wrote $it; done; \
                    (echo x >> /skills/pdf/SKILL.md) 2>/dev/null && echo wrote SKILL.md; \
                    rm -f /skills/review/README.md 2>/dev/null; \
                    mv /skills/pdf /tmp/pdf 2>/dev/null && echo moved; \
                    cat /skills/review/README.md";
        assert_eq!(world.sh(line).expect(0).text(), "Always be kind to authors.\n");
        world.start_gateway();
        let (text, failed) = world.tool("read", json!({"path": "/skills/pdf/SKILL.md"}));
        assert!(!failed && text.contains("Call pdftotext."), "{text}");
        let (text, failed) =
            world.tool("write", json!({"path": "/skills/pdf/SKILL.md", "content": "x"}));
        assert!(failed, "{text}");
    });
}

#[test]
fn other_skills_make_another_sandbox_and_another_text_does_not() {
    on_each_runtime(|world| {
        write_skills(world);
        configure(world, "'review', 'pdf'");
        world.sh("touch /tmp/here; ls /skills/pdf").expect(0);
        write(world, "pdf/SKILL.md", "---\nname: pdf\ndescription: New.\n---\nCall qpdf.\n");
        let line = "test -e /tmp/here && cat /skills/pdf/SKILL.md";
        assert!(world.sh(line).expect(0).text().ends_with("Call qpdf.\n"));
        configure(world, "'review'");
        let line = "test -e /tmp/here && echo same; test -e /skills/pdf || echo gone; cat /skills/review/README.md";
        assert_eq!(world.sh(line).expect(0).text(), "gone\nAlways be kind to authors.\n");
    });
}

#[test]
fn the_model_is_told_the_text_of_one_form_and_the_place_of_the_other() {
    let world = some_world();
    write_skills(&world);
    let server = ModelServer::new();
    server.play([says("hello")]);
    let agents = world.agent("a", "", "skills: ['pdf', 'review'],") + &world.agent("b", "", "");
    world.write_config_of(&provider_at(server.port(), ""), &agents, BOTH);
    world.start_gateway();
    assert_eq!(world.answer("api:1", "hi"), "hello");
    let said = server.last().said();
    let system = &said[0];
    let context = world.get("/api/agents").json()["agents"][0]["skillContext"].clone();
    let context = context.as_str().expect("a text");
    assert!(system.starts_with("system: ") && system.contains(context.trim_end()), "{system}");
    for told in [
        "### pdf\nReads PDF files.\nRead /skills/pdf/SKILL.md",
        "### review\nHow we review.\n\nAlways be kind to authors.",
    ] {
        assert!(context.contains(told), "{context}");
    }
    assert!(!system.contains("pdftotext"), "{system}");
    let agents = world.get("/api/agents").json();
    assert_eq!(agents["agents"][0]["skills"], json!(["pdf", "review"]));
    assert_eq!(agents["agents"][1]["skills"], json!([]));
    assert_eq!(agents["agents"][1]["skillContext"], "");
    let config = world.get("/api/config").json();
    assert_eq!(config["agents"]["a"]["skills"], json!(["pdf", "review"]));
    // Another text is told by the next start.
    write(&world, "review/README.md", "Be quick.\n");
    world.run(["gateway", "restart"]).expect(0);
    server.play([says("again")]);
    assert_eq!(world.answer("api:1", "more"), "again");
    let system = &server.last().said()[0];
    assert!(system.contains("Be quick.") && !system.contains("Always be kind"), "{system}");
}

/// Findings of `config check --json` as `line:column path: message`.
fn findings(world: &World, code: i32) -> Vec<String> {
    let document = world.run(["config", "check", "--json"]).expect(code).json();
    let line = |it: &Value| {
        let text = |key: &str| it[key].as_str().unwrap_or_default().to_owned();
        format!("{}:{} {}: {}", it["line"], it["column"], text("path"), text("message"))
    };
    document["findings"].as_array().expect("findings").iter().map(line).collect()
}

#[test]
fn what_is_wrong_with_skills_is_found_with_its_place() {
    let world = some_world();
    write_skills(&world);
    write(
        &world,
        "review/skill.json",
        r#"{"name": "review", "description": "d",
        "requires": {"tools": ["git"]}}"#,
    );
    write(&world, "odd/SKILL.md", "---\nname: odd\ndescription: [a]\n---\n");
    let skills =
        "skills: {\n review: { path: './skills/review' },\n odd: { path: './skills/odd' },\n},";
    world.write_config(&world.agent("a", "", "skills: ['review', 'reviw', 'odd'],"), skills);
    let found = findings(&world, 78);
    let [first, second, third] = found.as_slice() else { panic!("{found:#?}") };
    let begin = "agents.a.skills[0]: `review` requires the tool `git`, which is not among";
    assert!(first.contains(begin) && first.contains("registered: notes"), "{first}");
    let begin = "agents.a.skills[1]: `reviw` is not a registered skill; did you mean `review`?";
    assert!(second.contains(begin), "{second}");
    let begin = "skills.odd.path: SKILL.md: line 3: `description` is a list";
    assert!(third.starts_with("7:") && third.contains(begin), "{third}");
    // The start and the doctor say the same.
    let done = world.run(["gateway", "start"]).expect(78);
    assert!(done.stderr.contains("did you mean `review`?"), "{}", done.stderr);
    let told = world.run(["doctor", "--json"]).json();
    let names_it =
        |it: &Value| it["found"].as_str().is_some_and(|it| it.contains("skills.odd.path"));
    assert!(told["checks"].as_array().expect("checks").iter().any(names_it), "{told}");
}

#[test]
fn a_skill_that_an_agent_could_change_on_the_host_is_refused() {
    let world = some_world();
    let shared = world.root.join("shared");
    let mine = shared.join("mine");
    let writes = "which the agent `a` can write to";
    for (place, mounts, want) in [
        (world.workspace("a").join("mine"), "", writes),
        (mine.clone(), "", ""),
        (mine.clone(), "'./shared': '/shared:ro'", ""),
        (mine.clone(), "'./shared': '/shared'", writes),
        (mine, "'./shared/mine/deep': '/deep'", writes),
        (world.home(), "", "is or contains the state folder"),
        (world.root.clone(), "", "is or contains the state folder"),
    ] {
        fs::create_dir_all(place.join("deep")).expect("a folder");
        fs::write(place.join("SKILL.md"), "---\nname: mine\ndescription: d\n---\n")
            .expect("written");
        let skills = format!("skills: {{ mine: {{ path: '{}' }} }},", place.display());
        let mounts = format!("extraMounts: {{ {mounts} }},");
        world.write_config(&world.agent("a", &mounts, "skills: ['mine'],"), &skills);
        let found = findings(&world, if want.is_empty() { 0 } else { 78 });
        assert_eq!(found.len(), usize::from(!want.is_empty()), "{place:?}: {found:#?}");
        assert!(found.iter().all(|it| it.contains(want)), "{place:?}: {found:#?}");
    }
}

#[test]
fn an_agent_is_shown_the_skills_of_its_plugins_that_their_manifests_name() {
    let world = some_world();
    let folder = world.root.join("p");
    fs::create_dir_all(folder.join("skills/how")).expect("folders");
    let skill = "---\nname: how\ndescription: How to.\n---\nLike this.\n";
    fs::write(folder.join("skills/how/SKILL.md"), skill).expect("written");
    let manifest = r#"{"name": "p", "command": ["./server"], "provides": {"skills": ["how"]}}"#;
    fs::write(folder.join("plugin.json"), manifest).expect("written");
    let server = "#!/usr/bin/env python3\nimport json, sys\nfor line in sys.stdin:\n    \
        id = json.loads(line).get('id')\n    \
        skills = [{'name': 'how', 'path': './skills/how'}, {'name': 'loose', 'path': './x'}]\n    \
        beige = {'version': 1, 'tools': [], 'skills': skills}\n    \
        answer = {'capabilities': {'experimental': {'beige': beige}}}\n    \
        if id: print(json.dumps({'jsonrpc': '2.0', 'id': id, 'result': answer}), flush=True)\n";
    fs::write(folder.join("server"), server).expect("written");
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(folder.join("server"), mode).expect("executable");
    let agents = world.agent("a", "", "") + &world.agent("b", "", "");
    world.write_config(&agents.replacen("'notes'", "'p'", 1), "");
    let text = fs::read_to_string(world.config_file()).expect("a configuration");
    let text = text.replace("plugins: {", "plugins: { p: { path: './p' },");
    fs::write(world.config_file(), text).expect("written");
    world.start_gateway();
    assert_eq!(
        world.sh("ls /skills; tail -1 /skills/how/SKILL.md").expect(0).text(),
        "how\nLike this.\n"
    );
    let agents = world.get("/api/agents").json();
    assert_eq!(agents["agents"][0]["skills"], json!(["how"]));
    assert_eq!(agents["agents"][1]["skills"], json!([]));
    let warned = "plugin 'p' gives the skill `loose`, which `provides.skills`";
    wait_until("it is warned of", || world.gateway_log().contains(warned));
    assert!(!world.gateway_log().contains("skill `how`"), "{}", world.gateway_log());
}

#[test]
fn a_plugin_that_an_agent_could_change_on_the_host_is_refused() {
    let world = some_world();
    let writes = "which the agent `a` can write to";
    let inside = world.workspace("a").join("p");
    fs::create_dir_all(&inside).expect("a folder");
    fs::write(inside.join("plugin.json"), r#"{"name": "p", "command": ["./server"]}"#)
        .expect("written");
    fs::write(inside.join("server"), "#!/bin/sh\n").expect("written");
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(inside.join("server"), mode).expect("executable");
    let inside = inside.display();
    for (entry, code, want) in [
        (format!("path: '{inside}'"), 78, writes),
        (format!("path: '{inside}/../..'"), 78, writes),
        (format!("path: '{}'", world.home().display()), 78, "contains the state folder"),
        (format!("command: ['{inside}/server']"), 78, writes),
        (format!("command: ['{inside}/not-yet']"), 78, writes),
        (format!("command: ['sh', '{inside}/server']"), 0, "if this is code"),
        (format!("command: ['sh', '{inside}']"), 0, ""),
    ] {
        world.write_config(&world.agent("a", "", ""), "");
        let text = fs::read_to_string(world.config_file()).expect("a configuration");
        let text = text.replace("plugins: {", &format!("plugins: {{ p: {{ {entry} }},"));
        fs::write(world.config_file(), text).expect("written");
        let found = findings(&world, code);
        assert_eq!(found.len(), usize::from(!want.is_empty()), "{entry}: {found:#?}");
        assert!(found.iter().all(|it| it.contains(want)), "{entry}: {found:#?}");
    }
}

#[test]
fn names_of_skills_are_checked() {
    let world = some_world();
    for name in ["read", "A", "a b", "-a", "a.b", "sh"] {
        let skills = format!("skills: {{ '{name}': {{ path: './skills/x' }} }},");
        world.write_config(&world.agent("a", "", ""), &skills);
        let found = findings(&world, 78);
        assert!(found.len() == 1 && found[0].contains("name"), "{name}: {found:#?}");
    }
}
