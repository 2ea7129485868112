#include <shoal/internal/runtime/crash/traced_call.h>

#include <shoal/internal/runtime/crash/handler.h>
#include <shoal/internal/runtime/crash/stack.h>
#include <unwind.h>

#include <cstdint>

#if defined(__x86_64__) || defined(__aarch64__)

extern "C" {

void shoal_traced_call(void (*function)(void*), void* argument);

/// Asked by the unwinder, which has not changed the stack yet when it searches.
__attribute__((visibility("hidden"))) _Unwind_Reason_Code shoal_traced_personality(int, _Unwind_Action actions,
                                                                                   std::uint64_t, _Unwind_Exception*,
                                                                                   _Unwind_Context*) {
  if (actions & _UA_SEARCH_PHASE)
    if (auto* record = shoal::own_crash_record()) shoal::note_throw(*record);
  return _URC_CONTINUE_UNWIND;
}
}

// The personality is named through a word of data, as compilers do it, so that the code needs no relocation.
#define SHOAL_PERSONALITY_WORD                                                  \
  ".hidden DW.ref.shoal_traced_personality\n"                                   \
  ".weak DW.ref.shoal_traced_personality\n"                                     \
  ".section .data.rel.local.DW.ref.shoal_traced_personality,\"awG\",%progbits," \
  "DW.ref.shoal_traced_personality,comdat\n"                                    \
  ".balign 8\n"                                                                 \
  ".type DW.ref.shoal_traced_personality, %object\n"                            \
  ".size DW.ref.shoal_traced_personality, 8\n"                                  \
  "DW.ref.shoal_traced_personality:\n"                                          \
  ".quad shoal_traced_personality\n"                                            \
  ".text\n"

#if defined(__x86_64__)
asm(".text\n"
    ".hidden shoal_traced_call\n"
    ".globl shoal_traced_call\n"
    ".type shoal_traced_call, @function\n"
    "shoal_traced_call:\n"
    ".cfi_startproc\n"
    ".cfi_personality 0x9b, DW.ref.shoal_traced_personality\n"
    "endbr64\n"
    "pushq %rbp\n"
    ".cfi_def_cfa_offset 16\n"
    ".cfi_offset %rbp, -16\n"
    "movq %rsp, %rbp\n"
    ".cfi_def_cfa_register %rbp\n"
    "movq %rdi, %rax\n"
    "movq %rsi, %rdi\n"
    "call *%rax\n"
    "popq %rbp\n"
    ".cfi_def_cfa %rsp, 8\n"
    "ret\n"
    ".cfi_endproc\n"
    ".size shoal_traced_call, .-shoal_traced_call\n" SHOAL_PERSONALITY_WORD);
#else
asm(".text\n"
    ".hidden shoal_traced_call\n"
    ".globl shoal_traced_call\n"
    ".type shoal_traced_call, %function\n"
    "shoal_traced_call:\n"
    ".cfi_startproc\n"
    ".cfi_personality 0x9b, DW.ref.shoal_traced_personality\n"
    "stp x29, x30, [sp, -16]!\n"
    ".cfi_def_cfa_offset 16\n"
    ".cfi_offset 29, -16\n"
    ".cfi_offset 30, -8\n"
    "mov x29, sp\n"
    "mov x2, x0\n"
    "mov x0, x1\n"
    "blr x2\n"
    "ldp x29, x30, [sp], 16\n"
    ".cfi_restore 30\n"
    ".cfi_restore 29\n"
    ".cfi_def_cfa_offset 0\n"
    "ret\n"
    ".cfi_endproc\n"
    ".size shoal_traced_call, .-shoal_traced_call\n" SHOAL_PERSONALITY_WORD);
#endif

void shoal::traced_call(void (*function)(void*), void* argument) { shoal_traced_call(function, argument); }

#else

void shoal::traced_call(void (*function)(void*), void* argument) { function(argument); }

#endif
