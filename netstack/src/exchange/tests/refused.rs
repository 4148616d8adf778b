//! What is not taken, and why.

use super::*;

#[test]
fn what_cannot_be_is_refused() {
    let mut net = Net::new(2, Scheme::Default, 0, 2);
    let mut memory = Buffers::default();
    let mut post = |op| net.ranks[0].post(Instant::ZERO, op, &mut memory);
    assert_eq!(post(send(2, 0, 0, 1)), Err(PostError::BadRank));
    assert_eq!(post(receive(9, 0, 0, 1)), Err(PostError::BadRank));
    assert_eq!(post(send(1, 0, 0, MAX_BLOCK + 1)), Err(PostError::TooLong));
    assert_eq!(
        post(Op::Barrier {
            among: Among::all(MAX_CONTEXTS)
        }),
        Err(PostError::BadContext)
    );
    let side = |parts| Side {
        buffer: BufferId(0),
        layout: Layout::Parts(parts),
    };
    let part = Part {
        offset: 0,
        bytes: 1,
    };
    let short = Op::AllToAll {
        among: Among::all(0),
        send: side(vec![part]),
        receive: side(vec![part, part]),
    };
    assert_eq!(post(short), Err(PostError::BadLayout));
    for _ in 0..MAX_OPS {
        assert!(post(receive(1, 0, 0, 1)).is_ok());
    }
    assert_eq!(post(receive(1, 0, 0, 1)), Err(PostError::Full));
}
