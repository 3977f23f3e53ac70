use super::*;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};

fn connection(local: &str, remote: &str, cgroup: Option<&str>) -> Connection {
    let [local, remote] = [local, remote].map(|end| end.parse().unwrap());
    Connection::new(local, remote, cgroup.map(Into::into))
}

fn policy(name: &str, conditions: Conditions, action: Action) -> Policy {
    Policy {
        name: name.into(),
        conditions,
        action,
        overrides: Vec::new(),
        limits: Limits::default(),
    }
}

fn cgroups(paths: &[&str]) -> Conditions {
    Conditions {
        cgroups: paths
            .iter()
            .map(|path| cgroup_path(path).unwrap())
            .collect(),
        ..Conditions::default()
    }
}

fn ports(texts: &[&str]) -> Conditions {
    Conditions {
        local_ports: texts.iter().map(|text| text.parse().unwrap()).collect(),
        ..Conditions::default()
    }
}

fn networks(texts: &[&str]) -> Conditions {
    Conditions {
        destinations: texts.iter().map(|text| network(text).unwrap()).collect(),
        ..Conditions::default()
    }
}

fn experiment(share: f64, by: By, key: &str) -> Experiment {
    Experiment {
        share: Ratio::new(share),
        by,
        key: key.to_owned(),
    }
}

#[test]
fn the_first_that_matches_decides_and_the_others_say_why_not() {
    let policies = Policies::new(vec![
        policy(
            "video",
            cgroups(&["/system.slice/video.service"]),
            Action::Drive,
        ),
        policy("web", ports(&["443", "8000-8099"]), Action::Shadow),
        policy("lan", networks(&["10.0.0.0/8", "fd00::/8"]), Action::Kernel),
        policy("ten", networks(&["10.1.0.0/16"]), Action::Drive),
    ]);
    for (local, remote, cgroup, name, role) in [
        (
            "192.0.2.1:443",
            "10.0.0.1:5000",
            Some("/system.slice/video.service/worker"),
            "video",
            Role::Driven,
        ),
        (
            "192.0.2.1:443",
            "10.0.0.1:5000",
            Some("/system.slice/video.service2"),
            "web",
            Role::Shadow,
        ),
        ("192.0.2.1:8099", "10.0.0.1:5000", None, "web", Role::Shadow),
        (
            "192.0.2.1:8100",
            "10.1.0.1:5000",
            Some("/"),
            "lan",
            Role::Kernel,
        ),
        (
            "[2001:db8::1]:80",
            "[fd12::1]:5000",
            Some("/"),
            "lan",
            Role::Kernel,
        ),
        (
            "[::ffff:192.0.2.1]:80",
            "[::ffff:10.9.9.9]:5000",
            Some("/"),
            "lan",
            Role::Kernel,
        ),
        (
            "192.0.2.1:80",
            "11.0.0.1:5000",
            Some("/"),
            DEFAULT,
            Role::Driven,
        ),
    ] {
        let connection = connection(local, remote, cgroup);
        let verdict = policies.decide(&connection);
        assert_eq!(
            (&*verdict.name, verdict.role),
            (name, role),
            "{connection:?}"
        );
        let before = policies.passed_over(&connection);
        assert_eq!(before.len(), verdict.policy.unwrap_or(policies.all().len()));
        assert!(
            before
                .iter()
                .enumerate()
                .all(|(place, (index, _))| place == *index)
        );
    }
    let passed = policies.passed_over(&connection(
        "192.0.2.1:80",
        "11.0.0.1:1",
        Some("/user.slice"),
    ));
    let said: Vec<_> = passed.iter().map(|(_, why)| why.to_string()).collect();
    assert_eq!(
        said,
        [
            "its cgroup /user.slice is not within /system.slice/video.service",
            "its local port 80 is not in 443, 8000-8099",
            "its destination 11.0.0.1 is not in 10.0.0.0/8, fd00::/8",
            "its destination 11.0.0.1 is not in 10.1.0.0/16",
        ]
    );
}

#[test]
fn what_a_dry_run_does_not_say_matches_nothing_that_asks_for_it() {
    let policies = Policies::new(vec![policy("web", ports(&["443"]), Action::Drive)]);
    let mut unsaid = connection("192.0.2.1:443", "10.0.0.1:1", None);
    assert_eq!(policies.decide(&unsaid).policy, Some(0));
    unsaid.local_port = None;
    assert_eq!(policies.decide(&unsaid).policy, None);
    let (_, why) = &policies.passed_over(&unsaid)[0];
    assert!(why.to_string().contains("not known"), "{why}");
}

