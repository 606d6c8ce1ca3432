//! A plugin's configuration: how defaults, the entry's values and an agent's
//! own are laid over each other, and the check against `configSchema`.
//!
//! Of JSON Schema this version enforces a subset: `type`, `properties`,
//! `required`, `enum`, `additionalProperties`, `items`, `minimum`, `maximum`.
//! Any other keyword that would constrain is refused, never accepted in
//! silence. Values are never shown: they may be secrets.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::config::by_name;
use crate::plugin::fields::kind_of;

/// Keywords that constrain nothing.
const ANNOTATIONS: [&str; 6] =
    ["$schema", "$comment", "title", "description", "default", "examples"];

const ENFORCED: [&str; 8] = [
    "type",
    "properties",
    "required",
    "enum",
    "additionalProperties",
    "items",
    "minimum",
    "maximum",
];

/// A `configSchema`, every keyword of which is enforced.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schema {
    types: Vec<Type>,
    properties: BTreeMap<String, Schema>,
    required: Vec<String>,
    allowed: Option<Vec<Value>>,
    others: Others,
    items: Option<Box<Schema>>,
    minimum: Option<f64>,
    maximum: Option<f64>,
}

#[derive(Clone, Debug, Default, PartialEq)]
enum Others {
    #[default]
    Any,
    None,
    Like(Box<Schema>),
}

/// A type of JSON Schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Null,
    Boolean,
    Number,
    Integer,
    String,
    Array,
    Object,
}

/// `over` laid over `base`: objects merge, everything else replaces.
pub fn merge(base: &Value, over: &Value) -> Value {
    let (Value::Object(base), Value::Object(over)) = (base, over) else { return over.clone() };
    let mut merged = base.clone();
    for (key, value) in over {
        let value = base.get(key).map_or_else(|| value.clone(), |it| merge(it, value));
        merged.insert(key.clone(), value);
    }
    Value::Object(merged)
}

impl Schema {
    /// Reads a schema that stands at that key path; every keyword that this
    /// version cannot enforce is an error.
    pub fn parse(at: &str, value: &Value) -> Result<Self, Vec<String>> {
        let mut wrong = Vec::new();
        let schema = Reader { wrong: &mut wrong }.schema(at, value);
        if wrong.is_empty() { Ok(schema) } else { Err(wrong) }
    }

    /// Adds a line to `wrong` for each place where the value does not suit.
    pub fn check(&self, at: &str, value: &Value, wrong: &mut Vec<String>) {
        if !self.types.is_empty() && !self.types.iter().any(|it| it.takes(value)) {
            let wanted: Vec<&str> = self.types.iter().map(|it| it.name()).collect();
            let wanted = wanted.join(" or ");
            wrong.push(format!("{at}: must be of type {wanted}, is {}", kind_of(value)));
            return;
        }
        if let Some(allowed) = &self.allowed
            && !allowed.contains(value)
        {
            let list: Vec<String> = allowed.iter().map(Value::to_string).collect();
            wrong.push(format!("{at}: must be one of {}", list.join(", ")));
        }
        match value {
            Value::Object(object) => self.check_object(at, object, wrong),
            Value::Array(array) => self.check_items(at, array, wrong),
            Value::Number(number) => self.check_range(at, number.as_f64(), wrong),
            _ => {}
        }
    }

    fn check_object(&self, at: &str, object: &Map<String, Value>, wrong: &mut Vec<String>) {
        for key in self.required.iter().filter(|it| !object.contains_key(*it)) {
            wrong.push(format!("{at}.{key}: is required"));
        }
        for (key, value) in object {
            let at = format!("{at}.{key}");
            match (self.properties.get(key), &self.others) {
                (Some(schema), _) => schema.check(&at, value, wrong),
                (None, Others::Any) => {}
                (None, Others::Like(schema)) => schema.check(&at, value, wrong),
                (None, Others::None) => {
                    wrong.push(format!("{at}: is not a setting of this plugin"))
                }
            }
        }
    }

    fn check_items(&self, at: &str, array: &[Value], wrong: &mut Vec<String>) {
        let Some(schema) = &self.items else { return };
        for (index, value) in array.iter().enumerate() {
            schema.check(&format!("{at}[{index}]"), value, wrong);
        }
    }

