//! Nodes with different network cards do together what nodes with one kind of card do.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::Scenario;
use crate::casts::{self, CastFile};
use crate::cluster::{Boot, Cluster};
use crate::{nodes, programs, ranks};

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "cards-run-programs",
        boot: Boot::Cards,
        run: programs::hello,
    },
    Scenario {
        name: "cards-cast",
        boot: Boot::Cards,
        run: casts::cast_and_drop,
    },
    Scenario {
        name: "cards-exchange",
        boot: Boot::Cards,
        run: exchange,
    },
    Scenario {
        name: "cards-link-off-and-on",
        boot: Boot::Cards,
        run: link,
    },
];

/// One of the two nodes that have cards of Intel's e1000e, where the cards are mixed.
const UNPLUGGED: &str = "n1";

fn exchange(cluster: &Cluster) -> Result<()> {
    ranks::examples(cluster, "c", 4)
}

/// A node whose cable is out at the switch for a while during a cast gets all of it in the end,
/// without booting again. (Its card does not see that; `hearth-boot` has a test in which it does.)
fn link(cluster: &Cluster) -> Result<()> {
    let boots = nodes::boots(cluster, UNPLUGGED)?;
    let file = CastFile::write(cluster, "cast-unplugged", 8_000_000, 5)?;
    let set = |state| {
        let words = ["ip", "link", "set", "dev", UNPLUGGED, state];
        cluster.in_namespace(&words, b"")?.expect_code(0)
    };
    std::thread::scope(|scope| {
        let cast = scope.spawn(|| file.cast(cluster, &[]));
        std::thread::sleep(Duration::from_millis(300));
        set("down")?;
        std::thread::sleep(Duration::from_secs(1));
        set("up")?;
        cast.join().expect("a cast does not panic").map(drop)
    })?;
    file.drop_everywhere(cluster)?;
    ensure!(
        nodes::boots(cluster, UNPLUGGED)? == boots,
        "{UNPLUGGED} booted again after its link was off for a second"
    );
    Ok(())
}
