//! The authentication code and how keys are derived.

use netstack::ids::{BootEpoch, NodeId};
use netstack::wire::key::Key;

/// From `vectors.h` of the authors' reference implementation: key 00 01 .. 0f, message of n bytes
/// 00 01 ..
#[test]
fn siphash_agrees_with_the_published_vectors() {
    let vectors: [(usize, u128); 6] = [
        (0, 0xa3817f04ba25a8e66df67214c7550293),
        (1, 0xda87c1d86b99af44347659119b22fc45),
        (2, 0x8177228da4a45dc7fca38bdef60affe4),
        (3, 0x9c70b60c5267a94e5f33b6b02985ed51),
        (4, 0xf88164c12d9c8faf7d0f6e7c7bcd5579),
        (63, 0x5150d1772f50834a503e069a973fbd7c),
    ];
    let key = Key(std::array::from_fn(|i| i as u8));
    for (length, expected) in vectors {
        let message: Vec<u8> = (0..length as u8).collect();
        assert_eq!(
            u128::from_be_bytes(key.mac(&[&message])),
            expected,
            "{length} bytes"
        );
        let (first, second) = message.split_at(length / 3);
        assert_eq!(
            key.mac(&[first, second]),
            key.mac(&[&message]),
            "in two parts"
        );
    }
}

#[test]
fn keys_differ_by_everything_they_are_derived_from() {
    use netstack::wire::key::Direction::{ToControl, ToNode};
    let secret = Key([1; 16]);
    let node_key = |id, mac, epoch, node| secret.node_key(id, mac, BootEpoch(epoch), NodeId(node));
    let node = node_key(1, [1; 6], 1, 1);
    let mut keys = vec![
        secret,
        node,
        node_key(2, [1; 6], 1, 1),
        node_key(1, [2; 6], 1, 1),
        node_key(1, [1; 6], 2, 1),
        node_key(1, [1; 6], 1, 2),
        node.join_key(ToControl),
        node.join_key(ToNode),
        node.session_key(ToControl, 1),
        node.session_key(ToNode, 1),
        node.session_key(ToNode, 2),
    ];
    let count = keys.len();
    keys.sort_by_key(|key| key.0);
    keys.dedup();
    assert_eq!(keys.len(), count);
    assert_eq!(format!("{node:?}"), "Key(..)", "a key does not show itself");
}
