//! Why a program is not launched, in words that say what to do.

use alloc::format;
use alloc::string::{String, ToString};

use kernel_core::loader::LoadError;
use kernel_core::stack::StackError;
use netstack::exchange::SettingError;
use netstack::job::{LaunchRefusal, RefusalCode};
use netstack::page::Object;

fn refusal(code: RefusalCode, text: String) -> LaunchRefusal {
    LaunchRefusal { code, text }
}

/// The file is no program for a node.
pub(super) fn file(error: LoadError) -> LaunchRefusal {
    let code = match error {
        LoadError::NotElf | LoadError::NotAProgram(_) | LoadError::BadHeader => RefusalCode::NotElf,
        LoadError::Not64Bit | LoadError::WrongMachine(_) => RefusalCode::WrongMachine,
        LoadError::DynamicallyLinked => RefusalCode::Dynamic,
        LoadError::Truncated { .. } => RefusalCode::Truncated,
        _ => RefusalCode::BadSegments,
    };
    refusal(code, error.to_string())
}

/// Arguments and environment cannot be put onto the stack.
pub(super) fn stack(error: StackError) -> LaunchRefusal {
    let text = match error {
        StackError::TooLarge(bytes) => format!(
            "arguments and environment need {bytes} bytes of stack, at most {} are possible: pass less",
            kernel_core::stack::INITIAL_STACK_MAX
        ),
        StackError::NoMemory(bytes) => format!(
            "the node's kernel has no {bytes} bytes for arguments and environment now: pass less, or launch again later"
        ),
        StackError::ZeroByte => "an argument contains a zero byte".to_string(),
    };
    refusal(RefusalCode::BadLaunchBlock, text)
}

/// The launch block makes no sense.
pub(super) fn bad_block(why: &str) -> LaunchRefusal {
    let text = format!("launch block not understood: {why}; are node and control of one version?");
    refusal(RefusalCode::BadLaunchBlock, text)
}

/// A variable for the kernel makes no sense.
pub(super) fn bad_variable(why: SettingError) -> LaunchRefusal {
    refusal(RefusalCode::BadLaunchBlock, why.to_string())
}

/// Control does not give what the launch needs.
pub(super) fn unreadable(object: Object, why: &str) -> LaunchRefusal {
    let text = format!("{object:?} could not be read from the control node: {why}; try again");
    refusal(RefusalCode::Unreadable, text)
}

/// No frames for a page table or the stack, on a node where files hold so many bytes.
pub(super) fn no_memory(file_bytes: u64) -> LaunchRefusal {
    let mut text = "not enough memory on the node to start a program".to_string();
    if file_bytes > 0 {
        let kib = file_bytes / 1024;
        text += &format!("; files that were cast hold {kib} KiB: `hearth casts drop` frees them");
    }
    refusal(RefusalCode::NoMemory, text)
}

/// A file that the launch names is not in the node's memory.
pub(super) fn no_file(name: &str) -> LaunchRefusal {
    let text = format!(
        "file {name} is not in this node's memory: `hearth cast {name}` brings it there, \
         `hearth run --with` casts it first"
    );
    refusal(RefusalCode::NoFile, text)
}

/// A file that the launch names is on its way and does not come nearer.
pub(super) fn file_stuck(name: &str, blocks: u64) -> LaunchRefusal {
    let text = format!(
        "file {name} was being cast to this node and stopped after {blocks} blocks: \
         `hearth cast {name}` again"
    );
    refusal(RefusalCode::NoFile, text)
}

/// The node has not so many cores.
pub(super) fn too_few_cores(all: usize, ranks: usize, each: usize) -> LaunchRefusal {
    let text = format!(
        "this node has {all} cores, and {ranks} ranks of {each} need {}: fewer ranks a node (-N), or \
         fewer cores for each (-c)",
        ranks * each
    );
    refusal(RefusalCode::Other, text)
}

/// Ended before it was loaded.
pub(super) fn cancelled() -> LaunchRefusal {
    refusal(RefusalCode::Cancelled, "cancelled".to_string())
}

/// The launch must use held pages, and there are none.
pub(super) fn not_warm() -> LaunchRefusal {
    let text = "this node holds no page of the program: launch without --warm-only, or wait until \
                control has heard of the drop"
        .to_string();
    refusal(RefusalCode::NotWarm, text)
}