#[test]
fn all_conditions_of_a_policy_must_hold() {
    let both = Conditions {
        local_ports: vec!["443".parse().unwrap()],
        ..networks(&["10.0.0.0/8"])
    };
    let policies = Policies::new(vec![policy("both", both, Action::Drive)]);
    let is_it = |local, remote| policies.decide(&connection(local, remote, None)).policy == Some(0);
    assert!(is_it("192.0.2.1:443", "10.0.0.1:1"));
    assert!(!is_it("192.0.2.1:444", "10.0.0.1:1"));
    assert!(!is_it("192.0.2.1:443", "11.0.0.1:1"));
}

#[test]
fn what_is_no_condition_is_refused_with_a_remedy() {
    for (said, parts) in [
        (network("10.0.0.1/8").unwrap_err(), "write 10.0.0.0/8"),
        (network("10.0.0.0/33").unwrap_err(), "write it as"),
        (network("example.org").unwrap_err(), "10.0.0.0/8"),
        ("0".parse::<Ports>().unwrap_err(), "1 to 65535"),
        ("70000".parse::<Ports>().unwrap_err(), "1 to 65535"),
        ("99-9".parse::<Ports>().unwrap_err(), "range"),
        ("https".parse::<Ports>().unwrap_err(), "443"),
        (cgroup_path("video.service").unwrap_err(), "/system.slice"),
        (
            cgroup_path("/sys/fs/cgroup/x").unwrap_err(),
            "below /sys/fs/cgroup",
        ),
        (cgroup_path("/a/../b").unwrap_err(), "up and down"),
        (check_name("Video").unwrap_err(), "a-z"),
        (check_name("").unwrap_err(), "1 to 32"),
        (check_name("default").unwrap_err(), "another name"),
    ] {
        assert!(said.contains(parts), "{parts} is not in: {said}");
    }
    assert_eq!(network("192.0.2.7").unwrap().to_string(), "192.0.2.7/32");
    assert_eq!(
        network("::ffff:10.0.0.0/104").unwrap().to_string(),
        "10.0.0.0/8"
    );
    assert_eq!(network("::/0").unwrap().to_string(), "::/0");
    assert_eq!(&*cgroup_path("/a//b/").unwrap(), "/a/b");
    assert_eq!(&*cgroup_path("/").unwrap(), "/");
}

#[test]
fn overrides_are_laid_over_the_agent_s_parameters() {
    let mut web = policy("web", ports(&["443"]), Action::Drive);
    web.overrides = vec![
        ("hb-loss", "7%".to_owned()),
        ("max-rate", "2mbit".to_owned()),
    ];
    // The first rate of the agent gives way, one of its own does not.
    let policies = Policies::new(vec![web.clone()]);
    let params = &policies.params(&Params::default()).unwrap()[0];
    assert_eq!(params.start_rate, Rate::from_mbit(2.0));
    web.overrides.push(("start-rate", "3mbit".to_owned()));
    let conflicting = Policies::new(vec![web]);
    let conflict = conflicting.params(&Params::default()).unwrap_err();
    let said = conflict.to_string();
    assert!(
        said.contains("`web`") && said.contains("--start-rate"),
        "{said}"
    );
    let base = Params {
        start_rate: Rate::from_mbit(1.0),
        mi_packets: 20,
        ..Params::default()
    };
    let params = &policies.params(&base).unwrap()[0];
    assert_eq!(
        (params.hb_loss, params.max_rate, params.mi_packets),
        (Ratio::new(0.07), Rate::from_mbit(2.0), 20)
    );
}

#[test]
fn arms_keep_their_share_and_keys_make_experiments_independent() {
    for by in [By::Connection, By::Host] {
        let [one, two] = ["one", "two"].map(|key| experiment(0.3, by, key));
        let (mut treated, mut both, mut neither) = (0, 0, 0);
        for host in 0..20_000u32 {
            let remote = SocketAddr::from((Ipv4Addr::from(0x0a00_0000 + host), 40_000));
            let connection = Connection::new("192.0.2.1:443".parse().unwrap(), remote, None);
            let arms =
                [&one, &two].map(|experiment| experiment.assign(&connection).0 == Arm::Treatment);
            treated += u32::from(arms[0]);
            both += u32::from(arms == [true, true]);
            neither += u32::from(arms == [false, false]);
        }
        // Four standard deviations of a binomial: 20,000 draws of 0.3, 0.09 and 0.49.
        assert!(treated.abs_diff(6_000) < 260, "{treated}");
        assert!(both.abs_diff(1_800) < 162, "{both}");
        assert!(neither.abs_diff(9_800) < 283, "{neither}");
    }
}

