//! From the words of a command to the arguments of a tool, by its schema.
//! Pure. `--key value` and `--key=value`, bare flags, repeated keys for lists,
//! or all of it as one JSON object. What does not suit is told in lines that
//! say what would; nothing is guessed where the schema says it.

use std::collections::BTreeMap;
use std::iter::Peekable;

use serde_json::{Map, Number, Value};

use super::catalog::up_to;
use super::check::{of_another_type, unknown_key, wrong_with};
use super::schema::{Schema, as_word};
use crate::plugin::fields::kind_of;
use crate::plugin::settings::Type;

/// How deep lists of lists are made from words.
const DEEPEST: u32 = 4;

/// How much of a word is told, in bytes.
const TOLD: usize = 60;

/// What a call of a tool asks for.
#[derive(Debug, PartialEq)]
pub(super) enum Asked {
    /// How it is called.
    Help,
    /// The tool, with these arguments.
    Arguments(Value),
}

/// Reads what follows the tool's name. The error has a line for each thing
/// that is wrong.
pub(super) fn read(
    schema: Schema<'_>,
    args: &[String],
    stdin: Option<&str>,
) -> Result<Asked, Vec<String>> {
    let arguments = match args {
        [only] if only == "-" => {
            json_object(stdin.ok_or_else(|| vec!["`-`: nothing comes on standard input".into()])?)?
        }
        [only] if only.trim_start().starts_with('{') => json_object(only)?,
        words => match (Words { schema }).read(words)? {
            Some(arguments) => Value::Object(arguments),
            None => return Ok(Asked::Help),
        },
    };
    let wrong = wrong_with(schema, &arguments);
    if wrong.is_empty() { Ok(Asked::Arguments(arguments)) } else { Err(wrong) }
}

fn json_object(text: &str) -> Result<Value, Vec<String>> {
    match serde_json::from_str(text) {
        Ok(Value::Object(object)) => Ok(Value::Object(object)),
        Ok(other) => {
            Err(vec![format!("the arguments must be a JSON object, not {}", kind_of(&other))])
        }
        Err(error) => Err(vec![format!("the arguments are no JSON: {error}")]),
    }
}

/// What a key was given.
#[derive(Clone, Copy, Debug)]
enum Word<'w> {
    Text(&'w str),
    /// It stood for itself.
    Flag(bool),
}

/// Reads arguments word by word.
struct Words<'s> {
    schema: Schema<'s>,
}

impl<'s> Words<'s> {
    /// `None` if they ask for help.
    fn read(&self, words: &[String]) -> Result<Option<Map<String, Value>>, Vec<String>> {
        let mut given: BTreeMap<&str, Vec<Word<'_>>> = BTreeMap::new();
        let mut rest = words.iter().map(String::as_str).peekable();
        while let Some(word) = rest.next() {
            let named = word.strip_prefix("--").filter(|it| !it.is_empty());
            if word == "-h" || (named == Some("help") && self.property("help").is_none()) {
                return Ok(None);
            }
            let Some(named) = named else { return Err(vec![misplaced(word)]) };
            let (key, word) = self.key(named, &mut rest).map_err(|it| vec![it])?;
            given.entry(key).or_default().push(word);
        }
        let mut wrong = Vec::new();
        let mut arguments = Map::new();
        for (key, words) in given {
            match self.gathered(key, &words) {
                Ok(value) => drop(arguments.insert(key.to_owned(), value)),
                Err(line) => wrong.push(line),
            }
        }
        if wrong.is_empty() { Ok(Some(arguments)) } else { Err(wrong) }
    }

