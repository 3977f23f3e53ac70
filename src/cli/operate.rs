//! The verbs that change a running agent: `set`, `reload`, `log`, `drain`; and `explain`, which asks it for reasons.

use super::adopt;
use super::control::{AgentArgs, Client, Refused, Request};
use super::default_cc::DefaultCc;
use super::replay::explain::{ANSWER, HEADING, NOTE};
use anyhow::{Result, anyhow, bail};
use serde_json::Value;
use std::io::{self, Write};
use std::thread;
use std::time::{Duration, Instant};

/// Between two questions about a flow.
const POLL: Duration = Duration::from_millis(200);

/// Options of `pk3c-ccp set`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct SetArgs {
    /// Parameters as NAME=VALUE, with the names of the flags of `run`: all are changed, or none;
    /// without any, all are listed
    #[arg(value_name = "NAME=VALUE")]
    values: Vec<String>,
    #[command(flatten)]
    agent: AgentArgs,
}

/// Options of the verbs that have no others.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ReloadArgs {
    #[command(flatten)]
    agent: AgentArgs,
}

/// Options of `pk3c-ccp log`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct LogArgs {
    /// error, warn, info, debug, or a filter such as info,decision=debug
    level: String,
    #[command(flatten)]
    agent: AgentArgs,
}

/// Options of `pk3c-ccp drain`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct DrainArgs {
    /// Take the flows back
    #[arg(long)]
    undo: bool,
    /// Then put the system's congestion control back if it is pk3c, and give all sockets of this
    /// network namespace that use pk3c, listeners that chose it too, to NAME, a congestion control of
    /// the kernel (cubic unless given): nothing of the datapath controls a connection any more.
    /// Needs root but no agent that answers, and cannot be undone; `run --adopt` takes connections
    /// over
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "cubic", conflicts_with = "undo")]
    hand_back: Option<String>,
    #[command(flatten)]
    agent: AgentArgs,
}

/// Options of `pk3c-ccp explain`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ExplainArgs {
    /// The flow's number, or one of its ends as ADDRESS:PORT or :PORT
    flow: String,
    /// Go on for so long. Intervals are kept from the first question about a flow until a minute
    /// after the last
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0,
          value_parser = seconds)]
    seconds: f64,
    /// One JSON object per interval
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    agent: AgentArgs,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|s| (0.0..=1e6).contains(s));
    seconds.ok_or_else(|| format!("`{text}` is not a time: write seconds from 0 to 1000000"))
}

/// Changes parameters, or lists them.
pub(crate) fn set(args: &SetArgs) -> Result<()> {
    let values = args.values.iter().map(|text| {
        let (name, value) = text
            .split_once('=')
            .ok_or_else(|| anyhow!("`{text}`: write NAME=VALUE, as in hb-loss=7%"))?;
        Ok((name.trim_start_matches("--").to_owned(), value.to_owned()))
    });
    let values: Result<_> = values.collect();
    let values: std::collections::BTreeMap<_, _> = values?;
    let mut client = Client::connect(&args.agent)?;
    let mut out = io::stdout().lock();
    if values.is_empty() {
        for (name, value) in members(&client.ask(&Request::Parameters {})?) {
            let [is, origin] = ["value", "origin"].map(|key| value[key].as_str().unwrap_or("-"));
            writeln!(out, "{:28} # {origin}", format!("{name}={is}"))?;
        }
        return Ok(());
    }
    let done = client.ask(&Request::Set { values })?;
    let changed = members(&done["changed"]);
    if changed.is_empty() {
        writeln!(out, "nothing changes")?;
    }
    for (name, values) in changed {
        let [was, is] = [0, 1].map(|index: usize| values[index].as_str().unwrap_or("-"));
        writeln!(out, "{name}: {was} -> {is}")?;
    }
    Ok(())
}

fn members(object: &Value) -> Vec<(&String, &Value)> {
    object.as_object().into_iter().flatten().collect()
}

/// Has the configuration read again.
pub(crate) fn reload(args: &ReloadArgs) -> Result<()> {
    let done = Client::connect(&args.agent)?.ask(&Request::Reload {})?;
    let mut out = io::stdout().lock();
    for (key, what) in [
        ("changed", "changed"),
        ("at_next_start", "takes effect at the next start"),
        ("no_longer_set", "no longer as set by hand"),
    ] {
        let names = done[key].as_array().into_iter().flatten();
        let names: Vec<_> = names.filter_map(Value::as_str).collect();
        if !names.is_empty() {
            writeln!(out, "{what}: {}", names.join(", "))?;
        }
    }
    writeln!(out, "the configuration was read again")?;
    Ok(())
}

/// Changes what is logged.
pub(crate) fn log(args: &LogArgs) -> Result<()> {
    let level = args.level.clone();
    Client::connect(&args.agent)?.ask(&Request::Log { level })?;
    Ok(())
}

