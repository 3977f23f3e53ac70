use super::*;

#[test]
fn the_defaults_are_valid_and_round_trip_through_text() {
    let params = Params::default();
    params.validate().unwrap();
    let mut copy = Params {
        min_rate: bps(1e6),
        probe_step: ratio(0.2),
        ..Params::default()
    };
    for (flag, value) in params.to_text() {
        copy.set(flag, &value).unwrap_or_else(|e| panic!("{e}"));
    }
    assert_eq!(copy, params);
}

#[test]
fn every_flag_refuses_values_with_its_name_the_value_and_the_range() {
    for spec in SPECS {
        let mut params = Params::default();
        let malformed = params.set(spec.flag, "plenty").unwrap_err().to_string();
        assert!(
            malformed.contains(spec.flag) && malformed.contains("plenty"),
            "{malformed}"
        );
        let outside = match spec.kind {
            Kind::Rate => "0bit",
            Kind::Duration => "999999s",
            Kind::Ratio => "99999%",
            Kind::Number => "99999",
            Kind::Count => "99999999",
            Kind::Handbrakes => "loss,everything",
            Kind::Algorithm => "reno",
            Kind::Switch => "maybe",
        };
        let refused = params.set(spec.flag, outside).unwrap_err().to_string();
        for part in [spec.flag, outside, &spec.range()] {
            assert!(
                refused.contains(part) && malformed.contains(&spec.range()),
                "{refused}"
            );
        }
        assert_eq!(params, Params::default(), "{}", spec.flag);
    }
    let error = Params::default()
        .set("hb-loss", "60%")
        .unwrap_err()
        .to_string();
    assert_eq!(error, "--hb-loss 60% is out of range: allowed is 0% to 50%");
    let error = Params::default().set("speed", "1").unwrap_err().to_string();
    assert!(error.contains("--speed"));
}

#[test]
fn values_that_do_not_fit_together_are_named() {
    let mut params = Params::default();
    params.set("min-rate", "1gbit").unwrap();
    let error = params.validate().unwrap_err().to_string();
    assert_eq!(
        error,
        "--min-rate 1gbit must not exceed --start-rate 3145.728kbit"
    );
    params.set("min-rate", "16kbit").unwrap();
    params.set("low-enter", "25").unwrap();
    assert!(
        params
            .validate()
            .unwrap_err()
            .to_string()
            .contains("--low-enter 25 must be below")
    );
}

#[test]
fn handbrakes_are_named() {
    let refused = "loud".parse::<HandbrakeSet>().unwrap_err();
    for name in HandbrakeSet::EVERY.to_string().split(',') {
        assert!(refused.expected.contains(name), "{name}: {refused}");
    }
    let mut params = Params::default();
    params.set("no-handbrake", "queue, loss").unwrap();
    assert!(params.no_handbrake.contains(Handbrake::Loss));
    assert!(!params.no_handbrake.contains(Handbrake::Ceiling));
    assert_eq!(params.get("no-handbrake").unwrap(), "loss,queue");
}
