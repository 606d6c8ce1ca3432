//! Who may use what. Pure: names in, [`Decision`] out; no I/O, no clock, and
//! what is unknown is denied. Asked at call time, on every path, by the
//! toolbox alone.

/// The core tools: always granted, since the sandbox is their wall.
pub const CORE_TOOLS: [&str; 4] = ["read", "write", "patch", "exec"];

/// Longest tool name that a refusal repeats, in bytes.
const LONGEST_SHOWN: usize = 256;

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing here stands against it.
    Allow,
    /// Refused, and why, as the caller is told.
    Deny(String),
}

/// Whether a call that asks for a core tool may go on. A refusal lists what
/// there is: plugin tools as the commands that they are.
pub fn core(tool: &str, granted: &[String]) -> Decision {
    if is_core(tool) {
        return Decision::Allow;
    }
    let colon = if granted.is_empty() { "" } else { ": " };
    Decision::Deny(format!(
        "Unknown tool: {}. The tools are read, write, patch and exec; every other tool is a \
         command that exec runs{colon}{}",
        shown(tool),
        granted.join(", ")
    ))
}

/// Whether an agent may use a plugin's tool. A core tool is never reached this
/// way, whatever is granted.
pub fn plugin(agent: &str, granted: &[String], tool: &str) -> Decision {
    if !is_core(tool) && granted.iter().any(|it| it == tool) {
        return Decision::Allow;
    }
    let tool = shown(tool);
    Decision::Deny(format!("Permission denied: tool '{tool}' is not allowed for agent '{agent}'"))
}

/// Whether the name is one of [`CORE_TOOLS`].
pub fn is_core(tool: &str) -> bool {
    CORE_TOOLS.contains(&tool)
}

/// The name comes from outside and may be of any length.
fn shown(tool: &str) -> &str {
    let mut end = tool.len().min(LONGEST_SHOWN);
    while !tool.is_char_boundary(end) {
        end -= 1;
    }
    &tool[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(granted: &[&str], tool: &str, want: Decision) {
        let granted: Vec<String> = granted.iter().map(|it| (*it).to_owned()).collect();
        assert_eq!(plugin("bl1", &granted, tool), want);
    }

    fn refused(tool: &str) -> Decision {
        let text = format!("Permission denied: tool '{tool}' is not allowed for agent 'bl1'");
        Decision::Deny(text)
    }

    #[test]
    fn a_granted_tool_is_allowed() {
        check(&["echo", "git"], "git", Decision::Allow);
    }

    #[test]
    fn an_unlisted_tool_is_refused() {
        check(&["echo"], "git", refused("git"));
        check(&[], "", refused(""));
        check(&["git"], "Git", refused("Git"));
        check(&["git"], "git ", refused("git "));
        check(&["git"], "__proto__", refused("__proto__"));
    }

    #[test]
    fn a_core_tool_is_no_plugin_tool_even_if_listed() {
        for tool in CORE_TOOLS {
            check(&CORE_TOOLS, tool, refused(tool));
        }
    }

    #[test]
    fn core_tools_are_always_granted_and_nothing_else_is_one() {
        assert!(CORE_TOOLS.iter().all(|it| core(it, &[]) == Decision::Allow));
        let all = "Unknown tool: zap. The tools are read, write, patch and exec; every other tool \
                   is a command that exec runs";
        assert_eq!(core("zap", &[]), Decision::Deny(all.into()));
        let granted = ["git".to_owned(), "notes".to_owned()];
        assert_eq!(core("zap", &granted), Decision::Deny(format!("{all}: git, notes")));
    }

    #[test]
    fn a_refusal_repeats_no_more_than_the_start_of_a_long_name() {
        check(&[], &"€".repeat(1_000), refused(&"€".repeat(85)));
    }
}
