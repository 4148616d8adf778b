/* Numbers shared with the Rust part; filled in by global_asm!. */
.set DESC_STUB_BYTES, {desc_stub_bytes}
.set DESC_EARLY_SUM, {desc_early_sum}
.set DESC_WORKSPACE, {desc_workspace}
.set DESC_RELOCATIONS, {desc_relocations}
.set DESC_RELOCATION_COUNT, {desc_relocation_count}
.set WORKSPACE_BYTES, {workspace_bytes}
.set WORKSPACE_TABLE_BYTES, {workspace_table_bytes}
.set WORKSPACE_STACK_TOP, {workspace_stack_top}
.set ZP_TSC, {zp_tsc}
.set ZP_ENTRY, {zp_entry}
.set ZP_SCRATCH_STACK, 0x290
.set JUMP_CR3, {jump_params} + 0
.set JUMP_FAR, {jump_params} + 8
.set JUMP_HIGH, {jump_params} + 16
.set JUMP_PML4, {jump_params} + 24
.set JUMP_STACK, {jump_params} + 32
.set JUMP_BOOT_INFO, {jump_params} + 40
.set JUMP_ENTRY, {jump_params} + 48
.set JUMP_GDTR_LOW, {jump_params} + 56
.set JUMP_GDTR_HIGH, {jump_params} + 72
