//! Tests of the editor: by example, and over many texts of many habits.

use serde_json::json;

use super::*;

fn draft(text: &str) -> Draft {
    Draft::new(Path::new("f"), text).unwrap_or_else(|it| panic!("{it} in {text}"))
}

fn entry() -> Written {
    let fields = [("path", "./n"), ("_source", "/s")];
    Written::Object(fields.map(|(key, it)| (key.into(), Value::from(it).into())).into())
}

#[track_caller]
fn check_set(text: &str, want: &str) {
    let mut draft = draft(text);
    assert_eq!(draft.set(&["plugins", "n"], entry()).map_err(|it| it.to_string()), Ok(()));
    assert_eq!(draft.text(), want);
}

#[track_caller]
fn check_remove(text: &str, want: &str) {
    let mut draft = draft(text);
    let removed = draft.remove(&["plugins", "n"]).map_err(|it| it.to_string());
    assert_eq!((removed, draft.text()), (Ok(true), want));
}

#[test]
fn an_entry_is_put_behind_the_last_as_that_one_is_written() {
    check_set(
        "{\n  plugins: {\n    a: {}, // of mine\n    // b: {},\n  },\n  x: 1,\n}\n",
        "{\n  plugins: {\n    a: {}, // of mine\n    n: { path: \"./n\", _source: \"/s\" },\n    \
         // b: {},\n  },\n  x: 1,\n}\n",
    );
    check_set(
        "{\r\n\t'plugins': {\r\n\t\t'a': {} /* one\r\n two */ // three\r\n\t}\r\n}",
        "{\r\n\t'plugins': {\r\n\t\t'a': {}, /* one\r\n two */ // three\r\n\t\t'n': { 'path': \
         './n', '_source': '/s' }\r\n\t}\r\n}",
    );
    check_set(
        "{ plugins: { a: {} }, x: '' }",
        "{ plugins: { a: {}, n: { path: './n', _source: '/s' } }, x: '' }",
    );
    check_set(
        "{ plugins: { a: {} /* first */ } }",
        "{ plugins: { a: {}, /* first */ n: { path: \"./n\", _source: \"/s\" } } }",
    );
    check_set(
        "{ plugins: { a: [{}, 1], }, }",
        "{ plugins: { a: [{}, 1], n: { path: \"./n\", _source: \"/s\" }, }, }",
    );
}

#[test]
fn what_is_missing_or_empty_is_made() {
    check_set("{}", "{ plugins: { n: { path: \"./n\", _source: \"/s\" } } }");
    check_set("{x: 1}", "{x: 1, plugins: { n: { path: \"./n\", _source: \"/s\" } }}");
    check_set("{plugins: { }}", "{plugins: { n: { path: \"./n\", _source: \"/s\" } }}");
    check_set(
        "{\n   x: 1\n}",
        "{\n   x: 1,\n   plugins: { n: { path: \"./n\", _source: \"/s\" } }\n}",
    );
    check_set(
        "{\n  \"plugins\": {},\n  \"x\": 1\n}",
        "{\n  \"plugins\": {\n    \"n\": { \"path\": \"./n\", \"_source\": \"/s\" }\n  },\n  \
         \"x\": 1\n}",
    );
    check_set(
        "{\n  plugins: {\n      // a: {\n      // },\n  },\n}",
        "{\n  plugins: {\n      // a: {\n      // },\n      n: { path: \"./n\", _source: \"/s\" \
         },\n  },\n}",
    );
    check_set(
        "{\n  plugins: { /* none */ },\n}",
        "{\n  plugins: { /* none */\n    n: { path: \"./n\", _source: \"/s\" },\n  },\n}",
    );
}

#[test]
fn a_value_is_replaced_in_its_place() {
    let mut draft = draft("{ plugins: { n: {path: 'old' /* p */, env: {K: 'secret'}} } } // end");
    let done = draft.set(&["plugins", "n", "path"], json!("it's"));
    assert_eq!(done.map_err(|it| it.to_string()), Ok(()));
    let want = "{ plugins: { n: {path: 'it\\'s' /* p */, env: {K: 'secret'}} } } // end";
    assert_eq!(draft.text(), want);
}

