//! Whether the arguments of a call suit the schema of their tool. Pure. It
//! tells what an agent can mend by itself: what is missing, unknown, of
//! another type, or not on a list. All else of JSON Schema is left to the
//! server, which checks anyhow.

use serde_json::{Map, Value};

use super::schema::{Schema, own_allowed, own_alternatives, own_types};
use crate::plugin::fields::{did_you_mean, kind_of};
use crate::plugin::settings::Type;

/// Schemas that are held against values, in all.
const MOST_STEPS: u32 = 20_000;

/// How deep values, and references, are followed.
const DEEPEST: u32 = 48;

/// Lines about one call.
const MOST_LINES: usize = 20;

/// Values of a list that are told.
const MOST_TOLD: usize = 30;

/// A line for each place where the arguments do not suit.
pub(super) fn wrong_with(schema: Schema<'_>, arguments: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut check = Check { schema, steps: 0, depth: 0 };
    check.value("", schema.root(), arguments, &mut wrong);
    wrong.dedup();
    wrong.truncate(MOST_LINES);
    wrong
}

/// "`key` must be a string or null, not a number".
pub(super) fn of_another_type(at: &str, types: &[Type], is: &str) -> String {
    let wanted: Vec<&str> = types.iter().map(|it| it.with_article()).collect();
    format!("{} must be {}, not {is}", label(at), wanted.join(" or "))
}

/// "; did you mean …? It takes: …", for a key that is unknown.
pub(super) fn unknown_key(at: &str, key: &str, known: &[&str]) -> String {
    let near = did_you_mean(key, known.iter().copied());
    match known.is_empty() {
        true => format!("{} is unknown: it takes no argument", label(at)),
        false => format!("{} is unknown{near}; known: {}", label(at), known.join(", ")),
    }
}

fn label(at: &str) -> String {
    if at.is_empty() { "the whole".to_owned() } else { format!("`{at}`") }
}

struct Check<'a> {
    schema: Schema<'a>,
    steps: u32,
    depth: u32,
}

impl<'a> Check<'a> {
    fn value(&mut self, at: &str, schema: &'a Value, value: &Value, wrong: &mut Vec<String>) {
        self.steps += 1;
        if self.depth == DEEPEST || self.steps > MOST_STEPS || wrong.len() >= MOST_LINES {
            return;
        }
        self.depth += 1;
        self.at_this_depth(at, schema, value, wrong);
        self.depth -= 1;
    }

    fn at_this_depth(
        &mut self,
        at: &str,
        schema: &'a Value,
        value: &Value,
        wrong: &mut Vec<String>,
    ) {
        let types = own_types(schema);
        if !types.is_empty() && !types.iter().any(|it| it.takes(value)) {
            return wrong.push(of_another_type(at, &types, kind_of(value)));
        }
        let allowed = own_allowed(schema);
        if !allowed.is_empty() && !allowed.contains(&value) {
            let told: Vec<String> =
                allowed.iter().take(MOST_TOLD).map(|it| it.to_string()).collect();
            return wrong.push(format!("{} must be one of {}", label(at), told.join(", ")));
        }
        match value {
            Value::Object(object) => self.object(at, schema, object, wrong),
            Value::Array(array) => self.array(at, schema, array, wrong),
            _ => {}
        }
        if let Some(referred) = self.schema.referred(schema) {
            self.value(at, referred, value, wrong);
        }
        for all in schema.get("allOf").and_then(Value::as_array).into_iter().flatten() {
            self.value(at, all, value, wrong);
        }
        for alternatives in own_alternatives(schema) {
            self.one_of(at, alternatives, value, wrong);
        }
    }

    /// It must suit one of these.
    fn one_of(&mut self, at: &str, schemas: &'a [Value], value: &Value, wrong: &mut Vec<String>) {
        let mut of_each = Vec::new();
        for schema in schemas {
            let mut found = Vec::new();
            self.value(at, schema, value, &mut found);
            if found.is_empty() {
                return;
            }
            of_each.push(found);
        }
        // The one that it nearly suits is what was meant.
        of_each.sort_by_key(|it| it.iter().any(|line| line.starts_with(&label(at))));
        let types: Vec<Type> = schemas.iter().flat_map(|it| self.schema.types(it)).collect();
        match types.iter().any(|it| it.takes(value)) || types.is_empty() {
            true => wrong.extend(of_each.into_iter().next().unwrap_or_default()),
            false => wrong.push(of_another_type(at, &types, kind_of(value))),
        }
    }

