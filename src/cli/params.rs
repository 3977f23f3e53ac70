//! The algorithm's parameters as flags, made from the one table that declares them.

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches};
use pk3c_ccp::params::{Kind, Params, SPECS, START_RATE};

/// Valid parameters from the command line.
#[derive(Clone, Debug, Default)]
pub(crate) struct ParamArgs(pub(crate) Params);

impl Args for ParamArgs {
    fn augment_args(command: Command) -> Command {
        let flags = SPECS.iter().map(|spec| {
            let flag = spec.flag;
            let range = spec.range();
            let help = format!("{} [{range}; source: {}]", spec.help, spec.source);
            let check = move |text: &str| {
                let mut params = Params::default();
                params
                    .set(flag, text)
                    .map(|()| text.to_owned())
                    .map_err(|error| {
                        let error = error.to_string();
                        // A malformed value's error tells the form; the range belongs to it too.
                        if error.contains(&range) {
                            error
                        } else {
                            format!("{error} (range: {range})")
                        }
                    })
            };
            let arg = Arg::new(flag)
                .long(flag)
                .value_name(spec.kind.placeholder())
                .help(help)
                .default_value(spec.default_value())
                .allow_hyphen_values(true)
                .value_parser(check)
                .help_heading("Algorithm");
            if spec.kind == Kind::Switch {
                arg.num_args(0..=1).default_missing_value("on")
            } else {
                arg
            }
        });
        command.args(flags)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ParamArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut args = Self::default();
        args.update_from_arg_matches(matches)?;
        Ok(args)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        let conflict = |e: pk3c_ccp::params::ParamError| {
            Error::raw(clap::error::ErrorKind::ArgumentConflict, format!("{e}\n"))
        };
        for spec in SPECS {
            if let Some(text) = matches.get_one::<String>(spec.flag) {
                self.0.set(spec.flag, text).map_err(conflict)?;
            }
        }
        if matches.value_source(START_RATE) != Some(ValueSource::CommandLine) {
            self.0.bound_start_rate();
        }
        self.0.validate().map_err(conflict)
    }
}
