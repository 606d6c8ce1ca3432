//! The schema table as a JSON Schema (draft 07), for editors and programs. It
//! says of a file *as it is written* what `check` says once every `${…}` has
//! its value; rules between fields and everything that takes a look at the
//! host are left to `beige config check`.

use serde_json::{Map, Value, json};

use crate::config::check::{NOT_SUPPORTED, RESERVED};
use crate::config::schema::{Field, Names, ROOT, Shape, Support};

/// What the schema cannot say, in it for whoever reads it.
const COMMENT: &str = "Made by `beige config schema`. A string may hold ${NAME}, ${NAME:-text} or \
                       ${file:/path}; what then stands there is checked by `beige config check`, \
                       as are rules between fields. A provider that no agent refers to may hold \
                       anything.";

/// A string in which something is still to be replaced.
const SUBSTITUTION: &str = "\\$\\{";

/// What a configuration may hold. Unknown fields are only warned of, so the
/// schema allows them, unless it is to be `strict`: as `config check --strict`.
pub fn json_schema(strict: bool) -> Value {
    let mut schema = Writer { strict }.shape(&ROOT);
    if let Some(schema) = schema.as_object_mut() {
        schema.insert("$schema".into(), "http://json-schema.org/draft-07/schema#".into());
        schema.insert("$comment".into(), COMMENT.into());
        schema.insert("title".into(), "config.json5 of beige".into());
    }
    schema
}

struct Writer {
    strict: bool,
}

impl Writer {
    fn shape(&self, shape: &Shape) -> Value {
        match shape {
            Shape::Object(fields) => self.object(fields),
            Shape::Map(names, of) => self.map(*names, of),
            Shape::FilledMap(names, of) => with(self.map(*names, of), "minProperties", json!(1)),
            Shape::List(of) => json!({"type": "array", "items": self.shape(of)}),
            Shape::Text => json!({"type": "string", "minLength": 1}),
            Shape::AnyText => json!({"type": "string"}),
            Shape::Flag => json!({"type": "boolean"}),
            Shape::Integer(least, most) => integer(*least, *most),
            Shape::Number(above, most) => number(*above, *most),
            Shape::OneOf(known) => one_of(known.iter().map(|it| json!(it)).collect()),
            Shape::Either(shapes) => {
                json!({"anyOf": shapes.iter().map(|it| self.shape(it)).collect::<Vec<_>>()})
            }
            Shape::Free => json!({"type": "object"}),
        }
    }

    fn object(&self, fields: &[Field]) -> Value {
        let properties: Map<String, Value> =
            fields.iter().map(|it| (it.name.to_owned(), self.field(it))).collect();
        let required: Vec<&str> =
            fields.iter().filter(|it| it.required).map(|it| it.name).collect();
        let mut schema = json!({"type": "object", "properties": properties});
        if !required.is_empty() {
            schema = with(schema, "required", json!(required));
        }
        with(schema, "additionalProperties", json!(!self.strict))
    }

    fn field(&self, field: &Field) -> Value {
        let schema = match field.support {
            Support::Full => self.shape(&field.shape),
            // Fits nothing: its presence is an error.
            Support::Later => json!({"not": {}, "description": NOT_SUPPORTED}),
            Support::Only(values) => one_of(values.iter().map(|it| parsed(it)).collect()),
        };
        match field.default {
            Some(default) => with(schema, "default", parsed(default)),
            None => schema,
        }
    }

    fn map(&self, names: Names, of: &Shape) -> Value {
        json!({
            "type": "object",
            "propertyNames": names_of(names),
            "additionalProperties": self.shape(of),
        })
    }
}

/// One of these values; where they are texts, one may also be put in.
fn one_of(values: Vec<Value>) -> Value {
    if values.iter().all(Value::is_string) {
        return json!({"anyOf": [{"enum": values}, {"type": "string", "pattern": SUBSTITUTION}]});
    }
    json!({"enum": values})
}

fn integer(least: i64, most: i64) -> Value {
    json!({"type": "integer", "minimum": least, "maximum": most})
}

fn number(above: f64, most: f64) -> Value {
    let schema = json!({"type": "number", "exclusiveMinimum": above});
    if most == f64::MAX { schema } else { with(schema, "maximum", json!(most)) }
}

fn names_of(names: Names) -> Value {
    const PLAIN: &str = "^[a-z0-9][a-z0-9_-]{0,39}$";
    const VARIABLE: &str = "^[A-Za-z_][A-Za-z0-9_]*$";
    match names {
        Names::Any => json!({"minLength": 1}),
        Names::Agent => json!({"pattern": PLAIN}),
        Names::Plugin => json!({"pattern": PLAIN, "not": {"enum": RESERVED}}),
        Names::Provider => json!({"pattern": "^[^/\\u0000-\\u001f\\u007f-\\u009f]+$"}),
        Names::Variable => json!({"pattern": VARIABLE}),
        Names::SandboxVariable => {
            json!({"pattern": VARIABLE, "not": {"pattern": "^PATH$|^HOME$|^LD_|^BEIGE_"}})
        }
    }
}

/// A value of the table, which a test parses.
fn parsed(json: &str) -> Value {
    serde_json::from_str(json).unwrap_or(Value::Null)
}

fn with(mut schema: Value, key: &str, value: Value) -> Value {
    if let Some(schema) = schema.as_object_mut() {
        schema.insert(key.to_owned(), value);
    }
    schema
}

#[cfg(test)]
mod tests;
