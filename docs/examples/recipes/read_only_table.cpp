// A large table that every process reads and nobody can write to, in memory once.
//
//     read_only_table [MIB]      64 unless said otherwise; 1024 for the gigabyte
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/randint.h>
#include <fmt/format.h>
#include <shoal/ipc/heap_statistics.h>
#include <shoal/runtime/init.h>
#include <shoal/runtime/spawn.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/read_only.h>

#include <algorithm>
#include <exception>
#include <string>
#include <vector>

constexpr std::int64_t kColumns = 64;

struct Report {
  bool right;    // what it read is what was published
  bool refused;  // its write was
};

// Row r of the table is r, r, r, ...
at::Tensor make_table(std::int64_t mib) {
  const std::int64_t rows = mib * (1 << 20) / kColumns / 4;
  return at::arange(rows, at::kFloat).unsqueeze(1).expand({rows, kColumns}).contiguous();
}

Report look_up(int /*rank*/, at::Tensor table) {
  const at::Tensor rows = at::randint(table.size(0), {1000}, at::kLong);
  const at::Tensor found = table.index_select(0, rows);
  const bool right = found.eq(rows.unsqueeze(1)).all().item<bool>();
  try {
    table[0].fill_(7);
  } catch (const std::exception&) {  // shoal::WriteToReadOnlyTensor; libtorch's own exception before 2.13
    return {right, true};
  }
  return {right, false};
}

int main(int argc, char** argv) {
  shoal::init(argc, argv);
  const std::int64_t mib = argc > 1 ? std::stoll(argv[1]) : 64;
  // The table is copied once, into shared memory; the temporary goes at the end of the line.
  const at::Tensor table = shoal::read_only({.name = "table"}, make_table(mib));
  const std::vector<Report> reports = shoal::spawn({.nprocs = 4}, look_up, table);
  const std::int64_t shared = std::int64_t(shoal::heap_statistics().peak_bytes >> 20);
  const bool all_right = std::all_of(reports.begin(), reports.end(), [](Report r) { return r.right && r.refused; });
  fmt::print("4 processes read {} MiB and could not write; at most {} MiB of shared memory for all\n", mib, shared);
  return all_right && shared < mib + mib / 2 + 64 ? 0 : 1;
}
