use super::*;

/// Two racks under a core switch; the second is wider.
const RACKS: &str = "\
# Our racks
SwitchName=rack1 Nodes=tux[1-4]   LinkSpeed=10
switchname=rack2 \\
   nodes=tux[5-9],login01   # on two lines
SwitchName=core  Switches=rack[1-2]
";

fn error(text: &str) -> String {
    Site::read(text).unwrap_err().to_string()
}

#[test]
fn nodes_are_numbered_by_the_switches_they_are_on() {
    let wired = Site::read(RACKS).unwrap().number().unwrap();
    assert_eq!(wired.widths, [6, 2]);
    assert!(wired.has_holes());
    let numbers: Vec<u32> = wired.nodes.keys().copied().collect();
    assert_eq!(numbers, [0, 1, 2, 3, 6, 7, 8, 9, 10, 11]);
    assert_eq!(wired.nodes[&11], "login01");
    let tree = wired.topology();
    assert_eq!((tree.hops(3, 6), tree.hops(6, 11)), (3, 1));
    let one = Site::read("SwitchName=s Nodes=a,b")
        .unwrap()
        .number()
        .unwrap();
    assert_eq!((one.widths.as_slice(), one.has_holes()), (&[2][..], false));
}

#[test]
fn names_of_hosts_are_expanded_as_slurm_does() {
    let names = |list: &str| -> Vec<String> {
        let site = Site::read(&format!("SwitchName=s Nodes={list}")).unwrap();
        site.names().map(str::to_string).collect()
    };
    assert_eq!(names("n[0-3]"), ["n0", "n1", "n2", "n3"]);
    assert_eq!(names("a[08-10,2]x,b"), ["a08x", "a09x", "a10x", "a2x", "b"]);
    assert_eq!(names("r[1-2]n[3-4]"), ["r1n3", "r1n4", "r2n3", "r2n4"]);
}

#[test]
fn nodes_that_have_numbers_keep_them() {
    let own = |name: &str| name.strip_prefix('n')?.parse().ok();
    let widths = |text: &str| {
        Site::read(text)
            .unwrap()
            .with_numbers(own)
            .map(|of| of.widths)
    };
    let two = |first: &str, second: &str| {
        widths(&format!(
            "SwitchName=a Nodes={first}\nSwitchName=b Nodes={second}\nSwitchName=c Switches=a,b\n"
        ))
    };
    assert_eq!(two("n[0-3]", "n[4-7]"), Ok(vec![4, 2]));
    // Holes, on either side.
    assert_eq!(two("n[0-3]", "n[6-11]"), Ok(vec![6, 2]));
    assert_eq!(two("n[0,5]", "n[6-7]"), Ok(vec![6, 2]));
    assert_eq!(two("n[8-11]", "n[0-3]"), Ok(vec![4, 3]));
    // The second rack has no block of its own: its first node is named.
    let error = two("n[0-3]", "n[4-9]").unwrap_err();
    assert_eq!((error.line, &*error.word), (2, "n4"), "{error}");
    assert!(error.what.contains("the next begins with n6"), "{error}");
    let error = two("n[0-3]", "x4").unwrap_err().to_string();
    assert!(error.starts_with("line 2: `x4` is no node"), "{error}");
    let error = two("n[0-3]", "n[4-5],n05").unwrap_err().to_string();
    assert!(error.contains("`n05` is node 5, and so is n5"), "{error}");
    let error = two("n[0-3]", "n4000000000").unwrap_err().to_string();
    assert!(error.contains("above 65535"), "{error}");
    // Of three levels the two above the leaves have numbers of their own, too.
    let three = "SwitchName=a Nodes=n[0-1]\nSwitchName=b Nodes=n[2-3]\nSwitchName=c Nodes=n[6-7]\n\
                 SwitchName=d Switches=a,b\nSwitchName=e Switches=c\nSwitchName=f Switches=d,e\n";
    assert_eq!(widths(three), Ok(vec![2, 2, 2]));
    let apart = three
        .replace("n[6-7]", "n[4-5]")
        .replace("n[2-3]", "n[6-7]");
    let error = widths(&apart).unwrap_err();
    assert_eq!((error.line, &*error.word), (3, "n4"), "{error}");
    // The narrowest leaf switches are not always those that fit.
    let apart = three
        .replace("n[6-7]", "n[12-13]")
        .replace("n[2-3]", "n[4-5]");
    assert_eq!(widths(&apart), Ok(vec![2, 3, 3]));
}