#[test]
fn a_host_s_connections_are_in_one_arm_if_hosts_are_compared() {
    let by_host = experiment(0.5, By::Host, "k");
    let by_connection = experiment(0.5, By::Connection, "k");
    let arms = |experiment: &Experiment, remote: &str| {
        let of = |port| {
            let remote = SocketAddr::new(remote.parse().unwrap(), port);
            experiment
                .assign(&Connection::new(
                    "192.0.2.1:443".parse().unwrap(),
                    remote,
                    None,
                ))
                .0
        };
        (1..200)
            .map(of)
            .collect::<std::collections::BTreeSet<_>>()
            .len()
    };
    for remote in ["198.51.100.7", "2001:db8::7"] {
        assert_eq!(arms(&by_host, remote), 1);
        assert_eq!(arms(&by_connection, remote), 2);
    }
}

/// An arm must stay the same with a later version of this program: a number written down once.
#[test]
fn arms_are_stable() {
    let experiment = experiment(0.5, By::Connection, "fall");
    let connection = connection("192.0.2.1:443", "198.51.100.7:50000", None);
    let (arm, unit) = experiment.assign(&connection);
    assert_eq!((arm.name(), unit), ("control", STABLE_UNIT));
}

const STABLE_UNIT: u64 = 0xa7a1_8f0d_a2aa_dee8;

/// Networks by hand: the first bits are equal.
fn contains_by_hand(net: IpNet, ip: IpAddr) -> bool {
    let bits = |ip: IpAddr| match ip {
        IpAddr::V4(v4) => (32, u128::from(v4.to_bits())),
        IpAddr::V6(v6) => (128, v6.to_bits()),
    };
    let ((width, net_bits), (other, ip_bits)) = (bits(net.addr()), bits(ip));
    width == other
        && (0..u32::from(net.prefix_len())).all(|bit| {
            let shift = width - 1 - bit;
            net_bits >> shift & 1 == ip_bits >> shift & 1
        })
}

/// Addresses that are near each other, so that some are in one network.
fn near_v4() -> impl Strategy<Value = Ipv4Addr> {
    (0u32..4, any::<u8>())
        .prop_map(|(high, low)| Ipv4Addr::from(0x0a00_0000 | high << 14 | u32::from(low)))
}

fn near_v6() -> impl Strategy<Value = Ipv6Addr> {
    (0u128..4, any::<u8>())
        .prop_map(|(high, low)| Ipv6Addr::from(0x2001_0db8 << 96 | high << 60 | u128::from(low)))
}

fn any_ip() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        near_v4().prop_map(IpAddr::V4),
        near_v6().prop_map(IpAddr::V6),
        near_v4().prop_map(|v4| IpAddr::V6(v4.to_ipv6_mapped())),
        any::<u32>().prop_map(|bits| IpAddr::V4(bits.into())),
    ]
}

fn any_network() -> impl Strategy<Value = IpNet> {
    prop_oneof![
        (near_v4(), 0u8..=32)
            .prop_map(|(ip, length)| Ipv4Net::new(ip, length).unwrap().trunc().into()),
        (near_v6(), 0u8..=128)
            .prop_map(|(ip, length)| Ipv6Net::new(ip, length).unwrap().trunc().into()),
    ]
}

fn any_conditions() -> impl Strategy<Value = Conditions> {
    let cgroup = proptest::sample::select(vec!["/", "/a", "/a/b", "/ab", "/c"]);
    let range = (1u16..40, 0u16..10).prop_map(|(first, more)| Ports(first..=first + more));
    (
        proptest::collection::vec(cgroup.prop_map(|path| path.into()), 0..2),
        proptest::collection::vec(range, 0..3),
        proptest::collection::vec(any_network(), 0..3),
    )
        .prop_map(|(cgroups, local_ports, destinations)| Conditions {
            cgroups,
            local_ports,
            destinations,
        })
}

