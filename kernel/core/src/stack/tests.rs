//! The stack at entry, read back the way a program's start-up code reads it.

use super::*;
use crate::loader::synthetic;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::vec;

const TOP: u64 = 0x7fff_ffff_f000;

fn word(stack: &InitialStack, at: u64) -> u64 {
    let index = (at - stack.pointer) as usize;
    u64::from_le_bytes(stack.bytes[index..index + 8].try_into().unwrap())
}

fn text(stack: &InitialStack, at: u64) -> Vec<u8> {
    let rest = &stack.bytes[(at - stack.pointer) as usize..];
    rest.iter().copied().take_while(|&byte| byte != 0).collect()
}

/// Pointers up to a 0, from `at` on; moves `at` behind the 0.
fn strings(stack: &InitialStack, at: &mut u64) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    loop {
        let pointer = word(stack, *at);
        *at += 8;
        if pointer == 0 {
            return found;
        }
        found.push(text(stack, pointer));
    }
}

proptest! {
    #[test]
    fn a_program_reads_back_what_was_given(
        argv in proptest::collection::vec("[ -~]{0,30}", 0..12),
        envp in proptest::collection::vec("[A-Z]{1,8}=[ -~]{0,30}", 0..12),
        random in any::<[u8; 16]>(),
    ) {
        let image = synthetic::image();
        let args: Vec<&[u8]> = argv.iter().map(|s| s.as_bytes()).collect();
        let env: Vec<&[u8]> = envp.iter().map(|s| s.as_bytes()).collect();
        let start = Start { argv: &args, envp: &env, random, hwcap: 0x1234, user: [1_000, 50] };
        let stack = InitialStack::build(&image, &start, TOP).unwrap();
        prop_assert_eq!(stack.pointer % 16, 0);
        prop_assert_eq!(stack.pointer + stack.bytes.len() as u64, TOP);
        let mut at = stack.pointer;
        prop_assert_eq!(word(&stack, at), args.len() as u64);
        at += 8;
        prop_assert_eq!(strings(&stack, &mut at), args.clone());
        prop_assert_eq!(strings(&stack, &mut at), env);
        let mut aux = BTreeMap::new();
        loop {
            let (key, value) = (word(&stack, at), word(&stack, at + 8));
            at += 16;
            if key == auxv::NULL {
                break;
            }
            prop_assert!(aux.insert(key, value).is_none());
        }
        prop_assert_eq!(aux[&auxv::PHDR], 0x40_0040);
        prop_assert_eq!(aux[&auxv::PHENT], 56);
        prop_assert_eq!(aux[&auxv::PHNUM], 5);
        prop_assert_eq!(aux[&auxv::PAGESZ], 4096);
        prop_assert_eq!(aux[&auxv::ENTRY], image.entry);
        prop_assert_eq!(aux[&auxv::HWCAP], 0x1234);
        prop_assert_eq!((aux[&auxv::UID], aux[&auxv::EUID]), (1_000, 1_000));
        prop_assert_eq!((aux[&auxv::GID], aux[&auxv::EGID]), (50, 50));
        let random_at = (aux[&auxv::RANDOM] - stack.pointer) as usize;
        prop_assert_eq!(&stack.bytes[random_at..random_at + 16], &random);
        let name = args.first().copied().unwrap_or(b"");
        prop_assert_eq!(text(&stack, aux[&auxv::EXECFN]), name);
    }
}

#[test]
fn too_much_or_a_zero_byte_is_refused() {
    let image = synthetic::image();
    let long = vec![b'x'; INITIAL_STACK_MAX];
    let build = |argv: &[&[u8]]| {
        let start = Start {
            argv,
            envp: &[],
            random: [0; 16],
            hwcap: 0,
            user: [0; 2],
        };
        InitialStack::build(&image, &start, TOP).map(|_| ())
    };
    assert!(matches!(build(&[&long]), Err(StackError::TooLarge(_))));
    assert_eq!(build(&[b"a\0b"]), Err(StackError::ZeroByte));
    assert_eq!(build(&[b"a"]), Ok(()));
}