    fn object(
        &mut self,
        at: &str,
        schema: &'a Value,
        object: &Map<String, Value>,
        wrong: &mut Vec<String>,
    ) {
        let inside = |key: &str| if at.is_empty() { key.to_owned() } else { format!("{at}.{key}") };
        let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
        for key in required.filter_map(Value::as_str).filter(|it| !object.contains_key(*it)) {
            wrong.push(format!("{} is missing", label(&inside(key))));
        }
        let properties = schema.get("properties").and_then(Value::as_object);
        for (key, value) in object {
            if wrong.len() >= MOST_LINES {
                return;
            }
            let property = properties.and_then(|it| it.get(key));
            match (property, schema.get("additionalProperties")) {
                (Some(schema), _) => self.value(&inside(key), schema, value, wrong),
                (None, Some(Value::Bool(false))) => {
                    let known = properties.into_iter().flat_map(Map::keys).map(String::as_str);
                    let known: Vec<&str> = known.collect();
                    wrong.push(unknown_key(&inside(key), key, &known));
                }
                (None, Some(schema)) => self.value(&inside(key), schema, value, wrong),
                (None, None) => {}
            }
        }
    }

    fn array(&mut self, at: &str, schema: &'a Value, array: &[Value], wrong: &mut Vec<String>) {
        let Some(items) = schema.get("items") else { return };
        for (index, value) in array.iter().enumerate() {
            self.value(&format!("{at}[{index}]"), items, value, wrong);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(schema: Value, arguments: Value, want: &[&str]) {
        assert_eq!(wrong_with(Schema::of(&schema), &arguments), want, "{schema} {arguments}");
    }

    fn with(property: Value) -> Value {
        json!({"type": "object", "properties": {"x": property}, "required": ["x"]})
    }

    #[test]
    fn what_is_missing_unknown_or_of_another_type_is_told() {
        let closed = json!({"type": "object", "properties": {"path": {"type": "string"}},
            "required": ["path"], "additionalProperties": false});
        check(closed.clone(), json!({"path": "a"}), &[]);
        check(closed.clone(), json!({}), &["`path` is missing"]);
        let unknown = "`pth` is unknown; did you mean `path`?; known: path";
        check(closed.clone(), json!({"path": "a", "pth": 1}), &[unknown]);
        check(closed.clone(), json!({"path": 7}), &["`path` must be a string, not a number"]);
        check(closed, json!([]), &["the whole must be an object, not an array"]);
        let none = json!({"type": "object", "additionalProperties": false});
        check(none, json!({"a": 1}), &["`a` is unknown: it takes no argument"]);
        check(json!({"type": "object"}), json!({"a": 1}), &[]);
    }

    #[test]
    fn values_are_looked_into() {
        let list = with(json!({"type": "array", "items": {"type": "object",
            "properties": {"n": {"type": "integer"}}, "required": ["n"]}}));
        check(list.clone(), json!({"x": [{"n": 1}, {"n": 2.0}]}), &[]);
        check(
            list,
            json!({"x": [{"n": 1.5}, {}]}),
            &["`x[0].n` must be an integer, not a number", "`x[1].n` is missing"],
        );
        let kinds = with(json!({"enum": ["a", "b"]}));
        check(kinds.clone(), json!({"x": "b"}), &[]);
        check(kinds, json!({"x": "c"}), &["`x` must be one of \"a\", \"b\""]);
        let others = json!({"type": "object", "additionalProperties": {"type": "number"}});
        check(others, json!({"y": "1"}), &["`y` must be a number, not a string"]);
    }

    #[test]
    fn alternatives_are_tried() {
        let either = with(json!({"anyOf": [{"type": "string"}, {"$ref": "#/$defs/p"}]}));
        let mut either = either;
        either["$defs"] = json!({"p": {"type": "object", "required": ["y"]}});
        check(either.clone(), json!({"x": "a"}), &[]);
        check(either.clone(), json!({"x": {"y": 1}}), &[]);
        check(
            either.clone(),
            json!({"x": 7}),
            &["`x` must be a string or an object, not a number"],
        );
        check(either, json!({"x": {}}), &["`x.y` is missing"]);
    }

    #[test]
    fn no_schema_and_no_value_takes_for_ever() {
        let mut deep = json!(1);
        for _ in 0..100 {
            deep = json!([deep]);
        }
        let wound = json!({"items": {"$ref": "#"}, "anyOf": vec![json!({"$ref": "#"}); 9]});
        check(wound, deep, &[]);
        check(json!({"allOf": [{"$ref": "#"}, {"$ref": "#"}]}), json!({}), &[]);
        check(json!(false), json!({}), &[]);
    }
}
