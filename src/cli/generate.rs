//! `pk3c-ccp generate`: what a package has besides the program, made from the command line's own declarations.

use super::config::Configuration;
use anyhow::{Context, Result};
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

const PROGRAM: &str = "pk3c-ccp";

/// Options of `pk3c-ccp generate`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct GenerateArgs {
    /// Folder to write into: man/, completions/ and config.toml; it is made if it is not there
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Writes manual pages, completions and a configuration file.
pub(crate) fn run(args: &GenerateArgs) -> Result<()> {
    let folder = &args.folder;
    let [man, completions] = ["man", "completions"].map(|name| folder.join(name));
    for folder in [&man, &completions] {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
    }
    let cannot = |folder: &Path| format!("cannot write into {}", folder.display());
    let command = visible(super::Cli::command());
    clap_mangen::generate_to(command.clone(), &man).with_context(|| cannot(&man))?;
    for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
        clap_complete::generate_to(shell, &mut command.clone(), PROGRAM, &completions)
            .with_context(|| cannot(&completions))?;
    }
    let line = [PROGRAM, "run"].map(OsString::from);
    let defaults = Configuration::read(line)?.annotated();
    fs::write(folder.join("config.toml"), commented(&defaults)).with_context(|| cannot(folder))
}

/// Without the verbs that are not for people.
fn visible(command: Command) -> Command {
    let verbs: Vec<_> = command
        .get_subcommands()
        .filter(|verb| !verb.is_hide_set())
        .cloned()
        .collect();
    let name = command.get_name().to_owned();
    let mut visible = Command::new(name)
        .subcommands(verbs)
        .disable_help_subcommand(true);
    if let Some(about) = command.get_about() {
        visible = visible.about(about.clone());
    }
    if let Some(version) = command.get_version() {
        visible = visible.version(version.to_owned());
    }
    if let Some(examples) = command.get_after_help() {
        visible = visible.after_help(examples.clone());
    }
    visible
}

/// Every value as a comment: a later version's defaults must not be held back by a file that nobody has edited.
fn commented(configuration: &str) -> String {
    let lines = configuration.lines().map(|line| match line.chars().next() {
        None | Some('#') => line.to_owned(),
        Some(_) => format!("# {line}"),
    });
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_has_a_page_for_every_verb_and_nothing_hidden() {
        let folder = std::env::temp_dir().join(format!("pk3c-generate-{}", std::process::id()));
        let args = GenerateArgs {
            folder: folder.clone(),
        };
        run(&args).unwrap();
        let text = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
        for verb in super::super::Cli::command().get_subcommands() {
            let page = folder.join(format!("man/pk3c-ccp-{}.1", verb.get_name()));
            assert_eq!(page.exists(), !verb.is_hide_set(), "{}", page.display());
        }
        assert!(text("man/pk3c-ccp-run.1").contains("max\\-rate"));
        assert!(text("completions/pk3c-ccp.bash").contains("--hb-queue"));
        assert!(!text("completions/_pk3c-ccp").contains("generate"));
        let configuration = text("config.toml");
        assert!(configuration.contains("\n# hb-loss = \"5%\"\n"));
        assert!(
            configuration
                .lines()
                .all(|line| line.is_empty() || line.starts_with('#'))
        );
        fs::remove_dir_all(&folder).unwrap();
    }
}
