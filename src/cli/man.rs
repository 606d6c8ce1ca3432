//! `beige man`: the manual page, made from the command table and its help
//! texts, so that it says nothing that they do not.

use super::table::{Command, NOTHING};
use super::{COMMANDS, Invocation, print, unknown};
use crate::error::Result;

/// `beige man`.
pub(super) const COMMAND: Command = Command {
    name: "man",
    summary: "Print the manual page",
    help: "\
Usage: beige man

Prints the manual page beige(1) for man. To read it, and to install it for one
user and for all:

  beige man | man -l -
  mkdir -p ~/.local/share/man/man1 && beige man >~/.local/share/man/man1/beige.1
  beige man >/usr/local/share/man/man1/beige.1

  --config FILE  taken as by every command; it changes nothing here
",
    takes: NOTHING,
    actions: &[],
    run,
};

fn run(invocation: &mut Invocation) -> Result<u8> {
    if let Some(argument) = invocation.next()? {
        return Err(unknown(&COMMAND, &argument));
    }
    print(&page())?;
    Ok(0)
}

/// Where things lie, below the state folder.
const FILES: &[(&str, &str)] = &[
    ("~/.beige/", "The state folder, 0700; $BEIGE_HOME names another."),
    ("~/.beige/config.json5", "The configuration; --config and $BEIGE_CONFIG name another."),
    ("~/.beige/api.sock", "The HTTP API for this user; no token is asked for."),
    ("~/.beige/api-token", "The token that callers over TCP need, 0600."),
    ("~/.beige/agents/AGENT/workspace/", "Where an agent works, unless workspaceDir says else."),
    ("~/.beige/sessions/", "The conversations."),
    ("~/.beige/data/usage.jsonl", "What each model call took."),
    ("~/.beige/logs/audit.jsonl", "The audit log."),
    ("~/.beige/logs/gateway.log", "The log of a gateway in the background."),
];

const ENVIRONMENT: &[(&str, &str)] = &[
    ("BEIGE_HOME", "The state folder; default ~/.beige."),
    ("BEIGE_CONFIG", "The configuration, where --config names none."),
    ("NO_COLOR", "If it is set, no output is coloured."),
    ("TERM", "If it is `dumb`, no output is coloured."),
    ("COLUMNS", "Width of the terminal, before what the terminal says."),
    ("NOTIFY_SOCKET", "Set by systemd: the gateway says there when it is ready."),
];

const EXIT_CODES: &[(&str, &str)] = &[
    ("0", "Done."),
    ("1", "Failed; for a check, something was found."),
    ("2", "Wrong usage."),
    ("78", "Bad configuration, or what a restart cannot cure."),
    ("124", "exec: the time was up, and all that the command started is killed."),
    ("125", "exec: beige itself failed. Any other code is the command's own."),
    ("130, 143", "Ended by SIGINT or SIGTERM."),
];

const EXAMPLES: &[(&str, &str)] = &[
    ("Make a home and see whether all is in place", "beige setup && beige doctor"),
    ("Run a command in an agent's sandbox", "beige exec assistant -- sh -c 'echo hello'"),
    ("Ask an agent", "beige prompt assistant 'What is in this folder?'"),
    ("Start the daemon and follow its log", "beige gateway start && beige gateway logs -f"),
    ("See what was refused in the last hour", "beige audit --denied --since 1h"),
    ("See what each model has cost since a day", "beige usage --since 2026-11-30"),
];

/// The whole page, as roff.
fn page() -> String {
    let mut page = format!(
        ".TH BEIGE 1 \"\" \"beige {}\" \"User Commands\"\n\
         .SH NAME\nbeige \\- a gateway for AI agents, each in a sandbox of its own\n\
         .SH SYNOPSIS\n.B beige\n[\\fB\\-\\-config\\fR \\fIFILE\\fR]\n.I COMMAND\n\
         [\\fIARGUMENTS\\fR]\n.br\n.B beige \\-\\-help\n.br\n.B beige \\-\\-version\n.SH COMMANDS\n",
        env!("CARGO_PKG_VERSION")
    );
    for command in COMMANDS {
        page.push_str(&section_of(command));
    }
    page.push_str(&list("EXIT STATUS", EXIT_CODES));
    page.push_str(&list("ENVIRONMENT", ENVIRONMENT));
    page.push_str(&list("FILES", FILES));
    page.push_str(".SH EXAMPLES\n");
    for (what, line) in EXAMPLES {
        page.push_str(&format!(".PP\n{}:\n{}", roff(what), as_it_is(&format!("  {line}"))));
    }
    page.push_str(".SH SEE ALSO\n.BR bwrap (1),\n.BR docker (1),\n.BR podman (1)\n");
    page
}

/// A command's help, as it is.
fn section_of(command: &Command) -> String {
    let (name, summary, help) = (command.name, command.summary, command.help.trim_end());
    format!(".SS beige {}\n{}.\n.PP\n{}", roff(name), roff(summary), as_it_is(help))
}

/// Lines whose breaks and blanks stay.
fn as_it_is(text: &str) -> String {
    format!(".nf\n{}\n.fi\n", text.lines().map(roff).collect::<Vec<_>>().join("\n"))
}

fn list(title: &str, rows: &[(&str, &str)]) -> String {
    let mut text = format!(".SH {title}\n");
    for (name, what) in rows {
        text.push_str(&format!(".TP\n.B {}\n{}\n", roff(name), roff(what)));
    }
    text
}

/// One line in which nothing is an order to roff.
fn roff(line: &str) -> String {
    let mut text = String::new();
    if line.starts_with(['.', '\'']) {
        text.push_str("\\&");
    }
    for it in line.chars() {
        match it {
            '\\' => text.push_str("\\e"),
            '-' => text.push_str("\\-"),
            '\'' => text.push_str("\\(aq"),
            '`' => text.push_str("\\(ga"),
            '^' => text.push_str("\\(ha"),
            '~' => text.push_str("\\(ti"),
            '"' => text.push_str("\\(dq"),
            it if it.is_ascii() => text.push(it),
            it => text.push_str(&format!("\\[u{:04X}]", u32::from(it))),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_is_an_order_to_roff() {
        let check = |line: &str, want: &str| assert_eq!(roff(line), want);
        check(".TH x", "\\&.TH x");
        check("'a", "\\&\\(aqa");
        check("a\\fB --x", "a\\efB \\-\\-x");
        check("…", "\\[u2026]");
    }

    #[test]
    fn every_command_has_its_section() {
        let page = page();
        for command in COMMANDS {
            assert!(page.contains(&format!("\n.SS beige {}\n", command.name)), "{}", command.name);
            for flag in command.own_flags().flat_map(|it| it.names) {
                assert!(page.contains(&roff(flag)), "{flag}");
            }
        }
    }
}
