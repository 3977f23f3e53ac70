//! Numbers as C's printf and iperf's units write them.

/// `%.{digits}g`: so many significant digits, without trailing zeros; with an exponent where that is shorter.
pub fn g(value: f64, digits: usize) -> String {
    if value == 0.0 || !value.is_finite() {
        return match value {
            _ if value.is_nan() => "nan".to_owned(),
            _ if value.is_infinite() => if value > 0.0 { "inf" } else { "-inf" }.to_owned(),
            _ => "0".to_owned(),
        };
    }
    let digits = digits.max(1);
    let scientific = format!("{value:.*e}", digits - 1);
    // The exponent after rounding: 9.9999999 may have become 10.
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if exponent < -4 || exponent >= digits as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs());
    }
    let decimals = (digits as i32 - 1 - exponent).max(0) as usize;
    trimmed(&format!("{value:.decimals$}")).to_owned()
}

fn trimmed(number: &str) -> &str {
    if number.contains('.') {
        number.trim_end_matches('0').trim_end_matches('.')
    } else {
        number
    }
}

/// Three significant digits, as iperf has them in at most four columns.
pub fn three_digits(value: f64) -> String {
    // What would round up to one more digit before the point has one less behind it.
    if value < 9.995 {
        format!("{value:.2}")
    } else if value < 99.95 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

/// Bytes with iperf's units, powers of 1024: `48.8 MBytes`.
pub fn bytes(bytes: f64) -> String {
    scaled(
        bytes,
        1024.0,
        ["Bytes", "KBytes", "MBytes", "GBytes", "TBytes"],
    )
}

/// A rate with iperf's units, powers of 1000: `6.82 Mbits/sec`.
pub fn bits_per_second(mbps: f64) -> String {
    scaled(
        mbps * 1e6,
        1000.0,
        [
            "bits/sec",
            "Kbits/sec",
            "Mbits/sec",
            "Gbits/sec",
            "Tbits/sec",
        ],
    )
}

fn scaled(mut value: f64, step: f64, units: [&str; 5]) -> String {
    let mut unit = 0;
    while value >= step && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    format!("{} {}", three_digits(value), units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn general_format_is_that_of_c() {
        let cases = [
            (20.933333333333334, 8, "20.933333"),
            (0.05773502691896, 8, "0.057735027"),
            (2.7, 6, "2.7"),
            (1023.4567, 6, "1023.46"),
            (1700.0, 6, "1700"),
            (0.00001234, 6, "1.234e-05"),
            (1234567.0, 6, "1.23457e+06"),
            (999999.6, 6, "1e+06"),
            (0.0001, 6, "0.0001"),
            (-0.0333333333, 6, "-0.0333333"),
            (0.0, 6, "0"),
            (f64::NAN, 6, "nan"),
            (0.4278, 2, "0.43"),
            (52.3, 2, "52"),
        ];
        for (value, digits, text) in cases {
            assert_eq!(g(value, digits), text);
        }
    }

    #[test]
    fn units_have_three_digits() {
        assert_eq!(bytes(674.0 * 1_048_576.0), "674 MBytes");
        assert_eq!(bytes(48.8 * 1_048_576.0), "48.8 MBytes");
        assert_eq!(bits_per_second(6.82), "6.82 Mbits/sec");
        assert_eq!(bits_per_second(0.948), "948 Kbits/sec");
        assert_eq!(bits_per_second(9.996), "10.0 Mbits/sec");
        assert_eq!(bits_per_second(1010.0), "1.01 Gbits/sec");
        assert_eq!(bits_per_second(0.0), "0.00 bits/sec");
    }
}
