//! `pk3c-ccp top`: the flows of a running agent, live. It attaches to the control socket and starts nothing.

mod app;
mod draw;

use super::control::{AgentArgs, Client, Request};
use anyhow::{Context, Result, bail};
use app::{App, Input, Page};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use serde_json::Value;
use signal_hook::consts::{SIGHUP, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::IsTerminal;
use std::thread;
use std::time::{Duration, Instant};

/// Flows that are asked for: more than any terminal has lines.
const FLOWS_MAX: usize = 500;

/// Options of `pk3c-ccp top`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct TopArgs {
    /// Seconds between two looks; the agent's own numbers are a second old at most
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = interval)]
    interval: f64,
    #[command(flatten)]
    agent: AgentArgs,
}

fn interval(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|s| (0.2..=60.0).contains(s));
    seconds.ok_or_else(|| format!("`{text}` is not an interval: write seconds from 0.2 to 60"))
}

/// Shows the flows until `q`.
pub(crate) fn run(args: &TopArgs) -> Result<()> {
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        bail!("top needs a terminal: `pk3c-ccp status` prints the same once");
    }
    // Before the screen is taken: an agent that is not there is a message, not a screen.
    let mut client = Some(Client::connect(&args.agent)?);
    end_with_the_terminal()?;
    let mut terminal = ratatui::try_init()?;
    let done = show(&mut terminal, args, &mut client);
    ratatui::restore();
    done
}

/// Ends the process with a signal. Waiting for keys cannot be relied on to return when the terminal has gone.
fn end_with_the_terminal() -> Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGTERM]).context("cannot handle signals")?;
    thread::spawn(move || {
        if signals.forever().next().is_some() {
            let _ = ratatui::try_restore();
            std::process::exit(1);
        }
    });
    Ok(())
}

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    args: &TopArgs,
    client: &mut Option<Client>,
) -> Result<()> {
    let mut app = App::default();
    let mut due = Instant::now();
    while !app.is_over() {
        if Instant::now() >= due {
            due = Instant::now() + Duration::from_secs_f64(args.interval);
            look(&mut app, args, client);
        }
        terminal.draw(|frame| draw::draw(&app, frame))?;
        let patience = due.saturating_duration_since(Instant::now());
        if event::poll(patience)?
            && let Event::Key(key) = event::read()?
            && let Some(input) = input(key)
            && app.on_input(input)
        {
            due = Instant::now();
        }
    }
    Ok(())
}

/// Asks for what the page shows. An agent that has gone is asked for again with every look.
fn look(app: &mut App, args: &TopArgs, client: &mut Option<Client>) {
    let asked = ask(app, args, client);
    if asked.is_err() {
        *client = None;
    }
    match asked {
        Ok((status, flows, intervals)) => app.on_look(status, &flows, intervals),
        Err(error) => app.on_error(format!("{error:#}")),
    }
}

fn ask(
    app: &App,
    args: &TopArgs,
    client: &mut Option<Client>,
) -> Result<(Value, Value, Option<Result<Value>>)> {
    let client = match client {
        Some(client) => client,
        None => client.insert(Client::connect(&args.agent)?),
    };
    let status = client.ask(&Request::Status {})?;
    let flows = client.ask(&Request::Flows {
        sort: app.sort().map(str::to_owned),
        filter: Some(app.filter().to_owned()),
        limit: Some(FLOWS_MAX),
    })?;
    let intervals = match app.page() {
        Page::Flow(flow) => Some(client.ask(&Request::Explain {
            flow: flow.to_string(),
            after: None,
        })),
        Page::List => None,
    };
    Ok((status, flows, intervals))
}

fn input(key: KeyEvent) -> Option<Input> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    Some(match key.code {
        KeyCode::Char('c') if control => Input::Quit,
        KeyCode::Up => Input::Up,
        KeyCode::Down => Input::Down,
        KeyCode::PageUp => Input::PageUp,
        KeyCode::PageDown => Input::PageDown,
        KeyCode::Enter => Input::Enter,
        KeyCode::Esc => Input::Back,
        KeyCode::Backspace => Input::Erase,
        KeyCode::Char(c) => Input::Char(c),
        _ => return None,
    })
}
