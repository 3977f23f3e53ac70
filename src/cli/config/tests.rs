use super::*;
use pk3c_ccp::params::SPECS;

fn read(file: Option<&str>, flags: &[&str]) -> Result<Configuration> {
    static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let mut line: Vec<OsString> = vec!["pk3c-ccp".into(), "run".into()];
    let name = format!("pk3c-config-{}-{number}.toml", std::process::id());
    let path = std::env::temp_dir().join(name);
    if let Some(text) = file {
        std::fs::write(&path, text).unwrap();
        line.extend(["--config".into(), path.clone().into()]);
    }
    line.extend(flags.iter().map(OsString::from));
    let read = Configuration::read(line);
    let _ = std::fs::remove_file(&path);
    read
}

fn refusal(file: &str, flags: &[&str]) -> String {
    let said = format!("{:#}", read(Some(file), flags).unwrap_err());
    let (_, said) = said.split_once(".toml").unwrap_or(("", &said));
    said.to_owned()
}

fn setting(configuration: &Configuration, name: &str) -> (Option<String>, Origin) {
    let mut settings = configuration.settings.iter();
    let found = settings.find(|setting| setting.name == name).unwrap();
    (found.value.clone(), found.origin)
}

#[test]
fn flags_beat_the_file_and_the_file_beats_defaults() {
    let file = "# mine\nhb-loss = \"7%\"\nmi-packets = 20\ndefault = true\nlog = \"warn\"\n";
    let read = read(Some(file), &["--mi-packets", "30"]).unwrap();
    let value = |text: &str| Some(text.to_owned());
    assert_eq!(setting(&read, "hb-loss"), (value("7%"), Origin::File(2)));
    assert_eq!(setting(&read, "mi-packets"), (value("30"), Origin::Flag));
    assert_eq!(setting(&read, "default"), (value("true"), Origin::File(4)));
    assert_eq!(setting(&read, "keep"), (value("false"), Origin::Default));
    assert_eq!(setting(&read, "record"), (None, Origin::Default));
    assert_eq!(read.args.params.0.get("hb-loss").unwrap(), "7%");
    assert_eq!(read.args.params.0.mi_packets, 30);
}

#[test]
fn a_first_rate_that_nobody_gave_is_within_the_others() {
    let first = |file: &str, flags: &[&str]| {
        let read = read(Some(file), flags).unwrap();
        let printed = setting(&read, "start-rate").0.unwrap();
        assert_eq!(read.args.params.0.get("start-rate").unwrap(), printed);
        printed
    };
    assert_eq!(first("", &[]), "3145.728kbit");
    assert_eq!(first("", &["--max-rate", "2mbit"]), "2mbit");
    assert_eq!(first("max-rate = \"2mbit\"\n", &[]), "2mbit");
    assert_eq!(first("min-rate = \"5mbit\"\n", &[]), "5mbit");
    assert_eq!(
        first("start-rate = \"1mbit\"\n", &["--max-rate", "2mbit"]),
        "1mbit"
    );
    let file = "max-rate = \"2mbit\"\n";
    let printed = read(Some(file), &[]).unwrap().annotated();
    assert_eq!(first(&printed, &[]), "2mbit");
}

#[test]
fn what_is_wrong_is_told_with_its_line_and_remedy() {
    for (file, said) in [
        (
            "hb-loss = \"5%\"\nhb-los = 1\n",
            ":2: key `hb-los` of the file: unknown; did you mean `hb-loss`?",
        ),
        (
            "\n\nhb-loss = \"60%\"\n",
            ":3: key `hb-loss` of the file: --hb-loss 60% is out of range: allowed is 0% to 50%",
        ),
        (
            "max-flows = 0\n",
            ":1: key `max-flows` of the file: 0 is not in 1..=65535",
        ),
        (
            "default = \"maybe\"\n",
            ":1: key `default` of the file: `maybe` is neither true nor false",
        ),
        (
            "log-format = \"xml\"\n",
            ":1: key `log-format` of the file: invalid value 'xml'",
        ),
        (
            "\nlog = \"warning\"\n",
            ":2: key `log` of the file: `warning` is not a level: did you mean `warn`?",
        ),
        (
            "config = \"other.toml\"\n",
            ":1: key `config` of the file: unknown",
        ),
        (
            "start-rate = \"1mbit\"\nmin-rate = \"2mbit\"\n",
            ":2: --min-rate 2mbit must not exceed --start-rate 1mbit",
        ),
        (
            "start-rate = \"5mbit\"\nmax-rate = \"2mbit\"\n",
            ":2: --start-rate 5mbit must not exceed --max-rate 2mbit",
        ),
        (
            "min-rate = \"5mbit\"\nmax-rate = \"1mbit\"\n",
            ":2: --min-rate 5mbit must not exceed --max-rate 1mbit",
        ),
        (
            "seed = 1\nrecord-limit = 5\n",
            ":2: key `record-limit` of the file: the following required arguments were not provided: --record <FILE>",
        ),
        (
            "seed = [1]\n",
            ":1: key `seed` of the file: is of type array",
        ),
        ("seed\n", ":1: not TOML"),
    ] {
        let refusal = refusal(file, &[]);
        assert!(refusal.contains(said), "{said} is not in: {refusal}");
    }
    let refusal = refusal("min-rate = \"2mbit\"\n", &["--start-rate", "1mbit"]);
    assert!(refusal.contains(":1: --min-rate"), "{refusal}");
}

#[test]
fn what_is_printed_reads_back_the_same() {
    let first = read(
        None,
        &["--hb-queue", "40%", "--default", "--log", "info,flow=off"],
    )
    .unwrap();
    let text = first.annotated();
    let second = read(Some(&text), &[]).unwrap();
    assert_eq!(second.changed_from(&first), Vec::<&str>::new());
    for spec in SPECS {
        let place = text.find(&format!("\n{} = ", spec.flag)).unwrap();
        let about = text[..place]
            .rsplit("\n\n")
            .next()
            .unwrap()
            .replace("\n# ", " ");
        for part in [spec.source, &spec.default_value(), "this value: "] {
            assert!(
                about.contains(part),
                "{part} is not said of {}: {about}",
                spec.flag
            );
        }
    }
    let changed = read(Some(&text.replace("\"40%\"", "\"50%\"")), &[]).unwrap();
    assert_eq!(changed.changed_from(&first), ["hb-queue"]);
}