#[test]
fn a_long_value_stands_on_lines_of_its_own() {
    let mut draft = draft("{\n  x: 1,\n}\n");
    let value = json!({"config": {"list": ["a".repeat(40), "b".repeat(40)], "n": 1.0}, "e": {}});
    let done = draft.set(&["plugins", "a-b"], value);
    assert_eq!(done.map_err(|it| it.to_string()), Ok(()));
    let (a, b) = ("a".repeat(40), "b".repeat(40));
    let want = format!(
        "{{\n  x: 1,\n  plugins: {{\n    \"a-b\": {{\n      config: {{\n        list: [\n          \
         \"{a}\",\n          \"{b}\",\n        ],\n        n: 1.0,\n      }},\n      e: {{}},\n    \
         }},\n  }},\n}}\n"
    );
    assert_eq!(draft.text(), want);
}

#[test]
fn an_entry_goes_and_what_is_said_around_it_stays() {
    check_remove(
        "{\n  plugins: {\n    // about n\n    n: {\n      path: './n',\n    }, // n!\n    m: {},\n  }}",
        "{\n  plugins: {\n    // about n\n    // n!\n    m: {},\n  }}",
    );
    check_remove(
        "{\n  plugins: {\n    m: {},\n    n: {}\n  },\n}",
        "{\n  plugins: {\n    m: {}\n  },\n}",
    );
    check_remove("{plugins: {n: 1, m: 2}}", "{plugins: {m: 2}}");
    check_remove("{plugins: {m: 2, n: 1}}", "{plugins: {m: 2}}");
    check_remove("{plugins: {m: 2, n: 1 /* x */, }}", "{plugins: {m: 2, /* x */ }}");
    check_remove("{plugins: {\n n: 1,\n}}", "{plugins: {}}");
    check_remove("{plugins: { /* x */ n: 1 }}", "{plugins: { /* x */ }}");
    let mut absent = draft("{plugins: {m: 1}, x: 2}");
    for path in [&["plugins", "n"][..], &["x", "n"], &["y", "n"]] {
        assert!(matches!(absent.remove(path), Ok(false)));
    }
}

#[test]
fn what_cannot_be_changed_is_refused_and_left() {
    for text in ["{plugins: []}", "{plugins: 'x'}", "[]", "7"] {
        let mut draft = draft(text);
        let done = draft.set(&["plugins", "n"], entry()).map_err(|it| it.to_string());
        assert!(done.is_err_and(|it| it.starts_with("f: plugins.n cannot be changed")), "{text}");
        assert_eq!(draft.text(), text);
    }
    let twice =
        Draft::new(Path::new("f"), "{plugins: {a: 1, 'a': 2}}").map_err(|it| it.to_string());
    assert!(twice.is_err_and(|it| it.contains("plugins.a is given twice")));
    let long = json!("x".repeat(LARGEST_CONFIG));
    assert!(draft("{}").set(&["x"], long).is_err());
}

#[test]
fn any_text_is_written_so_that_it_is_read_again() {
    for quote in ["'", "\""] {
        let mut draft = draft(&format!("{{x: {quote}{quote}}}"));
        let text: String = (0..0x300).chain(0x2020..0x2070).filter_map(char::from_u32).collect();
        let value = json!({ &text: [text, "👩\u{feff}", -1, 1e300, u64::MAX, null, true] });
        assert_eq!(draft.set(&["v"], value).map_err(|it| it.to_string()), Ok(()));
        assert!(!draft.text().contains('\n') && !draft.text().contains('\u{202e}'));
    }
}

/// Numbers that look random and are the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[usize::try_from(self.below(of.len() as u64)).unwrap_or(0)]
    }
}

/// What may stand between two tokens.
fn blank(dice: &mut Dice) -> String {
    const BLANKS: [&str; 12] = [
        "",
        "",
        " ",
        "  ",
        "\n",
        "\r\n\t",
        "\n\n    ",
        " /* } , */ ",
        " // ] \"x\n",
        "/**/",
        "\n  // 'n': {}\n",
        "\u{a0}\u{2028}",
    ];
    (0..=dice.below(2)).map(|_| dice.one(&BLANKS)).collect()
}

