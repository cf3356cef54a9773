//! `farside top`: a live view of a gateway.
//!
//! It speaks to the gateway as any client does, so it works from another machine too: once a second it
//! asks for `FARSIDE STATS` and shows what has changed. `frame` turns the history into cells and knows nothing
//! of a terminal; `screen`, `svg` and `--once` show the cells.

mod frame;
pub(crate) mod link;
mod plain;
mod screen;
mod svg;

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use farside_gateway::{Password, TlsClient, TlsClientFiles};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use self::link::{Encryption, Link, Target};
use crate::history::History;
use farside_cli::{Failure, chain, scalar};

/// How often the view is renewed.
const INTERVAL: Duration = Duration::from_secs(1);
/// The size of a frame that no terminal decides.
const AREA: Rect = Rect::new(0, 0, 104, 32);

/// Its flags.
#[derive(Debug, Args)]
pub struct TopArgs {
    /// The gateway to watch
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:6380", value_parser = scalar::address)]
    connect: SocketAddr,
    /// A file with the gateway's password
    #[arg(long, value_name = "PATH")]
    auth_file: Option<PathBuf>,
    /// The user to log in as, with --auth-file
    #[arg(long, value_name = "NAME", default_value = "default", requires = "auth_file")]
    user: String,
    /// Use TLS, with a gateway whose certificate is signed by one of these, in PEM format
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// The name in the gateway's certificate [default: its address]
    #[arg(long, value_name = "NAME", requires = "tls_ca")]
    tls_name: Option<String>,
    /// The certificate to show to a gateway that was started with --tls-client-ca
    #[arg(long, value_name = "FILE", requires = "tls_ca", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Its private key in PEM format
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Print one frame as text, which covers one second, and exit
    #[arg(long)]
    once: bool,
    /// With --once: print one JSON object, with everything since the gateway started
    #[arg(long, requires = "once")]
    json: bool,
    /// Watch for a minute, then draw the last frame into this file
    #[arg(long, value_name = "PATH", hide = true, conflicts_with = "once")]
    svg: Option<PathBuf>,
}

/// How many seconds an image shows.
const SVG_INTERVALS: usize = 60;

/// Shows what is asked for.
///
/// # Errors
/// If the gateway cannot be reached, or refuses.
pub fn run(args: TopArgs) -> Result<ExitCode, Failure> {
    let password = args.auth_file.as_deref().map(Password::from_file).transpose();
    let target = Target {
        address: args.connect,
        user: args.user.clone(),
        password: password.map_err(Failure::usage)?,
        tls: encryption(&args)?,
    };
    if args.json {
        let mut link = Link::open(&target).map_err(Failure::usage)?;
        print(&(link.stats().map_err(Failure::usage)? + "\n"));
    } else if args.once {
        print(&plain::text(&watch(&target, 1)?));
    } else if let Some(path) = args.svg {
        let image = svg::draw(&watch(&target, SVG_INTERVALS)?);
        std::fs::write(&path, image).map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?;
    } else {
        screen::run(target)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn encryption(args: &TopArgs) -> Result<Option<Encryption>, Failure> {
    let Some(authority) = args.tls_ca.clone() else {
        return Ok(None);
    };
    let files = TlsClientFiles {
        authority,
        identity: args.tls_cert.clone().zip(args.tls_key.clone()),
    };
    let client = TlsClient::from_files(&files).map_err(|error| Failure::usage(chain(&error)))?;
    let name = args.tls_name.clone();
    Ok(Some(Encryption { client, name }))
}

fn print(text: &str) {
    // A closed pipe is the reader's choice.
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// The frame after so many intervals.
fn watch(target: &Target, intervals: usize) -> Result<Buffer, Failure> {
    let mut link = Link::open(target).map_err(Failure::usage)?;
    let mut history = History::new(target.address);
    history.take(Ok(link.report().map_err(Failure::usage)?));
    for _ in 0..intervals {
        pause();
        history.take(Ok(link.report().map_err(Failure::runtime)?));
    }
    let mut cells = Buffer::empty(AREA);
    frame::draw(&history, AREA, &mut cells);
    Ok(cells)
}

fn pause() {
    #[expect(clippy::disallowed_methods, reason = "a thread of its own, without a runtime")]
    std::thread::sleep(INTERVAL);
}
