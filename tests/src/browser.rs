//! A browser without a window, driven by WebDriver (<https://www.w3.org/TR/webdriver2/>): what a page shows and does, as a person meets it.
//! Needs Debian's chromium and chromium-driver; `SHOAL_CHROMEDRIVER` names the driver where it is not on the path.

use crate::processes::Running;
use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tokio::time::Instant;

/// How long a driver may take for one thing, and to begin.
const PATIENCE: Duration = Duration::from_secs(60);

/// A browser with one page. It ends with this.
#[derive(Debug)]
pub struct Browser {
    driver: Driver,
    session: String,
}

/// The process that drives it.
#[derive(Debug)]
struct Driver {
    port: u16,
    _process: Running,
}

/// The driver's program; none where there is none.
fn program() -> Option<PathBuf> {
    let named = std::env::var_os("SHOAL_CHROMEDRIVER").map(Into::into);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&path).map(|folder| folder.join("chromedriver"));
    named.or_else(|| places.find(|program| program.is_file()))
}

/// Why there can be no browser here; none if there can.
pub fn missing() -> Option<String> {
    let how = "install chromium and chromium-driver, or name the driver in SHOAL_CHROMEDRIVER";
    program().is_none().then(|| format!("there is no chromedriver: {how}"))
}

impl Browser {
    /// One whose window has so many pixels.
    ///
    /// # Errors
    /// There is no driver, or it begins no session.
    pub fn start(width: u32, height: u32) -> anyhow::Result<Browser> {
        let mut command = Command::new(program().context("there is no chromedriver")?);
        let port = std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        command.arg(format!("--port={port}"));
        let driver = Driver { port, _process: Running::start(command, Path::new("/dev/null"))? };
        let size = format!("--window-size={width},{height}");
        let arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", &size];
        let wanted =
            json!({ "capabilities": { "alwaysMatch": { "goog:chromeOptions": { "args": arguments } } } });
        let listens_by = Instant::now() + PATIENCE;
        while let Err(error) = TcpStream::connect(("127.0.0.1", port)) {
            ensure!(Instant::now() < listens_by, "the driver does not listen at port {port}: {error}");
            pause()?;
        }
        let begun = driver.call("POST", "/session", &wanted)?;
        let id = begun["sessionId"].as_str().context("no session")?.to_owned();
        let browser = Browser { driver, session: format!("/session/{id}") };
        // Windows have a least width.
        let metrics =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        let command = json!({ "cmd": "Emulation.setDeviceMetricsOverride", "params": metrics });
        browser.call("/goog/cdp/execute", &command)?;
        Ok(browser)
    }

    /// Opens a page.
    ///
    /// # Errors
    /// It does not load.
    pub fn open(&self, address: &str) -> anyhow::Result<()> {
        self.call("/url", &json!({ "url": address })).map(drop)
    }

    /// What a script returns that is run on the page; `argument` is `arguments[0]` there.
    ///
    /// # Errors
    /// It throws.
    pub fn run(&self, script: &str, argument: &str) -> anyhow::Result<Value> {
        self.call("/execute/sync", &json!({ "script": script, "args": [argument] }))
    }

    fn call(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        self.driver.call("POST", &format!("{}{path}", self.session), body)
    }
}

/// A tenth of a second. clippy.toml has no sleep for threads: a process sleeps.
pub fn pause() -> std::io::Result<()> {
    Command::new("sleep").arg("0.1").status().map(drop)
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It takes the browser with it.
        let _ = self.driver.call("DELETE", &self.session, &Value::Null);
    }
}

impl Driver {
    fn call(&self, method: &str, path: &str, body: &Value) -> anyhow::Result<Value> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let kind = "Content-Type: application/json\r\n";
        let answer = ask(self.port, &format!("{method} {path}"), kind, &body)?;
        let mut answer: Value = serde_json::from_str(&answer).with_context(|| answer.clone())?;
        let value = answer["value"].take();
        match value["error"].as_str() {
            Some(error) => bail!("{method} {path}: {error}: {}", value["message"]),
            None => Ok(value),
        }
    }
}

/// The body of an HTTP server's answer on this machine, which has to be as long as it says; `headers` end each with a line's end.
///
/// # Errors
/// Nobody answers there.
pub fn ask(port: u16, what: &str, headers: &str, body: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let length = body.len();
    let head = format!("{what} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n{headers}");
    write!(stream, "{head}Content-Length: {length}\r\n\r\n{body}")?;
    let mut read = Vec::new();
    let mut piece = [0; 1 << 16];
    loop {
        let text = String::from_utf8_lossy(&read);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let lines = head.lines().filter_map(|line| line.split_once(':'));
            let mut length = lines.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
            let length = length.next().and_then(|(_, length)| length.trim().parse::<usize>().ok());
            if length.is_some_and(|length| body.len() >= length) {
                return Ok(body.to_owned());
            }
        }
        let count = stream.read(&mut piece)?;
        ensure!(count > 0, "the answer ends early: {text}");
        read.extend_from_slice(&piece[..count]);
    }
}
