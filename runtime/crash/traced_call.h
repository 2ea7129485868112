// A call that notes where an exception which leaves it was thrown.
#pragma once

namespace shoal {

/// Calls function(argument). An exception that comes out has its stack, as it was at the throw, in this process's
/// crash record; exceptions caught inside cost nothing and leave nothing. Works by the unwinder's first pass, which
/// asks each frame on its way before it unwinds any; so it needs a frame with a personality of its own, written in
/// assembler for x86-64 and aarch64. On other machines it is a plain call.
void traced_call(void (*function)(void*), void* argument);

template <class F>
void traced_call(F&& function) {
  traced_call([](void* it) { (*static_cast<F*>(it))(); }, &function);
}

}  // namespace shoal