fn any_connection() -> impl Strategy<Value = Connection> {
    let cgroup = proptest::sample::select(vec![
        None,
        Some("/"),
        Some("/a"),
        Some("/a/b"),
        Some("/ab/x"),
    ]);
    (any_ip(), 1u16..60, any_ip(), 1u16.., cgroup).prop_map(
        |(local, port, remote, remote_port, cgroup)| {
            Connection::new(
                SocketAddr::new(local, port),
                SocketAddr::new(remote, remote_port),
                cgroup.map(Into::into),
            )
        },
    )
}

proptest! {
    #[test]
    fn networks_read_back_and_contain_what_their_bits_say(net in any_network(), ip in any_ip()) {
        prop_assert_eq!(network(&net.to_string()), Ok(net));
        let conditions = Conditions { destinations: vec![net], ..Conditions::default() };
        let connection = Connection::new("192.0.2.1:1".parse().unwrap(), SocketAddr::new(ip, 1), None);
        prop_assert_eq!(conditions.check(&connection).is_ok(), contains_by_hand(net, ip.to_canonical()));
    }

    #[test]
    fn port_ranges_read_back_and_hold_exactly_their_ports(first in 1u16.., last in 1u16.., port in 1u16..) {
        let (first, last) = (first.min(last), first.max(last));
        let range: Ports = format!("{first}-{last}").parse().unwrap();
        prop_assert_eq!(range.to_string().parse(), Ok(range.clone()));
        let conditions = Conditions { local_ports: vec![range], ..Conditions::default() };
        let local = SocketAddr::from(([192, 0, 2, 1], port));
        let connection = Connection::new(local, "10.0.0.1:1".parse().unwrap(), None);
        prop_assert_eq!(conditions.check(&connection).is_ok(), (first..=last).contains(&port));
    }

    #[test]
    fn an_ipv4_mapped_connection_is_the_ipv4_one(
        local in near_v4(), remote in near_v4(), ports in any::<(u16, u16)>(), conditions in any_conditions(),
    ) {
        let ends = |wrap: fn(Ipv4Addr) -> IpAddr| {
            let [local, remote] = [(local, ports.0), (remote, ports.1)].map(|(ip, port)| SocketAddr::new(wrap(ip), port));
            Connection::new(local, remote, None)
        };
        let (plain, mapped) = (ends(IpAddr::V4), ends(|v4| IpAddr::V6(v4.to_ipv6_mapped())));
        prop_assert_eq!(conditions.check(&plain).is_ok(), conditions.check(&mapped).is_ok());
        let experiment = experiment(0.5, By::Connection, "x");
        prop_assert_eq!(experiment.assign(&plain), experiment.assign(&mapped));
    }

    /// However policies overlap: the one found matches, none before it does, and it does not depend on those behind.
    #[test]
    fn order_decides(
        all in proptest::collection::vec(any_conditions(), 0..6), connection in any_connection(),
    ) {
        let named = |(index, conditions): (usize, &Conditions)| policy(&format!("p{index}"), conditions.clone(), Action::Drive);
        let policies = Policies::new(all.iter().enumerate().map(named).collect());
        let verdict = policies.decide(&connection);
        let first = all.iter().position(|conditions| conditions.check(&connection).is_ok());
        prop_assert_eq!(verdict.policy, first);
        prop_assert_eq!(policies.passed_over(&connection).len(), first.unwrap_or(all.len()));
        if let Some(first) = first {
            let shorter = Policies::new(policies.all()[..=first].to_vec());
            prop_assert_eq!(shorter.decide(&connection), verdict);
        }
    }

    /// One more value makes a condition weaker, one more condition makes a policy stronger.
    #[test]
    fn values_widen_and_conditions_narrow(
        conditions in any_conditions(), net in any_network(), connection in any_connection(),
    ) {
        let matches = |conditions: &Conditions| conditions.check(&connection).is_ok();
        let mut more = conditions.clone();
        more.destinations.push(net);
        if conditions.destinations.is_empty() {
            prop_assert!(!matches(&more) || matches(&conditions));
        } else {
            prop_assert!(!matches(&conditions) || matches(&more));
        }
    }

    #[test]
    fn no_text_panics(text in "\\PC{0,40}") {
        let _ = (network(&text), cgroup_path(&text), text.parse::<Ports>(), check_name(&text));
    }
}
