//! The schema of a tool's arguments as it is sent. Pure. The protocol's own
//! field, `parameters`, refuses a whole request for one keyword that it does
//! not know; `parametersJsonSchema` takes JSON Schema, but not every reference
//! in it. So references are replaced by what they mean, and what they were
//! taken from is left out.

use serde_json::{Map, Value, json};

/// Most values that a schema may have once its references are replaced: a few
/// that refer to each other make very many.
const MOST_VALUES: usize = 4_096;

/// Most references within each other; more are taken for a circle.
const DEEPEST: usize = 8;

/// What stands at the top of a schema and means nothing once its references
/// are replaced.
const LEFT_OUT: [&str; 4] = ["$schema", "$id", "$defs", "definitions"];

/// The schema to send; none for a tool that takes no arguments, since an
/// object without properties may be refused.
pub(super) fn sent(schema: &Value) -> Option<Value> {
    let fields = schema.as_object()?;
    let properties = fields.get("properties").and_then(Value::as_object);
    if properties.is_none_or(Map::is_empty) {
        return None;
    }
    let mut rewriting = Rewriting { root: schema, left: MOST_VALUES };
    let kept = fields.iter().filter(|(name, _)| !LEFT_OUT.contains(&name.as_str()));
    Some(Value::Object(rewriting.fields(kept, 0)))
}

/// A schema on its way.
struct Rewriting<'a> {
    root: &'a Value,
    left: usize,
}

impl Rewriting<'_> {
    fn value(&mut self, value: &Value, depth: usize) -> Value {
        if self.left == 0 {
            return anything();
        }
        self.left -= 1;
        match value {
            Value::Object(fields) => self.schema(fields, depth),
            Value::Array(items) => items.iter().map(|it| self.value(it, depth)).collect(),
            other => other.clone(),
        }
    }

    /// An object that may be a reference, with what stands beside it.
    fn schema(&mut self, fields: &Map<String, Value>, depth: usize) -> Value {
        let Some(reference) = fields.get("$ref").and_then(Value::as_str) else {
            return Value::Object(self.fields(fields.iter(), depth));
        };
        let meant = reference.strip_prefix('#').and_then(|it| self.root.pointer(it));
        let meant = match meant {
            Some(meant @ Value::Object(_)) if depth < DEEPEST => self.value(meant, depth + 1),
            _ => anything(),
        };
        let Value::Object(mut meant) = meant else { return meant };
        let beside = fields.iter().filter(|(name, _)| *name != "$ref");
        meant.extend(self.fields(beside, depth));
        Value::Object(meant)
    }

    fn fields<'b>(
        &mut self,
        fields: impl Iterator<Item = (&'b String, &'b Value)>,
        depth: usize,
    ) -> Map<String, Value> {
        fields.map(|(name, it)| (name.clone(), self.value(it, depth))).collect()
    }
}

fn anything() -> Value {
    json!({"type": "object"})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(schema: Value, want: Value) {
        assert_eq!(sent(&schema), Some(want));
    }

    #[test]
    fn a_plain_schema_is_sent_as_it_is() {
        let plain = json!({"type": "object", "required": ["a"], "additionalProperties": false,
            "properties": {"a": {"type": ["string", "null"], "const": "x", "minLength": 1},
                "b": {"anyOf": [{"type": "integer"}, {"type": "boolean"}]}}});
        check(plain.clone(), plain.clone());
        let mut marked = plain.clone();
        marked["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
        check(marked, plain);
    }

    #[test]
    fn a_tool_without_arguments_has_no_schema() {
        for schema in [
            json!({}),
            json!({"type": "object"}),
            json!({"type": "object", "properties": {}}),
            json!({"type": "object", "properties": null}),
            json!(null),
        ] {
            assert_eq!(sent(&schema), None);
        }
    }

    #[test]
    fn references_are_replaced_by_what_they_mean() {
        check(
            json!({"type": "object", "$defs": {"name": {"type": "string", "description": "a"}},
                "properties": {"x": {"$ref": "#/$defs/name", "description": "b"},
                    "y": {"type": "array", "items": {"$ref": "#/properties/x"}},
                    "$ref": {"type": "integer"}, "definitions": {"type": "integer"}}}),
            json!({"type": "object", "properties": {
                "x": {"type": "string", "description": "b"},
                "y": {"type": "array", "items": {"type": "string", "description": "b"}},
                "$ref": {"type": "integer"}, "definitions": {"type": "integer"}}}),
        );
    }

    #[test]
    fn what_refers_to_nothing_is_an_object() {
        check(
            json!({"properties": {"x": {"$ref": "#/$defs/none"}, "y": {"$ref": "other.json"}}}),
            json!({"properties": {"x": {"type": "object"}, "y": {"type": "object"}}}),
        );
    }

    #[test]
    fn circles_end() {
        let schema = json!({"type": "object", "properties": {"x": {"$ref": "#/$defs/node"}},
            "$defs": {"node": {"type": "object", "properties":
                {"left": {"$ref": "#/$defs/node"}, "right": {"$ref": "#/$defs/node"}}}}});
        let got = sent(&schema).unwrap_or_default().to_string();
        assert!(!got.contains("$ref") && got.len() < 100 * MOST_VALUES, "{}", got.len());
        check(
            json!({"properties": {"x": {"$ref": "#/properties/x"}}}),
            json!({"properties": {"x": {"type": "object"}}}),
        );
    }
}