    fn check_range(&self, at: &str, number: Option<f64>, wrong: &mut Vec<String>) {
        let Some(number) = number else { return };
        if let Some(minimum) = self.minimum.filter(|it| number < *it) {
            wrong.push(format!("{at}: must be at least {minimum}"));
        }
        if let Some(maximum) = self.maximum.filter(|it| number > *it) {
            wrong.push(format!("{at}: must be at most {maximum}"));
        }
    }
}

impl Type {
    const ALL: [Self; 7] = [
        Self::Null,
        Self::Boolean,
        Self::Number,
        Self::Integer,
        Self::String,
        Self::Array,
        Self::Object,
    ];

    /// As schemas write it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Boolean => "boolean",
            Self::Number => "number",
            Self::Integer => "integer",
            Self::String => "string",
            Self::Array => "array",
            Self::Object => "object",
        }
    }

    /// The type of that name.
    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }

    /// In a sentence.
    pub(super) fn with_article(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Boolean => "a boolean",
            Self::Number => "a number",
            Self::Integer => "an integer",
            Self::String => "a string",
            Self::Array => "an array",
            Self::Object => "an object",
        }
    }

    /// In the place of a value.
    pub(super) fn placeholder(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Boolean => "true|false",
            Self::Number => "NUMBER",
            Self::Integer => "INTEGER",
            Self::String => "STRING",
            Self::Array | Self::Object => "JSON",
        }
    }

    /// Whether a value is of it; 3.0 is an integer.
    pub(super) fn takes(self, value: &Value) -> bool {
        match self {
            Self::Null => value.is_null(),
            Self::Boolean => value.is_boolean(),
            Self::Number => value.is_number(),
            Self::Integer => value.as_f64().is_some_and(|it| it.fract() == 0.0),
            Self::String => value.is_string(),
            Self::Array => value.is_array(),
            Self::Object => value.is_object(),
        }
    }
}

/// Reads schemas and collects what is wrong with them.
struct Reader<'a> {
    wrong: &'a mut Vec<String>,
}

