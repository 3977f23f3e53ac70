//! `pk3c-ccp lab export`: results for other programs.

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use flate2::Compression;
use flate2::write::GzEncoder;
use pathlab::lab::flent;
use pathlab::lab::result::{FORMAT, RunResult};
use pathlab::lab::suite::FILE;
use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Options of `pk3c-ccp lab export`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ExportArgs {
    /// Folder of results
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// For which program: each result becomes a file of its format beside it
    #[arg(long, value_enum)]
    format: Format,
    /// Another folder for the files
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// flent's data files, for flent-gui and its plots: .flent.gz
    Flent,
}

pub(crate) fn run(args: &ExportArgs) -> Result<ExitCode> {
    let out = args.out.as_ref().unwrap_or(&args.folder);
    fs::create_dir_all(out).with_context(|| format!("cannot make the folder {}", out.display()))?;
    let mut count = 0;
    for file in results(&args.folder)? {
        let result = read(&file)?;
        if let Some(why) = &result.void {
            tell!("left out: {} is void: {why}", file.display());
            continue;
        }
        match args.format {
            Format::Flent => write_flent(&result, &file, out)?,
        }
        count += 1;
    }
    tell!("{count} files are in {}", out.display());
    Ok(ExitCode::SUCCESS)
}

/// The files of results in a folder, in the order of their names.
fn results(folder: &Path) -> Result<Vec<PathBuf>> {
    let unreadable = || format!("cannot read the folder {}", folder.display());
    let entries: Result<Vec<_>, _> = fs::read_dir(folder).with_context(unreadable)?.collect();
    let entries = entries.with_context(unreadable)?;
    let mut files: Vec<_> = entries.iter().map(fs::DirEntry::path).collect();
    files.retain(|file| {
        let is_json = file
            .extension()
            .is_some_and(|extension| extension == "json");
        is_json && file.file_name().is_some_and(|name| name != FILE)
    });
    files.sort();
    if files.is_empty() {
        bail!(
            "the folder {} has no results: `pk3c-ccp lab run` makes them",
            folder.display()
        );
    }
    Ok(files)
}

fn read(file: &Path) -> Result<RunResult> {
    let open = File::open(file).with_context(|| format!("cannot open {}", file.display()))?;
    let result: RunResult = serde_json::from_reader(BufReader::new(open))
        .with_context(|| format!("{} is not a result of `lab run`", file.display()))?;
    if result.format != FORMAT {
        let (name, format) = (file.display(), result.format);
        bail!("{name} has format {format}, this version reads {FORMAT}: make it anew");
    }
    Ok(result)
}

fn write_flent(result: &RunResult, file: &Path, out: &Path) -> Result<()> {
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    let target = out.join(format!("{name}{}", flent::SUFFIX));
    let unfinished = out.join(format!(".{name}{}.unfinished", flent::SUFFIX));
    let write = || -> std::io::Result<()> {
        let open = BufWriter::new(File::create(&unfinished)?);
        let mut packed = GzEncoder::new(open, Compression::default());
        serde_json::to_writer(&mut packed, &flent::of(result, &name))?;
        packed.finish()?.flush()?;
        fs::rename(&unfinished, &target)
    };
    write().with_context(|| {
        let _ = fs::remove_file(&unfinished);
        format!("cannot write {}", target.display())
    })
}