    /// One key, and what it is given: with a `=`, by the next word, or by
    /// standing there.
    fn key<'w>(
        &self,
        named: &'w str,
        rest: &mut Peekable<impl Iterator<Item = &'w str>>,
    ) -> Result<(&'w str, Word<'w>), String> {
        if let Some((key, value)) = named.split_once('=') {
            return Ok((key, Word::Text(value)));
        }
        let Some(property) = self.property(named) else {
            return Ok(self.negated(named).unwrap_or_else(|| {
                let next = rest.next_if(|it| !it.starts_with("--"));
                (named, next.map_or(Word::Flag(true), Word::Text))
            }));
        };
        let types = self.schema.types(property);
        let is_flag = types.contains(&Type::Boolean);
        let takes_words = types.iter().any(|it| !matches!(it, Type::Boolean | Type::Null));
        let next = rest.next_if(|it| match is_flag {
            true => matches!(*it, "true" | "false") || (takes_words && !it.starts_with("--")),
            false => !it.starts_with("--"),
        });
        match next {
            Some(text) => Ok((named, Word::Text(text))),
            None if is_flag => Ok((named, Word::Flag(true))),
            None => Err(format!(
                "`--{named}` needs a value; one that begins with `--` is written `--{named}=VALUE`"
            )),
        }
    }

    /// `--no-x`, where `x` is a flag.
    fn negated<'w>(&self, named: &'w str) -> Option<(&'w str, Word<'w>)> {
        let key = named.strip_prefix("no-")?;
        let is_flag = self.schema.types(self.property(key)?).contains(&Type::Boolean);
        is_flag.then_some((key, Word::Flag(false)))
    }

    fn property(&self, key: &str) -> Option<&'s Value> {
        self.schema.argument(key)
    }

    /// The value of one key.
    fn gathered(&self, key: &str, words: &[Word<'_>]) -> Result<Value, String> {
        let property = self.property(key);
        if property.is_none() && self.schema.is_closed(self.schema.root()) {
            let known = self.schema.properties(self.schema.root());
            let known: Vec<&str> = known.into_iter().map(|(it, _)| it).collect();
            return Err(unknown_key(&format!("--{key}"), key, &known));
        }
        let at = format!("--{key}");
        let value = |schema: Option<&'s Value>, word: &Word<'_>, depth| match (*word, schema) {
            (Word::Flag(it), _) => Ok(Value::Bool(it)),
            (Word::Text(text), Some(schema)) => self.value(&at, schema, text, depth),
            (Word::Text(text), None) => Ok(free(text)),
        };
        match (words, property) {
            ([word], _) => value(property, word, 0),
            (_, Some(schema)) if self.schema.types(schema).contains(&Type::Array) => {
                let items = self.schema.items(schema);
                words.iter().map(|it| value(items, it, 1)).collect()
            }
            (_, Some(_)) => {
                Err(format!("`{at}` is given {} times, and takes one value", words.len()))
            }
            (_, None) => words.iter().map(|it| value(None, it, 1)).collect(),
        }
    }

    /// A word as a value that suits the schema.
    fn value(&self, at: &str, schema: &'s Value, text: &str, depth: u32) -> Result<Value, String> {
        let mut allowed = self.schema.allowed(schema).into_iter();
        if let Some(allowed) = allowed.find(|it| as_word(it) == text) {
            return Ok(allowed.clone());
        }
        let types = self.schema.types(schema);
        if types.is_empty() {
            return Ok(free(text));
        }
        // What is null, a list or an object to the letter is meant so.
        let json = serde_json::from_str(text).ok().filter(|it: &Value| {
            matches!(it, Value::Null | Value::Array(_) | Value::Object(_))
                && types.iter().any(|of| of.takes(it))
        });
        let scalar = || types.iter().find_map(|it| scalar(*it, text));
        if let Some(value) = json.or_else(scalar) {
            return Ok(value);
        }
        match types.contains(&Type::Array) && depth < DEEPEST {
            // One word is a list of one.
            true => match self.schema.items(schema) {
                Some(items) => self.value(at, items, text, depth + 1).map(|it| vec![it].into()),
                None => Ok(vec![free(text)].into()),
            },
            false => Err(of_another_type(at, &types, &format!("`{}`", told(text)))),
        }
    }
}

/// A word as a value of that type, if it is one.
fn scalar(of: Type, text: &str) -> Option<Value> {
    match of {
        Type::String => Some(text.into()),
        Type::Boolean => text.parse::<bool>().ok().map(Value::Bool),
        Type::Integer => number(text).filter(|it| Type::Integer.takes(it)),
        Type::Number => number(text),
        Type::Null | Type::Array | Type::Object => None,
    }
}