/// Hands all flows to the fallback, or takes them back.
pub(crate) fn drain(args: &DrainArgs) -> Result<()> {
    let drain = !args.undo;
    if let Some(name) = &args.hand_back {
        adopt::check_hand_back(name)?;
    }
    let agent = Client::connect(&args.agent);
    let done = agent.and_then(|mut agent| agent.ask(&Request::Drain { drain }));
    match done {
        // An agent's flows leave it without its help, and there may be none while its flows are there.
        Err(error) if args.hand_back.is_some() && !error.is::<Refused>() => {
            tell!("pk3c-ccp: {error:#}; sockets are handed back all the same");
        }
        Err(error) => return Err(error),
        Ok(_) => {
            let said = if drain {
                "all flows go on under the kernel's Cubic, new ones too; the agent may be stopped (drain --undo: drive again)"
            } else {
                "flows are driven again with their next ACKs"
            };
            writeln!(io::stdout(), "{said}")?;
        }
    }
    if let Some(name) = &args.hand_back {
        // First, or new sockets would come after the pass.
        if let Some(default) = DefaultCc::new().restore()? {
            writeln!(
                io::stdout(),
                "the system's congestion control is {default} again"
            )?;
        }
        let moved = adopt::hand_back(name)?;
        writeln!(io::stdout(), "{moved} sockets were given to {name}")?;
    }
    Ok(())
}

/// Tells the intervals of a flow.
pub(crate) fn explain(args: &ExplainArgs) -> Result<()> {
    tell(args, &mut io::stdout().lock())
}

fn tell(args: &ExplainArgs, out: &mut impl Write) -> Result<()> {
    let mut client = Client::connect(&args.agent)?;
    let (mut after, mut told, began) = (None, 0, Instant::now());
    let mut name = args.flow.clone();
    loop {
        let request = Request::Explain {
            flow: name.clone(),
            after,
        };
        let answer = match client.ask(&request) {
            // A flow that was there has ended.
            Err(error) if told > 0 && error.is::<Refused>() => {
                tell!("pk3c-ccp: {error:#}");
                return Ok(());
            }
            other => other?,
        };
        // From now on this very flow, even if another gets the same port.
        name = answer["flow"]["flow"].to_string();
        let intervals = answer["intervals"].as_array().into_iter().flatten();
        for interval in intervals {
            if args.json {
                let mut object = interval.clone();
                object["flow"] = answer["flow"]["flow"].clone();
                writeln!(out, "{object}")?;
            } else {
                if told == 0 {
                    let flow = &answer["flow"];
                    let [local, remote] =
                        ["local", "remote"].map(|end| flow[end].as_str().unwrap_or("-"));
                    writeln!(
                        out,
                        "flow {name}, {local} to {remote}\n{NOTE}\n\n{}",
                        HEADING.join("\n")
                    )?;
                }
                writeln!(out, "{}", interval["row"].as_str().unwrap_or_default())?;
                if let Some(what) = interval["answer"].as_str() {
                    writeln!(out, "{ANSWER}=> {what}")?;
                }
            }
            told += 1;
            after = interval["at_s"].as_f64();
        }
        out.flush()?;
        if began.elapsed().as_secs_f64() >= args.seconds {
            break;
        }
        thread::sleep(POLL);
    }
    if told == 0 {
        bail!(
            "flow {name} has reported nothing in {} s: it sends nothing, or the fallback drives it",
            args.seconds
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::UnixListener;

    /// What `explain` comes to of an agent that tells one interval, and then says this, or nothing any more.
    fn explained(name: &str, then: Option<&str>) -> Result<()> {
        let name = format!("pk3c-explain-{}-{name}", std::process::id());
        let socket = std::env::temp_dir().join(name);
        let listener = UnixListener::bind(&socket).unwrap();
        let first = r#"{"ok":{"flow":{"flow":1},"intervals":[{"at_s":1.0,"row":"told"}]}}"#;
        let answers: Vec<_> = [Some(first), then]
            .into_iter()
            .flatten()
            .map(str::to_owned)
            .collect();
        let agent = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut requests = BufReader::new(stream.try_clone().unwrap()).lines();
            for answer in answers {
                requests.next().unwrap().unwrap();
                writeln!(stream, "{answer}").unwrap();
            }
        });
        let args = ExplainArgs {
            flow: "1".into(),
            seconds: 60.0,
            json: false,
            agent: AgentArgs {
                socket: socket.clone(),
            },
        };
        let done = tell(&args, &mut io::sink());
        agent.join().unwrap();
        std::fs::remove_file(socket).unwrap();
        done
    }

    #[test]
    fn a_flow_that_ends_is_no_failure_and_an_agent_that_does_is() {
        let over = r#"{"error":{"kind":"refused","message":"no live flow has the number 1"}}"#;
        explained("flow", Some(over)).unwrap();
        let died = explained("agent", None).unwrap_err().to_string();
        assert!(died.contains("agent"), "{died}");
    }
}
