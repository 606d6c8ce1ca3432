//! Tests of the shelf: what is put on it, taken back, replaced and removed.

use super::*;
use crate::config::Draft;
use crate::plugin::tests::Scratch as Folder;

const MANIFEST: &str = r#"{"name": "NAME", "tools": [{"name": "NAME", "run": ["./tool"]}],
    "defaultConfig": {"key": "${SECRET}", "list": ["a"]}}"#;

fn write_plugin(folder: &Folder, at: &str, name: &str) {
    folder.write(&format!("{at}/plugin.json"), &MANIFEST.replace("NAME", name));
    folder.write_program(&format!("{at}/tool"), "#!/bin/sh\n");
}

fn shelf(folder: &Folder) -> Shelf {
    Shelf::open(&Home::new(folder.path().join("home"))).unwrap_or_else(|it| panic!("{it}"))
}

fn staged(folder: &Folder, shelf: &Shelf, at: &str) -> Result<Staged> {
    let source = Source::parse(&folder.path().join(at).to_string_lossy())?;
    let nothing = |_: &str| None;
    let deadline = std::time::Instant::now();
    shelf.stage(source, &Net { environment: &nothing, deadline, progress: &|_| () })
}

fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.flatten().map(|it| it.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn one_plugin_gets_a_folder_of_its_name_and_several_share_one() -> Result<()> {
    let folder = Folder::new();
    write_plugin(&folder, "one/deep/er", "a");
    write_plugin(&folder, "Tool Kit/x", "b");
    write_plugin(&folder, "Tool Kit/y/c", "c");
    let shelf = shelf(&folder);
    staged(&folder, &shelf, "one")?.place()?.keep();
    let kit = staged(&folder, &shelf, "Tool Kit")?;
    let home = folder.path().join("home");
    let places: Vec<_> = kit.plugins.iter().map(|it| it.folder.clone()).collect();
    assert_eq!(places, [home.join("packages/tool-kit/x"), home.join("packages/tool-kit/y/c")]);
    kit.place()?.keep();
    assert_eq!(names(&home.join("plugins")), ["a"]);
    assert_eq!(names(&home.join("plugins/a")), ["plugin.json", "tool"]);
    assert_eq!(names(&home.join("packages/tool-kit")), ["x", "y"]);
    Ok(())
}

#[test]
fn what_is_not_kept_is_taken_back() -> Result<()> {
    let folder = Folder::new();
    write_plugin(&folder, "s", "a");
    let home = folder.path().join("home");
    {
        let shelf = shelf(&folder);
        drop(staged(&folder, &shelf, "s")?);
        drop(staged(&folder, &shelf, "s")?.place()?);
        assert_eq!(names(&home), ["data"]);
        staged(&folder, &shelf, "s")?.place()?.keep();
    }
    folder.write("s/new", "1");
    let shelf = shelf(&folder);
    let again = staged(&folder, &shelf, "s")?;
    assert_eq!(again.replaces(), Some(&*home.join("plugins/a")));
    let placed = again.place()?;
    assert_eq!(names(&home.join("plugins/a")), ["new", "plugin.json", "tool"]);
    drop(placed);
    assert_eq!(names(&home.join("plugins/a")), ["plugin.json", "tool"]);
    assert_eq!(names(&home.join("plugins")), ["a"]);
    Ok(())
}

#[test]
fn two_names_are_exchanged_also_in_two_steps() -> io::Result<()> {
    let folder = Folder::new();
    for (at, text) in [("x/new/f", "new"), ("x/target/f", "old")] {
        folder.write(at, text);
    }
    let at = |it: &str| folder.path().join("x").join(it);
    swap(&at("new"), &at("target"), &at("aside"))?;
    assert_eq!((fs::read(at("target/f"))?, fs::read(at("new/f"))?), (b"new".into(), b"old".into()));
    Ok(())
}

#[test]
fn what_a_killed_one_left_is_cleared_and_only_one_is_at_work() {
    let folder = Folder::new();
    folder.write("home/plugins/.staging-1/plugin.json", "{}");
    let shelf = shelf(&folder);
    assert_eq!(names(&folder.path().join("home")), ["data"]);
    let path = folder.path().join("home/data/plugins.lock");
    let other = file_lock::hold(&path, Duration::ZERO).map_err(|it| it.kind());
    assert_eq!(other.err(), Some(Kind::Busy));
    drop(shelf);
}

#[test]
fn only_what_was_installed_is_removed() -> Result<()> {
    let folder = Folder::new();
    write_plugin(&folder, "s", "a");
    write_plugin(&folder, "kit/x", "b");
    write_plugin(&folder, "kit/y", "c");
    let shelf = shelf(&folder);
    staged(&folder, &shelf, "s")?.place()?.keep();
    staged(&folder, &shelf, "kit")?.place()?.keep();
    let home = folder.path().join("home");
    let link = home.join("plugins/mine");
    std::os::unix::fs::symlink(folder.path().join("s"), &link).unwrap_or_default();
    for own in ["s", "home/plugins", "home/plugins/../data", "home/plugins/mine", "home/plugins/no"]
    {
        assert!(!shelf.discard(&folder.path().join(own), &[])?, "{own}");
    }
    assert!(shelf.discard(&home.join("plugins/a"), &[])?);
    let (b, c) = (home.join("packages/kit/x"), home.join("packages/kit/y"));
    assert!(!shelf.discard(&b, std::slice::from_ref(&c))?);
    assert!(shelf.discard(&b, &[])?);
    assert_eq!(
        (names(&home), names(&home.join("plugins"))),
        (vec!["data".into(), "plugins".into()], vec!["mine".into()])
    );
    assert_eq!(names(&folder.path().join("s")), ["plugin.json", "tool"]);
    Ok(())
}

#[test]
fn what_is_no_sound_plugin_is_refused_and_leaves_nothing() {
    let folder = Folder::new();
    let shelf = shelf(&folder);
    let check = |at: &str, want: &str| {
        let error = staged(&folder, &shelf, at).map_err(|it| it.to_string()).err();
        assert!(error.as_ref().is_some_and(|it| it.contains(want)), "{at}: {error:?}");
        assert_eq!(names(&folder.path().join("home")), ["data"], "{at}");
    };
    folder.write("none/README.md", "");
    check("none", "holds no plugin.json");
    folder.write("broken/deep/plugin.json", r#"{"name": "X", "tools": []}"#);
    check("broken", "deep: plugin.json: name: \"X\" is not [a-z0-9]");
    folder.write("json/plugin.json", "{");
    check("json", "EOF while parsing an object");
    // A source that is one plugin needs no name of a folder.
    let error = staged(&folder, &shelf, "json").map_err(|it| it.to_string()).err();
    assert!(error.as_ref().is_some_and(|it| it.starts_with("plugin.json: ")), "{error:?}");
    write_plugin(&folder, "twice/a", "same");
    write_plugin(&folder, "twice/b", "same");
    check("twice", "two plugins `same`");
    check("home", "it lies among the installed plugins, or they in it");
    write_plugin(&folder, "links/a", "a");
    folder.write("links/secret", "");
    std::os::unix::fs::symlink("../secret", folder.path().join("links/a/out")).unwrap_or_default();
    check("links", "`out` is refused: a link that leads out");
}

#[test]
fn an_entry_is_written_and_an_existing_one_keeps_what_is_a_persons() -> Result<()> {
    let folder = Folder::new();
    write_plugin(&folder, "s", "a");
    let shelf = shelf(&folder);
    let staged = staged(&folder, &shelf, "s")?;
    let file = folder.path().join("home/config.json5");
    let check = |text: &str, want: &str| {
        let mut draft = Draft::new(&file, text)?;
        entry::write(&mut draft, &file, &staged.plugins[0], "/s")?;
        assert_eq!(draft.text(), want);
        Ok::<(), Error>(())
    };
    check(
        "{}",
        "{ plugins: { a: { path: \"./plugins/a\", config: { key: \"$${SECRET}\", list: [\"a\"] }, \
         _source: \"/s\" } } }",
    )?;
    check(
        "{plugins: {a: {path: '/old', env: {KEY: 'secret'}, config: {}}}}",
        "{plugins: {a: {path: './plugins/a', env: {KEY: 'secret'}, config: {}, _source: '/s'}}}",
    )?;
    let same = "{plugins: {a: {path: \"./plugins/a\", _source: '/s'}}}";
    check(same, same)?;
    let served = Draft::new(&file, "{plugins: {a: {command: ['x']}}}")
        .and_then(|mut it| entry::write(&mut it, &file, &staged.plugins[0], "/s"));
    assert_eq!(served.map_err(|it| it.kind()), Err(Kind::Conflict));
    Ok(())
}
