//! What a model is told that writes its calls as text: the tools and the format
//! in the system prompt, and the calls and results so far in the same words.
//! Pure. User messages that meet are one, since the chat templates of local
//! models want roles that alternate.

use serde_json::{Map, Value, json};

use super::{CLOSING, OPENING};
use crate::message::{Assistant, Block, Content, Message, ToolCall, ToolResult, User};
use crate::provider::{Request, ToolDefinition};

/// The system prompt, with how to call which tools if there are any.
pub(super) fn system(request: &Request<'_>) -> String {
    let Some(first) = request.tools.first() else { return request.system.to_owned() };
    let tools: Vec<String> = request.tools.iter().map(tool).collect();
    let how = format!(
        "## How to call tools\n\n\
         To call a tool, write a block like this one into your answer, each marker on a line of \
         its own:\n\n\
         {}\n\n\
         Between the markers stands one JSON object: `name` is the tool, `arguments` is an object \
         with its arguments. Several blocks one after another call several tools, in that order. \
         Behind the last block your answer ends: what came of the calls is in the next message, \
         one `<tool_response>` block a call, in the same order. You never write such a block \
         yourself. A block inside a code fence (```) is not run; show examples that way.\n\n\
         These are the tools; `parameters` is the JSON Schema of the arguments:\n\n\
         {}",
        call(&first.name, &example(&first.parameters)),
        tools.join("\n")
    );
    let break_between = if request.system.is_empty() { "" } else { "\n\n" };
    format!("{}{break_between}{how}", request.system)
}

/// The conversation with calls and results as text.
pub(super) fn messages(messages: &[Message]) -> Vec<Message> {
    let mut told: Vec<Message> = Vec::with_capacity(messages.len());
    for message in messages {
        match message {
            Message::User(it) => add_user(&mut told, blocks(&it.content), it.timestamp),
            Message::ToolResult(it) => add_user(&mut told, result(it), it.timestamp),
            Message::Assistant(it) => told.push(Message::Assistant(Box::new(answer(it)))),
            // The session makes user messages of all others.
            _ => (),
        }
    }
    told
}

fn tool(tool: &ToolDefinition) -> String {
    let (name, description) = (json!(tool.name), json!(tool.description));
    let parameters = &tool.parameters;
    format!("{{\"name\": {name}, \"description\": {description}, \"parameters\": {parameters}}}")
}

/// Arguments that fit the schema, as far as its required properties go.
fn example(schema: &Value) -> Value {
    let required = schema.get("required").and_then(Value::as_array);
    let names = required.into_iter().flatten().filter_map(Value::as_str);
    let arguments = names.map(|name| {
        let kind = schema.pointer(&format!("/properties/{name}/type")).and_then(Value::as_str);
        let value = match kind {
            Some("integer" | "number") => json!(1),
            Some("boolean") => json!(true),
            Some("array") => json!([]),
            Some("object") => json!({}),
            _ => json!(format!("the {name}")),
        };
        (name.to_owned(), value)
    });
    Value::Object(arguments.collect::<Map<String, Value>>())
}

fn call(name: &str, arguments: &Value) -> String {
    let call = format!("{{\"name\": {}, \"arguments\": {arguments}}}", json!(name));
    format!("{OPENING}\n{}\n{CLOSING}", without_markers(&call))
}

/// JSON in which no marker stands: in its strings they can be escaped.
fn without_markers(json: &str) -> String {
    json.replace("</tool_", "<\\/tool_").replace("<tool_", "\\u003ctool_")
}

/// An answer with its calls as text, each on lines of its own.
fn answer(answer: &Assistant) -> Assistant {
    let mut told = Assistant { content: Vec::new(), ..answer.clone() };
    let mut is_at_start = true;
    for block in &answer.content {
        match block {
            Block::ToolCall(ToolCall { name, arguments, .. }) => {
                let line = if is_at_start { "" } else { "\n" };
                told.content.push(Block::text(format!("{line}{}", call(name, arguments))));
                is_at_start = false;
            }
            Block::Text(it) => {
                is_at_start =
                    if it.text.is_empty() { is_at_start } else { it.text.ends_with('\n') };
                told.content.push(block.clone());
            }
            _ => told.content.push(block.clone()),
        }
    }
    told
}

/// A result as text, and the images it holds.
fn result(result: &ToolResult) -> Vec<Block> {
    let mut images = blocks(&result.content);
    images.retain(|it| matches!(it, Block::Image(_)));
    let mut text = result.content.text();
    if text.is_empty() {
        let what = if images.is_empty() { "(no output)" } else { "(The image follows.)" };
        text.push_str(what);
    }
    let (name, text) = (json!(result.tool_name), json!(text));
    let error = if result.is_error { "\"error\": true, " } else { "" };
    let told = format!("{{\"name\": {name}, {error}\"content\": {text}}}");
    let text = format!("<tool_response>\n{}\n</tool_response>", without_markers(&told));
    [vec![Block::text(text)], images].concat()
}

fn blocks(content: &Content) -> Vec<Block> {
    match content {
        Content::Text(text) => vec![Block::text(text.clone())],
        Content::Blocks(blocks) => blocks.clone(),
    }
}

/// Says it in the user's name, in the message before if that is one.
fn add_user(told: &mut Vec<Message>, blocks: Vec<Block>, timestamp: i64) {
    if let Some(Message::User(User { content: Content::Blocks(before), .. })) = told.last_mut() {
        before.extend(blocks);
        return;
    }
    let content = Content::Blocks(blocks);
    told.push(Message::User(User { content, timestamp, ..User::default() }));
}
