//! `beige/tools/*`: a plugin has a tool called on behalf of an agent, with that
//! agent's rights and in the audit log, as all that runs.

use serde_json::{Value, json};

use super::{Answered, Asked, Method};
use crate::error::{Error, Kind};
use crate::gateway::fields::{Fields, each, key, list, name, object, text};
use crate::policy;
use crate::tool::PluginCall;

pub(super) const METHODS: &[Method] = &[
    Method {
        name: "tools/invoke",
        fields: &["tool", "args", "agentName", "sessionContext"],
        answer: invoke,
    },
    Method { name: "tools/list", fields: &[], answer: list_all },
];

fn invoke(asked: &Asked<'_>, fields: &mut Fields) -> Answered {
    let tool = fields.required("tool", name)?;
    let context = fields.optional("sessionContext", object)?.unwrap_or_default();
    let mut context = Fields::any(context);
    let session = context.optional("sessionKey", key)?;
    let named = fields.optional("agentName", name)?;
    let named = match named {
        Some(agent) => Some(agent),
        None => context.optional("agentName", name)?,
    };
    let agent = match (named, &session) {
        (Some(agent), _) => agent,
        (None, Some(session)) => asked.owner(session)?,
        (None, None) => {
            let what = "`agentName` is missing: it says whose rights count";
            return Err(Error::new(Kind::Usage, what).into());
        }
    };
    let (handle, cancel, session) = (&asked.handle, asked.request.cancel, session.as_deref());
    let answer = if policy::is_core(&tool) {
        let params = fields.required("args", object)?;
        handle.call_tool(&agent, &tool, Value::Object(params), session, cancel)?
    } else {
        let args = each("args", fields.required("args", list)?, text)?;
        let call = PluginCall { tool, args, cwd: String::new(), stdin: None };
        handle.call_plugin_tool(&agent, call, session, cancel)?
    };
    let exit_code = answer.exit_code().unwrap_or(i32::from(answer.is_error));
    Ok(json!({"output": answer.plain_text(), "exitCode": exit_code}))
}

fn list_all(asked: &Asked<'_>, _: &mut Fields) -> Answered {
    let tools = asked.engine().toolbox.registry().tools().map(|it| it.name.as_str());
    Ok(json!({"tools": tools.collect::<Vec<&str>>()}))
}
