//! The front end with its configuration; what it does with nodes is tested with machines (`tests/src/e2e/overlay.rs`).

use super::*;

fn config() -> config::Overlay {
    config::defaults().overlay
}

fn overlay(config: config::Overlay) -> Result<Overlay, String> {
    let setup = Setup {
        me: Peer {
            addr: "127.0.0.1:1".parse().unwrap(),
            mac: [0; 6],
        },
        key: Key([1; 16]),
        seed: 1,
        config,
    };
    Overlay::new(setup, Instant::ZERO)
}

#[test]
fn the_streams_that_are_always_open_are_within_bounds() {
    let overlay = overlay(config()).unwrap();
    assert_eq!(overlay.front.streams().len(), 2);
    assert!(overlay.rows_stream.is_some() && overlay.totals_stream.is_some());
    let named = CALLS
        .iter()
        .filter_map(|call| view::name_of(MetricId::of_call(*call)?));
    assert_eq!(
        named.count(),
        CALLS.len(),
        "each call that is asked for has a name"
    );
    assert!(overlay.known().is_empty());
}

#[test]
fn a_configuration_that_makes_no_sense_is_refused() {
    for (placement, fan_out, period_ms, named) in [
        ("best", 32, 1000, "overlay.placement"),
        ("averaging", 1, 1000, "overlay.fan_out"),
        ("averaging", 200, 1000, "overlay.fan_out"),
        ("averaging", 32, 10, "overlay.period_ms"),
    ] {
        let config = config::Overlay {
            placement: placement.to_string(),
            fan_out,
            period_ms,
            ..config()
        };
        let error = overlay(config).unwrap_err();
        assert!(error.contains(named), "{error}");
    }
    for placement in ["comprehensive", "k-ary 4 2", "balanced 4x16"] {
        let config = config::Overlay {
            placement: placement.to_string(),
            ..config()
        };
        assert!(overlay(config).is_ok(), "{placement}");
    }
}
