// A call that notes the stack of an exception which leaves it.
#pragma once

namespace shoal {

/// Calls function(argument). If an exception comes out, its stack at the throw is in this process's crash record.
/// Exceptions caught inside cost nothing and leave nothing. It works by the unwinder's first pass, which asks each
/// frame on its way before it unwinds any; so it needs a frame with a personality of its own, written in assembler for
/// x86-64 and aarch64. On other machines it is a plain call.
void traced_call(void (*function)(void*), void* argument);

template <class F>
void traced_call(F&& function) {
  traced_call([](void* it) { (*static_cast<F*>(it))(); }, &function);
}

}  // namespace shoal