impl Reader<'_> {
    fn schema(&mut self, at: &str, value: &Value) -> Schema {
        let mut schema = Schema::default();
        let Some(object) = value.as_object() else {
            self.wrong.push(format!("{at}: must be an object, is {}", kind_of(value)));
            return schema;
        };
        for (keyword, value) in object {
            let at = format!("{at}.{keyword}");
            match keyword.as_str() {
                "type" => schema.types = self.types(&at, value),
                "properties" => schema.properties = self.properties(&at, value),
                "required" => schema.required = self.names(&at, value),
                "enum" => schema.allowed = self.list(&at, value).map(<[Value]>::to_vec),
                "additionalProperties" => schema.others = self.others(&at, value),
                "items" => schema.items = Some(Box::new(self.schema(&at, value))),
                "minimum" => schema.minimum = self.number(&at, value),
                "maximum" => schema.maximum = self.number(&at, value),
                it if ANNOTATIONS.contains(&it) => {}
                _ => self.wrong.push(format!(
                    "{at}: this keyword is not supported by this version, which enforces only {}",
                    ENFORCED.join(", ")
                )),
            }
        }
        schema
    }

    fn types(&mut self, at: &str, value: &Value) -> Vec<Type> {
        let names = if value.is_string() {
            vec![value.as_str().unwrap_or_default().to_owned()]
        } else {
            self.names(at, value)
        };
        names.iter().filter_map(|it| self.type_named(at, it)).collect()
    }

    fn type_named(&mut self, at: &str, name: &str) -> Option<Type> {
        let found = Type::named(name);
        if found.is_none() {
            self.wrong.push(format!("{at}: `{name}` is not a type"));
        }
        found
    }

    fn properties(&mut self, at: &str, value: &Value) -> BTreeMap<String, Schema> {
        let Some(object) = value.as_object() else {
            self.wrong.push(format!("{at}: must be an object, is {}", kind_of(value)));
            return BTreeMap::new();
        };
        by_name(
            object
                .iter()
                .map(|(key, value)| (key.clone(), self.schema(&format!("{at}.{key}"), value))),
        )
    }

    fn others(&mut self, at: &str, value: &Value) -> Others {
        match value {
            Value::Bool(true) => Others::Any,
            Value::Bool(false) => Others::None,
            other => Others::Like(Box::new(self.schema(at, other))),
        }
    }

    fn names(&mut self, at: &str, value: &Value) -> Vec<String> {
        let texts = value
            .as_array()
            .and_then(|it| it.iter().map(|it| it.as_str().map(str::to_owned)).collect());
        texts.unwrap_or_else(|| {
            self.wrong.push(format!("{at}: must be an array of strings"));
            Vec::new()
        })
    }

    fn list<'v>(&mut self, at: &str, value: &'v Value) -> Option<&'v [Value]> {
        let list = value.as_array().map(Vec::as_slice);
        if list.is_none() {
            self.wrong.push(format!("{at}: must be an array, is {}", kind_of(value)));
        }
        list
    }

    fn number(&mut self, at: &str, value: &Value) -> Option<f64> {
        let number = value.as_f64();
        if number.is_none() {
            self.wrong.push(format!("{at}: must be a number, is {}", kind_of(value)));
        }
        number
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(schema: &Value, value: &Value, want: &[&str]) {
        let mut wrong = Vec::new();
        match Schema::parse("configSchema", schema) {
            Ok(schema) => schema.check("config", value, &mut wrong),
            Err(findings) => wrong = findings,
        }
        assert_eq!(wrong, want);
    }

    #[test]
    fn objects_merge_and_everything_else_replaces() {
        let base = json!({"a": {"x": 1, "y": [1, 2]}, "b": 1});
        let over = json!({"a": {"y": [3]}, "c": null});
        assert_eq!(merge(&base, &over), json!({"a": {"x": 1, "y": [3]}, "b": 1, "c": null}));
        assert_eq!(merge(&json!({"a": {"x": 1}}), &json!({"a": 2})), json!({"a": 2}));
    }

    #[test]
    fn every_place_that_does_not_suit_is_named() {
        let schema = json!({
            "title": "Weather", "type": "object", "required": ["city"],
            "additionalProperties": false,
            "properties": {
                "city": {"type": "string"},
                "days": {"type": "integer", "minimum": 1, "maximum": 14},
                "unit": {"enum": ["C", "F"]},
                "also": {"type": "array", "items": {"type": ["string", "null"]}},
            },
        });
        check(&schema, &json!({"city": "Oslo", "days": 3, "unit": "C", "also": ["x", null]}), &[]);
        check(
            &schema,
            &json!({"days": 15, "unit": "K", "also": [1], "cty": "Oslo"}),
            &[
                "config.city: is required",
                "config.also[0]: must be of type string or null, is a number",
                "config.cty: is not a setting of this plugin",
                "config.days: must be at most 14",
                "config.unit: must be one of \"C\", \"F\"",
            ],
        );
        check(&schema, &json!([]), &["config: must be of type object, is an array"]);
        check(
            &schema,
            &json!({"city": "Oslo", "days": 0.5}),
            &["config.days: must be of type integer, is a number"],
        );
    }

    #[test]
    fn other_properties_can_have_a_schema() {
        let schema = json!({"additionalProperties": {"type": "boolean"}});
        check(&schema, &json!({"a": true}), &[]);
        check(&schema, &json!({"a": 1}), &["config.a: must be of type boolean, is a number"]);
    }

    #[test]
    fn a_keyword_that_nothing_enforces_is_refused() {
        check(
            &json!({"properties": {"city": {"pattern": "^O"}}}),
            &json!({}),
            &["configSchema.properties.city.pattern: this keyword is not supported by this \
               version, which enforces only type, properties, required, enum, \
               additionalProperties, items, minimum, maximum"],
        );
    }

    #[test]
    fn a_broken_schema_is_refused() {
        check(&json!(true), &json!({}), &["configSchema: must be an object, is a boolean"]);
        check(&json!({"type": "text"}), &json!({}), &["configSchema.type: `text` is not a type"]);
        check(
            &json!({"required": "a"}),
            &json!({}),
            &["configSchema.required: must be an array of strings"],
        );
    }

    #[test]
    fn a_value_is_never_shown() {
        let mut wrong = Vec::new();
        let schema = Schema::parse("", &json!({"type": "number", "enum": [1]})).unwrap_or_default();
        schema.check("config.token", &json!("hunter2"), &mut wrong);
        assert!(wrong.len() == 1 && !wrong.concat().contains("hunter2"), "{wrong:?}");
    }
}
