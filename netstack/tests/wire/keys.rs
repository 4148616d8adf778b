//! The authentication code and how keys are derived.

use netstack::ids::{BootEpoch, ControlEpoch, NodeId};
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

/// Computed with another implementation of SipHash.
#[test]
fn the_peer_key_is_wrapped_as_documented() {
    let join_key = Key(std::array::from_fn(|i| i as u8));
    let peer_key = Key(*b"0123456789abcdef");
    let vectors = [
        (1, 2, 0xfe3c513661be803418cd9837c9f1df80_u128),
        (0x1122_3344_5566_7788, 9, 0x6fb614f608ebb02330c43b298340a7f9),
    ];
    for (control, session, expected) in vectors {
        let control = ControlEpoch(control);
        let wrapped = join_key.wrap_peer_key(control, session, peer_key);
        assert_eq!(u128::from_be_bytes(wrapped), expected);
        let unwrapped = join_key.unwrap_peer_key(control, session, wrapped);
        assert!(unwrapped == peer_key);
        // Neither another session nor another node can use it.
        assert!(join_key.unwrap_peer_key(control, session + 1, wrapped) != peer_key);
        assert!(Key([9; 16]).unwrap_peer_key(control, session, wrapped) != peer_key);
    }
}