#[test]
fn what_is_wrong_is_named_by_line_and_word() {
    let deep: Vec<String> = (0..20)
        .map(|level| format!("SwitchName=s{level} Switches=s{}", level + 1))
        .collect();
    let deep = deep.join("\n") + "\nSwitchName=s20 Nodes=n0";
    for (text, words) in [
        ("", "line 1: `SwitchName` is missing"),
        ("\nNodes=n0", "line 2: `Nodes=n0` is on a line without"),
        ("SwitchName=a Nodes=n0 x", "line 1: `x` is not KEY=VALUE"),
        ("SwitchName=a Nodes= n0", "line 1: `Nodes=` has no value"),
        (
            "SwitchName=a Ports=9",
            "line 1: `Ports=9` is not understood",
        ),
        ("SwitchName=a", "line 1: `a` has neither"),
        ("SwitchName=a SwitchName=b", "`SwitchName=b` is a second"),
        ("SwitchName=a Nodes=n[0-3", "line 1: `n[0-3` has brackets"),
        ("SwitchName=a Nodes=n0]", "`n0]` has brackets"),
        ("SwitchName=a Nodes=n[[0]]", "`n[[0]]` has brackets"),
        (
            "SwitchName=a Nodes=n[0-x]",
            "`n[0-x]` has the range \"0-x\"",
        ),
        ("SwitchName=a Nodes=n[]", "has the range \"\""),
        ("SwitchName=a Nodes=n[+1]", "has the range \"+1\""),
        ("SwitchName=a Nodes=n[3-1]", "runs backwards"),
        ("SwitchName=a Nodes=n0,,n1", "has a comma"),
        (
            "SwitchName=a Nodes=n[0-4000000000]",
            "is more than the 65536",
        ),
        (
            "SwitchName=a Nodes=a[0-999]b[0-999]",
            "is more than the 65536",
        ),
        (
            "SwitchName=a Nodes=a[0-40000],b[0-40000]",
            "is more than the",
        ),
        (
            "SwitchName=a Nodes=n0\nSwitchName=a Nodes=n1",
            "line 2: `a` is the name",
        ),
        (
            "SwitchName=a Nodes=n[0-1],n1",
            "line 1: `n1` is on two switches",
        ),
        (
            "SwitchName=a Nodes=n0\nSwitchName=b Nodes=n1",
            "line 2: `b` has no switch in common with a",
        ),
        ("SwitchName=a Switches=b", "line 1: `b` is no switch"),
        ("SwitchName=a Switches=a", "line 1: `a` is below itself"),
        (
            "SwitchName=r Nodes=n0\nSwitchName=a Switches=b\nSwitchName=b Switches=a",
            "line 2: `a` is below itself",
        ),
        (
            "SwitchName=a Nodes=n0\nSwitchName=b Switches=a\nSwitchName=c Switches=a,b",
            "line 3: `a` is below b already",
        ),
        (
            "SwitchName=a Nodes=n0\nSwitchName=b Switches=a\nSwitchName=d Nodes=n1\n\
             SwitchName=c Switches=b,d",
            "line 4: `d` has not as many levels of switches below it as b",
        ),
        (
            "SwitchName=a Nodes=n0 Switches=b\nSwitchName=b Nodes=n1",
            "has both nodes",
        ),
        (&deep, "`s16` is more than 16 levels"),
    ] {
        let error = error(text);
        assert!(error.contains(words), "{text}: {error}");
    }
}
