// The pages that a start touches, brought in beforehand.
#pragma once

#include <cstddef>
#include <vector>

namespace shoal {

/// A forked process begins without the pages of code, and with pages of data that it shares until it writes to them:
/// each first touch is a fault, a hundred or so from the fork to the user's function. A spare, which has the time,
/// takes them all beforehand. Owned by the fork server and used in its spares; nothing of it is shared. Kernels
/// before 5.14 cannot, and then each comes when it is touched, as without this.
class WarmPages {
 public:
  /// Notes where the program and the libraries lie. Those that are large are left out: few of their pages are touched.
  WarmPages();

  /// Brings in their code, and makes their variables and the stack below the caller this process's own.
  void bring_in() const noexcept;

 private:
  struct Part {
    std::byte* begin;
    std::size_t bytes;
    bool written;
  };
  std::vector<Part> parts_;
};

}  // namespace shoal
