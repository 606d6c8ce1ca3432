//! The gateway's own process: puts configuration, log and front ends together
//! and hands them to the engine; once it answers, a daemon leaves the terminal.

use std::cell::Cell;
use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;

use super::{Invocation, READY, first_start, print};
use crate::channel::http::Http;
use crate::cli::logger::{self, GatewayLog};
use crate::cli::process;
use crate::error::{During, Error, Kind, Result};
use crate::gateway::{self, ConfigInUse, End, Fresh, FrontEnds};

/// The gateway itself, in this process.
pub(super) fn serve(invocation: &Invocation, daemon: bool) -> Result<u8> {
    let home = invocation.home()?;
    process::restart_frugally(&home);
    process::rise_after_panics();
    process::raise_descriptor_limit()?;
    if daemon {
        // Fails only for a process group leader, which a child never is.
        let _ = rustix::process::setsid();
    } else {
        first_start(invocation, &home)?;
    }
    let read = || fresh(invocation, daemon);
    let fresh = read()?;
    let place = if daemon { logger::Place::File } else { logger::Place::Stderr };
    let log = GatewayLog::start(place, &fresh.config.gateway, fresh.redactor.clone())?;
    let log_file = fresh.config.gateway.log_file.clone();
    let known = fresh.redactor.clone();
    let (address, detached) = (Cell::new(None), Cell::new(false));
    let front = FrontEnds {
        start: &|handle, doors, config| {
            address.set(doors.tcp.local_addr().ok());
            log.follow(&config.gateway);
            if detached.get()
                && let Err(error) = panics_to(&config.gateway.log_file)
            {
                log::warn!("{error}");
            }
            Http::start(handle, doors.tcp, doors.unix, config)
                .map(|it| Box::new(it) as Box<dyn Send>)
        },
        ready: &|| {
            detached.set(daemon);
            if daemon { detach(&log_file, address.get()) } else { Ok(()) }
        },
        reload: &|| {
            let fresh = read()?;
            // The log goes on, so it must know the new secrets; it forgets
            // none of the old.
            fresh.config.secrets.iter().for_each(|it| known.learn(it.expose()));
            Ok(Fresh { redactor: known.clone(), ..fresh })
        },
    };
    let end = gateway::serve(fresh, &front)
        .map_err(|it| if is_for_good(&it) { it.of_kind(Kind::Config) } else { it })?;
    Ok(match end {
        End::Stopped => 0,
        End::Signal(number) => u8::try_from(128 + number).unwrap_or(1),
    })
}

/// The configuration as it is now.
fn fresh(invocation: &Invocation, daemon: bool) -> Result<Fresh> {
    let in_use = ConfigInUse::look(&invocation.config_file()?);
    let in_use = if daemon { in_use } else { in_use.in_foreground() };
    let (config, redactor) = invocation.load_config()?;
    let in_use = in_use.logging_to(&config.gateway.log_file);
    Ok(Fresh { config, redactor, in_use })
}

/// Whether starting again would end the same way.
fn is_for_good(error: &Error) -> bool {
    matches!(error.kind(), Kind::Config | Kind::Conflict)
}

/// Says that the gateway answers and lets go of the terminal it came from.
fn detach(log_file: &Path, address: Option<SocketAddr>) -> Result<()> {
    let what = "leave the terminal";
    let address = address.map_or_else(String::new, |it| it.to_string());
    print(&format!("{READY}{address}\n"))?;
    let null = File::options().write(true).open("/dev/null").during(Kind::Internal, what)?;
    rustix::stdio::dup2_stdout(&null).during(Kind::Internal, what)?;
    panics_to(log_file)
}

/// A panic's words belong into the log.
fn panics_to(log_file: &Path) -> Result<()> {
    let log = File::options().append(true).open(log_file);
    let log = log.or_else(|_| File::options().write(true).open("/dev/null"));
    let what = "lead standard error into the log";
    rustix::stdio::dup2_stderr(log.during(Kind::Internal, what)?).during(Kind::Internal, what)
}
