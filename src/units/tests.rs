use super::*;
use proptest::prelude::*;

#[test]
fn reads_what_people_type() {
    assert_eq!("16kbit".parse(), Ok(Rate::from_bytes_per_sec(2000.0)));
    assert_eq!("50mbit".parse(), Ok(Rate::from_mbit(50.0)));
    assert_eq!("50Mbit".parse(), Ok(Rate::from_mbit(50.0)));
    assert_eq!("393216B".parse(), Ok(Rate::from_bytes_per_sec(393_216.0)));
    assert_eq!("1.5kBps".parse(), Ok(Rate::from_bytes_per_sec(1500.0)));
    assert_eq!("5%".parse(), Ok(Ratio::new(0.05)));
    assert_eq!("0.05".parse(), Ok(Ratio::new(0.05)));
    assert_eq!("500us".parse(), Ok(Micros::new(500)));
    assert_eq!("2 ms".parse(), Ok(Micros::new(2000)));
    assert_eq!("10s".parse(), Ok(Micros::new(10_000_000)));
}

#[test]
fn refuses_what_is_ambiguous_or_out_of_type() {
    for text in ["50", "50mbps", "-1mbit", "1e3mbit", "NaNbit", "infbit", ""] {
        let error = text.parse::<Rate>().unwrap_err().to_string();
        assert!(error.contains("16kbit") && error.contains(text), "{error}");
    }
    let error = "99gbit".parse::<Rate>().unwrap_err().to_string();
    assert!(error.contains("34gbit or less"), "{error}");
    for text in ["2", "2m", "2sec", "-2s"] {
        assert!(
            text.parse::<Micros>()
                .unwrap_err()
                .to_string()
                .contains("500us")
        );
    }
    assert!("5 percent".parse::<Ratio>().is_err() && "-5%".parse::<Ratio>().is_err());
}

#[test]
fn prints_the_shortest_readable_form() {
    assert_eq!(Rate::from_bytes_per_sec(2000.0).to_string(), "16kbit");
    assert_eq!(
        Rate::from_bytes_per_sec(393_216.0).to_string(),
        "3145.728kbit"
    );
    assert_eq!(Rate::from_bytes_per_sec(1.25e9).to_string(), "10gbit");
    assert_eq!(Rate::from_bytes_per_sec(0.1).to_string(), "0.8bit");
    assert_eq!(
        Rate::from_bytes_per_sec(1.0 / 3.0).to_string(),
        "0.3333333333333333Bps"
    );
    assert_eq!(Ratio::new(0.05).to_string(), "5%");
    assert_eq!(Micros::new(2000).to_string(), "2ms");
    assert_eq!(Micros::ZERO.to_string(), "0ms");
    assert_eq!(Micros::new(60_000_000).to_string(), "60s");
}

proptest! {
    #[test]
    fn text_round_trips(rate in 0.0..4.2e9, ratio in 0.0..3.0f64, time in 0u64..1 << 50) {
        let rate = Rate::from_bytes_per_sec(rate);
        prop_assert_eq!(rate.to_string().parse(), Ok(rate));
        let whole = Rate::from_bytes_per_sec(f64::from(rate.to_wire()));
        prop_assert_eq!(whole.to_string().parse(), Ok(whole));
        prop_assert_eq!(Ratio::new(ratio).to_string().parse(), Ok(Ratio::new(ratio)));
        prop_assert_eq!(Micros::new(time).to_string().parse(), Ok(Micros::new(time)));
    }

    #[test]
    fn rates_stay_finite(a in any::<f64>(), b in any::<f64>()) {
        for rate in [Rate::from_bytes_per_sec(a), Rate::from_bytes_per_sec(a) * b, Rate::from_mbit(b)] {
            prop_assert!(rate >= Rate::ZERO && rate <= Rate::MAX);
        }
    }
}
