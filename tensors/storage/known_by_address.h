// Memory that is freed by its address alone, as libtorch's raw_allocate has it.
#pragma once

#include <c10/core/Allocator.h>

namespace shoal {

/// The same memory, with its address as its context. Allocator::raw_allocate asserts that the two are one, is not
/// virtual, and so cannot be told from allocate(): what either gets has to have this form. How the memory is freed is
/// kept aside until it is, by whoever lets go of it last, or by free_by_address(). Threads: any. What is null stays so.
c10::DataPtr known_by_address(c10::DataPtr memory);

/// What known_by_address() was given, as long as the memory is not freed; any other memory itself.
const c10::DataPtr* behind_address(const c10::DataPtr& memory);
/// Whether the memory is of this form.
bool is_known_by_address(const c10::DataPtr& memory);

/// Frees memory that known_by_address() has given. Returns false if it knows none there.
bool free_by_address(void* address) noexcept;

}  // namespace shoal
