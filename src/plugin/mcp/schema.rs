//! What the JSON Schema of a tool's arguments says, as far as beige reads it.
//! Pure, and a best effort: `$ref` is followed within the schema, `anyOf`,
//! `oneOf` and `allOf` are looked through, what is not understood is the
//! server's to judge. However a schema is wound round itself, reading ends.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::plugin::settings::Type;

/// Schemas that are looked at for one question.
const MOST_PARTS: usize = 64;

/// Fields of one object that are told.
const MOST_NAMES: usize = 1_000;

/// Lead to further schemas of the same value.
const ALTERNATIVES: [&str; 2] = ["anyOf", "oneOf"];

/// The schema of a tool's arguments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schema<'a> {
    /// All of it, in which references are looked up.
    root: &'a Value,
}

impl<'a> Schema<'a> {
    pub(super) fn of(root: &'a Value) -> Self {
        Self { root }
    }

    /// All of it.
    pub(super) fn root(self) -> &'a Value {
        self.root
    }

    /// What a reference within the schema leads to.
    pub(super) fn referred(self, schema: &Value) -> Option<&'a Value> {
        let pointer = schema.get("$ref")?.as_str()?.strip_prefix('#')?;
        self.root.pointer(pointer)
    }

    /// This schema, and all of which a value may suit one.
    fn parts(self, schema: &'a Value) -> Vec<&'a Value> {
        self.parts_by(schema, &["allOf", ALTERNATIVES[0], ALTERNATIVES[1]])
    }

    /// This schema, and those that a value suits at the same time.
    fn firm_parts(self, schema: &'a Value) -> Vec<&'a Value> {
        self.parts_by(schema, &["allOf"])
    }

    fn parts_by(self, schema: &'a Value, keywords: &[&str]) -> Vec<&'a Value> {
        let (mut parts, mut open) = (Vec::new(), vec![schema]);
        while let Some(next) = open.pop() {
            if parts.len() == MOST_PARTS {
                break;
            }
            parts.push(next);
            let lists = keywords.iter().filter_map(|it| next.get(*it)?.as_array()).flatten();
            let mut found: Vec<&Value> = self.referred(next).into_iter().chain(lists).collect();
            found.truncate(MOST_PARTS);
            open.extend(found.into_iter().rev());
        }
        parts
    }

    /// Types that a value may have, in the order in which the schema names
    /// them; none if it does not say.
    pub(super) fn types(self, schema: &'a Value) -> Vec<Type> {
        let mut types = Vec::new();
        for part in self.parts(schema) {
            for it in own_types(part) {
                if !types.contains(&it) {
                    types.push(it);
                }
            }
        }
        types
    }

    /// Values of which it must be one, where the schema lists them.
    pub(super) fn allowed(self, schema: &'a Value) -> Vec<&'a Value> {
        self.parts(schema).into_iter().flat_map(own_allowed).collect()
    }

    /// Of the elements of an array.
    pub(super) fn items(self, schema: &'a Value) -> Option<&'a Value> {
        self.parts(schema).into_iter().find_map(|it| it.get("items").filter(|it| it.is_object()))
    }

    /// Of the fields of an object, by name.
    pub(super) fn properties(self, schema: &'a Value) -> Vec<(&'a str, &'a Value)> {
        let mut found = BTreeMap::new();
        for (name, schema) in self.parts(schema).into_iter().filter_map(own_properties).flatten() {
            found.entry(name).or_insert(schema);
        }
        found.into_iter().take(MOST_NAMES).collect()
    }

    /// Of one field of the arguments.
    pub(super) fn argument(self, name: &str) -> Option<&'a Value> {
        self.parts(self.root).into_iter().find_map(|it| it.get("properties")?.get(name))
    }

    /// Fields without which an object is none.
    pub(super) fn required(self, schema: &'a Value) -> Vec<&'a str> {
        let lists = self.firm_parts(schema).into_iter().filter_map(|it| it.get("required"));
        let names = lists.filter_map(Value::as_array).flatten().filter_map(Value::as_str);
        names.take(MOST_NAMES).collect()
    }

    /// Whether an object may have no fields but those that are listed.
    pub(super) fn is_closed(self, schema: &'a Value) -> bool {
        let parts = self.firm_parts(schema);
        parts.iter().any(|it| it.get("additionalProperties") == Some(&Value::Bool(false)))
    }

    /// The first description of it.
    pub(super) fn description(self, schema: &'a Value) -> &'a str {
        let parts = self.parts(schema);
        parts.iter().find_map(|it| it.get("description")?.as_str()).unwrap_or_default()
    }

    /// What the server takes where nothing is given.
    pub(super) fn default(self, schema: &'a Value) -> Option<&'a Value> {
        self.firm_parts(schema).into_iter().find_map(|it| it.get("default"))
    }
}

/// Types that this very schema names, or lets one guess.
pub(super) fn own_types(schema: &Value) -> Vec<Type> {
    match schema.get("type") {
        Some(Value::String(name)) => Type::named(name).into_iter().collect(),
        Some(Value::Array(names)) => {
            names.iter().filter_map(|it| Type::named(it.as_str()?)).collect()
        }
        _ if schema.get("properties").is_some() => vec![Type::Object],
        _ if schema.get("items").is_some() => vec![Type::Array],
        _ => Vec::new(),
    }
}

/// Values that this very schema lists.
pub(super) fn own_allowed(schema: &Value) -> Vec<&Value> {
    let list = schema.get("enum").and_then(Value::as_array).into_iter().flatten();
    list.chain(schema.get("const")).collect()
}

/// Alternatives of this very schema.
pub(super) fn own_alternatives(schema: &Value) -> Vec<&[Value]> {
    let lists = ALTERNATIVES.iter().filter_map(|it| schema.get(*it)?.as_array());
    lists.map(Vec::as_slice).filter(|it| !it.is_empty()).collect()
}

/// A value as a word of a command: text as it is, all else as JSON.
pub(super) fn as_word(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn own_properties(schema: &Value) -> Option<impl Iterator<Item = (&str, &Value)>> {
    let properties: &Map<String, Value> = schema.get("properties")?.as_object()?;
    Some(properties.iter().map(|(name, it)| (name.as_str(), it)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(schema: Value, want: &[Type]) {
        assert_eq!(Schema::of(&schema).types(&schema), want, "{schema}");
    }

    #[test]
    fn types_are_found_behind_references_and_alternatives() {
        use Type::{Array, Null, Number, Object, String};
        check(json!({"type": "string"}), &[String]);
        check(json!({"type": ["null", "number", "odd"]}), &[Null, Number]);
        check(json!({"anyOf": [{"type": "string"}, {"type": "null"}]}), &[String, Null]);
        check(json!({"$ref": "#/$defs/a", "$defs": {"a": {"type": "array"}}}), &[Array]);
        check(json!({"properties": {}}), &[Object]);
        check(json!({"items": {}}), &[Array]);
        check(json!({"allOf": [{"oneOf": [{"type": "object"}]}]}), &[Object]);
        for nothing in [json!({}), json!(true), json!(null), json!({"type": 7, "anyOf": 7})] {
            check(nothing, &[]);
        }
    }

    #[test]
    fn a_schema_that_is_wound_round_itself_ends() {
        check(json!({"$ref": "#"}), &[]);
        check(json!({"$ref": "#/none"}), &[]);
        check(json!({"$ref": "http://host/schema"}), &[]);
        check(json!({"type": "string", "anyOf": vec![json!({"$ref": "#"}); 50]}), &[Type::String]);
    }

    #[test]
    fn fields_of_all_alternatives_are_known_and_those_of_all_at_once_required() {
        let schema = json!({
            "allOf": [{"properties": {"a": {"type": "string"}}, "required": ["a"]}],
            "anyOf": [{"properties": {"b": {}}, "required": ["b"]}, {"properties": {"a": {}}}],
            "additionalProperties": false,
        });
        let it = Schema::of(&schema);
        let names: Vec<&str> = it.properties(&schema).into_iter().map(|(it, _)| it).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(it.required(&schema), ["a"]);
        assert!(it.is_closed(&schema));
    }
}
