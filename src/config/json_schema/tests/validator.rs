//! As much of a JSON Schema validator as the printed schema needs; a keyword
//! it does not know is a failure.

use serde_json::Value;

/// Whether a value fits a schema.
pub(super) fn fits(value: &Value, schema: &Value) -> bool {
    if let Some(answer) = schema.as_bool() {
        return answer;
    }
    let keywords = schema.as_object().expect("a schema");
    keywords.iter().all(|(keyword, operand)| holds(value, keyword, operand, schema))
}

fn holds(value: &Value, keyword: &str, operand: &Value, schema: &Value) -> bool {
    let number = || (value.as_f64(), operand.as_f64().expect("a number"));
    let all = |of: &Value| of.as_array().expect("an array").clone();
    match keyword {
        "$schema" | "$comment" | "title" | "description" | "default" => true,
        "type" => has_type(value, operand.as_str().expect("one type")),
        "enum" => all(operand).contains(value),
        "anyOf" => all(operand).iter().any(|it| fits(value, it)),
        "not" => !fits(value, operand),
        "minimum" => number().0.is_none_or(|it| it >= number().1),
        "maximum" => number().0.is_none_or(|it| it <= number().1),
        "exclusiveMinimum" => number().0.is_none_or(|it| it > number().1),
        "minLength" => {
            value.as_str().is_none_or(|it| it.chars().count() as u64 >= operand.as_u64().unwrap())
        }
        "pattern" => value.as_str().is_none_or(|it| matches(operand.as_str().unwrap(), it)),
        "items" => value.as_array().is_none_or(|it| it.iter().all(|it| fits(it, operand))),
        _ => match value.as_object() {
            Some(object) => holds_for_object(object, keyword, operand, schema),
            None => is_for_objects(keyword),
        },
    }
}

fn is_for_objects(keyword: &str) -> bool {
    let known =
        ["properties", "required", "additionalProperties", "propertyNames", "minProperties"];
    assert!(known.contains(&keyword), "unknown keyword {keyword}");
    true
}

fn holds_for_object(
    object: &serde_json::Map<String, Value>,
    keyword: &str,
    operand: &Value,
    schema: &Value,
) -> bool {
    match keyword {
        "properties" => {
            object.iter().all(|(key, it)| operand.get(key).is_none_or(|of| fits(it, of)))
        }
        "required" => {
            let needed = operand.as_array().expect("an array");
            needed.iter().all(|it| object.contains_key(it.as_str().expect("a name")))
        }
        "additionalProperties" => {
            let named = |key: &str| schema.pointer("/properties").and_then(|it| it.get(key));
            object.iter().all(|(key, it)| named(key).is_some() || fits(it, operand))
        }
        "propertyNames" => object.keys().all(|it| fits(&Value::from(it.as_str()), operand)),
        "minProperties" => object.len() as u64 >= operand.as_u64().expect("a number"),
        _ => is_for_objects(keyword),
    }
}

fn has_type(value: &Value, name: &str) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "number" => value.is_number(),
        "integer" => value.as_i64().is_some() || value.as_f64().is_some_and(|it| it.fract() == 0.0),
        other => panic!("unknown type {other}"),
    }
}

/// Whether a pattern is found in a text: alternatives at the top, anchors,
/// sets, escapes, and counts behind a single mark.
fn matches(pattern: &str, text: &str) -> bool {
    let text: Vec<char> = text.chars().collect();
    pattern.split('|').any(|it| {
        let marks = parse(it);
        (0..=text.len()).any(|start| matches_at(&marks, &text, start))
    })
}

enum Mark {
    Start,
    End,
    /// Ranges, whether it is those it is not in, least and most times.
    Set(Vec<(char, char)>, bool, usize, usize),
}

fn parse(pattern: &str) -> Vec<Mark> {
    let chars: Vec<char> = pattern.chars().collect();
    let (mut at, mut marks) = (0, Vec::new());
    while at < chars.len() {
        let mark = match chars[at] {
            '^' => Mark::Start,
            '$' => Mark::End,
            '[' => {
                let negated = chars[at + 1] == '^';
                at += 1 + usize::from(negated);
                let mut ranges = Vec::new();
                while chars[at] != ']' {
                    let low = one(&chars, &mut at);
                    let is_range = chars[at] == '-' && chars[at + 1] != ']';
                    at += usize::from(is_range);
                    let high = if is_range { one(&chars, &mut at) } else { low };
                    ranges.push((low, high));
                }
                Mark::Set(ranges, negated, 1, 1)
            }
            '(' | ')' | '?' | '.' => panic!("unknown mark in {pattern}"),
            _ => {
                let it = one(&chars, &mut at);
                at -= 1;
                Mark::Set(vec![(it, it)], false, 1, 1)
            }
        };
        at += 1;
        marks.push(counted(mark, &chars, &mut at));
    }
    marks
}

/// One character, escaped or not.
fn one(chars: &[char], at: &mut usize) -> char {
    let it = chars[*at];
    *at += 1;
    if it != '\\' {
        return it;
    }
    let escaped = chars[*at];
    *at += 1;
    if escaped != 'u' {
        return escaped;
    }
    let digits: String = chars[*at..*at + 4].iter().collect();
    *at += 4;
    u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32).expect("a character")
}

fn counted(mark: Mark, chars: &[char], at: &mut usize) -> Mark {
    let Mark::Set(ranges, negated, ..) = mark else { return mark };
    let (least, most) = match chars.get(*at) {
        Some('*') => (0, usize::MAX),
        Some('+') => (1, usize::MAX),
        Some('{') => {
            let end = *at + chars[*at..].iter().position(|it| *it == '}').expect("a count");
            let text: String = chars[*at + 1..end].iter().collect();
            *at = end;
            let (least, most) = text.split_once(',').expect("two numbers");
            (least.parse().expect("a number"), most.parse().expect("a number"))
        }
        _ => return Mark::Set(ranges, negated, 1, 1),
    };
    *at += 1;
    Mark::Set(ranges, negated, least, most)
}

fn matches_at(marks: &[Mark], text: &[char], at: usize) -> bool {
    match marks.split_first() {
        None => true,
        Some((Mark::Start, rest)) => at == 0 && matches_at(rest, text, at),
        Some((Mark::End, rest)) => at == text.len() && matches_at(rest, text, at),
        Some((Mark::Set(ranges, negated, least, most), rest)) => {
            let fits = |it: &char| ranges.iter().any(|(low, high)| low <= it && it <= high);
            let run = text[at..].iter().take_while(|it| fits(it) != *negated).count();
            (*least..=run.min(*most)).rev().any(|count| matches_at(rest, text, at + count))
        }
    }
}

#[test]
fn patterns_are_understood() {
    let check = |pattern: &str, text: &str, want: bool| {
        assert_eq!(matches(pattern, text), want, "{pattern} on {text:?}");
    };
    check("^[a-z0-9][a-z0-9_-]{0,2}$", "a-_", true);
    check("^[a-z0-9][a-z0-9_-]{0,2}$", "abcd", false);
    check("^[^/\\u0000-\\u001f]+$", "a b", true);
    check("^[^/\\u0000-\\u001f]+$", "a\nb", false);
    check("^A$|^B_", "B_x", true);
    check("^A$|^B_", "xB_", false);
    check("\\$\\{", "a${b}", true);
    check("\\$\\{", "a$b", false);
}
