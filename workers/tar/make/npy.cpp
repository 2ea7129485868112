#include <shoal/internal/workers/tar/make/npy.h>

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <shoal/internal/workers/tar/format/npy_header.h>
#include <shoal/workers/datasets/dataset_error.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>
#include <string_view>

namespace shoal::detail {
namespace {

constexpr std::array kTypes = {at::kByte,  at::kChar,   at::kBool,         at::kShort,        at::kInt,
                               at::kLong,  at::kUInt16, at::kUInt32,       at::kUInt64,       at::kHalf,
                               at::kFloat, at::kDouble, at::kComplexFloat, at::kComplexDouble};

/// NumPy's code without its byte order: "f4".
std::string code_of(at::ScalarType type) {
  char kind = 'u';
  if (type == at::kBool) kind = 'b';
  if (c10::isFloatingType(type)) kind = 'f';
  if (c10::isComplexType(type)) kind = 'c';
  if (type == at::kChar || type == at::kShort || type == at::kInt || type == at::kLong) kind = 'i';
  return fmt::format("{}{}", kind, c10::elementSize(type));
}

}  // namespace

at::Tensor parse_npy(std::span<const std::uint8_t> bytes, const std::string& where) {
  const auto fail = [&](const std::string& what) { throw DatasetError(fmt::format("{}: {}", where, what)); };
  const NpyArray array = parse_npy_header(bytes, where);
  const auto type = std::ranges::find(kTypes, std::string_view(array.code).substr(1), code_of);
  if (type == kTypes.end() || std::string_view("<>|=").find(array.code[0]) == std::string_view::npos)
    fail(fmt::format("no tensor has elements of the type {:?}", array.code));
  unsigned __int128 needed = c10::elementSize(*type);
  for (const std::int64_t size : array.shape)
    needed = std::min<unsigned __int128>(needed * static_cast<std::uint64_t>(size), ~std::uint64_t{0});
  if (needed != array.elements.size())
    fail(fmt::format("{} bytes of elements, which is not what ({}) has", array.elements.size(),
                     fmt::join(array.shape, ", ")));
  std::vector<std::int64_t> stored = array.shape;
  if (array.is_fortran) std::ranges::reverse(stored);
  at::Tensor tensor = at::empty(stored, at::TensorOptions(*type));
  const std::size_t count = array.elements.size();
  auto* target = static_cast<std::uint8_t*>(tensor.mutable_data_ptr());
  if (count > 0) std::memcpy(target, array.elements.data(), count);
  if (array.code[0] == '>') {
    const std::size_t number = c10::elementSize(*type) / (c10::isComplexType(*type) ? 2 : 1);
    for (std::size_t at = 0; at + number <= count; at += number) std::reverse(target + at, target + at + number);
  }
  if (!array.is_fortran) return tensor;
  std::vector<std::int64_t> reversed(stored.size());
  for (std::size_t i = 0; i < reversed.size(); ++i) reversed[i] = std::int64_t(reversed.size() - 1 - i);
  return tensor.permute(reversed).contiguous();
}

std::vector<std::uint8_t> store_npy(const at::Tensor& tensor) {
  if (std::ranges::find(kTypes, tensor.scalar_type()) == kTypes.end())
    throw std::invalid_argument(fmt::format("NumPy has no type for {}", c10::toString(tensor.scalar_type())));
  if (!tensor.is_cpu())
    throw std::invalid_argument(fmt::format("a tensor on {} cannot be stored as .npy; give tensors on the CPU (.cpu())",
                                            tensor.device().str()));
  const at::Tensor rows = tensor.resolve_conj().resolve_neg().contiguous();  // what it reads as, not what lies there
  std::string shape;
  for (const std::int64_t size : rows.sizes()) shape += fmt::format("{}, ", size);
  if (rows.dim() > 1) shape.resize(shape.size() - 2);
  if (rows.dim() == 1) shape.pop_back();
  const char order = rows.element_size() == 1 ? '|' : '<';
  std::string header = fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}), }}", order,
                                   code_of(rows.scalar_type()), shape);
  header.append(63 - (kNpyMagic.size() + 4 + header.size()) % 64, ' ');  // so that elements begin at a multiple of 64
  header += '\n';
  std::string file(kNpyMagic);
  file += {'\1', '\0', char(header.size() & 0xFFU), char(header.size() >> 8U)};
  file += header;
  std::vector<std::uint8_t> bytes(file.begin(), file.end());
  const auto* elements = static_cast<const std::uint8_t*>(rows.const_data_ptr());
  bytes.insert(bytes.end(), elements, elements + rows.nbytes());
  return bytes;
}

}  // namespace shoal::detail