fn number(text: &str) -> Option<Value> {
    let whole =
        || text.parse::<i64>().map(Number::from).or_else(|_| text.parse::<u64>().map(Number::from));
    let number = whole().ok().or_else(|| Number::from_f64(text.parse().ok()?));
    number.map(Value::Number)
}

/// JSON, or else the very text.
fn free(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| text.into())
}

fn misplaced(word: &str) -> String {
    format!("`{}` stands alone; arguments are `--key value`, or one JSON object", told(word))
}

fn told(word: &str) -> String {
    let told = up_to(word, TOLD);
    let more = if told.len() < word.len() { "…" } else { "" };
    format!("{}{more}", told.replace(char::is_control, " "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Of most kinds of argument that there are.
    fn schema() -> Value {
        json!({
            "type": "object",
            "properties": {
                "text": {"type": "string"},
                "count": {"type": "integer"},
                "ratio": {"type": "number"},
                "loud": {"type": "boolean"},
                "mode": {"enum": ["fast", "slow", 3]},
                "tags": {"type": "array", "items": {"type": "string"}},
                "sizes": {"type": "array", "items": {"type": "integer"}},
                "point": {"type": "object", "properties": {"x": {"type": "number"}}},
                "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
                "either": {"type": ["boolean", "string"]},
                "any": {},
                "wound": {"type": "array", "items": {"$ref": "#/properties/wound"}},
            },
            "additionalProperties": false,
        })
    }

    #[track_caller]
    fn check_with(schema: &Value, args: &[&str], want: Result<Value, &str>) {
        let args: Vec<String> = args.iter().map(|it| (*it).to_owned()).collect();
        let got = read(Schema::of(schema), &args, None).map_err(|it| it.join("\n"));
        assert_eq!(got, want.map(Asked::Arguments).map_err(str::to_owned), "{args:?}");
    }

    #[track_caller]
    fn check(args: &[&str], want: Value) {
        check_with(&schema(), args, Ok(want));
    }

    #[track_caller]
    fn refused(args: &[&str], want: &str) {
        check_with(&schema(), args, Err(want));
    }

    #[test]
    fn words_become_what_the_schema_says() {
        check(&[], json!({}));
        check(&["--text", "a b"], json!({"text": "a b"}));
        check(&["--text=--x=y"], json!({"text": "--x=y"}));
        check(&["--text", "5"], json!({"text": "5"}));
        check(&["--text", ""], json!({"text": ""}));
        check(&["--count", "-5", "--ratio", "0.5"], json!({"count": -5, "ratio": 0.5}));
        check(&["--count", "18446744073709551615"], json!({"count": u64::MAX}));
        check(&["--ratio", "1e3"], json!({"ratio": 1000.0}));
        check(&["--mode", "slow"], json!({"mode": "slow"}));
        check(&["--mode", "3"], json!({"mode": 3}));
        check(&["--point", r#"{"x": 1}"#], json!({"point": {"x": 1}}));
        check(&["--maybe", "null"], json!({"maybe": null}));
        check(&["--maybe", "7"], json!({"maybe": 7}));
        check(&["--any", "[1]"], json!({"any": [1]}));
        check(&["--any", "plain"], json!({"any": "plain"}));
    }

    #[test]
    fn flags_need_no_value() {
        check(&["--loud"], json!({"loud": true}));
        check(&["--loud", "--text", "a"], json!({"loud": true, "text": "a"}));
        check(&["--loud", "false"], json!({"loud": false}));
        check(&["--no-loud"], json!({"loud": false}));
        check(&["--loud=true"], json!({"loud": true}));
        check(&["--either"], json!({"either": true}));
        check(&["--either", "word"], json!({"either": "word"}));
        refused(&["--loud=7"], "`--loud` must be a boolean, not `7`");
        refused(
            &["--loud", "7"],
            "`7` stands alone; arguments are `--key value`, or one JSON object",
        );
    }

    #[test]
    fn lists_are_repeated_keys_or_json() {
        check(&["--tags", "a"], json!({"tags": ["a"]}));
        check(&["--tags", "a", "--tags", "[b"], json!({"tags": ["a", "[b"]}));
        check(&["--tags", r#"["a", "b"]"#], json!({"tags": ["a", "b"]}));
        check(&["--tags", "[]"], json!({"tags": []}));
        check(&["--sizes", "1", "--sizes=2"], json!({"sizes": [1, 2]}));
        refused(&["--sizes", "1", "--sizes", "x"], "`--sizes` must be an integer, not `x`");
        refused(&["--sizes", "[\"x\"]"], "`sizes[0]` must be an integer, not a string");
        refused(&["--text", "a", "--text", "b"], "`--text` is given 2 times, and takes one value");
    }

    #[test]
    fn what_does_not_suit_is_told() {
        refused(&["--count", "many"], "`--count` must be an integer, not `many`");
        refused(&["--count", "1.5"], "`--count` must be an integer, not `1.5`");
        refused(&["--ratio", "NaN"], "`--ratio` must be a number, not `NaN`");
        refused(&["--maybe", "x"], "`--maybe` must be an integer or null, not `x`");
        refused(&["--point", "x"], "`--point` must be an object, not `x`");
        refused(&["--point", r#"{"x": "1"}"#], "`point.x` must be a number, not a string");
        refused(&["--mode", "fats"], "`mode` must be one of \"fast\", \"slow\", 3");
        refused(
            &["--text", "--loud"],
            "`--text` needs a value; one that begins with `--` is written `--text=VALUE`",
        );
        refused(&["word"], "`word` stands alone; arguments are `--key value`, or one JSON object");
        refused(&["--", "x"], "`--` stands alone; arguments are `--key value`, or one JSON object");
        let known = "any, count, either, loud, maybe, mode, point, ratio, sizes, tags, text, wound";
        let unknown = "`--txt` is unknown; did you mean `text`?; known: ";
        refused(&["--txt", "a"], &format!("{unknown}{known}"));
        let deep = "`--wound` must be an array, not `x`";
        refused(&["--wound", "x"], deep);
    }

    #[test]
    fn an_open_schema_takes_what_it_does_not_know() {
        let open = json!({"properties": {"a": {"type": "string"}}, "required": ["a"]});
        let taken = json!({"a": "1", "n": 5, "t": "x", "flag": true, "m": [1, "b"]});
        let args = ["--a", "1", "--n", "5", "--t", "x", "--flag", "--m", "1", "--m", "b"];
        check_with(&open, &args, Ok(taken));
        check_with(&open, &["--n", "5"], Err("`a` is missing"));
        check_with(&json!(null), &["--n", "5"], Ok(json!({"n": 5})));
    }

    #[test]
    fn all_can_be_one_json_object() {
        check(&[r#" {"text": "a", "count": 1}"#], json!({"text": "a", "count": 1}));
        refused(&[r#"{"count": "1"}"#], "`count` must be an integer, not a string");
        let broken = read(Schema::of(&schema()), &["{".to_owned()], None);
        assert!(broken.is_err_and(|it| it[0].starts_with("the arguments are no JSON: EOF")));
        let stdin = |text| read(Schema::of(&schema()), &["-".to_owned()], text);
        assert_eq!(stdin(Some(r#"{"count": 1}"#)), Ok(Asked::Arguments(json!({"count": 1}))));
        assert_eq!(stdin(None), Err(vec!["`-`: nothing comes on standard input".to_owned()]));
        let list = vec!["the arguments must be a JSON object, not an array".to_owned()];
        assert_eq!(stdin(Some("[]")), Err(list));
    }

    #[test]
    fn help_is_asked_for_by_a_word_that_is_no_argument() {
        let asks = |schema: &Value, args: &[&str]| {
            let args: Vec<String> = args.iter().map(|it| (*it).to_owned()).collect();
            read(Schema::of(schema), &args, None) == Ok(Asked::Help)
        };
        assert!(asks(&schema(), &["--help"]));
        assert!(asks(&schema(), &["-h"]));
        assert!(asks(&schema(), &["--text", "a", "--help"]));
        assert!(!asks(&schema(), &["--text=--help"]));
        assert!(!asks(&json!({"properties": {"help": {"type": "string"}}}), &["--help", "me"]));
    }
}
