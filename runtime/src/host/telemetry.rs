//! Structured logs on standard error.

/// Starts logging for one process of the given role. `SHOAL_LOG` filters (default `info`). Calling it twice is harmless.
pub fn start() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("SHOAL_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    let is_coloured =
        std::env::var_os("NO_COLOR").is_none() && std::io::IsTerminal::is_terminal(&std::io::stderr());
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(is_coloured)
        .with_writer(std::io::stderr)
        .try_init();
}
