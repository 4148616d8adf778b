//! What a program calls its counters: a note in its file, which the control node reads.
//!
//! Invariant: nothing of it runs, and nothing of it is read by the program.

/// Names the counters of this program, from counter 0 on, for whoever watches
/// ([`World::count`](crate::World::count)); once in a program. Letters, digits, `_-./` and blanks,
/// up to 32 for each name.
///
/// ```
/// hearth::counters!("steps", "residual");
/// ```
#[macro_export]
macro_rules! counters {
    ($first:literal $(, $more:literal)* $(,)?) => {
        const _: () = {
            const TEXT: &str = concat!($first $(, ",", $more)*);
            #[repr(C, align(4))]
            struct Note {
                lengths: [u32; 2],
                kind: u32,
                owner: [u8; 8],
                text: [u8; TEXT.len()],
            }
            // The name makes it an ELF note. Nothing else is put there, and nothing looks for it
            // while the program runs.
            #[used]
            #[unsafe(link_section = ".note.hearth")]
            static NOTE: Note = Note {
                lengths: [7, TEXT.len() as u32],
                kind: 1,
                owner: *b"Hearth\0\0",
                text: {
                    let (mut text, mut at) = ([0; TEXT.len()], 0);
                    while at < text.len() {
                        text[at] = TEXT.as_bytes()[at];
                        at += 1;
                    }
                    text
                },
            };
        };
    };
}