fn value(dice: &mut Dice, depth: u64) -> String {
    match dice.below(6) {
        0 => dice.one(&["'}'", "\"// {\"", "'a\\'b'", "'a\\\nb'", "\"\\u007d\""]).into(),
        1 => dice.one(&["1", "-0x1F", ".5", "+3.", "true", "null"]).into(),
        2 => format!(
            "[{}1{},{}{{{}}}{}]",
            blank(dice),
            blank(dice),
            blank(dice),
            blank(dice),
            blank(dice)
        ),
        _ if depth == 0 => "{}".into(),
        _ => object(dice, depth - 1, &["a", "'b c'", "\"c\"", "d1", "$"]),
    }
}

fn object(dice: &mut Dice, depth: u64, names: &[&str]) -> String {
    let mut text = format!("{{{}", blank(dice));
    let count = usize::try_from(dice.below(names.len() as u64 + 1)).unwrap_or(0);
    for (place, name) in names.iter().take(count).enumerate() {
        let value = value(dice, depth);
        text += &format!("{name}{}:{}{value}{}", blank(dice), blank(dice), blank(dice));
        if place + 1 < count || dice.below(2) == 0 {
            text += &format!(",{}", blank(dice));
        }
    }
    text + "}"
}

/// Whether `part` can be had from `whole` by leaving characters out.
fn is_within(part: &str, whole: &str) -> bool {
    let mut rest = whole.chars();
    part.chars().all(|it| rest.any(|other| other == it))
}

fn comments(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut at = 0;
    for token in crate::config::position::Lexer::new(text) {
        found.extend(
            text[at..token.start].split(is_json5_line_terminator).map(str::trim).map(str::to_owned),
        );
        at = token.start + token.text.len();
    }
    found.extend(text[at..].split(is_json5_line_terminator).map(str::trim).map(str::to_owned));
    found.retain(|it| !it.is_empty());
    found
}

#[test]
fn in_any_text_an_entry_is_set_and_removed_and_all_else_stays() {
    for seed in 0..1_500 {
        let mut dice = Dice(seed);
        let plugins = object(&mut dice, 2, &["m", "'o'", "\"p\""]);
        let around = |dice: &mut Dice| object(dice, 2, &["x", "y"]);
        let text = match dice.below(3) {
            0 => format!("{}{}{}", blank(&mut dice), around(&mut dice), blank(&mut dice)),
            _ => format!(
                "{}{{{}x: {},{}plugins:{}{plugins}{}}}{}",
                blank(&mut dice),
                blank(&mut dice),
                around(&mut dice),
                blank(&mut dice),
                blank(&mut dice),
                blank(&mut dice),
                blank(&mut dice),
            ),
        };
        let before = draft(&text);
        let mut draft = before.clone();
        let done = draft.set(&["plugins", "n"], entry()).map_err(|it| it.to_string());
        assert_eq!(done, Ok(()), "{text:?}");
        // Blanks within an empty object are all that may go.
        let dense = |it: &str| it.replace(is_json5_whitespace, "");
        assert!(is_within(&dense(&text), &dense(draft.text())), "{text:?} {:?}", draft.text());
        assert_eq!(comments(draft.text()), comments(&text), "{text:?}");
        assert_eq!(draft.value()["plugins"]["n"]["path"], "./n");

        let had = before.value()["plugins"].as_object().is_some_and(|it| !it.is_empty());
        let removed = draft.remove(&["plugins", "n"]).map_err(|it| it.to_string());
        assert_eq!(removed, Ok(true), "{text:?}");
        assert_eq!(comments(draft.text()), comments(&text), "{text:?}");
        if had {
            assert_eq!(dense(draft.text()), dense(&text), "{text:?}");
            assert_eq!(draft.value(), before.value());
        }
        for name in ["m", "o", "p"] {
            let mut draft = before.clone();
            let was = before.value()["plugins"].get(name).is_some();
            let inner = before.value()["plugins"][name].is_object();
            let removed = draft.remove(&["plugins", name]).map_err(|it| it.to_string());
            assert_eq!(removed, Ok(was), "{name} of {text:?}");
            let done = draft.set(&["plugins", name, "path"], json!("x"));
            assert_eq!(done.map_err(|it| it.to_string()), Ok(()), "{name} of {text:?}");
            let mut draft = before.clone();
            let done = draft.set(&["plugins", name, "path"], json!("x"));
            assert_eq!(done.is_ok(), inner || !was, "{name} of {text:?}");
        }
    }
}
